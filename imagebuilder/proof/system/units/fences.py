# SPDX-License-Identifier: Apache-2.0
"""Services that their own unit keeps from other machines, and that a drop-in opens to all."""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.reading.units import service_lines
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.root import Root

DENY, ALLOW = "IPAddressDeny", "IPAddressAllow"
ANY = frozenset(("any", "0.0.0.0/0"))


def prove_fences(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings about drop-ins that remove what keeps the packets of strangers from a service."""
    for unit in startup.starting():
        if len(unit.paths) < 2:
            continue
        fenced, *others = unit.paths
        denied = said_of(subject.root, fenced, DENY)
        if denied and is_open(unit) and (path := opener(subject.root, others)):
            what = f"{unit.name} accepts packets from everywhere: {path} removes the unit's own "
            what += f"{DENY}={denied}"
            denying = Evidence(fenced, "Service", said=f"{DENY}={denied}")
            hint = f"name the machines that may reach it: {ALLOW}=ADDRESS, and leave {DENY}= alone"
            yield SAY.warning(what, Evidence(path, "Service"), denying, hint=hint)


def said_of(root: Root, path: str, key: str) -> str:
    """The value of a key that keeps out every address, "" if it has none in that file."""
    values = [value for name, value in service_lines(root.text(path)) if name == key]
    return next((value for value in values if ANY & set(value.split())), "")


def is_open(unit: LoadedUnit) -> bool:
    """Whether systemd lets packets of all addresses pass: what is allowed comes first."""
    return bool(ANY & set(unit.words(ALLOW))) or not ANY & set(unit.words(DENY))


def opener(root: Root, paths: list[str]) -> str:
    """The last of the drop-ins that mentions who may reach the service."""
    for path in reversed(paths):
        if any(key in (DENY, ALLOW) for key, _ in service_lines(root.text(path))):
            return path
    return ""
