# SPDX-License-Identifier: Apache-2.0
"""`engine:` of an overlay: what the proof and the boot test know about an inference engine.

It describes the engine and is part of no image: no layer reads it.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from imagebuilder.recipe import rules
from imagebuilder.recipe.model_words import Model, Name, Regex, RootPath


def check_backend(text: str) -> str:
    """A text in which only {backend} stands in braces."""
    if others := set(re.findall(r"\{[^}]*\}?", text)) - {"{backend}"}:
        raise PydanticCustomError(
            "backend",
            "has {found}, and only {known} can be there",
            {"found": min(others), "known": "{backend}"},
        )
    return text


Backend = Annotated[str, AfterValidator(check_backend)]


class PluginsModel(Model):
    """A file for each backend, which the engine loads when it starts, and skips if it cannot."""

    files: list[Backend] = Field(
        min_length=1, description="Globs of its path; `{backend}` stands for the backend."
    )
    package: Backend = Field(
        default="", description="The package that installs it, for hints; `{backend}` as above."
    )


class DevicesModel(Model):
    """A command that lists devices, each in an indented line `NAME0: DESCRIPTION`."""

    command: list[str] = Field(
        min_length=1, description="The command; it must list nothing if there is no device."
    )
    processor: list[str] = Field(
        default=[], description="Prefixes of names that mean the processor, such as `CPU`."
    )


class PlatformModel(Model):
    """An engine in a Python environment that chooses its device when it is imported."""

    module: str = Field(
        pattern=rules.IMPORT.whole, description="The module; the program runs only if it exists."
    )
    program: str = Field(
        description="Program in the overlay for the Python of the environment. It prints JSON: "
        "`platform` (its name) and `device` (`cpu`, or empty if it found none), or `error`."
    )


class TinyModelModel(Model):
    """A small model that the boot test makes."""

    program: str = Field(
        description="Python program in the overlay, run on the builder: it writes the model to the "
        "file named by its argument."
    )
    settings: RootPath = Field(
        description="File in the root with lines NAME=VALUE that says which model is served."
    )
    variable: str = Field(
        pattern=rules.ENV.whole,
        description="The variable in it; its value is a path below /models.",
    )


class EngineBootModel(Model):
    """How the boot test gets an answer from the engine."""

    program: str = Field(
        description="Program in the overlay, run on the node as root together with the files "
        "beside it: the page on engines describes its arguments and output."
    )
    model: TinyModelModel = Field(description="The model that it computes with.")
    together: bool = Field(default=False, description="Whether it can compute across two nodes.")
    memory: int = Field(default=0, ge=0, description="MiB of memory that a machine needs for it.")
    processor: Literal["x86-64-v2", "x86-64-v3", "x86-64-v4"] = Field(
        default="x86-64-v2",
        description="The processor that its code is made for, by the levels of the x86-64 psABI.",
    )
    seconds: float = Field(
        default=60.0, gt=0, description="Seconds it may take to start and answer on a real node."
    )


class OtherValueModel(Model):
    """A value of another setting, with which a value is wrong."""

    variable: str = Field(pattern=rules.ENV.whole, description="Its variable.")
    options: list[str] = Field(default=[], description="Its options.")
    value: Regex = Field(description="Regular expression for the values.")


class SettingModel(Model):
    """A setting of the engine: an option, a variable of its environment, or both."""

    variable: str = Field(
        default="", pattern=rules.ENV.whole, description="The variable; an option overrides it."
    )
    options: list[str] = Field(default=[], description="The options, such as `--device`.")
    processor: Regex = Field(
        default="",
        description="Regular expression for the values with which the engine computes on the "
        "processor.",
    )
    partly: Regex = Field(
        default="",
        description="Regular expression for the values with which part of the work or of the "
        "memory stays on the processor: a warning.",
    )
    beyond: Regex = Field(
        default="",
        description="Regular expression for the values that choose devices, but not the first one: "
        "a warning, because a node may have only one.",
    )
    wrong: Regex = Field(
        default="",
        description="Regular expression for the values that no service should have: a fault.",
    )
    together_with: OtherValueModel | None = Field(
        default=None,
        description="The other setting without whose value a `wrong` value is right.",
    )
    because: str = Field(
        default="no service should have this value",
        description="What happens with a `wrong` value.",
    )
    lent_by: str = Field(
        default="",
        description="For a setting with the addresses of other machines: the unit of the overlay "
        "that lends their devices.",
    )
    means: Literal["", "address", "port", "threads"] = Field(
        default="",
        description="Whether it is the address or the port that the engine listens on, or the "
        "number of threads it computes with; without a number, one for each core.",
    )
    default: str = Field(default="", description="Its value if nothing sets it.")


class WordsModel(Model):
    """Files of the engine in which each of its options and variables is a word."""

    options: list[str] = Field(
        default=[],
        description="Globs of files that name every option, with - or _ and with or without --.",
    )
    variables: list[str] = Field(
        default=[], description="Globs of files that name every variable with the `prefix`."
    )
    prefix: str = Field(
        default="",
        pattern=rules.ENV.whole,
        description="How the names of the engine's own variables begin.",
    )


class EngineModel(Model):
    """An inference engine: where it finds its backends, and how to query it."""

    name: Name = Field(description="Its name, as in `engine` of `proof: engines:`.")
    title: str = Field(default="", description="Display name; `name` by default.")
    option: str = Field(
        default="", description="The var by which a recipe chooses its backends, for hints."
    )
    plugins: PluginsModel | None = Field(default=None, description="Backends that are files.")
    devices: DevicesModel | None = Field(default=None, description="How it lists devices.")
    platform: PlatformModel | None = Field(default=None, description="For Python environments.")
    settings: list[SettingModel] = Field(
        default=[],
        description="Settings that decide what it computes on and where it listens, and those with "
        "values that are wrong.",
    )
    words: WordsModel | None = Field(
        default=None,
        description="Where this version's options and variables are written: others, such as those "
        "of an older version, are findings.",
    )
    arguments: str = Field(
        default="",
        pattern=rules.ENV.whole,
        description="The variable whose words the service adds to its command line.",
    )
    boot: EngineBootModel | None = Field(default=None, description="What the boot test does.")
