# SPDX-License-Identifier: Apache-2.0
"""Command lines of services: their words, the values of their options, and guards: commands of a
unit that fail if the accelerator is missing.

`ExecCondition=` and `ExecStartPre=` run before the service, and it does not start if one fails
(systemd.service(5)).  Here each of them runs in a sandbox without a device.
"""

from __future__ import annotations

import posixpath
import re
import shlex
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence
from imagebuilder.process import TIMED_OUT
from imagebuilder.proof.reading.environment import Environment, assignments, expanded, pairs_of
from imagebuilder.proof.reading.systemd import LoadedUnit
from imagebuilder.proof.reading.texts import split_words, unquoted
from imagebuilder.proof.reading.units import Unit, split_prefixes
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.model_engine import SettingModel
from imagebuilder.root import Root

GUARDS = ("ExecCondition", "ExecStartPre")
# Programs that check files such as the model, but not devices.
PLAIN = frozenset(("test", "[", "true", "mkdir", "sleep", "rm", "ln", "install", "chown"))
# The usual option of a daemon that starts as root; programs to which it means something else.
USER_OPTION = re.compile(r"\s--user[= ]([a-z_][\w-]*)(?=\s|$)")
OTHER_USERS = frozenset(
    ("curl", "docker", "journalctl", "loginctl", "mysql", "nerdctl", "podman", "systemctl", "wget")
)
# Not a value: values may be negative numbers.
ANOTHER = re.compile(r"-[-A-Za-z].*", re.DOTALL)
VARIABLE = re.compile(r"\$\{?([A-Za-z_][A-Za-z0-9_]*)\}?")
SECONDS = 120
# Statuses of sh(1): not executable, not found.
BROKEN = (TIMED_OUT, 126, 127)


@dataclass(frozen=True)
class OptionValue:
    """An option of a command line, with "" if it has no value; its words are `first` to `last`."""

    name: str
    value: str
    first: int
    last: int


def options_of(words: Sequence[str], names: Collection[str]) -> Iterator[OptionValue]:
    """Some options of a command line, in order: `--name=value` and `--name value`."""
    for number, word in enumerate(words):
        name, has_value, value = word.partition("=")
        if name not in names:
            continue
        following = words[number + 1 : number + 2]
        if has_value or not following or ANOTHER.fullmatch(following[0]):
            yield OptionValue(name, value, number, number)
        else:
            yield OptionValue(name, following[0], number, number + 1)


def without(words: Sequence[str], names: Collection[str]) -> list[str]:
    """A command line without some options and their values."""
    gone = {n for each in options_of(words, names) for n in (each.first, each.last)}
    return [word for number, word in enumerate(words) if number not in gone]


@dataclass(frozen=True)
class SettingValue:
    """The value of a setting, and its origin: an option overrides a variable."""

    value: str
    by: str
    evidence: Evidence


@dataclass(frozen=True)
class CommandLine:
    """The command line of a service with variables expanded, and the unit's file.

    A variable adds the words from `added_at` on; `adds` is where it is set.
    """

    unit: str
    words: Sequence[str]
    environment: Environment
    path: str
    added_at: int = 0
    adds: Evidence | None = None

    def option(self, *names: str) -> str | None:
        """The value of the last of some options, None without one; "" for one without a value."""
        found = list(options_of(self.words, names))
        return found[-1].value if found else None

    def find(self, setting: SettingModel) -> SettingValue | None:
        """The value of a setting, None if neither an option nor a variable sets it."""
        for option in reversed(list(options_of(self.words, setting.options))):
            by = f"{option.name} {option.value}".strip()
            is_added = self.adds is not None and option.first >= self.added_at
            where = self.adds if is_added and self.adds else Evidence(self.path, said=by)
            return SettingValue(option.value, by, where)
        variable = self.environment.get(setting.variable)
        if variable is None:
            return None
        by = f"{setting.variable}={variable.value}"
        return SettingValue(variable.value, by, variable.evidence(setting.variable))

    def value(self, settings: Sequence[SettingModel], means: str) -> SettingValue | None:
        """The value that is the `address`, the `port` or the `threads` of the engine."""
        for setting in settings:
            if setting.means == means:
                default = SettingValue(
                    setting.default, f"the default {setting.default}", Evidence(self.path)
                )
                return self.find(setting) or default
        return None


def command_of(
    unit: LoadedUnit, written: Sequence[str], environment: Environment, arguments: str = ""
) -> CommandLine:
    """A command line of a unit, with what the variable `arguments` adds."""
    words = expanded(written, environment)
    path = unit.paths[-1] if unit.paths else ""
    more = environment.get(arguments)
    if more is None:
        return CommandLine(unit.name, words, environment, path)
    added = [*words, *unquoted(more.value)]
    return CommandLine(unit.name, added, environment, path, len(words), more.evidence(arguments))


def named_users(commands: Iterable[Sequence[str]]) -> Iterator[str]:
    """The accounts that daemons with these command lines shall become, by the option --user."""
    for words in commands:
        if posixpath.basename(words[0] if words else "") not in OTHER_USERS:
            text = " ".join(words)
            yield from (found[1] for found in USER_OPTION.finditer(text))


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
    found = dict(pair for value in unit.every("Environment") for pair in pairs_of(value))
    for name in unit.every("EnvironmentFile"):
        found |= assignments(root.text(name.lstrip("-")))
    return found


def split(text: str) -> list[str]:
    """The words of a text with quotes; none if a quote is not closed, or of a long text."""
    try:
        return split_words(text)
    except ValueError:
        return []
