# SPDX-License-Identifier: Apache-2.0
"""Reports and connections: which node runs which release."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest

from imagebuilder.publish.find import ReleaseName
from imagebuilder.publish.usage import (
    Seen,
    find_connected,
    find_usage,
    in_use,
    list_seen,
    note_connections,
    note_reports,
    parse_connections,
)
from imagebuilder.tree import Tree, make_tree

MAC = "52:54:00:77:00:01"
NOW = datetime(2026, 11, 21, tzinfo=UTC)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return make_tree(tmp_path)


def line(
    version: str = "1", *, day: int = 20, mac: str = MAC, stage: str = "root", **more: str
) -> str:
    """A line of the web server's log."""
    uri = f"/report/demo/{version}?stage={stage}&uptime=16.5&node={mac}"
    value = {
        "time": f"2026-11-{day:02}T12:00:00+02:00",
        "address": "192.0.2.5",
        "uri": uri,
        "agent": "curl",
    }
    return json.dumps(value | more) + "\n"


def log(tree: Tree, *lines: str) -> None:
    """Let the web server write lines."""
    with (tree.serve / "reports.log").open("a") as stream:
        stream.writelines(lines)


def test_a_report_becomes_a_record(tree: Tree) -> None:
    log(tree, line(stage="network"), line(day=21, stage="switch-root"))
    assert note_reports(tree) == [
        Seen(
            MAC, "", "demo", "1", "192.0.2.5", "switch-root", "",
            "2026-11-20T10:00:00+00:00", "2026-11-21T10:00:00+00:00",
        )
    ]  # fmt: skip
    assert json.loads(tree.seen(MAC).read_text())["stage"] == "switch-root"
    assert in_use(tree, now=NOW) == {ReleaseName("demo", "1"): (MAC,)}
    assert note_reports(tree) == []


def test_a_report_says_what_the_node_was_given(tree: Tree) -> None:
    given = "0123456789abcdef"
    log(tree, line(), line(uri=f"/report/{given}/demo/1?stage=root&node={MAC}"))
    (seen,) = note_reports(tree)
    assert (seen.profile, seen.version, seen.given) == ("demo", "1", given)


def test_another_release_frees_the_one_before(tree: Tree) -> None:
    log(tree, line("1"))
    note_reports(tree)
    log(tree, line("2", day=21))
    (seen,) = note_reports(tree)
    assert seen.first == seen.last == "2026-11-21T10:00:00+00:00"
    assert list(in_use(tree, now=NOW)) == [ReleaseName("demo", "2")]


def test_nodes_of_nodes_yaml_have_names(tree: Tree) -> None:
    tree.nodes_file.write_text(f"nodes:\n  n1:\n    macs: ['{MAC}']\n    profile: demo\n")
    log(tree, line())
    assert note_reports(tree)[0].name == "n1"


def test_a_nodes_file_with_faults_costs_names_only(tree: Tree) -> None:
    tree.nodes_file.write_text("nodes: 7\n")
    log(tree, line())
    assert note_reports(tree)[0].name == MAC


def test_a_half_written_line_is_read_when_it_is_whole(tree: Tree) -> None:
    whole = line("2", day=21)
    log(tree, line("1"), whole[:30])
    assert [seen.version for seen in note_reports(tree)] == ["1"]
    assert note_reports(tree) == []
    log(tree, whole[30:])
    assert [seen.version for seen in note_reports(tree)] == ["2"]


def test_a_rotated_log_is_begun_anew(tree: Tree) -> None:
    log(tree, line("1"), line("1"))
    note_reports(tree)
    (tree.serve / "reports.log").rename(tree.serve / "reports.log.1")
    log(tree, line("2"), line("2"), line("2"))
    assert [seen.version for seen in note_reports(tree)] == ["2"]


def test_a_log_cut_short_is_begun_anew(tree: Tree) -> None:
    log(tree, line("1"), line("1"))
    note_reports(tree)
    (tree.serve / "reports.log").write_text(line("2"))
    assert [seen.version for seen in note_reports(tree)] == ["2"]


NONSENSE = (
    "", "\n", "nonsense\n", "[]\n", "7\n", '{"uri": "/report/demo/1"}\n',
    line(mac="nobody"), line(mac="../../../x"), line("../../etc"), line("1/2"), line(".."),
    line(uri="/reports/demo/1?node=" + MAC), line(uri="http://[::1/report/demo/1?node=" + MAC),
    line(time="yesterday"), line(uri="/report/no-id/demo/1?node=" + MAC),
    line(uri="/report/0123456789abcdef/../demo/1?node=" + MAC),
)  # fmt: skip


@pytest.mark.parametrize("text", NONSENSE)
def test_what_is_no_report_is_left_out(tree: Tree, text: str) -> None:
    log(tree, text, line())
    with (tree.serve / "reports.log").open("ab") as stream:
        stream.write(b"\xff\xfe\n")
    assert len(note_reports(tree)) == 1
    assert [path.name for path in (tree.path / "seen").iterdir()] == ["52-54-00-77-00-01.json"]


def test_no_log_no_reports(tree: Tree) -> None:
    assert note_reports(tree) == []


def test_a_node_unseen_for_thirty_days_counts_no_more(tree: Tree) -> None:
    log(tree, line(day=1))
    note_reports(tree)
    assert in_use(tree, now=datetime(2026, 12, 1, tzinfo=UTC))
    assert not in_use(tree, now=datetime(2026, 12, 2, tzinfo=UTC))
    assert in_use(tree, days=60, now=datetime(2026, 12, 2, tzinfo=UTC))


def test_who_is_connected_was_seen_now(tree: Tree) -> None:
    log(tree, line(day=1))
    note_reports(tree)
    later = datetime(2027, 5, 1, tzinfo=UTC)
    assert note_connections(tree, ["192.0.2.5", "192.0.2.99"], later) == ["192.0.2.99"]
    assert list_seen(tree)[0].last == later.isoformat()
    assert in_use(tree, now=later)


def test_a_damaged_record_is_no_record(tree: Tree) -> None:
    tree.seen(MAC).write_text("{")
    assert list_seen(tree) == []
    log(tree, line())
    assert len(note_reports(tree)) == 1


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
    log(tree, line(day=1))
    usage = find_usage(tree)
    assert usage.used == {ReleaseName("demo", "1"): (MAC,)}
    assert usage.strangers == ("192.0.2.6", "fe80::2")


def test_an_ss_that_fails_leaves_the_reports(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "ss").write_text("#!/bin/sh\necho no netlink >&2\nexit 1\n")
    (tmp_path / "ss").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert find_connected() == []
