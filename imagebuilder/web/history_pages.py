# SPDX-License-Identifier: Apache-2.0
"""The pages of releases, boot tests, roll-outs, nightly runs, and machines that are nobody's."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request

from imagebuilder.errors import InputError
from imagebuilder.files import read_plain
from imagebuilder.fleet.rollout.show import (
    PHASES,
    describe_status,
    find_next,
    reasons_of,
    stages_of,
)
from imagebuilder.fleet.rollout.types import LiveRollout, Rollout, RolloutStage
from imagebuilder.folders import folders_in
from imagebuilder.nightly.history import ID, find_ids, find_records, month_of
from imagebuilder.nightly.page import month_page_of, quiet_runs, state, tiles, tone
from imagebuilder.publish.listing import ListedRelease
from imagebuilder.report.page import Tile, render_page
from imagebuilder.report.save import load_report, read_logs, read_reports
from imagebuilder.report.words import headline
from imagebuilder.web.api import AbsentError, find_listed
from imagebuilder.web.pages import show_page
from imagebuilder.web.site import WebSite
from imagebuilder.web.snapshot import WebSnapshot

SHOWN = 30  # nightly runs
# What `nightly` writes for people; nothing else of its folder is shown.
NIGHTLY_FILE = re.compile(
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
    live: LiveRollout
    status: str
    hint: str
    phases: tuple[ShownPhase, ...]
    reasons: tuple[str, ...]


def rollouts_page(site: WebSite, _: Request) -> bytes:
    """The last roll-out of each profile, the newest first."""
    snapshot = site.snapshot
    newest = sorted(snapshot.rollouts, key=lambda live: live.rollout.started, reverse=True)
    shown = [*map(show_rollout, newest)]
    return show_page(site, snapshot, "rollouts.html.j2", here="/rollouts", rollouts=shown)


def show_rollout(live: LiveRollout) -> ShownRollout:
    phases = (show_phase(live.rollout, phase, title) for phase, title in enumerate(PHASES))
    shown = tuple(phase for phase in phases if phase.shares)
    reasons = tuple(reasons_of(live.rollout.nodes))
    return ShownRollout(live, describe_status(live), find_next(live), shown, reasons)


def show_phase(rollout: Rollout, phase: int, title: str) -> ShownPhase:
    nodes = [node for node in rollout.nodes if node.phase == phase]
    counted, shares, left = Counter(node.stage for node in nodes), [], 0.0
    for stage in STAGE_TONES:
        if counted[stage]:
            width = counted[stage] * 100 / len(nodes)
            shares.append(StageShare(stage, counted[stage], round(left, 2), round(width, 2)))
            left += width
    return ShownPhase(title, tuple(shares), tuple(line.strip() for line in stages_of(nodes)))


def nightly_page(site: WebSite, _: Request) -> bytes:
    """The last nightly runs by profile; each leads to the page that `nightly` wrote."""
    snapshot = site.snapshot
    runs = [*reversed(snapshot.nightly.runs)][:SHOWN]
    unfinished = bool(runs) and not runs[0].finished
    ids = find_ids(site.reports)[:-SHOWN]
    return show_page(
        site,
        snapshot,
        "nightly.html.j2",
        here="/nightly",
        runs=runs,
        records=find_records(runs, running=unfinished),
        state=state(runs[0], running=unfinished) if runs else "",
        tone=tone(runs[0], running=unfinished) if runs else "",
        tiles=[
            *(tiles(runs[0]) if runs else ()),
            Tile("runs without a failure", str(quiet_runs(runs))),
        ],
        faults=snapshot.nightly.faults,
        months={month: month_page_of(month) for month in sorted({*map(month_of, ids)})[::-1]},
    )


def nightly_file(site: WebSite, request: Request) -> bytes:
    """A page that `nightly` wrote.  Raises AbsentError."""
    path = request.path_params["path"]
    if not NIGHTLY_FILE.fullmatch(path):
        raise AbsentError(f"no page of a nightly run named {path!r}")
    try:
        return read_plain(Path(site.reports, path))
    except OSError as error:
        raise AbsentError(f"{path} cannot be read: {error.strerror}") from error


def machines_page(site: WebSite, _: Request) -> bytes:
    """Machines that asked the boot server and are in no nodes.yaml."""
    return show_page(site, site.snapshot, "machines.html.j2", here="/machines")


def find_profiles(snapshot: WebSnapshot) -> dict[str, list[ListedRelease]]:
    """The releases of each profile, the newest first."""
    found: dict[str, list[ListedRelease]] = {}
    for listed in snapshot.releases:
        found.setdefault(listed.release.profile, []).insert(0, listed)
    return found


def releases_page(site: WebSite, _: Request) -> bytes:
    snapshot = site.snapshot
    profiles = find_profiles(snapshot)
    return show_page(site, snapshot, "releases.html.j2", here="/releases", profiles=profiles)


def release_page(site: WebSite, request: Request) -> bytes:
    """A release.  Raises AbsentError."""
    snapshot, listed = site.snapshot, find_listed(site, request)
    found = read_reports(site.tree.reports(listed.release))
    return show_page(
        site,
        snapshot,
        "release.html.j2",
        here="/releases",
        listed=listed,
        detail=snapshot.details[listed.release],
        reports=[(report, headline(report)) for report in reversed(found.reports)],
        faults=found.faults,
    )


def report_page(site: WebSite, request: Request) -> bytes:
    """The page of a boot test, as `report --html` writes it.  Raises AbsentError."""
    top = site.tree.reports(find_listed(site, request).release)
    name = request.path_params["id"]
    if name not in folders_in(top):
        raise AbsentError(f"no boot test {name!r} of this release")
    try:
        report = load_report(top / name)
    except InputError as error:
        raise AbsentError(str(error)) from error
    return render_page(report, read_logs(top / name)).encode(errors="replace")
