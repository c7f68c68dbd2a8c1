# SPDX-License-Identifier: Apache-2.0
"""Remove device code for other targets from fat binaries, and files named after such targets."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.elf import Elf, read_elf
from imagebuilder.limited import map_file
from imagebuilder.offload import TARGET
from imagebuilder.root import Root
from imagebuilder.slim.bundle import serves
from imagebuilder.slim.compact import plan_layout, write_compact
from imagebuilder.slim.compare import differences
from imagebuilder.slim.fatbin import Fatbin, LeaveAloneError, read_fatbin
from imagebuilder.slim.types import (
    Kept,
    Kind,
    SlimChange,
    SlimError,
    SlimOrder,
    Told,
    place_of,
    remove,
)


@dataclass(frozen=True)
class Carrier:
    """A file with device code: its targets, and whether its name contains them."""

    name: str
    targets: frozenset[str]
    named: bool


def slim_code(root: Root, order: SlimOrder) -> Iterator[Told]:
    """Slim the files of the globs.  Raises SlimError before any change, for a glob that matches no
    file and for a target without code.
    """
    wanted = [target for target in order.code if target.startswith("gfx")]
    if not wanted:
        return
    carriers: list[Carrier] = []
    unknown = 0
    for name in find_files(root, order.code_in):
        try:
            carriers.extend(find_carrier(root, name))
        except LeaveAloneError as error:
            unknown += 1
            yield Kept(name, str(error))
    missing = [target for target in wanted if not has_code(carriers, target)]
    if missing and not unknown:
        present = sorted({target for each in carriers for target in each.targets})
        raise SlimError(
            f"the files of `slim: code-in:` have no code for {missing[0]}, "
            f"only for {', '.join(present) or 'no target at all'}",
            "their software cannot run on that target",
        )
    # A file of unknown format may have code for it; then nothing is removed.
    for carrier in carriers:
        if missing:
            yield Kept(carrier.name, f"no code for {missing[0]} was found in these files")
        else:
            yield from slim_carrier(root, carrier, wanted)


def has_code(carriers: Sequence[Carrier], target: str) -> bool:
    return any(serves(one, [target]) for carrier in carriers for one in carrier.targets)


def find_files(root: Root, globs: Sequence[str]) -> list[str]:
    """The files that the globs match, symlinks followed, each once."""
    files: dict[str, None] = {}
    for glob in globs:
        found = [
            real for name in root.glob(glob) if root.is_file(name) and (real := root.resolve(name))
        ]
        if not found:
            raise SlimError(
                f"nothing matches {glob}",
                "remove it from `slim: code-in:` of its overlay, or correct it: a package may have "
                "moved its files",
            )
        files |= dict.fromkeys(found)
    return list(files)


def find_carrier(root: Root, name: str) -> Iterator[Carrier]:
    """The targets of a file with code: those in its name, or else those of its fat binary.

    The last part of a path that has a target counts.  Raises LeaveAloneError.
    """
    for part in reversed(name.split("/")):
        if targets := TARGET.findall(part):
            yield Carrier(name, frozenset(targets), named=True)
            return
    fatbin = read_checked(find_library(place_of(root, name)))
    if fatbin is not None:
        yield Carrier(name, targets_of(fatbin), named=False)


def slim_carrier(root: Root, carrier: Carrier, wanted: Sequence[str]) -> Iterator[Told]:
    """Remove the file, or its code for other targets."""
    needed = {target for target in carrier.targets if serves(target, wanted)}
    if needed == carrier.targets:
        return
    if not needed and not carrier.named:
        yield Kept(carrier.name, f"all of its code is for {', '.join(sorted(carrier.targets))}")
    elif not carrier.named:
        yield from slim_library(root, carrier.name, wanted, ", ".join(sorted(needed)))
    elif not needed:
        yield remove(root, carrier.name, Kind.CODE)


def slim_library(root: Root, name: str, wanted: Sequence[str], stays: str) -> Iterator[Told]:
    """Replace a library with a slimmed one.  Raises SlimError if anything else would change."""
    place = place_of(root, name)
    made = place.with_name(f".{place.name}.slim")
    before = place.stat().st_size
    old = find_library(place)
    was = read_checked(old)
    layout = old and was and plan_layout(old, was, wanted)
    if not old or not was or not layout:
        yield Kept(name, "it would not get smaller")
        return
    try:
        with made.open("wb") as out:
            write_compact(old, was, layout, out)
        check_same(name, old, find_library(made), was, wanted)
    except BaseException:
        made.unlink(missing_ok=True)
        raise
    take_place(made, place)
    yield SlimChange(Kind.CODE, name, before, place.stat().st_size, stays)


def check_same(name: str, old: Elf, new: Elf | None, was: Fatbin, wanted: Sequence[str]) -> None:
    """Raise SlimError unless `new` equals `old` except for the removed code."""
    now = read_checked(new)
    if new is None or now is None:
        raise SlimError(f"{name} would no longer be a library", REPORT)
    for what in differences(old, new, (was, now), wanted):
        raise SlimError(f"{name} would be damaged: {what}", REPORT)


REPORT = (
    "this is a bug in imagebuilder; exclude the file from `slim: code-in:` to keep it unchanged"
)


def take_place(made: Path, place: Path) -> None:
    """Give `made` the owner, mode, attributes and name of `place`."""
    info = place.stat()
    os.chown(made, info.st_uid, info.st_gid)
    shutil.copystat(place, made)
    made.replace(place)


def read_checked(elf: Elf | None) -> Fatbin | None:
    """The fat binary of a file; None if it is not a library or has none."""
    return None if elf is None else read_fatbin(elf)


def targets_of(fatbin: Fatbin) -> frozenset[str]:
    return frozenset(e.target for b in fatbin.bundles for e in b.entries if e.target)


def find_library(place: Path) -> Elf | None:
    """The 64-bit ELF file with sections at `place`, mapped; None for any other file.

    Raises LeaveAloneError if it is damaged.
    """
    try:
        elf = read_elf(map_file(place))
    except ValueError as error:
        raise LeaveAloneError(str(error)) from error
    if elf is None or elf.header.bits != 64 or not elf.sections:
        return None
    if any(section.end > len(elf.data) for section in elf.sections):
        raise LeaveAloneError("an ELF file that ends early")
    return elf
