# SPDX-License-Identifier: Apache-2.0
"""Disks and memory that a udev rule opens to everybody."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.proof.access.udev import UdevRule, facts_of, read_rules
from imagebuilder.proof.privileges.types import Opening, Privilege
from imagebuilder.root import Root

# The subsystem of a device, a name that the kernel gives it, and what reading it exposes.
DEVICES = (
    ("block", "sda", "disks"),
    ("block", "nvme0n1", "disks"),
    ("block", "vda", "disks"),
    ("block", "dm-0", "disks"),
    ("mem", "mem", "memory"),
    ("mem", "kmem", "memory"),
    ("mem", "port", "ports of devices"),
)
OTHERS = 0o006


def find_devices(root: Root) -> Iterator[Privilege]:
    """Rules that may let everybody read or write a disk or memory."""
    for rule in read_rules(root):
        mode = rule.value("MODE")
        if not re.fullmatch("[0-7]{3,4}", mode) or not int(mode, 8) & OTHERS:
            continue
        for subsystem, name, what in DEVICES:
            if opens(rule, subsystem, name):
                gains = f"everybody may use {what}, such as /dev/{name} (mode {mode})"
                yield Privilege(Opening.WRITABLE, f"/dev/{name}", rule.path, gains)
                break


def opens(rule: UdevRule, subsystem: str, name: str) -> bool:
    """Whether a rule may apply to such a device, by its subsystem or its name."""
    matched = {key for key, _, operator, _ in rule.parts if operator == "=="}
    is_specific = bool(matched & {"SUBSYSTEM", "KERNEL"})
    return is_specific and rule.holds(facts_of(subsystem, name)) is not False
