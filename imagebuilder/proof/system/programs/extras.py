# SPDX-License-Identifier: Apache-2.0
"""Variables that make a Python program use a package which its environment does not have.

Such packages are optional: no distribution requires them, and what needs one fails when it is used.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.environment import environment_of
from imagebuilder.proof.reading.interpreters import PYTHON, first_line, runs
from imagebuilder.proof.reading.python import Distribution, installed, site_packages
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

ON = r"(?i)1|on|yes|true"


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


def prove_extras(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings: a program may read only some of its variables."""
    for unit in startup.starting():
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
    for words in (line for lines in unit.commands.values() for line in lines if line):
        started = find_program(subject.root, words[0]) or words[0]
        first = first_line(subject.root.map(started))
        interpreter = first[0] if first and runs(PYTHON, first) else started
        for program in (started, interpreter):
            folder = posixpath.dirname(posixpath.dirname(program))
            if folder.count("/") > 1 or subject.root.is_file(f"{folder}/pyvenv.cfg"):
                found[folder] = None
    yield from found
