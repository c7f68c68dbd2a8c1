# SPDX-License-Identifier: Apache-2.0
"""What goes wrong in a night, as one fault of its report."""

from __future__ import annotations

import os
from dataclasses import replace

from imagebuilder.errors import Fault, ImagebuilderError

# What one profile may run into without ending the night; anything else is a bug, and recorded too.
TROUBLES = (ImagebuilderError, OSError)


def fault_of(error: BaseException) -> Fault:
    """An error as one fault: the first it has, with how many more there are."""
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
        "report it with the log",
    )  # fmt: skip


def in_a_line(fault: Fault) -> str:
    """A fault where a line of text is wanted: its place, and the first line of what it says."""
    what = fault.what.partition("\n")[0]
    return f"{fault.where}: {what}" if fault.where else what
