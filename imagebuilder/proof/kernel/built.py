# SPDX-License-Identifier: Apache-2.0
"""Whether every module was built for the kernel, and is where depmod(8) found it; and of those that
devices need, processor, symbols and signatures.

Unpacking all 4,000 modules of a distribution takes 9 s.  A module with exactly the bytes that the
kernel packages shipped was built with that kernel, so only a sample of these is read, and every
other module.
"""

from __future__ import annotations

import lzma
import struct
import zlib
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import zstandard

from imagebuilder.elf import Elf, find_elf, read_elf, text_at
from imagebuilder.families.shipped import checksums_of
from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.kernel.dkms import enforced
from imagebuilder.proof.reading.modules import (
    SIGNED,
    THREADS,
    Kernel,
    Module,
    module_name,
    plain,
    unpack,
)
from imagebuilder.proof.say import Say, some
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root
from imagebuilder.ui import format_count

SAY = Say(Question.KERNEL)
# How many modules are read although they are as shipped.
SAMPLE = 8
# Files per task of a thread.
PART = 128
AT_DEPMOD = "run depmod for this kernel after modules are added or removed"
KMOD = "/usr/bin/kmod"
# elf(5): Elf64_Sym, and the section of a symbol that another file defines.
SYMBOL, UNDEFINED = struct.Struct("<IBBHQQ"), 0
EXPORTS = "__ksymtab_strings"
# prove_built() reports these.
UNREADABLE = (lzma.LZMAError, zstandard.ZstdError, zlib.error, ValueError)


def prove_built(kernel: Kernel, needed: Iterable[str], shipped: Set[str]) -> Iterator[Finding]:
    """Findings about vermagic; `shipped` is from find_shipped(), `needed` are always read."""
    if not kernel.files:
        what = f"{kernel.folder} contains no module"
        hint = "install the package with this kernel's modules, or prune less of it"
        yield SAY.fault(what, Evidence(kernel.folder), hint=hint)
        return
    first = [*kernel.outside, *needed]
    sample = set(sorted(shipped)[:: max(1, len(shipped) // SAMPLE)]) | (set(needed) & shipped)
    read = kernel.reader.modules(p for p in kernel.files if p not in shipped or p in sample)
    broken = [module for module in read if module.problem]
    for module in broken:
        what = f"{module.path} {module.problem}"
        hint = "reinstall or rebuild the module, and do not change it afterwards"
        yield SAY.fault(what, Evidence(module.path), hint=hint)
    wrong: dict[str, list[Module]] = {}
    for module in read:
        if not module.problem and module.release != kernel.release:
            wrong.setdefault(module.release, []).append(module)
    for release, modules in wrong.items():
        yield wrong_release(kernel.release, release, modules)
    if not wrong and not broken:
        yield built(kernel, len(shipped - sample), sorted(read, key=lambda m: m.path not in first))


def wrong_release(release: str, other: str, modules: list[Module]) -> Finding:
    """The fault of modules built for another kernel, or without a vermagic."""
    names = some(module.path for module in modules)
    whose = f"built for the kernel {other}" if other else "without a vermagic"
    what = f"{format_count(len(modules), 'module')} {whose}, but the image boots {release}: {names}"
    hint = "build out-of-tree modules for the image's kernel (dkms build -k), not for the "
    hint += "builder's"
    return SAY.fault(what, *(vermagic(module) for module in modules), hint=hint)


def built(kernel: Kernel, unread: int, read: list[Module]) -> Finding:
    what = f"{format_count(len(kernel.files), 'module')} built for {kernel.release}"
    if unread:
        what += f": {unread:,} identical to those of the kernel's package, {len(read):,} read"
    return SAY.fact(what, *(vermagic(module) for module in read[:SAMPLE]))


def vermagic(module: Module) -> Evidence:
    return Evidence(module.path, ".modinfo", "vermagic", module.first("vermagic").strip())


def find_shipped(subject: Subject, kernel: Kernel) -> set[str]:
    """The modules that are identical to those that the kernel's packages shipped.

    The provenance of the root, if known, has already hashed them.
    """
    sums = checksums_of(
        subject.shipped, lambda name: subject.family.is_kernel_package(name, subject.kernel)
    )
    known = [path for path in kernel.files if path in sums]
    if provenance := subject.provenance:
        return {path for path in known if path in provenance.compared.intact}

    def same(paths: list[str]) -> list[str]:
        places = ((path, kernel.root.host(path)) for path in paths)
        return [path for path, place in places if place and sums[path].is_of(place)]

    parts = [known[start : start + PART] for start in range(0, len(known), PART)]
    with ThreadPoolExecutor(THREADS) as pool:
        return {path for part in pool.map(same, parts) for path in part}


def prove_dependencies(kernel: Kernel) -> Iterator[Finding]:
    """Findings about modules.dep, which must list exactly the modules of the image."""
    present = set(kernel.files)
    place = Evidence(f"{kernel.folder}/modules.dep")
    if not kernel.listed:
        what = "modules.dep is missing or empty: modprobe cannot find any module"
        yield SAY.fault(what, place, hint=AT_DEPMOD)
        return
    missed: dict[str, list[str]] = {}
    for path, needs in kernel.listed.items():
        for need in needs if path in present else ():
            if need not in present:
                missed.setdefault(need, []).append(module_name(path))
    for need, by in missed.items():
        what = f"{need} is missing, but {some(by)} need{'s' if len(by) == 1 else ''} it"
        hint = "do not prune modules that others depend on, then run depmod"
        yield SAY.fault(what, place, hint=hint)
    gone = [path for path in kernel.listed if path not in present and path not in missed]
    if gone:
        what = f"modules.dep lists {format_count(len(gone), 'missing module')}: {some(gone)}"
        yield SAY.fault(what, place, hint=AT_DEPMOD)
    # depmod omits a module of the kernel's tree that one in updates/ replaces.
    listed = {module_name(path) for path in kernel.listed}
    unknown = [p for p in kernel.files if p not in kernel.listed and module_name(p) not in listed]
    if unknown:
        what = f"modules.dep does not list {some(unknown)}: modprobe cannot find it"
        yield SAY.fault(what, place, hint=AT_DEPMOD)


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
    """Faults only; prove_built() reports unreadable files."""
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
        what = f"this kernel rejects {some(unsigned)}: not signed"
        hint = "do not strip modules; sign your own with a key that the kernel trusts"
        yield SAY.fault(what, forced, *(Evidence(path) for path in unsigned[:1]), hint=hint)


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
            what = f"{content.path} cannot be loaded: {other.path} does not export {names}"
            hint = "use both modules from one build, then run depmod"
            yield SAY.fault(what, Evidence(other.path, "__ksymtab", name), hint=hint)


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
