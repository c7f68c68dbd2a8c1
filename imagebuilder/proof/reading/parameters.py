# SPDX-License-Identifier: Apache-2.0
"""The kernel's settings as a node has them: words of its command line, and sysctl.d(5)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence
from imagebuilder.proof.reading.config import is_false
from imagebuilder.proof.reading.systemd import read_config
from imagebuilder.proof.subject import Subject, once

CMDLINE = "/proc/cmdline"
ON_CMDLINE = "sysctl."


@dataclass(frozen=True)
class KernelWord:
    """A word: the text before and after `=`, "" if missing.

    `key` is spelled with `_`, which the kernel and systemd treat like `-` except in sysctl.*.
    """

    text: str
    key: str
    value: str

    @property
    def on(self) -> bool:
        """Whether it is true for kstrtobool() and systemd; a word without a value is."""
        return not is_false(self.value)

    @property
    def evidence(self) -> Evidence:
        return Evidence(CMDLINE, said=self.text)


def kernel_words(cmdline: Iterable[str]) -> Iterator[KernelWord]:
    for text in cmdline:
        key, _, value = text.partition("=")
        yield KernelWord(text, key if key.startswith("sysctl.") else key.replace("-", "_"), value)


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
