# SPDX-License-Identifier: Apache-2.0
"""docs/control-node.md can be typed by a test: every block says on which machine."""

from __future__ import annotations

import pytest

from tests.control.page import BUILDER, CONTROL_NODE, PAGE, Block, parse_blocks


def test_every_block_of_the_page_names_its_machine() -> None:
    blocks = parse_blocks(PAGE.read_text())
    assert {block.where for block in blocks} == {BUILDER, CONTROL_NODE}
    wheel = "rm -rf dist\npip wheel --no-deps --wheel-dir dist ."
    assert blocks[0] == Block("Build the wheel", BUILDER, wheel)


def test_the_last_machine_named_before_a_block_counts() -> None:
    text = "## Send\n\nOn the builder it is made. On the control\nnode:\n\n    true\n    false\n"
    assert parse_blocks(text) == [Block("Send", CONTROL_NODE, "true\nfalse\n")]


@pytest.mark.parametrize("before", ["", "Type:\n\n", "On the builder:\n\n## Next\n\n"])
def test_a_block_without_a_machine_is_found(before: str) -> None:
    with pytest.raises(ValueError, match="on which machine"):
        parse_blocks(f"## Send\n\n{before}    true\n")


@pytest.mark.parametrize(
    "words", ["ssh admin@nuc 'sudo true'", "cat a |\n        ssh nuc 'a; sudo b'"]
)
def test_sudo_without_a_terminal_is_found(words: str) -> None:
    with pytest.raises(ValueError, match="cannot ask for a password"):
        parse_blocks(f"## Send\n\nOn the builder:\n\n    {words}\n")
