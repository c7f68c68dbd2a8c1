# SPDX-License-Identifier: Apache-2.0
"""The doctor on mirrors, clock, keyrings and the site file: a real server on this machine."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from imagebuilder.doctor.finding import HostFinding, Severity
from imagebuilder.doctor.inputs import (
    Probe,
    examine_clock,
    examine_foreign,
    examine_keyrings,
    examine_mirrors,
    examine_site,
    fill_in,
    find_skew,
    is_foreign,
    load_archives,
    run_probe,
    run_probes,
    without_secret,
)
from imagebuilder.families.apt.family import APT
from imagebuilder.recipe.model_sources import ArchiveModel

BASE = """\
distribution: debian
suite: trixie
kernel: linux-image-amd64
archives:
  - mirror: debian
    suites: [trixie, gone]
    components: [main]
    keyring: /usr/share/keyrings/debian.gpg
"""


class Mirror(BaseHTTPRequestHandler):
    """Has the suite trixie; its clock is an hour slow."""

    def do_HEAD(self) -> None:
        found = self.path == "/debian/dists/trixie/InRelease"
        self.send_response_only(200 if found else 404)
        self.send_header("Date", formatdate(time.time() - 3600, usegmt=True))
        self.end_headers()

    def log_message(self, *words: object) -> None:
        """Say nothing."""


@pytest.fixture
def mirror(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The address of a running Mirror."""
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    with ThreadingHTTPServer(("127.0.0.1", 0), Mirror) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/debian"
        server.shutdown()
        thread.join()


def archive(mirror: str = "debian", *, keyring: str = "/k") -> ArchiveModel:
    """An archive with the suites trixie and gone."""
    return ArchiveModel(
        mirror=mirror, suites=["trixie", "gone"], components=["main"], keyring=keyring
    )


def test_archives_of_valid_bases_are_read(tmp_path: Path) -> None:
    (tmp_path / "good.yaml").write_text(BASE)
    (tmp_path / "invalid.yaml").write_text("distribution: plan9\n")
    (tmp_path / "broken.yaml").write_text("a: [\n")
    (read,) = load_archives(APT, tmp_path.iterdir())
    assert (read.mirror, read.suites) == ("debian", ["trixie", "gone"])
    assert load_archives(APT, ()) == ()


def test_every_suite_of_every_mirror_is_asked_for(mirror: str) -> None:
    probes = run_probes(APT, {"debian": mirror}, [archive(), archive("other")])
    findings = examine_mirrors(APT, {"debian": mirror}, [archive(), archive("other")], probes)
    assert [(f.subject, f.level) for f in findings] == [
        ("other", Severity.PROBLEM),
        ("debian", Severity.WARNING),
        ("debian", Severity.OK),
    ]
    assert findings[1].what == f"{mirror} answers with status 404 for gone"
    assert "IMAGEBUILDER_MIRROR" in findings[0].fix


def test_a_slow_clock_of_a_mirror_shows(mirror: str) -> None:
    skew = run_probe(APT.suite_index("debian", "trixie", "main"), "debian", "trixie", mirror).skew
    assert skew is not None
    assert 3590 < skew < 3610


def test_a_mirror_that_is_down_is_a_problem_without_the_noise() -> None:
    probe = run_probe(
        APT.suite_index("debian", "trixie", "main"), "debian", "trixie", "http://127.0.0.1:9/debian"
    )
    assert probe.level is Severity.PROBLEM
    assert probe.what == "http://127.0.0.1:9/debian is not reachable: Connection refused"


@pytest.mark.parametrize("address", ["gopher://x/debian", "http://[::1/debian", "debian"])
def test_an_address_that_is_none_is_a_problem(address: str) -> None:
    assert (
        run_probe(APT.suite_index("debian", "trixie", "main"), "debian", "trixie", address).level
        is Severity.PROBLEM
    )


def test_a_mirror_in_a_folder(tmp_path: Path) -> None:
    (tmp_path / "dists/trixie").mkdir(parents=True)
    (tmp_path / "dists/trixie/InRelease").touch()
    assert (
        run_probe(
            APT.suite_index("debian", "trixie", "main"), "debian", "trixie", f"file://{tmp_path}"
        ).level
        is Severity.OK
    )
    assert (
        run_probe(
            APT.suite_index("debian", "sid", "main"), "debian", "sid", f"file://{tmp_path}"
        ).level
        is Severity.WARNING
    )


def test_secrets_in_an_address_are_not_shown() -> None:
    address = "http://me:secret@127.0.0.1:9/debian"
    assert without_secret(address) == "http://127.0.0.1:9/debian"
    assert (
        "secret"
        not in run_probe(
            APT.suite_index("debian", "trixie", "main"), "debian", "trixie", address
        ).what
    )


def test_a_snapshot_is_filled_in() -> None:
    assert fill_in("http://m/{snapshot}/", "20260920T000000Z") == "http://m/20260920T000000Z"


@pytest.mark.parametrize(
    ("date", "skew"),
    [
        ("Thu, 01 Jan 1970 00:16:40 GMT", 0.0), ("Thu, 01 Jan 1970 00:15:40 GMT", 60.0),
        ("", None), ("yesterday", None),
    ],
)  # fmt: skip
def test_find_skew(date: str, skew: float | None) -> None:
    assert find_skew(date, 1000.0) == skew


@pytest.mark.parametrize(
    ("skews", "words"),
    [
        ((2.0, 4000.0), "agrees with the mirrors"),
        ((-3600.0,), "60 min behind the mirrors: signatures will not verify"),
        ((7200.0, 3600.0), "60 min ahead of the mirrors: signatures will not verify"),
    ],
)
def test_the_clock(skews: tuple[float, ...], words: str) -> None:
    probes = [Probe("debian", "trixie", Severity.OK, "", skew) for skew in skews]
    (finding,) = examine_clock(probes)
    assert finding.what == words
    assert finding.ok == words.startswith("agrees")


def test_nothing_is_said_of_the_clock_when_no_mirror_told_the_time() -> None:
    assert examine_clock([Probe("debian", "trixie", Severity.PROBLEM, "")]) == ()


def test_keyrings(tmp_path: Path) -> None:
    (tmp_path / "here.gpg").touch()
    archives = [archive(keyring=f"{tmp_path}/{name}.gpg") for name in ("here", "gone", "here")]
    assert [(f.subject, f.level) for f in examine_keyrings(archives)] == [
        ("gone.gpg", Severity.PROBLEM),
        ("here.gpg", Severity.OK),
    ]


@pytest.mark.parametrize(
    ("text", "level", "words"),
    [
        ("ssh-keys: [~/.ssh/k.pub]\n", Severity.OK, "names ssh keys: 1"),
        ("vars: {}\n", Severity.WARNING, "no ssh key, so nobody can log in to a node"),
        ("ssh-keys: x\n", Severity.PROBLEM, "site.yaml:1:11: ssh-keys: expected a list"),
        ("\nkeys: []\n", Severity.PROBLEM, "site.yaml:2:1: keys: unknown key"),
        ("a: [\n", Severity.PROBLEM, "site.yaml:2"),
    ],
)
def test_the_site_file(tmp_path: Path, text: str, level: Severity, words: str) -> None:
    site = tmp_path / "site.yaml"
    site.write_text(text)
    finding = examine_site(site, tmp_path)
    assert finding.level is level
    assert words in finding.what


def test_a_key_of_ones_own_will_do(tmp_path: Path) -> None:
    assert examine_site(tmp_path / "site.yaml", tmp_path).level is Severity.WARNING
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh/id_ed25519.pub").touch()
    assert isinstance(finding := examine_site(tmp_path / "site.yaml", tmp_path), HostFinding)
    assert finding.ok


def test_another_distribution_is_no_problem(tmp_path: Path) -> None:
    """A Debian host without Ubuntu's keyring builds on Debian; nothing of Ubuntu is asked for."""
    own = archive(keyring=str(tmp_path / "debian.gpg"))
    other = archive("ubuntu", keyring=str(tmp_path / "ubuntu-archive-keyring.gpg"))
    mirrors = {"debian": "http://m.example/debian"}
    assert not is_foreign(APT, own, mirrors)
    assert is_foreign(APT, other, mirrors)
    [finding] = examine_foreign(APT, (own, other), mirrors)
    assert finding.level is Severity.OK
    assert finding.what.endswith("install ubuntu-keyring")
    # Whoever has the keyring, or names a mirror, means to build on it.
    assert not is_foreign(APT, other, {**mirrors, "ubuntu": "http://m.example/ubuntu"})
    (tmp_path / "ubuntu-archive-keyring.gpg").touch()
    assert not is_foreign(APT, other, mirrors)
    assert examine_foreign(APT, (own, other), mirrors) == ()
    assert examine_mirrors(APT, mirrors, (own, other), ()) == ()
