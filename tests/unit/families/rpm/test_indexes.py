# SPDX-License-Identifier: Apache-2.0
"""Indexes of repositories that are unsigned, replayed, damaged, slow or gone."""

from __future__ import annotations

import gzip
import hashlib
import os
import re
import shutil
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import zstandard

from imagebuilder.errors import FullError, HostError, ImagebuilderError, InputError, WorkError
from imagebuilder.families.rpm import indexes, repomd
from imagebuilder.families.rpm.indexes import (
    check_against_lock,
    last_indexes,
    load_indexes,
    locked_sources,
    read_sources,
)
from imagebuilder.families.rpm.repomd import parse_repomd
from imagebuilder.families.rpm.repository import Index, Repository
from imagebuilder.families.rpm.signatures import check_signed
from imagebuilder.lock.patience import Patience
from imagebuilder.lock.types import Lock, LockedPackage
from imagebuilder.recipe.types import Source
from tests.fixtures.aptrepo import Plant, SigningKey, gpg
from tests.fixtures.full import file_size_limit
from tests.fixtures.rpm_repository import DATE, Rpm, make_rpm, sign_index
from tests.unit.families.rpm.conftest import RpmSite

pytestmark = pytest.mark.slow

SOON = Patience(rate=10_000, seconds=1.0)
REPOMD = "9/AppStream/x86_64/os/repodata/repomd.xml"
DAY = 86400
MODULES = "---\ndocument: modulemd\nversion: 2\ndata: {name: nginx, stream: '1.26'}\n"


def load(site: RpmSite, *sources: Source, patience: Patience = SOON) -> tuple[Index, ...]:
    site.notes.clear()
    return load_indexes(site.repositories(*sources), site.cache, site.notes.append, patience)


def lock_of(found: tuple[Index, ...]) -> Lock:
    return Lock("tested", "amd64", "rocky", 0, locked_sources(found), ())


def rewrite(site: RpmSite, change: Callable[[str], str], key: SigningKey | None = None) -> None:
    """Change repomd.xml of AppStream, and sign it."""
    path = site.folder / REPOMD
    path.write_text(change(path.read_text()))
    sign_index(site.place("AppStream"), key or site.keys[0])


def test_verified_indexes_are_files_of_the_cache(site: RpmSite) -> None:
    site.again("AppStream", DATE + 5 * DAY, MODULES)
    base, apps, tools = load(site)
    assert [each.repository.name for each in (base, apps, tools)] == [
        "rocky-9-BaseOS",
        "rocky-9-AppStream",
        "tools",
    ]
    assert (base.date, apps.date, base.signed, tools.signed) == (DATE, DATE + 5 * DAY, True, True)
    assert b"<name>bash</name>" in gzip.decompress(base.primary.read_bytes())
    assert apps.filelists is not None
    assert b"/usr/share/nginx/page" in gzip.decompress(apps.filelists.read_bytes())
    assert apps.modules is not None
    assert gzip.decompress(apps.modules.read_bytes()).decode() == MODULES
    assert base.modules is None
    assert base.primary.parent == site.cache / "rpm/indexes"


def test_nothing_is_fetched_twice(site: RpmSite) -> None:
    first = load(site)
    site.server.asked.clear()
    assert load(site) == first
    assert {Path(path).name for path in site.server.asked} == {"repomd.xml", "repomd.xml.asc"}
    first[0].primary.write_bytes(b"damaged on this disk")
    site.server.asked.clear()
    assert load(site) == first
    fetched = [path for path in site.server.asked if "repomd" not in path]
    assert fetched == [site.index_path("BaseOS", "primary")]


def test_what_nobody_uses_is_removed_later(site: RpmSite) -> None:
    site.again("AppStream", DATE, MODULES)
    old = load(site)[1].modules
    site.again("AppStream", DATE, f"{MODULES}# changed")
    new = load(site)[1].modules
    assert old
    assert new
    assert old.exists()
    past = time.time() - (indexes.KEEP_DAYS + 1) * DAY
    for path in (old, new):
        os.utime(path, (past, past))
    load(site)
    assert not old.exists()
    assert new.exists()


@pytest.mark.parametrize("kind", ["gz", "xz", "zstd", "bz2"])
def test_indexes_may_be_compressed_in_every_way(site: RpmSite, kind: str) -> None:
    if kind == "zstd":  # only newer programs can make it
        pack_with_zstd(site)
    else:
        site.again("AppStream", DATE, "", "--general-compress-type", kind)
    ending = {"zstd": "zst"}.get(kind, kind)
    found = load(site)[1]
    assert found.primary.name.endswith(f"-primary.xml.{ending}")


def pack_with_zstd(site: RpmSite) -> None:
    packed_as: dict[str, str] = {}

    def pack(text: str) -> str:
        for kind in ("primary", "filelists"):
            path = site.folder / site.index_path("AppStream", kind)
            content = zstandard.ZstdCompressor().compress(gzip.decompress(path.read_bytes()))
            digest = hashlib.sha256(content).hexdigest()
            (path.parent / f"{digest}-{kind}.xml.zst").write_bytes(content)
            before = path.name.partition("-")[0]
            size = path.stat().st_size
            path.unlink()
            text = text.replace(before, digest).replace(f"{kind}.xml.gz", f"{kind}.xml.zst")
            text = text.replace(f"<size>{size}<", f"<size>{len(content)}<")
            packed_as[kind] = digest
        return text

    rewrite(site, pack)
    assert len(packed_as) == 2


def test_unsigned_indexes_are_reported_and_stay_unsigned(site: RpmSite) -> None:
    (site.folder / "vendor/repodata/repomd.xml.asc").unlink()
    found = load(site)
    assert [each.signed for each in found] == [True, True, False]
    assert [note for note in site.notes if "sign" in note] == [
        "note: tools does not sign its index, so its mirror chooses what it offers; the signature "
        "of every package is verified"
    ]


def test_a_signature_that_vanishes_is_an_error(site: RpmSite) -> None:
    load(site)
    (site.folder / f"{REPOMD}.asc").unlink()
    with pytest.raises(WorkError, match="AppStream has no signature any more") as caught:
        load(site)
    marker = Path(caught.value.faults[0].hint.rpartition(" ")[2])
    marker.unlink()
    assert not load(site)[1].signed


def test_a_signature_that_cannot_be_fetched_is_not_one_that_is_missing(site: RpmSite) -> None:
    site.server.plant(f"{REPOMD}.asc", Plant.SILENT)
    with pytest.raises(HostError, match=r"mirror is not reachable: .*repomd\.xml\.asc"):
        load(site)


def test_a_mirror_that_is_away_is_named_once(site: RpmSite) -> None:
    away = replace(site.rocky, mirror="", uri="http://127.0.0.1:9/pub", key=site.vendor_key,
                   fingerprints=(site.keys[1].fingerprint,))  # fmt: skip
    with pytest.raises(HostError, match=r"repomd\.xml and 3 more files") as caught:
        load(site, away)
    assert len(caught.value.faults) == 1


def test_another_key_is_not_trusted(site: RpmSite) -> None:
    sign_index(site.place("AppStream"), site.keys[2])
    with pytest.raises(WorkError, match=r"AppStream is invalid: it was made with another key \("):
        load(site)
    sign_index(site.place("AppStream"), site.keys[0])
    sign_index(site.place(""), site.keys[0])  # each source has its own
    with pytest.raises(WorkError, match="source tools: the signature") as caught:
        load(site)
    assert site.keys[1].fingerprint in caught.value.faults[0].hint


def sign_twice(site: RpmSite, *keys: SigningKey) -> None:
    """Two signatures of repomd.xml of AppStream in one file, as when a key is replaced."""
    repomd = site.folder / REPOMD
    words = [word for key in keys for word in ("--local-user", key.fingerprint)]
    gpg(keys[0].home, *words, "--armor", "--detach-sign", "--output", f"{repomd}.asc", repomd)


def test_one_of_two_signatures_may_be_of_a_key_that_comes(site: RpmSite) -> None:
    sign_twice(site, site.keys[0], site.keys[2])
    assert load(site)[1].signed
    sign_twice(site, site.keys[1], site.keys[2])
    with pytest.raises(WorkError, match="it was made with another key"):
        load(site)
    sign_twice(site, site.keys[0], site.keys[2])
    path = site.folder / REPOMD
    path.write_text(f"{path.read_text()}\n")
    with pytest.raises(WorkError, match="it was not made of this file"):
        load(site)


def test_a_key_that_binds_itself_by_sha1_signs_by_sha256(site: RpmSite, tmp_path: Path) -> None:
    home = site.keys[0].home  # the keys of Enterprise Linux 9 are like this one
    weak = ("--allow-weak-digest-algos", "--cert-digest-algo", "SHA1")
    gpg(home, *weak, "--quick-generate-key", "El <el@example.org>", "rsa2048", "sign", "never")
    shown = gpg(home, "--with-colons", "--list-keys", "el@example.org")
    fingerprint = next(line for line in shown.splitlines() if line.startswith("fpr:")).split(":")[9]
    key = SigningKey(home, fingerprint, tmp_path / "el.gpg")
    gpg(home, "--output", key.certificate, "--export", fingerprint)
    assert "digest algo 2" in gpg(home, "--list-packets", key.certificate)
    source = replace(site.vendor, key=key.certificate, fingerprints=(fingerprint,))
    sign_index(site.place(""), key)
    assert load(site, source)[0].signed
    path = tmp_path / "hello.rpm"
    make_rpm(Rpm("hello"), path, key)
    locked = LockedPackage("hello", "1.0-1.el9", "noarch", "0" * 64, 1, "hello.rpm", source.id)
    check_signed([(path, locked)], {source.id: source}, tmp_path)
    repomd = site.place("") / "repodata/repomd.xml"
    words = ("--allow-weak-digest-algos", "--digest-algo", "SHA1", "--armor", "--detach-sign")
    gpg(home, "--local-user", fingerprint, *words, "--output", f"{repomd}.asc", repomd)
    with pytest.raises(WorkError, match="by means of SHA-1, which can be forged"):
        load(site, source)


def test_the_last_indexes_need_no_mirror(site: RpmSite) -> None:
    repositories = site.repositories()
    first = last_indexes(repositories, site.cache, site.notes.append)  # never loaded before
    assert first == load(site)
    site.again("AppStream", DATE + DAY, MODULES)
    site.server.asked.clear()
    assert last_indexes(repositories, site.cache, site.notes.append) == first
    assert site.server.asked == []
    first[0].primary.unlink()
    changed = last_indexes(repositories, site.cache, site.notes.append)
    assert changed[1].date == DATE + DAY
    assert changed[0].primary.exists()


def test_a_changed_file_is_not_trusted(site: RpmSite) -> None:
    path = site.folder / REPOMD
    path.write_text(path.read_text().replace("<revision>", "<revision>1"))
    site.server.asked.clear()
    with pytest.raises(WorkError, match="invalid: it was not made of this file"):
        load(site)
    assert site.server.asked.count(REPOMD) == 2  # it may have been between two updates


def test_a_signature_with_garbage_is_not_trusted(site: RpmSite) -> None:
    (site.folder / f"{REPOMD}.asc").write_text("<html>please log in</html>")
    with pytest.raises(WorkError, match="invalid: it is damaged"):
        load(site)


def test_a_key_that_is_not_pinned_is_refused(site: RpmSite, tmp_path: Path) -> None:
    both = tmp_path / "both.gpg"
    both.write_bytes(b"".join(key.certificate.read_bytes() for key in site.keys[1:]))
    with pytest.raises(InputError, match="but the overlay pins"):
        load(site, replace(site.vendor, key=both))


def test_a_missing_keyring_names_its_package(site: RpmSite) -> None:
    with pytest.raises(HostError, match=r"keyring /nowhere\n.*or install distribution-"):
        load(site, replace(site.rocky, key=Path("/nowhere")))


def test_a_missing_suite_is_an_input_error(site: RpmSite) -> None:
    shutil.rmtree(site.place("AppStream") / "repodata")
    with pytest.raises(InputError, match="suite 9 or its component AppStream"):
        load(site)
    with pytest.raises(InputError, match="does not have suite 8"):
        load(site, replace(site.rocky, suites=("8",)))


@pytest.mark.parametrize(
    ("plant", "kind", "what"),
    [
        (Plant.UNAVAILABLE, HostError, "is not reachable"),
        (Plant.SILENT, HostError, "is not reachable"),
        (Plant.TRUNCATED, HostError, "is not reachable"),
        (Plant.STALLED, HostError, "the package lists arrived at less than 10 kB/s for 1 s"),
        (Plant.GARBLED, WorkError, "invalid"),
    ],
)
def test_faults_of_a_mirror(
    site: RpmSite, plant: Plant, kind: type[ImagebuilderError], what: str
) -> None:
    site.server.plant(REPOMD, plant)
    with pytest.raises(kind, match=what):
        load(site)
    site.server.mend()
    load(site)


@pytest.mark.parametrize(
    ("plant", "kind", "what"),
    [
        (Plant.MISSING, WorkError, "do not match its repomd.xml"),
        (Plant.GARBLED, WorkError, "do not match its repomd.xml"),
        (Plant.LYING, WorkError, "Maximum file size exceeded"),
        (Plant.ENDLESS, WorkError, "Maximum file size exceeded"),
        (Plant.TRUNCATED, HostError, "is not reachable"),
        (Plant.STALLED, HostError, "gave up updating them"),
    ],
)
def test_faults_of_an_index(
    site: RpmSite, plant: Plant, kind: type[ImagebuilderError], what: str
) -> None:
    site.server.plant(site.index_path("AppStream", "filelists"), plant)
    with pytest.raises(kind, match=what):
        load(site)
    site.server.mend()
    assert load(site)[1].filelists


def test_a_partial_index_is_resumed_or_fetched_again(site: RpmSite) -> None:
    path = site.folder / site.index_path("AppStream", "primary")
    unfinished = site.cache / "rpm/unfinished"
    unfinished.mkdir(parents=True)
    begun = unfinished / path.name
    begun.write_bytes(path.read_bytes()[:100])
    site.server.ranges = True
    load(site)
    name = site.index_path("AppStream", "primary")
    assert site.server.sent[name] == path.stat().st_size - 100
    shutil.rmtree(site.cache)
    for ranges in (True, False):
        site.server.ranges = ranges
        unfinished.mkdir(parents=True)
        begun.write_bytes(b"x" * 100)
        assert load(site)[1].primary.read_bytes() == path.read_bytes()
        assert not list(unfinished.iterdir())
        shutil.rmtree(site.cache)


def test_a_complete_index_is_not_fetched_again(site: RpmSite) -> None:
    path = site.folder / site.index_path("AppStream", "primary")
    unfinished = site.cache / "rpm/unfinished"
    unfinished.mkdir(parents=True)
    shutil.copy(path, unfinished)
    load(site)
    assert site.index_path("AppStream", "primary") not in site.server.asked
    shutil.rmtree(site.cache)
    unfinished.mkdir(parents=True)
    (unfinished / path.name).write_bytes(b"x" * path.stat().st_size)
    assert load(site)[1].primary.read_bytes() == path.read_bytes()


def test_a_dead_mirror_is_the_hosts_error_without_its_login(site: RpmSite) -> None:
    vendor = replace(site.vendor, uri="http://user:secret@127.0.0.1:9/r")
    with pytest.raises(HostError, match="the vendor is not reachable: http://127") as caught:
        load(site, vendor)
    assert "secret" not in str(caught.value)


def test_a_login_reaches_the_server_and_no_argument(site: RpmSite) -> None:
    site.server.login = "user:se cret%"
    login = "user:se%20cret%25"
    address = site.server.uri.replace("://", f"://{login}@")
    found = load_indexes(
        site.repositories(replace(site.vendor, uri=f"{address}/vendor")),
        site.cache,
        site.notes.append,
    )
    assert found[0].signed
    words = "\n".join(site.server.programs)
    assert "curl" in words
    assert "cret" not in words
    below = [path for path in (site.cache / "rpm").rglob("*") if path.is_file()]
    assert not [path for path in below if b"cret" in path.read_bytes()]


def test_a_full_disk_is_one(site: RpmSite) -> None:
    noise = "".join(hashlib.sha256(bytes([number])).hexdigest() for number in range(250))
    site.again("BaseOS", DATE, f"# {noise}")
    with file_size_limit(4000), pytest.raises(FullError, match="no space left"):
        load(site)


def test_an_archive_in_a_folder(site: RpmSite) -> None:
    mirrors = {"rocky": f"file:{site.folder}"}
    found = load_indexes(indexes_of(site, mirrors), site.cache, site.notes.append)
    assert [each.signed for each in found] == [True, True]


def indexes_of(site: RpmSite, mirrors: dict[str, str]) -> tuple[Repository, ...]:
    from imagebuilder.families.rpm.mirrors import repositories_of

    return repositories_of([site.rocky], mirrors, "amd64")


def test_a_lock_has_one_state_for_each_suite(site: RpmSite) -> None:
    site.again("BaseOS", DATE + 3 * DAY)
    locked = locked_sources(load(site))
    assert [(each.id, each.suite, each.date) for each in locked] == [
        ("rocky", "9", DATE),
        ("tools", "/", DATE),
    ]
    assert [each.origin for each in locked] == ["rocky", f"{site.server.uri}/vendor"]
    assert locked[0].components == ("BaseOS", "AppStream")
    again = read_sources(site.repositories(), site.cache, site.notes.append)
    assert again == locked
    site.again("AppStream", DATE + DAY)
    changed = read_sources(site.repositories(), site.cache, site.notes.append)
    assert changed[0].release_sha256 != locked[0].release_sha256
    assert changed[1] == locked[1]


def test_an_older_state_is_refused(site: RpmSite) -> None:
    site.again("BaseOS", DATE + 3 * DAY)
    site.again("AppStream", DATE + 3 * DAY)
    lock = lock_of(load(site))
    site.again("AppStream", DATE)
    older = load(site)
    with pytest.raises(WorkError, match=r"requested 9 AppStream, but .* 3 days older"):
        check_against_lock(older, lock, allow_older=False)
    check_against_lock(older, lock, allow_older=True)
    elsewhere = replace(site.rocky, snapshot="20260101T000000Z")
    moved = tuple(
        replace(each, repository=replace(each.repository, source=elsewhere)) for each in older
    )
    check_against_lock(moved[:2], lock, allow_older=False)


def test_an_older_component_is_refused_though_another_is_older_still(site: RpmSite) -> None:
    site.again("AppStream", DATE + 3 * DAY)
    lock = lock_of(load(site))
    assert lock.sources[0].dates == (DATE, DATE + 3 * DAY)
    site.again("AppStream", DATE + DAY)
    with pytest.raises(WorkError, match=r"requested 9 AppStream, but .* 2 days older"):
        check_against_lock(load(site), lock, allow_older=False)


def test_a_component_that_becomes_older_is_mentioned(site: RpmSite) -> None:
    site.again("AppStream", DATE + 3 * DAY)
    load(site)
    assert not [note for note in site.notes if "read last" in note]
    site.again("AppStream", DATE + DAY)
    load(site)
    (note,) = (note for note in site.notes if "read last" in note)
    assert note.startswith("note: rocky-9-AppStream is of 2025-06-16, but it was of 2025-06-18")


def test_old_archives_and_replaced_addresses_are_mentioned(site: RpmSite) -> None:
    load(site, replace(site.vendor, instead="we have a copy"))
    assert site.notes[0] == "note: source tools is not the vendor's: we have a copy"
    assert re.match(r"note: no update in / of source tools for \d+ days", site.notes[1])
    site.again("", int(time.time()))
    load(site, site.vendor)
    assert site.notes == []


GOOD = """<repomd xmlns="http://linux.duke.edu/metadata/repo"><data type="primary">
<checksum type="sha256">{sha}</checksum><open-checksum type="sha256">{sha}</open-checksum>
<location href="repodata/primary.xml.gz"/><timestamp>1750000000.25</timestamp>
<size>10</size><open-size>20</open-size></data></repomd>""".format(sha="a" * 64)


def test_a_small_repomd_is_read(site: RpmSite) -> None:
    found = parse_repomd(GOOD.encode(), site.repositories()[0], signed=True)
    record = found.records["primary"]
    assert (found.date, record.size, record.open_size) == (1_750_000_000, 10, 20)
    assert record.file_name == f"{'a' * 64}-primary.xml.gz"


@pytest.mark.parametrize(
    ("old", "new", "what"),
    [
        ("<repomd", '<!DOCTYPE r [<!ENTITY a "b">]><repomd', "document type"),
        ('type="primary"', 'type="other"', "no primary index"),
        ("repodata/primary", "../../primary", "is elsewhere"),
        ("repodata/primary", "/etc/primary", "is elsewhere"),
        ("repodata/primary", "http://x/primary", "is elsewhere"),
        ("<location ", '<location xml:base="http://x/" ', "is elsewhere"),
        ("primary.xml.gz", "primary.sqlite", "is elsewhere"),
        ("primary.xml.gz", "a&#10;b.xml", "is elsewhere"),
        ('<checksum type="sha256"', '<checksum type="sha"', "type sha, not of sha256"),
        ('<checksum type="sha256"', '<checksum type="md5"', "type md5"),
        ("a" * 64, "a" * 63, "damaged checksum"),
        ("a" * 64, "../" * 21 + "x", "damaged checksum"),
        ("<size>10", f"<size>{1 << 40}", "impossible size"),
        ("<size>10", "<size>-1", "impossible size"),
        ("<open-size>20", f"<open-size>{1 << 40}", "impossible open-size"),
        ("1750000000.25", "999999999999", "no readable time"),
        ("1750000000.25", "nan", "no readable time"),
        ("</repomd>", "", "no element found"),
        ("repomd", "html", "its root is <html>"),
        ("<size>10", f"<size>{'1' * 5000}", "too long"),
    ],
)
def test_a_hostile_repomd_is_refused(site: RpmSite, old: str, new: str, what: str) -> None:
    text = GOOD.replace(old, new)
    assert text != GOOD
    with pytest.raises(WorkError, match=re.escape(what)):
        parse_repomd(text.encode(), site.repositories()[0], signed=True)


def test_a_repomd_is_utf_8_whatever_it_claims(site: RpmSite) -> None:
    text = f'<?xml version="1.0" encoding="UTF-88"?>{GOOD}'
    assert parse_repomd(text.encode(), site.repositories()[0], signed=True).records


def test_a_huge_repomd_is_refused(site: RpmSite) -> None:
    rewrite(site, lambda text: f"{text}<!--{'x' * repomd.MOST}-->")
    with pytest.raises(WorkError, match="Maximum file size exceeded"):
        load(site)


@pytest.mark.parametrize(
    ("old", "new"), [(r"(<open-size>)\d+", r"\g<1>50"), (r"(<open-checksum[^>]*>).", r"\g<1>z")]
)
def test_an_index_unpacks_to_what_was_signed(site: RpmSite, old: str, new: str) -> None:
    new = new.replace("z", "0")
    rewrite(site, lambda text: re.sub(old, new, text))
    with pytest.raises(WorkError, match=r"unpacks to more than 50 bytes|does not have sha256"):
        load(site)


def test_what_is_compressed_has_a_hash_of_its_content(site: RpmSite) -> None:
    rewrite(site, lambda text: re.sub(r"<open-checksum.*", "", text))
    with pytest.raises(WorkError, match="no hash of its content"):
        load(site)


def test_two_processes_share_the_cache(site: RpmSite) -> None:
    import threading

    from imagebuilder.locks import file_lock

    load(site)
    done: list[tuple[Index, ...]] = []
    with file_lock(site.cache / "rpm/lock"):
        thread = threading.Thread(target=lambda: done.append(load(site)))
        thread.start()
        thread.join(0.3)
        assert not done
    thread.join(20)
    assert done
