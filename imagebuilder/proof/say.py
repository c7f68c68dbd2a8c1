# SPDX-License-Identifier: Apache-2.0
"""Names in a text; and programs of the image that were asked, and gave no answer: that is no good
answer.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.phrases import list_first
from imagebuilder.process import Completed

MOST_NAMES = 3
REFUSED = 126  # as sh(1) has it for what cannot be executed
CUT_OFF = -signal.SIGPIPE  # nobody read the rest of what it printed; stderr says why


def some(names: Iterable[str]) -> str:
    """The first few of many names in a text: `a, b, c and 4 more`."""
    return list_first(names, MOST_NAMES)


def why_unanswered(done: Completed) -> str:
    """Why a program did not run to its end, "" if it did."""
    if done.late:
        return "it did not end in time"
    if done.status == REFUSED:
        return (done.stderr.strip().splitlines() or ["it cannot be executed"])[-1].strip()
    if done.status == CUT_OFF and done.stderr:
        return done.stderr.strip().splitlines()[-1].strip()
    return f"killed by signal {-done.status}" if done.status < 0 else ""


def prove_answered(done: Completed, what: str, where: Evidence) -> Findings:
    """A finding if a program did not run to its end: `what` is not known then.

    Only a fault if the program cannot even start: a slow host may be why one does not end.
    """
    if why := why_unanswered(done):
        tell = fault if done.status == REFUSED else warning
        hint = "run the same command in the image (imagebuilder shell) to see why"
        yield tell(f"could not be examined: {what} ({why})", where, hint=hint)
