# SPDX-License-Identifier: Apache-2.0
"""Bundles of code objects: what two readers of the same bytes make of them."""

from __future__ import annotations

import struct

import pytest

from imagebuilder import offload
from imagebuilder.proof.code import hip
from imagebuilder.slim import bundle
from tests.fixtures.elf import hip_id, make_bundle, make_code_object

TWO = make_bundle({hip_id(each): make_code_object(each) for each in ("gfx90a", "gfx1102")})
ROW = 32 + 24 + len("host-x86_64-unknown-linux-gnu-")  # of the first code object


def test_both_find_the_same_code() -> None:
    entries = bundle.read_bundle(memoryview(TWO))
    assert [entry.target for entry in entries] == ["", "gfx90a", "gfx1102"]
    found = hip.read_bundle(hip.reader(TWO), 0)
    assert [(code.target, code.size) for code in found] == [
        (entry.target, entry.size) for entry in entries if entry.target
    ]


@pytest.mark.parametrize(
    ("offset", "value", "what"),
    [
        (24, struct.pack("<Q", 5000), "a bundle of 5000 code objects"),
        (24, struct.pack("<Q", 1000), "a bundle that ends early"),
        (ROW, struct.pack("<Q", 1 << 40), "beyond the end of its bundle"),
        (ROW + 16, struct.pack("<Q", 600), "a bundle that ends early"),
        (ROW + 24, b"\xff", "not ASCII"),
    ],
)
def test_slim_refuses_a_damaged_bundle(offset: int, value: bytes, what: str) -> None:
    damaged = TWO[:offset] + value + TWO[offset + len(value) :]
    with pytest.raises(ValueError, match=what):
        bundle.read_bundle(memoryview(damaged[: len(TWO)]))


@pytest.mark.parametrize(
    ("code", "card", "runs", "stays"),
    [
        ("gfx1102", "gfx1102", True, True),
        ("gfx1102", "gfx1100", False, False),
        ("gfx11-generic", "gfx1102", True, True),
        ("gfx11-generic", "gfx1030", False, False),
        ("gfx9-4-generic", "gfx942", True, True),
        ("gfx9-4-generic", "gfx90a", False, True),
        ("gfx10-3-generic", "gfx1010", False, True),
        ("gfx12-generic", "gfx1299", False, True),  # a card that the table does not know
    ],
)
def test_slim_keeps_more_than_runs(code: str, card: str, *, runs: bool, stays: bool) -> None:
    assert offload.runs_on(code, card) == runs
    assert bundle.serves(code, [card]) == stays
