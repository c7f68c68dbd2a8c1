# SPDX-License-Identifier: Apache-2.0
"""The kernel's settings as a node has them after its boot: sysctl.d(5) and the command line."""

from __future__ import annotations

from dataclasses import dataclass

from imagebuilder.image.proof import Evidence
from imagebuilder.proof.cmdline import kernel_words
from imagebuilder.proof.subject import Subject

SYSCTL = ("systemd-analyze", "cat-config", "sysctl.d")
ON_CMDLINE = "sysctl."


@dataclass(frozen=True)
class KernelSetting:
    """The value of a setting, and the line that sets it."""

    value: str
    where: Evidence


def read_sysctl(subject: Subject) -> dict[str, KernelSetting]:
    """The settings by name, with dots; later lines override earlier ones."""
    path = ""
    found: dict[str, KernelSetting] = {}
    for line in subject.run(SYSCTL).stdout.splitlines():
        if line.startswith("# /"):
            path = line.removeprefix("# ")
        key, is_set, value = line.partition("=")
        if is_set and not line.startswith("#"):
            name = key.strip().lstrip("-").replace("/", ".")
            found[name] = KernelSetting(value.strip(), Evidence(path, said=line.strip()))
    for word in kernel_words(subject.cmdline):
        if word.key.startswith(ON_CMDLINE) and "=" in word.text:
            name = word.key.removeprefix(ON_CMDLINE).replace("/", ".")
            found[name] = KernelSetting(word.value, word.evidence)
    return found
