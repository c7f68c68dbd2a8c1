# SPDX-License-Identifier: Apache-2.0
"""What the models of everything people type share: the strict base class and small types."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

Name = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]*$", max_length=64)]
VarName = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]*$", max_length=64)]
PackageName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9.+-]+$", max_length=128)]
KernelName = Annotated[str, StringConstraints(pattern=r"^[a-z0-9]+$", max_length=32)]
PciId = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{4}:[0-9a-f]{4}$")]
Fingerprint = Annotated[str, StringConstraints(pattern=r"^[0-9A-F]{40}$")]
RootPath = Annotated[str, StringConstraints(pattern=r"^/[^\n\x00]*$", max_length=1024)]
CmdlineWord = Annotated[str, StringConstraints(pattern=r"^[^\s\"'\x00]+$", max_length=256)]
VarValue = bool | int | str | list[str]


class Model(BaseModel):
    """Unknown keys are faults; nothing is converted silently."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
    )


class Conditional(Model):
    """A list entry that counts only when `when` is true."""

    name: str = Field(description="The entry.")
    when: str = Field(description="Jinja2 expression over the vars, such as `'hip' in backends`.")


Entry = str | Conditional
