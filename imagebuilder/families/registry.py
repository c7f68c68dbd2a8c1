# SPDX-License-Identifier: Apache-2.0
"""The families by name; no other module imports one."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import cast

from imagebuilder.errors import InputError
from imagebuilder.families.protocol import Family
from imagebuilder.package_managers import PACKAGE_MANAGERS, manager_of
from imagebuilder.recipe.types import Base


@cache
def find_family(name: str) -> Family:
    module, _, attribute = PACKAGE_MANAGERS[name].family.partition(":")
    return cast("Family", getattr(import_module(module), attribute))


def family_of(base: Base) -> Family:
    return find_family(base.package_manager)


def family_of_distribution(distribution: str) -> Family:
    """The family of an image, by the distribution in its manifest.

    Raises InputError if its package manager is not installed here.
    """
    try:
        return find_family(manager_of(distribution).name)
    except KeyError:
        raise InputError(
            f"no installed package manager supports the distribution {distribution!r}",
            hint="install the Python package that the image was built with",
        ) from None


def families() -> tuple[Family, ...]:
    return tuple(map(find_family, PACKAGE_MANAGERS))
