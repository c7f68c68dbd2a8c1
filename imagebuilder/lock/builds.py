# SPDX-License-Identifier: Apache-2.0
"""Locks of builds: the toolchain on top of all layers, source packages, headers of the kernel.

A build's tree is thrown away, but what comes out of it is in the root: so everything it is made of
is locked like the root itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote

from imagebuilder.errors import InputError, WorkError
from imagebuilder.lock.apt import Apt
from imagebuilder.lock.request import Request
from imagebuilder.lock.solve import Offer, Solved, Stanza, relative, source_of
from imagebuilder.lock.types import (
    Lock,
    LockedBuild,
    LockedFile,
    LockedLayer,
    LockedPackage,
    LockedPython,
    LockedSourcePackage,
)
from imagebuilder.recipe.read import OVERLAY_FILE
from imagebuilder.recipe.types import Build, Overlay, Recipe

# What unpacks a source package; it brings tar's compressors and patch with it.
UNPACKER = "dpkg-dev"
# `apt-get source --print-uris`: quoted address, file name, size, checksum.
FILE = re.compile(r"'([^']+)' (\S+) (\d+) SHA256:([0-9a-f]{64})")
SOURCE = re.compile(r"(\S+)(?: \((\S+)\))?")
RELEASED = r"(\d\S*)"  # a package that is of one kernel has its release in its name
IMAGE = re.compile(rf"linux-image-(?:unsigned-)?{RELEASED}")
HEADERS = re.compile(rf"linux-headers-{RELEASED}")
SOURCE_ARCHITECTURE = "source"


def has_sources(recipe: Recipe) -> bool:
    """Whether a build of `recipe` asks for source packages, whose lists apt must have then."""
    return any(b.source_packages for overlay in recipe.overlays for b in overlay.builds)


def build_requests(recipe: Recipe) -> tuple[Request, ...]:
    """What each build asks for, in the overlays' order."""
    return tuple(
        Request(
            overlay.name,
            wanted_packages(build),
            build.name,
            file=overlay.path / OVERLAY_FILE,
            elsewhere=elsewhere(recipe),
        )
        for overlay in recipe.overlays
        for build in overlay.builds
    )


def elsewhere(recipe: Recipe) -> str:
    """The suite, where packages may have other names than in Debian."""
    return "" if recipe.base.distribution == "debian" else recipe.base.suite


def wanted_packages(build: Build) -> tuple[str, ...]:
    """The packages of a build's tree, with what unpacks its source packages."""
    extra = (UNPACKER,) if build.source_packages else ()
    return tuple(dict.fromkeys((*build.packages, *extra)))


def lock_builds(
    apt: Apt,
    recipe: Recipe,
    layers: Sequence[Solved],
    builds: Sequence[Solved],
    preferences: Path,
    cache: Path,
    progress: Callable[[str], None],
) -> dict[str, tuple[LockedBuild, ...]]:
    """The locked builds by overlay; `builds` are as build_requests() has them, solved.

    Raises InputError for headers of another kernel than the root's, for a source package that is
    in no source, and as lock_python().
    """
    from imagebuilder.lock.wheels import lock_python, python_of  # slow, and mostly not needed

    found: dict[str, tuple[LockedBuild, ...]] = {}
    each = ((overlay, build) for overlay in recipe.overlays for build in overlay.builds)
    for (overlay, build), solved in zip(each, builds, strict=True):
        check_headers(layers, solved)
        stanzas = [stanza for one in (*layers, solved) for stanza in one.stanzas]
        sources = tuple(
            lock_source(apt, word, stanzas, solved.request, preferences)
            for word in build.source_packages
        )
        packages = [package for one in (*layers, solved) for package in one.packages]
        python = None
        if build.python:
            chosen = python_of(packages, recipe.base.architecture, build.python)
            python = lock_python(build.python, chosen, cache, progress)
        locked = LockedBuild(
            name=build.name,
            requested=build.packages,
            requested_sources=build.source_packages,
            packages=solved.packages,
            source_packages=sources,
            python=python,
        )
        found[overlay.name] = (*found.get(overlay.name, ()), locked)
    return found


def check_headers(layers: Sequence[Solved], build: Solved) -> None:
    """Raise InputError when a build brings headers, and none of them of a kernel of the root.

    A module that is built with the headers of another release is not loaded (its vermagic differs).
    """
    kernels = {m[1] for p in packages_of(layers) if (m := IMAGE.fullmatch(p.name))}
    headers = {m[1] for p in build.packages if (m := HEADERS.fullmatch(p.name))}
    headers = {release for release in headers if not release.endswith("-common")}
    if headers and kernels and not headers & kernels:
        raise InputError(
            f"the headers are of kernel {', '.join(sorted(headers))}, "
            f"the image's is {', '.join(sorted(kernels))}",
            where=build.request.name,
            hint="take kernel and headers from one archive; after an update of it, "
            "imagebuilder lock PROFILE takes both anew",
        )


def packages_of(layers: Iterable[Solved]) -> Iterator[LockedPackage]:
    """Every package of some layers."""
    return (package for layer in layers for package in layer.packages)


def lock_source(
    apt: Apt, word: str, stanzas: Sequence[Stanza], request: Request, preferences: Path
) -> LockedSourcePackage:
    """The source package `word` (`NAME` or `NAME=VERSION`), as one version of it is in a source.

    Without a version it is the one that the locked binary packages were built from, and the newest
    where none is locked.  Raises InputError when no source has it.
    """
    name, _, version = word.partition("=")
    version = version or version_in(name, stanzas, request)
    wanted = f"{name}={version}" if version else name
    options = ["-o", f"Dir::Etc::preferences={preferences}", "-o", "Acquire::ForceHash=SHA256"]
    asked = ["apt-get", *options, "source", "-qq", "--print-uris", "--only-source", "--", wanted]
    done = apt.attempt(asked)
    matches = [FILE.match(line) for line in done.stdout.splitlines()]
    files = [match for match in matches if match]
    if done.status != 0 or not files:
        said = "\n    ".join(line for line in done.stderr.splitlines() if line.strip())
        raise InputError(
            f"no source has the source package {wanted}\n    {said}".rstrip(),
            where=request.name,
            hint="a source package has its own name: `apt-cache showsrc PACKAGE` on a machine of "
            "this distribution tells it",
        )
    first = Offer(unquote(files[0][1]), name, version, SOURCE_ARCHITECTURE)
    source = source_of(apt, first)
    archive = dict(zip((each.id for each in apt.sources), apt.uris, strict=True))[source]
    locked = [
        LockedFile(
            name=unquote(uri).rpartition("/")[2],
            sha256=sha256,
            size=int(size),
            path=relative(unquote(uri).removeprefix(f"{unquote(archive)}/")),
        )
        for uri, _, size, sha256 in (match.groups() for match in files)
    ]
    locked.sort(key=lambda file: (not file.name.endswith(".dsc"), file.name))
    return LockedSourcePackage(name, version or version_of(locked[0]), tuple(locked), source)


def version_in(name: str, stanzas: Sequence[Stanza], request: Request) -> str:
    """The version of source package `name` that binaries among `stanzas` are of; "" for none."""
    found = set()
    for stanza in stanzas:
        match = SOURCE.fullmatch(stanza.get("Source", "") or stanza["Package"])
        if match and match[1] == name:
            found.add(match[2] or stanza["Version"])
    if len(found) > 1:
        raise InputError(
            f"the packages of source package {name} have versions {', '.join(sorted(found))}",
            where=request.name,
            hint=f"say which: {name}=VERSION",
        )
    return found.pop() if found else ""


def version_of(dsc: LockedFile) -> str:
    """The version in the name of a .dsc file, which has no epoch (deb-version(7))."""
    if not dsc.name.endswith(".dsc"):
        raise WorkError(f"a source package without a .dsc file: {dsc.name}")
    return dsc.name.removesuffix(".dsc").partition("_")[2]


def every_package(lock: Lock) -> tuple[LockedPackage, ...]:
    """Every package of a lock: of the root, of the builds' trees, and files of source packages.

    The files count as packages of the architecture `source`.
    """
    aside = tuple(
        package
        for layer in lock.layers
        for build in layer.builds
        for package in (*build.packages, *source_files(build))
    )
    return (*lock.packages, *aside)


def source_files(build: LockedBuild) -> tuple[LockedPackage, ...]:
    """The files of the source packages of a build, as what a fetch takes."""
    return tuple(file for package in build.source_packages for file in files_of(package))


def files_of(package: LockedSourcePackage) -> tuple[LockedPackage, ...]:
    """The files of one source package, in the lock's order."""
    return tuple(
        LockedPackage(
            name=package.name,
            version=package.version,
            architecture=SOURCE_ARCHITECTURE,
            sha256=file.sha256,
            size=file.size,
            path=file.path,
            source=package.source,
        )
        for file in package.files
    )


def environments(layer: LockedLayer) -> tuple[LockedPython, ...]:
    """Every Python environment of a layer: the root's, and those of its builds."""
    return (*layer.python, *(build.python for build in layer.builds if build.python))


def build_differences(overlay: Overlay, layer: LockedLayer) -> Iterator[str]:
    """What the builds of a recipe ask now that its lock does not have, in words."""
    owner = f"overlay {overlay.name}"
    now = {build.name: build for build in overlay.builds}
    then = {build.name: build for build in layer.builds}
    for name in now.keys() - then.keys():
        yield f"build {name} was added to {owner}"
    for name in then.keys() - now.keys():
        yield f"build {name} was removed from {owner}"
    for name in now.keys() & then.keys():
        build, locked = now[name], then[name]
        asked = (build.packages, build.source_packages)
        wheels = build.python.digest if build.python else ""
        had = (locked.requested, locked.requested_sources)
        if asked != had or wheels != (locked.python.requirements if locked.python else ""):
            yield f"what build {name} of {owner} is made of changed"
