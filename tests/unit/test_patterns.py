# SPDX-License-Identifier: Apache-2.0
"""Regular expressions take time in proportion to what they read, not to its square.

What they read is from images, mirrors, nodes and other machines.  Each pattern is given a text that
repeats a piece, of its own literals among others, and nothing that it looks for.  How it is used
counts: search() tries every place, match() one.
"""

from __future__ import annotations

import ast
import importlib
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial

import pytest

from tests.workshop import CHECKOUT

pytestmark = pytest.mark.slow

AnyPattern = re.Pattern[str] | re.Pattern[bytes]

SEARCHES = frozenset(("search", "finditer", "findall", "sub", "subn", "split"))
ONE_PLACE = frozenset(("match", "fullmatch"))
# Programs of their own, what runs inside of a sandbox, and tests of nodes.
LEFT_OUT = (".__main__.", ".plugins.", ".inside.", ".checks.common.")
PIECES = ("a", "1", " ", "/", "-a", "\n", "a=", '"', "[", "(", "a ", "=", "a:", "a/", "{", "\t",
          ",", "x.y", "1.1.1.1 ")  # fmt: skip
LITERAL = re.compile(r"[A-Za-z_/.:=@-]{1,20}")
MOST_LITERALS, MOST_BEGINNINGS = 25, 12
# Characters, and seconds that a pattern without fault never needs for so few.
SHORT, LONG, SOON = 2_000, 4_000, 0.004
# The length for a second look, a longer one, and how much longer it may take: 4 times in
# proportion, 16 times squared.
AGAIN, FAR, MOST_GROWTH = 2_000, 8_000, 8


@dataclass(frozen=True)
class Used:
    """A pattern, the module that uses it, and the method it is used by."""

    where: str
    pattern: AnyPattern
    method: str


def find_used() -> Iterator[Used]:
    """Every pattern of a module that a method is called of, and every one in a call of re."""
    for path in sorted((CHECKOUT / "imagebuilder").rglob("*.py")):
        module = ".".join(path.relative_to(CHECKOUT).with_suffix("").parts)
        if any(part in f".{module}." for part in LEFT_OUT):
            continue
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.Call) and (found := pattern_of(module, node)):
                yield found


def pattern_of(module: str, call: ast.Call) -> Used | None:
    function = call.func
    if not isinstance(function, ast.Attribute) or not isinstance(function.value, ast.Name):
        return None
    if function.attr not in SEARCHES | ONE_PLACE:
        return None
    method = function.attr if function.attr in ONE_PLACE else "search"
    name = function.value.id
    written = call.args[0].value if call.args and isinstance(call.args[0], ast.Constant) else None
    if name == "re" and isinstance(written, str):
        flags = sum(int(getattr(re, each.attr)) for each in ast.walk(call)
                    if isinstance(each, ast.Attribute) and each.attr.isupper())  # fmt: skip
        return Used(f"{module}:{call.lineno}", re.compile(written, flags), method)
    pattern = getattr(importlib.import_module(module), name, None) if name.isupper() else None
    return Used(f"{module}.{name}", pattern, method) if isinstance(pattern, re.Pattern) else None


def texts(used: Used) -> Iterator[Callable[[int], str | bytes]]:
    """Makers of texts of a length: a beginning, and a piece over and over."""
    source = used.pattern.pattern
    as_text = source.decode("latin-1") if isinstance(source, bytes) else source
    literals = list(dict.fromkeys(LITERAL.findall(as_text)))[:MOST_LITERALS]
    pieces = (*literals, *PIECES, *(f"{literal} " for literal in literals))
    beginnings = pieces[:MOST_BEGINNINGS] if used.method in ONE_PLACE else ()
    for beginning in ("", *beginnings):
        for piece in pieces:
            yield partial(make_text, beginning, piece, as_bytes=isinstance(source, bytes))


def make_text(beginning: str, piece: str, length: int, *, as_bytes: bool) -> str | bytes:
    text = beginning + piece * (length // len(piece)) + "\0!"
    return text.encode("latin-1") if as_bytes else text


def cost(used: Used, text: str | bytes, times: int = 3) -> float:
    """Seconds of the processor to find what a text has, the least of so many times."""
    found = getattr(used.pattern, "finditer" if used.method == "search" else used.method)
    seconds = []
    for _ in range(times):
        began = time.thread_time()
        matches = found(text)
        if used.method == "search":
            for _match in matches:
                pass
        seconds.append(time.thread_time() - began)
    return min(seconds)


def grows(used: Used) -> str:
    """A text that takes more than its share of time, "" if there is none."""
    for make in texts(used):
        short, long = cost(used, make(SHORT)), cost(used, make(LONG))
        if long < SOON or long < 2.5 * short:
            continue
        if cost(used, make(FAR)) > MOST_GROWTH * cost(used, make(AGAIN)):
            return repr(make(100))
    return ""


def test_no_pattern_takes_time_by_the_square_of_what_it_reads() -> None:
    known = {(each.pattern, each.method): each for each in find_used()}
    assert len(known) > 400
    found = {each.where: text for each in known.values() if (text := grows(each))}
    assert not found


@pytest.mark.parametrize(
    ("pattern", "method"),
    [
        (r"--?[\w.-]*(listen|bind)[\w.-]*=", "search"),
        (r"\{\{.*?\}\}", "search"),
        (r"[^\s,]+\s+[^=]+=", "match"),
        (r"-[a-z]*c[a-z]*", "fullmatch"),
        (r"(a+)b", "search"),
    ],
)
def test_one_that_does_is_found(pattern: str, method: str) -> None:
    assert grows(Used("here", re.compile(pattern, re.DOTALL), method))


@pytest.mark.parametrize("method", ["search", "match", "fullmatch"])
def test_one_that_looks_at_each_character_once_is_not(method: str) -> None:
    assert not grows(Used("here", re.compile(r"(?<!\w)[a-z]+=\S+"), method))
