# SPDX-License-Identifier: Apache-2.0
"""What keeps a service from starting where its accelerator is missing: a unit's own look for it.

`ExecCondition=` and `ExecStartPre=` run before the service, and one that fails keeps it from
starting (systemd.service(5)).  Here each is really run, in a sandbox that has no device.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imagebuilder.proof.access.units import PREFIXES, Unit
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

# They look at files such as the model, not at devices.
PLAIN = frozenset(("test", "[", "true", "mkdir", "sleep", "rm", "ln", "install", "chown"))
GUARDS = ("ExecCondition", "ExecStartPre")
VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
SECONDS = 120
# As timeout(1) and sh(1) end: too long, not executable, not found.
BROKEN = (124, 126, 127)


@dataclass(frozen=True)
class Look:
    """A guard that was run without a device: its key, the command, its status and last words."""

    key: str
    command: str
    status: int
    said: str

    @property
    def refuses(self) -> bool:
        """Whether it kept the service from starting, having run."""
        return self.status != 0 and not self.broken

    @property
    def broken(self) -> bool:
        """Whether it could not run, or came to no end."""
        return self.status in BROKEN


def looks(subject: Subject, unit: Unit) -> Iterator[Look]:
    """Every guard of the unit that may look for a device, as it ends without one."""
    variables = environment(subject.root, unit)
    for key in GUARDS:
        for line in unit.every(key):
            bare = line.lstrip(PREFIXES)
            ignored = "-" in line[: len(line) - len(bare)]
            words = command_words(bare, variables)
            if not words or ignored or posixpath.basename(words[0]) in PLAIN:
                continue
            given = [f"{name}={value}" for name, value in variables.items()]
            done = subject.ask(["env", *given, *words], seconds=SECONDS)
            spoken = (done.stderr or done.stdout).strip().splitlines() or [""]
            yield Look(key, shlex.join(words), done.status, spoken[-1].strip())


def command_words(text: str, variables: Mapping[str, str]) -> list[str]:
    """A command line of a unit as words; of a template it is that of instance 0."""
    filled = text.replace("%i", "0").replace("%I", "0").replace("%%", "%")
    return split(VARIABLE.sub(lambda match: variables.get(match[1], ""), filled))


def environment(root: Root, unit: Unit) -> dict[str, str]:
    """The variables that the unit sets, and after them those of its files."""
    words = [word for value in unit.every("Environment") for word in split(value)]
    for name in unit.every("EnvironmentFile"):
        lines = root.text(name.lstrip("-")).splitlines()
        words += split("\n".join(x for x in lines if not x.lstrip().startswith(("#", ";"))))
    return dict(word.split("=", 1) for word in words if "=" in word)


def split(text: str) -> list[str]:
    """The words of a text with quotes; none when a quote is not closed."""
    try:
        return shlex.split(text)
    except ValueError:
        return []
