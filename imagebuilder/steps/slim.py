# SPDX-License-Identifier: Apache-2.0
"""Take out what the nodes of the profile have no use for, once all packages and wheels are there.

The work is done on the stacked root from outside (imagebuilder/slim): nothing of the root runs, but
depmod(8) and ldconfig(8) at the end.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import ClassVar, cast

from imagebuilder.decode import parse_json
from imagebuilder.digest import Json
from imagebuilder.errors import Fault, InputError, WorkError
from imagebuilder.process import Word
from imagebuilder.recipe.expectations import joined
from imagebuilder.recipe.hardware import chip_of
from imagebuilder.recipe.types import Recipe, Slim
from imagebuilder.slim.types import FAULT, SlimOrder
from imagebuilder.steps.clean import run_clean
from imagebuilder.steps.step import Step, StepWorkspace

VERSION = 1
# Per cent of a whole root that is rewritten at most: libraries with code for many targets.
SLIMMED = 15


@dataclass(frozen=True)
class SlimStep(Step):
    """What all overlays say goes, as one layer.

    `firmware` is what the recipe's devices ask for of the folders in `slim`; `kernel` is the
    package whose modules are meant.
    """

    slim: Slim
    firmware: tuple[str, ...]
    kernel: str
    title: ClassVar[str] = "slim"
    reports: ClassVar[str] = "slimmed"
    rewrites: ClassVar[int] = SLIMMED

    def inputs(self) -> Mapping[str, Json]:
        slim = self.slim
        return {
            "step": f"slim {VERSION}",
            "code": {"targets": list(slim.code), "in": list(slim.code_in)},
            "firmware": {"folders": list(slim.firmware), "wanted": list(self.firmware)},
            "modules": list(slim.modules),
            "unlinked": list(slim.unlinked),
            "kernel": self.kernel,
            "epoch": self.epoch,
        }

    def apply(self, workspace: StepWorkspace) -> None:
        slim = self.slim
        kernel = workspace.family.kernel_release(workspace, self.kernel) if slim.modules else ""
        order = SlimOrder(**vars(slim), wanted=self.firmware, kernel=kernel)
        said = run_slim(workspace, order)
        if workspace.on_note:
            workspace.on_note(said)
        if slim.modules:
            workspace.run(["depmod", "-a", order.kernel])
        if slim.unlinked:
            workspace.run(["ldconfig"])
            run_clean(workspace)


def run_slim(workspace: StepWorkspace, order: SlimOrder) -> str:
    """Slim the stacked root; one line about all of it.  Raises WorkError with what is wrong."""
    given = workspace.work / f"{workspace.upper}.slim"
    given.write_text(json.dumps(asdict(order)))
    faults: list[str] = []
    said = [""]

    def hear(line: str) -> None:
        if line.startswith(FAULT):
            faults.append(line.removeprefix(FAULT))
            return
        said[0] = line
        if workspace.on_line:
            workspace.on_line(line)

    files = (workspace.merged, given, workspace.facts)
    argv: list[Word] = [sys.executable, "-P", "-m", "imagebuilder.slim", *files]
    # The program may run from a checkout that is not installed.
    env = {"PYTHONPATH": os.fspath(Path(__file__).parents[2]), "PYTHONDONTWRITEBYTECODE": "1"}
    workspace.facts.touch()
    try:
        replace(workspace, on_line=hear).run_engine(argv, env=env, writes=[workspace.facts])
    except WorkError as error:
        if not faults:
            raise
        what, hint = cast("list[str]", parse_json(faults[-1], "imagebuilder.slim"))
        raise WorkError(what, hint=hint) from error
    return said[0]


def slim_step(recipe: Recipe, epoch: int) -> SlimStep | None:
    """What goes of the root of `recipe`; None where nothing does.

    Raises InputError when firmware is to go and a device's is not known.
    """
    slim = joined(Slim, (overlay.slim for overlay in recipe.overlays))
    if slim == Slim():
        return None
    wanted = wanted_firmware(recipe) if slim.firmware else ()
    return SlimStep(slim, wanted, recipe.base.kernel, epoch=epoch)


def wanted_firmware(recipe: Recipe) -> tuple[str, ...]:
    """The globs of all firmware that the recipe's devices ask for.

    Raises InputError for devices that nothing is known of: theirs would be removed.
    """
    chips = {hardware.pci: chip_of(hardware) for hardware in recipe.hardware}
    unknown = [
        Fault(
            f"recipes/{recipe.profile}.yaml",
            f"hardware: it is not known which firmware {hardware.name} ({hardware.pci}) asks for, "
            "so none can be removed",
            "set slim_firmware: false under `vars:` of the recipe, or describe the device in "
            "hardware/NAME.yaml of the project",
        )
        for hardware in recipe.hardware
        if chips[hardware.pci] is None
    ]
    if unknown:
        raise InputError.of(unknown)
    found = (glob for chip in chips.values() if chip for glob in chip.firmware)
    return tuple(sorted(set(found)))
