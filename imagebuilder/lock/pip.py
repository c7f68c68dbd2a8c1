# SPDX-License-Identifier: Apache-2.0
"""pip, which package indexes feed: with limits on its memory, its files and their silence."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from imagebuilder.apart import most_memory
from imagebuilder.errors import FullError, HostError, ImagebuilderError, WorkError
from imagebuilder.lock.patience import Patience, SlowError, paced
from imagebuilder.process import Completed, run
from imagebuilder.ui import format_size

PIP = (sys.executable, "-P", "-m", "pip", "--no-input", "--disable-pip-version-check")
UNREACHABLE = re.compile(r"Max retries exceeded|NewConnectionError|Failed to establish a new")
# How pip begins what it says of an error that it does not know: a traceback follows.
UNKNOWN = "ERROR: Exception:"
NETWORK_HINT = "check the network, the proxy and pip's configuration (pip config list)"
OTHER_INDEX = "use another index or network: somebody may have changed what this one sends"
# While pip chooses, pages go into its memory, and only its log and files of packages grow.
CHOOSING = Patience(rate=100, seconds=120.0)
# The wheels of an environment have up to 5 GB.
MOST_CHOSEN = 32 << 30

# Runs pip with some words.
Pip = Callable[..., Completed]


@contextmanager
def choosing(folder: Path, where: str) -> Iterator[Pip]:
    """pip that chooses wheels; its files and its log are in `folder`, which the caller removes.

    Raises HostError if an index sends nothing for a long time, or without an end.  How much will
    come is not known before the lock exists.
    """
    with paced(folder, CHOOSING) as pace:

        def ask() -> None:
            if pace.arrived > MOST_CHOSEN:
                what = f"the package index sent more than {format_size(MOST_CHOSEN)}: gave up"
                raise HostError(what, where=where, hint=OTHER_INDEX)
            pace.ask()

        def pip(command: str, *words: str | Path) -> Completed:
            logged = (command, "--log", folder / "log", *words)
            return run_pip(*logged, env={"TMPDIR": os.fspath(folder)}, ask=ask)

        try:
            yield pip
        except SlowError as error:
            what = f"the package index sent {CHOOSING}: gave up"
            raise HostError(what, where=where, hint=NETWORK_HINT) from error


def run_pip(
    *words: str | Path,
    env: Mapping[str, str] | None = None,
    ask: Callable[[], None] | None = None,
) -> Completed:
    """Run pip with the user's own PIP_* settings; the caller checks its status.

    It reads whole pages, and the metadata of packages, into memory.
    """
    settings = {name: value for name, value in os.environ.items() if name.startswith("PIP_")}
    for name in ("XDG_CONFIG_HOME", "XDG_CACHE_HOME"):
        if name in os.environ:
            settings[name] = os.environ[name]
    limited = ("prlimit", f"--data={most_memory()}", "--", *PIP, *words)
    return run(limited, env={**settings, **(env or {})}, ask=ask, check=False)


def first_done(
    requirements: Path, options: Sequence[str], lines: Sequence[str], pip: Callable[[], Completed]
) -> Completed:
    """The result of `pip`; the file's extra indexes are used only if the host's do not suffice."""
    extra = all(option.startswith("--extra-index-url") for option in options)
    for tried in dict.fromkeys([() if extra else tuple(options), tuple(options)]):
        requirements.write_text("".join(f"{line}\n" for line in (*tried, *lines)))
        done = pip()
        if done.status == 0:
            break
    return done


def find_known(done: Completed, where: str) -> ImagebuilderError | None:
    """The error of a run of pip that failed for a reason of the host or of the network."""
    words = errors_of(done)
    if UNREACHABLE.search(done.stdout + done.stderr):
        what = f"the package index is not reachable\n    {words}"
        return HostError(what, where=where, hint=NETWORK_HINT)
    if "No space left" in done.stderr:
        return FullError(f"no space left for wheels\n    {words}", where=where)
    if re.search(r"(?m)^MemoryError", done.stderr):
        most = format_size(most_memory())
        what = f"pip took more than {most} of memory for what a package index sent"
        return HostError(what, where=where, hint=OTHER_INDEX)
    return None


def download_error(done: Completed, where: str) -> ImagebuilderError:
    """The error of a run of pip that could not fetch."""
    if known := find_known(done, where):
        return known
    hint = "run imagebuilder lock PROFILE to choose from what the index has now"
    what = f"pip could not fetch the locked wheels\n    {errors_of(done)}"
    return WorkError(what, where=where, hint=hint)


def errors_of(done: Completed) -> str:
    """What pip says of its error, in a few lines; of one that it does not know, the last line."""
    lines = [line.strip() for line in done.stderr.splitlines() if line.strip()]
    said = [line for line in lines if line.startswith("ERROR:") and line != UNKNOWN]
    return "\n    ".join((said or lines[-1 if UNKNOWN in lines else 0 :])[-8:])
