# SPDX-License-Identifier: Apache-2.0
"""Templates of ours: the daemons' files, iPXE scripts, and HTML pages."""

from __future__ import annotations

from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from imagebuilder.ui import format_count, format_duration, format_size
from imagebuilder.untrusted import clean_lines


def templates(*folders: Path, html: bool = False) -> Environment:
    """The templates in these folders; a name that is not given is an error.

    What pages (`html`) show was said by programs and machines: every value is escaped, and the
    filter `plain` takes control characters out.
    """
    made = Environment(
        loader=FileSystemLoader(folders),
        undefined=StrictUndefined,
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
