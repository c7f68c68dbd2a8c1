# SPDX-License-Identifier: Apache-2.0
"""Publish to another place: send what it lacks, and the boot tests of the release."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.errors import HostError
from imagebuilder.image.types import read_image
from imagebuilder.locks import file_lock
from imagebuilder.publish.channel.gate import check_reason
from imagebuilder.publish.channel.move import check_channel
from imagebuilder.publish.channel.standing import release_standing
from imagebuilder.publish.transport.protocol import (
    PREFIX,
    Activated,
    Order,
    PlaceContents,
    Transport,
)
from imagebuilder.publish.transport.reports import find_carried, pack_reports
from imagebuilder.report.standing import State
from imagebuilder.rootkind import Format
from imagebuilder.store.objects import list_objects, object_path
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.tree import CANDIDATE, STABLE, Tree
from imagebuilder.ui import Ui, format_size

# How many common commits are compared: more hardly ever save another object.
MOST_BASES = 4


@dataclass(frozen=True)
class Sent:
    """What the place says about the release, the bytes sent, and those of the whole image.

    `reports` are the boot tests that were sent with it.
    """

    release: Activated
    sent: int
    whole: int
    reports: tuple[str, ...] = ()

    def as_json(self) -> dict[str, Json]:
        sizes: dict[str, Json] = {"sent": self.sent, "whole": self.whole}
        return {**self.release.published, **sizes, "reports": list(self.reports)}

    def render(self) -> str:
        sizes = f"sent {format_size(self.sent)} of {format_size(self.whole)}"
        tests = f"\nsent boot test {', '.join(self.reports)}" if self.reports else ""
        return f"{self.release.said}\n{sizes}{tests}"


def publish_to(
    place: Transport,
    store: Store,
    image: ImageRef,
    ui: Ui,
    *,
    channel: str,
    formats: Sequence[Format] = (),
    untested: str = "",
    tested: Tree | None = None,
) -> Sent:
    """Publish `image` of `store` to another place, with its boot tests in the tree `tested`.

    Raises HostError if the place cannot be reached or is not fit, and what publish() raises there.
    For stable, the boot tests that the other tree has or now gets count.  A release that is new
    there and passed here is published as candidate first: a test counts only for the bytes there.
    Whatever happens, the other tree has the old state or the new one.
    """
    check_channel(channel)
    check_reason(untested)
    if channel == STABLE and not untested and not place.keeps_reports:
        raise HostError(
            f"{place.name} keeps no boot tests, so no release can pass one there",
            where=place.where,
            hint="publish it as candidate, or say why it needs no test: --untested REASON",
        )
    place.check()
    order = Order(channel, tuple(formats), untested)
    with file_lock(store.gc_lock, shared=True):
        with ui.step(f"Comparing with {place.name}"):
            there = place.list(image)
        # A report that is sent now may let an existing release become stable.
        before = there.reports is not None
        if channel == STABLE and not (before or untested) and has_passed(tested, image):
            first, second = (
                publish_to(place, store, image, ui, channel=each, formats=formats, tested=tested)
                for each in (CANDIDATE, STABLE)
            )
            return replace(second, sent=first.sent, reports=first.reports)
        reports = send_reports(place, tested, image, there, ui) if before else ()
        objects, lacking = compare(place, store, image, there, ui)
        with place.arrival(image, order, ui) as arrival:
            sent = arrival.send(store, lacking)
            arrival.verify()
            release = arrival.activate()
        check_arrived(place, image, release)
        if not before:
            reports = send_reports(place, tested, image, there, ui)
        return Sent(release, sent, sum(objects.values()), reports)


def check_arrived(place: Transport, image: ImageRef, told: Activated) -> None:
    """Raise HostError unless the place, asked again, has the image that it said it published."""
    wanted = {"profile": image.profile, "version": image.version}
    if any(told.published.get(key, value) != value for key, value in wanted.items()):
        what = f"answered about another release than {image.name}"
        raise HostError(what, where=place.where, hint="see what runs as imagebuilder there")
    there = place.list(image)
    if there.refs.get(image.ref) != image.commit or (place.keeps_reports and there.reports is None):
        raise HostError(
            f"said that it published {image.name}, but does not have it",
            where=place.where,
            hint="see what runs as imagebuilder there, and run imagebuilder fsck --tree there",
        )


def has_passed(tested: Tree | None, image: ImageRef) -> bool:
    """Whether a boot test of the image's release has passed in this tree."""
    release = image.release
    if tested is None or not tested.release(release).is_dir():
        return False
    return release_standing(tested, release).state is State.PASSED


def send_reports(
    place: Transport, tested: Tree | None, image: ImageRef, there: PlaceContents, ui: Ui
) -> tuple[str, ...]:
    """Send the boot tests that the place lacks; returns the ids of those that it kept."""
    if tested is None or not place.keeps_reports:
        return ()
    found = find_carried(tested, image.release, there.reports or ())
    if not found:
        return ()
    with ui.step(f"Sending reports of {image.name}"):
        told = place.add_reports(image, pack_reports(tested, found), ui)
    for why in told.refused[: len(found)]:
        ui.warn(f"{place.name}: {why}")
    return tuple(report.id for report in found if report.id in told.kept)


def compare(
    place: Transport, store: Store, image: ImageRef, there: PlaceContents, ui: Ui
) -> tuple[Mapping[str, int], Sequence[str]]:
    """The objects of an image with their sizes, and those that the place lacks.

    Raises HostError if the place has no space for them.
    """
    with ui.step(f"Listing what {place.name} lacks"):
        objects = find_objects(store, [image.commit, read_image(store, image).root.commit])
        lacking = find_lacking(place, store, image, objects, there)
        sizes = {name: size_on_disk(store.path / "objects" / name) for name in objects}
    needed = sum(sizes[name] for name in lacking)
    if needed > there.free:
        raise HostError(
            f"not enough space: needs {format_size(needed)}, has {format_size(there.free)} free",
            where=place.where,
            hint="run imagebuilder gc --releases there",
        )
    return sizes, lacking


def size_on_disk(path: Path) -> int:
    """Bytes of a file that are not holes."""
    found = path.lstat()
    return min(found.st_size, found.st_blocks * 512)


def find_objects(store: Store, commits: Iterable[str]) -> frozenset[str]:
    """Every object of these commits, as its path below objects/."""
    return frozenset().union(*(list_objects(store.path, commit) for commit in commits))


def find_lacking(
    place: Transport, store: Store, image: ImageRef, objects: frozenset[str], there: PlaceContents
) -> tuple[str, ...]:
    """Those of `objects` that the place lacks, sorted.

    The place has all objects of the commits that both sides have.  Without such a commit, because
    this store has pruned what was published before, the place lists all its objects.
    """
    bases = [
        commit
        for commit in order_bases(there.refs, image.profile)
        if (store.path / "objects" / object_path(commit, "commit")).is_file()
    ]
    if bases:
        return tuple(sorted(objects - find_objects(store, bases[:MOST_BASES])))
    if not there.refs:
        return tuple(sorted(objects))
    known = place.have()
    return tuple(sorted(n for n in objects if n.replace("/", "", 1)[:PREFIX] not in known))


def order_bases(refs: Mapping[str, str], profile: str) -> list[str]:
    """The commits of KIND/PROFILE/VERSION refs, likely bases first: this profile's, newest first.

    Versions begin with their time.
    """
    named = sorted((ref.rpartition("/"), commit) for ref, commit in refs.items())
    newest = sorted(named, key=lambda found: found[0][2], reverse=True)
    newest.sort(key=lambda found: not found[0][0].endswith(f"/{profile}"))
    return list(dict.fromkeys(commit for _, commit in newest))
