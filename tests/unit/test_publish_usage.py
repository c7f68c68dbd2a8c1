# SPDX-License-Identifier: Apache-2.0
"""Reports and connections: which node runs which release, and whose word counts."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from imagebuilder.nodes.config import booted_with
from imagebuilder.nodes.evidence import strangers as strangers_module
from imagebuilder.nodes.evidence.records import read_evidence
from imagebuilder.nodes.evidence.report_log import PIECE
from imagebuilder.nodes.evidence.seen import SEEN, Seen, read_seen
from imagebuilder.nodes.evidence.strangers import FOLDED, MOST, MOST_OF_ADDRESS, read_strangers
from imagebuilder.nodes.evidence.usage import (
    FEW_REPORTS,
    Usage,
    find_connected,
    find_nodes,
    find_usage,
    note_connections,
    note_reports,
    parse_connections,
)
from imagebuilder.tree import ReleaseName, Tree, hyphened, make_tree
from tests.integration.published import memory_folder
from tests.unit.web_log import (
    ADDRESS,
    boots,
    lease,
    report_line,
    secret_of,
    ticket_line,
    write_log,
)

MAC, OTHER, UNKNOWN = "52:54:00:77:00:01", "52:54:00:77:00:02", "52:54:00:77:00:99"
NOW = datetime(2026, 11, 21, tzinfo=UTC)
THEIRS = "192.0.2.66"
NODES = f"nodes:\n  n1:\n    macs: ['{MAC}', '{OTHER}']\n    profile: demo\n"


@pytest.fixture
def tree() -> Iterator[Tree]:
    """A tree with the node n1 and two releases, in memory: every record is synced."""
    with memory_folder() as top:
        tree = make_tree(top / "tree")
        tree.nodes_file.write_text(NODES)
        for version in ("1", "2"):
            tree.release(ReleaseName("demo", version)).mkdir(parents=True)
        yield tree


def at(day: int) -> str:
    """Noon of a day, as the web server writes it."""
    return f"2026-11-{day:02}T12:00:00+02:00"


def claim(version: str = "1", *, mac: str = MAC, day: int = 20, address: str = THEIRS) -> str:
    """A report without a ticket."""
    uri = f"/report/demo/{version}?stage=root&uptime=16.5&node={mac}"
    return report_line(uri, time=at(day), address=address)


def usage(tree: Tree, now: datetime = NOW) -> Usage:
    return find_usage(tree, now=now)


def used(tree: Tree, now: datetime = NOW) -> list[str]:
    """The releases in use, by versions."""
    found = usage(tree, now)
    return sorted(release.version for release in {**found.used, **found.claimed})


def name(version: str) -> ReleaseName:
    return ReleaseName("demo", version)


# A node that proves what it booted


def test_a_report_with_its_ticket_becomes_a_record(tree: Tree) -> None:
    secret, given = secret_of("boot"), "0123456789abcdef"
    lease(tree, MAC)
    write_log(
        tree,
        ticket_line(MAC, secret, time=at(20)),
        report_line(f"/report/{secret}/{given}/demo/1?stage=root&node={MAC}", time=at(20)),
        report_line(f"/report/{secret}/{given}/demo/1?stage=switch-root&node={MAC}", time=at(21)),
    )
    assert note_reports(tree) == [
        Seen(
            MAC, "n1", "demo", "1", ADDRESS, "switch-root", "",
            "2026-11-20T10:00:00+00:00", "2026-11-21T10:00:00+00:00", given,
        )
    ]  # fmt: skip
    assert read_seen(tree.seen(MAC)) == note_free(tree)
    assert usage(tree).used == {name("1"): ("n1",)}
    assert note_reports(tree) == []
    assert booted_with(tree, [MAC, OTHER]) == {given}


def note_free(tree: Tree) -> Seen:
    """The only record of a node."""
    (seen,) = read_evidence(tree, find_nodes(tree)).nodes
    return seen


def test_a_proved_boot_of_another_release_frees_the_one_before(tree: Tree) -> None:
    boots(tree, MAC, "demo/1", time=at(19))
    note_reports(tree)
    boots(tree, MAC, "demo/2", time=at(20))
    (seen,) = note_reports(tree)
    assert seen.first == seen.last == "2026-11-20T10:00:00+00:00"
    assert used(tree) == ["2"]


def test_a_node_is_known_by_its_fixed_address_or_its_neighbour_entry(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree.nodes_file.write_text(NODES + f"    address: {ADDRESS}\n")
    boots(tree, MAC, "demo/1")
    (tree.serve / "leases").unlink()
    assert [seen.node for seen in note_reports(tree)] == ["n1"]
    tree.nodes_file.write_text(NODES)
    fake_ip = tmp_path / "ip"
    fake_ip.write_text(f"#!/bin/sh\necho {ADDRESS} dev wire0 lladdr {MAC} REACHABLE\n")
    fake_ip.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    boots(tree, MAC, "demo/2", time=at(21))
    (tree.serve / "leases").unlink()
    assert [seen.version for seen in note_reports(tree)] == ["2"]


# Whose word does not count


FORGED = {
    "no ticket": [claim("2", day=20)],
    "a made-up ticket": [
        report_line(f"/report/{secret_of('x')}/demo/2?stage=root&node={MAC}", address=THEIRS)
    ],
    "the word instead of a ticket": [
        report_line(f"/report/ticket/demo/2?stage=root&node={MAC}", address=THEIRS)
    ],
    "a ticket that was sent to another address": [
        ticket_line(MAC, secret_of("theirs"), time=at(20), address=THEIRS),
        report_line(f"/report/{secret_of('theirs')}/demo/2?stage=root&node={MAC}", address=THEIRS),
    ],
    "the ticket of another boot": [
        ticket_line(MAC, secret_of("new"), time=at(20)),
        report_line(f"/report/{secret_of('old')}/demo/2?stage=root&node={MAC}", address=THEIRS),
    ],
    "the ticket again, for another release": [
        report_line(f"/report/{secret_of('old')}/demo/2?stage=root&node={MAC}", address=THEIRS)
    ],
    "a line of tickets in the agent": [
        report_line("/report/demo/2?node=" + MAC, address=THEIRS, agent=ticket_line(MAC, "0" * 32))
    ],
}


@pytest.mark.parametrize("how", FORGED)
def test_a_forged_report_frees_nothing_and_changes_no_record(tree: Tree, how: str) -> None:
    boots(tree, MAC, "demo/1", name="old", time=at(19))
    note_reports(tree)
    before = tree.seen(MAC).read_bytes()
    write_log(tree, *FORGED[how])
    assert note_reports(tree) == []
    assert tree.seen(MAC).read_bytes() == before
    assert used(tree) == ["1", "2"]
    assert usage(tree).used == {name("1"): ("n1",)}
    assert usage(tree).claimed == {name("2"): ("n1",)}


def test_the_ticket_of_one_node_is_none_of_another(tree: Tree) -> None:
    tree.nodes_file.write_text(NODES + f"  n2: {{macs: ['{UNKNOWN}'], profile: demo}}\n")
    boots(tree, MAC, "demo/1", time=at(19))
    boots(tree, UNKNOWN, "demo/1", name="second", address=THEIRS)
    uri = f"/report/{secret_of('second')}/demo/1?stage=failed&node={MAC}"
    write_log(tree, report_line(uri, address=THEIRS))
    note_reports(tree)
    seen = read_seen(tree.seen(MAC))
    assert seen
    assert (seen.address, seen.stage) == (ADDRESS, "switch-root")


def test_a_node_that_booted_before_the_update_keeps_its_record(tree: Tree) -> None:
    """Its record has no `given`, its last report no ticket; the next boot has one."""
    old = {
        "mac": MAC, "node": "n1", "profile": "demo", "version": "1", "address": ADDRESS,
        "stage": "switch-root", "root": "nfs", "first": at(18), "last": at(19),
    }  # fmt: skip
    tree.seen(MAC).write_text(json.dumps(old))
    write_log(tree, claim("2", address=ADDRESS))
    assert used(tree) == ["1", "2"]
    assert usage(tree).used == {name("1"): ("n1",)}


def test_the_tickets_are_for_root_alone_and_in_no_record(tree: Tree) -> None:
    boots(tree, MAC, "demo/1", name="boot")
    note_reports(tree)
    assert tree.tickets.stat().st_mode & 0o777 == 0o600
    others = [p for p in tree.path.rglob("*") if p.is_file() and p.stat().st_mode & 0o044]
    assert secret_of("boot") in tree.tickets.read_text()
    leaking = [p for p in others if p != tree.reports_log and secret_of("boot") in p.read_text()]
    assert leaking == []


def test_an_unknown_machine_keeps_what_it_runs_and_frees_nothing(tree: Tree) -> None:
    write_log(tree, claim("1", mac=UNKNOWN, day=18), claim("2", mac=UNKNOWN, day=20))
    assert usage(tree).claimed == {name("1"): (UNKNOWN,), name("2"): (UNKNOWN,)}
    assert used(tree, NOW + timedelta(days=29)) == ["2"]


# Bounds


def test_a_flood_of_one_address_crowds_out_only_its_own(tree: Tree) -> None:
    write_log(tree, claim("1", mac=UNKNOWN, day=1, address="192.0.2.7"))
    for turn in range(30):
        lines = (
            claim(f"made-up-{turn}-{n}", mac=f"02:00:00:{turn:02x}:{n // 256:02x}:{n % 256:02x}")
            for n in range(300)
        )
        write_log(tree, *lines)
        note_reports(tree)
    found = read_strangers(tree).values()
    assert len(found) == MOST_OF_ADDRESS + 1
    assert used(tree)[0] == "1"


def test_a_flood_of_many_addresses_leaves_what_is_in_use(tree: Tree) -> None:
    write_log(tree, claim("1", mac=UNKNOWN, day=1, address="192.0.2.7"))
    lines = (
        claim("no-release", mac=f"02:00:00:00:{n:02x}:{m:02x}", address=f"198.51.100.{n}")
        for n in range(254)
        for m in range(FEW_REPORTS + 4)
    )
    write_log(tree, *lines)
    note_reports(tree)
    assert len(read_strangers(tree)) == MOST
    assert "1" in used(tree)


def test_the_newest_word_for_a_release_that_exists_is_never_dropped(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(strangers_module, "MOST", 4)
    monkeypatch.setattr(strangers_module, "MOST_OF_ADDRESS", 2)
    for n in range(20):
        tree.release(ReleaseName("demo", f"r{n}")).mkdir()
        write_log(tree, claim(f"r{n}", mac=UNKNOWN, day=1), claim("none", mac=MAC, day=20))
    note_reports(tree)
    kept = {seen.version for seen in read_strangers(tree).values()}
    assert kept >= {f"r{n}" for n in range(FEW_REPORTS // 2)}


def test_a_turn_reads_a_bounded_piece_and_a_node_is_found_behind_a_flood(tree: Tree) -> None:
    filler = claim("made-up", mac=UNKNOWN)
    write_log(tree, filler * (PIECE * 3 // len(filler)))
    boots(tree, MAC, "demo/1")
    turns = 1
    while not note_reports(tree, most=PIECE):
        turns += 1
    assert turns == 4
    assert used(tree)[0] == "1"


def test_a_line_without_an_end_is_passed_over(tree: Tree) -> None:
    write_log(tree, "x" * (PIECE + 5) + "\n")
    boots(tree, MAC, "demo/1")
    assert [seen.version for seen in note_reports(tree)] == ["1"]


def old_records(tree: Tree, many: int) -> None:
    """What a version that believed strangers left."""
    for n in range(many):
        mac = f"02:00:00:{n >> 16:02x}:{n >> 8 & 255:02x}:{n & 255:02x}"
        seen = Seen(mac, "", "demo", "1", THEIRS, "root", "", at(19), at(19))
        (tree.path / "seen" / f"{hyphened(mac)}.json").write_text(json.dumps(SEEN.encode(seen)))


def test_records_that_an_older_version_left_are_folded_into_the_list(tree: Tree) -> None:
    old_records(tree, FOLDED + MOST + 100)
    boots(tree, MAC, "demo/2")
    (doubt,) = usage(tree).doubts
    assert "100 records of an older version are not read yet" in doubt.what
    assert usage(tree).doubts == ()
    assert len([*(tree.path / "seen").iterdir()]) <= MOST + 2
    assert used(tree) == ["1", "2"]


def test_all_of_them_are_read_before_something_is_removed(tree: Tree) -> None:
    old_records(tree, 2 * FOLDED + MOST + 100)
    assert find_usage(tree, now=NOW, whole=True).doubts == ()
    assert len([*(tree.path / "seen").iterdir()]) <= MOST + 1
    assert used(tree) == ["1"]


def test_a_node_that_was_taken_out_and_comes_back_has_its_record(tree: Tree) -> None:
    boots(tree, MAC, "demo/1")
    note_reports(tree)
    tree.nodes_file.write_text("nodes: {}\n")
    assert usage(tree).used == {name("1"): ("n1",)}
    tree.nodes_file.write_text(NODES)
    assert usage(tree).used == {name("1"): ("n1",)}


# The log


def test_reports_wait_while_nodes_yaml_has_faults(tree: Tree) -> None:
    """Nobody's ticket would be known, and it would be refused for the whole boot."""
    boots(tree, MAC, "demo/1", time=at(19))
    note_reports(tree)
    tree.nodes_file.write_text("nodes: 7\n")
    boots(tree, MAC, "demo/2", time=at(21))
    found = usage(tree)
    assert found.used == {name("1"): ("n1",)}
    assert [doubt.what for doubt in found.doubts] == [
        "nodes.yaml has faults, so new reports are not read yet"
    ]
    tree.nodes_file.write_text(NODES)
    assert usage(tree).used == {name("2"): ("n1",)}
    assert usage(tree).doubts == ()


def test_a_half_written_line_is_read_when_it_is_whole(tree: Tree) -> None:
    whole = claim("2", day=21)
    write_log(tree, claim("1"), whole[:30])
    assert used(tree) == ["1"]
    assert used(tree) == ["1"]
    write_log(tree, whole[30:])
    assert used(tree) == ["1", "2"]


def test_a_rotated_log_is_read_from_its_start(tree: Tree) -> None:
    write_log(tree, claim("1"), claim("1"))
    note_reports(tree)
    tree.reports_log.rename(tree.serve / "reports.log-20261120")
    write_log(tree, claim("2"), claim("2"), claim("2"))
    assert used(tree) == ["1", "2"]


def test_both_logs_are_read_to_their_ends_when_one_was_just_set_aside(tree: Tree) -> None:
    filler = claim("made-up", mac=UNKNOWN)
    write_log(tree, filler * (PIECE * 5 // 4 // len(filler)))
    old = tree.reports_log.rename(tree.serve / "reports.log.1")
    os.utime(old, (1, 1))
    boots(tree, MAC, "demo/1")
    assert [seen.version for seen in note_reports(tree)] == ["1"]


def test_a_log_cut_short_is_read_from_its_start(tree: Tree) -> None:
    write_log(tree, claim("1"), claim("1"))
    note_reports(tree)
    tree.reports_log.write_text(claim("2"))
    assert used(tree) == ["1", "2"]


NONSENSE = (
    "", "\n", "nonsense\n", "[]\n", "7\n", '{"uri": "/report/demo/1"}\n', "[" * 100_000 + "\n",
    claim(mac="nobody"), claim(mac="../../../x"), claim("../../etc"), claim("1/2"), claim(".."),
    report_line("/reports/demo/1?node=" + MAC), report_line("//[?node=" + MAC),
    report_line("http://[::1/report/demo/1?node=" + MAC), report_line("/report/demo/1?node=\\u"),
    report_line("/report/demo/1?node=" + MAC, time="yesterday"),
    report_line("/report/demo/1?node=" + MAC, time="0001-01-01T00:00:00+14:00"),
    report_line("/report/no-id/demo/1?node=" + MAC),
    report_line("/report/0123456789abcdef/../demo/1?node=" + MAC),
    ticket_line("nobody", secret_of("x")), ticket_line(UNKNOWN, secret_of("x")),
    ticket_line(MAC, "short"),
)  # fmt: skip


@pytest.mark.parametrize("text", NONSENSE)
def test_what_is_no_report_is_left_out(tree: Tree, text: str) -> None:
    write_log(tree, text, claim())
    with tree.reports_log.open("ab") as stream:
        stream.write(b"\xff\xfe\n")
    assert used(tree) == ["1"]
    assert [seen.mac for seen in read_strangers(tree).values()] == [MAC]


def test_no_log_no_reports(tree: Tree) -> None:
    assert note_reports(tree) == []


# Age and connections


def test_a_node_unseen_for_thirty_days_counts_no_more(tree: Tree) -> None:
    boots(tree, MAC, "demo/1", time=at(1))
    assert used(tree, datetime(2026, 12, 1, tzinfo=UTC)) == ["1"]
    assert used(tree, datetime(2026, 12, 2, tzinfo=UTC)) == []


def test_who_is_connected_was_seen_now(tree: Tree) -> None:
    boots(tree, MAC, "demo/1", time=at(1))
    write_log(tree, claim("2", mac=UNKNOWN, day=1))
    note_reports(tree)
    later = datetime(2027, 5, 1, tzinfo=UTC)
    connected = [ADDRESS, THEIRS, "192.0.2.99"]
    assert note_connections(tree, find_nodes(tree), connected, later) == ["192.0.2.99"]
    assert note_free(tree).last == later.isoformat()
    assert used(tree, later) == ["1", "2"]


def test_a_strangers_report_does_not_say_what_a_nodes_address_runs(tree: Tree) -> None:
    """Else its NFS connection would not keep the other releases any more."""
    tree.nodes_file.write_text(NODES + f"    address: {ADDRESS}\n")
    write_log(tree, claim(mac=UNKNOWN, address=ADDRESS), claim(mac=MAC, address="192.0.2.8"))
    note_reports(tree)
    connected = [ADDRESS, "192.0.2.8"]
    assert note_connections(tree, find_nodes(tree), connected, NOW) == connected


# Damage


DAMAGE = (
    b"", b"{", b"\0" * 300, b"[" * 4000, b"7", b"[]", b"{}", b"NaN", b"\xff\xfe", b'{"mac": NaN}',
    b"[" * 100_000, b"x" * 10_000_000,
    b'{"mac": "52:54:00:77:00:01", "profile": ["demo"], "version": 1}',
    b'{"mac":"52:54:00:77:00:01","node":"","profile":"../..","version":"1","address":"",'
    b'"stage":"","root":"","first":"2026","last":"2026"}',
)  # fmt: skip


@pytest.mark.parametrize("content", DAMAGE, ids=range(len(DAMAGE)))
@pytest.mark.parametrize("which", ["node", "gone node", "strangers"])
def test_while_a_record_is_damaged_every_release_may_be_in_use(
    tree: Tree, which: str, content: bytes
) -> None:
    path = {
        "node": tree.seen(MAC), "gone node": tree.seen(UNKNOWN), "strangers": tree.strangers,
    }[which]  # fmt: skip
    path.write_bytes(content)
    if which == "strangers" and content == b"[]":
        assert usage(tree).doubts == ()
        return
    (doubt,) = usage(tree).doubts
    assert f"the record {path} is damaged" in doubt.what
    # What comes now does not make it forgotten, unless it is the node's own next boot.
    write_log(tree, claim("2"))
    boots(tree, MAC, "demo/1")
    assert used(tree) == ["1", "2"]
    assert len(usage(tree).doubts) == (which != "node")


def test_what_is_no_file_is_damage_and_nobody_waits_for_it(tree: Tree) -> None:
    os.mkfifo(tree.seen(MAC))
    tree.seen(OTHER).mkdir()
    tree.seen(UNKNOWN).symlink_to("/dev/zero")
    assert len(usage(tree).doubts) == 3


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 100_000, b"[1e999, -1]", b'["a", {}]'])
def test_a_damaged_mark_or_ticket_costs_time_or_proof_only(tree: Tree, content: bytes) -> None:
    boots(tree, MAC, "demo/1")
    note_reports(tree)
    (tree.serve / "reports.offset").write_bytes(content)
    tree.tickets.write_bytes(content)
    assert used(tree) == ["1"]
    boots(tree, MAC, "demo/2", time=at(21))
    assert usage(tree).used == {name("2"): ("n1",)}


SS = """\
0      0          192.0.2.1:2049      192.0.2.5:774
0      0      [::ffff:192.0.2.1]:2049 [::ffff:192.0.2.6]:812
0      0      [fe80::1%eth0]:2049     [fe80::2%eth0]:900
0      0          192.0.2.1:2049      192.0.2.5:775
"""


def test_peers_of_connections() -> None:
    assert parse_connections(SS) == ["192.0.2.5", "192.0.2.6", "fe80::2"]
    assert parse_connections("") == []


def fake_ss(folder: Path, text: str) -> None:
    """An ss(8) that says `text`."""
    (folder / "ss").write_text(f"#!/bin/sh\ncat <<'EOF'\n{text}EOF\n")
    (folder / "ss").chmod(0o755)


def test_usage_is_what_both_say(
    tree: Tree, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ss(tmp_path, SS)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    boots(tree, MAC, "demo/1", time=at(1))
    found = find_usage(tree)
    assert found.used == {name("1"): ("n1",)}
    assert found.clients == ("192.0.2.6", "fe80::2")


def test_an_ss_that_fails_leaves_the_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ss").write_text("#!/bin/sh\necho no netlink >&2\nexit 1\n")
    (tmp_path / "ss").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert find_connected() == []
