# SPDX-License-Identifier: Apache-2.0
"""Keys of an overlay for stages of a build: builds, playbooks, slimming, known targets."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, StringConstraints

from imagebuilder.recipe import rules
from imagebuilder.recipe.model_words import EACH, Entry, Model, Name, VarValue

EnvName = Annotated[str, StringConstraints(pattern=rules.ENV.whole)]

AnsibleVar = Annotated[str, StringConstraints(pattern=rules.ANSIBLE_VAR.whole)]


class BuildModel(Model):
    """Software built in a temporary tree; only what it installs becomes part of the root.

    The tree is the root as the packages of all overlays made it, with `packages` on top.
    """

    name: Name = Field(description="Short name; part of the layer's name, after the overlay's.")
    packages: list[Entry] = Field(
        default=[], description="Packages of that tree: compilers, headers, dkms. Template."
    )
    source_packages: list[Entry] = Field(
        default=[],
        description="Source packages of the archive, unpacked below "
        "/run/imagebuilder/source/NAME. Template.",
    )
    requirements: str = Field(
        default="",
        description="Hash-locked requirements whose wheels are installed at "
        "/opt/imagebuilder/wheels of that tree; a path below the overlay.",
    )
    run: str = Field(
        description="Program below the overlay that builds. It has no network, gets the release "
        "of the image's kernel in $KERNEL, and installs into $DESTDIR."
    )
    env: dict[EnvName, str] = Field(
        default={}, description="Additional environment variables of the program. Templates."
    )
    when: str = Field(default="true", description="Jinja2 expression over the vars.")


class AnsibleModel(Model):
    """A playbook that runs on the root during the build (needs ansible-core on the builder)."""

    playbook: str = Field(
        description="Path of the playbook: below the overlay, or absolute. Template."
    )
    groups: str = Field(
        default="",
        description="Groups of the inventory that the image is in, separated by commas; plays for "
        "others are left out. Empty: every group that a play names. Template.",
    )
    vars: dict[AnsibleVar, VarValue] = Field(
        default={}, description="Extra vars. Texts are templates."
    )
    network: bool = Field(default=False, description="Whether its tasks may use the network.")
    when: str = Field(default="true", description="Jinja2 expression over the vars.")


class SlimModel(Model):
    """Content to remove because the profile's nodes do not need it; each removal is listed."""

    code: Annotated[list[Entry], rules.TARGET] = Field(
        default=[],
        description="Accelerator targets (`gfx1102`) whose device code stays in the fat binaries "
        "and kernel libraries of `code-in`; all other code is removed. Template.",
    )
    code_in: Annotated[list[Entry], rules.GLOB] = Field(
        default=[], description="Globs of the files that are slimmed. Template."
    )
    firmware: Annotated[list[Entry], rules.BELOW] = Field(
        default=[],
        description="Folders below /usr/lib/firmware, such as `amdgpu`, that keep only what the "
        "recipe's devices ask for. Template.",
    )
    modules: Annotated[list[Entry], rules.BELOW] = Field(
        default=[],
        description="Globs below the kernel's folder of modules, such as `kernel/sound`, that are "
        "removed; depmod(8) follows. Template.",
    )
    unlinked: Annotated[list[Entry], rules.GLOB] = Field(
        default=[],
        description="Globs of shared libraries that are removed if nothing in the root links "
        "to them. Template.",
    )


class RefusalModel(Model):
    """A condition under which an overlay cannot be used: an error in the recipe."""

    when: str = Field(description="Jinja2 expression over vars, `suite` and `distribution`.")
    because: str = Field(min_length=10, description="Reason; the text of the error. Template.")
    instead: str = Field(
        default="", description="What to do instead; the hint of the error. Template."
    )


class TargetsModel(Model):
    """Which accelerator targets a source has code for; any other is an error in the recipe."""

    target: str = Field(description="The profile's target. Template.")
    source: str = Field(description="What contains the code, such as `ROCm 6.4 of Debian`.")
    supported: list[str] = Field(min_length=1, description="Targets it has code for.")
    instead: str = Field(description="What to do for another target; the hint of the error.")
    each: str = Field(default="", description=EACH)
    when: str = Field(default="true", description="Jinja2 expression over the vars.")
