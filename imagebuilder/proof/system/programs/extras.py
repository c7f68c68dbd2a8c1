# SPDX-License-Identifier: Apache-2.0
"""Variables and options with which a Python program does not work: packages that its environment
does not have, and docstrings that are removed.

Optional packages are required by no distribution, and what needs one fails when it is used.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.environment import Environment, environment_of
from imagebuilder.proof.reading.interpreters import INTERPRETER, PYTHON, first_line, runs
from imagebuilder.proof.reading.numbers import whole
from imagebuilder.proof.reading.python import Distribution, installed, package_folder, site_packages
from imagebuilder.proof.reading.site import starting_units
from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.recipe.engines import find_engine

ON = r"(?i)1|on|yes|true"
VARIABLE, ALL = "PYTHONOPTIMIZE", 2
PACKAGES = ("transformers", "torch")
# Options of Python without a value, alone or together (python(1)); -E and -I ignore variables.
FLAGS = re.compile(r"-[bBdEhiIOPqRsSuvVx]+")


@dataclass(frozen=True)
class ExtraPackage:
    """A variable with whose value (a regular expression) versions `versions` of `reader` use the
    distribution `needs`; `fails` says what happens without it.
    """

    variable: str
    value: str
    reader: str
    versions: str
    needs: str
    fails: str
    source: str


EXTRAS = (
    ExtraPackage("HF_HUB_ENABLE_HF_TRANSFER", ON, "huggingface-hub", "<1", "hf-transfer",
                 "it refuses downloads over HTTP",
                 "http_get() of src/huggingface_hub/file_download.py, version 0.36"),
    ExtraPackage("VLLM_USE_MODELSCOPE", ON, "vllm", "", "modelscope", "it loads no model",
                 "vllm/transformers_utils/__init__.py"),
    ExtraPackage("SGLANG_USE_MODELSCOPE", ON, "sglang", "", "modelscope", "it loads no model",
                 "sglang/srt/utils/common.py"),
    ExtraPackage("ACCELERATE_USE_DEEPSPEED", ON, "accelerate", "", "deepspeed",
                 "it does not start", "accelerate/accelerator.py"),
    *(ExtraPackage("KERAS_BACKEND", name, "keras", ">=3", name, "it does not import",
                   "keras.io, Configuring your backend")
      for name in ("jax", "torch")),
)  # fmt: skip


def prove_extras(subject: Subject) -> Iterator[Finding]:
    """Warnings of variables that make a program use a package which its environment does not have:
    it may read only some of its variables.
    """
    for unit in subject.startup.starting():
        environment = environment_of(subject, unit)
        rows = [row for row in EXTRAS if row.variable in environment]
        for path in environments_of(subject, unit) if rows else ():
            site = site_packages(subject.root, path)
            there = installed(subject.root, site) if site else {}
            for row in rows:
                variable = environment[row.variable]
                is_set = re.fullmatch(row.value, variable.value.strip())
                if is_set and is_lacking(row, there):
                    reader = there[row.reader]
                    what = f"{unit.name} has {row.variable}={variable.value}, but {path} has no "
                    what += f"{row.needs}: {reader.name} {reader.version} needs it for that, and "
                    what += row.fails
                    where = (variable.evidence(row.variable), Evidence(reader.path))
                    hint = f"remove the variable, or add {row.needs} to the environment"
                    yield SAY.warning(what, *where, hint=hint)


def is_lacking(row: ExtraPackage, there: Mapping[str, Distribution]) -> bool:
    """Whether a version that uses the package is there without it."""
    reader = there.get(row.reader)
    if reader is None or row.needs in there:
        return False
    try:
        return Version(reader.version) in SpecifierSet(row.versions, prereleases=True)
    except InvalidVersion:
        return False


def environments_of(subject: Subject, unit: LoadedUnit) -> Iterator[str]:
    """The Python environments of a unit's programs, by their folder or their interpreter's."""
    found: dict[str, None] = {}
    for words in unit.lines:
        started = find_program(subject.root, words[0]) or words[0]
        first = first_line(subject.root.map(started))
        interpreter = first[0] if first and runs(PYTHON, first) else started
        for program in (started, interpreter):
            folder = posixpath.dirname(posixpath.dirname(program))
            if folder.count("/") > 1 or subject.root.is_file(f"{folder}/pyvenv.cfg"):
                found[folder] = None
    yield from found


def prove_docstrings(subject: Subject) -> Iterator[Finding]:
    """Warnings of services whose Python removes docstrings, which their packages format when they
    are imported: a version of the packages may work without them.

    `-OO` and PYTHONOPTIMIZE=2 do (Python, "Command line and environment").  transformers then ends
    with an AttributeError on None (huggingface/transformers #36045, #38323, #42279), and PyTorch's
    own decorators did (pytorch/pytorch #76034).
    """
    for unit in starting_units(subject):
        environment = environment_of(subject, unit)
        by = removed_by(unit, environment)
        package = find_package(subject, unit) if by else ""
        if by and package:
            what = f"{by.said} removes docstrings, and {unit.name} does not start: {package} "
            what += "works with them when it is imported"
            yield SAY.warning(what, by, hint="remove it: Python starts no faster with it")


def removed_by(unit: LoadedUnit, environment: Environment) -> Evidence | None:
    """What makes a service's Python remove docstrings."""
    flags = ""
    for words in unit.commands.get("ExecStart", ()):
        flags = flags_of(words)
        if flags.count("O") >= ALL:
            return Evidence(unit.place, said=" ".join(words[:2]))
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
    commands = unit.commands.get("ExecStart", ())
    found = (each for words in commands for each in PACKAGES
             if package_folder(subject.root, words, each))  # fmt: skip
    return next(found, "")
