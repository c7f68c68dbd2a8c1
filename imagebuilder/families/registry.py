# SPDX-License-Identifier: Apache-2.0
"""The families by name; nothing else imports one."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import cast

from imagebuilder.families.protocol import Family
from imagebuilder.package_managers import PACKAGE_MANAGERS
from imagebuilder.recipe.types import Base


@cache
def find_family(name: str) -> Family:
    """The family of that name, which a base was read with."""
    module, _, attribute = PACKAGE_MANAGERS[name].family.partition(":")
    return cast("Family", getattr(import_module(module), attribute))


def family_of(base: Base) -> Family:
    """What makes roots of a base."""
    return find_family(base.package_manager)


def families() -> tuple[Family, ...]:
    """Every family, for what is not of one base."""
    return tuple(map(find_family, PACKAGE_MANAGERS))
