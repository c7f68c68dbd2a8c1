# SPDX-License-Identifier: Apache-2.0
"""What checks may know of the image they look at: its manifest, and the node that booted it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, cast

from imagebuilder.decode import reading
from imagebuilder.digest import Json


@dataclass(frozen=True)
class Device:
    """A device the profile is for, as in its recipe."""

    pci: str
    name: str
    target: str


@dataclass(frozen=True)
class Account:
    """A user that an overlay declares, with supplementary groups."""

    name: str
    uid: int | None
    groups: tuple[str, ...]


@dataclass(frozen=True)
class NodeFacts:
    """What the gate expects of the node it booted.

    `machine_id` and `host_key` (the public key, as `ssh-ed25519 AAAA...`) are those it keeps for
    the node.  `firmware` is uefi or bios, `root` the kind of root.  `server` is an address.
    `source` is what findmnt(8) shows as the source of the export that the root is on, "" for one in
    memory.
    `seconds` are from power-on to the first ssh.
    """

    name: str
    address: str
    machine_id: str
    host_key: str
    firmware: str
    root: str
    server: str
    source: str
    seconds: float


@dataclass(frozen=True)
class Facts:
    """What an image declares.

    `kernel` is a release as uname(1) says it.  `listens` is None where the manifest is from before
    it was declared.  `units` are what overlays enable, disable and mask, each with that verb.
    `release` is the path of the root in the tree, "" for an image of the store.
    `vmlinuz` and `initrd` are paths on this host, "" when they are not at hand, with the sha256
    that the manifest has.  `node` is there for boot checks only.
    """

    profile: str
    version: str
    kernel: str
    overlays: tuple[str, ...]
    root: str
    cmdline: tuple[str, ...]
    hardware: tuple[Device, ...]
    listens: tuple[str, ...] | None
    groups: tuple[str, ...]
    users: tuple[Account, ...]
    vmlinuz_sha256: str
    initrd_sha256: str
    release: str = ""
    vmlinuz: str = ""
    initrd: str = ""
    node: NodeFacts | None = None
    units: Mapping[str, str] = field(default_factory=dict)

    def as_json(self) -> dict[str, Json]:
        """As a value that facts_from_json() reads."""
        return cast("dict[str, Json]", asdict(self))


@reading("manifest.json")
def facts_of(
    manifest: Mapping[str, Any], *, release: str = "", vmlinuz: str = "", initrd: str = ""
) -> Facts:
    """The facts of the image with this manifest, made by this version of the program or before."""
    boot, kernel = manifest["boot"], manifest["kernel"]
    inputs = [layer["inputs"] for layer in manifest["layers"]]
    users = {name: user for i in inputs for name, user in i.get("users", {}).items()}
    # The last overlay that names a unit decides, as it does in the build.
    units = {
        name: verb for i in inputs for verb, names in i.get("units", {}).items() for name in names
    }
    listens = manifest.get("listens")
    return Facts(
        profile=manifest["profile"],
        version=manifest["version"],
        kernel=kernel["release"],
        overlays=tuple(manifest["overlays"]),
        root=boot["root"],
        cmdline=tuple(boot["cmdline"]),
        hardware=tuple(Device(h["pci"], h["name"], h["target"]) for h in manifest["hardware"]),
        listens=None if listens is None else tuple(listens),
        groups=tuple(sorted({name for i in inputs for name in i.get("groups", {})})),
        # As a step that configures an overlay lists them: uid, home, shell, groups, ...
        users=tuple(Account(n, u[0], tuple(u[3])) for n, u in sorted(users.items())),
        vmlinuz_sha256=kernel["vmlinuz"]["sha256"],
        initrd_sha256=kernel["initrd"]["sha256"],
        release=release,
        vmlinuz=vmlinuz,
        initrd=initrd,
        units=units,
    )


def facts_from_json(value: Mapping[str, Any]) -> Facts:
    """What Facts.as_json() made, as it was."""
    listens, node = value["listens"], value["node"]
    users = (Account(u["name"], u["uid"], tuple(u["groups"])) for u in value["users"])
    return Facts(
        **{
            **value,
            "overlays": tuple(value["overlays"]),
            "cmdline": tuple(value["cmdline"]),
            "hardware": tuple(Device(**device) for device in value["hardware"]),
            "listens": None if listens is None else tuple(listens),
            "groups": tuple(value["groups"]),
            "users": tuple(users),
            "node": None if node is None else NodeFacts(**node),
        }
    )
