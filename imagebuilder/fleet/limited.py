# SPDX-License-Identifier: Apache-2.0
"""What is done to many nodes at once, and programs with a time limit."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from imagebuilder.errors import ImagebuilderError, WorkError
from imagebuilder.process import check_tools, run
from imagebuilder.untrusted import clean

SECONDS = 60.0  # a BMC's first answer may take 40 s
LINES = 3
T = TypeVar("T")
R = TypeVar("R")


def try_each(
    items: Mapping[str, T], action: Callable[[T], R], at_once: int = 64
) -> dict[str, R | ImagebuilderError]:
    """What `action` returns for each, or the error that it raised: a dead BMC delays nobody."""

    def one(item: T) -> R | ImagebuilderError:
        try:
            return action(item)
        except ImagebuilderError as error:
            return error

    with ThreadPoolExecutor(min(at_once, max(1, len(items)))) as pool:
        return dict(zip(items, pool.map(one, items.values()), strict=True))


def run_limited(
    node: str,
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    hint: str = "",
    noise: re.Pattern[str] | None = None,
) -> str:
    """What a program prints.  Raises WorkError when it fails or takes longer than SECONDS.

    The message has the node, the last lines and the name of the program, but no argument: some
    programs take passwords.
    Lines that begin with `noise` are left out of it, unless there are no others.
    """
    check_tools(argv[0])
    done = run(argv, env=env, seconds=SECONDS, check=False)
    if done.late:
        raise WorkError(f"{argv[0]} did not end within {SECONDS:g} s", where=node, hint=hint)
    if done.status != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        last = [line for line in lines if not (noise and noise.match(line))] or lines
        said = " / ".join(map(clean, last[-LINES:]))
        what = f"{argv[0]} failed: {said or f'exit status {done.status}'}"
        raise WorkError(what, where=node, hint=hint)
    return done.stdout
