# SPDX-License-Identifier: Apache-2.0
"""What upgrades packages or drivers of a running node: it is then no longer what was proved.

Its libraries no longer fit the kernel and the driver that it booted, and what it writes lies in its
memory.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Sequence

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.privileges.searched import CRON, SPOOL
from imagebuilder.proof.privileges.sudo import lines_of
from imagebuilder.proof.reading.interpreters import SHELL, behind_env, runs
from imagebuilder.proof.reading.systemd import Startup, said_in
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

# Self-extracting archives of NVIDIA, AMD and others, and programs that install drivers.
INSTALLERS = re.compile(r".+\.run|nvidia-installer|amdgpu-install|ubuntu-drivers|mlnxofedinstall")
NOT_INSTALLING = frozenset(("--version", "--help", "--info", "--list", "--check", "--extract-only",
                            "-x", "-h", "list", "devices", "debug"))  # fmt: skip
MOST_FIELDS = 100  # of a line of cron; the command is among the first
HINT = "remove it; to get new packages, lock and build the image again (nightly does both)"


def prove_upgrades(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings of units, jobs of cron and settings of the package manager."""
    for unit in startup.starting():
        for key, words in unit.started():
            where = said_in(subject.root, unit, key)
            yield from prove_upgrade(subject, unit.name, words, where)
    for line in lines_of(subject.root, (*CRON, SPOOL)):
        fields = line.text.split(maxsplit=MOST_FIELDS)[:MOST_FIELDS]
        if any(subject.family.is_upgrade(fields[place:]) for place in range(len(fields))):
            where = Evidence(line.path, said=f"line {line.number}")
            yield upgrades(f"{line.path} runs {' '.join(fields)}", where)
    if path := subject.family.find_upgrading(subject.root):
        yield upgrades(f"{path} lets timers upgrade packages", Evidence(path))


def prove_upgrade(
    subject: Subject, said: str, words: Sequence[str], where: Evidence
) -> Iterator[Finding]:
    """A warning of a command in a script that something starts."""
    if subject.family.is_upgrade(words) or is_installer(words):
        yield upgrades(f"{said} runs {' '.join(words)}", where)


def is_installer(words: Sequence[str]) -> bool:
    """Whether a command is a vendor's installer of a driver, which replaces the image's own."""
    command = behind_env(words)
    name = posixpath.basename(command[0]) if command else ""
    if runs(SHELL, command):
        first = next((word for word in command[1:] if not word.startswith("-")), "")
        name = posixpath.basename(first)
    return INSTALLERS.fullmatch(name) is not None and not set(command) & NOT_INSTALLING


def upgrades(what: str, where: Evidence) -> Finding:
    effect = "the node is then no longer the image that was proved"
    return SAY.warning(f"{what}: {effect}", where, hint=HINT)
