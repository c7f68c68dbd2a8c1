# SPDX-License-Identifier: Apache-2.0
"""Words with quotes, as shells, systemd and PAM separate them."""

from __future__ import annotations

import shlex

# No program can be given a longer word (MAX_ARG_STRLEN, execve(2)), and shlex takes a time that
# grows with the square of a word's length: minutes for 4 MB.
MOST_CHARACTERS = 128 << 10


def split_words(text: str) -> list[str]:
    """The words of a text.  Raises ValueError for quotes that are not closed, and a long text."""
    if len(text) > MOST_CHARACTERS:
        raise ValueError("longer than an argument of a program can be")
    return shlex.split(text)


def unquoted(text: str) -> list[str]:
    """The words of a text, with their quotes if they cannot be taken off."""
    try:
        return split_words(text)
    except ValueError:
        return text.split()
