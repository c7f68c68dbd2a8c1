# SPDX-License-Identifier: Apache-2.0
"""Pages for people: their links lead somewhere, and their commands and options exist."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup, TyperOption

from tests.commands import load_program
from tests.workshop import CHECKOUT

PAGES = tuple(
    path.relative_to(CHECKOUT)
    for pattern in ("*.md", "docs/*.md", "overlays/*/README.md")
    for path in sorted(CHECKOUT.glob(pattern))
)
LINK = re.compile(r"\[[^]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)
# A command at the beginning of a line of code or between backquotes, also after a prompt or sudo.
COMMAND = re.compile(
    r"(?:^ {4,}(?:\$ |sudo )*|`(?:sudo )?)imagebuilder ([a-z][^`#\n]*)", re.MULTILINE
)
OPTION = re.compile(r"^\[?(--?[a-z][a-z-]*)")
# The program's own options, of every command.
COMMON = {"-h", "--help", "-v", "--verbose", "--state", "--project", "--version"}


def anchors_of(text: str) -> set[str]:
    """The names that GitHub gives to the headings of a page."""
    words = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in HEADING.findall(text))
    return {word.strip().replace(" ", "-") for word in words}


def broken_links(page: Path, text: str) -> Iterator[str]:
    """Links to files and headings that do not exist; the page itself need not."""
    for link in LINK.findall(text):
        if "://" in link or link.startswith("mailto:"):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name
        if not target.exists():
            yield f"{link}: no such file"
        elif anchor and anchor not in anchors_of(target.read_text() if name else text):
            yield f"{link}: no such heading"


def unknown_words(text: str) -> Iterator[str]:
    """Commands and options in a text that the program does not have."""
    for typed in COMMAND.findall(text):
        words = typed.split()
        command: Any = load_program()
        while words and isinstance(command, TyperGroup):
            found = command.commands.get(words[0])
            if found is None and command.name == "rollout":
                found = command.commands["start"]  # `rollout PROFILE` is short for it
            elif found is not None:
                words.pop(0)
            if found is None:
                break
            command = found
        if isinstance(command, TyperGroup) and words and words[0].islower():
            yield f"imagebuilder {typed}: no command {words[0]}"
            continue
        params = [p for p in command.params if isinstance(p, TyperOption)]
        known = COMMON | {name for p in params for name in (*p.opts, *p.secondary_opts)}
        given = words[: words.index("--")] if "--" in words else words
        for match in filter(None, map(OPTION.match, given)):
            if match[1] not in known:
                yield f"imagebuilder {typed}: no option {match[1]}"


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_links_and_commands_of_a_page_exist(page: Path) -> None:
    text = (CHECKOUT / page).read_text()
    assert [*broken_links(CHECKOUT / page, text), *unknown_words(text)] == []


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[a](b.md)", "b.md: no such file"),
        ("# A page\n[a](#another)", "#another: no such heading"),
        ("    imagebuilder buidl minimal\n", "no command buidl"),
        ("    sudo imagebuilder nodes ad n1  # one\n", "no command ad"),
        ("Type `imagebuilder gc --kep 3`.", "no option --kep"),
        ("    $ imagebuilder rollout x --canari n1\n", "no option --canari"),
    ],
)
def test_a_planted_mistake_is_found(tmp_path: Path, text: str, said: str) -> None:
    found = [*broken_links(tmp_path / "page.md", text), *unknown_words(text)]
    assert len(found) == 1
    assert said in found[0]


def test_right_words_are_left_alone(tmp_path: Path) -> None:
    text = "# Look it up (here)\n[a](#look-it-up-here)\n    imagebuilder run @all -- ls --all\n"
    text += "    imagebuilder rollout rx --canary n1\n    imagebuilder nodes set n1 --unset x\n"
    assert [*broken_links(tmp_path / "page.md", text), *unknown_words(text)] == []
