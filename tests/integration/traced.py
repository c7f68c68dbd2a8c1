# SPDX-License-Identifier: Apache-2.0
"""The system calls of a command, and what they leave in memory alone when it says that it is done.

Kept is what would be lost by a power cut: bytes written and not synced, names made and not synced.
A name of a place that lasts must never come to bytes that are not on the disk.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

CALLS = (
    "rename", "renameat", "renameat2", "link", "linkat", "symlink", "symlinkat", "mkdir", "mkdirat",
    "open", "openat", "creat", "write", "pwrite64", "writev", "pwritev", "copy_file_range",
    "ftruncate", "fsync", "fdatasync", "syncfs", "sync", "rmdir",
)  # fmt: skip
MARK = "/end-of-step/"  # a rmdir(2) of MARK + NAME, which fails, ends a step
LINE = re.compile(r"(?P<pid>\d+) +(?P<call>\w+)\((?P<words>.*)\) += (?P<status>-?\d+)")
UNFINISHED = re.compile(r"(?P<pid>\d+) +(?P<start>.*) <unfinished \.\.\.>")
RESUMED = re.compile(r"(?P<pid>\d+) +<\.\.\. \w+ resumed>(?P<end>.*)")
NAMED = r'(?:(?:AT_FDCWD|\d+)(?:<(?P<folder>[^>]*)>)?, )?"(?P<name>(?:[^"\\]|\\.)*)"'
WORD = re.compile(rf"{NAMED}|\b\d+<(?P<file>/[^>]*)>")


@dataclass(frozen=True)
class Call:
    """A system call that has ended: `places` are its paths, absolute, and those of its files."""

    name: str
    words: str
    status: int
    places: tuple[str, ...]


def command(log: Path, argv: Iterable[str]) -> list[str]:
    """The words that run `argv` and write its calls, and those of its children, into `log`."""
    return ["strace", "-f", "-y", "-s", "0", "--seccomp-bpf", "-o", os.fspath(log),
            f"--trace={','.join(CALLS)}", "--", *argv]  # fmt: skip


def read_calls(text: str) -> Iterator[Call]:
    """The calls of a trace in the order in which they ended."""
    begun: dict[str, str] = {}
    for raw in text.splitlines():
        line = raw
        if match := UNFINISHED.fullmatch(line):
            begun[match["pid"]] = match["start"]
            continue
        if match := RESUMED.fullmatch(line):
            line = f"{match['pid']} {begun.pop(match['pid'], '')}{match['end']}"
        if match := LINE.match(line):
            words = match["words"]
            yield Call(match["call"], words, int(match["status"]), tuple(places_of(words)))


def places_of(words: str) -> Iterator[str]:
    """The absolute paths among the words of a call: names, below their folder, and open files."""
    for match in WORD.finditer(words):
        if match["name"]:
            yield os.fspath(Path(match["folder"] or "/", match["name"]))
        elif match["file"]:
            yield match["file"]


@dataclass
class Disk:
    """What is in memory alone, below `top`; `passing` are folders whose content does not last."""

    top: str
    passing: tuple[str, ...]
    bytes: set[str] = field(default_factory=set)
    names: dict[str, set[str]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    def lasts(self, place: str) -> bool:
        """Whether a power cut matters to this place."""
        return place.startswith(f"{self.top}/") and not place.startswith(self.passing)

    def take(self, call: Call) -> None:
        """Follow a call."""
        if call.name in ("fsync", "fdatasync"):
            self.bytes.discard(call.places[0])
            self.names.pop(call.places[0], None)
        elif call.name in ("syncfs", "sync"):
            self.bytes.clear()
            self.names.clear()
        elif call.name in ("write", "pwrite64", "writev", "pwritev", "ftruncate"):
            self.bytes.update(call.places[:1])
        elif call.name == "copy_file_range":
            self.bytes.update(call.places[-1:])
        elif call.name in ("open", "openat", "creat"):
            if "O_TRUNC" in call.words or "O_CREAT" in call.words or call.name == "creat":
                self.bytes.update(call.places[-1:])
        elif call.name.startswith("mkdir") or call.name.startswith("symlink"):
            self.add_name(call.places[-1])
        else:
            self.give_name(call)

    def give_name(self, call: Call) -> None:
        """A rename or a link: what gets a name that lasts must be on the disk."""
        source, place = call.places[0], call.places[-1]
        below = sorted(path for path in self.bytes if path == source or is_below(path, source))
        if self.lasts(place) and below:
            self.faults.append(f"{call.name} to {place}: {below[0]} is not synced")
        if call.name.startswith("rename"):
            self.bytes = {moved(path, source, place) for path in self.bytes}
            self.names = {moved(path, source, place): all_ for path, all_ in self.names.items()}
            if "RENAME_EXCHANGE" in call.words:
                self.add_name(source)
        self.add_name(place)

    def add_name(self, place: str) -> None:
        """A name was made."""
        if self.lasts(place):
            folder, _, name = place.rpartition("/")
            self.names.setdefault(folder, set()).add(name)

    def end(self, step: str) -> None:
        """A step says that it is done."""
        for folder, names in sorted(self.names.items()):
            if self.lasts(f"{folder}/"):
                self.faults.append(f"{step}: {sorted(names)[0]} in {folder} is not synced")
        self.names.clear()


def is_below(path: str, folder: str) -> bool:
    """Whether a path is inside of a folder."""
    return path.startswith(f"{folder}/")


def moved(path: str, source: str, place: str) -> str:
    """A path after a rename."""
    if path == source or is_below(path, source):
        return place + path.removeprefix(source)
    return path


def find_unsynced(text: str, top: Path, passing: Iterable[Path]) -> list[str]:
    """What a power cut during or after these calls would have lost, or left without its bytes."""
    disk = Disk(os.fspath(top), tuple(f"{path}/" for path in passing))
    for call in read_calls(text):
        if call.name == "rmdir":
            if call.places[0].startswith(MARK):
                disk.end(call.places[0].removeprefix(MARK))
        elif call.status >= 0 and (call.places or call.name == "sync"):
            disk.take(call)
    return disk.faults
