# SPDX-License-Identifier: Apache-2.0
"""Programs of the image that were asked something, and gave no answer: that is no good answer."""

from __future__ import annotations

import signal
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.process import Completed
from imagebuilder.proof.say import Say

REFUSED = 126  # as sh(1) has it for what cannot be executed
CUT_OFF = -signal.SIGPIPE  # nobody read the rest of what it printed; stderr says why


def why_unanswered(done: Completed) -> str:
    """Why a program did not run to its end, "" if it did."""
    if done.late:
        return "it did not end in time"
    if done.status == REFUSED:
        return (done.stderr.strip().splitlines() or ["it cannot be executed"])[-1].strip()
    if done.status == CUT_OFF and done.stderr:
        return done.stderr.strip().splitlines()[-1].strip()
    return f"killed by signal {-done.status}" if done.status < 0 else ""


def prove_answered(say: Say, done: Completed, what: str, where: Evidence) -> Iterator[Finding]:
    """A finding if a program did not run to its end: `what` is not known then.

    Only a fault if the program cannot even start: a slow host may be why one does not end.
    """
    if why := why_unanswered(done):
        tell = say.fault if done.status == REFUSED else say.warning
        hint = "run the same command in the image (imagebuilder shell) to see why"
        yield tell(f"could not be examined: {what} ({why})", where, hint=hint)
