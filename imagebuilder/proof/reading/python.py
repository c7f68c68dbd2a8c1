# SPDX-License-Identifier: Apache-2.0
"""A Python environment of an image: its distributions, and what it reports about itself."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.utils import canonicalize_name

from imagebuilder.decode import decode_box, parse_object
from imagebuilder.errors import InputError
from imagebuilder.process import Completed
from imagebuilder.proof.reading.report import MARK
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

PROGRAM = Path(__file__).with_name("report.py")
# torch and vLLM import in 15 s; from a cold disk on a busy builder in more than a minute.
SECONDS = 240
REQUIRES = "Requires-Dist: "


@dataclass(frozen=True)
class Imported:
    """A module: its version, or the error and where it was raised (`path`, `line`)."""

    version: str = ""
    error: str = ""
    path: str = ""
    line: int = 0


@dataclass(frozen=True)
class Torch:
    """What torch is built for: versions of CUDA, HIP and XPU (or ""), targets it has code for."""

    version: str
    cuda: str = ""
    hip: str = ""
    xpu: str = ""
    flags: tuple[str, ...] = ()


@dataclass(frozen=True)
class EnginePlatform:
    """What an engine chooses without a device: its platform and kind of device ("": none)."""

    platform: str = ""
    device: str = ""
    error: str = ""


@dataclass(frozen=True)
class Environment:
    """What an environment reported about itself; `failure` is why it reported nothing.

    `platforms` are by the names of engines.
    """

    python: str = ""
    modules: dict[str, Imported] = field(default_factory=dict)
    torch: Torch | None = None
    platforms: dict[str, EnginePlatform] = field(default_factory=dict)
    failure: str = ""


@dataclass(frozen=True)
class Distribution:
    name: str
    version: str
    path: str
    record: bool
    requires: tuple[str, ...] = ()


def inspect_environment(subject: Subject, path: str) -> Environment:
    """Import what the profile expects of the environment at `path`, and let its engines choose, in
    one process.

    All questions use the same command, so that a sandbox that caches results runs it only once.
    """
    expected = [w for w in subject.expectations.python if w.path == path]
    modules = list(dict.fromkeys(name for works in expected for name in works.imports))
    named = {e.engine for e in subject.expectations.engines if e.path == path}
    engines = {
        name: [kind.model.platform.module, kind.program(kind.model.platform.program).read_text()]
        for name, kind in subject.engines.items()
        if name in named and kind.model.platform
    }
    argv = [f"{path}/bin/python", "-I", "-c", PROGRAM.read_text(), json.dumps(engines), *modules]
    return read_environment(subject.run(argv, seconds=SECONDS))


def read_environment(done: Completed) -> Environment:
    found = done.stdout.rpartition(MARK)[2] if MARK in done.stdout else ""
    if not found:
        lines = (done.stderr or done.stdout).strip().splitlines() or [""]
        failure = f"it ran longer than {SECONDS} s" if done.late else lines[-1]
        return Environment(failure=failure or f"it ended with status {done.status}")
    try:
        said = parse_object(found.partition("\n")[0], "its answer")
        if said.get("torch") == {}:
            del said["torch"]
        return decode_box(Environment, said, "its answer")
    except InputError as error:
        return Environment(failure=f"its answer is invalid: {error.faults[0].what}")


def site_packages(root: Root, path: str) -> str | None:
    """The folder of an environment's distributions: `lib/python3.11/site-packages`, or None.

    Of several that of its interpreter: an environment may have packages of an older Python left.
    """
    found = root.glob(f"{path}/lib/python3*/site-packages")
    name = posixpath.basename(root.resolve(f"{path}/bin/python") or "")
    return next((each for each in found if f"/lib/{name}/" in each), next(iter(found), None))


def package_folder(root: Root, words: Sequence[str], package: str) -> str:
    """The folder of a Python package in the environment of a command's program, "" without it."""
    folder = posixpath.dirname(posixpath.dirname(words[0])) if words else ""
    pattern = f"{folder}/lib/python3*/site-packages/{package}/__init__.py"
    found = root.glob(pattern) if folder.count("/") > 1 else []
    return posixpath.dirname(found[0]) if found else ""


def installed(root: Root, site: str) -> dict[str, Distribution]:
    """The distributions by normalised name."""
    return {canonicalize_name(each.name): each for each in read_distributions(root, site)}


def read_distributions(root: Root, site: str) -> Iterator[Distribution]:
    """Every distribution of a folder; one may be there in several versions."""
    for info in root.glob(f"{site}/*.dist-info"):
        lines = root.text(f"{info}/METADATA").partition("\n\n")[0].splitlines()
        keys = ("Name: ", "Version: ")
        said = dict(line.split(": ", 1) for line in lines if line.startswith(keys))
        requires = [line[len(REQUIRES) :] for line in lines if line.startswith(REQUIRES)]
        # A folder without METADATA still says what it was meant to be.
        stem = re.fullmatch(r".*/(?P<name>[^/]+)-(?P<version>[^-/]+)\.dist-info", info)
        name = said.get("Name", stem["name"] if stem else info)
        version = said.get("Version", stem["version"] if stem else "")
        record = root.is_file(f"{info}/RECORD") and root.is_file(f"{info}/METADATA")
        yield Distribution(name, version, info, record, tuple(requires))
