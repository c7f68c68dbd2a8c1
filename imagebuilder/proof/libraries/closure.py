# SPDX-License-Identifier: Apache-2.0
"""Every NEEDED of every program and library is in the image.

The level depends on what needs a missing library.  A program in PATH, or a file that an overlay
declared, cannot run: a fault.  For a plugin that nothing declares or links, it is a warning if an
installed package shipped the library, because somebody removed it; otherwise the package made the
plugin optional (tc's for ATM, numba's for TBB), which is a fact.
"""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from imagebuilder.elf import AMDGPU, CUDA, INTELGT, MACHINES
from imagebuilder.families.protocol import Family
from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Evidence, Finding, Findings, Level, fact
from imagebuilder.proof.reading.libraries import PYTHON, Files, Search, scope_of

MOST_EVIDENCE = 8
PROGRAMS = (
    "/usr/bin/", "/usr/sbin/", "/bin/", "/sbin/", "/usr/local/bin/", "/usr/local/sbin/",
)  # fmt: skip
# ELF files for GPUs, and BPF programs, which the image's processor does not run.
DEVICES = (AMDGPU, CUDA, INTELGT, 247)
LOADER_32 = ("/lib/ld-linux.so.2", "/usr/lib/ld-linux.so.2")


@dataclass(frozen=True)
class Gap:
    """A missing library, and a file that needs it."""

    library: str
    of: str


@dataclass
class Closure:
    """All files of a root and the libraries that each loads."""

    files: Files
    search: Search
    family: Family
    leads: dict[str, list[str]] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    edges: int = 0

    def __post_init__(self) -> None:
        for path, needs in self.files.native.items():
            for name in needs.needed:
                self.edges += 1
                found = self.search.find(name, path, needs)
                if found:
                    self.leads.setdefault(path, []).append(found)
                else:
                    self.gaps.append(Gap(name, path))

    def reached(self, roots: Mapping[str, str]) -> dict[str, str]:
        found = dict(roots)
        todo = list(roots)
        while todo:
            path = todo.pop()
            for other in self.leads.get(path, ()):
                if other not in found:
                    found[other] = found[path]
                    todo.append(other)
        return found


def prove_closure(
    closure: Closure, declared: Mapping[str, str], shipped: Mapping[str, ShippedFile]
) -> Findings:
    """`declared` are resolved paths, and why each must load; `shipped` are files of packages."""
    programs = {
        path: f"{path} is a program"
        for path, needs in closure.files.native.items()
        if needs.interpreter and path.startswith(PROGRAMS)
    }
    reached = closure.reached(programs) | closure.reached(declared)
    owners = owners_of(shipped, {gap.library for gap in closure.gaps})
    by_library: dict[str, list[Gap]] = {}
    for gap in closure.gaps:
        by_library.setdefault(gap.library, []).append(gap)
    optional = []
    for library, gaps in by_library.items():
        # Report each library once, for the most important file that needs it.
        gaps.sort(key=lambda gap: (gap.of not in declared, gap.of not in reached))
        if gaps[0].of in reached:
            yield missing(closure, gaps, Level.FAULT, reached, owners.get(library, ""))
        # A Python package may bring its own libraries.
        elif library in owners and any(set(PYTHON).isdisjoint(g.of.split("/")) for g in gaps):
            yield missing(closure, gaps, Level.WARNING, reached, owners[library])
        else:
            optional += gaps
    if optional:
        what = "plugins that lack a library, but that nothing declared loads: "
        what += f"{len({gap.of for gap in optional})}"
        yield fact(what, *(evidence_of(gap) for gap in optional[:MOST_EVIDENCE]))
    yield from prove_machines(closure.files, declared)
    many = len(closure.files.native)
    if not closure.gaps:
        what = f"all libraries that {many:,} programs and libraries need are present"
        yield fact(what, Evidence("/", ".dynamic", "NEEDED", f"{closure.edges} entries"))


def owners_of(shipped: Mapping[str, ShippedFile], libraries: set[str]) -> dict[str, str]:
    """The installed packages that ship these libraries."""
    return {
        posixpath.basename(path): file.package
        for path, file in shipped.items()
        if posixpath.basename(path) in libraries
    }


def evidence_of(gap: Gap) -> Evidence:
    return Evidence(gap.of, ".dynamic", "NEEDED", gap.library)


def missing(
    closure: Closure, gaps: list[Gap], level: Level, reached: Mapping[str, str], owner: str
) -> Finding:
    """The finding about a missing library; `owner` is the installed package with it, or ""."""
    library, first = gaps[0].library, gaps[0].of
    who = posixpath.basename(first) + (f" and {len(gaps) - 1} more" if len(gaps) > 1 else "")
    needs = "need" if len(gaps) > 1 else "needs"
    what = f"{library} is not in the image: {who} {needs} it"
    elsewhere = [
        (path, MACHINES.get(one.machine, f"e_machine {one.machine}"))
        for path, one in closure.files.foreign.items()
        if library in (posixpath.basename(path), one.soname)
    ]
    evidence = [evidence_of(gap) for gap in gaps[:MOST_EVIDENCE]]
    if elsewhere:
        what += f"; {elsewhere[0][0]} is for {elsewhere[0][1]}"
    elif beyond := [p for (_, name), p in closure.search.mates.items() if name == library]:
        what += f"; {beyond[0]} is not where ld.so looks"
        evidence.append(Evidence(beyond[0], said="not in the search path of files that need it"))
    why = reached.get(first, "")
    if why and not why.startswith(first):
        what += f" ({why})"
    if owner:
        hint = f"{owner} is installed and has it: exclude it from `prune:` and `slim:`"
        return Finding(level, what, tuple(evidence), hint)
    package = closure.family.package_with(library)
    hint = f"install {package or f'the package that has {library}'}"
    return Finding(level, what, tuple(evidence), hint)


def prove_machines(files: Files, declared: Iterable[str]) -> Findings:
    foreign = {path: n for path, n in files.foreign.items() if n.machine not in DEVICES}
    if any(files.root.is_file(path) for path in LOADER_32):
        foreign = {path: n for path, n in foreign.items() if n.bits == 64}
    wanted = [path for path in foreign if path in set(declared)]
    other = [p for p in foreign if p not in wanted and not scope_of(p)]
    machine = MACHINES.get(files.machine, str(files.machine))
    for level, paths in ((Level.FAULT, wanted), (Level.WARNING, other)):
        if paths:
            first = MACHINES.get(foreign[paths[0]].machine, str(foreign[paths[0]].machine))
            more = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
            yield Finding(
                level,
                f"{posixpath.basename(paths[0])}{more} cannot run: for {first}, not for {machine}",
                tuple(Evidence(p, said=f"e_machine {foreign[p].machine}") for p in paths[:8]),
                f"install the package or the wheel for {machine}",
            )
