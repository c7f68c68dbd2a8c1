# SPDX-License-Identifier: Apache-2.0
"""Services whose Python removes docstrings, which their packages format when they are imported.

`-OO` and PYTHONOPTIMIZE=2 do (Python, "Command line and environment").  transformers then ends with
an AttributeError on None (huggingface/transformers #36045, #38323, #42279), and PyTorch's own
decorators did (pytorch/pytorch #76034).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.environment import Environment, environment_of
from imagebuilder.proof.reading.interpreters import INTERPRETER
from imagebuilder.proof.reading.numbers import whole
from imagebuilder.proof.reading.site import starting_units
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.recipe.engines import find_engine

VARIABLE, ALL = "PYTHONOPTIMIZE", 2
PACKAGES = ("transformers", "torch")
# Options of Python without a value, alone or together (python(1)); -E and -I ignore variables.
FLAGS = re.compile(r"-[bBdEhiIOPqRsSuvVx]+")


def prove_docstrings(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings: a version of the packages may work without them."""
    for unit in starting_units(subject, startup):
        environment = environment_of(subject, unit)
        by = removed_by(unit, environment)
        package = find_package(subject, unit) if by else ""
        if by and package:
            what = f"{by.said} removes docstrings, and {unit.name} does not start: {package} "
            what += "works with them when it is imported"
            yield SAY.warning(what, by, hint="remove it: Python starts no faster with it")


def removed_by(unit: LoadedUnit, environment: Environment) -> Evidence | None:
    """What makes a service's Python remove docstrings."""
    place = unit.paths[-1] if unit.paths else "/"
    flags = ""
    for words in unit.commands.get("ExecStart", ()):
        flags = flags_of(words)
        if flags.count("O") >= ALL:
            return Evidence(place, said=" ".join(words[:2]))
    variable = environment.get(VARIABLE)
    if variable and whole(variable.value.strip()) >= ALL and not {"E", "I"} & set(flags):
        return variable.evidence(VARIABLE)
    return None


def flags_of(words: Sequence[str]) -> str:
    """The letters of Python's own options in a command line."""
    if not words or not INTERPRETER.fullmatch(posixpath.basename(words[0])):
        return ""
    flags = ""
    for word in words[1:]:
        if not FLAGS.fullmatch(word):
            break
        flags += word[1:]
    return flags


def find_package(subject: Subject, unit: LoadedUnit) -> str:
    """The package that a service imports and that needs docstrings, "" if none is known."""
    for engine in subject.expectations.engines:
        platform = find_engine(subject.engines, engine.engine).model.platform
        if engine.unit == unit.name and platform:
            return platform.module
    for words in unit.commands.get("ExecStart", ()):
        folder = posixpath.dirname(posixpath.dirname(words[0])) if words else ""
        for package in PACKAGES if folder.count("/") > 1 else ():
            if subject.root.glob(f"{folder}/lib/python3*/site-packages/{package}/__init__.py"):
                return package
    return ""
