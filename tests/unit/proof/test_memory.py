# SPDX-License-Identifier: Apache-2.0
"""Facts of files are read again by another version of the program that reads them."""

from __future__ import annotations

import ast
import sys
from pathlib import Path

from imagebuilder.proof.memory import READERS

# They make no fact of the content of a file.
NO_READERS = frozenset(
    ("errors", "image.proof", "proof.code", "proof.kernel", "proof.once", "proof.say",
     "proof.subject", "proof.code.tensile",
     "recipe.expectations", "recipe.types", "root", "ui")
)  # fmt: skip


def test_every_module_that_reads_facts_is_a_reader() -> None:
    names = {module.__name__.removeprefix("imagebuilder.") for module in READERS}
    used: set[str] = set()
    for module in READERS:
        for node in ast.walk(ast.parse(Path(module.__file__ or "").read_bytes())):
            if isinstance(node, ast.ImportFrom) and node.module:
                inner = (f"{node.module}.{each.name}" for each in node.names)
                used |= {name for name in (node.module, *inner) if name in sys.modules}
    ours = {name.removeprefix("imagebuilder.") for name in used if name.startswith("imagebuilder.")}
    assert ours - names - NO_READERS == set()
