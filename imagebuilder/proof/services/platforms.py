# SPDX-License-Identifier: Apache-2.0
"""Plugins in the environment of an engine that put another platform in the place of its own.

vLLM takes the platform of a plugin before the ones that it has itself
(resolve_current_platform_cls_qualname() of its platforms/__init__.py).
"""

from __future__ import annotations

import configparser
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from packaging.utils import canonicalize_name

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.environment import Environment
from imagebuilder.proof.reading.python import installed, site_packages
from imagebuilder.proof.services import SAY
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

NAME = re.compile(r"[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class PlatformPlugin:
    """An entry point (`name = code`) of a distribution, and the file that has it."""

    name: str
    code: str
    path: str


def prove_platform_plugins(
    subject: Subject, unit: str, path: str, module: str, environment: Environment
) -> Iterator[Finding]:
    """Warnings: a plugin may find out by itself that its device is missing."""
    site = site_packages(subject.root, path)
    allowed = environment.get(f"{module.upper()}_PLUGINS")
    names = allowed.value.split(",") if allowed else None
    for plugin in read_plugins(subject.root, site, f"{module}.platform_plugins") if site else ():
        if names is not None and plugin.name not in names:
            continue
        distribution = posixpath.basename(posixpath.dirname(plugin.path)).removesuffix(".dist-info")
        what = f"{unit} may compute on the platform of {distribution} and not on its own: the "
        what += f"plugin {plugin.name} in {path} takes the place of those of {module}"
        if gone := lacking(subject.root, site or "", posixpath.dirname(plugin.path)):
            what += f", and needs {gone}, which is not installed"
        hint = f"remove that distribution, or set {module.upper()}_PLUGINS= to the plugins to load"
        yield SAY.warning(what, Evidence(plugin.path, said=plugin.code), hint=hint)


def read_plugins(root: Root, site: str, group: str) -> Iterator[PlatformPlugin]:
    """The entry points of a group (packaging.python.org, "Entry points specification")."""
    for path in root.glob(f"{site}/*.dist-info/entry_points.txt"):
        parser = configparser.ConfigParser(delimiters=("=",), interpolation=None)
        parser.optionxform = str  # type: ignore[method-assign,assignment] # names keep their case
        try:
            parser.read_string(root.text(path))
        except configparser.Error:
            continue
        if parser.has_section(group):
            for name, code in parser.items(group):
                yield PlatformPlugin(name, f"{name} = {code}", path)


def lacking(root: Root, site: str, info: str) -> str:
    """The first distribution that one requires without a condition and that is not there."""
    there = installed(root, site)
    requires = next((each.requires for each in there.values() if each.path == info), ())
    for text in requires:
        name = NAME.match(text.strip())
        if name and ";" not in text and canonicalize_name(name[0]) not in there:
            return name[0]
    return ""
