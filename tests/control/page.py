# SPDX-License-Identifier: Apache-2.0
"""The commands that docs/control-node.md prints, and on which machine a reader types them."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

from tests.workshop import CHECKOUT

PAGE = CHECKOUT / "docs/control-node.md"
BUILDER, CONTROL_NODE = "the builder", "the control node"
# The last sentence before a block begins so.
WHERE = re.compile(rf"\bOn\s+({BUILDER}|{CONTROL_NODE})\b".replace(" ", r"\s+"))

# There sudo has no terminal to ask for a password on.
SUDO_OVER_SSH = re.compile(r"\bssh\s[^'|\n]*'[^']*\bsudo\b")


@dataclass(frozen=True)
class Block:
    """A code block: the heading it is below, the machine, and what to type."""

    section: str
    where: str
    script: str


def parse_blocks(text: str) -> list[Block]:
    """Every code block of a page.

    Raises ValueError for one that names no machine, or that only works without sudo's password.
    """
    blocks: list[Block] = []
    section, said = "", ""
    for paragraph in re.split(r"\n\n+", text):
        if paragraph.startswith("    "):
            found = WHERE.findall(said)
            if not found:
                raise ValueError(f"{section}: on which machine is this typed? {paragraph}")
            if SUDO_OVER_SSH.search(paragraph):
                raise ValueError(f"{section}: sudo cannot ask for a password here: {paragraph}")
            where = " ".join(found[-1].split())
            blocks.append(Block(section, where, textwrap.dedent(paragraph)))
        elif paragraph.startswith("#"):
            section = paragraph.lstrip("#").strip()
            said = ""
        else:
            said = paragraph
    return blocks


class Page:
    """The page's blocks by section, and which sections were typed."""

    def __init__(self) -> None:
        self.blocks = parse_blocks(PAGE.read_text())
        self.typed: set[str] = set()

    def take(self, section: str) -> list[Block]:
        """The blocks of a section, which is then counted as typed."""
        found = [block for block in self.blocks if block.section == section]
        assert found, f"{PAGE.name} has no commands below {section!r}"
        self.typed.add(section)
        return found

    @property
    def untyped(self) -> set[str]:
        """The sections that nobody typed."""
        return {block.section for block in self.blocks} - self.typed
