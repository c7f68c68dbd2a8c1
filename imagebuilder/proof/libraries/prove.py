# SPDX-License-Identifier: Apache-2.0
"""Libraries: every NEEDED and every announced Vulkan and OpenCL driver exists, the driver fits, and
what overlays declare loads.
"""

from __future__ import annotations

import posixpath
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from imagebuilder.image.proof import (
    Evidence,
    Finding,
    Findings,
    Level,
    fact,
    fault,
    warning,
)
from imagebuilder.proof.libraries import driver_rules
from imagebuilder.proof.libraries.closure import Closure, prove_closure
from imagebuilder.proof.reading.libraries import (
    DRIVERS,
    PYTHON,
    SOFTWARE,
    VULKAN,
    Icd,
    Search,
    find_icds,
    search_of,
    services_in,
)
from imagebuilder.proof.reading.scripts import cannot_run
from imagebuilder.proof.say import prove_answered, some
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import find_engine

# sh: each library's name, the loader's output for it, and its status.  The loader maps libraries
# and compares their versions (ld.so(8), --list), but does not run their code.
LOAD = (
    'loader=$1; shift; for library; do echo "library $library"; '
    '"$loader" --list "$library" 2>&1; echo "status $?"; done'
)
MOST_SECONDS = 120
PRELOAD = "/etc/ld.so.preload"


def prove_libraries(subject: Subject) -> Findings:
    search = search_of(subject)
    files = search.files
    icds = find_icds(subject.root, search)
    declared = dict(declared_in(subject, icds))
    closure = Closure(files, search, subject.family)
    gaps = list(prove_closure(closure, declared, subject.shipped))
    yield from gaps
    yield from prove_preload(search)
    yield from driver_rules.prove_runtimes(closure, declared)
    yield from driver_rules.prove_releases(closure)
    yield from driver_rules.prove_driver(subject)
    yield from driver_rules.prove_driver_releases(subject, files)
    yield from driver_rules.prove_renamed(search)
    yield from prove_sources(subject)
    vendors = frozenset(one.pci.partition(":")[0] for one in subject.hardware)
    wants = any("vulkan" in engine.backends for engine in subject.expectations.engines)
    yield from prove_icds(icds, vendors, wants_vulkan=wants)
    reported = [finding.what for finding in gaps if finding.level is Level.FAULT]
    yield from prove_present(subject, reported)
    yield from prove_programs(subject)
    loads = [path for path in subject.expectations.libraries if subject.root.is_file(path)]
    # An ICD only matters if the profile has a device for it.
    loads += [icd.library for icd in icds if icd.library and vendors]
    loaders = Counter(needs.interpreter for needs in files.native.values() if needs.interpreter)
    loader = loaders.most_common(1)[0][0] if loaders else ""
    if loads and loader:
        known = frozenset(gap.library for gap in closure.gaps)
        yield from prove_loads(subject, loader, list(dict.fromkeys(loads)), known)


def declared_in(subject: Subject, icds: Iterable[Icd]) -> Iterator[tuple[str, str]]:
    """The files (symlinks resolved) that must load, and why."""
    root, expectations = subject.root, subject.expectations
    patterns: list[tuple[str, str]] = [
        *(
            (path, "an overlay declares it")
            for path in (*expectations.libraries, *expectations.programs)
        ),
        *(
            (glob, f"it computes on {one.target}")
            for one in expectations.code
            for glob in one.files
        ),
        *(
            (glob, f"{engine.engine} computes by {backend}")
            for engine in expectations.engines
            for backend in engine.backends
            for glob in find_engine(subject.engines, engine.engine).files_of(backend)
        ),
    ]
    for pattern, why in patterns:
        for path in root.glob(pattern):
            found = root.resolve(path)
            if found is not None:
                yield found, why
    yield from started_programs(subject)
    if subject.hardware:
        yield from ((icd.library, f"{icd.path} announces it") for icd in icds if icd.library)
    for works in expectations.python:
        wanted = {name.partition(".")[0] for name in works.imports}
        for site in PYTHON:
            for folder in root.glob(f"{works.path}/lib/python3*/{site}"):
                for name in sorted(wanted):
                    for path in root.walk(f"{folder}/{name}"):
                        if path.endswith(".so") and is_main(path, folder):
                            yield path, f"{works.path} imports {name}"


def started_programs(subject: Subject) -> Iterator[tuple[str, str]]:
    """The site's own programs that a unit starts, wherever they are."""
    for unit in services_in(subject):
        for program in unit.programs:
            path = subject.root.resolve(program) if program.startswith("/") else None
            if path and path not in subject.shipped:
                yield path, f"{unit.name} starts it"


def is_main(path: str, folder: str) -> bool:
    """Whether importing a package loads a file: those in its top folder and its lib/."""
    inside = posixpath.dirname(path[len(folder) + 1 :]).split("/")
    return len(inside) == 1 or inside[1:] == ["lib"]


def prove_sources(subject: Subject) -> Findings:
    """Warnings of packages that are not the vendor's: only their names and versions are known."""
    for name, why in subject.image.replaced.items():
        what = f"packages of {name} are not from the vendor: {why}"
        where = Evidence("manifest.json", section="sources", symbol=name, said=why)
        hint = f"remove {name} from sources: in the site file before building an image for nodes"
        yield warning(what, where, hint=hint)


def prove_present(subject: Subject, reported: Sequence[str]) -> Findings:
    """The libraries that overlays declare exist; faults already in `reported` are not repeated."""
    for path in subject.expectations.libraries:
        missing = f"{posixpath.basename(path)} is not in the image"
        known = any(what.startswith(missing) for what in reported)
        if not subject.root.is_file(path) and not known:
            folder = posixpath.dirname(path)
            stem = posixpath.basename(path).partition(".so")[0]
            like = [n for n in subject.root.names(folder) if n.startswith(f"{stem}.so")]
            yield fault(
                f"{missing}, but an overlay declares it"
                + (f"; the image has {like[0]}" if like else ""),
                Evidence(path, said=" ".join(like) or "is missing"),
                hint="install the package that has it, or exclude it from `prune:` and `slim:`",
            )


def prove_programs(subject: Subject) -> Findings:
    for path in subject.expectations.programs:
        if why := cannot_run(subject.root, path):
            what = f"an overlay declares the program {path}, {why}"
            hint = "install the package that has it, and do not remove it (`prune:`, `slim:`)"
            yield fault(what, Evidence(path), hint=hint)


def prove_loads(
    subject: Subject, loader: str, libraries: list[str], known: frozenset[str]
) -> Findings:
    """The image's own loader maps each of these libraries with everything they need.

    Libraries `known` to be missing were already reported.
    """
    done = subject.run(["sh", "-c", LOAD, "sh", loader, *libraries], seconds=MOST_SECONDS)
    answers = parse_loads(done.stdout)
    if not answers:
        what = f"could not run the image's loader to check whether {len(libraries)} libraries load"
        where = Evidence(loader, said=(done.stderr or done.stdout).strip()[-200:])
        yield warning(what, where, hint="see the log of the sandbox; the image needs `sh`")
        return
    yield from prove_answered(done, "whether all declared libraries load", Evidence(loader))
    wrong = {library: lines for library, lines in answers.items() if lines}
    for library, lines in wrong.items():
        if any(name in lines[0] for name in known):
            continue
        what = f"{posixpath.basename(library)} does not load: {lines[0]}"
        hint = "install what it needs in the version that it needs; do not mix libraries of two "
        hint += "distributions"
        yield fault(what, *(Evidence(library, said=line) for line in lines[:8]), hint=hint)
    good = [library for library in answers if library not in wrong]
    if good:
        what = f"declared libraries and drivers load in the image ({len(good)})"
        yield fact(what, *(Evidence(library, said=f"{loader} --list") for library in good[:8]))


def parse_loads(output: str) -> Mapping[str, list[str]]:
    """The loader's complaints about each library, from the output of LOAD."""
    found: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in output.splitlines():
        if line.startswith("library "):
            lines = found.setdefault(line.removeprefix("library "), [])
        elif line.startswith("status "):
            if line != "status 0" and not lines:
                lines.append(f"the loader ends with {line}")
        elif is_complaint(line):
            lines.append(line.strip().rpartition("loading shared libraries: ")[2])
    return found


def is_complaint(line: str) -> bool:
    """Whether a line of the loader says that something is missing."""
    return (
        "=> not found" in line
        or ("version `" in line and "not found" in line)
        or "error while loading" in line
        or "cannot open shared object" in line
    )


def prove_preload(search: Search) -> Findings:
    """A warning of libraries that no program can load: ld.so complains, and goes on without."""
    lines = search.files.root.text(PRELOAD).replace(":", " ").splitlines()
    names = dict.fromkeys(word for line in lines for word in line.partition("#")[0].split())
    missing = [name for name in names if "$" not in name and not search.named(name)]
    if missing:
        what = f"{PRELOAD} names {some(missing)}, which the image does not have for its "
        what += "processor: every program prints an error and runs without it"
        hint = "install it, or remove its name"
        yield warning(what, Evidence(PRELOAD, said=some(missing)), hint=hint)


def prove_icds(icds: Iterable[Icd], vendors: frozenset[str], *, wants_vulkan: bool) -> Findings:
    """Every announced driver exists, and the card has one if an engine computes with Vulkan.

    `vendors` are the PCI vendors of the profile's devices.
    """
    listed = list(icds)
    vulkan = [icd for icd in listed if icd.kind == "Vulkan"]
    for icd in listed:
        if not icd.library:
            yield dangling(icd, vendors)
    for vendor in sorted(vendors & DRIVERS.keys()) if wants_vulkan else ():
        names, package = DRIVERS[vendor]
        of_card = [icd for icd in vulkan if any(name in icd.name for name in names)]
        if any(icd.library for icd in of_card):
            continue
        if not of_card:
            present = " ".join(icd.name for icd in vulkan) or "none at all"
            software = all(icd.name.startswith(SOFTWARE) for icd in vulkan)
            only = ", only one that computes on the processor" if vulkan and software else ""
            yield fault(
                f"missing ICD: no Vulkan driver for PCI vendor {vendor}{only}",
                *(
                    tuple(Evidence(icd.path, said=icd.said) for icd in vulkan)
                    or (Evidence(VULKAN[-1], said=present),)
                ),
                hint=f"install {package}, or exclude its file in {VULKAN[-1]} from `prune:`",
            )
    good = [icd for icd in listed if icd.library]
    if good and vendors:
        what = f"present Vulkan and OpenCL drivers: {' '.join(sorted({icd.name for icd in good}))}"
        yield fact(what, *(Evidence(icd.path, said=icd.library) for icd in good))


def dangling(icd: Icd, vendors: frozenset[str]) -> Finding:
    """An ICD file that leads nowhere: a fault if a device of the profile needs it."""
    what = icd.problem or f"points at {icd.said or 'nothing'}, which does not exist"
    names = {n for vendor in vendors for n in DRIVERS.get(vendor, ((), ""))[0]}
    needed = bool(vendors) and (icd.kind == "OpenCL" or any(n in icd.name for n in names))
    return Finding(
        Level.FAULT if needed else Level.WARNING,
        f"{icd.kind} ICD {posixpath.basename(icd.path)} {what}",
        (Evidence(icd.path, said=icd.said),),
        "install the driver's library, or remove the file too",
    )
