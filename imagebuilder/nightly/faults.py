# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in a nightly run, as one fault of its report."""

from __future__ import annotations

import os
from dataclasses import replace

from imagebuilder.errors import Fault, ImagebuilderError

# Errors of one profile that do not end the run; anything else is a bug, which is recorded too.
TROUBLES = (ImagebuilderError, OSError)


def fault_of(error: BaseException) -> Fault:
    """An error as one fault: its first one, with the number of the others."""
    if isinstance(error, ImagebuilderError):
        first, more = error.faults[0], len(error.faults) - 1
        return replace(first, what=f"{first.what} (and {more} more)") if more else first
    if isinstance(error, OSError):
        where = os.fspath(error.filename) if isinstance(error.filename, str | bytes) else "system"
        return Fault(str(where), error.strerror or str(error))
    if isinstance(error, KeyboardInterrupt):
        return Fault("", "interrupted", "the next run continues from here")
    return Fault(
        "", f"a bug in imagebuilder: {type(error).__name__}: {error}",
        "report it and attach the log",
    )  # fmt: skip


def in_a_line(fault: Fault) -> str:
    """A fault in one line: its place, and the first line of its text."""
    what = fault.what.partition("\n")[0]
    return f"{fault.where}: {what}" if fault.where else what
