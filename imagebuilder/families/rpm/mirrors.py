# SPDX-License-Identifier: Apache-2.0
"""The host's mirrors by name, and the repositories that sources have there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from imagebuilder.errors import HostError, InputError
from imagebuilder.families.addresses import find_archive, split_login, tell_defaults, with_hosts
from imagebuilder.families.rpm.repository import ARCHITECTURES, Repository
from imagebuilder.recipe.types import Source

PLACES = "the site file"
# The archives themselves, for hosts without a mirror (rocky-repos and epel-release name them).
DEFAULTS = {
    "rocky": "https://dl.rockylinux.org/pub/rocky",
    "epel": "https://dl.fedoraproject.org/pub/epel",
}
# The folder of a component in an archive, by the mirror's name.
LAYOUT = "{suite}/{component}/{architecture}/os"
LAYOUTS = {"epel": "{suite}/{component}/{architecture}"}


def find_mirrors(site: Mapping[str, str], env: Mapping[str, str]) -> Mapping[str, str]:
    """Archive addresses by name, without a trailing slash: those of the site file.

    The environment names no archive of RPMs, and neither does the host: one that installs RPMs has
    lists of mirrors, which answer with another one each time.
    """
    del env
    return {name: uri.rstrip("/") for name, uri in site.items()}


def default_notes(sources: Sequence[Source], mirrors: Mapping[str, str]) -> Iterator[str]:
    """A note on the default mirrors that are used because none was configured."""
    yield from tell_defaults(sources, mirrors, DEFAULTS, PLACES)


def archive_uri(source: Source, mirrors: Mapping[str, str]) -> str:
    """The address of the archive of `source` on this host, possibly with a login.

    Raises HostError if the host does not have the mirror or it has no snapshots, and InputError if
    it has only snapshots and the recipe does not choose one.
    """
    return with_hosts(find_archive(source, mirrors, DEFAULTS, missing_mirror))


def missing_mirror(source: Source) -> HostError:
    return HostError(
        f"no mirror named {source.mirror} in {PLACES}",
        where=f"source {source.id}",
        hint=f"add one to the site file: mirrors: {{{source.mirror}: ADDRESS}}",
    )


def repositories_of(
    sources: Sequence[Source], mirrors: Mapping[str, str], architecture: str
) -> tuple[Repository, ...]:
    """The repository of each component of each suite, in the order of the sources.

    A suite that ends in a slash is an exact folder below the archive, which has no components.
    `architecture` is a base's.  Raises as archive_uri(), and InputError for a word that would leave
    the archive.
    """
    return tuple(
        Repository(source, suite, component, join(archive_uri(source, mirrors), path), path)
        for source in sources
        for suite in source.suites
        for component in components_of(source, suite)
        for path in (folder_of(source, suite, component, architecture),)
    )


def components_of(source: Source, suite: str) -> tuple[str, ...]:
    return ("",) if suite.endswith("/") else source.components


def folder_of(source: Source, suite: str, component: str, architecture: str) -> str:
    """The folder of a repository below its archive; "" is the archive itself."""
    if suite.endswith("/"):
        path = suite.removeprefix("./").strip("/")
    else:
        path = place_of(source.mirror, suite, component, ARCHITECTURES[architecture])
    if path and not is_inside(path):
        raise InputError(
            f"{path!r} is not a folder below an archive",
            where=f"source {source.id}",
            hint="name suites and components without `..` and whitespace",
        )
    return path


def place_of(mirror: str, suite: str, component: str, machine: str) -> str:
    layout = LAYOUTS.get(mirror, LAYOUT)
    return layout.format(suite=suite, component=component, architecture=machine)


def index_path(mirror: str, suite: str, component: str) -> str:
    """The path of repomd.xml in the archive of a mirror, of the usual processor."""
    return f"{place_of(mirror, suite, component, 'x86_64')}/repodata/repomd.xml"


def is_inside(path: str) -> bool:
    """Whether a path that others chose stays below its folder, and is one word."""
    return (
        path.isprintable()
        and not any(character in path for character in " \\?#")
        and all(part not in ("", ".", "..") for part in path.split("/"))
    )


def join(uri: str, path: str) -> str:
    return f"{uri}/{path}" if path else uri


def shown(repository: Repository) -> str:
    """The address of a repository for messages: without a login."""
    return split_login(repository.uri)[0]
