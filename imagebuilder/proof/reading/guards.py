# SPDX-License-Identifier: Apache-2.0
"""The guards of a service: commands of its unit that fail if the accelerator is missing.

`ExecCondition=` and `ExecStartPre=` run before the service, and it does not start if one fails
(systemd.service(5)).  Here each of them runs in a sandbox without a device.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imagebuilder.process import TIMED_OUT
from imagebuilder.proof.reading.commands import GUARDS, PLAIN
from imagebuilder.proof.reading.quotes import split_words
from imagebuilder.proof.reading.units import Unit, split_prefixes
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
SECONDS = 120
# Statuses of sh(1): not executable, not found.
BROKEN = (TIMED_OUT, 126, 127)


@dataclass(frozen=True)
class GuardRun:
    """A run of a guard without a device: its key, command, status and last line of output."""

    key: str
    command: str
    status: int
    said: str

    @property
    def refuses(self) -> bool:
        """Whether it ran and kept the service from starting."""
        return self.status != 0 and not self.broken

    @property
    def broken(self) -> bool:
        """Whether it could not run, or did not end by itself."""
        return self.status in BROKEN or self.status < 0


def run_guards(subject: Subject, unit: Unit) -> Iterator[GuardRun]:
    """Run every guard of the unit that may check for a device, without one."""
    variables = environment(subject.root, unit)
    for key in GUARDS:
        for line in unit.every(key):
            prefixes, _ = split_prefixes(line)
            words = command_words(line[len(prefixes) :], variables)
            if not words or "-" in prefixes or posixpath.basename(words[0]) in PLAIN:
                continue
            assignments = [f"{name}={value}" for name, value in variables.items()]
            done = subject.run(["env", *assignments, *words], seconds=SECONDS)
            output = (done.stderr or done.stdout).strip().splitlines() or [""]
            yield GuardRun(key, shlex.join(words), done.status, output[-1].strip())


def command_words(text: str, variables: Mapping[str, str]) -> list[str]:
    """The words of a unit's command line; for a template those of instance 0."""
    filled = text.replace("%i", "0").replace("%I", "0").replace("%%", "%")
    return split(VARIABLE.sub(lambda match: variables.get(match[1], ""), filled))


def environment(root: Root, unit: Unit) -> dict[str, str]:
    """The variables that the unit sets, then those of its files."""
    words = [word for value in unit.every("Environment") for word in split(value)]
    for name in unit.every("EnvironmentFile"):
        lines = root.text(name.lstrip("-")).splitlines()
        words += split("\n".join(x for x in lines if not x.lstrip().startswith(("#", ";"))))
    return dict(word.split("=", 1) for word in words if "=" in word)


def split(text: str) -> list[str]:
    """The words of a text with quotes; none if a quote is not closed, or of a long text."""
    try:
        return split_words(text)
    except ValueError:
        return []
