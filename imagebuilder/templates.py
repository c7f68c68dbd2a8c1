# SPDX-License-Identifier: Apache-2.0
"""Templates of ours: the daemons' files, iPXE scripts, and HTML pages."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from imagebuilder.ui import format_count, format_duration, format_size
from imagebuilder.untrusted import clean_lines

if TYPE_CHECKING:
    from jinja2 import Environment


def templates(*folders: Path, html: bool = False) -> Environment:
    """The templates in these folders; a name that is not given is an error.

    What pages (`html`) show was said by programs and machines: every value is escaped, and the
    filter `plain` takes control characters out.
    """
    import jinja2  # takes 20 ms of every command that renders none

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folders),
        undefined=jinja2.StrictUndefined,
        autoescape=html,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters |= {
        "plain": clean_lines,
        "duration": format_duration,
        "size": format_size,
        "many": format_count,
    }
    return made
