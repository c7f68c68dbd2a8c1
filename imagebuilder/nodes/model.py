# SPDX-License-Identifier: Apache-2.0
"""nodes.yaml as people type it, as pydantic models.

A node takes missing values from its group, and those that the group lacks from `defaults`.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from imagebuilder.recipe import rules
from imagebuilder.recipe.model_words import Model, Name, VarName, VarValue
from imagebuilder.rootkind import RootKind

# A version of an image: a time and a digest.
Version = Annotated[str, StringConstraints(pattern=rules.IMAGE_VERSION.whole)]
Console = Annotated[str, StringConstraints(pattern=rules.CONSOLE.whole)]
Host = Annotated[str, StringConstraints(pattern=rules.HOST.whole)]
Login = Annotated[str, StringConstraints(pattern=rules.ACCOUNT.whole)]
Folder = Annotated[str, StringConstraints(pattern=rules.FOLDER.whole)]


class PowerModel(Model):
    """How a node is switched on and off; missing values come from the next level."""

    driver: Literal["wol", "ipmi", "redfish", "powerman", "exec", "ssh"] | None = Field(
        default=None,
        description="`wol` wakes over the network and switches off over ssh; `ipmi` and `redfish` "
        "use the BMC; `powerman` asks its server; `exec` runs programs; `ssh`, the default, only "
        "restarts and switches off.",
    )
    address: Host | None = Field(
        default=None, description="Host name, address or URL of the BMC or of powerman's server."
    )
    credentials: Name | None = Field(
        default=None, description="Name of the credentials file with `user` and `password`."
    )
    interface: Name | None = Field(
        default=None, description="Interface to wake from; by default the one that routes to it."
    )
    verify: bool | None = Field(
        default=None, description="Whether the TLS certificate of the BMC is verified; true."
    )
    on: list[str] | None = Field(default=None, description="`exec`: program that switches on.")
    off: list[str] | None = Field(default=None, description="`exec`: program that switches off.")
    state: list[str] | None = Field(
        default=None, description="`exec`: program that prints `on` or `off`."
    )


class NodeDefaultsModel(Model):
    """The values for every node that does not set its own."""

    channel: Literal["candidate", "stable"] | None = Field(
        default=None, description="Channel to follow; `stable` by default."
    )
    root: RootKind | None = Field(
        default=None, description="Kind of root; that of the release by default."
    )
    console: list[Console] | None = Field(
        default=None, description="Consoles; `tty0` and `ttyS0,115200` by default."
    )
    cmdline: list[str] | None = Field(
        default=None, description="Kernel parameters; those of all levels are combined."
    )
    ipxe: Literal["ipxe.efi", "snponly.efi"] | None = Field(
        default=None, description="Boot file under UEFI: iPXE's NIC drivers or the firmware's."
    )
    vars: dict[VarName, VarValue] | None = Field(
        default=None, description="Values for software on the node; the most specific level wins."
    )
    labels: list[Name] | None = Field(
        default=None,
        description="More names for sets of nodes (`@LABEL`); all levels are combined.",
    )
    login: Login | None = Field(
        default=None, description="User for commands over ssh; `compute` by default."
    )
    power: PowerModel | None = Field(default=None, description="How it is switched on and off.")
    netconsole: bool | None = Field(
        default=None,
        description="Whether its kernel sends its messages to the boot server; false by default.",
    )


class NodeGroupModel(NodeDefaultsModel):
    """The values that nodes of a group share."""

    profile: Name | None = Field(default=None, description="What they boot.")
    version: Version | None = Field(default=None, description="Version that pins them.")


class NodeModel(NodeGroupModel):
    """One machine."""

    macs: list[str] = Field(min_length=1, description="MAC addresses, the boot NIC's first.")
    group: str | None = Field(default=None, description="Group it belongs to.")
    address: str | None = Field(default=None, description="Fixed IPv4 address.")
    static: bool = Field(
        default=False, description="Whether the kernel uses `address` without DHCP."
    )
    files: Folder | None = Field(
        default=None,
        description="Folder with additional files for this node, relative to the tree.",
    )


class MenuModel(Model):
    """The menu of unknown machines."""

    default: str = Field(default="local", description="A profile, `live/NAME` or `local`.")
    timeout: int = Field(
        default=30,
        ge=0,
        le=86_400,
        description="Seconds until the default starts; 0 waits for input.",
    )


class NodesFile(Model):
    """TREE/nodes.yaml: the machines that boot; an empty key is the same as none."""

    menu: MenuModel | None = Field(default=None, description="Menu for unknown machines.")
    defaults: NodeDefaultsModel | None = Field(default=None, description="For every node.")
    groups: dict[Name, NodeGroupModel | None] | None = Field(default=None, description="By name.")
    nodes: dict[str, NodeModel] | None = Field(default=None, description="By host name.")
