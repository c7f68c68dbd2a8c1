# SPDX-License-Identifier: Apache-2.0
"""Folders and files that a site names for its service, and that are not there or closed to it; and
what keeps services apart: a /tmp of their own, in which two share a socket, and fences against
packets of other machines, which a drop-in opens.

A path of ReadWritePaths= and the like that is not there ends the service with 226/NAMESPACE, a
working directory with 200/CHDIR (systemd.exec(5)).
"""

from __future__ import annotations

import os
import posixpath
import re
import stat
from collections.abc import Iterable, Iterator, Mapping
from pathlib import PurePosixPath

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.proof.reading import scripts
from imagebuilder.proof.reading.accounts import UnitAccount, account_of
from imagebuilder.proof.reading.config import is_false
from imagebuilder.proof.reading.environment import environment_of, expanded, files_of
from imagebuilder.proof.reading.mounts import MADE, made_by, made_by_tmpfiles, with_tmpfiles
from imagebuilder.proof.reading.systemd import LoadedUnit, said_in
from imagebuilder.proof.reading.units import is_below, service_lines, unit_paths
from imagebuilder.proof.say import some
from imagebuilder.proof.services.programs import exempt
from imagebuilder.proof.services.start import is_there
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

NEEDED = (
    "ReadWritePaths", "ReadOnlyPaths", "InaccessiblePaths", "ExecPaths", "NoExecPaths",
    "BindPaths", "BindReadOnlyPaths", "WorkingDirectory", "RootDirectory",
)  # fmt: skip
# Settings with one path, before which systemd-analyze leaves out the -.
WHOLE = ("WorkingDirectory", "RootDirectory")
FOLDERS = ("WorkingDirectory", "ReadWritePaths")
# Folders of every image, in which nothing is closed to anybody; they would only take time.
OPEN = ("/usr/bin/", "/usr/lib/", "/usr/share/", "/bin/", "/dev/", "/proc/", "/sys/")
# Variables that name folders for every program, whether or not it may enter them.
PATHS = frozenset(("PATH", "HOME", "SHELL", "MANPATH", "LD_LIBRARY_PATH", "PYTHONPATH"))
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


def prove_paths(subject: Subject) -> Findings:
    units = list(subject.startup.starting())
    made = made_by_tmpfiles(subject)
    made |= {f"{top}/{word}" for unit in units for key, top in MADE.items()
             for value in unit.words(key) for word in [value.partition(":")[0]]}  # fmt: skip
    for unit in units:
        for key in NEEDED:
            where = said_in(subject.root, unit, key)
            is_optional = where.said.partition("=")[2].lstrip().startswith("-")
            if where.path in subject.shipped or (key in WHOLE and is_optional):
                continue
            for path in missing(subject, unit, key):
                if not any(is_below(other, path) for other in made):
                    what = f"{unit.name} does not start: {path} is not in the image ({key}=)"
                    hint = f"create it (StateDirectory=, tmpfiles.d(5)), or write {key}=-{path} "
                    hint += "if it may be missing"
                    yield fault(what, where, hint=hint)


def missing(subject: Subject, unit: LoadedUnit, key: str) -> Iterator[str]:
    """The paths of a setting that must be there, and that the image does not have."""
    for each in unit_paths(unit, key):
        path = each.source
        is_sure = not each.is_optional and path[:1] == "/" and "%" not in path and "$" not in path
        if is_sure and not is_there(subject, path):
            yield path


def prove_reach(subject: Subject) -> Findings:
    """Faults of paths in command lines, variables and settings of services that are not root; a
    warning where tmpfiles.d(5) closes a folder, since a program may open it later
    (bottlerocket-os/bottlerocket #4673: the sockets of MPS).
    """
    # At boot there is nothing in /run but what tmpfiles.d and services make.
    before = {path: i for path, i in subject.entries.items() if not path.startswith("/run/")}
    entries = with_tmpfiles(subject, before)
    made = {folder for unit in subject.startup.units.values() for folder in made_by(unit)}
    for unit in scripts.starting_units(subject):
        sources = [*unit.paths, *files_of(subject.root, unit)]
        account = account_of(unit, subject.accounts)
        if account is None or all(path in subject.shipped for path in sources):
            continue
        if unit.last("DynamicUser") == "yes" or unit.last("AmbientCapabilities"):
            continue
        seen: set[str] = set()
        for path, where in named_paths(subject, unit):
            closed = find_closed(entries, account, path)
            is_shipped = closed in before and entries[closed] == before[closed]
            is_made = not is_shipped and any(is_below(closed, folder) for folder in made)
            if closed and closed not in seen and not is_made:
                seen.add(closed)
                mode = stat.S_IMODE(entries[closed].st_mode)
                does = "read" if stat.S_ISREG(entries[closed].st_mode) else "enter"
                what = f"{unit.name} runs as {account.name}, who may not {does} {closed} (mode "
                what += f"{mode:04o}), and therefore cannot use {path}"
                hint = f"put it elsewhere, or give {account.name} the right to {does} {closed}"
                yield (fault if is_shipped else warning)(what, where, hint=hint)


def named_paths(subject: Subject, unit: LoadedUnit) -> Iterator[tuple[str, Evidence]]:
    """The absolute paths that a service is told, and where."""
    environment = environment_of(subject, unit)
    for name, variable in environment.items():
        if name not in PATHS and variable.value.startswith("/"):
            yield variable.value, variable.evidence(name)
    for key, words in unit.started():
        # A + gives a command all rights, and nobody waits for what a - ignores.
        free = exempt(subject.root, unit, key, words[0])
        for word in () if free else expanded(words, environment):
            path = word.partition("=")[2] if word.startswith("-") else word
            yield path, Evidence(unit.place, said=word)
    for key in FOLDERS:
        for word in unit.words(key):
            yield word.lstrip("-+"), Evidence(unit.place, said=f"{key}={word}")


def find_closed(entries: Mapping[str, os.stat_result], account: UnitAccount, path: str) -> str:
    """The first folder on the way that the account may not enter, or the file; "" if it may."""
    if not path.startswith("/") or path.startswith(OPEN) or posixpath.normpath(path) != path:
        return ""
    for folder in [os.fspath(each) for each in reversed(PurePosixPath(path).parents)][1:]:
        info = entries.get(folder)
        if info is None or stat.S_ISLNK(info.st_mode):
            return ""
        if not account.may(info, 1):
            return folder
    info = entries.get(path)
    if info is None or not stat.S_ISREG(info.st_mode) or info.st_mode & 0o111:
        return ""
    return "" if account.may(info, 4) else path


def prove_private_tmp(subject: Subject) -> Findings:
    """Warnings: a service may do without the other one."""
    services = {service.name: service for service in scripts.site_services(subject)}
    for daemon in scripts.services_of(subject, DAEMON):
        users = (each for each in services.values() if is_user(subject, daemon, each))
        yield from prove_shared(subject, daemon, users, pipes_of(daemon))
    sharing: dict[str, list[scripts.SiteService]] = {}
    for service in services.values():
        for path in dict.fromkeys(sockets_of(service)):
            sharing.setdefault(path, []).append(service)
    for path, (first, *others) in sharing.items():
        yield from prove_shared(subject, first, others, path)


def pipes_of(service: scripts.SiteService) -> str:
    variable = service.environment.get(PIPES)
    return variable.value.rstrip("/") if variable else DEFAULT


def is_user(subject: Subject, daemon: scripts.SiteService, service: scripts.SiteService) -> bool:
    """Whether a service looks for the daemon's pipe: it computes with CUDA, and names no other."""
    engines = subject.expectations.engines
    computes = any(e.unit == service.name and BACKEND in e.backends for e in engines)
    computes = computes or any("nvidia" in each for each in service.unit.every("DeviceAllow"))
    named = computes or PIPES in service.environment
    return named and service.name != daemon.name and pipes_of(service) == pipes_of(daemon)


def sockets_of(service: scripts.SiteService) -> Iterator[str]:
    """The sockets in /tmp that command line and variables name."""
    for text in (*service.words, *(each.value for each in service.environment.values())):
        for found in SOCKET.finditer(text):
            if found[0] != found["path"] or NAMED.fullmatch(found["path"]):
                yield posixpath.normpath(found["path"])


def prove_shared(
    subject: Subject, first: scripts.SiteService, others: Iterable[scripts.SiteService], path: str
) -> Findings:
    apart = [each for each in others if are_apart(first, each, path)]
    if not apart:
        return
    private = [each for each in (first, *apart) if is_separate(each, path)]
    what = f"{some(each.name for each in apart)} and {first.name} do not share {path}: "
    what += f"{some(each.name for each in private)} with PrivateTmp= see another {top_of(path)}"
    where = (said_in(subject.root, each.unit, "PrivateTmp") for each in private)
    hint = "put it into a folder below /run that every service may enter, or use JoinsNamespaceOf="
    yield warning(what, *where, hint=hint)


def top_of(path: str) -> str:
    return next((top for top in TOPS if is_below(path, top)), "")


def is_separate(service: scripts.SiteService, path: str) -> bool:
    """Whether a service sees another folder in the place of the node's."""
    value = service.unit.last("PrivateTmp", "no")
    is_private = not is_false(value) or service.unit.last("DynamicUser") == "yes"
    bound = unit_paths(service.unit, "BindPaths", "BindReadOnlyPaths")
    return is_private and not any(is_below(path, each.target) for each in bound)


def are_apart(one: scripts.SiteService, other: scripts.SiteService, path: str) -> bool:
    if not top_of(path):
        return False
    separate = [each for each in (one, other) if is_separate(each, path)]
    joined = {(a.name, b.name) for a, b in ((one, other), (other, one)) if joins(a, b)}
    return bool(separate) and not (len(separate) > 1 and joined)


def joins(one: scripts.SiteService, other: scripts.SiteService) -> bool:
    return other.name in one.unit.firsts("JoinsNamespaceOf")


def prove_fences(subject: Subject) -> Findings:
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
            yield warning(what, Evidence(path, "Service"), denying, hint=hint)


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
