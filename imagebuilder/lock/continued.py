# SPDX-License-Identifier: Apache-2.0
"""Keep and resume downloads of wheels that were interrupted.

pip itself starts over, but a killed pip leaves its partial file, and its log has the address.
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

from imagebuilder.answers import answered, pieces_of
from imagebuilder.digest import digest_of_file
from imagebuilder.files import keep_file, read_text
from imagebuilder.folders import paths_below
from imagebuilder.lock.patience import Pace
from imagebuilder.lock.types import LockedWheel

PREFIX = ".pip-"
LOG = "log"
TIMEOUT_S = 30


@contextmanager
def pip_folder(folder: Path) -> Iterator[Path]:
    """A folder for pip's unfinished files and its log, below `folder` so that they are counted."""
    work = Path(tempfile.mkdtemp(dir=folder, prefix=PREFIX))
    try:
        yield work
    finally:
        keep_partial(work)


def keep_partial(work: Path) -> None:
    """Remove pip's folder `work`, but keep the partial wheels in it beside it."""
    log = read_text(work / LOG) if (work / LOG).exists() else ""
    for path in [path for path in paths_below(work) if path.suffix == ".whl"]:
        part, url = partial(work.parent, path.name), find_url(log, path.name)
        if url and path.stat().st_size > size_of(part):
            keep_file(path, part)
            address(part).write_text(url)
    shutil.rmtree(work)


def find_url(log: str, name: str) -> str:
    """The address of a wheel in pip's log; "" if it is missing or needs a password."""
    found = re.search(rf"Found link (https?://[^\s#]+/{re.escape(name)})[#\s]", log)
    return found[1] if found and "****" not in found[1] else ""


def partial(folder: Path, name: str) -> Path:
    return folder / f"{name}.part"


def address(part: Path) -> Path:
    return part.with_suffix(".url")


def kept_of(folder: Path, wheel: LockedWheel) -> tuple[Path, Path]:
    """The paths of a wheel's partial file and of the file with its address."""
    part = partial(folder, wheel.filename)
    return part, address(part)


def forget(folder: Path, wheel: LockedWheel) -> None:
    """Remove a wheel's partial file and its address."""
    for path in kept_of(folder, wheel):
        path.unlink(missing_ok=True)


def size_of(path: Path) -> int:
    """The bytes of a file; 0 if it does not exist."""
    return path.stat().st_size if path.exists() else 0


def continue_wheels(folder: Path, wheels: Sequence[LockedWheel], pace: Pace) -> list[LockedWheel]:
    """Complete the partial files of `wheels` in `folder`; returns the wheels still missing.

    What cannot be resumed is left to pip, which reports why.  Raises SlowError.
    """
    for wheel in wheels:
        part, url = kept_of(folder, wheel)
        if not (part.exists() and url.exists()):
            continue
        before = -1
        while before < size_of(part) < wheel.size:
            before = size_of(part)
            fetch_rest(read_text(url), part, pace)
        if size_of(part) >= wheel.size:
            if digest_of_file(part) == wheel.sha256:
                keep_file(part, folder / wheel.filename)
            forget(folder, wheel)
    return [wheel for wheel in wheels if not (folder / wheel.filename).exists()]


def fetch_rest(url: str, part: Path, pace: Pace) -> None:
    """Append the rest of a file from its server; nothing if the server cannot resume.

    `pace` is asked all the time: a server that sends one byte now and then is slow too.
    """
    from requests import RequestException  # slow to import, and seldom needed
    from urllib3.exceptions import HTTPError

    first, bundle = size_of(part), os.environ.get("PIP_CERT") or True
    headers = {"Range": f"bytes={first}-", "Accept-Encoding": "identity"}
    with (
        contextlib.suppress(RequestException, TimeoutError, HTTPError),
        answered(url, TIMEOUT_S, headers=headers, verify=bundle) as answer,
        part.open("ab") as sink,
    ):
        same = answer.headers.get("Content-Range", "").startswith(f"bytes {first}-")
        if answer.status_code == 206 and same:
            for piece in pieces_of(answer, pace.ask):
                sink.write(piece)
