# SPDX-License-Identifier: Apache-2.0
"""Configuration files: which of them count, those that include others, which may include them again
or go on for thousands of files, the assignments in those of systemd, and settings in TOML and YAML.

Text that a program refuses has no settings, which is not the same as a file that sets nothing.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

from ruamel.yaml.error import YAMLError

from imagebuilder.errors import InputError
from imagebuilder.image.proof import Evidence
from imagebuilder.recipe.positions import parse_document
from imagebuilder.root import Root

# parse_boolean() of systemd.
TRUE = frozenset(("1", "yes", "y", "true", "t", "on"))
FALSE = frozenset(("0", "no", "n", "false", "f", "off"))
PARENTS = ("/etc", "/run", "/usr/local/lib", "/usr/lib")
L = TypeVar("L")
CMDLINE = "/proc/cmdline"

MOST_LEVELS = 128  # as sudo(8) has it (MAX_SUDOERS_DEPTH)


def is_true(text: str) -> bool:
    return text.lower() in TRUE


def is_false(text: str) -> bool:
    return text.lower() in FALSE


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


def value_at(settings: object, *keys: str) -> object:
    """The value below some tables of a document, None if one is not there."""
    for key in keys:
        settings = settings.get(key) if isinstance(settings, dict) else None
    return settings


def table_at(settings: object, *keys: str) -> Mapping[str, Any]:
    """A table of a document, without entries if it is not there or something else."""
    found = value_at(settings, *keys)
    return found if isinstance(found, dict) else {}


def list_at(settings: object, *keys: str) -> Sequence[Any]:
    """A list of a document, empty if it is not there or something else."""
    found = value_at(settings, *keys)
    return found if isinstance(found, list) else ()


def config_folders(name: str) -> tuple[str, ...]:
    """The folders of udev(7), modprobe.d(5), tmpfiles.d(5) and systemd.unit(5), by priority."""
    return tuple(f"{parent}/{name}" for parent in PARENTS)


def config_files(
    root: Root,
    folders: Iterable[str],
    ending: str,
    names: Callable[[Root, str], Iterable[str]] = Root.names,
) -> list[str]:
    """The effective files by name; one in an earlier folder overrides its namesakes.

    `names` are those in a folder.
    """
    chosen: dict[str, str] = {}
    for folder in folders:
        for name in names(root, folder):
            if name.endswith(ending):
                chosen.setdefault(name, f"{folder}/{name}")
    return [path for _, path in sorted(chosen.items())]


def assignments(text: str) -> Iterator[tuple[str, str, str]]:
    """(section, key, value) of every assignment, continued lines joined (systemd.syntax(7))."""
    section = ""
    joined = re.sub(r"\\\n([#;].*\n)*", " ", text)
    for line in (line.strip() for line in joined.splitlines()):
        if line.startswith("[") and line.endswith("]"):
            section = line[1:-1]
        elif "=" in line and line[0] not in "#;":
            key, _, value = line.partition("=")
            yield section, key.strip(), value.strip()


def read_including(
    path: str, lines_of: Callable[[str], Iterable[L]], included: Callable[[L], list[str] | None]
) -> Iterator[L]:
    """The lines of a file, with those of others in the place of a line that includes them.

    `included` gives the paths that a line includes, None for another line.  Each file is read once.
    """
    seen: set[str] = set()

    def lines_in(paths: Iterable[str]) -> Iterator[L]:
        for each in paths:
            if each not in seen:
                seen.add(each)
                yield from lines_of(each)

    reading = [lines_in([path])]
    while reading:
        for line in reading[-1]:
            paths = included(line)
            if paths is None:
                yield line
            elif len(reading) <= MOST_LEVELS:
                reading.append(lines_in(paths))
                break
        else:
            reading.pop()


@dataclass(frozen=True)
class SettingsFile:
    """A file and its settings.

    `problem` says why it has none that are known, "" if it could be read or is not there; its
    program refuses it if `refused`, other readers of the format may take it.
    """

    path: str
    values: Mapping[str, Any] = field(default_factory=dict)
    problem: str = ""
    where: str = ""
    refused: bool = True

    @property
    def evidence(self) -> Evidence:
        return Evidence(self.path, said=self.where)


def read_settings(path: str, value: object) -> SettingsFile:
    """The settings in a whole document, which must be a mapping or nothing."""
    if value is None:
        return SettingsFile(path)
    if not isinstance(value, dict):
        return SettingsFile(path, problem="is not a mapping of names to values")
    return SettingsFile(path, value)


def read_toml(root: Root, path: str) -> SettingsFile:
    content = root.read(path)
    try:
        return SettingsFile(path, tomllib.loads((content or b"").decode("utf-8-sig")))
    except UnicodeDecodeError:
        return SettingsFile(path, problem="is not UTF-8 text")
    except (ValueError, RecursionError) as error:  # also of a number with too many digits
        return SettingsFile(path, problem=f"is not valid TOML ({error})")


def read_yaml(root: Root, path: str) -> SettingsFile:
    """The settings of a file in YAML; names that are there twice are refused by some programs."""
    content = root.read(path) if path.startswith("/") else None
    if not content or not content.strip():
        return SettingsFile(path)
    try:
        return read_settings(path, parse_document(content, path).value)
    except InputError as error:
        first, cause = error.faults[0], error.__cause__
        if first.what == "is empty":  # it has remarks alone
            return SettingsFile(path)
        refused = isinstance(cause, YAMLError | UnicodeDecodeError)
        return SettingsFile(path, problem=first.what, where=first.where, refused=refused)
