# SPDX-License-Identifier: Apache-2.0
"""The power driver of a node, or what is missing for one: said before anything is touched."""

from __future__ import annotations

import os
import stat
from collections.abc import Collection, Iterator, Mapping, Sequence
from pathlib import Path

from imagebuilder.errors import Fault, InputError
from imagebuilder.files import read_plain
from imagebuilder.fleet.power.programs import CommandPower, Ipmi, Powerman
from imagebuilder.fleet.power.protocol import Credentials, PowerDriver
from imagebuilder.fleet.power.redfish import Redfish
from imagebuilder.fleet.power.wol import WakeOnLan
from imagebuilder.fleet.select import fold
from imagebuilder.nodes.types import Node, Power
from imagebuilder.recipe.positions import parse_document

BMC = ("ipmi", "redfish")
# What each driver can do.
CAN = {
    "wol": ("on",),
    "ipmi": ("on", "off"),
    "redfish": ("on", "off"),
    "powerman": ("on", "off"),
    "exec": ("on", "off"),
    "ssh": (),
}
SYSTEM = Path("/etc/imagebuilder/credentials")


def choose_drivers(
    nodes: Sequence[Node],
    addresses: Mapping[str, str],
    env: Mapping[str, str],
    needs: Collection[str] = (),
) -> dict[str, PowerDriver]:
    """The driver of each node.  Raises InputError with everything that is missing, of all nodes.

    `needs` is what will be asked of them beside their state: `on`, `off`.
    """
    faults = [*find_unable(nodes, needs)]
    faults += [f for node in nodes for f in missing(node, addresses.get(node.name, ""), needs)]
    credentials: dict[str, Credentials] = {}
    for name in sorted({n.power.credentials for n in nodes if n.power.driver in BMC} - {""}):
        try:
            credentials[name] = load_credentials(name, env)
        except InputError as error:
            faults.extend(error.faults)
    if faults:
        raise InputError.of(faults)
    return {
        node.name: make_driver(node, addresses.get(node.name, ""), credentials) for node in nodes
    }


def find_unable(nodes: Sequence[Node], needs: Collection[str]) -> Iterator[Fault]:
    """Nodes whose driver cannot do what is needed, one fault for all that have the same driver."""
    able = [driver for driver, what in CAN.items() if {*needs} <= {*what}]
    for driver, can in CAN.items():
        unable = [each for each in needs if each not in can]
        names = [node.name for node in nodes if node.power.driver == driver]
        if unable and names:
            usual = ", the default," if driver == Power().driver else ""
            what = f"the power driver {driver}{usual} cannot switch a node {' and '.join(unable)}"
            hint = f"set `power: {{driver: ...}}` in nodes.yaml to one of {', '.join(able)}"
            yield Fault(fold(names), what, hint)


def missing(node: Node, address: str, needs: Collection[str]) -> Iterator[Fault]:
    """What the node's driver needs and nodes.yaml does not say."""
    power = node.power
    if power.driver == "exec":
        for each in needs:
            if not getattr(power, each):
                what = f"`power: {each}` is not set, so the driver exec has no program to run"
                hint = f"name a program: {each}: [/usr/local/bin/plug, {each}, '{{node}}']"
                yield Fault(node.name, what, hint)
    elif power.driver == "wol" and "on" in needs and not (power.interface or address):
        what = "the driver wol needs `power: interface`, or `address` of the node"
        yield Fault(node.name, what, "set one of them for the node, or boot it once by hand")
    elif power.driver in BMC:
        for key in ("address", "credentials"):
            if not getattr(power, key):
                what = f"`power: {key}` is not set, which {power.driver} needs"
                yield Fault(node.name, what, "set it for the node, its group, or in `defaults`")


def make_driver(node: Node, address: str, credentials: Mapping[str, Credentials]) -> PowerDriver:
    power = node.power
    match power.driver:
        case "ipmi":
            return Ipmi(node.name, power.address, credentials[power.credentials])
        case "redfish":
            user = credentials[power.credentials]
            return Redfish(node.name, power.address, user, power.verify)
        case "powerman":
            return Powerman(node.name, power.address)
        case "wol":
            return WakeOnLan(node.name, node.macs, address, power.interface)
        case _:
            return CommandPower(node.name, power.on, power.off, power.state)


def load_credentials(name: str, env: Mapping[str, str]) -> Credentials:
    """What a credentials file says: YAML with `user` and `password`, readable by its owner alone.

    It is a credential of systemd, else one of the person, else one of the system.  Raises
    InputError; no message contains any of its content.
    """
    home = Path(env.get("XDG_CONFIG_HOME") or Path(env.get("HOME", "/")) / ".config")
    places = [home / "imagebuilder/credentials" / name, SYSTEM / name]
    if folder := env.get("CREDENTIALS_DIRECTORY"):
        places.insert(0, Path(folder) / name)
    path = next((place for place in places if os.path.lexists(place)), None)
    if path is None:
        raise InputError(
            f"no credentials named {name}",
            where=os.fspath(places[-2]),
            hint="write `user: ...` and `password: ...` into it, and chmod 600 it",
        )
    try:
        status = path.stat()
        content = read_plain(path)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=os.fspath(path)) from error
    if stat.S_IMODE(status.st_mode) & 0o077:
        raise InputError(
            "may be read by others",
            where=os.fspath(path),
            hint=f"chmod 600 {path}, and change the password if others may have seen it",
        )
    try:
        value = parse_document(content, "").value
        return Credentials(str(value["user"]), str(value["password"]))
    except (InputError, KeyError, TypeError) as error:
        hint = "it needs two lines: `user: ...` and `password: ...`"
        raise InputError("is not a credentials file", where=os.fspath(path), hint=hint) from error
