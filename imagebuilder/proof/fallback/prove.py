# SPDX-License-Identifier: Apache-2.0
"""What computes when the device is there, and what when it is not?

An engine that finds no accelerator goes on with the processor, at a hundredth of the speed, and
looks healthy.  So each must be able to use what the profile is for, and where the device is missing
its service must fail to start.
"""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding, Level
from imagebuilder.proof.access.units import find_unit
from imagebuilder.proof.fallback import SAY
from imagebuilder.proof.fallback.guard import Look, looks
from imagebuilder.proof.fallback.platform import prove_platform
from imagebuilder.proof.fallback.plugins import prove_plugins
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import find_engine
from imagebuilder.recipe.expectations import ExpectedEngine


def prove_fallback(subject: Subject) -> Iterator[Finding]:
    """What is found of every engine of the profile."""
    engines = subject.expectations.engines
    if subject.targets and engines and not any(e.backends or e.allow_cpu for e in engines):
        names = " and ".join(dict.fromkeys(engine.engine for engine in engines))
        choices = (find_engine(subject.engines, engine.engine).choice for engine in engines)
        yield SAY.fault(
            f"the profile is for {' and '.join(subject.targets)}, and {names} can only use the "
            "processor",
            *(Evidence(engine.path or engine.unit, said="no backend") for engine in engines),
            hint=f"choose a backend for the card: {' or '.join(dict.fromkeys(choices))}",
        )
        return
    for engine in engines:
        yield from prove_engine(subject, engine)


def prove_engine(subject: Subject, engine: ExpectedEngine) -> Iterator[Finding]:
    """What the engine can use, and what its service does without the device."""
    kind = find_engine(subject.engines, engine.engine)
    able = [*prove_plugins(subject, engine, kind), *prove_platform(subject, engine, kind)]
    yield from able
    if not engine.backends:
        if not any(finding.level is Level.FAULT for finding in able):
            yield SAY.fact(
                f"{engine.engine}: the processor is what is wanted",
                Evidence(engine.path or engine.unit),
            )
        return
    without = list(prove_guard(subject, engine))
    yield from (finding for finding in without if finding.level is not Level.FACT)
    if all(finding.level is Level.FACT for finding in (*able, *without)):
        first, *others = engine.backends
        chosen = ", then ".join((first, *others))
        said = without[0].what if without else "nothing starts it"
        evidence = without[0].evidence if without else ()
        yield SAY.fact(
            f"{engine.engine}: with the device {chosen}; without it {said}",
            *evidence,
        )


def prove_guard(subject: Subject, engine: ExpectedEngine) -> Iterator[Finding]:
    """A fault, or the fact of what the service does without the device."""
    if not engine.unit:
        return
    unit = find_unit(subject.root, engine.unit)
    if unit is None:
        yield SAY.fault(
            f"there is no {engine.unit}",
            Evidence(f"/etc/systemd/system/{engine.unit}"),
            hint="the overlay that expects it is to bring it below files/",
        )
        return
    path = unit.paths[0]
    if engine.allow_cpu:
        yield SAY.fact("the processor, as the recipe allows", Evidence(path))
        return
    tried = list(looks(subject, unit))
    for look in tried:
        if look.broken:
            yield SAY.fault(
                f"{engine.unit} never starts: what looks for the device does not run",
                shown(path, look),
                hint="it must be in the image, executable, and find what it calls",
            )
            return
    refusing = next((look for look in tried if look.refuses), None)
    if refusing:
        yield SAY.fact(f"{engine.unit} refuses to start", shown(path, refusing))
        return
    what = "passes without one" if tried else "is not looked for"
    yield SAY.fault(
        f"{engine.engine} would compute on the processor and nobody would notice: the device of "
        f"{engine.unit} {what}",
        *(shown(path, look) for look in tried),
        *([] if tried else [Evidence(path, section="[Service]", said="no ExecStartPre=")]),
        hint="give the unit an ExecStartPre= that fails without the device",
    )


def shown(path: str, look: Look) -> Evidence:
    said = f"{look.command}: exit status {look.status}" + (f", {look.said}" if look.said else "")
    return Evidence(path, section="[Service]", symbol=look.key, said=said)
