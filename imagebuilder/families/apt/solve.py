# SPDX-License-Identifier: Apache-2.0
"""apt's solver, layer by layer: what each overlay adds to those before it.

Every layer is solved against a dpkg status file that lists the packages of the layers below as
installed; apt may only add to them.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from imagebuilder.errors import ImagebuilderError, InputError, WorkError
from imagebuilder.families.apt.apt import Apt
from imagebuilder.families.apt.deb822 import parse_stanzas
from imagebuilder.families.apt.names import find_suites, unknown_packages
from imagebuilder.lock.request import Request
from imagebuilder.lock.types import LockedPackage
from imagebuilder.process import Completed
from imagebuilder.recipe.rules import PACKAGE

# What mmdebstrap's variant `apt` starts from.  debootstrap installs the packages of Priority
# required as well, but only those the archive has: make_repository() gives it the locked ones.
FIRST = ("?essential", "apt")
# Whatever is in an address, its line ends with a name, a size and, if there is one, a checksum.
LINE = re.compile(r"'(.+)' ([^ _]+)_([^ _]+)_([^ ]+)\.deb (\d+) (?:SHA256:([0-9a-f]{64}))?")
SIZE = re.compile(r"[0-9]{1,18}")
SAFE = re.compile(r"[A-Za-z0-9][A-Za-z0-9+.:~_-]*")
# The fields by which apt recognises an installed package in the archive (VersionHash in
# apt-pkg/deb/deblistparser.cc), or that it needs for solving.
KEPT = (
    "Package", "Version", "Architecture", "Essential", "Protected", "Multi-Arch", "Installed-Size",
    "Pre-Depends", "Depends", "Recommends", "Suggests", "Enhances", "Conflicts", "Breaks",
    "Replaces", "Provides",
)  # fmt: skip

Stanza = Mapping[str, str]


@dataclass(frozen=True)
class Solved:
    """What apt chose for one layer."""

    request: Request
    packages: tuple[LockedPackage, ...]
    stanzas: tuple[Stanza, ...]


@dataclass(frozen=True)
class Offer:
    """A file that apt would fetch; `sha256` is empty if its archive does not say it."""

    uri: str
    name: str
    version: str
    architecture: str
    size: int
    sha256: str


def solve(apt: Apt, requests: Sequence[Request], preferences: Path) -> tuple[Solved, ...]:
    """Solve every layer in turn, with the pins of `preferences`; builds come after the layers.

    Raises InputError for unknown packages (all at once), for a package that would remove one of a
    layer below, and for what apt cannot satisfy.
    """
    check_requests(requests)
    below: tuple[Solved, ...] = ()
    aside: tuple[Solved, ...] = ()
    for request in requests:
        parents = below[: request.layers] if request.build else below
        solved = solve_layer(apt, requests, request, parents, preferences)
        if request.build:
            aside = (*aside, solved)
        else:
            below = (*below, solved)
    return (*below, *aside)


def check_requests(requests: Sequence[Request]) -> None:
    """Raise InputError if a request is not the name of a package."""
    bad = [
        (request, word)
        for request in requests
        for word in request.packages
        if not PACKAGE.pattern.fullmatch(word)  # apt reads a trailing "-" as "remove"
    ]
    if bad:
        request, word = bad[0]
        raise InputError(f"{word!r} is not {PACKAGE.what}", where=request.name)


def solve_layer(
    apt: Apt,
    requests: Sequence[Request],
    request: Request,
    below: tuple[Solved, ...],
    preferences: Path,
) -> Solved:
    if not words_of(request):
        return Solved(request, (), ())
    status = apt.root / "status" / str(len(below))
    status.write_text(render_status(stanza for layer in below for stanza in layer.stanzas))
    options = [
        "-o", f"Dir::State::status={status}",
        "-o", f"Dir::Etc::preferences={preferences}",
        "-o", "Acquire::ForceHash=SHA256",
    ]  # fmt: skip
    install = ["apt-get", *options, "install", "--yes", "--no-remove"]
    done = apt.attempt([*install, "-qq", "--print-uris", "--", *words_of(request)])
    if done.status != 0:
        raise solve_error(apt, options, requests, request, below)
    offers = [parse_offer(line) for line in done.stdout.split("\n") if line.startswith("'")]
    check_unchanged(offers, request, below)
    stanzas = load_stanzas(apt, options, offers)
    chosen = sorted(zip(offers, stanzas, strict=True), key=lambda pair: pair[0].name)
    packages = [locked_package(apt, offer, stanza) for offer, stanza in chosen]
    return Solved(
        request, in_their_pockets(apt, options, packages), tuple(stanza for _, stanza in chosen)
    )


def words_of(request: Request) -> tuple[str, ...]:
    return request.packages if request.overlay else (*FIRST, *request.packages)


def render_status(stanzas: Iterable[Stanza]) -> str:
    """A dpkg status file that says all of `stanzas` are installed."""
    return "".join(
        "Status: install ok installed\n"
        + "".join(f"{name}: {stanza[name]}\n" for name in KEPT if name in stanza)
        + "\n"
        for stanza in stanzas
    )


def parse_offer(line: str) -> Offer:
    """A line of `apt-get --print-uris`: quoted address, NAME_VERSION_ARCH.deb, size, checksum.

    Raises WorkError for any other line: without it, a package would be missing in the lock.
    """
    match = LINE.fullmatch(line)
    if not match:
        raise WorkError(
            f"an archive has a package that cannot be locked: {line!r}",
            hint="its file or its version has a name that packages do not have; ask its owner",
        )
    uri, *words, size, sha256 = match.groups()
    name, version, architecture = map(unquote, words)
    return Offer(unquote(uri), name, version, architecture, int(size), sha256 or "")


def check_unchanged(offers: Sequence[Offer], request: Request, below: Sequence[Solved]) -> None:
    """Raise InputError if a layer needs another version of a package of a layer below."""
    have = {package.name: (package, layer) for layer in below for package in layer.packages}
    for offer in offers:
        if offer.name in have:
            package, layer = have[offer.name]
            raise InputError(
                f"needs {offer.name} {offer.version}, but {layer.request.name} has "
                f"{package.version}",
                where=request.name,
                hint=f"request {offer.name}={offer.version} there, or pin its source",
            )


def load_stanzas(apt: Apt, options: Sequence[str], offers: Sequence[Offer]) -> list[Stanza]:
    """The package records of `offers`, in their order."""
    if not offers:
        return []
    words = [f"{offer.name}={offer.version}" for offer in offers]
    shown = apt.run(["apt-cache", *options, "show", "--", *words]).stdout
    records: dict[tuple[str, str], list[Stanza]] = {}
    for stanza in parse_stanzas(shown):
        key = (stanza.get("Package", ""), stanza.get("Version", ""))
        records.setdefault(key, []).append(stanza)
    return [record_of(offer, records.get((offer.name, offer.version), [])) for offer in offers]


def record_of(offer: Offer, records: Sequence[Stanza]) -> Stanza:
    """The record of `offer`.

    Two archives may have the same version in other files; apt shows one record if everything that
    it solves with is equal.
    """
    for record in records:
        if record.get("SHA256") == offer.sha256:
            return record
    if not records:
        raise WorkError(f"apt has no record of {offer.name} {offer.version} at {offer.uri}")
    return records[0]


def relative(filename: str) -> str:
    """A Filename field without the leading `./` of flat archives."""
    return filename.removeprefix("./")


def locked_package(apt: Apt, offer: Offer, stanza: Stanza) -> LockedPackage:
    """The locked package.  Raises WorkError if its record is malformed."""
    kibibytes = stanza.get("Installed-Size", "")
    if not all(map(SAFE.fullmatch, (offer.name, offer.version, offer.architecture))):
        raise WorkError(f"the record of {offer.name!r} {offer.version!r} is malformed")
    if not offer.sha256:
        raise WorkError(
            f"the record of {offer.name} {offer.version} has no SHA256",
            hint="the archive cannot be locked; ask its owner to add SHA256 to Packages",
        )
    source, path = place_of(apt, offer.name, offer.uri)
    return LockedPackage(
        name=offer.name,
        version=offer.version,
        architecture=offer.architecture,
        sha256=offer.sha256,
        size=offer.size,
        path=path,
        source=source,
        installed=int(kibibytes) * 1024 if SIZE.fullmatch(kibibytes) else 0,
    )


def in_their_pockets(
    apt: Apt, options: Sequence[str], packages: Sequence[LockedPackage]
) -> tuple[LockedPackage, ...]:
    """The packages, each with the first source that lists it among those at the same address.

    Ubuntu's pockets share one archive, so a package's address does not tell its pocket.
    """
    if not packages or len(set(apt.uris)) == len(apt.uris):
        return tuple(packages)
    names = [package.name for package in packages]
    listed = find_suites(apt, names, options)
    uris = {source.id: uri for uri, source in zip(apt.uris, apt.sources, strict=True)}

    def pocket(package: LockedPackage) -> str:
        suites = set(listed.get((package.name, package.version), ()))
        beside = (s for s in apt.sources if uris[s.id] == uris[package.source])
        return next((s.id for s in beside if suites & set(s.suites)), package.source)

    return tuple(replace(package, source=pocket(package)) for package in packages)


def place_of(apt: Apt, name: str, uri: str) -> tuple[str, str]:
    """The source of a file, which is the one with the longest address, and the path there."""
    found = [
        (len(archive), source.id, relative(uri.removeprefix(f"{archive}/")))
        for archive, source in zip(map(unquote, apt.uris), apt.sources, strict=True)
        if uri.startswith(f"{archive}/")
    ]
    if not found:
        raise WorkError(f"{name} comes from no source of the recipe: {uri}")
    longest = max(length for length, _, _ in found)
    return next((source, path) for length, source, path in found if length == longest)


def solve_error(
    apt: Apt,
    options: Sequence[str],
    requests: Sequence[Request],
    request: Request,
    below: Sequence[Solved],
) -> ImagebuilderError:
    """Why apt could not solve a layer, from a second run with more output."""
    if unknown := unknown_packages(apt, options, requests):
        return InputError.of(unknown)
    simulate = ["apt-get", *options, "install", "--simulate", "--yes", "--", *words_of(request)]
    done = apt.attempt(simulate)
    removed = re.findall(r"^Remv (\S+)", done.stdout, re.MULTILINE)
    if removed:
        return removal_error(removed, request, below)
    reason = explanation(done)
    return InputError(
        f"apt cannot install its packages\n    {reason}{brought_by(reason, below)}",
        where=request.name,
        hint="apt's output above names the packages that conflict or that no source has",
    )


def removal_error(removed: Sequence[str], request: Request, below: Sequence[Solved]) -> InputError:
    """The error for a layer that would remove packages of a layer below."""
    parts = []
    for name in (word.partition(":")[0] for word in removed):
        for layer in below:
            if any(package.name == name for package in layer.packages):
                why = "" if name in layer.request.packages else " as a dependency"
                parts.append(f"{name}, which {layer.request.name} added{why}")
    requested = ", ".join(request.packages)
    return InputError(
        f"would remove {'; '.join(parts) or ', '.join(removed)} (requested: {requested})",
        where=request.name,
        hint="the two cannot be in one image: remove one of them",
    )


def brought_by(reason: str, below: Sequence[Solved]) -> str:
    """Lines with the layer of each package that starts a line of apt's output."""
    named = set(re.findall(r"^[ \t]*(\S+) : ", reason, re.MULTILINE))
    return "".join(
        f"\n    {package.name} {package.version} is from {layer.request.name}"
        for layer in below
        for package in layer.packages
        if package.name in named
    )


def explanation(done: Completed) -> str:
    """apt's explanation without its preface."""
    _, _, reason = done.stdout.partition("unmet dependencies:\n")
    lines = [*reason.splitlines(), *done.stderr.splitlines()]
    return "\n    ".join(line for line in lines if line.strip())
