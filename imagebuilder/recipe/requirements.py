# SPDX-License-Identifier: Apache-2.0
"""Hash-locked requirements files, as `pip-compile --generate-hashes` writes them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.markers import Marker
from packaging.requirements import InvalidRequirement
from packaging.requirements import Requirement as Parsed
from packaging.utils import canonicalize_name

from imagebuilder.errors import Fault, InputError
from imagebuilder.files import read_plain
from imagebuilder.recipe.rules import INDEX

HASH = re.compile(r"--hash[= ]sha256:([0-9a-f]{64})")
ANY_HASH = re.compile(r"--hash[= ]\S+")
# Options that say where wheels are.
PLACES = ("-i", "-f", "--index-url", "--extra-index-url", "--find-links", "--trusted-host")
HINT = "make it with: uv pip compile --generate-hashes, or pip-compile --generate-hashes"
# Requirements without a hash that are reported one by one: a whole file of them is one mistake.
MOST_BARE = 3
MOST_LIST = 16 << 20  # bytes


class BareError(ValueError):
    """A requirement without a hash."""


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
        return " ".join([self.pinned, *(f"--hash=sha256:{each}" for each in self.hashes)]) + "\n"


@dataclass(frozen=True)
class Requirements:
    """A requirements file: options for finding wheels, and the packages for one Python."""

    options: tuple[str, ...]
    entries: tuple[Requirement, ...]


def load_requirements(path: Path, markers: Mapping[str, str]) -> Requirements:
    """The entries of a file whose environment markers are true.

    Raises InputError with every line that is not exact (`==`), not hashed, or not understood.
    """
    if faults := list(requirement_faults(path, str(path))):
        raise InputError.of(faults)
    lines = [line for _, line in logical_lines(read_plain(path, MOST_LIST).decode())]
    options = tuple(line for line in lines if INDEX.pattern.fullmatch(line))
    parsed = (parse_line(line) for line in lines if not INDEX.pattern.fullmatch(line))
    entries = tuple(
        entry for entry, marker in parsed if marker is None or marker.evaluate(dict(markers))
    )
    return Requirements(options, entries)


def requirement_faults(path: Path, shown: str) -> Iterator[Fault]:
    """A fault for each line that does not name exact wheels."""
    try:
        lines = list(logical_lines(read_plain(path, MOST_LIST).decode()))
    except UnicodeDecodeError:
        yield Fault(shown, "is not UTF-8 text")
        return
    except OSError as error:
        yield Fault(shown, f"cannot be read: {error.strerror}")
        return
    packages = [(number, line) for number, line in lines if not INDEX.pattern.fullmatch(line)]
    if not packages:
        yield Fault(shown, "names no package")
    bare: list[tuple[int, str]] = []
    for number, line in packages:
        try:
            parse_line(line)
        except BareError as error:
            bare.append((number, str(error)))
        except ValueError as error:
            yield Fault(f"{shown}:{number}", str(error), HINT)
    for number, what in bare[:MOST_BARE]:
        yield Fault(f"{shown}:{number}", what, HINT)
    if rest := bare[MOST_BARE:]:
        yield Fault(f"{shown}:{rest[0][0]}", f"{len(rest)} more have no --hash=sha256:", HINT)


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


def parse_line(line: str) -> tuple[Requirement, Marker | None]:
    """One requirement with its environment marker.  Raises ValueError with what is wrong."""
    if line.startswith("-"):
        name = re.split(r"[=\s]", line, maxsplit=1)[0]
        if name in PLACES:
            raise ValueError(f"{name} needs one address without quotes, and nothing else beside it")
        raise ValueError(f"the option {name} is not allowed in a locked environment")
    hashes = HASH.findall(line)
    try:
        parsed = Parsed(ANY_HASH.sub("", line).strip())
    except InvalidRequirement as error:
        raise ValueError(f"not a requirement: {str(error).splitlines()[0]}") from error
    exact = [each for each in parsed.specifier if each.operator in ("==", "===")]
    if parsed.url or len(parsed.specifier) != 1 or not exact or exact[0].version.endswith(".*"):
        raise ValueError(f"{parsed.name} is not at one exact version (==)")
    if not hashes:
        raise BareError(f"{parsed.name} has no --hash=sha256:")
    found = Requirement(canonicalize_name(parsed.name), exact[0].version, tuple(hashes))
    return found, parsed.marker
