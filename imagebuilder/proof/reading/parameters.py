# SPDX-License-Identifier: Apache-2.0
"""The kernel's settings as a node has them: words of its command line, sysctl.d(5), and what
prevents modules from being loaded: modprobe.d(5).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence
from imagebuilder.proof.reading.config import config_files, config_folders
from imagebuilder.proof.reading.modules import plain
from imagebuilder.proof.reading.systemd import read_config
from imagebuilder.proof.subject import Subject, once

ON_CMDLINE = "sysctl."
FOLDERS = config_folders("modprobe.d")
LOADED = config_folders("modules-load.d")
LOADED_BY = ("modules_load", "modules-load", "rd.modules_load", "rd.modules-load")
# A command that runs instead of loading a module loads it only with one of these.
LOADS = re.compile(r"\b(modprobe|insmod)\b")


@dataclass(frozen=True)
class KernelSetting:
    """The value of a setting, and the line that sets it."""

    value: str
    where: Evidence


@once
def read_sysctl(subject: Subject) -> Mapping[str, KernelSetting]:
    """The settings by name, with dots, in the order of the last line of each."""
    found: dict[str, KernelSetting] = {}
    for line in read_config(subject, "sysctl.d"):
        name = name_of(line.key)
        found.pop(name, None)
        found[name] = KernelSetting(line.value, line.evidence)
    for word in subject.words:
        if word.key.startswith(ON_CMDLINE) and "=" in word.text:
            name = name_of(word.key.removeprefix(ON_CMDLINE))
            found.pop(name, None)
            found[name] = KernelSetting(word.value, word.evidence)
    return found


def name_of(key: str) -> str:
    """The name of a setting: `-` before it only says that it may be missing."""
    return key.lstrip("-").replace("/", ".")


@dataclass(frozen=True)
class ModuleSettings:
    """Settings of modules by name: which are blacklisted, replaced by nothing (`never`) or another
    module (`instead`), or drive no device (`off`, by `modeset=0`).

    `never` also applies if another module needs it, a blacklist only to loading for a device or at
    boot.
    """

    blacklisted: Mapping[str, Evidence]
    never: Mapping[str, Evidence]
    instead: Mapping[str, str]
    off: Mapping[str, Evidence]
    nomodeset: bool = False

    def blocker(self, name: str) -> Evidence | None:
        """What prevents this module from driving its device, if anything."""
        for said in (self.never, self.blacklisted, self.off):
            if plain(name) in said:
                return said[plain(name)]
        return None

    def real(self, name: str) -> str:
        """The module that is loaded if this one is requested."""
        return self.instead.get(plain(name), plain(name))


def read_settings(subject: Subject) -> ModuleSettings:
    blacklisted: dict[str, Evidence] = {}
    never: dict[str, Evidence] = {}
    instead: dict[str, str] = {}
    off: dict[str, Evidence] = {}
    for path, line in config_lines(subject):
        words = line.split()
        where = Evidence(path, said=line)
        match words:
            case ["blacklist", name, *_]:
                blacklisted.setdefault(plain(name), where)
            case ["install", name, *_]:
                # Debian's NVIDIA drivers are installed under other names: nvidia-current-open.
                if other := re.search(r"modprobe\s+(?:-i|--ignore-install)\s+([\w-]+)", line):
                    instead.setdefault(plain(name), plain(other[1]))
                elif not LOADS.search(line):
                    never.setdefault(plain(name), where)
            case ["alias", name, other, *_] if not re.search(r"[*?\[:]", name):
                instead.setdefault(plain(name), plain(other))
            case ["options", name, *options] if "modeset=0" in options:
                off.setdefault(plain(name), where)
    on_cmdline = subject.words
    for word in on_cmdline:
        names = [plain(name) for name in word.value.split(",") if name]
        if word.key == "modprobe.blacklist":
            blacklisted |= dict.fromkeys(names, word.evidence)
        elif word.key == "module_blacklist":
            never |= dict.fromkeys(names, word.evidence)
        elif word.key.endswith(".modeset") and word.value == "0":
            off[plain(word.key.removesuffix(".modeset"))] = word.evidence
    nomodeset = any(word.text == "nomodeset" for word in on_cmdline)
    return ModuleSettings(blacklisted, never, instead, off, nomodeset)


@once
def config_lines(subject: Subject) -> tuple[tuple[str, str], ...]:
    """(file, line) of the effective configuration, continued lines joined, without comments."""
    found: list[tuple[str, str]] = []
    for path in config_files(subject.root, FOLDERS, ".conf"):
        for line in subject.root.text(path).replace("\\\n", " ").splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                found.append((path, " ".join(line.split())))
    return tuple(found)


def requested(subject: Subject) -> Iterator[tuple[str, Evidence]]:
    """Each name, as it is written, of modules-load.d(5) and the command line."""
    for path in config_files(subject.root, LOADED, ".conf"):
        for line in map(str.strip, subject.root.text(path).splitlines()):
            if line and line[0] not in "#;":
                yield line, Evidence(path, said=line)
    for word in subject.words:
        if word.key in LOADED_BY:
            yield from ((name, word.evidence) for name in word.value.split(",") if name)


def options_of(subject: Subject) -> Iterator[tuple[str, str, str, Evidence]]:
    """(module, option, value, where) of modprobe.d(5) and the command line."""
    for path, line in config_lines(subject):
        words = line.split()
        if words[0] == "options" and len(words) > 2:
            for text in words[2:]:
                option, _, value = text.partition("=")
                yield plain(words[1]), option, value.strip('"'), Evidence(path, said=line)
    for word in subject.words:
        module, is_option, option = word.key.partition(".")
        if is_option:
            yield plain(module), option, word.value, word.evidence
