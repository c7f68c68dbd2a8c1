# SPDX-License-Identifier: Apache-2.0
"""The strict base class and the small types that all models of user-written files share."""

from __future__ import annotations

import re
from typing import Annotated

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, StringConstraints
from pydantic_core import PydanticCustomError, PydanticKnownError

from imagebuilder.recipe import rules


def check_regex(text: str) -> str:
    """A regular expression of Python."""
    try:
        re.compile(text)
    except (re.error, OverflowError, ValueError, RecursionError) as error:
        why = str(error) if isinstance(error, re.error | OverflowError) else "it is too large"
        raise PydanticCustomError(
            "regex", "is not a regular expression: {why}", {"why": why}
        ) from error
    return text


def check_cmdline(text: str) -> str:
    """A word by rules.CMDLINE, whose pattern looks ahead, as that of StringConstraints cannot."""
    if not rules.CMDLINE.pattern.fullmatch(text):
        raise PydanticKnownError("string_pattern_mismatch", {"pattern": rules.CMDLINE.whole})
    return text


Regex = Annotated[str, AfterValidator(check_regex)]
Name = Annotated[str, StringConstraints(pattern=rules.NAME.whole)]
VarName = Annotated[str, StringConstraints(pattern=rules.VAR.whole)]
PackageName = Annotated[str, StringConstraints(pattern=rules.PACKAGE_NAME.whole)]
KernelName = Annotated[str, StringConstraints(pattern=rules.KERNEL.whole)]
AccountName = Annotated[str, StringConstraints(pattern=rules.ACCOUNT.whole)]
PciId = Annotated[str, StringConstraints(pattern=rules.PCI.whole)]
Fingerprint = Annotated[str, StringConstraints(pattern=rules.FINGERPRINT.whole)]
RootPath = Annotated[str, StringConstraints(pattern=rules.ROOT_PATH.whole)]
CmdlineWord = Annotated[
    str,
    AfterValidator(check_cmdline),
    Field(json_schema_extra={"pattern": rules.CMDLINE.whole}),
]
Word = Annotated[str, StringConstraints(pattern=rules.WORD.whole)]
Uri = Annotated[str, StringConstraints(pattern=rules.URI.whole)]
Because = Annotated[
    str,
    Field(
        min_length=10,
        description="Reason; printed by every lock and recorded in lock and manifest.",
    ),
]
VarValue = bool | int | str | list[str]


class Model(BaseModel):
    """Unknown keys are faults; nothing is converted silently."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        defer_build=True,  # a command needs few of them
        frozen=True,
        alias_generator=lambda name: name.replace("_", "-"),
    )


EACH = "A list var: applies once per element, available to templates as `{{ each }}`."


class Conditional(Model):
    """A list entry that counts only if `when` is true, or once for each element of a list."""

    name: str = Field(description="The entry.")
    when: str = Field(description="Jinja2 expression over the vars, such as `'hip' in backends`.")
    each: str = Field(default="", description=EACH)


Entry = str | Conditional
