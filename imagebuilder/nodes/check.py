# SPDX-License-Identifier: Apache-2.0
"""Check nodes.yaml: names, addresses, kernel arguments, and that nothing is used twice."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from ipaddress import AddressValueError, IPv4Address

from imagebuilder.bootfiles import is_changed_by_ipxe
from imagebuilder.errors import Fault
from imagebuilder.nodes.model import NodeDefaultsModel, NodeGroupModel, NodeModel, NodesFile
from imagebuilder.phrases import quote, suggest
from imagebuilder.recipe.positions import Document, KeyPath
from imagebuilder.tree import HYPHENED, MAC

HOST_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
# This host; and what dnsmasq takes for a setting in dhcp-hostsfile, where a name is what nothing
# else is: a lease time, and that the machine gets no answer (dnsmasq(8), --dhcp-host).
OTHER_MEANING = re.compile(r"localhost|ignore|infinite|[0-9]+[wdhms]?")
FULL_CMDLINE = (
    1024  # characters; x86's kernel takes 2047 (COMMAND_LINE_SIZE), the image has its own
)


def check_nodes_file(file: NodesFile, document: Document) -> Iterator[Fault]:
    """Every fault of content; the models have checked the form."""
    for path, level in levels_of(file):
        yield from check_level(document, path, level)
    nodes = file.nodes or {}
    for name, node in nodes.items():
        yield from check_node(file, document, name, node)
    yield from check_twice(document, macs_of(nodes), "MAC address")
    addresses = [
        (("nodes", name, "address"), name, node.address)
        for name, node in nodes.items()
        if node.address
    ]
    yield from check_twice(document, addresses, "address")


def levels_of(file: NodesFile) -> Iterator[tuple[KeyPath, NodeDefaultsModel]]:
    """Every level that nodes take values from, with its path."""
    if file.defaults:
        yield ("defaults",), file.defaults
    for name, group in (file.groups or {}).items():
        if group:
            yield ("groups", name), group
    for name, node in (file.nodes or {}).items():
        yield ("nodes", name), node


def check_level(document: Document, path: KeyPath, level: NodeDefaultsModel) -> Iterator[Fault]:
    for index, word in enumerate(level.cmdline or ()):
        if what := word_problem(word):
            yield document.fault((*path, "cmdline", index), what)
    if sum(len(word) + 1 for word in level.cmdline or ()) > FULL_CMDLINE:
        what = f"more than {FULL_CMDLINE} characters: the kernel cuts a long command line"
        yield document.fault((*path, "cmdline"), what)
    if not isinstance(level, NodeGroupModel) or not level.version:
        return
    if level.channel:
        what = "channel and version exclude each other"
        hint = "a version pins to one release, a channel follows promotions"
        yield document.fault((*path, "version"), what, hint, of_key=True)
    if not level.profile and not isinstance(level, NodeModel):
        yield document.fault((*path, "version"), "version requires profile")


def word_problem(word: str) -> str:
    """Why a word is not allowed on a kernel command line in an iPXE script, or nothing.

    iPXE expands `${`, takes `#` for a comment, has operators, and options begin with a dash.
    """
    if not re.fullmatch(r"[!-~]+", word):
        return f"{quote(word)} is not one word of plain characters"
    if '"' in word or "'" in word:
        return f"{quote(word)}: quotes would end the word"
    if "${" in word:
        return f"{quote(word)}: iPXE would expand ${{"
    if is_changed_by_ipxe(word) or word[0] == "-":
        return f"{quote(word)} has a special meaning in iPXE"
    return ""


def check_node(file: NodesFile, document: Document, name: str, node: NodeModel) -> Iterator[Fault]:
    path: KeyPath = ("nodes", name)
    if what := name_problem(name):
        lower = name.lower().replace("_", "-")
        hint = f"did you mean {quote(lower)}?" if lower != name and not name_problem(lower) else ""
        yield document.fault(path, what, hint, of_key=True)
    for index, mac in enumerate(node.macs):
        if what := mac_problem(mac):
            yield document.fault((*path, "macs", index), what)
    if node.address is not None and (what := address_problem(node.address)):
        yield document.fault((*path, "address"), what)
    if node.static and node.address is None:
        yield document.fault((*path, "static"), "static requires `address`", of_key=True)
    if ".." in (node.files or "").split("/"):
        yield document.fault((*path, "files"), "must be inside the tree")
    groups = file.groups or {}
    if node.group is not None and node.group not in groups:
        what = f"unknown group {quote(node.group)}"
        yield document.fault((*path, "group"), what, suggest(node.group, groups))
        return
    if not profile_of(file, node):
        what = "it has no profile"
        hint = "set profile here or in its group" if node.group else "set profile, or a group"
        yield document.fault(path, what, hint, of_key=True)


def profile_of(file: NodesFile, node: NodeModel) -> str:
    """The profile of a node; empty if none is set."""
    group = (file.groups or {}).get(node.group or "")
    return node.profile or (group.profile if group else None) or ""


def name_problem(name: str) -> str:
    """Why this is not a host name (RFC 1123, one label, lower case), or nothing."""
    if not HOST_NAME.fullmatch(name):
        return f"{quote(name)} is not a host name: lower-case letters, digits, hyphens, at most 63"
    if OTHER_MEANING.fullmatch(name):
        return f"{quote(name)} is not a host name: it has another meaning"
    return ""


def normal_mac(mac: str) -> str:
    """A MAC address in lower case with colons."""
    return mac.lower().replace("-", ":")


def mac_problem(mac: str) -> str:
    """Why this is not the MAC address of a NIC, or nothing."""
    if not (MAC.fullmatch(mac.lower()) or HYPHENED.fullmatch(mac.lower())):
        return f"{quote(mac)} is not a MAC address such as 52:54:00:77:00:01"
    first = int(mac[:2], 16)
    if not int(re.sub("[:-]", "", mac), 16):
        return f"{quote(mac)} is all zeros, which is not the address of a NIC"
    if first & 1:
        return f"{quote(mac)} is a multicast address, not that of a NIC"
    return ""


def address_problem(address: str) -> str:
    """Why no node can have this address, or nothing."""
    try:
        parsed = IPv4Address(address)
    except AddressValueError:
        return f"{quote(address)} is not an IPv4 address such as 192.168.1.21"
    if parsed.is_loopback or parsed.is_multicast or parsed.is_unspecified or parsed.is_reserved:
        return f"{quote(address)} is not an address for a node"
    return ""


Claim = tuple[KeyPath, str, str]


def macs_of(nodes: dict[str, NodeModel]) -> list[Claim]:
    """Every well-formed MAC address with its place and node."""
    return [
        (("nodes", name, "macs", index), name, normal_mac(mac))
        for name, node in nodes.items()
        for index, mac in enumerate(node.macs)
        if not mac_problem(mac)
    ]


def check_twice(document: Document, claims: Sequence[Claim], what: str) -> Iterator[Fault]:
    """A fault for each value that is used twice."""
    owners: dict[str, tuple[KeyPath, str]] = {}
    for path, name, thing in claims:
        if thing in owners:
            first, owner = owners[thing]
            line = document.mark(first).line
            user = "this node" if owner == name else owner
            used = f"the {what} {thing} is already used by {user} (line {line})"
            yield document.fault(path, used)
        owners.setdefault(thing, (path, name))
