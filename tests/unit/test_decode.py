# SPDX-License-Identifier: Apache-2.0
"""Whatever bytes a JSON file has: a bounded value, or an error of three parts."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder import decode
from imagebuilder.decode import (
    MAX_DEPTH,
    decode_box,
    find_object,
    parse_json,
    parse_object,
    read_object,
    reading,
)
from imagebuilder.errors import InputError


@dataclass(frozen=True)
class Box:
    """A box with a number and words."""

    count: int
    words: tuple[str, ...] = ()


@pytest.mark.parametrize(
    ("content", "what"),
    [
        (b"", "not JSON"),
        (b"\xff\xfe", "not UTF-8"),
        (b"{", "not JSON"),
        (b'{"a": NaN}', "NaN"),
        (b"[-Infinity]", "-Infinity"),
        (b"[1e999]", "too large"),
        (b"9" * 5000, "it holds a number that is too large"),
        (b"[" * 1_000_000, "nested deeper"),
        (b"[" * 100 + b"]" * 100, "nested deeper"),
        (b'{"a":' * 100 + b"1" + b"}" * 100, "nested deeper"),
        (b'["\\ud800"]', "not UTF-8"),
        (b"[1]", "not a JSON object"),
        (b"null", "not a JSON object"),
    ],
)
def test_every_damage_is_named(content: bytes, what: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_object(content, "f.json")
    (fault,) = caught.value.faults
    assert what in fault.what
    assert fault.where.startswith("f.json")
    assert fault.hint


def test_good_values_are_as_they_are() -> None:
    deep = "[" * MAX_DEPTH + "]" * MAX_DEPTH
    assert parse_json(deep, "f") is not None
    text = '{"a": [1, 2.5, "\\u00e9\\ud83d\\ude00", null, true]}'
    assert parse_json(text, "f") == {"a": [1, 2.5, "é😀", None, True]}


def test_a_large_file_is_not_decoded(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(decode, "MAX_BYTES", 100)
    (tmp_path / "f.json").write_text("[" + "1," * 100 + "1]")
    with pytest.raises(InputError, match="larger than"):
        read_object(tmp_path / "f.json")


@pytest.mark.parametrize(
    ("text", "many"), [("1," * 99 + "1", 100), ("{}," * 99 + "{}", 200), ("[[]]," * 49 + "[]", 149)]
)
def test_many_values_are_not_made(text: str, many: int) -> None:
    """Each takes 30 times its place in the text; one with others in it counts twice."""
    assert parse_json(f"[{text}]", "f", most=many) is not None
    with pytest.raises(InputError, match=f"is damaged: it holds more than {many - 1} values"):
        parse_json(f"[{text}]", "f", most=many - 1)


@pytest.mark.parametrize("text", ["[,{" * 1000, "\\" * 1000, "[{" * 500 + '"' + ",[" * 500])
def test_the_text_of_a_value_is_no_values(text: str) -> None:
    assert parse_json(json.dumps({"a": text}), "f", most=2) == {"a": text}


def test_a_text_without_an_end_is_looked_at_once() -> None:
    with pytest.raises(InputError, match="Unterminated string"):
        parse_json('"' + r"\"" * 2_000_000, "f", most=2)


def test_what_is_not_a_file_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    for name in ("pipe", "folder", "nothing"):
        with pytest.raises(InputError) as caught:
            read_object(tmp_path / name)
        assert caught.value.faults[0].where == str(tmp_path / name)
        assert find_object(tmp_path / name) is None


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({}, "count: is missing"),
        ({"count": "1"}, "count: Input should be a valid integer"),
        ({"count": 1, "words": [1]}, r"words\[0\]"),
        ([], "is damaged: Input should be an object"),
        (None, "is damaged: Input should be an object"),
    ],
)
def test_a_box_of_another_shape(value: object, what: str) -> None:
    with pytest.raises(InputError, match=what):
        decode_box(Box, value, "f.json")


def test_a_box() -> None:
    assert decode_box(Box, {"count": 1, "words": ["a"]}, "f.json") == Box(1, ("a",))


@pytest.mark.parametrize("value", [{}, [], None, "text", 1, {"a": None}])
def test_taking_apart_what_has_another_shape(value: object) -> None:
    with pytest.raises(InputError, match="is damaged"), reading("f.json"):
        value["a"]["b"]  # type: ignore[index]
