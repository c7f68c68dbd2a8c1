# SPDX-License-Identifier: Apache-2.0
"""TREE/seen/MAC.json: which release the owner of a NIC booted last, and when it was seen.

A record is valid, missing or damaged.  The machine of a damaged one may run any release, so it must
never be treated as missing.  Power cuts, full disks and people leave all kinds of files.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Annotated, TypeVar

from pydantic import AfterValidator

from imagebuilder.decode import JsonFile, ZonedTime, parse_json
from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.files import write_file
from imagebuilder.tree import MAC, NAME, ReleaseName, Tree
from imagebuilder.untrusted import fit

T = TypeVar("T")
# PCI ids of cards that may compute, such as `1002:7480,8086:56a0`, or a word for none.
NO_CARDS = "none"
PCI = re.compile(rf"[0-9a-f]{{4}}:[0-9a-f]{{4}}(?:,[0-9a-f]{{4}}:[0-9a-f]{{4}})*|{NO_CARDS}")
MOST_BYTES = 4096  # of one record
# What a node may measure in its health check (`card-celsius:67,memory-used:...`), and impossible
# values: degrees, bytes, percent of the usual value in this boot.
LIMITS = {
    "processor-celsius": 1000,
    "card-celsius": 1000,
    "memory-used": 10**13,
    "memory-size": 10**13,
    "card-memory-used": 10**13,
    "card-memory-size": 10**13,
    "speed": 1000,
}
READING = r"[a-z-]{1,24}:[0-9]{1,15}"
READINGS = rf"{READING}(?:,{READING}){{0,15}}"


def matching(pattern: str) -> AfterValidator:
    """Accepts text that matches as a whole, truncated to the limit of a record."""

    def check(text: str) -> str:
        if not re.fullmatch(pattern, text):
            raise ValueError("is not valid")
        return fit(text)

    return AfterValidator(check)


AnyText = Annotated[str, AfterValidator(fit)]


@dataclass(frozen=True)
class HealthReport:
    """The last health report of a node in this boot (health_report.py).

    `at` is when the web server got it, by its own clock.  `uptime` is seconds since the boot, which
    distinguishes reports from their copies.
    """

    verdict: Annotated[str, matching(r"[a-z ]+")]
    words: AnyText
    boot_id: Annotated[str, matching(r"[0-9a-f-]*")]
    uptime: float
    at: ZonedTime
    readings: Annotated[str, matching(READINGS)] | None = None


@dataclass(frozen=True)
class Seen:
    """What a NIC's owner booted last; times are ISO 8601 in UTC.

    `first` is its first sign with this release, `last` the last one.  `node` is its name in
    nodes.yaml, `root` its kind of root; both may be empty.  `given` is the ID of its configuration
    (nodes/config.py), empty with an old script.  `pci` are the PCI ids of its cards, empty if its
    initrd did not report them.
    """

    mac: Annotated[str, matching(MAC.pattern)]
    node: Annotated[str, matching(r"[A-Za-z0-9.-]*")]
    profile: Annotated[str, matching(NAME)]
    version: Annotated[str, matching(NAME)]
    address: Annotated[str, matching(r"[0-9A-Fa-f.:]*")]
    stage: AnyText
    root: AnyText
    first: ZonedTime
    last: ZonedTime
    given: Annotated[str, matching(r"[0-9a-f]*")] = ""
    pci: Annotated[str, matching(rf"(?:{PCI.pattern})?")] = ""
    health: HealthReport | None = None

    @property
    def last_sign(self) -> str:
        """The time of its last report, of a boot or of its health."""
        return max(self.last, self.health.at) if self.health else self.last

    @property
    def release(self) -> ReleaseName:
        return ReleaseName(self.profile, self.version)

    @property
    def name(self) -> str:
        """For people: the node's name, or its MAC."""
        return self.node or self.mac


SEEN = JsonFile(Seen, 1, "a boot of its node replaces it", unnumbered=True)


class DamagedRecordError(ValueError):
    """An invalid record in TREE/seen; the message says why."""


def parse_seen(value: Json) -> Seen:
    """The record in a decoded value.  Raises DamagedRecordError."""
    try:
        return SEEN.decode(value, "")
    except InputError as error:
        raise DamagedRecordError(error.faults[0].what) from error


def read_seen(path: Path) -> Seen | None:
    """One record; None if it does not exist.  Raises DamagedRecordError."""
    content = read_bounded(path, MOST_BYTES)
    return None if content is None else parse_content(content)


@lru_cache(maxsize=4096)  # most files are unchanged when they are read again
def parse_content(content: bytes) -> Seen:
    """The record in a file.  Raises DamagedRecordError."""
    return parse_seen(parse_record(content))


def find_seen(tree: Tree, macs: Iterable[str]) -> list[Seen]:
    """The valid records of these NICs, the newest first."""
    found: list[Seen] = []
    for mac in macs:
        with contextlib.suppress(DamagedRecordError):
            if seen := read_seen(tree.seen(mac)):
                found.append(seen)
    return newest_first(found)


def newest_first(found: Iterable[Seen]) -> list[Seen]:
    """These records by their last signs.

    One from the future, by a clock that was set back, is older than anything.
    """
    now = datetime.now(UTC).isoformat()
    return sorted(found, key=lambda seen: (seen.last <= now, seen.last), reverse=True)


def find_damaged(tree: Tree, macs: Iterable[str]) -> list[Path]:
    """The damaged records of these NICs."""
    found: list[Path] = []
    for mac in macs:
        try:
            read_seen(tree.seen(mac))
        except DamagedRecordError:
            found.append(tree.seen(mac))
    return found


def write_seen(tree: Tree, seen: Seen) -> None:
    record = json.dumps(SEEN.encode(seen, nulls=False))
    write_file(tree.seen(seen.mac), record.encode() + b"\n")


def merge(before: Seen | None, seen: Seen) -> Seen:
    """The record after a report: the first sign counts from the last change of release.

    A time from the future, by a clock that was set back, does not stay.
    """
    if before is None or before.release != seen.release:
        return seen
    pci = seen.pci or before.pci  # one report of a boot has it
    if before.last > datetime.now(UTC).isoformat():
        return replace(seen, first=min(before.first, seen.first), pci=pci)
    return replace(seen, first=before.first, last=max(before.last, seen.last), pci=pci)


def parse_record(content: bytes) -> Json:
    """Parse JSON.  Raises DamagedRecordError."""
    try:
        return parse_json(content, "")
    except InputError as error:
        raise DamagedRecordError("is not JSON") from error


def find_file(path: Path, kind: JsonFile[T], most: int) -> T | None:
    """The content of a file of at most `most` bytes; None if it is missing or damaged."""
    with contextlib.suppress(DamagedRecordError, InputError):
        if content := read_bounded(path, most):
            return kind.decode(parse_json(content, ""), os.fspath(path))
    return None


def read_bounded(path: Path, most: int) -> bytes | None:
    """The content of a plain file of at most `most` bytes; None if it does not exist.

    Raises DamagedRecordError for everything else; never waits for the writer of a pipe.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedRecordError(f"cannot be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DamagedRecordError("is not a plain file")
        content = os.read(descriptor, most + 1)
    except OSError as error:
        raise DamagedRecordError(f"cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise DamagedRecordError("is too large")
    return content


def parse_readings(text: str) -> Mapping[str, int]:
    """The values by name; text that matches READINGS always fits into a record."""
    said = (word.partition(":") for word in text.split(",") if word)
    found = {name: int(number) for name, _, number in said}
    return {name: found[name] for name in LIMITS if name in found and found[name] < LIMITS[name]}


def render_readings(values: Mapping[str, int]) -> str:
    return ",".join(f"{name}:{value}" for name, value in values.items())
