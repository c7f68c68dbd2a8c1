# SPDX-License-Identifier: Apache-2.0
"""Settings in TOML and YAML, and why a program refuses them: text that cannot be read has no
settings, which is not the same as a file that sets nothing.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ruamel.yaml.error import YAMLError

from imagebuilder.errors import InputError
from imagebuilder.image.proof import Evidence
from imagebuilder.recipe.positions import parse_document
from imagebuilder.root import Root


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
        """The place of the problem."""
        return Evidence(self.path, said=self.where)


def read_settings(path: str, value: object) -> SettingsFile:
    """The settings in a whole document, which must be a mapping or nothing."""
    if value is None:
        return SettingsFile(path)
    if not isinstance(value, dict):
        return SettingsFile(path, problem="is not a mapping of names to values")
    return SettingsFile(path, value)


def read_toml(root: Root, path: str) -> SettingsFile:
    """The settings of a file in TOML."""
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
