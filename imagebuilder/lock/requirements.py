# SPDX-License-Identifier: Apache-2.0
"""Hash-locked requirements files, as `pip-compile --generate-hashes` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from packaging.utils import canonicalize_name

from imagebuilder.errors import Fault, InputError

HASH = re.compile(r"--hash[= ]sha256:([0-9a-f]{64})")
ANY_HASH = re.compile(r"--hash[= ]\S+")
# Options that say where wheels are; others would change what is chosen.
WHERE = re.compile(r"(-i|-f|--index-url|--extra-index-url|--find-links|--trusted-host)[= ]")


@dataclass(frozen=True)
class Requirement:
    """One package at one version, and the sha256 of each file it may be."""

    name: str
    version: str
    hashes: tuple[str, ...]

    @property
    def pinned(self) -> str:
        return f"{self.name}=={self.version}"

    @property
    def hashed(self) -> str:
        """The line with all its hashes."""
        return " ".join([self.pinned, *(f"--hash=sha256:{each}" for each in self.hashes)]) + "\n"


@dataclass(frozen=True)
class Requirements:
    """A requirements file: where to look, and what to take for one Python."""

    options: tuple[str, ...]
    entries: tuple[Requirement, ...]


def load_requirements(path: Path, markers: Mapping[str, str]) -> Requirements:
    """The entries of a file whose environment markers are true.

    Raises InputError with every line that is not exact (`==`), not hashed, or not understood.
    """
    options: list[str] = []
    entries: list[Requirement] = []
    faults: list[Fault] = []
    for number, line in logical_lines(read(path)):
        where = f"{path}:{number}"
        if WHERE.match(line):
            options.append(line)
            continue
        try:
            if entry := parse_line(line, markers):
                entries.append(entry)
        except ValueError as error:
            hint = "make the file with: pip-compile --generate-hashes"
            faults.append(Fault(where, str(error), hint))
    if faults:
        raise InputError.of(faults)
    return Requirements(tuple(options), tuple(entries))


def read(path: Path) -> str:
    """The text of a requirements file."""
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=str(path)) from error


def logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Lines with their continuations joined and comments removed, each with its first number."""
    joined, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        start = start or number
        bare = re.sub(r"(^|\s)#.*$", "", line).strip()
        if bare.endswith("\\"):
            joined += f"{bare[:-1]} "
            continue
        if whole := (joined + bare).strip():
            yield start, whole
        joined, start = "", 0
    if joined.strip():
        yield start, joined.strip()


def parse_line(line: str, markers: Mapping[str, str]) -> Requirement | None:
    """One requirement, None where its marker is false.  Raises ValueError with what is wrong."""
    if line.startswith("-"):
        raise ValueError(f"option {line.split()[0]} is not for a locked environment")
    hashes = HASH.findall(line)
    try:
        parsed = Parsed(ANY_HASH.sub("", line).strip())
    except InvalidRequirement as error:
        raise ValueError(f"not a requirement: {str(error).splitlines()[0]}") from error
    exact = [each for each in parsed.specifier if each.operator in ("==", "===")]
    if parsed.url or len(parsed.specifier) != 1 or not exact or exact[0].version.endswith(".*"):
        raise ValueError(f"{parsed.name} is not at one exact version (==)")
    if not hashes:
        raise ValueError(f"{parsed.name} has no --hash=sha256:")
    if parsed.marker and not parsed.marker.evaluate(dict(markers)):
        return None
    return Requirement(canonicalize_name(parsed.name), exact[0].version, tuple(hashes))
