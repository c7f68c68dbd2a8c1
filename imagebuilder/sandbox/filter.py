# SPDX-License-Identifier: Apache-2.0
"""The system calls that a sandbox refuses: a program for the kernel (seccomp(2), bpf(4)).

The user namespace already keeps root of a sandbox from the host.  What is refused here goes around
it (keys are found by number, a terminal takes typed letters from whoever has it open) or reaches
parts of the kernel that no build needs.
"""

from __future__ import annotations

import errno
import struct
from collections.abc import Mapping
from dataclasses import dataclass

# bpf_common.h: load a word of seccomp_data, jump if equal or not less, return.
LOAD, EQUAL, NOT_LESS, RETURN = 0x20, 0x15, 0x35, 0x06
# struct seccomp_data: system call, architecture, the lower half of the second argument.
CALL, ARCHITECTURE, REQUEST = 0, 4, 24
ALLOW = 0x7FFF0000
REFUSE = 0x00050000 | errno.EPERM
TIOCSTI, TIOCLINUX = 0x5412, 0x541C
X32 = 0x40000000  # x86_64's other numbers, which no distribution uses

Refused = Mapping[str, int]


@dataclass(frozen=True)
class Abi:
    """An audit architecture of linux/audit.h, with its numbers of what is refused."""

    audit: int
    ioctl: int
    calls: Refused


X86_64 = Abi(0xC000003E, 16, {
    "add_key": 248, "request_key": 249, "keyctl": 250, "perf_event_open": 298,
    "open_by_handle_at": 304, "bpf": 321, "userfaultfd": 323, "kexec_load": 246,
    "kexec_file_load": 320, "init_module": 175, "finit_module": 313, "delete_module": 176,
})  # fmt: skip
I386 = Abi(0x40000003, 54, {
    "add_key": 286, "request_key": 287, "keyctl": 288, "perf_event_open": 336,
    "open_by_handle_at": 342, "bpf": 357, "userfaultfd": 374, "kexec_load": 283,
    "init_module": 128, "finit_module": 350, "delete_module": 129,
})  # fmt: skip
AARCH64 = Abi(0xC00000B7, 29, {
    "add_key": 217, "request_key": 218, "keyctl": 219, "perf_event_open": 241,
    "open_by_handle_at": 265, "bpf": 280, "userfaultfd": 282, "kexec_load": 104,
    "kexec_file_load": 294, "init_module": 105, "finit_module": 273, "delete_module": 106,
})  # fmt: skip
ARM = Abi(0x40000028, 54, {
    "add_key": 309, "request_key": 310, "keyctl": 311, "perf_event_open": 364,
    "open_by_handle_at": 371, "bpf": 386, "userfaultfd": 388, "kexec_load": 347,
    "kexec_file_load": 401, "init_module": 128, "finit_module": 379, "delete_module": 129,
})  # fmt: skip
ABIS = {"x86_64": (X86_64, I386), "aarch64": (AARCH64, ARM)}


def filter_program(machine: str) -> bytes:
    """The program for a machine (uname -m): instructions of eight bytes."""
    blocks = [block_of(abi) for abi in ABIS[machine]]
    program = instruction(LOAD, ARCHITECTURE)
    for abi, block in zip(ABIS[machine], blocks, strict=True):
        program += instruction(EQUAL, abi.audit, no=len(block) // 8) + block
    return program + instruction(RETURN, REFUSE)


def block_of(abi: Abi) -> bytes:
    """The part for one ABI; it never falls off its end."""
    numbers = sorted(abi.calls.values())
    # Jumps count from the next instruction; the last two allow and refuse.
    tests = [(NOT_LESS, X32)] if abi is X86_64 else []
    tests += [(EQUAL, number) for number in numbers]
    left = len(tests) + 5
    code = instruction(LOAD, CALL)
    for done, (kind, number) in enumerate(tests, start=1):
        code += instruction(kind, number, yes=left - done)
    code += instruction(EQUAL, abi.ioctl, no=3)
    code += instruction(LOAD, REQUEST)
    code += instruction(EQUAL, TIOCSTI, yes=2)
    code += instruction(EQUAL, TIOCLINUX, yes=1)
    return code + instruction(RETURN, ALLOW) + instruction(RETURN, REFUSE)


def instruction(code: int, value: int, *, yes: int = 0, no: int = 0) -> bytes:
    """struct sock_filter; `yes` and `no` are how many instructions to leave out."""
    return struct.pack("HBBI", code, yes, no, value)
