# SPDX-License-Identifier: Apache-2.0
"""Whether the model of an engine stays where it is."""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.environment import Environment
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.reading.tmpfiles import read_tmpfiles
from imagebuilder.proof.services import SAY
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import EngineKind

CLEANING = "systemd-tmpfiles-clean.timer"
AGING = "dDevqQC"  # types of lines whose age counts (tmpfiles.d(5))


def prove_model(
    subject: Subject, startup: Startup, unit: str, kind: EngineKind, environment: Environment
) -> Iterator[Finding]:
    """A fault if systemd-tmpfiles(8) removes an old model; a disk without times makes each old."""
    model = kind.model.boot.model if kind.model.boot else None
    chosen = environment.get(model.variable) if model else None
    if chosen is None or CLEANING not in startup.jobs:
        return
    above = [
        line
        for line in read_tmpfiles(subject)
        if chosen.value.startswith(f"{line.path.rstrip('/')}/")
    ]
    # The line of the folder that is nearest decides.
    nearest = max(above, key=lambda line: len(line.path), default=None)
    if nearest and nearest.kind in AGING and nearest.age:
        what = f"systemd-tmpfiles removes what is older than {nearest.age} from {nearest.path}, "
        what += f"where {unit} has its model"
        hint = "remove the age from that line (the sixth field)"
        yield SAY.fault(what, Evidence(nearest.place, said=nearest.said), hint=hint)
