# SPDX-License-Identifier: Apache-2.0
"""A node's report of its health: its own word, of the boot that runs, and no older copy."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from imagebuilder.fleet.health import Verdict, reported_health
from imagebuilder.nodes.evidence.health_report import KEPT, LINE, read_history, sign
from imagebuilder.nodes.evidence.seen import LIMITS, HealthReport, read_seen
from imagebuilder.nodes.evidence.usage import FEW_REPORTS, find_usage, note_reports
from imagebuilder.recipe.rules import NAME
from imagebuilder.tree import ReleaseName, Tree, make_tree
from tests.integration.published import memory_folder
from tests.unit.web_log import boots, report_line, secret_of, ticket_line, write_log
from tests.workshop import CHECKOUT

HEALTH = CHECKOUT / "overlays/compute-node/files/usr/lib/imagebuilder/health"
MAC, SECOND, OTHER = "52:54:00:77:00:01", "52:54:00:77:00:11", "52:54:00:77:00:02"
BOOT = "0c1f6a3e-5f9e-4d3c-8b67-5a2f7d1c9e10"
AT = "2026-11-20T10:30:00+00:00"
LATER = "2026-11-20T10:31:00+00:00"
NODES = (
    f"nodes:\n  n1: {{macs: ['{MAC}', '{SECOND}'], profile: demo}}\n"
    f"  n2: {{macs: ['{OTHER}'], profile: demo}}\n"
)


@pytest.fixture
def tree() -> Iterator[Tree]:
    """n1 and n2, both just booted demo@1, each with a secret of its own."""
    with memory_folder() as top:
        made = make_tree(top / "tree")
        made.nodes_file.write_text(NODES)
        made.release(ReleaseName("demo", "1")).mkdir(parents=True)
        boots(made, MAC, "demo/1", name="n1")
        boots(made, OTHER, "demo/1", name="n2", address="192.0.2.6")
        note_reports(made)
        yield made


def told(
    boot: str = "n1", *, mac: str = MAC, uptime: str = "100.00", verdict: str = "ok",
    words: str = "3%20checks%20passed", release: str = "demo@1", readings: str = "",
) -> str:  # fmt: skip
    """A report, signed with the secret of a boot."""
    query = (
        f"node={mac}&release={release}&boot={BOOT}&uptime={uptime}&verdict={verdict}&words={words}"
    ) + (f"&readings={readings}" if readings else "")
    return f"/report/health?{query}&sign={sign(secret_of(boot), query.encode())}"


def health(tree: Tree, *uris: str, time: str = AT) -> HealthReport | None:
    """What is on record of n1 after these requests."""
    write_log(tree, *(report_line(uri, time=time) for uri in uris))
    note_reports(tree)
    seen = read_seen(tree.seen(MAC))
    assert seen is not None
    return seen.health


def test_what_a_node_says_of_itself_is_on_record(tree: Tree) -> None:
    found = health(tree, told(verdict="missing%20device", words="no%20%C2%B5%1B%5B2J"))
    assert found == HealthReport("missing device", "no µ\\x1b[2J", BOOT, 100.0, AT)
    again = health(tree, told(uptime="700.00"), time=LATER)
    assert again == HealthReport("ok", "3 checks passed", BOOT, 700.0, LATER)


@pytest.mark.parametrize("profile", ["A", "gpu_nodes", "rx7600xt.ubuntu-24.04", "0", "a" * 64])
def test_of_a_profile_with_any_name_that_a_recipe_may_have(profile: str) -> None:
    assert NAME.pattern.fullmatch(profile)
    with memory_folder() as top:
        made = make_tree(top / "tree")
        made.nodes_file.write_text(NODES.replace("demo", f"'{profile}'"))
        made.release(ReleaseName(profile, "1")).mkdir(parents=True)
        boots(made, MAC, f"{profile}/1", name="n1")
        note_reports(made)
        assert health(made, told(release=f"{profile}@1")) is not None


@pytest.mark.parametrize(
    "uri",
    [
        pytest.param(told("n2"), id="signed by another node"),
        pytest.param(told("n2", mac=OTHER).replace(OTHER, MAC), id="another node's report"),
        pytest.param(told(verdict="degraded").replace("degraded", "ok"), id="changed on its way"),
        pytest.param(told("older boot"), id="signed in an older boot"),
        pytest.param(told().partition("&sign")[0], id="not signed"),
        pytest.param(told().replace("&sign=", "&sign=0")[:-1], id="signed wrongly"),
        pytest.param(told(release="demo@2"), id="of a release that it does not run"),
        pytest.param(told(uptime="nan"), id="no time"),
        pytest.param(told(words="x" * 601), id="too long"),
        pytest.param(told(words="a b"), id="not quoted"),
        pytest.param(told(readings="card-celsius:hot"), id="a reading that is no number"),
        pytest.param(told(readings=",".join(["speed:1"] * 17)), id="too many readings"),
        pytest.param(told() + "&readings=speed:1", id="readings that were not signed"),
        pytest.param(told() + "&words=fine", id="more than was signed"),
    ],
)
def test_a_stranger_and_a_liar_are_not_believed(tree: Tree, uri: str) -> None:
    assert health(tree, uri) is None


def test_what_a_node_measured_is_on_record(tree: Tree) -> None:
    found = health(tree, told(readings="card-celsius:67,fan-rpm:900,memory-used:12884901888"))
    assert found
    assert found.readings == "card-celsius:67,memory-used:12884901888"
    shown = reported_health("n1", read_seen(tree.seen(MAC)), datetime.fromisoformat(AT))
    assert shown.readings == {"card-celsius": 67, "memory-used": 12 << 30}
    late = datetime.fromisoformat(AT) + timedelta(minutes=26)
    assert not reported_health("n1", read_seen(tree.seen(MAC)), late).readings
    most = ",".join(f"{name}:{limit - 1}" for name, limit in LIMITS.items())
    whole = health(tree, told(uptime="101.00", readings=most))
    assert whole
    assert whole.readings == most  # and the record holds it
    cannot_be = health(tree, told(uptime="102.00", readings="card-celsius:1000"))
    assert cannot_be
    assert cannot_be.readings is None


def test_changes_of_health_are_kept_and_nothing_else(tree: Tree) -> None:
    def verdicts() -> list[str]:
        return [each.report.verdict for each in read_history(tree, "n1")]

    speeds = [told(uptime=f"{n}.00", words=f"{n}%20tokens/s".replace("/", "%2F")) for n in (1, 2)]
    ill = told(uptime="3.00", verdict="degraded", words="slow")
    well = told(uptime="4.00", words="3%20tokens%2Fs")
    health(tree, *speeds, ill, ill, well)
    assert verdicts() == ["ok", "degraded", "ok"]
    assert read_history(tree, "n1")[0].report.words == "1 tokens/s"
    before = tree.health("n1").read_bytes()
    health(
        tree, *speeds, ill, told("n2", uptime="9.00"), told(uptime="5.00", words="4%20tokens%2Fs")
    )
    assert tree.health("n1").read_bytes() == before
    flips = [told(uptime=f"{n}.00", verdict=("ok", "degraded")[n % 2]) for n in range(10, 80)]
    health(tree, *flips)
    assert len(verdicts()) == KEPT
    tree.health("n1").write_text("{")
    health(tree, told(uptime="90.00"))
    assert verdicts() == ["ok"]


def test_a_flood_of_reports_of_a_node_is_read_at_once(tree: Tree) -> None:
    """Each of them would cost the boot server a millisecond or ten, which has others to serve."""
    flips = [told(uptime=f"{n}.00", verdict=("ok", "degraded")[n % 2]) for n in range(2000)]
    write_log(tree, *(report_line(uri, time=AT) for uri in flips))
    began = time.process_time()
    note_reports(tree)
    assert time.process_time() - began < 2
    assert [each.report.uptime for each in read_history(tree, "n1")] == [*range(1950, 2000)]


def test_a_copy_of_an_older_report_is_refused(tree: Tree) -> None:
    bad = told(uptime="700.00", verdict="degraded")
    assert health(tree, told(), bad) == health(tree, told(), bad, time=LATER)
    found = health(tree, time=LATER)
    assert found
    assert (found.verdict, found.at) == ("degraded", AT)


def test_another_boot_begins_without_a_verdict(tree: Tree) -> None:
    assert health(tree, told())
    boots(tree, SECOND, "demo/1", name="next", time="2026-11-20T12:35:00+02:00")
    assert health(tree) is None
    assert health(tree, told(uptime="900.00")) is None  # the secret of the boot before


def test_a_script_that_somebody_fetches_ends_no_boot(tree: Tree) -> None:
    """Any user of the node may fetch it, and be its node to the web server."""
    assert health(tree, told())
    for number, name in enumerate(("curl", "again"), 1):
        time = f"2026-11-20T10:35:0{number}+00:00"
        write_log(tree, ticket_line(SECOND, secret_of(name), time=time))
        assert health(tree)
    bad = told(uptime="900.00", verdict="degraded")
    found = health(tree, bad, told(), time="2026-11-20T10:40:00+00:00")
    assert found
    assert found.verdict == "degraded"
    # Nor can what is left of the boot before tell anything once the next one has reported.
    uri = f"/report/{secret_of('again')}/demo/1?stage=root&node={MAC}"
    write_log(tree, report_line(uri, time="2026-11-20T10:41:00+00:00"))
    assert health(tree) is None
    assert health(tree, told(uptime="950.00")) is None
    assert health(tree, told("again", uptime="20.00"))


def test_the_boot_before_reports_no_stage_for_the_next(tree: Tree) -> None:
    write_log(tree, ticket_line(MAC, secret_of("next"), time="2026-11-20T10:35:00+00:00"))
    uri = f"/report/{secret_of('n1')}/demo/1?stage=root&node={MAC}"
    write_log(tree, report_line(uri, time="2026-11-20T10:36:00+00:00"))
    note_reports(tree)
    seen = read_seen(tree.seen(MAC))
    assert seen
    assert seen.stage == "switch-root"


def test_many_bad_reports_of_one_address_are_not_looked_at(tree: Tree) -> None:
    assert health(tree, *[told("n2")] * (FEW_REPORTS + 1), told()) is None
    assert health(tree, told())  # in the next piece of the log


def test_a_node_that_reports_its_health_uses_its_release(tree: Tree) -> None:
    late = datetime(2027, 1, 10, tzinfo=UTC)
    assert not find_usage(tree, now=late).used
    health(tree, told(), time="2027-01-05T00:00:00+00:00")
    assert find_usage(tree, now=late).used == {ReleaseName("demo", "1"): ("n1",)}


def test_silence_and_age_are_no_verdict(tree: Tree) -> None:
    now = datetime.fromisoformat(AT)
    none = reported_health("n1", read_seen(tree.seen(MAC)), now)
    assert (none.verdict, none.at) == (Verdict.UNKNOWN, None)
    assert "no report of its health in this boot" in none.words
    health(tree, told())
    seen = read_seen(tree.seen(MAC))
    fresh = reported_health("n1", seen, now + timedelta(minutes=24))
    assert (fresh.verdict, fresh.release, fresh.boot_id) == (Verdict.OK, "demo@1", BOOT)
    assert fresh.source == "report"
    old = reported_health("n1", seen, now + timedelta(minutes=26))
    assert old.verdict is Verdict.UNKNOWN
    assert old.words == "its last report is too old: ok, 26 min ago"
    health(tree, told(uptime="101.00", verdict="splendid"))
    ahead = reported_health("n1", seen, now - timedelta(days=400))  # the clock was set back
    assert (ahead.verdict, ahead.readings) == (Verdict.UNKNOWN, {})
    assert "dated 400 days in the future" in ahead.words
    strange = reported_health("n1", read_seen(tree.seen(MAC)), now)
    assert strange.verdict is Verdict.UNKNOWN


class Listener(BaseHTTPRequestHandler):
    """Keeps what it is asked for."""

    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


def make_health_root(
    top: Path, reports_to: str, *, mac: str = MAC, words: str = "fine", status: int = 0
) -> None:
    """The files that a node's program looks at; it reports to `http://SERVER/report/SECRET/...`."""
    for path, text in {
        "proc/cmdline": f"quiet imagebuilder.report={reports_to}/demo/1 ro",
        "proc/sys/kernel/random/boot_id": BOOT,
        "proc/uptime": "1000.25 900.00",
        "etc/os-release": "IMAGE_ID=demo\nIMAGE_VERSION=1\n",
        "run/imagebuilder/node": mac,
        "run/imagebuilder/health/history.jsonl": '{"figures": {"it tokens/s": 40}}\n' * 3,
        "usr/lib/imagebuilder/health.d/alive-it": (
            "#!/bin/sh\necho reading card-celsius 67.4\necho rate tokens/s 36\n"
            f"echo 'reading a_b 1'\necho '{words}'\nexit {status}\n"
        ),
    }.items():
        place = top / path
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(text)
        place.chmod(0o755)


def have_node(top: Path, server: str, words: str, status: int) -> str:
    """Have the program of a node look at its health; what it printed."""
    reports_to = f"http://{server}/report/{secret_of('n1')}/0123456789abcdef"
    make_health_root(top, reports_to, words=words, status=status)
    env = {"HEALTH_ROOT": os.fspath(top), "PATH": os.environ["PATH"]}
    done = subprocess.run(
        [sys.executable, "-I", HEALTH], env=env, capture_output=True, text=True, check=True
    )
    return done.stdout


def test_the_program_of_a_node_is_understood(tree: Tree, tmp_path: Path) -> None:
    asked: list[str] = []
    server = HTTPServer(("127.0.0.1", 0), type("Ears", (Listener,), {"asked": asked}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        words = "é" * 250  # its end is cut off within a character
        have_node(tmp_path, f"127.0.0.1:{server.server_port}", words, 3)
    finally:
        server.shutdown()
        server.server_close()
    (uri,) = asked
    found = health(tree, uri)
    assert found
    assert (found.verdict, found.uptime) == ("missing device", 1000.25)
    assert found.words.startswith("it: éé")
    assert found.readings == "card-celsius:67,speed:90"
    assert len(uri) < 850  # with all readings 1000, nginx's client_header_buffer_size
    assert LINE.fullmatch(uri.encode())


def test_a_boot_server_that_does_not_answer_costs_no_verdict(tmp_path: Path) -> None:
    said = have_node(tmp_path, "127.0.0.1:1", "fine", 0)
    assert "the boot server was not told: " in said
    assert "ok: 1 checks passed" in said
    assert (tmp_path / "run/imagebuilder/health/verdict.json").exists()
