# SPDX-License-Identifier: Apache-2.0
"""`proof:` of an overlay: what must be true of an image for its accelerators to work.

The proof itself knows what follows from the recipe's devices (which driver claims them, which
firmware it asks for); here an overlay declares what its software needs.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, StringConstraints

from imagebuilder.recipe import rules
from imagebuilder.recipe.model_words import EACH, Entry, Model, Name, RootPath
from imagebuilder.recipe.rules import DECIDES, Sometimes

Import = Annotated[str, StringConstraints(pattern=rules.IMPORT.whole)]


class CodeModel(Model):
    """Binaries that must carry code for an accelerator target."""

    files: Annotated[list[str], rules.GLOB] = Field(
        min_length=1,
        description="Globs of ELF files or of kernel files; each must match. Template.",
    )
    target: Annotated[str, rules.TARGET] = Field(
        description="Target, such as `gfx1102` or `sm_120`. Template."
    )
    accept: Literal["native", "forward"] = Field(
        default="native",
        description="`native`: code for the target itself. `forward`: PTX that the driver compiles "
        "for it at first use is accepted, with a note.",
    )
    each: str = Field(default="", description=EACH)
    when: str = Field(default="true", description="Jinja2 expression over the vars.")


class PythonProofModel(Model):
    """A Python environment that must import, and what its torch must be made for."""

    path: RootPath = Field(description="The environment, such as `/opt/vllm`.")
    imports: list[Import] = Field(
        min_length=1, description="Modules that can be imported without a device."
    )
    platform: Literal["cpu", "cuda", "rocm", "xpu"] = Field(
        default="cpu", description="Platform that its torch is built for. Not a template."
    )
    cuda: str = Field(
        default="",
        pattern=rules.CUDA.whole,
        description="Version of CUDA that torch is built with.",
    )
    target: Annotated[str, Sometimes(rules.TARGET)] = Field(
        default="", description="Target in torch's list. Template."
    )
    when: str = Field(default="true", description="Jinja2 expression over the vars.")


class DeviceModel(Model):
    """A device node, and the group that may use it."""

    path: str = Field(
        pattern=rules.DEVICE.whole, description="Path or glob, such as `/dev/dri/renderD*`."
    )
    group: str = Field(
        default="",
        pattern=rules.ANY_ACCOUNT.whole,
        description="Its group; empty: everybody may use it.",
    )
    when: str = Field(default="true", description="Jinja2 expression over the vars.")


class RefusedArgumentModel(Model):
    """An argument that keeps a service from working as its overlay means it."""

    argument: str = Field(min_length=1, description="The whole argument, such as `--cpu`.")
    because: str = Field(min_length=1, description="What happens with it.")


class ServiceModel(Model):
    """A systemd service that uses the accelerator."""

    unit: Annotated[str, rules.UNIT] = Field(
        pattern=rules.SERVICE.whole, description="The unit's full name."
    )
    memlock: bool = Field(default=False, description="It locks memory: LimitMEMLOCK=infinity.")
    refuses: list[RefusedArgumentModel] = Field(
        default=[], description="Arguments that its command line must not have."
    )
    when: str = Field(default="true", description="Jinja2 expression over the vars.")


class EngineProofModel(Model):
    """An inference engine: what it computes on, and what keeps it off the processor."""

    engine: Name = Field(description="Which engine: the `name` of an overlay's `engine`.")
    backends: Annotated[list[Entry], rules.BACKEND] = Field(
        default=[],
        description="Backends it must be able to choose on a node with the device, best first: "
        "`hip`, `cuda`, `vulkan`, `sycl`; empty: it is meant to run on the processor. Template.",
    )
    path: Annotated[str, rules.PLACE] = Field(
        default="", description="Its Python environment, if it is in one. Template."
    )
    unit: Annotated[str, rules.UNIT] = Field(default="", description="Service that runs it.")
    allow_cpu: Annotated[str, DECIDES] = Field(
        default="false",
        description="Jinja2 expression: whether it may compute on the CPU instead of the device.",
    )
    when: str = Field(default="true", description="Jinja2 expression over the vars.")


class ProofModel(Model):
    """What must be true of an image that has this overlay."""

    modules: Annotated[list[Entry], rules.MODULE] = Field(
        default=[], description="Kernel modules that must be present and loadable."
    )
    firmware: Annotated[list[Entry], rules.BELOW] = Field(
        default=[],
        description="Globs below /usr/lib/firmware that must each match, in addition to what the "
        "recipe's devices are known to need. Template.",
    )
    code: list[CodeModel] = Field(
        default=[], description="Binaries that must contain code for a target."
    )
    libraries: Annotated[list[Entry], rules.PLACE] = Field(
        default=[], description="Shared libraries that must load (dlopen(3)). Template."
    )
    programs: Annotated[list[Entry], rules.PLACE] = Field(
        default=[],
        description="Programs that its software calls on nodes: they must be executable, with "
        "their interpreters and libraries. Template.",
    )
    cuda: Annotated[str, Sometimes(rules.VERSION)] = Field(
        default="",
        description="Version of CUDA that the driver must serve, such as `12.8`. Template.",
    )
    python: list[PythonProofModel] = Field(default=[], description="Python environments.")
    devices: list[DeviceModel] = Field(default=[], description="Device nodes.")
    users: Annotated[list[Entry], rules.ACCOUNT] = Field(
        default=[], description="Accounts that must be able to use those devices. Template."
    )
    services: list[ServiceModel] = Field(default=[], description="Services that use them.")
    engines: list[EngineProofModel] = Field(default=[], description="Inference engines.")
