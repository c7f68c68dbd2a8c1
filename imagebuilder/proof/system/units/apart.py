# SPDX-License-Identifier: Apache-2.0
"""What keeps services apart: a /tmp of their own, in which two share a socket, and fences against
packets of other machines, which a drop-in opens.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import is_false
from imagebuilder.proof.reading.site import SiteService, services_of, site_services
from imagebuilder.proof.reading.systemd import LoadedUnit, said_in
from imagebuilder.proof.reading.units import is_below, service_lines, unit_paths
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.root import Root

TOPS = ("/tmp", "/var/tmp")
# A socket: its scheme or the end of its name says so.
SOCKET = re.compile(r"(?:(?:unix|ipc):/{0,2}(?=/)|(?<![\w/:.]))(?P<path>/(?:var/)?tmp/[\w./+-]+)")
NAMED = re.compile(r".*\.sock(et)?")
# CUDA's programs open the control daemon's pipe by themselves (CUDA Multi-Process Service,
# CUDA_MPS_PIPE_DIRECTORY; NVIDIA/nvidia-container-toolkit #714).
DAEMON, PIPES, DEFAULT, BACKEND = (
    "nvidia-cuda-mps-control", "CUDA_MPS_PIPE_DIRECTORY", "/tmp/nvidia-mps", "cuda",
)  # fmt: skip
DENY, ALLOW = "IPAddressDeny", "IPAddressAllow"
ANY = frozenset(("any", "0.0.0.0/0"))


def prove_private_tmp(subject: Subject) -> Iterator[Finding]:
    """Warnings: a service may do without the other one."""
    services = {service.name: service for service in site_services(subject)}
    for daemon in services_of(subject, DAEMON):
        users = (each for each in services.values() if is_user(subject, daemon, each))
        yield from prove_shared(subject, daemon, users, pipes_of(daemon))
    sharing: dict[str, list[SiteService]] = {}
    for service in services.values():
        for path in dict.fromkeys(sockets_of(service)):
            sharing.setdefault(path, []).append(service)
    for path, (first, *others) in sharing.items():
        yield from prove_shared(subject, first, others, path)


def pipes_of(service: SiteService) -> str:
    variable = service.environment.get(PIPES)
    return variable.value.rstrip("/") if variable else DEFAULT


def is_user(subject: Subject, daemon: SiteService, service: SiteService) -> bool:
    """Whether a service looks for the daemon's pipe: it computes with CUDA, and names no other."""
    engines = subject.expectations.engines
    computes = any(e.unit == service.name and BACKEND in e.backends for e in engines)
    computes = computes or any("nvidia" in each for each in service.unit.every("DeviceAllow"))
    named = computes or PIPES in service.environment
    return named and service.name != daemon.name and pipes_of(service) == pipes_of(daemon)


def sockets_of(service: SiteService) -> Iterator[str]:
    """The sockets in /tmp that command line and variables name."""
    for text in (*service.words, *(each.value for each in service.environment.values())):
        for found in SOCKET.finditer(text):
            if found[0] != found["path"] or NAMED.fullmatch(found["path"]):
                yield posixpath.normpath(found["path"])


def prove_shared(
    subject: Subject, first: SiteService, others: Iterable[SiteService], path: str
) -> Iterator[Finding]:
    apart = [each for each in others if are_apart(first, each, path)]
    if not apart:
        return
    private = [each for each in (first, *apart) if is_separate(each, path)]
    what = f"{some(each.name for each in apart)} and {first.name} do not share {path}: "
    what += f"{some(each.name for each in private)} with PrivateTmp= see another {top_of(path)}"
    where = (said_in(subject.root, each.unit, "PrivateTmp") for each in private)
    hint = "put it into a folder below /run that every service may enter, or use JoinsNamespaceOf="
    yield SAY.warning(what, *where, hint=hint)


def top_of(path: str) -> str:
    return next((top for top in TOPS if is_below(path, top)), "")


def is_separate(service: SiteService, path: str) -> bool:
    """Whether a service sees another folder in the place of the node's."""
    value = service.unit.last("PrivateTmp", "no")
    is_private = not is_false(value) or service.unit.last("DynamicUser") == "yes"
    bound = unit_paths(service.unit, "BindPaths", "BindReadOnlyPaths")
    return is_private and not any(is_below(path, each.target) for each in bound)


def are_apart(one: SiteService, other: SiteService, path: str) -> bool:
    if not top_of(path):
        return False
    separate = [each for each in (one, other) if is_separate(each, path)]
    joined = {(a.name, b.name) for a, b in ((one, other), (other, one)) if joins(a, b)}
    return bool(separate) and not (len(separate) > 1 and joined)


def joins(one: SiteService, other: SiteService) -> bool:
    return other.name in one.unit.firsts("JoinsNamespaceOf")


def prove_fences(subject: Subject) -> Iterator[Finding]:
    """Warnings about drop-ins that remove what keeps the packets of strangers from a service."""
    for unit in subject.startup.starting():
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
