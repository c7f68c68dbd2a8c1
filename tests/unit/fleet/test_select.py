# SPDX-License-Identifier: Apache-2.0
"""Sets of nodes: what people type, and what they mistype."""

from __future__ import annotations

from unittest import mock

import pytest

from imagebuilder.errors import InputError
from imagebuilder.fleet.select import MOST, fold, select_nodes
from imagebuilder.nodes.types import Node, Nodes


def node(name: str, profile: str = "gpu", group: str = "", labels: tuple[str, ...] = ()) -> Node:
    return Node(name, ("52:54:00:00:00:01",), profile, group=group, labels=labels)


NODES = Nodes(
    nodes=(
        node("node1", group="left"),
        node("node2", group="left", labels=("rack1",)),
        node("node3", "npu", labels=("rack1",)),
        node("head", "minimal"),
    )
)


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["node2"], ["node2"]),
        (["node[1-3]"], ["node1", "node2", "node3"]),
        (["node3,node1"], ["node1", "node3"]),
        (["node1", "node1", "node[1-2]"], ["node1", "node2"]),
        (["@all"], ["node1", "node2", "node3", "head"]),
        (["@*"], ["node1", "node2", "node3", "head"]),
        (["@left"], ["node1", "node2"]),
        (["@rack1"], ["node2", "node3"]),
        (["@profile:npu"], ["node3"]),
        (["@all!node[1-2]"], ["node3", "head"]),
        (["@left&@rack1"], ["node2"]),
        (["@left,@profile:npu"], ["node1", "node2", "node3"]),
    ],
)
def test_a_set_is_its_nodes_in_the_order_of_the_file(words: list[str], names: list[str]) -> None:
    assert [node.name for node in select_nodes(words, NODES)] == names


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["node5"], 'no node named "node5"\n  hint: did you mean "node'),
        (["node[1-5]"], 'no node named "node4"'),
        (["@lefty"], 'no group or label named "lefty"\n  hint: did you mean "left"?'),
        (["@profile:np"], 'no node boots the profile "np"\n  hint: did you mean "npu"?'),
        (["@rack:1"], 'no kind of group named "rack"\n  hint: use @profile:NAME or @GROUP'),
        (["node["], '"node\\[" is not a set of nodes: '),
        (["node[3-1]"], "is not a set of nodes: "),
        (["node1!node1"], "node1!node1: no node belongs to this set"),
    ],
)
def test_what_is_no_set_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        select_nodes(words, NODES)


def test_every_unknown_name_is_said_at_once() -> None:
    with pytest.raises(InputError) as caught:
        select_nodes(["node[4-6]", "node1"], NODES)
    assert [fault.what for fault in caught.value.faults] == [
        f'no node named "node{number}"' for number in (4, 5, 6)
    ]


def test_a_hundred_thousand_unknown_names_take_no_time() -> None:
    many = Nodes(nodes=tuple(node(f"n{number}") for number in range(800)))
    with (
        mock.patch("imagebuilder.fleet.select.suggest", return_value="") as asked,
        pytest.raises(InputError) as caught,
    ):
        select_nodes(["x[0-99998]"], many)
    assert asked.call_count == 10
    faults = [fault.what for fault in caught.value.faults]
    assert (faults[0], faults[10:]) == (
        'no node named "x0"', ["99,989 more names match no node"],
    )  # fmt: skip


def test_names_fold_as_people_type_them() -> None:
    assert fold(["node3", "node1", "node2", "head"]) == "head,node[1-3]"


@pytest.mark.parametrize(
    "word",
    [
        "node[0-99999999999]",
        "node[0-9999]x[0-9999]",
        "@all!node[0-999999]",
        "node[1-2,0-500000/2]",
        "node[ 0 - 999999 ]",
        "node[0-60000],node[1-60000]",
        f"node{'[0-9]' * 20}",
        "n" * 100_001,
    ],
)
def test_a_set_that_would_fill_the_memory_is_refused_at_once(word: str) -> None:
    with pytest.raises(InputError, match="names more than 100,000 nodes"):
        select_nodes([word], NODES)


def test_groups_count_as_all_nodes() -> None:
    many = Nodes(nodes=tuple(node(f"n{number}") for number in range(2000)))
    for word in ("@all", "@*", "n*"):
        with pytest.raises(InputError, match="names more than 100,000 nodes"):
            select_nodes([word] * 51, many)
    assert len(select_nodes(["@all"] * 50, many)) == 2000


def test_words_that_are_too_many_together_are_refused_at_once() -> None:
    with pytest.raises(InputError, match="names more than 100,000 nodes"):
        select_nodes(["node[0-9999]"] * 11, NODES)


@pytest.mark.parametrize(
    "inside",
    ["0-+99999999", "0-9_9999999", "0-0x99999", "\u0660-\u0669999999", "1--5", "0-1/+1", ""],
)
def test_ranges_are_plain_digits(inside: str) -> None:
    with pytest.raises(InputError, match="is not a range such as 0-3"):
        select_nodes([f"node[{inside}]"], NODES)


def test_a_range_that_ends_before_it_begins_makes_no_room_for_another() -> None:
    with pytest.raises(InputError, match="ends before it begins"):
        select_nodes(["node[99999999-0],node[0-99999999]"], NODES)
    with pytest.raises(InputError, match="ends before it begins"):
        select_nodes(["node[99999999-0]", "node[0-99999999]"], NODES)


def test_brackets_without_end_take_no_time() -> None:
    for word in ("[" * MOST, "[" * (MOST // 2) + "]", "]" * MOST, "n[1-2" * (MOST // 5)):
        with pytest.raises(InputError, match="a bracket is missing"):
            select_nodes([word], NODES)


def test_two_partitions_of_400_are_no_more_than_800_nodes() -> None:
    names = [f"{kind}{number}" for kind in ("cpu", "gpu") for number in range(400)]
    many = Nodes(nodes=tuple(map(node, names)))
    assert len(select_nodes(["cpu[0-399],gpu[0-399]"], many)) == 800


def test_a_set_as_large_as_any_cluster_is_none_of_those() -> None:
    many = Nodes(nodes=tuple(node(f"n{number}") for number in range(2000)))
    assert len(select_nodes(["n[0-1999]"], many)) == 2000
