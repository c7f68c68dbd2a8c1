# SPDX-License-Identifier: Apache-2.0
"""What other people and machines wrote does not look like a line of ours."""

from __future__ import annotations

import io

from imagebuilder.errors import Fault, WorkError
from imagebuilder.ui import Ui

FORGED = "x\nerror: forged\n  hint: forged\nchannel stable is now forged"


def test_a_line_break_in_a_fault_begins_no_error_and_no_hint() -> None:
    told = str(Fault("place\nerror: forged", FORGED, FORGED)).splitlines()
    assert [line for line in told if not line.startswith("    ")] == [
        "place\\nerror: forged: x",
        "  hint: x",
    ]


def test_lines_of_a_program_stay_where_they_are() -> None:
    what = "tar failed (exit status 2)\n    first\n      second"
    hint = "the command was: tar\n        whole log: a.log"
    assert str(WorkError(what, hint=hint)) == f"{what}\n  hint: {hint}"


def test_a_line_break_in_a_note_begins_no_line_of_ours() -> None:
    stream = io.StringIO()
    ui = Ui.for_stream(stream, {}, verbose=True)
    for say in (ui.note, ui.warn, ui.detail):
        say(FORGED)
    with ui.step(FORGED):
        pass
    lines = stream.getvalue().splitlines()
    assert not [line for line in lines if line.startswith(("error:", "channel"))]
