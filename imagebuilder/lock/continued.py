# SPDX-License-Identifier: Apache-2.0
"""Wheels that pip was fetching when it was ended: kept with their address, and continued.

pip starts a file over.  It leaves what it had when it is killed, and its log says from where.
"""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.digest import digest_of_file
from imagebuilder.files import keep_file
from imagebuilder.lock.patience import Pace
from imagebuilder.lock.types import LockedWheel

PREFIX = ".pip-"
LOG = "log"
TIMEOUT_S = 30
PIECE = 1 << 16


@contextmanager
def pip_room(folder: Path) -> Iterator[Path]:
    """A folder below `folder` for pip's unfinished files, where they are counted, and its log."""
    room = Path(tempfile.mkdtemp(dir=folder, prefix=PREFIX))
    try:
        yield room
    finally:
        keep_partial(room)


def keep_partial(room: Path) -> None:
    """Keep beside `room`, which goes, the wheels that are in it."""
    said = (room / LOG).read_text(errors="replace") if (room / LOG).exists() else ""
    for path in room.rglob("*.whl"):
        part, url = partial(room.parent, path.name), find_url(said, path.name)
        if url and path.stat().st_size > size_of(part):
            keep_file(path, part)
            address(part).write_text(url)
    shutil.rmtree(room)


def find_url(said: str, name: str) -> str:
    """Where a log of pip says that a wheel is; "" for nowhere, or behind a password."""
    found = re.search(rf"Found link (https?://[^\s#]+/{re.escape(name)})[#\s]", said)
    return found[1] if found and "****" not in found[1] else ""


def partial(folder: Path, name: str) -> Path:
    """Where the unfinished file of a wheel is kept."""
    return folder / f"{name}.part"


def address(part: Path) -> Path:
    """Where the address of an unfinished file is kept."""
    return part.with_suffix(".url")


def kept_of(folder: Path, wheel: LockedWheel) -> tuple[Path, Path]:
    """Where what is kept of a wheel lies, and its address."""
    part = partial(folder, wheel.filename)
    return part, address(part)


def forget(folder: Path, wheel: LockedWheel) -> None:
    """Remove what is kept of a wheel."""
    for path in kept_of(folder, wheel):
        path.unlink(missing_ok=True)


def size_of(path: Path) -> int:
    """The bytes of a file; 0 if there is none."""
    return path.stat().st_size if path.exists() else 0


def continue_wheels(folder: Path, wheels: Sequence[LockedWheel], pace: Pace) -> list[LockedWheel]:
    """Complete what was kept of `wheels` in `folder`; those that are still missing there.

    What cannot be continued is left to pip, which says why.  Raises SlowError.
    """
    for wheel in wheels:
        part, url = kept_of(folder, wheel)
        if not (part.exists() and url.exists()):
            continue
        before = -1
        while before < size_of(part) < wheel.size:
            before = size_of(part)
            fetch_rest(url.read_text(), part, pace)
        if size_of(part) >= wheel.size:
            if digest_of_file(part) == wheel.sha256:
                keep_file(part, folder / wheel.filename)
            forget(folder, wheel)
    return [wheel for wheel in wheels if not (folder / wheel.filename).exists()]


def fetch_rest(url: str, part: Path, pace: Pace) -> None:
    """Append to a file what its server has after it; nothing if that does not answer so."""
    import requests  # slow to import, and seldom needed

    first, bundle = size_of(part), os.environ.get("PIP_CERT") or True
    headers = {"Range": f"bytes={first}-", "Accept-Encoding": "identity"}
    with (
        contextlib.suppress(requests.RequestException),
        requests.get(url, headers=headers, stream=True, timeout=TIMEOUT_S, verify=bundle) as answer,
        part.open("ab") as sink,
    ):
        same = answer.headers.get("Content-Range", "").startswith(f"bytes {first}-")
        for piece in answer.iter_content(PIECE) if answer.status_code == 206 and same else ():
            sink.write(piece)
            pace.ask()
