# SPDX-License-Identifier: Apache-2.0
"""Device code in files, for the GPUs of any vendor."""

from __future__ import annotations

import posixpath
import re
from dataclasses import dataclass
from enum import StrEnum


class Form(StrEnum):
    """A GPU runs it as it is, the driver compiles it first, or it was only an input of a linker."""

    NATIVE = "native"
    FORWARD = "forward"
    UNLINKED = "unlinked"


@dataclass(frozen=True)
class CodeObject:
    """Code for a target in a file.

    `target` is as the vendor writes it, with features or suffix (`gfx90a:xnack-`, `sm_90a`);
    `container` is the number of its bundle or fat binary.  `problem` is why it is invalid, else "".
    """

    target: str
    form: Form
    size: int
    section: str
    container: int = 0
    problem: str = ""


def in_order(targets: set[str] | frozenset[str]) -> list[str]:
    """Targets in numeric order: `gfx803 gfx900 gfx90a gfx1030`, `sm_80 sm_120`."""

    def key(target: str) -> tuple[str, int, str]:
        found = re.match(r"([a-z_]*)(\d*)(.*)", target)
        assert found
        # gfx90a is of gfx9, gfx1030 of gfx10: their last two places are not decimal.
        place = found[2] + found[3][:1] if found[1] == "gfx" and len(found[2]) == 2 else found[2]
        number = int(place, 16) if re.fullmatch(r"[0-9a-f]+", place) else 0
        return found[1], number, found[3]

    return sorted(targets, key=key)


@dataclass(frozen=True)
class CodeFile:
    """A file and the device code in it; `whole`: it contains only device code."""

    path: str
    objects: tuple[CodeObject, ...]
    whole: bool

    @property
    def name(self) -> str:
        return posixpath.basename(self.path)

    @property
    def targets(self) -> str:
        """The targets of all valid code in it; those of PTX as `compute_90`."""
        sound = [o for o in self.objects if o.target and not o.problem]
        ptx = {o.target.replace("sm_", "compute_") for o in sound if o.form is Form.FORWARD}
        native = {o.target for o in sound if o.form is not Form.FORWARD}
        return " ".join([*in_order(native), *in_order(ptx)])
