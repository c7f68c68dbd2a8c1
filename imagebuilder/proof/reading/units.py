# SPDX-License-Identifier: Apache-2.0
"""systemd units of a root, read with their drop-ins (systemd.unit(5)), and paths in their settings,
such as `-+/srv/a:/mnt/a:ro` (systemd.exec(5)).
"""

from __future__ import annotations

import fnmatch
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from imagebuilder.proof.reading.config import assignments, config_files, config_folders, is_true
from imagebuilder.proof.reading.nodes import find_family
from imagebuilder.proof.reading.texts import unquoted
from imagebuilder.root import Root

FOLDERS = config_folders("systemd/system")
# Before the program of Exec*= (systemd.service(5), "special executable prefixes").
PREFIXES = "@-:+!|"
BINARIES = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin")
OPTIONAL = "-"  # a path that may be missing
PATH_PREFIXES = "-+"  # and + for one below the unit's own root


def split_prefixes(line: str) -> tuple[str, str]:
    """The prefixes of a command line, and its program."""
    first = next(iter(unquoted(line)), "")
    program = first.lstrip(PREFIXES)
    return first[: len(first) - len(program)], program


def prefixes_of(root: Root, unit: UnitSettings, key: str, program: str) -> str:
    """The prefixes of a program in the files of a unit, which its dump leaves out."""
    lines = (line for path in unit.paths for line in service_lines(root.text(path)))
    each = (split_prefixes(value) for name, value in lines if name == key)
    return "".join(prefixes for prefixes, known in each if known == program)


def find_program(root: Root, name: str, folders: Iterable[str] = BINARIES) -> str:
    """The path of a program, or of a command that is searched by its name; "" if there is none."""
    paths = [name] if "/" in name else [f"{folder}/{name}" for folder in folders]
    return next(filter(root.is_file, paths), "")


@dataclass(frozen=True)
class UnitSettings:
    """A unit: its files, and the values of each key in order."""

    name: str
    paths: tuple[str, ...] = ()
    values: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def last(self, key: str, otherwise: str = "") -> str:
        return (self.values.get(key) or (otherwise,))[-1]

    def every(self, key: str) -> tuple[str, ...]:
        return self.values.get(key, ())

    def firsts(self, key: str) -> tuple[str, ...]:
        """The first word of every value, such as a unit's name before why it is listed."""
        return tuple(value.split()[0] for value in self.every(key) if value.strip())

    def words(self, key: str) -> tuple[str, ...]:
        return tuple(word for value in self.every(key) for word in value.split())


@dataclass(frozen=True)
class Unit(UnitSettings):
    """The keys of [Service]; an empty assignment removes the values before it."""

    def true(self, key: str) -> bool:
        return is_true(self.last(key))

    @property
    def programs(self) -> tuple[str, ...]:
        """The programs that it needs to start, without prefixes."""
        found = []
        for key in ("ExecStartPre", "ExecStart"):
            for line in self.every(key):
                prefixes, program = split_prefixes(line)
                if program and "-" not in prefixes:
                    found.append(program)
        return tuple(found)

    def allows(self, device: str) -> bool:
        """Whether its device policy lets it read and write a device (a path, or a glob of them)."""
        policy = self.last("DevicePolicy", "auto")
        entries = [entry for entry in self.every("DeviceAllow") if entry]
        if policy == "auto" and not entries:
            return True
        return any(allowed(entry, device) for entry in entries)


def allowed(entry: str, device: str) -> bool:
    """Whether a DeviceAllow= entry allows reading and writing a device."""
    words = entry.split()
    what, how = words[0], (words[1] if len(words) > 1 else "rwm")
    if not {"r", "w"} <= set(how):
        return False
    if what.startswith("char-"):
        family = find_family(device)
        return bool(family and fnmatch.filter(family.drivers, what.removeprefix("char-")))
    return what == device or fnmatch.fnmatchcase(what, device)


def find_unit(root: Root, name: str) -> Unit | None:
    """A unit with its drop-ins; None if it has no file or is masked.

    Like systemd, ignores invalid lines.
    """
    path = find_file(root, name)
    if path is None or root.read(path) is None:
        return None
    settings: dict[str, list[str]] = {}
    paths = (path, *drop_ins(root, name))
    for each in paths:
        for key, value in service_lines(root.text(each)):
            if value:
                settings.setdefault(key, []).append(value)
            else:
                settings[key] = []
    return Unit(name, paths, {key: tuple(values) for key, values in settings.items()})


def find_file(root: Root, name: str) -> str | None:
    """The file of a unit: its own, or that of the template it is an instance of."""
    for each in dict.fromkeys((name, template(name))):
        for folder in FOLDERS:
            if root.lies(f"{folder}/{each}"):
                return f"{folder}/{each}"
    return None


def template(name: str) -> str:
    """`vllm-node@0.service` -> `vllm-node@.service`; other names are unchanged."""
    stem, _, rest = name.partition("@")
    instance, _, kind = rest.rpartition(".")
    return f"{stem}@.{kind}" if instance else name


def drop_ins(root: Root, name: str) -> list[str]:
    """The drop-ins of a unit in the order they are read: by file name, in any folder."""
    stem, _, kind = name.rpartition(".")
    dashes = [f"{stem[: n + 1]}.{kind}" for n, letter in enumerate(stem) if letter == "-"]
    # The closer a folder's name is to the unit's, the higher its priority.
    owners = dict.fromkeys((name, template(name), *reversed(dashes), kind))
    folders = [f"{folder}/{owner}.d" for owner in owners for folder in FOLDERS]
    return config_files(root, folders, ".conf")


def service_lines(text: str) -> Iterator[tuple[str, str]]:
    """(key, value) of every assignment in [Service]."""
    return ((key, value) for section, key, value in assignments(text) if section == "Service")


def default_memlock(root: Root) -> str:
    """DefaultLimitMEMLOCK= of systemd-system.conf(5), "" if not set."""
    named = (f"{folder}/system.conf" for folder in config_folders("systemd"))
    main = [path for path in named if root.is_file(path)][:1]
    files = (*main, *config_files(root, config_folders("systemd/system.conf.d"), ".conf"))
    lines = (line for path in files for line in assignments(root.text(path)))
    found = [value for _, key, value in lines if key == "DefaultLimitMEMLOCK"]
    return found[-1] if found else ""


@dataclass(frozen=True)
class UnitPath:
    """A path of the image, and where the unit's programs see it: elsewhere if it is bound there."""

    source: str
    target: str
    is_optional: bool


def unit_paths(unit: UnitSettings, *keys: str) -> Iterator[UnitPath]:
    """The paths of some settings of a unit, without a slash at their end."""
    for word in (word for key in keys for word in unit.words(key)):
        bare = word.lstrip(PATH_PREFIXES)
        source, _, rest = bare.partition(":")
        target = rest.partition(":")[0] if rest.startswith("/") else source
        is_optional = OPTIONAL in word[: len(word) - len(bare)]
        yield UnitPath(without_slash(source), without_slash(target), is_optional)


def without_slash(path: str) -> str:
    return path.rstrip("/") or path[:1]


def is_below(path: str, folder: str) -> bool:
    """Whether a path is `folder` or below it."""
    return path == folder or path.startswith(f"{folder.rstrip('/')}/")
