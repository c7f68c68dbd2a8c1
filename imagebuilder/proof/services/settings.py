# SPDX-License-Identifier: Apache-2.0
"""What an engine is given by options and variables, and where it listens."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from re import fullmatch

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.services import SAY
from imagebuilder.proof.services.environment import Environment
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import EngineKind
from imagebuilder.recipe.model_engine import SettingModel

AT_BOOT = ("/run/", "/proc/", "/sys/", "/dev/")
LOOPBACK = ("127.", "localhost", "::1", "[::1]", "/", "unix:")


@dataclass(frozen=True)
class GivenSetting:
    """The value of a setting, and where it is from: an option goes before a variable."""

    value: str
    by: str
    evidence: Evidence


@dataclass(frozen=True)
class CommandLine:
    """What a service runs: its words with all variables, and the file of the unit."""

    unit: str
    words: Sequence[str]
    environment: Environment
    path: str

    def find(self, setting: SettingModel) -> GivenSetting | None:
        """What a setting is, None where neither option nor variable says so."""
        found = None
        for number, word in enumerate(self.words):
            option, is_set, value = word.partition("=")
            if option in setting.options:
                following = self.words[number + 1] if number + 1 < len(self.words) else ""
                value = value if is_set else following
                found = GivenSetting(
                    value, f"{option} {value}", Evidence(self.path, said=f"{option} {value}")
                )
        variable = self.environment.get(setting.variable)
        if found is None and variable:
            by = f"{setting.variable}={variable.value}"
            found = GivenSetting(variable.value, by, variable.evidence(setting.variable))
        return found

    def value(self, settings: Sequence[SettingModel], means: str) -> GivenSetting | None:
        """The address or the port that the engine listens on."""
        for setting in settings:
            if setting.means == means:
                default = GivenSetting(
                    setting.default, f"the default {setting.default}", Evidence(self.path)
                )
                return self.find(setting) or default
        return None


def prove_processor(line: CommandLine, kind: EngineKind) -> Iterator[Finding]:
    """Findings about settings with which the engine computes on the processor, in whole or part."""
    for setting in kind.model.settings:
        given = line.find(setting) if setting.processor or setting.partly else None
        if given and setting.partly and fullmatch(setting.partly, given.value.strip()):
            what = f"{line.unit} has {given.by}: {kind.title} leaves a part of the work or of the "
            what += "memory to the processor"
            hint = "remove it, if the model fits the card"
            yield SAY.warning(what, given.evidence, hint=hint)
            continue
        if given and setting.processor and fullmatch(setting.processor, given.value.strip()):
            yield SAY.fault(
                f"{line.unit} has {given.by}: {kind.title} computes on the processor and nobody "
                "notices",
                given.evidence,
                hint=f"remove it, or set it as the recipe does ({kind.choice})",
            )


def prove_address(subject: Subject, line: CommandLine, kind: EngineKind) -> Iterator[Finding]:
    """Faults of an address or a port that is not the declared one."""
    address = line.value(kind.model.settings, "address")
    port = line.value(kind.model.settings, "port")
    if subject.image.listens is None or address is None or port is None:
        return
    declared = f"{port.value}/tcp" in subject.image.listens
    local = address.value.startswith(LOOPBACK) or address.value.endswith(".sock")
    where = f"{line.unit} listens on {address.value}, port {port.value}"
    if declared and local:
        yield SAY.fault(
            f"{where}: no other machine reaches it, though the profile declares {port.value}/tcp",
            address.evidence,
            hint=f"let the recipe and {address.evidence.path} name one address",
        )
    elif not declared and not local:
        ports = ", ".join(subject.image.listens) or "none"
        yield SAY.fault(
            f"{where}, which no overlay declares (declared: {ports})",
            port.evidence,
            hint="use the declared port, or declare this one (overlay key listens:)",
        )


def serves_others(subject: Subject, line: CommandLine, kind: EngineKind) -> bool:
    """Whether the profile declares the port that the engine listens on."""
    port = line.value(kind.model.settings, "port")
    return bool(port and f"{port.value}/tcp" in (subject.image.listens or ()))


def prove_accepted(subject: Subject, line: CommandLine, kind: EngineKind) -> Iterator[Finding]:
    """A fault when the engine's own parser refuses the options or the environment.

    It is told to list its devices after all other options.  What chooses a device is left out:
    here is none to choose.
    """
    command = kind.model.devices.command if kind.model.devices else []
    if not command or list(line.words[:1]) != command[:1]:
        return
    choosing = [setting for setting in kind.model.settings if setting.processor]
    gone = {setting.variable for setting in choosing}
    variables = {n: v.value for n, v in line.environment.items() if n not in gone}
    # Nor is what is made at boot, such as a key.
    given = [f"{n}={v}" for n, v in variables.items() if not v.startswith(AT_BOOT)]
    options = {option for setting in choosing for option in setting.options}
    options |= {line.words[n - 1] for n, w in enumerate(line.words) if n and w.startswith(AT_BOOT)}
    words = [w for w in without(line.words, options) if w]
    done = subject.ask(["env", *given, *words, *command[1:]])
    if done.status:
        said = (done.stderr or done.stdout).strip().splitlines() or [f"exit status {done.status}"]
        error = next((x for x in said if "error" in x.lower()), said[-1]).strip()
        yield SAY.fault(
            f"{kind.title} refuses what {line.unit} gives it: {error}",
            Evidence(line.path, said=" ".join(line.words)),
            hint="correct that option or variable; the engine's --help names all",
        )


def without(words: Sequence[str], options: set[str]) -> Iterator[str]:
    """A command line without some options and their values."""
    skip = False
    for word in words:
        option, is_set, _ = word.partition("=")
        if skip or option in options:
            skip = not skip and not is_set
            continue
        yield word
