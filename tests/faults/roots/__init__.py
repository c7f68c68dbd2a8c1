# SPDX-License-Identifier: Apache-2.0
"""Every small root, by what makes it in a netboot tree."""

from __future__ import annotations

from collections.abc import Callable

from imagebuilder.tree import Tree
from tests.faults.roots.amd import make_amd
from tests.faults.roots.intel import make_intel
from tests.faults.roots.npu import make_npu
from tests.faults.roots.nvidia import make_nvidia

ROOTS: tuple[Callable[[Tree], None], ...] = (make_amd, make_nvidia, make_intel, make_npu)
NAMES: tuple[str, ...] = ("made-amd", "made-nvidia", "made-intel", "made-npu")
