# SPDX-License-Identifier: Apache-2.0
"""A program with a time limit, whose errors name the node and none of its arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from imagebuilder.fleet.power.protocol import SECONDS, PowerError
from imagebuilder.process import check_tools, run
from imagebuilder.untrusted import clean

LINES = 3
KLOG = re.compile(r"[IWEF]\d{4} [\d:.]+ +\d+ \S+\] ")  # what kubectl logs before it says why


def run_limited(
    node: str, argv: Sequence[str], *, env: Mapping[str, str] | None = None, hint: str = ""
) -> str:
    """What a program prints.  Raises PowerError when it fails or takes longer than SECONDS.

    The message has its last lines and its name, but no argument: some programs take passwords.
    """
    check_tools(argv[0])
    done = run(argv, env=env, seconds=SECONDS, check=False)
    if done.late:
        raise PowerError(f"{argv[0]} did not end within {SECONDS:g} s", where=node, hint=hint)
    if done.status != 0:
        lines = (done.stderr or done.stdout).strip().splitlines()
        last = [line for line in lines if not KLOG.match(line)] or lines
        said = " / ".join(map(clean, last[-LINES:]))
        what = f"{argv[0]} failed: {said or f'exit status {done.status}'}"
        raise PowerError(what, where=node, hint=hint)
    return done.stdout
