# SPDX-License-Identifier: Apache-2.0
"""A program with a time limit, whose errors name the node and none of its arguments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from imagebuilder.fleet.power.protocol import SECONDS, PowerError
from imagebuilder.process import check_tools, run
from imagebuilder.untrusted import clean

TIMED_OUT = 124  # timeout(1)
LINES = 3


def run_limited(
    node: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, hint: str = ""
) -> str:
    """What a program prints.  Raises PowerError when it fails or takes longer than SECONDS.

    The message has its last lines and its name, but no argument: some programs take passwords.
    """
    check_tools(argv[0])
    limit = ["timeout", "--kill-after=5", f"{SECONDS:g}"]
    done = run([*limit, *argv], env=env, check=False)
    if done.status == TIMED_OUT:
        raise PowerError(f"{argv[0]} did not end within {SECONDS:g} s", where=node, hint=hint)
    if done.status != 0:
        last = (done.stderr or done.stdout).strip().splitlines()[-LINES:]
        said = " / ".join(map(clean, last))
        what = f"{argv[0]} failed: {said or f'exit status {done.status}'}"
        raise PowerError(what, where=node, hint=hint)
    return done.stdout
