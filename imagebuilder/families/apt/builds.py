# SPDX-License-Identifier: Apache-2.0
"""Inputs of a build besides packages: source packages, and headers of the root's kernel."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from imagebuilder.errors import InputError, WorkError
from imagebuilder.families.apt.apt import Apt
from imagebuilder.families.apt.solve import Solved, Stanza, place_of
from imagebuilder.lock.request import Request
from imagebuilder.lock.types import LockedFile, LockedPackage, LockedSourcePackage

# `apt-get source --print-uris`: quoted address, file name, size, checksum.
FILE = re.compile(r"'(.+)' (\S+) (\d+) SHA256:([0-9a-f]{64})")
SOURCE = re.compile(r"(\S+)(?: \((\S+)\))?")
RELEASED = r"(\d\S*)"  # the release, in the name of a package for one kernel
IMAGE = re.compile(rf"linux-image-(?:unsigned-)?{RELEASED}")
HEADERS = re.compile(rf"linux-headers-{RELEASED}")


def check_headers(layers: Sequence[Solved], build: Solved) -> None:
    """Raise InputError if a build has kernel headers, but none for a kernel of the root.

    A kernel does not load a module built with headers of another release (its vermagic differs).
    """
    kernels = {m[1] for p in packages_of(layers) if (m := IMAGE.fullmatch(p.name))}
    headers = {m[1] for p in build.packages if (m := HEADERS.fullmatch(p.name))}
    headers = {release for release in headers if not release.endswith("-common")}
    if headers and kernels and not headers & kernels:
        raise InputError(
            f"the headers are for kernel {', '.join(sorted(headers))}, "
            f"but the image has {', '.join(sorted(kernels))}",
            where=build.request.name,
            hint="use kernel and headers from one archive; after an update of it, "
            "run imagebuilder lock PROFILE to update both",
        )


def packages_of(layers: Iterable[Solved]) -> Iterator[LockedPackage]:
    return (package for layer in layers for package in layer.packages)


def lock_source(
    apt: Apt, word: str, stanzas: Sequence[Stanza], request: Request, preferences: Path
) -> LockedSourcePackage:
    """The source package `word` (`NAME` or `NAME=VERSION`) from the source that has it.

    Without a version it is the one that the locked binary packages were built from, or the newest
    if none is locked.  Raises InputError if no source has it.
    """
    name, _, version = word.partition("=")
    version = version or version_in(name, stanzas, request)
    wanted = f"{name}={version}" if version else name
    options = ["-o", f"Dir::Etc::preferences={preferences}", "-o", "Acquire::ForceHash=SHA256"]
    command = ["apt-get", *options, "source", "-qq", "--print-uris", "--only-source", "--", wanted]
    done = apt.attempt(command)
    lines = [line for line in done.stdout.split("\n") if line.startswith("'")]
    files = [match for line in lines if (match := FILE.fullmatch(line))]
    if done.status != 0 or not files:
        said = "\n    ".join(line for line in done.stderr.splitlines() if line.strip())
        raise InputError(
            f"no source has the source package {wanted}\n    {said}".rstrip(),
            where=request.name,
            hint="a source package has its own name: `apt-cache showsrc PACKAGE` on a machine with "
            "this distribution shows it",
        )
    if len(files) < len(lines):
        raise WorkError(
            f"the source package {wanted} has a file without a SHA256, or with a name that files "
            f"do not have: {', '.join(lines)}",
            where=request.name,
            hint="the archive cannot be locked; ask its owner",
        )
    source, _ = place_of(apt, name, unquote(files[0][1]))
    locked = [
        LockedFile(
            name=unquote(uri).rpartition("/")[2],
            sha256=sha256,
            size=int(size),
            path=place_of(apt, name, unquote(uri))[1],
        )
        for uri, _, size, sha256 in (match.groups() for match in files)
    ]
    locked.sort(key=lambda file: (not file.name.endswith(".dsc"), file.name))
    return LockedSourcePackage(name, version or version_of(locked[0]), tuple(locked), source)


def version_in(name: str, stanzas: Sequence[Stanza], request: Request) -> str:
    """The version of source package `name` that binaries in `stanzas` are from; "" if none."""
    found = set()
    for stanza in stanzas:
        match = SOURCE.fullmatch(stanza.get("Source", "") or stanza["Package"])
        if match and match[1] == name:
            found.add(match[2] or stanza["Version"])
    if len(found) > 1:
        raise InputError(
            f"the packages of source package {name} have versions {', '.join(sorted(found))}",
            where=request.name,
            hint=f"choose one: {name}=VERSION",
        )
    return found.pop() if found else ""


def version_of(dsc: LockedFile) -> str:
    """The version in the name of a .dsc file, which has no epoch (deb-version(7))."""
    if not dsc.name.endswith(".dsc"):
        raise WorkError(f"a source package without a .dsc file: {dsc.name}")
    return dsc.name.removesuffix(".dsc").partition("_")[2]
