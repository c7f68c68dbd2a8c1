# SPDX-License-Identifier: Apache-2.0
"""The kernel messages of nodes in their last boots: TREE/serve/consoles/NODE/TIME.log.

The receiver writes them (serve/consoles.py): one file per boot, named after the time of its first
line, and TIME.log.1 with earlier lines of a long one.  Nodes sent the text; each line is clean.  A
kernel prints its command line with the ticket of its boot (tickets.py), which is removed.
"""

from __future__ import annotations

import errno
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.errors import RootError
from imagebuilder.files import plain_file
from imagebuilder.log import Tail
from imagebuilder.tree import Tree

NAME = "%Y%m%dT%H%M%SZ"
SUFFIX = ".log"
MOST = 1024**2  # bytes of a file that are read
POLL = 0.25  # seconds
SHOWN = 20  # earlier lines that are shown
# netconsole cuts a line after 1000 bytes, anywhere, and one of its parts may be lost.
CUT = r"(?:\n(?:\[ *[0-9.]+\] )?)?"
TICKET = re.compile(
    rf"(?P<before>{CUT.join('/report/')}{CUT})(?P<digits>(?:[0-9a-f]{CUT}){{1,32}})"
    r"|(?P<stamp>^(?:\[ *[0-9.]+\] )?)[a-z]{0,6}/?[0-9a-f]{1,32}(?=/[0-9a-f]{16}(?![0-9a-f]))",
    re.MULTILINE,
)


@dataclass(frozen=True)
class ConsoleBoot:
    """A boot with lines in `path`, and the time of its first line."""

    start: datetime
    path: Path

    def lines(self) -> list[str]:
        """The lines, the oldest first."""
        parts = (self.path.with_name(f"{self.path.name}.1"), self.path)
        return [line for part in parts for line in read_lines(part)]

    @property
    def heard(self) -> float:
        """The time of its last line, in seconds since 1970; 0 if the file is gone."""
        try:
            return self.path.stat().st_mtime
        except FileNotFoundError:
            return 0.0

    @property
    def title(self) -> str:
        return f"boot of {self.start:%Y-%m-%d %H:%M:%S} UTC"

    def render(self) -> list[str]:
        """For people: a title, then the lines."""
        return [f"--- {self.title} ---", *self.lines()]

    def as_json(self) -> dict[str, Json]:
        return {"boot": self.start.isoformat(), "lines": [*self.lines()]}


def read_lines(path: Path) -> list[str]:
    """The lines of a file; none if it was removed for a newer boot, or is a link.

    The receiver runs as an ordinary user, who may create links to files that only root may read.
    """
    try:
        with plain_file(path, follow=False) as stream:
            text = stream.read(MOST).decode(errors="replace")
            return hide_tickets(text).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return []
        raise


def hide_tickets(text: str) -> str:
    """Lines without the tickets in them."""

    def hide(found: re.Match[str]) -> str:
        if found["digits"] is None:
            return f"{found['stamp']}…"
        return f"{found['before']}…{''.join(re.findall(CUT, found['digits']))}"

    return TICKET.sub(hide, text)


def find_consoles(tree: Tree, node: str) -> list[ConsoleBoot]:
    """The boots of a node with lines, the last one last.  Raises RootError.

    One from the future began by a clock that was set back: it is older than the others.
    """
    folder = tree.consoles(node)
    try:
        if folder.is_symlink():
            return []
        names = [entry.name for entry in os.scandir(folder) if not entry.is_symlink()]
    except FileNotFoundError:
        return []
    except PermissionError as error:
        raise RootError(f"the console of {node} is readable by root only") from error
    boots = [ConsoleBoot(start, folder / name) for name in names if (start := parse_name(name))]
    now = datetime.now(UTC)
    return sorted(boots, key=lambda boot: (boot.start <= now, boot.start))


def parse_name(name: str) -> datetime | None:
    """The start of a boot, by the name of its file; None for another file."""
    try:
        return datetime.strptime(name, f"{NAME}{SUFFIX}").replace(tzinfo=UTC)
    except ValueError:
        return None


def follow_console(
    tree: Tree, node: str, pause: Callable[[float], None] = time.sleep
) -> Iterator[str]:
    """The last lines of a node, then new lines as they arrive, with a title for each boot.

    Never ends.  Raises RootError.
    """
    boots = find_consoles(tree, node)
    current = boots[-1] if boots else None
    tail = Tail(current.path) if current else None

    def more() -> list[str]:
        return hide_tickets("\n".join(tail.read())).splitlines() if tail else []

    if current:
        yield f"--- {current.title} ---"
        yield from more()[-SHOWN:]
    while True:
        pause(POLL)
        boots = find_consoles(tree, node)
        if boots and boots[-1] != current:
            yield from more()
            current = boots[-1]
            tail = Tail(current.path)
            yield f"--- {current.title} ---"
        yield from more()
