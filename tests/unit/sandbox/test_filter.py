# SPDX-License-Identifier: Apache-2.0
"""The program for seccomp, run as the kernel would."""

from __future__ import annotations

import struct

import pytest

from imagebuilder.sandbox.filter import (
    AARCH64,
    ABIS,
    ALLOW,
    EQUAL,
    I386,
    LOAD,
    NOT_LESS,
    REFUSE,
    RETURN,
    X32,
    X86_64,
    Abi,
    filter_program,
)


def verdict(machine: str, abi: Abi, call: int, argument: int = 0) -> int:
    """What the program says of a system call."""
    data = struct.pack("<IIQQQ", call, abi.audit, 0, 0, argument)
    code = list(struct.iter_unpack("<HBBI", filter_program(machine)))
    word = at = 0
    while True:
        kind, yes, no, value = code[at]
        at += 1
        if kind == LOAD:
            (word,) = struct.unpack_from("<I", data, value)
        elif kind == RETURN:
            return int(value)
        else:
            assert kind in (EQUAL, NOT_LESS)
            at += yes if (word == value if kind == EQUAL else word >= value) else no


@pytest.mark.parametrize(
    ("machine", "abi"), [(machine, abi) for machine, abis in ABIS.items() for abi in abis]
)
def test_only_what_is_named_is_refused(machine: str, abi: Abi) -> None:
    refused = {call for call in range(600) if verdict(machine, abi, call) == REFUSE}
    assert refused == set(abi.calls.values())
    assert {verdict(machine, abi, call) for call in range(600)} == {ALLOW, REFUSE}


def test_letters_for_a_terminal_are_refused_whatever_the_upper_half_says() -> None:
    # The kernel reads 32 bits of the request.
    for request in (0x5412, 0x541C, 0x5412 | 1 << 40):
        assert verdict("x86_64", X86_64, X86_64.ioctl, request) == REFUSE
    assert verdict("x86_64", X86_64, X86_64.ioctl, 0x5413) == ALLOW


def test_other_numbers_of_the_same_machine_are_refused() -> None:
    assert verdict("x86_64", X86_64, X32 | 250) == REFUSE
    assert verdict("x86_64", I386, I386.calls["keyctl"]) == REFUSE
    assert verdict("x86_64", AARCH64, 1) == REFUSE
