# SPDX-License-Identifier: Apache-2.0
"""Addresses of archives: which one a source has on this host, and the login in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from urllib.parse import SplitResult, unquote, urlsplit

from imagebuilder.errors import HostError, ImagebuilderError, InputError
from imagebuilder.recipe.types import Source

SNAPSHOT = "{snapshot}"


def split_uri(uri: str) -> SplitResult:
    """The parts of an address; empty for an invalid one (`http://[`)."""
    try:
        return urlsplit(uri)
    except ValueError:
        return urlsplit("")


def split_login(uri: str) -> tuple[str, str, str]:
    """An address without its login, the user and the password; both "" if it has no login.

    Every user of the host sees the arguments of programs, and messages are copied into reports.
    """
    parts = split_uri(uri)
    login, _, host = parts.netloc.rpartition("@")
    user, _, password = map(unquote, login.partition(":"))
    return (parts._replace(netloc=host).geturl(), user, password) if login else (uri, "", "")


def find_archive(
    source: Source,
    mirrors: Mapping[str, str],
    defaults: Mapping[str, str],
    missing: Callable[[Source], ImagebuilderError],
) -> str:
    """The address of the archive of `source`; `missing` makes the error for an unknown mirror.

    Raises HostError if the host's mirror has no snapshots, and InputError if it has only snapshots
    and the recipe does not choose one.
    """
    if source.uri:
        uri = source.uri.rstrip("/")
    elif source.mirror in mirrors:
        uri = mirrors[source.mirror]
    elif source.mirror in defaults:
        uri = defaults[source.mirror]
    else:
        raise missing(source)
    if source.snapshot and SNAPSHOT not in uri:
        raise HostError(
            f"mirror {source.mirror} has no snapshots such as {source.snapshot}",
            where=f"source {source.id}",
            hint=f"add a mirror with {SNAPSHOT} in its address to the site file: "
            f"mirrors: {{{source.mirror}: ADDRESS}}",
        )
    if SNAPSHOT in uri and not source.snapshot:
        raise InputError(
            f"mirror {source.mirror} has only snapshots, and {source.id} does not choose one",
            hint="set `snapshot: 20260101T000000Z` for the archive in the base",
        )
    return uri.replace(SNAPSHOT, source.snapshot)


def tell_defaults(
    sources: Sequence[Source],
    mirrors: Mapping[str, str],
    defaults: Mapping[str, str],
    places: str,
) -> Iterator[str]:
    """A note on the default mirrors that are used because none was configured in `places`."""
    names = dict.fromkeys(source.mirror for source in sources)
    taken = [name for name in names if name in defaults and name not in mirrors]
    if taken:
        yield (
            f"no mirror named {' or '.join(taken)} in {places}: "
            f"using {' and '.join(defaults[name] for name in taken)}"
        )


def with_hosts(uri: str) -> str:
    """A file: address in the form that has an empty host: file:///srv."""
    return re.sub(r"^file:/+", "file:///", uri)
