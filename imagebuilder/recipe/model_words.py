# SPDX-License-Identifier: Apache-2.0
"""What the models of everything people type share: the strict base class and small types."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from imagebuilder.recipe import rules

Name = Annotated[str, StringConstraints(pattern=rules.NAME.whole)]
VarName = Annotated[str, StringConstraints(pattern=rules.VAR.whole)]
PackageName = Annotated[str, StringConstraints(pattern=rules.PACKAGE_NAME.whole)]
KernelName = Annotated[str, StringConstraints(pattern=rules.KERNEL.whole)]
AccountName = Annotated[str, StringConstraints(pattern=rules.ACCOUNT.whole)]
PciId = Annotated[str, StringConstraints(pattern=rules.PCI.whole)]
Fingerprint = Annotated[str, StringConstraints(pattern=rules.FINGERPRINT.whole)]
RootPath = Annotated[str, StringConstraints(pattern=rules.ROOT_PATH.whole)]
CmdlineWord = Annotated[str, StringConstraints(pattern=rules.CMDLINE.whole)]
Word = Annotated[str, StringConstraints(pattern=rules.WORD.whole)]
Uri = Annotated[str, StringConstraints(pattern=rules.URI.whole)]
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
