# SPDX-License-Identifier: Apache-2.0
"""Identity: framed, ordered, and nothing that is not JSON."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from imagebuilder.digest import Json, canonical_json, digest_of, digest_of_file


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["lib", "foo"], ["libfoo"]),
        ({"a": "b"}, ["a", "b"]),
        ({"a": {"b": 1}}, {"a": {"b": "1"}}),
        ([], {}),
        (["1"], [1]),
        ([None], ["null"]),
        (["a,b"], ["a", "b"]),
    ],
)
def test_different_values_differ(one: Json, other: Json) -> None:
    assert digest_of(one) != digest_of(other)


def test_key_order_does_not_count() -> None:
    assert digest_of({"a": 1, "b": 2}) == digest_of({"b": 2, "a": 1})


def test_canonical_text() -> None:
    assert canonical_json({"b": ["ü", 1], "a": None}) == '{"a":null,"b":["ü",1]}'.encode()


def test_not_a_number_is_refused() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        digest_of(float("nan"))


def test_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    path.write_bytes(b"content")
    assert digest_of_file(path) == hashlib.sha256(b"content").hexdigest()
