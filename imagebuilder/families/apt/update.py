# SPDX-License-Identifier: Apache-2.0
"""`apt-get update`, and explanations of its failures."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable
from urllib.parse import unquote

from imagebuilder.errors import Fault, HostError, ImagebuilderError, InputError, WorkError
from imagebuilder.families import hints
from imagebuilder.families.apt.apt import Apt
from imagebuilder.families.apt.deb822 import parse_release
from imagebuilder.families.apt.mirrors import VARIABLE
from imagebuilder.families.apt.release import (
    Release,
    check_ends,
    check_names,
    expired,
    list_name,
    parse_date,
    read_releases,
    release_folder,
)
from imagebuilder.families.freshness import DAY, tell_old, tell_places
from imagebuilder.families.hints import distrusted, vendor_of
from imagebuilder.files import read_text
from imagebuilder.lock.patience import PATIENCE, Patience, SlowError, paced
from imagebuilder.process import Completed
from imagebuilder.recipe.types import Source
from imagebuilder.ui import format_count

# Messages of apt (in LC_ALL=C.UTF-8) by their meaning; the first that matches decides.
EXPIRED = re.compile(r"Release file for (\S+) is expired \(invalid since (?:(\d+)d)?")
UNREACHABLE = re.compile(
    r"Could not connect|Cannot initiate the connection|Connection (?:failed|timed out|reset)"
    r"|Could not resolve|Temporary failure resolving|Unable to connect|Connection refused"
    r"|closed the connection|connection closed|Error reading from server|Server unexpectedly|"
    r"  50[0-9] |Could not handshake|Could not wait for server fd|^E:.*File not found",
    re.MULTILINE,
)
UNTRUSTED = re.compile(
    r"is not signed|NO_PUBKEY|BADSIG|EXPKEYSIG|REVKEYSIG|signatures? (?:were|was|couldn't|verif)"
    r"|Signing key|Missing key|not live until|Clearsigned file isn't valid"
)
NO_SUITE = re.compile(r"does not have a Release file")
NO_COMPONENT = re.compile(r"doesn't have the component|does not have the component")
CHANGING = re.compile(r"Hash Sum mismatch|unexpected size|Mirror sync in progress")


def load_releases(
    apt: Apt, progress: Callable[[str], None], patience: Patience = PATIENCE
) -> tuple[Release, ...]:
    """Update the package lists and return the Release of every suite, in the sources' order.

    Raises InputError if one is expired without consent or a suite does not exist, HostError if a
    mirror is not reachable or too slow, and WorkError if a signature is invalid or a Release file
    is for another suite than requested.
    """
    update = ["apt-get", "update", "-qq", "--error-on=any"]
    try:
        with paced(apt.lists, patience) as pace:
            done = apt.attempt(update, ask=pace.ask)
    except SlowError as error:
        names = ", ".join(source.id for source in apt.sources)
        raise HostError(
            f"the package lists arrived at {patience}: gave up updating them",
            where=f"sources {names}",
            hint=unreached(None),
        ) from error
    if done.status != 0 or NO_COMPONENT.search(done.stderr):
        raise update_error(apt, done)
    releases = read_releases(apt)
    now = int(time.time())
    check_names(releases, progress)
    tell_places(releases, progress)
    check_ends(releases, now, progress)
    tell_old(releases, now, progress)
    return releases


def update_error(apt: Apt, done: Completed) -> ImagebuilderError:
    said = done.stderr
    lines = [line for line in said.splitlines() if line.startswith(("E:", "W:"))]
    words = "\n    ".join(lines)
    source = source_named(apt, said)
    where = f"source {source.id}" if source else ""
    if faults := [expired_by_apt(apt, match) for match in EXPIRED.finditer(said)]:
        return InputError.of(faults)
    if UNTRUSTED.search(said) and not UNREACHABLE.search(said):
        return WorkError(
            f"the signature of a Release file is invalid\n    {words}",
            where=where,
            hint=distrusted(source),
        )
    if UNREACHABLE.search(said):
        return HostError(
            f"{'the vendor' if vendor_of(source) else 'mirror'} is not reachable\n    {words}",
            where=where,
            hint=unreached(source),
        )
    if NO_SUITE.search(said):
        return InputError(
            f"the mirror does not have this suite\n    {words}",
            where=where,
            hint="compare the suites of the source with the folders below dists/ of the mirror",
        )
    if NO_COMPONENT.search(said):
        return InputError(f"a suite lacks a component\n    {words}", where=where)
    if CHANGING.search(said):
        return WorkError(
            f"the mirror's package lists do not match its Release file\n    {words}",
            where=where,
            hint="the mirror is being updated, or a proxy caches old files: try again in a few "
            "minutes",
        )
    return WorkError(f"apt could not update the package lists\n    {words}", where=where)


def unreached(source: Source | None) -> str:
    """The hint for a source that does not answer."""
    return hints.unreached(source, VARIABLE)


def expired_by_apt(apt: Apt, match: re.Match[str]) -> Fault:
    """The fault of an expired Release file that apt refused."""
    uri, late = match[1], int(match[2] or 0)
    folder = f"{unquote(uri).rpartition('/')[0]}/"
    ended = int(time.time()) - late * DAY
    for address, source in zip(apt.uris, apt.sources, strict=True):
        for suite in source.suites:
            if release_folder(address, suite) == folder:
                kept = apt.lists / "partial" / list_name(uri)
                with contextlib.suppress(OSError, ValueError, WorkError):
                    fields = parse_release(read_text(kept))
                    ended = parse_date(fields.get("Valid-Until", "")) or ended
                return expired(source, suite, late, ended)
    return Fault(uri, f"Release file expired {format_count(late, 'day')} ago")


def source_named(apt: Apt, said: str) -> Source | None:
    """The source that apt names first: of those that match there, the longest address."""
    named = [
        (min(places), -len(uri), number)
        for number, uri in enumerate(apt.uris)
        if (places := [at for end in "/ " if (at := said.find(f"{uri}{end}")) >= 0])
    ]
    return apt.sources[min(named)[2]] if named else None
