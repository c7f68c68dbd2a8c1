# SPDX-License-Identifier: Apache-2.0
"""Whether every module was built for the kernel, and lies where depmod(8) found it.

To unpack all of a distribution's 4,000 modules takes 9 s.  A module that is byte for byte what the
kernel's own packages shipped was built with that kernel, so of these only some are read; every
other module is read, whoever put it there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Set
from concurrent.futures import ThreadPoolExecutor

from imagebuilder.families.shipped import checksums_of
from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.kernel.modules import THREADS, Kernel, Module, module_name, read_modules
from imagebuilder.proof.say import Say, some
from imagebuilder.proof.subject import Subject
from imagebuilder.ui import format_count

SAY = Say(Question.KERNEL)
# How many of a package's modules are read although they are as shipped.
SAMPLE = 8
# Files that a thread reads at a time.
PART = 128
AT_DEPMOD = "run depmod for this kernel after modules are added or removed"


def prove_built(kernel: Kernel, needed: Iterable[str], shipped: Set[str]) -> Iterator[Finding]:
    """Findings about vermagic; `shipped` are the modules that find_shipped() found.

    The modules in the files `needed` are read whoever shipped them.
    """
    if not kernel.files:
        what = f"no module lies below {kernel.folder}"
        hint = "install the package with this kernel's modules, or prune fewer of them"
        yield SAY.fault(what, Evidence(kernel.folder), hint=hint)
        return
    first = [*kernel.outside, *needed]
    sample = set(sorted(shipped)[:: max(1, len(shipped) // SAMPLE)]) | (set(needed) & shipped)
    read = read_modules(kernel.root, [p for p in kernel.files if p not in shipped or p in sample])
    broken = [module for module in read if module.problem]
    for module in broken:
        what = f"{module.path} {module.problem}"
        hint = "install or build the module again, and let nothing change it afterwards"
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
    """The fault of modules that were built for another kernel, or say for none."""
    names = some(module.path for module in modules)
    whose = f"built for the kernel {other}" if other else "without a vermagic"
    return SAY.fault(
        f"{format_count(len(modules), 'module')} {whose}, the image boots {release}: {names}",
        *(vermagic(module) for module in modules),
        hint="build out-of-tree modules for the image's kernel (dkms build -k), not for that of "
        "the machine that builds the image",
    )


def built(kernel: Kernel, unread: int, read: list[Module]) -> Finding:
    what = f"{format_count(len(kernel.files), 'module')} built for {kernel.release}"
    if unread:
        what += f": {unread:,} are byte for byte those of the kernel's package, {len(read):,} read"
    return SAY.fact(what, *(vermagic(module) for module in read[:SAMPLE]))


def vermagic(module: Module) -> Evidence:
    """Where a module says what it was built for."""
    return Evidence(module.path, ".modinfo", "vermagic", module.first("vermagic").strip())


def find_shipped(subject: Subject, kernel: Kernel) -> set[str]:
    """The modules that are byte for byte as the kernel's own packages shipped them.

    Where the provenance of the root is known, it has hashed them.
    """
    sums = checksums_of(
        subject.shipped, lambda name: subject.family.is_kernel_package(name, subject.kernel)
    )
    known = [path for path in kernel.files if path in sums]
    if provenance := subject.provenance:
        return {path for path in known if path in provenance.intact}

    def same(paths: list[str]) -> list[str]:
        places = ((path, kernel.root.host(path)) for path in paths)
        return [path for path, place in places if place and sums[path].is_of(place)]

    parts = [known[start : start + PART] for start in range(0, len(known), PART)]
    with ThreadPoolExecutor(THREADS) as pool:
        return {path for part in pool.map(same, parts) for path in part}


def prove_dependencies(kernel: Kernel) -> Iterator[Finding]:
    """Findings about modules.dep: it names what is there, and all that is there."""
    there = set(kernel.files)
    place = Evidence(f"{kernel.folder}/modules.dep")
    if not kernel.listed:
        what = "modules.dep is missing or empty, modprobe finds no module"
        yield SAY.fault(what, place, hint=AT_DEPMOD)
        return
    missed: dict[str, list[str]] = {}
    for path, needs in kernel.listed.items():
        for need in needs if path in there else ():
            if need not in there:
                missed.setdefault(need, []).append(module_name(path))
    for need, by in missed.items():
        what = f"{need} is not there, which {some(by)} need{'s' if len(by) == 1 else ''}"
        hint = "keep the modules that others depend on (prune fewer), then run depmod"
        yield SAY.fault(what, place, hint=hint)
    gone = [path for path in kernel.listed if path not in there and path not in missed]
    if gone:
        what = f"modules.dep names {format_count(len(gone), 'module')} not there: {some(gone)}"
        yield SAY.fault(what, place, hint=AT_DEPMOD)
    # depmod leaves out a module of the kernel's tree that one in updates/ takes the place of.
    listed = {module_name(path) for path in kernel.listed}
    unknown = [p for p in kernel.files if p not in kernel.listed and module_name(p) not in listed]
    if unknown:
        what = f"modules.dep does not know {some(unknown)}: modprobe will not find what is there"
        yield SAY.fault(what, place, hint=AT_DEPMOD)
