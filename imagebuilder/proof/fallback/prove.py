# SPDX-License-Identifier: Apache-2.0
"""What an engine computes on with the device, and without it.

An engine that finds no accelerator continues on the processor, at a hundredth of the speed, and
looks healthy.  So each must be able to use the profile's device, and its service must fail to
start if the device is missing.
"""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding, Level
from imagebuilder.proof.fallback import SAY
from imagebuilder.proof.fallback.engines import prove_platform, prove_plugins
from imagebuilder.proof.reading.commands import GuardRun, run_guards
from imagebuilder.proof.reading.units import find_unit
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import find_engine
from imagebuilder.recipe.expectations import ExpectedEngine


def prove_fallback(subject: Subject) -> Iterator[Finding]:
    engines = subject.expectations.engines
    if subject.targets and engines and not any(e.backends or e.allow_cpu for e in engines):
        names = " and ".join(dict.fromkeys(engine.engine for engine in engines))
        choices = (find_engine(subject.engines, engine.engine).choice for engine in engines)
        yield SAY.fault(
            f"the profile is for {' and '.join(subject.targets)}, but {names} can only use the "
            "processor",
            *(Evidence(engine.path or engine.unit, said="no backend") for engine in engines),
            hint=f"choose a backend for the card: {' or '.join(dict.fromkeys(choices))}",
        )
        return
    for engine in engines:
        yield from prove_engine(subject, engine)


def prove_engine(subject: Subject, engine: ExpectedEngine) -> Iterator[Finding]:
    """Findings about what the engine can use, and what its service does without the device."""
    kind = find_engine(subject.engines, engine.engine)
    able = [*prove_plugins(subject, engine, kind), *prove_platform(subject, engine, kind)]
    yield from able
    if not engine.backends:
        if not any(finding.level is Level.FAULT for finding in able):
            what = f"{engine.engine}: meant to run on the processor"
            yield SAY.fact(what, Evidence(engine.path or engine.unit))
        return
    without = list(prove_guard(subject, engine))
    yield from (finding for finding in without if finding.level is not Level.FACT)
    if all(finding.level is Level.FACT for finding in (*able, *without)):
        first, *others = engine.backends
        chosen = ", then ".join((first, *others))
        said = without[0].what if without else "nothing starts it"
        evidence = without[0].evidence if without else ()
        yield SAY.fact(f"{engine.engine}: with the device {chosen}; without it {said}", *evidence)


def prove_guard(subject: Subject, engine: ExpectedEngine) -> Iterator[Finding]:
    """A fault, or a fact: what the service does without the device."""
    if not engine.unit:
        return
    unit = find_unit(subject.root, engine.unit)
    if unit is None:
        what = f"{engine.unit} does not exist"
        hint = "ship it below files/ of the overlay that expects it"
        yield SAY.fault(what, Evidence(f"/etc/systemd/system/{engine.unit}"), hint=hint)
        return
    path = unit.paths[0]
    if engine.allow_cpu:
        yield SAY.fact("the processor, as the recipe allows", Evidence(path))
        return
    runs = list(run_guards(subject, unit))
    for run in runs:
        if run.broken:
            what = f"{engine.unit} never starts: the check for the device does not run"
            hint = "the check must be in the image and executable, and find what it calls"
            yield SAY.fault(what, shown(path, run), hint=hint)
            return
    refusing = next((run for run in runs if run.refuses), None)
    if refusing:
        yield SAY.fact(f"{engine.unit} refuses to start", shown(path, refusing))
        return
    what = "starts without the device" if runs else "does not check for the device"
    yield SAY.fault(
        f"{engine.engine} would compute on the processor and nobody would notice: "
        f"{engine.unit} {what}",
        *(shown(path, run) for run in runs),
        *([] if runs else [Evidence(path, section="[Service]", said="no ExecStartPre=")]),
        hint="add to the unit an ExecStartPre= that fails without the device",
    )


def shown(path: str, run: GuardRun) -> Evidence:
    said = f"{run.command}: exit status {run.status}" + (f", {run.said}" if run.said else "")
    return Evidence(path, section="[Service]", symbol=run.key, said=said)
