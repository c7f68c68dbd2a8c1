# SPDX-License-Identifier: Apache-2.0
"""Ports that two programs use: the second one fails to start."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.services.environment import environment_of
from imagebuilder.proof.services.prove import find_loaded, line_of
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.proof.systemd import LoadedUnit, Startup
from imagebuilder.recipe.engines import find_engine

# Options that set where to listen; other mentions of a port, as by a proxy, are no conflict.
PORT = "PORT"
LISTENS = re.compile(
    rf"(\s-p|\s-l|--(http-)?port|--listen(-address)?|--bind|http\.server)[ =](\S*:)?{PORT}\s"
)
SSHD = re.compile(r"^\s*Port\s+(\d+)", re.IGNORECASE | re.MULTILINE)
FILES = ("/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d/*.conf")


def prove_ports(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Faults of units that start and use the port of an engine."""
    for engine in subject.expectations.engines:
        unit = find_loaded(startup, engine.unit) if engine.unit else None
        if unit is None:
            continue
        kind = find_engine(subject.engines, engine.engine)
        port = line_of(unit, kind, environment_of(subject, unit)).value(kind.model.settings, "port")
        if port is None or not port.value.isdecimal():
            continue
        for where in takers(subject, startup, unit, port.value):
            what = f"{unit.name} cannot listen on port {port.value}: something else has it"
            hint = "give one of them another port"
            yield SAY.fault(what, where, hint=hint)


def takers(subject: Subject, startup: Startup, unit: LoadedUnit, port: str) -> Iterator[Evidence]:
    for name in sorted(startup.units):
        other = startup.units[name]
        if other.name in (unit.name, "") or name != other.name or name not in startup.jobs:
            continue
        place = other.paths[0] if other.paths else name
        listed = [value for key in ("ListenStream", "Listen") for value in other.every(key)]
        taken = [value for value in listed if re.search(rf"(^|[:\]\s]){port}(\s|$)", value)]
        for words in other.commands.get("ExecStart", ()):
            if LISTENS.search(f"{' '.join(words)} ".replace(port, PORT)):
                taken.append(" ".join(words))
        if taken:
            yield Evidence(place, said=taken[0])
    for pattern in FILES:
        for path in subject.root.glob(pattern):
            if port in SSHD.findall(subject.root.text(path)):
                yield Evidence(path, said=f"Port {port}")
