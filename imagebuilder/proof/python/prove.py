# SPDX-License-Identifier: Apache-2.0
"""Question 5, Python: do the environments import, for this accelerator, as they were locked?"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping

from packaging.version import InvalidVersion, Version

from imagebuilder.image.proof import Evidence, Finding, Findings, fact, fault, warning
from imagebuilder.proof.python.installed import prove_requires, prove_search, prove_twice
from imagebuilder.proof.reading.provenance import TraceKind
from imagebuilder.proof.reading.python import (
    Distribution,
    Environment,
    Torch,
    inspect_environment,
    installed,
    site_packages,
)
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.expectations import PythonWorks

WORDS = {"cpu": "the processor", "cuda": "CUDA", "rocm": "ROCm", "xpu": "XPU"}
REBUILD = "rebuild the image; if that does not help, a later step changes the wheels"
ENTRY = re.compile(r"(?P<kind>sm|compute)_(?P<major>\d{1,4})(?P<minor>\d)[af]?")


def prove_python(subject: Subject) -> Findings:
    yield from prove_twice(subject.root)
    for works in subject.expectations.python:
        site = site_packages(subject.root, works.path)
        if site is None:
            what = f"the Python environment {works.path} does not exist"
            where = Evidence(works.path, said="has no lib/python3.*/site-packages")
            yield fault(what, where, hint="add it under `python:` of the overlay that expects it")
            continue
        # 1. From outside: the interpreter, and what was installed.
        unfit = list(prove_interpreter(subject, works.path, site))
        yield from unfit
        present = installed(subject.root, site)
        yield from prove_locked(subject, works.path, present)
        yield from prove_requires(present, posixpath.basename(posixpath.dirname(site)))
        yield from prove_search(subject.root, site)
        # 2. From inside, when there is something to run.
        if not unfit:
            yield from prove_imports(works, site, inspect_environment(subject, works.path))


def prove_interpreter(subject: Subject, path: str, site: str) -> Findings:
    """Faults only: the interpreter exists and is the one that the wheels were chosen for."""
    python = f"{path}/bin/python"
    found = subject.root.resolve(python)
    wheels = posixpath.basename(posixpath.dirname(site))
    if found is None or not subject.root.is_file(python):
        home = re.search(r"^home = (.*)$", subject.root.text(f"{path}/pyvenv.cfg"), re.MULTILINE)
        yield fault(
            f"the interpreter of {path} is not in the image",
            Evidence(python, said="leads nowhere"),
            Evidence(f"{path}/pyvenv.cfg", symbol="home", said=home[1] if home else "not said"),
            hint="a package of the profile must install the interpreter, such as python3",
        )
    elif posixpath.basename(found).startswith("python3.") and posixpath.basename(found) != wheels:
        yield fault(
            f"{path} was created for {wheels}, but its interpreter is {posixpath.basename(found)}",
            Evidence(python, said=f"leads to {found}"),
            Evidence(site, said=f"wheels of {wheels}"),
            hint="lock the profile again: its packages now have another Python",
        )


def prove_locked(subject: Subject, path: str, present: Mapping[str, Distribution]) -> Findings:
    locked = subject.wheels.get(path)
    if locked is None:
        what = f"no lock names the wheels of {path}"
        hint = "add it to an overlay with `python:`; what a script installs is not locked"
        yield warning(what, Evidence(path, said=f"{len(present)} distributions"), hint=hint)
        return
    wrong = list(prove_distributions(path, present, locked))
    yield from wrong
    yield from prove_unlocked(subject, path, present, locked)
    if not wrong:
        yield fact(f"{len(locked)} distributions as locked", Evidence(path))


def prove_distributions(
    path: str, present: Mapping[str, Distribution], locked: Mapping[str, str]
) -> Findings:
    for name, version in locked.items():
        found = present.get(name)
        if found is None:
            what = f"{name} {version} is locked, but is not installed in {path}"
            yield fault(what, Evidence(path, said=f"no {name}-{version}.dist-info"), hint=REBUILD)
        elif not same_version(found.version, version):
            yield fault(
                f"{name} is installed as {found.version}, but locked as {version}",
                Evidence(f"{found.path}/METADATA", symbol="Version", said=found.version),
                hint=REBUILD,
            )
        elif not found.record:
            what = f"{name} {version} in {path} is incomplete"
            yield fault(what, Evidence(found.path, said="has no METADATA and RECORD"), hint=REBUILD)


def prove_unlocked(
    subject: Subject, path: str, present: Mapping[str, Distribution], locked: Mapping[str, str]
) -> Findings:
    """A warning of distributions that neither a lock, a package nor an overlay brings."""
    more = sorted(present.keys() - locked.keys())
    provenance = subject.provenance if more else None
    traces = provenance.traces if provenance else {}
    found = [traces.get(f"{present[name].path}/METADATA") for name in more]
    known = (TraceKind.PACKAGE, TraceKind.OVERLAY)
    unknown = [
        name
        for name, trace in zip(more, found, strict=True)
        if not trace or trace.kind not in known
    ]
    if unknown:
        yield warning(
            f"{path} has distributions that no lock names: {some(unknown)}",
            *(Evidence(present[name].path, said=present[name].version) for name in unknown[:3]),
            hint="add them to the file that `python: requirements:` of the overlay names, with "
            "their digests, or place them with `files:` of an overlay",
        )


def same_version(one: str, other: str) -> bool:
    try:
        return Version(one) == Version(other)
    except InvalidVersion:
        return one == other


def prove_imports(works: PythonWorks, site: str, said: Environment) -> Findings:
    if said.failure:
        what = f"the Python of {works.path} does not run: {said.failure}"
        hint = f"run imagebuilder shell PROFILE -c '{works.path}/bin/python -V' to see it"
        yield fault(what, Evidence(f"{works.path}/bin/python", said=said.failure), hint=hint)
        return
    for name in works.imports:
        module = said.modules[name]
        if module.error:
            yield fault(
                f"{name} does not import in {works.path}: {module.error}",
                Evidence(module.path or site, section=f"line {module.line}", said=module.error),
                hint=import_hint(module.error),
            )
        else:
            what = f"{name} {module.version} imports with Python {said.python}".replace("  ", " ")
            yield fact(what, Evidence(f"{site}/{name.replace('.', '/')}"))
    if said.torch:
        yield from prove_torch(works, f"{site}/torch", said.torch)
    elif works.platform != "cpu" and not any(m.error for m in said.modules.values()):
        what = f"{works.path} is for {WORDS[works.platform]}, but nothing in it imports torch"
        hint = "add torch to the `imports:` of that environment, and to its requirements"
        yield fault(what, Evidence(site), hint=hint)


def import_hint(error: str) -> str:
    if "cannot open shared object file" in error:
        return "a package of the profile must install that library; see the question `libraries`"
    if error.startswith("ModuleNotFoundError"):
        return "the requirements lack it: recreate them with everything that their packages need"
    return "try it by hand in the image: imagebuilder shell PROFILE"


def prove_torch(works: PythonWorks, place: str, torch: Torch) -> Findings:
    made = {"cuda": torch.cuda, "rocm": torch.hip, "xpu": torch.xpu}
    kinds = [kind for kind, version in made.items() if version]
    shown = " and ".join(f"{WORDS[kind]} {made[kind]}" for kind in kinds) or WORDS["cpu"]
    where = Evidence(f"{place}/version.py", said=f"{torch.version}, for {shown}")
    if works.platform == "cpu":
        if kinds:
            what = f"torch is built for {shown}, but the profile computes on the processor"
            hint = "use wheels for the processor: they are gigabytes smaller"
            yield warning(what, where, hint=hint)
        else:
            yield fact(f"torch {torch.version} is built for the processor", where)
        return
    if works.platform not in kinds:
        yield fault(
            f"torch {torch.version} is built for {shown}, but the profile is for "
            f"{WORDS[works.platform]} {works.cuda}".rstrip(),
            where,
            hint=f"use torch from requirements for {WORDS[works.platform]}, and what needs it",
        )
        return
    if works.cuda and torch.cuda != works.cuda:
        what = f"torch is built with CUDA {torch.cuda}, but the profile is for CUDA {works.cuda}"
        hint = f"pin a torch that is built with CUDA {works.cuda}, and what is built against it"
        yield fault(what, where, hint=hint)
        return
    yield fact(f"torch {torch.version} is built for {shown}", where)
    if works.target:
        yield prove_target(works, place, torch)


def prove_target(works: PythonWorks, place: str, torch: Torch) -> Finding:
    flags = " ".join(torch.flags) or "nothing"
    where = Evidence(place, symbol="torch._C._cuda_getArchFlags()", said=flags)
    native = [flag for flag in torch.flags if runs_natively(flag, works.target)]
    if native:
        return fact(f"torch has code for {works.target}: {native[-1]}", where)
    forward = [flag for flag in torch.flags if runs_forward(flag, works.target)]
    if forward:
        what = f"torch has only PTX for {works.target}: {forward[-1]}"
        hint = "it works, but the driver compiles it at first use, which takes minutes at every "
        hint += "boot of a node without a persistent cache"
        return warning(what, where, hint=hint)
    what = f"torch has no code for {works.target}; it has {flags}"
    return fault(what, where, hint=f"use a torch that is built with {works.target}")


def runs_natively(flag: str, target: str) -> bool:
    """Whether code for one of torch's targets runs on a card as it is.

    For CUDA, code for a compute capability runs on those with the same major and an equal or higher
    minor number (CUDA C++ programming guide, binary compatibility).
    """
    code, card = ENTRY.fullmatch(flag), ENTRY.fullmatch(target)
    if not code or not card:
        return flag == target
    same = flag.rstrip("af") == flag or flag == target
    return (
        same
        and code["kind"] == "sm"
        and code["major"] == card["major"]
        and int(code["minor"]) <= int(card["minor"])
    )


def runs_forward(flag: str, target: str) -> bool:
    """Whether it is PTX that the driver can compile for the card."""
    code, card = ENTRY.fullmatch(flag), ENTRY.fullmatch(target)
    if not code or not card or code["kind"] != "compute" or flag.rstrip("af") != flag:
        return False
    return (int(code["major"]), int(code["minor"])) <= (int(card["major"]), int(card["minor"]))
