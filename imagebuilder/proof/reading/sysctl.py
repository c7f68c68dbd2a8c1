# SPDX-License-Identifier: Apache-2.0
"""The kernel's settings as a node has them after its boot: sysctl.d(5) and the command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence
from imagebuilder.proof.reading.cmdline import kernel_words
from imagebuilder.proof.reading.systemd import read_config
from imagebuilder.proof.subject import Subject, once

ON_CMDLINE = "sysctl."


@dataclass(frozen=True)
class KernelSetting:
    """The value of a setting, and the line that sets it."""

    value: str
    where: Evidence


@once
def read_sysctl(subject: Subject) -> Mapping[str, KernelSetting]:
    """The settings by name, with dots, in the order of the lines that count: later ones override
    earlier ones.
    """
    found: dict[str, KernelSetting] = {}
    for line in read_config(subject, "sysctl.d"):
        name = name_of(line.key)
        found.pop(name, None)
        found[name] = KernelSetting(line.value, line.evidence)
    for word in kernel_words(subject.cmdline):
        if word.key.startswith(ON_CMDLINE) and "=" in word.text:
            name = name_of(word.key.removeprefix(ON_CMDLINE))
            found.pop(name, None)
            found[name] = KernelSetting(word.value, word.evidence)
    return found


def name_of(key: str) -> str:
    """The name of a setting: `-` before it only says that it may be missing."""
    return key.lstrip("-").replace("/", ".")
