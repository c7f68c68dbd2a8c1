# SPDX-License-Identifier: Apache-2.0
"""The words of the kernel's command line."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence
from imagebuilder.proof.reading.config import is_false

CMDLINE = "/proc/cmdline"


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
