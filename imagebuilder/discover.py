# SPDX-License-Identifier: Apache-2.0
"""DHCP clients that are not in nodes.yaml, and proposals for them.

A machine makes its own claims, so a person must confirm each proposal.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.image.types import find_image
from imagebuilder.nodes.check import mac_problem, normal_mac
from imagebuilder.nodes.evidence.dhcp_clients import DhcpClient, read_dhcp_clients
from imagebuilder.nodes.evidence.seen import NO_CARDS, DamagedRecordError, Seen
from imagebuilder.nodes.evidence.strangers import read_strangers
from imagebuilder.nodes.evidence.tickets import nodes_by_mac
from imagebuilder.nodes.references import find_channel, find_profiles, find_version
from imagebuilder.nodes.types import Nodes
from imagebuilder.recipe.cards import Cards
from imagebuilder.serve.ipxe import ARCHITECTURES
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.ui import format_age

FIRST = ("node", "0")  # node1 follows
NUMBERED = re.compile(r"(.*?)(\d{1,9})")
# The PCI ids that each published profile is for.
Offers = Mapping[str, frozenset[str]]
TITLES = {number: kind.title for kind in ARCHITECTURES for number in kind.numbers}


@dataclass(frozen=True)
class Stranger:
    """A DHCP client that is not in nodes.yaml; times are ISO 8601 in UTC.

    `firmware` is how it boots from the network, "" if it does not.  `cards` are the PCI ids of its
    accelerators, None if no inventory boot reported them; `profiles` are the best matches.
    """

    mac: str
    firmware: str = ""
    vendor: str = ""
    address: str = ""
    first: str = ""
    last: str = ""
    cards: tuple[str, ...] | None = None
    names: tuple[str, ...] = ()
    profiles: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Json]:
        return {
            "mac": self.mac,
            "firmware": self.firmware,
            "vendor": self.vendor,
            "address": self.address,
            "first": self.first,
            "last": self.last,
            "pci": None if self.cards is None else list(self.cards),
            "cards": list(self.names),
            "profiles": list(self.profiles),
        }

    def row(self, now: datetime) -> tuple[str, ...]:
        cards = "unknown" if self.cards is None else ", ".join(self.names or self.cards) or "none"
        ages = (age_of(self.first, now), age_of(self.last, now))
        profiles = " or ".join(self.profiles) or "-"
        return self.mac, self.firmware or "no netboot", *ages, self.address or "-", cards, profiles


def age_of(moment: str, now: datetime) -> str:
    """How long ago that was; `?` for an invalid time."""
    try:
        return f"{format_age(now - datetime.fromisoformat(moment))} ago"
    except (ValueError, TypeError):
        return "?"


def discover(tree: Tree, nodes: Nodes, cards: Cards) -> list[Stranger]:
    """Every client or reporter that is not in nodes.yaml, the most recent first."""
    by_mac = nodes_by_mac(nodes)
    offers = find_hardware(tree)
    client = {each.mac: each for each in read_dhcp_clients(tree)}
    told = find_told(tree)
    macs = [mac for mac in dict.fromkeys([*client, *told]) if mac not in by_mac]
    found = [make_machine(mac, client.get(mac), told.get(mac), offers, cards) for mac in macs]
    return sorted(found, key=lambda machine: machine.last, reverse=True)


def find_told(tree: Tree) -> dict[str, Seen]:
    """The last report of each unknown NIC, with the cards of its newest report that has them."""
    try:
        records = sorted(read_strangers(tree).values(), key=lambda seen: seen.last)
    except DamagedRecordError:
        return {}
    found: dict[str, Seen] = {}
    for seen in records:
        before = found.get(seen.mac, seen)
        found[seen.mac] = replace(seen, first=before.first, pci=seen.pci or before.pci)
    return found


def make_machine(
    mac: str, client: DhcpClient | None, told: Seen | None, offers: Offers, cards: Cards
) -> Stranger:
    """A machine from its DHCP requests and its reports, at least one of them."""
    times = [t for each in (client, told) if each for t in (each.first, each.last)]
    number = client.architecture if client else None
    firmware = "" if number is None else TITLES.get(number, f"firmware of kind {number}")
    machine = Stranger(
        mac=mac,
        firmware=firmware or ("netboot" if told else ""),
        vendor=client.vendor if client else "",
        address=(told.address if told else "") or (client.address if client else ""),
        first=min(times),
        last=max(times),
    )
    if not told or not told.pci:
        return machine
    ids = () if told.pci == NO_CARDS else told.pci.split(",")
    return with_cards(machine, ids, offers, cards)


def with_cards(machine: Stranger, ids: Sequence[str], offers: Offers, cards: Cards) -> Stranger:
    """The machine with the PCI ids of its accelerators, and matching profiles."""
    ids = tuple(dict.fromkeys(ids))
    names = names_of(ids, cards)
    profiles = best_profiles(ids, offers, cards)
    return replace(machine, cards=ids, names=names, profiles=profiles)


def names_of(ids: Sequence[str], cards: Cards) -> tuple[str, ...]:
    """Cards for people: their names, or the ids of unknown ones."""
    return tuple(chip.names[0] if (chip := cards.find(pci)) else pci for pci in ids)


def find_hardware(tree: Tree) -> Offers:
    """The PCI ids that each published profile is for, in the release that nodes would boot."""
    found: dict[str, frozenset[str]] = {}
    for profile in find_profiles(tree):
        channel = find_channel(tree, profile)
        version = find_version(tree, profile, channel) if channel else ""
        image = find_image(tree.release(ReleaseName(profile, version))) if version else None
        if image:
            found[profile] = frozenset(device.pci.lower() for device in image.hardware)
    return found


def best_profiles(ids: Collection[str], offers: Offers, cards: Cards) -> tuple[str, ...]:
    """The profiles for most of these cards, and among them those with the fewest others.

    Profiles without hardware are for machines without a card that computes, for instance with only
    the display controller of the BMC or the processor.
    """
    fits = {name: len(wanted & {*ids}) for name, wanted in offers.items()}
    if most := max(fits.values(), default=0):
        sizes = {name: len(offers[name]) for name, fit in fits.items() if fit == most}
        least = min(sizes.values())
        return tuple(name for name, size in sizes.items() if size == least)
    if any((chip := cards.find(pci)) and not chip.integrated for pci in ids):
        return ()
    return tuple(name for name, wanted in offers.items() if not wanted)


def find_machine(machines: Sequence[Stranger], mac: str) -> Stranger | None:
    return next((machine for machine in machines if machine.mac == mac), None)


def check_mac(typed: str, nodes: Nodes) -> str:
    """A MAC address that no node has, in the usual form.  Raises InputError."""
    if problem := mac_problem(typed):
        raise InputError(problem, hint="list machines with imagebuilder discover")
    mac = normal_mac(typed)
    if node := nodes_by_mac(nodes).get(mac):
        hint = f"run imagebuilder nodes show {node.name}"
        raise InputError(f"{mac} is already a MAC address of {node.name}", hint=hint)
    return mac


def propose_name(nodes: Nodes, taken: Collection[str] = ()) -> str:
    """The next name in the pattern of most nodes: `gpu08` after `gpu07`.

    Gaps are not filled, because a removed node may come back with its host key.  Names in `taken`
    are skipped.
    """
    matches = [NUMBERED.fullmatch(node.name) for node in nodes.nodes]
    numbered = [(match[1], match[2]) for match in matches if match] or [FIRST]
    prefix = Counter(name for name, _ in numbered).most_common(1)[0][0]
    digits = [text for name, text in numbered if name == prefix]
    number, width = max(map(int, digits)) + 1, max(map(len, digits))
    known = {node.name for node in nodes.nodes} | {*taken}
    while (name := f"{prefix}{number:0{width}}") in known:
        number += 1
    return name


def choose_profile(machine: Stranger, tree: Tree) -> str:
    """The only profile that matches a machine.  Raises InputError that lists the profiles."""
    if len(machine.profiles) == 1:
        return machine.profiles[0]
    there = ", ".join(find_profiles(tree)) or "none yet"
    if machine.profiles:
        what = f"several profiles match {machine.mac}: {', '.join(machine.profiles)}"
    elif machine.cards is None:
        what = f"the cards of {machine.mac} are unknown, so no profile can be proposed"
    else:
        cards = ", ".join(machine.names) or "machines without a card"
        what = f"no published profile supports {cards}"
    raise InputError(what, hint=f"choose one with --profile; published: {there}")
