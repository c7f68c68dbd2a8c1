# SPDX-License-Identifier: Apache-2.0
"""nodes.yaml: what holds for a node, and every fault with its place."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.nodes import load as nodes_load
from imagebuilder.nodes.check import address_problem, mac_problem, name_problem, word_problem
from imagebuilder.nodes.files import update_nodes
from imagebuilder.nodes.load import FAULTY_S, FileState, WatchedNodes, load_nodes
from imagebuilder.nodes.scripts import node_words
from imagebuilder.nodes.types import DEFAULT_CONSOLE, Menu, Node, Nodes, Power
from imagebuilder.tree import HYPHENED, Tree, make_tree
from tests.unit.nodes_world import MAC1, MAC2, node_tree

WHOLE = f"""\
menu: {{default: live/ubuntu, timeout: 5}}
defaults:
  channel: candidate
  root: http
  cmdline: [a=1]
  vars: {{site: here, rank: 0}}
groups:
  gpu:
    profile: generic
    version: v1
    console: [ttyS1]
    cmdline: [b=2]
nodes:
  node1:
    macs: [52-54-00-77-00-01]
    group: gpu
    address: 10.0.0.1
    ipxe: snponly.efi
    cmdline: [c=3]
    vars: {{rank: 1, names: [x, y]}}
  node2:
    macs: ["{MAC2.upper()}"]
    profile: generic
"""


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    return node_tree(tmp_path)


def load(tree: Tree, text: str) -> Nodes:
    tree.nodes_file.write_text(text)
    return load_nodes(tree)


def faults(tree: Tree, text: str) -> list[str]:
    """What is wrong with `text`: line and column, and the fault."""
    with pytest.raises(InputError) as caught:
        load(tree, text)
    return [str(f).removeprefix(f"{tree.nodes_file}:") for f in caught.value.faults]


def one_node(more: str, top: str = "") -> str:
    return f"{top}nodes:\n  node1:\n    macs: ['{MAC1}']\n    profile: generic\n{more}"


def test_a_node_takes_from_itself_then_its_group_then_the_defaults(tree: Tree) -> None:
    nodes = load(tree, WHOLE)
    assert nodes.menu == Menu("live/ubuntu", 5)
    assert nodes.nodes == (
        Node(
            name="node1", macs=(MAC1,), profile="generic", version="v1", address="10.0.0.1",
            root="http", console=("ttyS1",), cmdline=("a=1", "b=2", "c=3"), ipxe="snponly.efi",
            group="gpu", vars=(("names", ["x", "y"]), ("rank", 1), ("site", "here")),
        ),
        Node(
            name="node2", macs=(MAC2,), profile="generic", channel="candidate", root="http",
            console=DEFAULT_CONSOLE, cmdline=("a=1",), vars=(("rank", 0), ("site", "here")),
        ),
    )  # fmt: skip
    assert nodes.warnings == ()
    assert nodes.find("node2") == nodes.nodes[1]
    assert nodes.find("node3") is None


@pytest.mark.parametrize(
    "text", ["nodes: {}\n", "# nothing yet\n\n", "nodes:\ngroups:\ndefaults:\nmenu:\n"]
)
def test_a_file_may_say_nothing(tree: Tree, text: str) -> None:
    assert load(tree, text) == Nodes()


NODE = f"nodes:\n  n1: {{macs: ['{MAC1}'], profile: generic}}\n"
OTHER = f"  n2: {{macs: ['{MAC2}'], profile: generic}}\n"


@pytest.mark.parametrize(
    "steps",
    [
        (NODE, NODE + OTHER, NODE + OTHER),
        ("", NODE, NODE + OTHER, NODE + OTHER),
        (None, NODE, NODE + OTHER, NODE + OTHER),
        (None, "", NODE + OTHER, NODE + OTHER),
    ],
)
def test_a_file_that_is_being_written_is_awaited(
    tree: Tree, monkeypatch: pytest.MonkeyPatch, steps: tuple[str | None, ...]
) -> None:
    """As an editor does: it empties the file, or renames it and makes it anew, and then writes."""
    load(tree, NODE + OTHER)
    update_nodes(tree)
    left = list(steps)

    def read_state(path: Path) -> FileState:
        text = left.pop(0)
        if text is None:
            path.unlink()
        elif not path.exists() or path.read_text() != text:
            path.write_text(text)
        return real(path)

    real = nodes_load.read_state
    monkeypatch.setattr(nodes_load, "read_state", read_state)
    assert [node.name for node in load_nodes(tree).nodes] == ["n1", "n2"]
    assert left == []


@pytest.mark.parametrize(("text", "said"), [("", "is empty"), (None, "is missing")])
def test_no_file_removes_the_nodes_that_are_served(tree: Tree, text: str | None, said: str) -> None:
    load(tree, NODE)
    update_nodes(tree)
    served = sorted((tree.http / "nodes").iterdir())
    tree.nodes_file.unlink()
    if text is not None:
        tree.nodes_file.write_text(text)
    with pytest.raises(InputError, match=said) as caught:
        update_nodes(tree)
    assert "write `nodes: {}` to remove all nodes" in str(caught.value)
    watched = WatchedNodes(tree)
    assert said in str(watched.load()[1][0])
    assert sorted((tree.http / "nodes").iterdir()) == served
    tree.nodes_file.write_text("nodes: {}\n")
    assert update_nodes(tree) == Nodes()
    assert not any(HYPHENED.fullmatch(path.name) for path in (tree.http / "nodes").iterdir())


def test_a_fault_that_goes_without_a_change_is_not_believed_for_ever(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    load(tree, NODE)
    watched, seconds = WatchedNodes(tree), [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: seconds[0])

    def fail(_: Path) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patched:
        patched.setattr(nodes_load, "read_plain", fail)
        assert "Input/output error" in str(watched.load()[1][0])
    assert watched.load()[1]
    seconds[0] += FAULTY_S + 1
    nodes, faults = watched.load()
    assert ([node.name for node in nodes.nodes], faults) == (["n1"], ())


def test_what_a_check_refuses_changes_nothing(tree: Tree) -> None:
    load(tree, NODE)
    update_nodes(tree)

    def refuse(nodes: Nodes) -> None:
        raise InputError(f"too many: {len(nodes.nodes)}")

    tree.nodes_file.write_text(NODE + OTHER)
    with pytest.raises(InputError, match="too many: 2"):
        update_nodes(tree, refuse)
    assert not tree.served_node(MAC2).exists()
    update_nodes(tree)
    assert tree.served_node(MAC2).exists()


def test_no_file_is_no_nodes(tmp_path: Path) -> None:
    assert load_nodes(make_tree(tmp_path / "new")) == Nodes()


def test_a_version_of_a_group_is_not_for_another_profile(tree: Tree) -> None:
    text = WHOLE.replace("    group: gpu\n", "    group: gpu\n    profile: rx\n")
    node = load(tree, text).find("node1")
    assert node is not None
    assert (node.profile, node.version, node.channel) == ("rx", "", "candidate")


def test_a_channel_of_a_node_ends_the_pin_of_its_group(tree: Tree) -> None:
    node = load(tree, WHOLE.replace("    group: gpu\n", "    group: gpu\n    channel: stable\n"))
    assert node.nodes[0].boots == "generic/stable"


FAULTS = {
    "unknown key": (one_node("    chanel: stable\n"),
                    '5:5: nodes.node1.chanel: unknown key\n  hint: did you mean "channel"?'),
    "not a channel": (one_node("    channel: stabel\n"),
                      '5:14: nodes.node1.channel: "stabel" is not one of "candidate", "stable"\n'
                      '  hint: did you mean "stable"?'),
    "both": (one_node("    channel: stable\n    version: v1\n"),
             "6:5: nodes.node1.version: channel and version exclude each other\n"
             "  hint: a version pins to one release, a channel follows promotions"),
    "pin without profile": (one_node("", "groups: {g: {version: v1}}\n"),
                            "1:23: groups.g.version: version requires profile"),
    "no profile": ("nodes:\n  n: {macs: ['52:54:00:77:00:01']}\n",
                   "2:3: nodes.n: it has no profile\n"
                   "  hint: set profile, or a group"),
    "no such group": (one_node("    group: gpus\n", "groups: {gpu: {}}\n"),
                      '6:12: nodes.node1.group: unknown group "gpus"\n'
                      '  hint: did you mean "gpu"?'),
    "bad name": (one_node("").replace("node1", "Node_1"),
                 '2:3: nodes.Node_1: "Node_1" is not a host name: lower-case letters, digits, '
                 'hyphens, at most 63\n  hint: did you mean "node-1"?'),
    "static without address": (one_node("    static: true\n"),
                               "5:5: nodes.node1.static: static requires `address`"),
    "number for text": (one_node("    address: 10\n"),
                        '5:14: nodes.node1.address: expected text, found the number 10\n'
                        '  hint: quote it: "10"'),
    "word": (one_node("    cmdline: [ok, '${x}']\n"),
             '5:19: nodes.node1.cmdline[1]: "${x}": iPXE would expand ${'),
    "out of the tree": (one_node("    files: a/../../etc\n"),
                        "5:12: nodes.node1.files: must be inside the tree"),
    "twice the same key": (one_node("") + f"  node1: {{macs: ['{MAC2}'], profile: x}}\n",
                           "5:3: nodes.node1: the key is already on line 2"),
    "twice the same MAC": (one_node(f"  node2: {{macs: ['{MAC1.upper()}'], profile: generic}}\n"),
                           f"5:18: nodes.node2.macs[0]: the MAC address {MAC1} is already used "
                           "by node1 (line 3)"),
    "the same MAC in a node": (one_node("").replace("']", f"', {MAC1.replace(':', '-')}]"),
                               f"3:33: nodes.node1.macs[1]: the MAC address {MAC1} is already used "
                               "by this node (line 3)"),
    "menu": ("menu: {timeout: -1}\n", "1:17: menu.timeout: must be at least 0"),
}  # fmt: skip


@pytest.mark.parametrize(("text", "said"), FAULTS.values(), ids=FAULTS)
def test_a_fault_says_where_what_and_what_next(tree: Tree, text: str, said: str) -> None:
    assert faults(tree, text) == [said]


def test_the_same_address_twice_is_a_fault(tree: Tree) -> None:
    more = f"    address: 10.0.0.1\n  b: {{macs: ['{MAC2}'], profile: rx, address: 10.0.0.1}}\n"
    assert faults(tree, one_node(more)) == [
        "6:58: nodes.b.address: the address 10.0.0.1 is already used by node1 (line 5)"
    ]


def test_all_faults_are_told_at_once_in_the_order_of_lines(tree: Tree) -> None:
    text = "menu: {timeout: x}\nnodes:\n  a: {macs: [zz], profile: rx}\n  b: {mac: x}\n"
    places = [said.split(": ")[0] for said in faults(tree, text)]
    assert places == ["1:17", "3:14", "4:6", "4:7"]


@pytest.mark.parametrize(
    ("mac", "said"),
    [
        (MAC1, ""), ("52-54-00-77-00-0A", ""), ("52:54:00-77:00:01", "not a MAC"),
        ("52:54:00:77:00", "not a MAC"), ("52:54:00:77:00:01:02", "not a MAC"),
        ("525400770001", "not a MAC"), ("52:54:00:77:00:0g", "not a MAC"),
        ("00:00:00:00:00:00", "all zeros"), ("01:00:5e:00:00:01", "multicast"),
        ("ff-ff-ff-ff-ff-ff", "multicast"), (f"{MAC1}\n", "not a MAC"),
    ],
)  # fmt: skip
def test_which_mac_addresses_a_nic_can_have(mac: str, said: str) -> None:
    assert said in mac_problem(mac)
    assert bool(said) == bool(mac_problem(mac))


@pytest.mark.parametrize(
    "word",
    ["${http}", "a${x", "||", "&&", ";", "#x", "-v", "--", "a b", "a\tb", "a\nb", '"a"', "a'b",
     "ü", "", "\x7f"],
)  # fmt: skip
def test_no_word_means_anything_to_ipxe(word: str) -> None:
    assert word_problem(word)


@pytest.mark.parametrize("word", ["quiet", "memmap=64K$0x18690000", "a=b;c", "x=#1", "a.b=c,d-e"])
def test_plain_words_are_words(word: str) -> None:
    assert word_problem(word) == ""


@pytest.mark.parametrize(
    "name",
    ["-a", "a-", "a.b", "a" * 64, "A", "10", "localhost", "", "a_b",
     "ignore", "infinite", "12h", "3w", "1d", "5m", "9s"],
)  # fmt: skip
def test_what_is_no_host_name(name: str) -> None:
    assert name_problem(name)


@pytest.mark.parametrize("address", ["10.0.0.256", "::1", "127.0.0.1", "224.0.0.1", "0.0.0.0", "x"])
def test_what_no_node_has_for_an_address(address: str) -> None:
    assert address_problem(address)


def test_names_that_the_tree_does_not_have_are_warnings(tree: Tree) -> None:
    text = f"""\
menu: {{default: rx}}
nodes:
  a: {{macs: ['52:54:00:00:00:0a'], profile: genric}}
  b: {{macs: ['52:54:00:00:00:0b'], profile: generic, version: v9}}
  c: {{macs: ['52:54:00:00:00:0c'], profile: rx}}
  d: {{macs: ['{MAC1}'], profile: generic, files: own/d}}
  e: {{macs: ['52:54:00:00:00:0e'], profile: generic, version: v9}}
"""
    warned = [str(fault).removeprefix(f"{tree.nodes_file}:") for fault in load(tree, text).warnings]
    assert warned == [
        '1:17: menu.default: "rx" is not available; until it is, the menu uses "local"\n'
        "  hint: known: generic, live/ubuntu, local",
        '3:45: nodes.a.profile: this tree has no release of "genric"\n'
        '  hint: did you mean "generic"?',
        '4:63: nodes.b.version: generic has no release "v9" in this tree (and 1 more node)\n'
        "  hint: available: v1, v2",
        "5:6: nodes.c.channel: rx has no stable release\n  hint: run imagebuilder promote rx",
        f"6:61: nodes.d.files: {tree.path} has no folder own/d\n  hint: make it, or remove the key",
    ]


def test_power_comes_from_all_levels_key_by_key(tree: Tree) -> None:
    text = """
defaults:
  labels: [site]
  login: root
  netconsole: true
  power: {driver: ipmi, credentials: bmc}
groups:
  plugs:
    profile: generic
    labels: [rack1]
    power: {driver: exec, on: [plug, "on"]}
nodes:
  node1: {macs: [52:54:00:77:00:01], profile: generic, power: {address: 10.0.0.9}}
  node2: {macs: [52:54:00:77:00:02], group: plugs, login: admin, netconsole: false}
"""
    one, two = load(tree, text).nodes
    assert one.power == Power("ipmi", "10.0.0.9", "bmc")
    assert two.power == Power("exec", credentials="bmc", on=("plug", "on"))
    assert (one.labels, two.labels) == (("site",), ("rack1", "site"))
    assert (one.login, two.login) == ("root", "admin")
    assert (one.netconsole, two.netconsole) == (True, False)
    assert "imagebuilder.netconsole=6666" in node_words(one, "0" * 32)
    assert not [word for word in node_words(two, "0" * 32) if "netconsole" in word]


@pytest.mark.parametrize(
    "more",
    [
        '    login: "root\\n  ProxyCommand touch /tmp/x"\n',
        '    login: "-oProxyCommand=x"\n',
        '    login: "a b"\n',
        '    power: {driver: ipmi, address: "-Hother", credentials: bmc}\n',
        '    power: {driver: powerman, address: "a b"}\n',
        '    power: {driver: ipmi, address: "a\\nb", credentials: bmc}\n',
    ],
)
def test_nothing_becomes_an_option_or_a_second_line(tree: Tree, more: str) -> None:
    with pytest.raises(InputError):
        load(tree, one_node(more))


@pytest.mark.parametrize(
    "address",
    ["10.0.0.9", "10.0.0.9:6230", "https://bmc-7.example:8443/redfish/v1", "[fe80::1%eth0]"],
)
def test_where_a_bmc_can_be(tree: Tree, address: str) -> None:
    loaded = load(tree, one_node(f'    power: {{driver: redfish, address: "{address}"}}\n'))
    assert loaded.nodes[0].power.address == address


def test_a_node_is_switched_over_ssh_unless_its_power_says_otherwise(tree: Tree) -> None:
    assert load(tree, one_node("")).nodes[0].power == Power("ssh")
