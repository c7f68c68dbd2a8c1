# SPDX-License-Identifier: Apache-2.0
"""The question `services`: whether the declared services work with their merged units.

Checks the services and engines that overlays declare.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from imagebuilder.image.proof import Evidence, Findings, fact
from imagebuilder.proof.reading.commands import CommandLine, command_of
from imagebuilder.proof.reading.environment import Environment, environment_of
from imagebuilder.proof.reading.nodes import opened_by
from imagebuilder.proof.reading.systemd import LoadedUnit, find_loaded
from imagebuilder.proof.services import devices, settings, start
from imagebuilder.proof.services.containers import prove_containers
from imagebuilder.proof.services.programs import (
    Confined,
    prove_caches,
    prove_confinement,
    prove_executable,
    prove_platform_plugins,
    prove_readiness,
    prove_watchdog,
)
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import EngineKind, find_engine
from imagebuilder.recipe.expectations import Device, ExpectedEngine


def prove_services(subject: Subject) -> Findings:
    """Findings about logins, containers, and the services that overlays declare."""
    yield from devices.prove_sessions(subject)
    yield from prove_containers(subject)
    expected = subject.expectations
    if not expected.units:
        return
    yield from devices.prove_units(subject)
    yield from settings.prove_hosts(subject)
    engines = {engine.unit: engine for engine in expected.engines}
    for name in expected.units:
        unit = find_loaded(subject.startup, name)
        # The question `access` reports a missing or masked one.
        if unit is None:
            continue
        found = list(prove_service(subject, unit, engines.get(name)))
        yield from found
        if not found:
            yield fact(f"{name} runs as its overlay declares", *(Evidence(p) for p in unit.paths))


def prove_service(subject: Subject, unit: LoadedUnit, engine: ExpectedEngine | None) -> Findings:
    environment = environment_of(subject, unit)
    backends = backends_of(subject, engine)
    programs = [words[0] for words in unit.commands.get("ExecStart", ()) if words]
    serves = False
    if engine:
        kind = find_engine(subject.engines, engine.engine)
        line = line_of(unit, kind, environment)
        serves = settings.serves_others(subject, line, kind)
        yield from prove_engine(subject, line, kind, engine)
        yield from settings.prove_threads(subject.startup, unit, line, kind)
        yield from settings.prove_lent(subject.startup, line, kind)
        yield from settings.prove_port(subject, unit, line, kind)
        yield from settings.prove_model(subject, unit.name, kind, environment)
        programs += [p for b in backends for g in kind.files_of(b) for p in subject.root.glob(g)]
        yield from start.prove_program(subject, line, kind)
        if kind.model.platform:
            modules = ("torch", kind.model.platform.module)
            yield from devices.prove_python_path(subject, unit.name, modules, environment)
            yield from prove_platform_plugins(
                subject, unit.name, engine.path, kind.model.platform.module, environment
            )
        if backends and not engine.allow_cpu and programs:
            opened = devices_of(subject, backends)
            yield from start.prove_others(subject, unit, programs[0], opened)
    yield from start.prove_conditions(subject, unit)
    yield from start.prove_files(subject, unit, environment)
    yield from start.prove_lines(subject, unit)
    service = Confined(unit, devices_of(subject, backends), serves, bool(backends))
    yield from prove_confinement(subject.root, subject.startup, service)
    yield from prove_executable(subject.root, unit)
    yield from prove_watchdog(subject.root, unit)
    yield from prove_readiness(subject.root, unit)
    yield from prove_variables(subject, unit, backends, environment)
    yield from devices.prove_search(subject, unit.name, programs, environment)
    yield from devices.prove_interfaces(subject, unit.name, environment)
    yield from prove_caches(subject, unit, environment)


def devices_of(subject: Subject, backends: Sequence[str]) -> tuple[Device, ...]:
    opened = opened_by(backends)
    return tuple(d for d in subject.expectations.devices if opened and d.path.startswith(opened))


def prove_variables(
    subject: Subject, unit: LoadedUnit, backends: Sequence[str], environment: Environment
) -> Findings:
    yield from devices.prove_hindrances(unit.name, backends, environment, subject.chips)
    yield from devices.prove_emulation(unit.name, backends, environment)
    yield from devices.prove_selection(unit.name, backends, environment)
    if backends:
        yield from devices.prove_disguise(subject, unit.name, environment)
    if "vulkan" in backends:
        yield from devices.prove_drivers(subject, unit.name, environment)


def backends_of(subject: Subject, engine: ExpectedEngine | None) -> tuple[str, ...]:
    """The backends of an engine; a service without one may use those of all engines."""
    if engine:
        return engine.backends
    engines = subject.expectations.engines
    return tuple(dict.fromkeys(backend for each in engines for backend in each.backends))


def prove_engine(
    subject: Subject, line: CommandLine, kind: EngineKind, engine: ExpectedEngine
) -> Findings:
    if engine.backends and not engine.allow_cpu:
        yield from settings.prove_processor(line, kind)
    yield from settings.prove_values(line, kind)
    yield from settings.prove_address(subject, line, kind)
    yield from settings.prove_accepted(subject, line, kind)
    yield from settings.prove_known(subject, line, kind)


def engine_lines(subject: Subject) -> Iterator[tuple[LoadedUnit, EngineKind, CommandLine]]:
    """The units of engines that systemd loads, the engine of each, and its command line."""
    for engine in subject.expectations.engines:
        unit = find_loaded(subject.startup, engine.unit) if engine.unit else None
        if unit is not None:
            kind = find_engine(subject.engines, engine.engine)
            yield unit, kind, line_of(unit, kind, environment_of(subject, unit))


def line_of(unit: LoadedUnit, kind: EngineKind, environment: Environment) -> CommandLine:
    """The command line of an engine's service, with the arguments that a variable adds."""
    written = unit.commands.get("ExecStart", ((),))[-1]
    return command_of(unit, written, environment, kind.model.arguments)
