# SPDX-License-Identifier: Apache-2.0
"""Check external inputs of builds: mirrors (and with them the clock), keyrings, the site file."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from pathlib import Path
from urllib.parse import urlsplit

import requests

from imagebuilder.answers import find_headers
from imagebuilder.doctor.finding import HostFinding, Severity, fine, problem, warning
from imagebuilder.errors import Fault, ImagebuilderError, InputError, why
from imagebuilder.families.protocol import Family
from imagebuilder.families.registry import families
from imagebuilder.package_managers import manager_of
from imagebuilder.recipe.model import BaseFile, SiteFile
from imagebuilder.recipe.model_sources import ArchiveModel
from imagebuilder.recipe.positions import load_document
from imagebuilder.recipe.validate import ModelT, parse_model
from imagebuilder.settings import Settings

TIMEOUT = 5.0  # seconds
SKEW = 300.0  # seconds; signatures and Release files are dated
MIRROR_FIX = "set IMAGEBUILDER_MIRROR, or mirrors: in the site file"


@dataclass(frozen=True)
class Probe:
    """The answer of a mirror for one suite; `skew` is our clock minus its clock in seconds."""

    mirror: str
    suite: str
    level: Severity
    what: str
    skew: float | None = None


def examine_inputs(settings: Settings, env: Mapping[str, str]) -> tuple[HostFinding, ...]:
    """The mirrors, keyrings and clock that the bases of this project depend on."""
    site, _ = load_site(settings.site)  # its faults are examine_site's
    named = site.mirrors if site else {}
    bases = tuple(settings.find_bases().values())
    return tuple(
        finding
        for family in families()
        if (archives := load_archives(family, bases))
        for finding in examine_archives(family, archives, named, env)
    )


def examine_archives(
    family: Family,
    every: Sequence[ArchiveModel],
    site: Mapping[str, str],
    env: Mapping[str, str],
) -> tuple[HostFinding, ...]:
    """What the bases of one package manager depend on; `site` are the site file's mirrors."""
    try:
        mirrors = family.find_mirrors(site, env)
    except ImagebuilderError as error:
        return tuple(problem("mirrors", f.what, f.hint) for f in error.faults)
    archives = tuple(archive for archive in every if not is_foreign(family, archive, mirrors))
    probes = run_probes(family, mirrors, archives)
    return (
        *examine_mirrors(family, mirrors, archives, probes),
        *examine_clock(probes),
        *examine_keyrings(archives),
        *examine_foreign(family, every, mirrors),
    )


def is_foreign(family: Family, archive: ArchiveModel, mirrors: Mapping[str, str]) -> bool:
    """Whether this host has neither a mirror nor the keyring of a distribution.

    Its official archive is used then, and its bases are optional.
    """
    known = archive.mirror in mirrors or archive.mirror not in family.default_mirrors
    return not (known or Path(archive.keyring).is_file())


def examine_foreign(
    family: Family, archives: Sequence[ArchiveModel], mirrors: Mapping[str, str]
) -> tuple[HostFinding, ...]:
    """What bases of other distributions need, for information."""
    foreign = {archive.keyring for archive in archives if is_foreign(family, archive, mirrors)}
    return tuple(
        fine(
            Path(keyring).name,
            f"{keyring} does not exist; only bases of that distribution need it: "
            f"install {family.keyring_package(Path(keyring))}",
        )
        for keyring in sorted(foreign)
    )


def load_archives(family: Family, bases: Iterable[Path]) -> tuple[ArchiveModel, ...]:
    """The archives of each valid base of `family`; `imagebuilder plan` reports faults of others."""
    found: list[ArchiveModel] = []
    for path in bases:
        base, _ = load_checked(path, BaseFile)
        if base and manager_of(base.distribution).name == family.name:
            found.extend(base.archives)
    return tuple(found)


def load_site(path: Path) -> tuple[SiteFile | None, tuple[Fault, ...]]:
    """The site file (an empty one if it does not exist), or None and its faults."""
    return load_checked(path, SiteFile) if path.exists() else (SiteFile(), ())


def load_checked(path: Path, model: type[ModelT]) -> tuple[ModelT | None, tuple[Fault, ...]]:
    """The model in the file at `path`, or None and its faults."""
    faults: list[Fault] = []
    try:
        found, whole = parse_model(model, load_document(path, str(path)), faults)
    except InputError as error:
        return None, error.faults
    return found if whole else None, tuple(faults)


def run_probes(
    family: Family, mirrors: Mapping[str, str], archives: Sequence[ArchiveModel]
) -> tuple[Probe, ...]:
    """Ask every mirror for every suite of the bases, in parallel."""
    named = {**family.default_mirrors, **mirrors}
    wanted = {
        (archive.mirror, suite, archive.snapshot, archive.components[0]): named[archive.mirror]
        for archive in archives
        for suite in archive.suites
        if archive.mirror in named
    }
    with ThreadPoolExecutor(max_workers=8) as pool:
        return tuple(
            pool.map(
                lambda item: run_probe(
                    family.suite_index(item[0][0], item[0][1], item[0][3]),
                    item[0][0],
                    item[0][1],
                    fill_in(item[1], item[0][2]),
                ),
                sorted(wanted.items()),
            )
        )


def fill_in(address: str, snapshot: str) -> str:
    """The archive root at an address that may have `{snapshot}` in it."""
    return address.replace("{snapshot}", snapshot).rstrip("/")


def run_probe(index: str, mirror: str, suite: str, root: str) -> Probe:
    """Request the headers of the suite's index; `root` is the archive's address."""
    shown = without_secret(root)
    if root.startswith("file:"):
        there = Path(urlsplit(root).path, index).is_file()
        what = f"{shown} has {suite}" if there else f"{shown} has no {suite}"
        return Probe(mirror, suite, Severity.OK if there else Severity.WARNING, what)
    try:
        answer = find_headers(f"{root}/{index}", TIMEOUT)
    except (requests.Timeout, TimeoutError):
        return Probe(
            mirror, suite, Severity.PROBLEM, f"{shown} did not answer within {TIMEOUT:.0f} s"
        )
    except (requests.RequestException, ValueError) as error:
        return Probe(mirror, suite, Severity.PROBLEM, f"{shown} is not reachable: {why(error)}")
    skew = find_skew(answer.headers.get("Date", ""), time.time())
    if not answer.ok:
        what = f"{shown} answers with status {answer.status_code} for {suite}"
        return Probe(mirror, suite, Severity.WARNING, what, skew)
    return Probe(mirror, suite, Severity.OK, f"{shown} has {suite}", skew)


def without_secret(address: str) -> str:
    """The address without user name and password."""
    return re.sub(r"^([a-z+]+://)[^/@]*@", r"\1", address)


def find_skew(date: str, now: float) -> float | None:
    """The seconds from an HTTP Date header to `now`; None if the header is not a date."""
    try:
        return now - parsedate_to_datetime(date).timestamp()
    except (TypeError, ValueError):
        return None


def examine_mirrors(
    family: Family,
    mirrors: Mapping[str, str],
    archives: Sequence[ArchiveModel],
    probes: Sequence[Probe],
) -> tuple[HostFinding, ...]:
    known = {*mirrors, *family.default_mirrors}
    unknown = sorted({archive.mirror for archive in archives} - known)
    what = f"this host's {family.name} sources do not name a mirror of it"
    missing = (problem(name, what, MIRROR_FIX) for name in unknown)
    answered = (
        HostFinding(p.mirror, p.level, p.what, "" if p.level is Severity.OK else MIRROR_FIX)
        for p in probes
    )
    return *missing, *answered


def examine_clock(probes: Sequence[Probe]) -> tuple[HostFinding, ...]:
    """Compare our clock with the mirrors: the smallest difference, as one may be wrong."""
    skews = [probe.skew for probe in probes if probe.skew is not None]
    if not skews:
        return ()
    skew = min(skews, key=abs)
    if abs(skew) <= SKEW:
        return (fine("clock", "agrees with the mirrors"),)
    where = "ahead of" if skew > 0 else "behind"
    what = f"{abs(skew) / 60:.0f} min {where} the mirrors: signatures will not verify"
    return (warning("clock", what, "timedatectl set-ntp true"),)


def examine_keyrings(archives: Sequence[ArchiveModel]) -> tuple[HostFinding, ...]:
    return tuple(
        fine(Path(keyring).name, keyring)
        if Path(keyring).is_file()
        else problem(Path(keyring).name, f"{keyring} does not exist", "imagebuilder setup")
        for keyring in sorted({archive.keyring for archive in archives})
    )


def examine_site(path: Path, home: Path) -> HostFinding:
    """Whether a person will be able to log in to the nodes."""
    site, faults = load_site(path)
    if site is None:
        first = faults[0]
        return problem("site", f"{first.where}: {first.what}", f"edit {path}")
    if site.ssh_keys:
        return fine("site", f"{path} names ssh keys: {len(site.ssh_keys)}")
    if keys := sorted(home.glob(".ssh/id_*.pub")):
        return fine("site", f"no ssh keys in {path}; using {keys[0]}")
    return warning("site", "no ssh key, so nobody can log in to a node", "imagebuilder setup")
