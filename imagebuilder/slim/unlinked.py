# SPDX-License-Identifier: Apache-2.0
"""Remove shared libraries that nothing in the root links to."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.elf import Elf, needs_of, read_elf
from imagebuilder.limited import map_file
from imagebuilder.root import Root
from imagebuilder.slim.types import Kept, Kind, SlimOrder, Told, Unmatched, place_of, remove

# Names of libraries in the texts of a program, which may pass them to dlopen(3), and in files for
# loaders such as those of Vulkan and OpenCL.  The search starts with the ending: from the front,
# long texts of letters (bitcode, tables) take quadratic time.
ENDING = re.compile(rb"\.so(?:\.[0-9]+)*")
STEM = re.compile(rb"[A-Za-z0-9_+-]{1,128}\Z")
MOST_STEM = 128
TEXTS = (".rodata", ".rodata.str1.1", ".rodata.str1.8", ".data.rel.ro", ".data")
SETTINGS = (".json", ".icd", ".conf")
MOST_SETTINGS = 64 * 1024
MOST_TEXT = 64 * 1024 * 1024  # bytes of a section that is searched; larger ones are tables


@dataclass(frozen=True)
class Library:
    """An ELF file: its names, and the names of libraries that it loads or may load.

    A file with settings of a loader has no names.
    """

    path: str
    names: frozenset[str]
    loads: frozenset[str]


def slim_unlinked(root: Root, order: SlimOrder) -> Iterator[Told]:
    """Remove the libraries of the globs that no other file needs, directly or indirectly.

    A library is needed if a DT_NEEDED names it, or the text of a program or a settings file, which
    may open it by name.
    """
    if not order.unlinked:
        return
    named = {real for glob in order.unlinked for name in root.glob(glob)
             if root.is_file(name) and (real := root.resolve(name))}  # fmt: skip
    for glob in order.unlinked:
        if not root.glob(glob):
            yield Unmatched(glob)
    libraries = list(read_libraries(root))
    links = find_links(root, named)
    needed = {name: one.path for one in libraries if one.path not in named for name in one.loads}
    candidates = [one for one in libraries if one.path in named]
    while found := [one for one in candidates if any(n in needed for n in names_of(one, links))]:
        for one in found:
            user = next(needed[n] for n in sorted(names_of(one, links)) if n in needed)
            yield Kept(one.path, f"{user} needs it")
            needed |= {name: one.path for name in one.loads if name not in needed}
        candidates = [one for one in candidates if one not in found]
    for one in candidates:
        for link in links.get(one.path, ()):
            yield remove(root, link, Kind.UNLINKED)
        yield remove(root, one.path, Kind.UNLINKED)


def names_of(one: Library, links: dict[str, list[str]]) -> frozenset[str]:
    """All names that may load a library: its own, and those of the symlinks to it."""
    return one.names | {posixpath.basename(link) for link in links.get(one.path, ())}


def find_links(root: Root, named: set[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for folder in sorted({posixpath.dirname(path) for path in named}):
        for name in root.names(folder):
            path = f"{folder}/{name}"
            real = root.resolve(path)
            if real in named and real != path and place_of(root, path).is_symlink():
                found.setdefault(str(real), []).append(path)
    return found


def read_libraries(root: Root) -> Iterator[Library]:
    """Every ELF file of the root, and every settings file that may name libraries."""
    for path in root.walk("/"):
        place = place_of(root, path)
        if path.endswith(SETTINGS) and place.stat().st_size <= MOST_SETTINGS:
            yield Library(path, frozenset(), frozenset(library_names(place.read_bytes())))
            continue
        try:
            if elf := read_elf(map_file(place)):
                yield read_library(path, elf)
        except ValueError:
            continue


def read_library(path: str, elf: Elf) -> Library:
    """The names and the needed libraries of a file.  Raises ValueError if it is damaged."""
    needs = needs_of(elf)
    names = {posixpath.basename(path), *((needs.soname,) if needs and needs.soname else ())}
    loads = set(needs.needed if needs else ())
    for section in elf.sections:
        if section.name in TEXTS and section.size <= MOST_TEXT:
            loads.update(library_names(bytes(elf.content(section))))
    return Library(path, frozenset(names), frozenset(loads) - names)


def library_names(data: bytes) -> Iterator[str]:
    for ending in ENDING.finditer(data):
        stem = STEM.search(data, max(0, ending.start() - MOST_STEM), ending.start())
        if stem:
            yield (stem[0] + ending[0]).decode()
