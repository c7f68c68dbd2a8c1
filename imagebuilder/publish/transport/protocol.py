# SPDX-License-Identifier: Apache-2.0
"""What a place that releases are published to must provide.

    list      which releases it has, by the commits of their images and roots
    have      which objects it has, if the sides have no commit in common
    send      the objects that it lacks  \
    verify    each of them                } one transaction: all of it happens, or nothing
    activate  the release, by a channel  /

send.py calls them in this order.  If one program does the last three steps, send() may do them all,
as it does over ssh: verify() and activate() then return the outcome.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import AfterValidator

from imagebuilder.decode import Amount, Opaque
from imagebuilder.image.types import Commit
from imagebuilder.publish.transport.reports import KeptReports, Line
from imagebuilder.rootkind import Format
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.ui import Ui
from imagebuilder.untrusted import MOST_REQUEST, clean_lines

PREFIX = 16  # hexadecimal digits that identify an object


@dataclass(frozen=True)
class Order:
    """What a place must do with an image: the channel, packed formats, and why it is untested."""

    channel: str
    formats: tuple[Format, ...] = ()
    untested: str = ""


Lines = Annotated[str, AfterValidator(lambda text: clean_lines(text[:MOST_REQUEST]))]


@dataclass(frozen=True)
class PlaceContents:
    """What a place has: refs with their complete commits, and free bytes.

    A ref is KIND/PROFILE/VERSION.  `reports` are the boot tests of the image's release, None if the
    place does not have the release.
    """

    refs: Mapping[Line, Commit]
    free: Amount
    reports: tuple[str, ...] | None


@dataclass(frozen=True)
class Activated:
    """What a place says about a release: for programs, and in sentences."""

    published: Opaque
    said: Lines


class Arrival(Protocol):
    """An image on its way into a place."""

    def send(self, source: Store, objects: Sequence[str]) -> int:
        """Send these objects, paths below objects/ of `source`; returns how many bytes that took.

        Raises HostError when the place is full or cannot be reached.
        """

    def verify(self) -> None:
        """Raise WorkError unless every object of the image is there and is what its name says."""

    def activate(self) -> Activated:
        """Make the release and point the channel to it.  Raises what publish() raises."""


class Transport(Protocol):
    """A place.  `name` is for people; `where` also names its tree.

    A place that `keeps_reports` has boot tests beside its releases; in others only what is
    published untested becomes stable.
    """

    @property
    def name(self) -> str: ...

    @property
    def where(self) -> str: ...

    @property
    def keeps_reports(self) -> bool: ...

    def check(self) -> None:
        """Raise HostError when nothing can be sent from here."""

    def list(self, image: ImageRef) -> PlaceContents:
        """What the place has.  Raises HostError when it cannot be reached or is not fit."""

    def have(self) -> frozenset[str]:
        """The starts (PREFIX digits) of the names of all its objects."""

    def arrival(self, image: ImageRef, order: Order, ui: Ui) -> AbstractContextManager[Arrival]:
        """The transaction.  Raises WorkError at once if the image may not become stable."""

    def add_reports(self, image: ImageRef, lines: bytes, ui: Ui) -> KeptReports:
        """Send boot tests of a release that the place has; it keeps those of its own bytes."""
