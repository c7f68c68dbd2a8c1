# SPDX-License-Identifier: Apache-2.0
"""Whether every module was built for the kernel, and is where depmod(8) found it; and of those that
devices need, processor, symbols and signatures.  Whether DKMS built those from outside the kernel's
tree, and whether they are signed.

Unpacking all 4,000 modules of a distribution takes 9 s.  A module with exactly the bytes that the
kernel packages shipped was built with that kernel, so only a sample of these is read, and every
other module.
"""

from __future__ import annotations

import lzma
import re
import struct
import zlib
from collections.abc import Iterable, Mapping, Sequence, Set
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import zstandard

from imagebuilder.elf import Elf, find_elf, read_elf, text_at
from imagebuilder.families.shipped import checksums_of
from imagebuilder.image.proof import Evidence, Finding, Findings, fact, fault
from imagebuilder.proof.reading.config import kernel_words
from imagebuilder.proof.reading.modules import (
    SIGNED,
    THREADS,
    Kernel,
    Module,
    module_name,
    plain,
    read_options,
    unpack,
)
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root
from imagebuilder.ui import format_count

# How many modules are read although they are as shipped.
SAMPLE = 8
# Files per task of a thread.
PART = 128
AT_DEPMOD = "run depmod for this kernel after modules are added or removed"
# elf(5): Elf64_Sym, and the section of a symbol that another file defines.
SYMBOL, UNDEFINED = struct.Struct("<IBBHQQ"), 0
# prove_built() reports these.
UNREADABLE = (lzma.LZMAError, zstandard.ZstdError, zlib.error, ValueError)
# dkms(8): NAME/VERSION has `source`, a folder per kernel that it is built for, and `build` during a
# build or after it failed.
TREE = "/var/lib/dkms"
# Where a build puts the certificate of the site's key for modules (steps/signing.py).
CERTIFICATE = "/usr/share/imagebuilder/module-signing.der"
NO_KERNELS = ("source", "build")
# Next to the versions: links to what is installed, and the modules that it replaced.
NO_VERSIONS = re.compile(r"kernel-.*|original_module")
NAMES = re.compile(r"^[ \t]*(BUILT|DEST)_MODULE_NAME\[(\d+)\]=(.*)$", re.MULTILINE)
ERROR = re.compile(r"\berror\b|\bError \d+", re.IGNORECASE)


def prove_built(kernel: Kernel, needed: Iterable[str], shipped: Set[str]) -> Findings:
    """Findings about vermagic; `shipped` is from find_shipped(), `needed` are always read."""
    if not kernel.files:
        what = f"{kernel.folder} contains no module"
        hint = "install the package with this kernel's modules, or prune less of it"
        yield fault(what, Evidence(kernel.folder), hint=hint)
        return
    first = [*kernel.outside, *needed]
    sample = set(sorted(shipped)[:: max(1, len(shipped) // SAMPLE)]) | (set(needed) & shipped)
    read = kernel.reader.modules(p for p in kernel.files if p not in shipped or p in sample)
    broken = [module for module in read if module.problem]
    for module in broken:
        what = f"{module.path} {module.problem}"
        hint = "reinstall or rebuild the module, and do not change it afterwards"
        yield fault(what, Evidence(module.path), hint=hint)
    wrong: dict[str, list[Module]] = {}
    for module in read:
        if not module.problem and module.release != kernel.release:
            wrong.setdefault(module.release, []).append(module)
    for release, modules in wrong.items():
        yield wrong_release(kernel.release, release, modules)
    if not wrong and not broken:
        yield built(kernel, len(shipped - sample), sorted(read, key=lambda m: m.path not in first))


def wrong_release(release: str, other: str, modules: list[Module]) -> Finding:
    names = some(module.path for module in modules)
    whose = f"built for the kernel {other}" if other else "without a vermagic"
    what = f"{format_count(len(modules), 'module')} {whose}, but the image boots {release}: {names}"
    hint = "build out-of-tree modules for the image's kernel (dkms build -k), not for the "
    hint += "builder's"
    return fault(what, *(vermagic(module) for module in modules), hint=hint)


def built(kernel: Kernel, unread: int, read: list[Module]) -> Finding:
    what = f"{format_count(len(kernel.files), 'module')} built for {kernel.release}"
    if unread:
        what += f": {unread:,} identical to those of the kernel's package, {len(read):,} read"
    return fact(what, *(vermagic(module) for module in read[:SAMPLE]))


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


def prove_dependencies(kernel: Kernel) -> Findings:
    """Findings about modules.dep, which must list exactly the modules of the image."""
    present = set(kernel.files)
    place = Evidence(f"{kernel.folder}/modules.dep")
    if not kernel.listed:
        what = "modules.dep is missing or empty: modprobe cannot find any module"
        yield fault(what, place, hint=AT_DEPMOD)
        return
    missed: dict[str, list[str]] = {}
    for path, needs in kernel.listed.items():
        for need in needs if path in present else ():
            if need not in present:
                missed.setdefault(need, []).append(module_name(path))
    for need, by in missed.items():
        what = f"{need} is missing, but {some(by)} need{'s' if len(by) == 1 else ''} it"
        yield fault(what, place, hint="do not prune modules that others depend on, then run depmod")
    gone = [path for path in kernel.listed if path not in present and path not in missed]
    if gone:
        what = f"modules.dep lists {format_count(len(gone), 'missing module')}: {some(gone)}"
        yield fault(what, place, hint=AT_DEPMOD)
    # depmod omits a module of the kernel's tree that one in updates/ replaces.
    listed = {module_name(path) for path in kernel.listed}
    unknown = [p for p in kernel.files if p not in kernel.listed and module_name(p) not in listed]
    if unknown:
        what = f"modules.dep does not list {some(unknown)}: modprobe cannot find it"
        yield fault(what, place, hint=AT_DEPMOD)


@dataclass(frozen=True)
class ModuleContent:
    """The ELF machine of a module, the symbols it needs and exports, whether it is signed."""

    path: str
    machine: int
    needs: frozenset[str]
    exports: frozenset[str]
    signed: bool


def prove_content(kernel: Kernel, needed: Sequence[str], cmdline: Sequence[str]) -> Findings:
    """Faults only; prove_built() reports unreadable files."""
    with ThreadPoolExecutor(THREADS) as pool:
        read = [c for c in pool.map(lambda p: read_content(kernel.root, p), needed) if c]
    expected = machine_of(kernel.root, "/usr/bin/kmod")
    wrong = [content for content in read if expected and content.machine != expected]
    for content in wrong:
        yield fault(
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
        yield fault(what, forced, *(Evidence(path) for path in unsigned[:1]), hint=hint)


def prove_symbols(kernel: Kernel, read: Mapping[str, ModuleContent]) -> Findings:
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
            yield fault(what, Evidence(other.path, "__ksymtab", name), hint=hint)


def read_content(root: Root, path: str) -> ModuleContent | None:
    """None if the file is damaged or is not an ELF file."""
    try:
        unpacked = unpack(path, root.read(path) or b"")
        elf = read_elf(unpacked)
    except UNREADABLE:
        return None
    if elf is None:
        return None
    needs, listed = undefined_symbols(elf), elf.find("__ksymtab_strings")
    exports = bytes(elf.content(listed)).split(b"\0") if listed else []
    names = frozenset(name.decode(errors="replace") for name in exports)
    return ModuleContent(path, elf.header.machine, needs, names, unpacked.endswith(SIGNED))


def machine_of(root: Root, path: str) -> int:
    """e_machine of a program, 0 if it is missing."""
    found = root.host(path)
    elf = find_elf(found) if found else None
    return elf.header.machine if elf else 0


def undefined_symbols(elf: Elf) -> frozenset[str]:
    table, strings = elf.find(".symtab"), elf.find(".strtab")
    if table is None or strings is None:
        return frozenset()
    texts, content = bytes(elf.content(strings)), elf.content(table)
    whole = content[: len(content) - len(content) % SYMBOL.size]
    rows = SYMBOL.iter_unpack(whole)
    return frozenset(text_at(texts, row[0]) for row in rows if row[0] and row[3] == UNDEFINED)


def prove_dkms(kernel: Kernel) -> Findings:
    """Findings about the packages of DKMS: each is installed for the image's kernel."""
    for name in kernel.root.names(TREE):
        for version in kernel.root.names(f"{TREE}/{name}"):
            place = f"{TREE}/{name}/{version}"
            if not NO_VERSIONS.fullmatch(version) and kernel.root.is_dir(place):
                yield state(kernel, f"{name} {version}", place)


def state(kernel: Kernel, what: str, place: str) -> Finding:
    root = kernel.root
    kernels = [n for n in root.names(place) if n not in NO_KERNELS and root.is_dir(f"{place}/{n}")]
    built = [
        path
        for release in kernels
        for path in root.walk(f"{place}/{release}")
        if ".ko" in path.rpartition("/")[2]
    ]
    names = wanted_names(kernel, place) or {module_name(path) for path in built}
    missing = sorted(name for name in names if name not in kernel.by_name)
    log = f"{place}/build/make.log"
    if names and not missing:
        paths = [kernel.by_name[name] for name in sorted(names)]
        return fact(f"DKMS: {what} is installed: {some(paths)}", Evidence(place))
    if kernels and kernel.release not in kernels:
        return fault(
            f"DKMS: {what} is built for {some(kernels)}, but the image boots {kernel.release}",
            Evidence(place),
            hint=f"dkms install {what.replace(' ', '/')} -k {kernel.release}, not `uname -r`",
        )
    if root.is_file(log):
        return fault(
            f"DKMS: {what} failed to build for {kernel.release}: {last_error(kernel, log)}",
            Evidence(log, said=last_error(kernel, log)),
            hint="see make.log; the kernel may be too new for the driver: pin one of them",
        )
    how = "is built, but not installed" if kernels else "is added, but not built"
    return fault(
        f"DKMS: {what} {how} for {kernel.release}" + (f": no {some(missing)}" if missing else ""),
        Evidence(place),
        hint=f"dkms install {what.replace(' ', '/')} -k {kernel.release}; it needs that "
        "kernel's headers and a compiler",
    )


def wanted_names(kernel: Kernel, place: str) -> set[str]:
    """The modules that dkms.conf installs; none if its text does not tell."""
    text = kernel.root.text(f"{place}/source/dkms.conf")
    package = re.search(r'^[ \t]*PACKAGE_NAME="?([\w.+-]+)', text, re.MULTILINE)
    names: dict[str, str] = {}
    # DEST_MODULE_NAME overrides BUILT_MODULE_NAME.
    for kind in ("BUILT", "DEST"):
        for found, number, value in NAMES.findall(text):
            if found == kind:
                names[number] = value.strip().strip("\"'")
    if package:
        names = {n: re.sub(r"\$\{?PACKAGE_NAME\}?", package[1], v) for n, v in names.items()}
    if any("$" in value for value in names.values()):
        return set()
    return {module_name(value) for value in names.values()}


def last_error(kernel: Kernel, log: str) -> str:
    """The last line of a build's log that mentions an error, else its last line."""
    lines = [line.strip() for line in kernel.root.text(log).splitlines() if line.strip()]
    errors = [line for line in lines if ERROR.search(line)]
    return next(reversed(errors or lines), "the log is empty")


def prove_signed(kernel: Kernel, cmdline: Sequence[str]) -> Findings:
    read = [module for module in kernel.reader.modules(kernel.outside) if not module.problem]
    unsigned = [module for module in read if not module.signed]
    if read and not unsigned:
        many = f"{format_count(len(read), 'module')} from outside the kernel's tree signed"
        if kernel.root.is_file(CERTIFICATE):
            what = f"{many} with the site's key; enrol {CERTIFICATE} for Secure Boot"
        else:
            what = f"{many} with another key; Secure Boot requires enrolling its certificate"
        yield fact(what, *(signature(module) for module in read))
    if not unsigned:
        return
    names = some(module_name(module.path) for module in unsigned)
    many = f"{format_count(len(unsigned), 'module')} from outside the kernel's tree"
    evidence = [signature(module) for module in unsigned]
    forced = enforced(kernel, cmdline)
    if forced:
        what = f"{many} not signed, and this kernel rejects unsigned modules: {names}"
        hint = "sign them with a key that the kernel trusts, or remove what enforces signatures"
        yield fault(what, forced, *evidence, hint=hint)
        return
    yield fact(f"{many} not signed, so a kernel under Secure Boot rejects them: {names}", *evidence)


def signature(module: Module) -> Evidence:
    said = "signed" if module.signed else "not signed"
    return Evidence(module.path, said=said)


def enforced(kernel: Kernel, cmdline: Sequence[str]) -> Evidence | None:
    """What makes the kernel reject unsigned modules on every machine, even without Secure Boot."""
    for word in kernel_words(cmdline):
        locked = word.key == "lockdown" and word.value in ("integrity", "confidentiality")
        if locked or (word.key == "module.sig_enforce" and word.on):
            return word.evidence
    options = ("CONFIG_MODULE_SIG_FORCE=y", "CONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY=y",
               "CONFIG_LOCK_DOWN_KERNEL_FORCE_CONFIDENTIALITY=y")  # fmt: skip
    path, built = read_options(kernel.root, kernel.release)
    return next((Evidence(path, said=option) for option in options if option in built), None)
