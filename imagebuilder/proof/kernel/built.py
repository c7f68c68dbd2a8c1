# SPDX-License-Identifier: Apache-2.0
"""Whether every module was built for the kernel, and is where depmod(8) found it.

Unpacking all 4,000 modules of a distribution takes 9 s.  A module with exactly the bytes that the
kernel's packages shipped was built with that kernel, so only a sample of these is read, and every
other module.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor

from imagebuilder.families.shipped import checksums_of
from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.reading.modules import THREADS, Kernel, Module, module_name
from imagebuilder.proof.say import Say, some
from imagebuilder.proof.subject import Subject
from imagebuilder.ui import format_count

SAY = Say(Question.KERNEL)
# How many modules are read although they are as shipped.
SAMPLE = 8
# Files per task of a thread.
PART = 128
AT_DEPMOD = "run depmod for this kernel after modules are added or removed"


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
    return SAY.fault(
        f"{format_count(len(modules), 'module')} {whose}, but the image boots {release}: {names}",
        *(vermagic(module) for module in modules),
        hint="build out-of-tree modules for the image's kernel (dkms build -k), not for the "
        "builder's",
    )


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
