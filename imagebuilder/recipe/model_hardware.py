# SPDX-License-Identifier: Apache-2.0
"""hardware/*.yaml: families of cards, what they need, and the devices that a recipe lists."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from imagebuilder.recipe import rules
from imagebuilder.recipe.model_words import Model, Name, PciId, VarName, VarValue

ModuleName = Annotated[str, StringConstraints(pattern=rules.MODULE.whole)]
FirmwareGlob = Annotated[str, StringConstraints(pattern=rules.FIRMWARE.whole)]
Interface = Literal["hip", "vulkan", "opencl", "level-zero", "sycl", "cuda", "xdna"]
Version = Annotated[str, StringConstraints(pattern=rules.VERSION.whole)]
CardNames = Annotated[str, StringConstraints(pattern=rules.CARDS.whole)]
Text = Annotated[str, StringConstraints(min_length=3, max_length=500)]
ProgramPath = Annotated[str, StringConstraints(pattern=rules.PROGRAM.whole)]
Ending = Annotated[str, StringConstraints(pattern=rules.ENDING.whole)]


class HardwareModel(Model):
    """A device the profile is for, by its PCI id or by the name of its card."""

    pci: PciId | None = Field(
        default=None, description="PCI vendor and device id, such as `1002:7480`."
    )
    card: str | None = Field(
        default=None,
        description="Name of a card, such as `Radeon RX 9070`; `imagebuilder hardware list` shows "
        "them.",
    )
    name: str = Field(default="", description="Display name; default: that of the card.")
    target: str = Field(
        default="",
        pattern=rules.ANY_TARGET.whole,
        description="Accelerator target, such as gfx1102 or sm_120; default: that of the card.",
    )
    assume: str | None = Field(
        default=None,
        min_length=10,
        description="For a device that `hardware/*.yaml` does not describe: why it will work. "
        "Shown by plan, build, prove and publish.",
    )


class ProposalModel(Model):
    """What a recipe for a card may contain, besides what every node has."""

    base: Name = Field(description="A base.")
    overlays: list[Name] = Field(min_length=1, description="Overlays, in order.")
    vars: dict[VarName, VarValue] = Field(
        default={}, description="Values of vars; `{target}` is the card's target."
    )


class FamilyModel(Model):
    """What cards have in common.  Each key needs a source, its own or an inherited one."""

    extends: Name | None = Field(
        default=None, description="Family whose keys apply where this one does not set them."
    )
    vendor: str = Field(
        default="", max_length=40, description="Vendor: `AMD`, `Intel`, `NVIDIA` or another."
    )
    architecture: str = Field(
        default="", max_length=40, description="The vendor's name of the generation."
    )
    integrated: bool = Field(
        default=False,
        description="Whether it is the graphics of a processor, which `hardware detect` leaves out "
        "if there is a card.",
    )
    processor: Literal["amd64", "arm64"] | None = Field(
        default=None, description="Processor of the machines that have it; default: any."
    )
    target: str = Field(
        default="",
        pattern=rules.ANY_TARGET.whole,
        description="Target that its code is compiled for, such as `gfx1102`, `sm_120` or `bmg`.",
    )
    modules: list[ModuleName] = Field(
        default=[], description="Kernel modules, one of which drives it."
    )
    beside: list[ModuleName] = Field(
        default=[], description="Modules that programs need as well, such as `nvidia_uvm`."
    )
    programs: dict[ProgramPath, Text] = Field(
        default={},
        description="Programs that some machines with the card need, each with the reason; the "
        "proof warns where one is not in the image.",
    )
    group: str = Field(
        default="",
        pattern=rules.ANY_ACCOUNT.whole,
        description="Group that owns its device nodes; empty: everybody may use them.",
    )
    firmware: list[FirmwareGlob] = Field(
        default=[],
        description="Globs below /usr/lib/firmware of all that the driver may ask for.",
    )
    optional: dict[FirmwareGlob, Text] = Field(
        default={}, description="Globs of such files that it can do without, each with the reason."
    )
    stand_ins: dict[Ending, Ending] = Field(
        default={},
        description="Ending of a file's name, and the ending of an older file that works instead.",
    )
    computes: list[Interface] = Field(
        default=[], description="Interfaces that programs can compute with on it."
    )
    refuses: dict[Interface, Text] = Field(
        default={},
        description="Interfaces that it lacks although other cards of the vendor have them, and "
        "why.",
    )
    minimum: dict[Literal["kernel", "driver", "mesa", "rocm", "cuda", "level-zero"], Version] = (
        Field(default={}, description="Oldest version that supports it.")
    )
    maximum: dict[Literal["driver", "cuda"], Version] = Field(
        default={}, description="Newest version that supports it, if support was dropped."
    )
    proposals: list[ProposalModel] = Field(
        default=[],
        description="What `imagebuilder hardware detect` proposes, best first: it takes the first "
        "that can be built.",
    )
    cards: dict[PciId, CardNames] = Field(
        default={},
        description="Cards by PCI vendor and device id, such as `1002:7480`, each with the names "
        "that it is sold under, separated by commas.",
    )
    sources: dict[str, Text] = Field(
        default={},
        description="Sources of the facts by key: a file of the kernel, a document. "
        "`minimum.rocm` is for one version. A version that nobody could confirm is left out of "
        "`minimum`; its source begins with `not confirmed: `, and `hardware show` prints that.",
    )


class HardwareFile(Model):
    """hardware/NAME.yaml: families of cards."""

    source: Text = Field(
        description="Where ids and names of the cards are from: `pci.ids`, `lspci -nn`."
    )
    families: dict[Name, FamilyModel] = Field(description="Families by name.")
