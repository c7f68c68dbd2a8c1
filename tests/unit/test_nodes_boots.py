# SPDX-License-Identifier: Apache-2.0
"""A node that fails with a release is given the one it was ready with, by the boot server alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

import pytest

from imagebuilder.fleet.overview import observe
from imagebuilder.nodes.config import read_served
from imagebuilder.nodes.evidence.boots import (
    NodeBoots,
    find_fallbacks,
    forget_tries,
    read_boots,
)
from imagebuilder.nodes.evidence.usage import note_reports
from imagebuilder.nodes.files import update_nodes
from imagebuilder.nodes.load import load_nodes
from imagebuilder.nodes.references import find_version
from imagebuilder.nodes.show import render_shown, show_node
from imagebuilder.serve.fallback import awaited_nodes, confirm_open
from imagebuilder.tree import ReleaseName, Tree, make_tree
from tests.integration.published import memory_folder
from tests.unit.nodes_world import move_channel
from tests.unit.web_log import ADDRESS, lease, report_line, secret_of, ticket_line, write_log

MAC = "52:54:00:77:00:01"


@dataclass
class Booting:
    """A node that boots what its script says, and its boot server."""

    tree: Tree
    time: datetime = field(default_factory=lambda: datetime(2026, 11, 20, 12, tzinfo=UTC))

    def boot(self, *, reports: bool = True, ready: bool = True) -> str:
        """The version that it booted; the server takes note as it does every minute."""
        served = read_served(self.tree, MAC)
        assert served
        version = served.version or find_version(self.tree, served.profile, served.channel)
        self.time += timedelta(minutes=5)
        time = self.time.isoformat()
        secret = secret_of(time)
        lease(self.tree, MAC)
        write_log(self.tree, ticket_line(MAC, secret, time=time))
        if reports:
            uri = f"/report/{secret}/demo/{version}?stage=switch-root&node={MAC}"
            write_log(self.tree, report_line(uri, time=time))
        self.serve(ready=ready)
        return version

    def serve(self, *, ready: bool = False) -> None:
        note_reports(self.tree)
        awaited = awaited_nodes(self.tree, load_nodes(self.tree))
        confirm_open(self.tree, awaited, [ADDRESS] if ready else [])
        update_nodes(self.tree)

    def promote(self, version: str) -> None:
        move_channel(self.tree, "demo", "stable", version)


@pytest.fixture
def node() -> Iterator[Booting]:
    with memory_folder() as top:
        tree = make_tree(top / "tree")
        tree.nodes_file.write_text(f"nodes:\n  n1:\n    macs: ['{MAC}']\n    profile: demo\n")
        for version in ("1", "2", "3"):
            tree.release(ReleaseName("demo", version)).mkdir(parents=True)
        found = Booting(tree)
        found.promote("1")
        update_nodes(tree)
        yield found


@pytest.mark.parametrize("reports", [True, False])
def test_after_two_failed_boots_it_gets_what_it_was_ready_with(
    node: Booting, *, reports: bool
) -> None:
    assert node.boot() == "1"
    node.promote("2")
    booted = [node.boot(reports=reports, ready=False) for _ in range(2)]
    assert booted == ["2", "2"]
    assert [node.boot() for _ in range(4)] == ["1"] * 4  # never again the other
    (state,) = observe(node.tree, load_nodes(node.tree).nodes)
    words = "fell back from 2: 2 boots of it did not become ready"
    assert state.words.startswith(words)
    assert (state.release, state.next) == ("demo@1", "demo@1")
    assert words in render_shown(show_node(node.tree, load_nodes(node.tree).nodes[0]))
    node.promote("3")
    node.serve()
    assert [node.boot() for _ in range(3)] == ["3"] * 3
    assert find_fallbacks(node.tree, load_nodes(node.tree).nodes) == {}


def test_one_failed_boot_is_not_enough_and_a_good_one_confirms(node: Booting) -> None:
    node.boot()
    node.promote("2")
    assert [node.boot(ready=ready) for ready in (False, True, False, False, False)] == ["2"] * 5
    assert read_boots(node.tree)["n1"].confirmed == ("demo@2", "demo@1")


def test_a_second_boot_that_becomes_ready_late_is_given_the_release_again(node: Booting) -> None:
    node.boot()
    node.promote("2")
    assert [node.boot(ready=False), node.boot(ready=False)] == ["2", "2"]
    node.serve(ready=True)
    assert node.boot() == "2"


def test_without_a_release_it_was_ready_with_it_tries_for_ever(node: Booting) -> None:
    assert [node.boot(ready=False) for _ in range(5)] == ["1"] * 5


def test_a_release_that_is_gone_is_not_given(node: Booting) -> None:
    node.boot()
    node.promote("2")
    node.boot(ready=False)
    node.tree.release(ReleaseName("demo", "1")).rmdir()
    assert [node.boot(ready=False) for _ in range(3)] == ["2"] * 3


def test_a_person_may_have_it_tried_again(node: Booting) -> None:
    node.boot()
    node.promote("2")
    booted = [node.boot(ready=False) for _ in range(3)]
    assert booted == ["2", "2", "1"]
    forget_tries(node.tree, ["n1", "n9"], ReleaseName("demo", "2"))
    node.serve()
    assert node.boot() == "2"


def test_a_line_of_the_log_that_is_read_again_is_no_second_boot(node: Booting) -> None:
    node.boot()
    node.promote("2")
    node.boot(reports=False, ready=False)
    time = node.time.isoformat()
    write_log(node.tree, ticket_line(MAC, secret_of(time), time=time))
    node.serve()
    assert read_boots(node.tree)["n1"].tries == {"demo@2": 1}


def test_silence_and_strangers_confirm_nothing(node: Booting) -> None:
    node.boot()
    node.promote("2")
    node.boot(reports=False, ready=False)
    write_log(node.tree, ticket_line(MAC, secret_of("x"), address="192.0.2.66"))
    node.serve()
    record = read_boots(node.tree)["n1"]
    assert (record.confirmed, record.tries) == (("demo@1",), {"demo@2": 1})


def test_scripts_that_somebody_fetches_on_a_node_that_is_up_are_no_boots(node: Booting) -> None:
    """An ssh server that answers before the initrd reported is that of the boot before."""
    node.boot()
    node.promote("2")
    for _ in range(3):
        assert node.boot(reports=False, ready=True) == "2"
    record = read_boots(node.tree)["n1"]
    assert (record.confirmed, record.tries, record.unreported) == (("demo@1",), {}, ())
    # Two at once, before anybody looked.
    assert node.boot(reports=False, ready=False) == "2"
    assert node.boot(reports=False, ready=True) == "2"
    assert find_fallbacks(node.tree, load_nodes(node.tree).nodes) == {}
    assert [node.boot(ready=False) for _ in range(3)] == ["2", "2", "1"]


def test_a_script_that_is_fetched_before_the_node_is_ready_is_no_failure_of_its_boot(
    node: Booting,
) -> None:
    node.boot()
    node.promote("2")
    node.boot(ready=False)
    node.boot(reports=False, ready=True)
    assert read_boots(node.tree)["n1"].tries == {}
    assert node.boot() == "2"
    assert read_boots(node.tree)["n1"].confirmed == ("demo@2", "demo@1")


def test_a_damaged_record_is_none(node: Booting) -> None:
    node.boot()
    for content in (b"", b"{", b"[]", b'{"schema": 1, "nodes": [{}]}', b"\xff"):
        node.tree.boots.write_bytes(content)
        assert read_boots(node.tree) == {}
        assert node.boot(ready=False) == "1"


def test_what_the_node_says_it_boots_counts() -> None:
    """The channel moved between its script and our look at it."""
    record = NodeBoots("n1", confirmed=("demo@1",)).fetched("demo@3", "2026").told("demo@2")
    assert record.tries == {"demo@3": 0, "demo@2": 1}
    assert record.told("demo@9") == record
    ready = record.ready("2026-11-20T12:00:00+00:00")
    assert ready.confirmed == ("demo@2", "demo@1")
    assert ready.ready_since == datetime(2026, 11, 20, 12, tzinfo=UTC)
    assert ready.fetched("demo@3", "2026-11-20T12:01:00+00:00").ready_since is None
    assert (record.ready_since, NodeBoots("n").ready_since) == (None, None)
    assert record.fetched("demo@2", "2026") == record
