# SPDX-License-Identifier: Apache-2.0
"""Files that keys of an overlay stand for."""

from __future__ import annotations

from pathlib import Path

from imagebuilder.recipe.generated import all_files, generated_files, key_of
from imagebuilder.recipe.types import Modules, Overlay


def test_declared_modules_and_sysctl_are_files() -> None:
    overlay = Overlay(
        "gpu",
        Path("overlays/gpu"),
        modules=Modules(("amdgpu",), ("nouveau",), (("amdgpu", "gttsize=1"),)),
        sysctl=(("vm.swappiness", "1"),),
    )
    found = {f.target: (f.content or b"").decode() for f in generated_files(overlay)}
    assert found == {
        "/etc/modules-load.d/gpu.conf": "# overlay gpu\namdgpu\n",
        "/etc/modprobe.d/gpu.conf": (
            "# overlay gpu\nblacklist nouveau\noptions amdgpu gttsize=1\n"
        ),
        "/etc/sysctl.d/60-gpu.conf": "# overlay gpu\nvm.swappiness = 1\n",
    }
    assert [key_of(target) for target in found] == ["modules", "modules", "sysctl"]
    assert key_of("/etc/default/llama-server") == ""
    assert all_files(overlay) == generated_files(overlay)
