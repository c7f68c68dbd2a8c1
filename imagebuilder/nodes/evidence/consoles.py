# SPDX-License-Identifier: Apache-2.0
"""What the kernels of nodes said in their last boots: TREE/serve/consoles/NODE/TIME.log.

The receiver writes them (serve/consoles.py): a file a boot, named by when its first line came, and
beside a long one TIME.log.1 with what came before.  They are text that nodes sent, each line clean.
A kernel says its command line, and with it the ticket of its boot (tickets.py): that is left out.
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
SHOWN = 20  # lines that are shown of what was said before
# A ticket, whole or at the end of a packet; its rest is in the next one.
TICKET = re.compile(
    r"(/report/)(?:[0-9a-f]{32}|[0-9a-f]{1,31}$(\n(?:\[ *[0-9.]+\] )?)[0-9a-f]{1,31})", re.MULTILINE
)


@dataclass(frozen=True)
class ConsoleBoot:
    """A boot of which there are lines in `path`, and the time of its first one."""

    start: datetime
    path: Path

    def lines(self) -> list[str]:
        """What was said, the oldest first."""
        parts = (self.path.with_name(f"{self.path.name}.1"), self.path)
        return [line for part in parts for line in read_lines(part)]

    @property
    def heard(self) -> float:
        """When the last line of it came, in seconds since 1970; 0 where it is gone."""
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
        """JSON for programs, a stable contract."""
        return {"boot": self.start.isoformat(), "lines": [*self.lines()]}


def read_lines(path: Path) -> list[str]:
    """The lines of a file; none where it is gone, for another boot came, or is a link.

    The receiver runs as an ordinary user, who may link to what root alone may read.
    """
    try:
        with plain_file(path, follow=False) as stream:
            text = stream.read(MOST).decode(errors="replace")
            return TICKET.sub(r"\1…\2", text).splitlines()
    except FileNotFoundError:
        return []
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.ENXIO):
            return []
        raise


def find_consoles(tree: Tree, node: str) -> list[ConsoleBoot]:
    """The boots of a node that there are lines of, the last one last.  Raises RootError."""
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
    return sorted(boots, key=lambda boot: boot.start)


def parse_name(name: str) -> datetime | None:
    """When a boot began, by the name of its file; None for another file."""
    try:
        return datetime.strptime(name, f"{NAME}{SUFFIX}").replace(tzinfo=UTC)
    except ValueError:
        return None


def follow_console(
    tree: Tree, node: str, pause: Callable[[float], None] = time.sleep
) -> Iterator[str]:
    """The last lines of a node, then what it says from now on, with a title for each boot.

    Never ends.  Raises RootError.
    """
    boots = find_consoles(tree, node)
    current = boots[-1] if boots else None
    tail = Tail(current.path) if current else None
    if current and tail:
        yield f"--- {current.title} ---"
        yield from tail.read()[-SHOWN:]
    while True:
        pause(POLL)
        boots = find_consoles(tree, node)
        if boots and boots[-1] != current:
            yield from tail.read() if tail else ()
            current = boots[-1]
            tail = Tail(current.path)
            yield f"--- {current.title} ---"
        yield from tail.read() if tail else ()
