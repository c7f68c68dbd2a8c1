# SPDX-License-Identifier: Apache-2.0
"""The options and variables of an engine, where it listens, and whether its model stays there."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.proof.reading import texts
from imagebuilder.proof.reading.commands import CommandLine, SettingValue, without
from imagebuilder.proof.reading.config import config_folders
from imagebuilder.proof.reading.environment import Environment, environment_of
from imagebuilder.proof.reading.mounts import made_by, made_by_tmpfiles, read_tmpfiles
from imagebuilder.proof.reading.parameters import read_sysctl
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup, find_loaded
from imagebuilder.proof.reading.units import is_below
from imagebuilder.proof.say import prove_answered
from imagebuilder.proof.services.programs import processors_of
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import EngineKind
from imagebuilder.recipe.model_engine import SettingModel
from imagebuilder.root import Root

QUOTA = "CPUQuota"
AT_BOOT = ("/run/", "/proc/", "/sys/", "/dev/")
WORD = re.compile(rb"[A-Za-z][\w-]+")
HOSTS = ("HOST", "ADDRESS", "LISTEN")
NETWORKS = config_folders("systemd/network")
CLEANING = "systemd-tmpfiles-clean.timer"
AGING = "dDevqQC"  # types of lines whose age counts (tmpfiles.d(5))


def prove_processor(line: CommandLine, kind: EngineKind) -> Findings:
    for setting in kind.model.settings:
        found = line.find(setting) if setting.processor or setting.partly else None
        if found and setting.partly and re.fullmatch(setting.partly, found.value.strip()):
            what = f"{line.unit} has {found.by}: {kind.title} leaves part of the work or of the "
            what += "memory on the processor"
            yield warning(what, found.evidence, hint="remove it if the model fits on the card")
            continue
        if found and setting.processor and re.fullmatch(setting.processor, found.value.strip()):
            what = f"{line.unit} has {found.by}: {kind.title} computes on the processor and nobody "
            what += "notices"
            hint = f"remove it, or set it as the recipe does ({kind.choice})"
            yield fault(what, found.evidence, hint=hint)


def prove_values(line: CommandLine, kind: EngineKind) -> Findings:
    """Faults of values that an overlay calls wrong, and warnings of devices beyond the first."""
    for setting in kind.model.settings:
        found = line.find(setting) if setting.wrong or setting.beyond else None
        value = found.value.strip() if found else ""
        if found and setting.wrong and re.fullmatch(setting.wrong, value):
            other = find_other(line, setting)
            if setting.together_with and other is None:
                continue
            both = f"{found.by} and {other.by}" if other else found.by
            what = f"{line.unit} has {both}: {setting.because}"
            where = (found.evidence, other.evidence) if other else (found.evidence,)
            yield fault(what, *where, hint="remove it, or set another value")
        elif found and setting.beyond and re.fullmatch(setting.beyond, value):
            what = f"{line.unit} has {found.by}: a node with one device does not have that device"
            hint = "remove it, unless every node of the profile has that many devices"
            yield warning(what, found.evidence, hint=hint)


def find_other(line: CommandLine, setting: SettingModel) -> SettingValue | None:
    """The other setting with which a value is wrong, if it has such a value."""
    wanted = setting.together_with
    if wanted is None:
        return None
    other = SettingModel(variable=wanted.variable, options=wanted.options)
    found = line.find(other)
    return found if found and re.fullmatch(wanted.value, found.value.strip()) else None


def prove_threads(
    startup: Startup, unit: LoadedUnit, line: CommandLine, kind: EngineKind
) -> Findings:
    """Warnings if the engine has more threads than processors: they wait for each other."""
    threads = line.value(kind.model.settings, "threads")
    for limited in filter(None, (unit, startup.units.get(unit.last("Slice")))):
        for key, share in shares_of(limited):
            many = threads.value if threads and threads.value not in ("", "0") else ""
            many = many if many.isdecimal() else ""
            # An engine may count the processors that a list leaves it, but no share of time.
            is_too_many = texts.whole(many) > share if many else key == QUOTA
            if threads is None or share < 1 or not is_too_many:
                continue
            starts = f"{many} threads" if many else "a thread for each core"
            what = f"{unit.name} may use {share:g} processors ({key}= of {limited.name}), but "
            what += f"{kind.title} starts {starts}, which wait for each other"
            hint = f"set its number of threads to {share:g}, or remove {key}="
            yield warning(what, *(Evidence(path) for path in limited.paths[-1:]), hint=hint)


def shares_of(unit: LoadedUnit) -> Iterator[tuple[str, float]]:
    """The settings that limit the processors of a unit, with how many are left; 0 for all."""
    yield QUOTA, processors_of(unit)
    for key in (texts.AFFINITY, texts.ALLOWED):
        yield key, len(texts.processors(" ".join(unit.every(key))))


def prove_lent(startup: Startup, line: CommandLine, kind: EngineKind) -> Findings:
    for setting in kind.model.settings:
        found = line.find(setting) if setting.lent_by else None
        if found and found.value.strip() and setting.lent_by not in startup.jobs:
            what = f"{line.unit} has {found.by}: no node of this image lends its devices, because "
            what += f"{setting.lent_by} does not start at boot"
            hint = f"enable {setting.lent_by}, unless those machines boot another image"
            yield warning(what, found.evidence, hint=hint)


def prove_address(subject: Subject, line: CommandLine, kind: EngineKind) -> Findings:
    address = line.value(kind.model.settings, "address")
    port = line.value(kind.model.settings, "port")
    if address:
        yield from prove_one_address(
            subject.root, line.unit, address.by, address.value, address.evidence
        )
    if subject.image.listens is None or address is None or port is None:
        return
    declared = f"{port.value}/tcp" in subject.image.listens
    local = texts.is_local(address.value)
    where = f"{line.unit} listens on {address.value}, port {port.value}"
    if declared and local:
        what = f"{where}: no other machine can reach it, although the profile declares "
        what += f"{port.value}/tcp"
        hint = f"set the same address in the recipe and in {address.evidence.path}"
        yield fault(what, address.evidence, hint=hint)
    elif not declared and not local:
        ports = ", ".join(subject.image.listens) or "none"
        what = f"{where}, which no overlay declares (declared: {ports})"
        hint = "use the declared port, or declare this one (overlay key listens:)"
        yield fault(what, port.evidence, hint=hint)


def prove_port(subject: Subject, unit: LoadedUnit, line: CommandLine, kind: EngineKind) -> Findings:
    """A fault of a port that only root, or who has the capability for it, may listen on (ip(7))."""
    port = line.value(kind.model.settings, "port")
    if port is None or not port.value.isdecimal() or unit.last("User") in ("", "root", "0"):
        return
    first = read_sysctl(subject).get("net.ipv4.ip_unprivileged_port_start")
    least = texts.whole(first.value) if first and first.value.isdecimal() else 1024
    may = {name.lower() for name in unit.words("AmbientCapabilities")}
    if 0 < texts.whole(port.value) < least and "cap_net_bind_service" not in may:
        what = f"{unit.name} cannot listen on port {port.value}: {unit.last('User')} may only use "
        what += f"ports {least} and above"
        hint = "use another port, or add AmbientCapabilities=CAP_NET_BIND_SERVICE"
        yield fault(what, port.evidence, hint=hint)


def serves_others(subject: Subject, line: CommandLine, kind: EngineKind) -> bool:
    """Whether the profile declares the port that the engine listens on."""
    port = line.value(kind.model.settings, "port")
    return bool(port and f"{port.value}/tcp" in (subject.image.listens or ()))


def prove_accepted(subject: Subject, line: CommandLine, kind: EngineKind) -> Findings:
    """A fault if the engine's own parser rejects the options or the environment.

    It runs with the option that lists devices after all others.  Options that choose a device are
    left out, because there is none here, and those that name other machines.
    """
    command = kind.model.devices.command if kind.model.devices else []
    if not command or list(line.words[:1]) != command[:1]:
        return
    choosing = [each for each in kind.model.settings if each.processor or each.lent_by]
    gone = {setting.variable for setting in choosing}
    variables = {n: v.value for n, v in line.environment.items() if n not in gone}
    # Files that are created at boot, such as a key, do not exist either.
    later = made_later(subject, line.unit)
    assignments = [f"{n}={v}" for n, v in variables.items() if not is_later(v, later)]
    options = {option for setting in choosing for option in setting.options}
    options |= {line.words[n - 1] for n, w in enumerate(line.words) if n and is_later(w, later)}
    words = [w for w in without(line.words, options) if w]
    done = subject.run(["env", *assignments, *words, *command[1:]])
    unread = f"whether {kind.title} accepts the options and variables of {line.unit}"
    unanswered = list(prove_answered(done, unread, Evidence(line.path)))
    yield from unanswered
    if done.status and not unanswered:
        output = (done.stderr or done.stdout).strip().splitlines() or [f"status {done.status}"]
        error = next((x for x in output if "error" in x.lower()), output[-1]).strip()
        what = f"{kind.title} rejects the options or variables of {line.unit}: {error}"
        hint = "correct that option or variable; the engine's --help lists them all"
        yield fault(what, Evidence(line.path, said=" ".join(line.words)), hint=hint)


def made_later(subject: Subject, unit: str) -> list[str]:
    """The folders that are made before a unit starts, and that the image does not have."""
    loaded = find_loaded(subject.startup, unit)
    made = {*(made_by(loaded) if loaded else ()), *made_by_tmpfiles(subject)}
    return [path for path in sorted(made) if not subject.root.lies(path)]


def is_later(value: str, folders: list[str]) -> bool:
    """Whether a value is a path that a node has only when it runs."""
    return value.startswith(AT_BOOT) or any(is_below(value.rstrip("/"), each) for each in folders)


def prove_known(subject: Subject, line: CommandLine, kind: EngineKind) -> Findings:
    words = kind.model.words
    if words is None:
        return
    known = words_of(subject.root, words.options)
    for number, word in enumerate(line.words) if known else ():
        name = word.removeprefix("--").partition("=")[0].partition(".")[0]
        plain = name.replace("-", "_").lower()
        if word.startswith("--") and plain and not {plain, plain.removeprefix("no_")} & known:
            is_added = line.adds is not None and number >= line.added_at
            where = line.adds if is_added and line.adds else Evidence(line.path, said=word)
            what = f"{line.unit} does not start: this {kind.title} has no option --{name}"
            hint = "remove it, or look up its new name in the engine's --help"
            yield fault(what, where, hint=hint)
    known = words_of(subject.root, words.variables)
    for name, variable in line.environment.items() if known and words.prefix else ():
        if name.startswith(words.prefix) and name.lower() not in known:
            what = (
                f"{line.unit} has {name}, which this {kind.title} does not read: it has no effect"
            )
            hint = "remove it, or look up the option that replaced it"
            yield warning(what, variable.evidence(name), hint=hint)


def words_of(root: Root, patterns: Sequence[str]) -> frozenset[str]:
    """Every word of some files, in small letters and with _ in the place of -."""
    files = dict.fromkeys(root.glob(*patterns))
    found: set[bytes] = set()
    for path in files:
        found.update(WORD.findall(root.map(path) or b""))
    return frozenset(word.decode().replace("-", "_").strip("_").lower() for word in found)


def prove_one_address(root: Root, unit: str, name: str, address: str, where: Evidence) -> Findings:
    """A warning about listening on an address that one node has, in the image of all."""
    number = texts.parse_address(address.strip("[]"))
    if number is None or number.is_loopback or number.is_unspecified or number.is_multicast:
        return
    files = (path for folder in NETWORKS for path in root.glob(f"{folder}/*.network"))
    given = re.compile(rf"^Address={re.escape(str(number))}\b", re.MULTILINE)
    if not any(given.search(root.text(path)) for path in files):
        what = f"{unit} listens on {number} ({name}), the address of one node: on all others it "
        what += "does not start"
        hint = "listen on every address, and limit access with a firewall or IPAddressAllow="
        yield warning(what, where, hint=hint)


def prove_hosts(subject: Subject) -> Findings:
    """Warnings of PREFIX_HOST beside the PREFIX_PORT that an overlay declares as listened on."""
    listens = subject.image.listens or ()
    for unit in subject.startup.starting():
        if not listens or all(path in subject.shipped for path in unit.paths):
            continue
        environment = environment_of(subject, unit)
        for name, variable in environment.items():
            prefix, _, last = name.rpartition("_")
            port = environment.get(f"{prefix}_PORT") if last in HOSTS else None
            if port and f"{port.value}/tcp" in listens:
                where = variable.evidence(name)
                yield from prove_one_address(subject.root, unit.name, name, variable.value, where)


def prove_model(
    subject: Subject, unit: str, kind: EngineKind, environment: Environment
) -> Findings:
    """A fault if systemd-tmpfiles(8) removes an old model; a disk without times makes each old."""
    model = kind.model.boot.model if kind.model.boot else None
    chosen = environment.get(model.variable) if model else None
    if chosen is None or CLEANING not in subject.startup.jobs:
        return
    above = [
        line
        for line in read_tmpfiles(subject)
        if chosen.value.startswith(f"{line.path.rstrip('/')}/")
    ]
    # The line of the folder that is nearest decides.
    nearest = max(above, key=lambda line: len(line.path), default=None)
    if nearest and nearest.kind in AGING and nearest.age:
        what = f"systemd-tmpfiles removes what is older than {nearest.age} from {nearest.path}, "
        what += f"where {unit} has its model"
        hint = "remove the age from that line (the sixth field)"
        yield fault(what, Evidence(nearest.place, said=nearest.said), hint=hint)
