# SPDX-License-Identifier: Apache-2.0
"""A document that was parsed before is as if it were parsed now, and what may differ is parsed."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.recipe.memory import (
    drop_documents,
    keep_documents,
    parsed_file,
    recall_documents,
)
from imagebuilder.recipe.positions import MOST_READ, SHELF, Parsed, parse_content, parse_document
from imagebuilder.share import SHARE

PLACES = ("recipes/*.yaml", "recipes/bases/*.yaml", "overlays/*/*.yaml", "hardware/*.yaml")
SHIPPED = sorted(path for place in PLACES for path in SHARE.glob(place))
ODD = {
    "numbers": "a: [1, -0, 1.50, 1e300, .inf, -.INF, 0x1F, 0o17, 123456789012345678]",
    "not a number": "a: .nan",
    "constants": "a: [~, null, true, False, '', ' ', 'true']\nb:\n",
    "keys": '1: a\ntrue: b\n"": c\n"a b": d\nä€😀: e\n? long\n: f\n',
    "aliases": "a: &x [1, {b: c}]\nb: *x\nc: [*x, *x]\n",
    "texts": 'a: |2-\n    x\n   y\nb: >\n  x\n  y\n\n  z\nc: "\\u00e9\\t\\x41\\\n  d"\nd: p\n  q\n',
    "flow": "{a: [b, {c: d}, ], e: }",
    "mark of the order of bytes": "\ufeffa: 1\n",
    "ends of lines": "a: 1\r\nb: 2\rc: 3\n",
    "comments": "# x\na: b # c\n#d\ne: 'f # g'\n...\n",
}


@pytest.fixture(autouse=True)
def empty_shelf(monkeypatch: pytest.MonkeyPatch) -> None:
    clear(monkeypatch)


def clear(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a new process."""
    monkeypatch.setattr(SHELF, "before", {})
    monkeypatch.setattr(SHELF, "read", {})


def refuse() -> Parsed:
    raise AssertionError("it was parsed")


def contents() -> list[bytes]:
    return [*(path.read_bytes() for path in SHIPPED), *(text.encode() for text in ODD.values())]


def test_what_is_recalled_is_what_was_parsed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(SHIPPED) > 30
    parsed = [SHELF.find(each, partial(parse_content, each, "f")) for each in contents()]
    keep_documents(tmp_path, "demo")
    clear(monkeypatch)
    recall_documents(tmp_path, "demo")
    recalled = [SHELF.find(each, refuse) for each in contents()]
    for before, after in zip(parsed, recalled, strict=True):
        assert repr(after) == repr(before)  # nan is not equal to itself


def test_a_fault_is_told_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse_document(b"a: 1", "f")
    for shown in ("one", "other"):
        for wrong in (b"a: [", b"a: 1\na: 2", b"", b"\xff", b"a: !t x", b"a: *x"):
            with pytest.raises(InputError) as told:
                parse_document(wrong, shown)
            assert told.value.faults[0].where.startswith(f"{shown}:")
        keep_documents(tmp_path, "demo")
        clear(monkeypatch)
        recall_documents(tmp_path, "demo")
        assert len(SHELF.before) == 1


def test_what_no_longer_fits_is_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parse_document(b"a: 1", "f")
    keep_documents(tmp_path, "demo")
    whole = parsed_file(tmp_path, "demo").read_bytes()
    for planted in (b"", b"torn", whole[:-1], whole.replace(b'"a": 1', b'"a": 2'), b"\n{}"):
        assert planted != whole
        parsed_file(tmp_path, "demo").write_bytes(planted)
        clear(monkeypatch)
        recall_documents(tmp_path, "demo")
        assert SHELF.before == {}
    parsed_file(tmp_path, "demo").write_bytes(whole)
    monkeypatch.setattr("ruamel.yaml.__version__", "0.0")
    recall_documents(tmp_path, "demo")
    assert SHELF.before == {}, "another parser wrote it"


def test_only_what_the_last_command_read_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    parse_document(b"a: 1", "f")
    parse_document(b"b: 1", "f")
    keep_documents(tmp_path, "demo")
    clear(monkeypatch)
    recall_documents(tmp_path, "demo")
    parse_document(b"a: 1", "f")
    kept = parsed_file(tmp_path, "demo")
    inode = kept.stat().st_ino
    keep_documents(tmp_path, "demo")
    assert kept.stat().st_ino == inode, "nothing is new"
    parse_document(b"c: 1", "f")
    keep_documents(tmp_path, "demo")
    clear(monkeypatch)
    recall_documents(tmp_path, "demo")
    assert [each.value for each in SHELF.before.values()] == [{"a": 1}, {"c": 1}]


def test_a_command_that_goes_on_keeps_a_bounded_number() -> None:
    for number in range(MOST_READ + 5):
        parse_document(f"a: {number}".encode(), "f")
    assert len(SHELF.read) == MOST_READ
    SHELF.find(f"a: {MOST_READ + 4}".encode(), refuse)


def test_without_a_state_nothing_is_kept(tmp_path: Path) -> None:
    (tmp_path / "parsed").write_text("in the way")
    parse_document(b"a: 1", "f")
    keep_documents(tmp_path, "demo")
    recall_documents(tmp_path, "demo")
    recall_documents(tmp_path / "none", "../x")
    assert SHELF.before == {}


def test_the_documents_of_a_profile_go_with_its_images(tmp_path: Path) -> None:
    parse_document(b"a: 1", "f")
    for profile in ("kept", "gone"):
        keep_documents(tmp_path, profile)
    (tmp_path / "parsed/.kept.new").write_text("torn")
    drop_documents(tmp_path, {"kept"})
    assert [path.name for path in (tmp_path / "parsed").iterdir()] == ["kept"]
