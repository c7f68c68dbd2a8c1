# SPDX-License-Identifier: Apache-2.0
"""What an engine computes on with the device, and without it.

An engine that finds no accelerator continues on the processor, at a hundredth of the speed, and
looks healthy.  So each must be able to use the profile's device, and its service must fail to
start if the device is missing.
"""

from __future__ import annotations

import posixpath
import re

from imagebuilder.image.proof import Evidence, Findings, Level, fact, fault, warning
from imagebuilder.proof.reading.commands import GuardRun, run_guards
from imagebuilder.proof.reading.python import inspect_environment
from imagebuilder.proof.reading.units import find_unit
from imagebuilder.proof.say import CUT_OFF, prove_answered, some
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import EngineKind, find_engine
from imagebuilder.recipe.expectations import ExpectedEngine
from imagebuilder.recipe.model_engine import DevicesModel

MISSING = re.compile(
    r"^[ \t]*(?P<name>\S+) => not found|undefined symbol: (?P<symbol>[^\s,]+)", re.M
)
DEVICE = re.compile(r"^[ \t]+(?P<name>[A-Za-z]+\d+): (?P<what>.*)$", re.M)
SOFTWARE = ("llvmpipe", "swiftshader", "lavapipe", "softpipe")
TORCH = {"cuda": "cuda", "hip": "hip", "sycl": "xpu"}


def prove_fallback(subject: Subject) -> Findings:
    engines = subject.expectations.engines
    if subject.targets and engines and not any(e.backends or e.allow_cpu for e in engines):
        names = " and ".join(dict.fromkeys(engine.engine for engine in engines))
        choices = (find_engine(subject.engines, engine.engine).choice for engine in engines)
        yield fault(
            f"the profile is for {' and '.join(subject.targets)}, but {names} can only use the "
            "processor",
            *(Evidence(engine.path or engine.unit, said="no backend") for engine in engines),
            hint=f"choose a backend for the card: {' or '.join(dict.fromkeys(choices))}",
        )
        return
    for engine in engines:
        yield from prove_engine(subject, engine)


def prove_engine(subject: Subject, engine: ExpectedEngine) -> Findings:
    kind = find_engine(subject.engines, engine.engine)
    able = [*prove_plugins(subject, engine, kind), *prove_platform(subject, engine, kind)]
    yield from able
    if not engine.backends:
        if not any(finding.level is Level.FAULT for finding in able):
            what = f"{engine.engine}: meant to run on the processor"
            yield fact(what, Evidence(engine.path or engine.unit))
        return
    without = list(prove_guard(subject, engine))
    yield from (finding for finding in without if finding.level is not Level.FACT)
    if all(finding.level is Level.FACT for finding in (*able, *without)):
        first, *others = engine.backends
        chosen = ", then ".join((first, *others))
        said = without[0].what if without else "nothing starts it"
        evidence = without[0].evidence if without else ()
        yield fact(f"{engine.engine}: with the device {chosen}; without it {said}", *evidence)


def prove_guard(subject: Subject, engine: ExpectedEngine) -> Findings:
    """A fault, or a fact: what the service does without the device."""
    if not engine.unit:
        return
    unit = find_unit(subject.root, engine.unit)
    if unit is None:
        what = f"{engine.unit} does not exist"
        hint = "ship it below files/ of the overlay that expects it"
        yield fault(what, Evidence(f"/etc/systemd/system/{engine.unit}"), hint=hint)
        return
    path = unit.paths[0]
    if engine.allow_cpu:
        yield fact("the processor, as the recipe allows", Evidence(path))
        return
    runs = list(run_guards(subject, unit))
    for run in runs:
        if run.broken:
            what = f"{engine.unit} never starts: the check for the device does not run"
            hint = "the check must be in the image and executable, and find what it calls"
            yield fault(what, shown(path, run), hint=hint)
            return
    refusing = next((run for run in runs if run.refuses), None)
    if refusing:
        yield fact(f"{engine.unit} refuses to start", shown(path, refusing))
        return
    what = "starts without the device" if runs else "does not check for the device"
    yield fault(
        f"{engine.engine} would compute on the processor and nobody would notice: "
        f"{engine.unit} {what}",
        *(shown(path, run) for run in runs),
        *([] if runs else [Evidence(path, section="[Service]", said="no ExecStartPre=")]),
        hint="add to the unit an ExecStartPre= that fails without the device",
    )


def shown(path: str, run: GuardRun) -> Evidence:
    said = f"{run.command}: exit status {run.status}" + (f", {run.said}" if run.said else "")
    return Evidence(path, section="[Service]", symbol=run.key, said=said)


def prove_plugins(subject: Subject, engine: ExpectedEngine, kind: EngineKind) -> Findings:
    """The file of each wanted backend exists and loads; without a device none is listed.

    An engine silently skips a missing file, or one whose libraries are missing (such as ggml's
    ggml_backend_load_best), and then falls back to the processor.
    """
    plugins, devices = kind.model.plugins, kind.model.devices
    faulty = False
    yield from prove_folder(subject, kind)
    for backend in engine.backends if plugins else ():
        for finding in prove_plugin(subject, kind, backend):
            faulty = True
            yield finding
    if faulty or not devices:
        return
    if engine.backends or subject.root.is_file(devices.command[0]):
        yield from prove_no_device(subject, kind.title, devices)


def prove_folder(subject: Subject, kind: EngineKind) -> Findings:
    """Warnings of files that a package ships beside its backends, and that were removed.

    An engine silently chooses among them, as ggml does among builds for the processor.
    """
    found = subject.root.glob(*kind.files_of("*"))
    folders = set(map(posixpath.dirname, found))
    gone = sorted(
        path
        for path in subject.shipped
        if posixpath.dirname(path) in folders and not subject.root.lies(path)
    )
    if gone:
        what = f"{kind.title} lacks {some(gone)}, which the package of its backends ships: it "
        what += "silently uses a slower one, or none"
        hint = "do not remove them (prune: of the recipe, scripts of overlays)"
        yield warning(what, *(Evidence(path) for path in gone), hint=hint)


def prove_plugin(subject: Subject, kind: EngineKind, backend: str) -> Findings:
    globs = kind.files_of(backend)
    found = subject.root.glob(*globs)
    if not found:
        folder, _, rest = globs[0].partition("*")
        what = f"{kind.title} has no backend {backend}, and would ignore that silently"
        hint = f"install {kind.package_of(backend)}, or remove {backend} from {kind.choice}"
        yield fault(what, Evidence(folder.rstrip("/"), said=f"no *{rest}"), hint=hint)
        return
    done = subject.run(["ldd", "-r", found[0]])
    if done.late or done.status == CUT_OFF:
        yield from prove_answered(done, f"whether {backend} loads", Evidence(found[0]))
        return
    lacks = [
        match["name"] or match["symbol"] for match in MISSING.finditer(done.stdout + done.stderr)
    ]
    if lacks or done.status:
        what = ", ".join(dict.fromkeys(lacks)) or (done.stderr.strip().splitlines() or ["?"])[-1]
        yield fault(
            f"the backend {backend} does not load, and {kind.title} would skip it silently",
            Evidence(found[0], section=".dynamic", said=f"lacks {what}"),
            hint="a package of the profile must provide it; see the question `libraries`",
        )


def prove_no_device(subject: Subject, title: str, devices: DevicesModel) -> Findings:
    program = devices.command[0]
    done = subject.run(devices.command)
    if done.late or done.status == CUT_OFF:
        unread = f"which devices {title} lists without one"
        yield from prove_answered(done, unread, Evidence(program))
    elif done.status:
        last = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.status}"]
        command = " ".join((posixpath.basename(program), *devices.command[1:]))
        what = f"{posixpath.basename(program)} does not run: {last[-1]}"
        hint = f"run imagebuilder shell PROFILE -c '{command}' to see it"
        yield fault(what, Evidence(program, said=f"exit status {done.status}"), hint=hint)
    if done.status:
        return
    for match in DEVICE.finditer(done.stdout + done.stderr):
        name, what = match["name"], match["what"]
        if name.startswith(tuple(devices.processor)):
            continue
        software = any(word in what.lower() for word in SOFTWARE)
        yield fault(
            f"{title} lists {'the processor' if software else name} as a device although there "
            "is none",
            Evidence(program, symbol=name, said=what),
            hint="remove software Vulkan with `prune: [/usr/share/vulkan/icd.d/lvp_icd.json]`",
        )


def prove_platform(subject: Subject, engine: ExpectedEngine, kind: EngineKind) -> Findings:
    """Faults only; the question `python` reports an environment without the engine.

    A program of its overlay reports what it chooses without a device.  A build for the processor
    chooses the processor, and never checks for anything else.
    """
    if not kind.model.platform:
        return
    title, module = kind.title, kind.model.platform.module
    said = inspect_environment(subject, engine.path)
    where = Evidence(f"{engine.path}/bin/{module}")
    found = said.platforms.get(kind.name)
    if said.failure or said.torch is None or found is None:
        why = said.failure or f"it does not import {module} and torch"
        what = f"cannot determine what {title} would compute on: {why}"
        yield fault(what, where, hint="see the question `python`")
        return
    if found.error:
        hint = (
            f"run imagebuilder shell PROFILE -c '{engine.path}/bin/python -c \"import {module}\"'"
        )
        yield fault(f"{title} cannot choose a platform: {found.error}", where, hint=hint)
        return
    chosen = Evidence(
        where.path, symbol=module, said=f"{found.platform}, device {found.device or 'none'}"
    )
    if not engine.backends:
        if found.device != "cpu":
            what = f"{title} must compute on the processor, but is not built for it"
            yield fault(what, chosen, hint=f"choose the build for the processor with {kind.choice}")
        return
    if found.device == "cpu":
        yield fault(
            f"{title} is built for the processor: it would compute there even with a device, and "
            "nobody would notice",
            chosen,
            hint=f"use the requirements of a variant for {engine.backends[0]}",
        )
        return
    for backend in engine.backends:
        if not getattr(said.torch, TORCH.get(backend, ""), ""):
            what = f"{title} cannot use {backend}: its torch {said.torch.version} is built for "
            what += "something else"
            hint = f"use torch and {module} from requirements for {backend}"
            yield fault(what, chosen, hint=hint)
