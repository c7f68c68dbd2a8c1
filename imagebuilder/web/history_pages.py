# SPDX-License-Identifier: Apache-2.0
"""The pages of roll-outs, nights, and machines that are nobody's."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request

from imagebuilder.files import read_plain
from imagebuilder.fleet.rollout.journal import is_running
from imagebuilder.fleet.rollout.show import NEXT, PHASES, reasons_of, stages_of
from imagebuilder.fleet.rollout.types import Rollout, RolloutStage
from imagebuilder.nightly.history import ID, find_ids, find_records, month_of
from imagebuilder.nightly.page import month_page_of, quiet_runs, state, tiles, tone
from imagebuilder.report.page import Tile
from imagebuilder.web.api import AbsentError
from imagebuilder.web.render import show_page
from imagebuilder.web.site import WebSite

SHOWN = 30  # nights
# What `nightly` writes for people; nothing else of its folder is shown.
NIGHT_FILE = re.compile(
    rf"index\.html|month-\d{{4}}-\d\d\.html|nights/{ID.pattern}(\.boot-\d+)?\.html", re.ASCII
)
# From the left of a bar to its right.
STAGE_TONES = {
    RolloutStage.DONE: "passed",
    RolloutStage.CHECKING: "booting",
    RolloutStage.REBOOTING: "booting",
    RolloutStage.DRAINING: "booting",
    RolloutStage.LEFT: "degraded",
    RolloutStage.RETURNING: "degraded",
    RolloutStage.RETURNED: "degraded",
    RolloutStage.LOST: "failed",
    RolloutStage.WAITING: "absent",
}


@dataclass(frozen=True)
class StageShare:
    """Nodes of a phase in a stage: `left` and `width` of their bar are in percent."""

    stage: RolloutStage
    count: int
    left: float
    width: float

    @property
    def tone(self) -> str:
        return STAGE_TONES[self.stage]


@dataclass(frozen=True)
class ShownPhase:
    title: str
    shares: tuple[StageShare, ...]
    lines: tuple[str, ...]


@dataclass(frozen=True)
class ShownRollout:
    rollout: Rollout
    runs: bool
    hint: str
    phases: tuple[ShownPhase, ...]
    reasons: tuple[str, ...]


def rollouts_page(site: WebSite, request: Request) -> bytes:
    """The last roll-out of each profile, the newest first."""
    del request
    snapshot = site.snapshot
    newest = sorted(snapshot.rollouts, key=lambda rollout: rollout.started, reverse=True)
    shown = [show_rollout(site, rollout) for rollout in newest]
    return show_page(site, snapshot, "rollouts.html.j2", here="/rollouts", rollouts=shown)


def show_rollout(site: WebSite, rollout: Rollout) -> ShownRollout:
    runs = not rollout.ended and is_running(site.tree, rollout.profile)
    hint = "" if runs else NEXT.get(rollout.status, "").format(profile=rollout.profile)
    phases = (show_phase(rollout, phase, title) for phase, title in enumerate(PHASES))
    reasons = tuple(reasons_of(rollout.nodes))
    return ShownRollout(rollout, runs, hint, tuple(p for p in phases if p.shares), reasons)


def show_phase(rollout: Rollout, phase: int, title: str) -> ShownPhase:
    nodes = [node for node in rollout.nodes if node.phase == phase]
    counted, shares, left = Counter(node.stage for node in nodes), [], 0.0
    for stage in STAGE_TONES:
        if counted[stage]:
            width = counted[stage] * 100 / len(nodes)
            shares.append(StageShare(stage, counted[stage], round(left, 2), round(width, 2)))
            left += width
    return ShownPhase(title, tuple(shares), tuple(line.strip() for line in stages_of(nodes)))


def nights_page(site: WebSite, request: Request) -> bytes:
    """The last nights by profile; each leads to the page that `nightly` wrote."""
    del request
    snapshot = site.snapshot
    nights = [*reversed(snapshot.nights.runs)][:SHOWN]
    running = bool(nights) and not nights[0].finished
    ids = find_ids(site.nights)[:-SHOWN]
    return show_page(
        site,
        snapshot,
        "nights.html.j2",
        here="/nights",
        nights=nights,
        records=find_records(nights, running=running),
        state=state(nights[0], running=running) if nights else "",
        tone=tone(nights[0], running=running) if nights else "",
        tiles=[
            *(tiles(nights[0]) if nights else ()),
            Tile("runs without a failure", str(quiet_runs(nights))),
        ],
        faults=snapshot.nights.faults,
        months={month: month_page_of(month) for month in sorted({*map(month_of, ids)})[::-1]},
    )


def night_file(site: WebSite, request: Request) -> bytes:
    """A page that `nightly` wrote.  Raises AbsentError."""
    path = request.path_params["path"]
    if not NIGHT_FILE.fullmatch(path):
        raise AbsentError(f"no page of a nightly run named {path!r}")
    try:
        return read_plain(Path(site.nights, path))
    except OSError as error:
        raise AbsentError(f"{path} cannot be read: {error.strerror}") from error


def machines_page(site: WebSite, request: Request) -> bytes:
    """Machines that asked the boot server and are in no nodes.yaml."""
    del request
    return show_page(site, site.snapshot, "machines.html.j2", here="/machines")
