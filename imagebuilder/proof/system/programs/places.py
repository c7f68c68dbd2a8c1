# SPDX-License-Identifier: Apache-2.0
"""Folders that variables of services and logins name: are they there, and can they be written?"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from imagebuilder.image.proof import Finding
from imagebuilder.proof.reading.accounts import account_of
from imagebuilder.proof.reading.environment import Environment, environment_of
from imagebuilder.proof.reading.made import made_by, made_by_tmpfiles
from imagebuilder.proof.reading.site import site_services
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.reading.unit_paths import is_below, unit_paths
from imagebuilder.proof.services.sessions import WHO, session_environment
from imagebuilder.proof.services.start import appears_later, is_there
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

# Where a runtime or an interpreter is installed, and what uses it looks nowhere else.
HOMES = re.compile(
    r"XILINX_XRT|ROCM_(PATH|HOME)|HIP_PATH|CUDA_(HOME|PATH)|ONEAPI_ROOT|JAVA_HOME|VIRTUAL_ENV|"
    r"CONDA_PREFIX"
)
TEMPORARY = frozenset(("TMPDIR", "TMP", "TEMP"))
# What compilers and libraries make while they compute; models are read, and may lie in the image.
CACHES = re.compile(
    r"(TRITON|TORCHINDUCTOR|NUMBA|SYCL|NEO|MESA_SHADER|VLLM|AMD_COMGR|XDG|FLASHINFER|DEEPGEMM)"
    r"_CACHE(_DIR|_ROOT|_HOME|_PATH)?|CUDA_CACHE_PATH|MIOPEN_(USER_DB_PATH|CUSTOM_CACHE_DIR)|"
    r"MPLCONFIGDIR|TORCH_EXTENSIONS_DIR"
)
# What ProtectSystem= makes read-only (systemd.exec(5)); with strict, it is everything.
PROTECTED = {"yes": ("/usr", "/boot", "/efi"), "full": ("/usr", "/boot", "/efi", "/etc")}
STRICT_EXCEPT = ("/dev", "/proc", "/sys")
OPENED = ("ReadWritePaths", "BindPaths", "TemporaryFileSystem")
HOME_FOLDERS = ("/home", "/root", "/run/user")
WRITE = 0o2


def prove_places(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings: a program may do without what it does not find."""
    yield from prove_there(subject, WHO, session_environment(subject.root), frozenset())
    units = {service.name: service.unit for service in site_services(subject, startup)}
    for unit in units.values():
        environment = environment_of(subject, unit)
        own = frozenset(made_by(unit))
        yield from prove_there(subject, unit.name, environment, own)
        for name, variable in environment.items():
            path = variable.value.rstrip("/")
            if not CACHES.fullmatch(name) or not is_plain(path) or covers(own, path):
                continue
            if why := unwritable(subject, unit, path):
                what = f"{unit.name} cannot write to {path} ({name}): {why}"
                hint = "use a folder below /var/cache, with CacheDirectory= in the unit"
                yield SAY.warning(what, variable.evidence(name), hint=hint)


def prove_there(
    subject: Subject, who: str, environment: Environment, own: frozenset[str]
) -> Iterator[Finding]:
    for name, variable in environment.items():
        path = variable.value.rstrip("/")
        is_home = HOMES.fullmatch(name)
        if not is_plain(path) or not (is_home or name in TEMPORARY) or covers(own, path):
            continue
        if is_missing(subject, path):
            what = f"{name}={variable.value} of {who} names a folder that is not in the image"
            hint = "remove that variable, or name the folder where it is installed"
            if not is_home:
                what += ": temporary files cannot be made there"
                hint = "remove that variable, or make the folder: tmpfiles.d(5)"
            yield SAY.warning(what, variable.evidence(name), hint=hint)


def is_plain(path: str) -> bool:
    return path.startswith("/") and not re.search(r"[$%:\s]", path)


def covers(folders: frozenset[str], path: str) -> bool:
    return any(is_below(path, folder) for folder in folders)


def is_missing(subject: Subject, path: str) -> bool:
    """Whether a node has nothing at a path, by the image, tmpfiles.d and mounts."""
    if is_there(subject, path):
        return False
    return not any(is_below(made, path) for made in made_by_tmpfiles(subject))


def unwritable(subject: Subject, unit: LoadedUnit, path: str) -> str:
    """Why a unit cannot make files at a path, "" if it can or if the image does not say."""
    if appears_later(subject, f"{path}/"):
        return ""
    if why := protected(unit, path):
        return why
    account = account_of(unit, subject.accounts)
    if account is None:
        return ""
    above = path
    while not subject.root.lies(above):
        above = posixpath.dirname(above)
    if any(is_below(path, made) and is_below(made, above) and made != above
           for made in made_by_tmpfiles(subject)):  # fmt: skip
        return ""
    info = subject.entries.get(subject.root.resolve(above) or above)
    if info is None:
        return ""
    if account.may(info, WRITE):
        return ""
    return f"{above} does not belong to {account.name or 'its dynamic account'}"


def protected(unit: LoadedUnit, path: str) -> str:
    """The setting that makes a path read-only for a unit."""
    allowed = frozenset(each.target for each in unit_paths(unit, *OPENED))
    if covers(allowed, path):
        return ""
    system = unit.last("ProtectSystem")
    if system == "strict" and not covers(frozenset(STRICT_EXCEPT), path):
        return "ProtectSystem=strict"
    if covers(frozenset(PROTECTED.get(system, ())), path):
        return f"ProtectSystem={system}"
    if unit.last("ProtectHome") in ("yes", "read-only") and covers(frozenset(HOME_FOLDERS), path):
        return f"ProtectHome={unit.last('ProtectHome')}"
    if covers(frozenset(p.source for p in unit_paths(unit, "ReadOnlyPaths")), path):
        return "ReadOnlyPaths="
    return ""
