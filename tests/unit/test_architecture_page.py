# SPDX-License-Identifier: Apache-2.0
"""What docs/architecture.md names is there."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

TOP = Path(__file__).parents[2]
PAGE = (TOP / "docs/architecture.md").read_text()
# A module and what it contains, such as `plan.make_plan`.
NAME = re.compile(r"`((?:[a-z_]+\.)+)([A-Za-z]\w+)`")


def test_every_function_and_type_is_there() -> None:
    found = NAME.findall(PAGE)
    named = [(module.rstrip("."), name) for module, name in found if name not in ("py", "toml")]
    lost = [
        (module, name)
        for module, name in named
        if not hasattr(importlib.import_module(f"imagebuilder.{module}"), name)
    ]
    assert lost == []
    assert len(named) > 20


def test_every_module_of_the_layers_is_there() -> None:
    table = PAGE.partition("## Layers of the code")[2].partition("## Contracts")[0]
    named = re.findall(r"`([a-z_/]+)`", table)
    lost = [
        name
        for name in named
        if not (TOP / f"imagebuilder/{name}.py").is_file()
        and not (TOP / f"imagebuilder/{name}/__init__.py").is_file()
    ]
    assert lost == []
    assert len(named) > 25
