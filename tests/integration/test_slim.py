# SPDX-License-Identifier: Apache-2.0
"""The step in its sandbox: the layers below stay as they are, what goes is not in the root."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.families.apt.family import APT
from imagebuilder.lock.verified import Pool
from imagebuilder.recipe.types import Slim
from imagebuilder.steps.slim import SlimStep
from imagebuilder.steps.step import StepWorkspace
from imagebuilder.store.upper import settle
from tests.unit.steps.hip_library import make_hip_library

LIBRARY = "usr/lib/libmath.so.1"
KERNEL = "usr/lib/rocblas/T_gfx1030.co"
SLIM = Slim(code=("gfx1102",), code_in=("/usr/lib/libmath.so*", "/usr/lib/rocblas/*"))


def workspace_of(work: Path) -> StepWorkspace:
    """A step's world on the tiny root with a library and a kernel for another card."""
    for name, content in ((LIBRARY, make_hip_library()), (KERNEL, b"k" * 1000)):
        place = work / "c" / name
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_bytes(content)
    (work / "u").mkdir(mode=0o755)
    return StepWorkspace(work, ("c",), "u", 1, work / "log", Pool(work, work), family=APT)


def test_the_layer_has_what_is_left(busybox: Path) -> None:
    workspace = workspace_of(busybox)
    lines: list[str] = []
    notes: list[str] = []
    listening = replace(workspace, on_line=lines.append, on_note=notes.append)
    SlimStep(SLIM, (), "linux", epoch=1).apply(listening)
    changes = settle(workspace.tree, [busybox / "c"])
    assert changes.whiteouts == (KERNEL,)
    assert (workspace.tree / LIBRARY).stat().st_size < 80_000
    assert (busybox / "c" / LIBRARY).read_bytes() == make_hip_library()
    assert lines == [
        f"kept only gfx1102 in /{LIBRARY}: 168 kB -> 74 kB",
        f"removed /{KERNEL} (1.0 kB)",
        "95 kB less: code 95 kB",
    ]
    assert notes == lines[-1:]
    facts = json.loads(workspace.facts.read_text())
    assert facts == {"replaced-bytes": 169368, "code-bytes": 95208, "code-files": 2}


def test_a_fault_says_what_to_do(busybox: Path) -> None:
    wrong = replace(SLIM, code_in=(*SLIM.code_in, "/usr/lib/libgone.so"))
    with pytest.raises(WorkError, match=r"nothing matches /usr/lib/libgone.so") as caught:
        SlimStep(wrong, (), "linux", epoch=1).apply(workspace_of(busybox))
    assert "code-in" in caught.value.faults[0].hint
