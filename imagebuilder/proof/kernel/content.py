# SPDX-License-Identifier: Apache-2.0
"""Checks of the module files that devices need: processor, symbols, signatures."""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import zstandard

from imagebuilder.elf import Elf, find_elf, read_elf, text_at
from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.kernel.dkms import enforced
from imagebuilder.proof.reading.modules import SIGNED, THREADS, Kernel, module_name, plain, unpack
from imagebuilder.proof.say import Say, some
from imagebuilder.root import Root

SAY = Say(Question.KERNEL)
KMOD = "/usr/bin/kmod"
# elf(5): Elf64_Sym, and the section of a symbol that another file defines.
SYMBOL, UNDEFINED = struct.Struct("<IBBHQQ"), 0
EXPORTS = "__ksymtab_strings"
# built.py reports these.
UNREADABLE = (lzma.LZMAError, zstandard.ZstdError, zlib.error, ValueError)


@dataclass(frozen=True)
class ModuleContent:
    """The ELF machine of a module, the symbols it needs and exports, whether it is signed."""

    path: str
    machine: int
    needs: frozenset[str]
    exports: frozenset[str]
    signed: bool


def prove_content(
    kernel: Kernel, needed: Sequence[str], cmdline: Sequence[str]
) -> Iterator[Finding]:
    """Faults only; built.py reports unreadable files."""
    with ThreadPoolExecutor(THREADS) as pool:
        read = [c for c in pool.map(lambda p: read_content(kernel.root, p), needed) if c]
    expected = machine_of(kernel.root, KMOD)
    wrong = [content for content in read if expected and content.machine != expected]
    for content in wrong:
        yield SAY.fault(
            f"{content.path} is for another processor: e_machine {content.machine}, not {expected}",
            Evidence(content.path, "ELF header", "e_machine", str(content.machine)),
            hint="build or install the module for the image's architecture",
        )
    yield from prove_symbols(kernel, {module_name(c.path): c for c in read})
    forced = enforced(kernel, cmdline)
    unsigned = [content.path for content in read if not content.signed]
    if forced and unsigned:
        yield SAY.fault(
            f"this kernel rejects {some(unsigned)}: not signed",
            forced,
            *(Evidence(path) for path in unsigned[:1]),
            hint="do not strip modules; sign your own with a key that the kernel trusts",
        )


def prove_symbols(kernel: Kernel, read: Mapping[str, ModuleContent]) -> Iterator[Finding]:
    """Faults of symbols that another module should export but does not."""
    owners: dict[str, str] = {}
    for line in kernel.lines("modules.symbols"):
        words = line.split()
        if len(words) == 3 and words[1].startswith("symbol:"):
            owners[words[1].removeprefix("symbol:")] = plain(words[2])
    for content in read.values():
        missing = [
            (name, read[owner])
            for name in sorted(content.needs)
            if (owner := owners.get(name, "")) in read and name not in read[owner].exports
        ]
        if missing:
            name, other = missing[0]
            names = some(each for each, _ in missing)
            yield SAY.fault(
                f"{content.path} cannot be loaded: {other.path} does not export {names}",
                Evidence(other.path, "__ksymtab", name),
                hint="use both modules from one build, then run depmod",
            )


def read_content(root: Root, path: str) -> ModuleContent | None:
    """None if the file is damaged or is not an ELF file."""
    try:
        unpacked = unpack(path, root.read(path) or b"")
        elf = read_elf(unpacked)
    except UNREADABLE:
        return None
    if elf is None:
        return None
    needs, listed = undefined_symbols(elf), elf.find(EXPORTS)
    exports = bytes(elf.content(listed)).split(b"\0") if listed else []
    names = frozenset(name.decode(errors="replace") for name in exports)
    return ModuleContent(path, elf.header.machine, needs, names, unpacked.endswith(SIGNED))


def machine_of(root: Root, path: str) -> int:
    """e_machine of a program, 0 if it is missing."""
    found = root.host(path)
    elf = find_elf(found) if found else None
    return elf.header.machine if elf else 0


def undefined_symbols(elf: Elf) -> frozenset[str]:
    """The symbols that another file must define."""
    table, strings = elf.find(".symtab"), elf.find(".strtab")
    if table is None or strings is None:
        return frozenset()
    texts, content = bytes(elf.content(strings)), elf.content(table)
    whole = content[: len(content) - len(content) % SYMBOL.size]
    rows = SYMBOL.iter_unpack(whole)
    return frozenset(text_at(texts, row[0]) for row in rows if row[0] and row[3] == UNDEFINED)
