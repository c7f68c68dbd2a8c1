# SPDX-License-Identifier: Apache-2.0
"""What the web server shows: one snapshot of everything, derived anew whenever evidence changes.

A page shows the newest snapshot and asks no node anything.  Whether something changed is told by
the state of a few files and folders: every record is written by renaming it into its folder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.discover import Stranger, discover
from imagebuilder.errors import Fault, InputError
from imagebuilder.fleet.addresses import addresses_of, find_addresses
from imagebuilder.fleet.health import Verdict
from imagebuilder.fleet.overview import NodeView, find_states, views_of
from imagebuilder.fleet.probe import probe_nodes
from imagebuilder.fleet.rollout.journal import find_live_rollouts, is_running
from imagebuilder.fleet.rollout.types import LiveRollout
from imagebuilder.fleet.state import Condition, Observation, summarise
from imagebuilder.folders import matching
from imagebuilder.nightly.history import FoundRuns, find_ids, read_runs
from imagebuilder.nodes.evidence.usage import read_usage
from imagebuilder.nodes.load import Stamp, stamp_of
from imagebuilder.nodes.types import Node, Nodes
from imagebuilder.publish.listing import ListedRelease
from imagebuilder.recipe.cards import Cards
from imagebuilder.serve.interface import Network
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.web.detail import ReleaseDetail, read_detail
from imagebuilder.web.node_networks import find_node_networks
from imagebuilder.web.tree_reader import Reader, ReleasesNow, TreeReader, newest_of

RUNS_SHOWN = 60


@dataclass(frozen=True)
class FleetRow:
    """A node of nodes.yaml, how it is, and the address it has or reported from."""

    node: Node
    view: NodeView
    address: str

    @property
    def name(self) -> str:
        return self.node.name

    @property
    def condition(self) -> Condition:
        return self.view.state.condition

    @property
    def last(self) -> Observation | None:
        return self.view.last

    @property
    def illness(self) -> Verdict | None:
        return self.view.illness

    @property
    def readings(self) -> Mapping[str, int]:
        """What it measured of itself (nodes/evidence/seen.py)."""
        return self.view.health.readings if self.view.health else {}

    @property
    def word(self) -> str:
        return self.view.word

    @property
    def is_current(self) -> bool:
        """Whether it runs what it would boot now."""
        state = self.view.state
        return bool(state.release) and state.release == state.next

    def as_json(self) -> dict[str, Json]:
        """For programs: a stable contract."""
        node = self.node
        return {
            **self.view.as_json(),
            "group": node.group,
            "labels": [*node.labels],
            "profile": node.profile,
            "channel": "" if node.version else node.channel,
            "pinned": node.version,
            "macs": [*node.macs],
            "address": self.address,
            "current": self.is_current,
        }

    @cached_property
    def essence(self) -> tuple[object, ...]:
        """What has an event when it changes: not that the same evidence has become older."""
        state, health = self.view.state, self.view.health
        # The words of an unknown verdict tell its age.
        words = health.words if health and health.verdict is not Verdict.UNKNOWN else ""
        said = (health.verdict, words, health.readings) if health else None
        what = frozenset((each.source, each.what) for each in state.evidence)
        known = state.condition, state.release, state.next, said, what, self.view.warnings
        return self.node, known, self.address


@dataclass(frozen=True)
class WebSnapshot:
    """Everything that is shown; `probed` is when ssh servers were asked (None: never).

    `standings_known` says whether this user may look at the roots that boot tests were of,
    `faults` are files that cannot be read, `networks` those that nodes are served on.
    """

    number: int
    at: datetime
    probed: datetime | None
    nodes: Nodes
    rows: tuple[FleetRow, ...]
    releases: tuple[ListedRelease, ...]
    standings_known: bool
    details: Mapping[ReleaseName, ReleaseDetail]
    machines: tuple[Stranger, ...]
    rollouts: tuple[LiveRollout, ...]
    nightly: FoundRuns
    faults: tuple[Fault, ...]
    networks: tuple[Network, ...]

    @cached_property
    def by_name(self) -> Mapping[str, FleetRow]:
        return {row.name: row for row in self.rows}

    @cached_property
    def counts(self) -> Mapping[Condition, int]:
        return summarise([row.view.state for row in self.rows])

    def describe(self, listed: ListedRelease) -> dict[str, Json]:
        """A release for programs: a stable contract."""
        known: dict[str, Json] = listed.as_json()
        return known if self.standings_known else known | {"standing": None, "tested": None}

    @cached_property
    def groups(self) -> tuple[str, ...]:
        """The groups of nodes, in the order of nodes.yaml; "" for those without one."""
        return tuple(dict.fromkeys(row.node.group for row in self.rows))


class SnapshotMaker:
    """Takes snapshots of a tree, and keeps what did not change since the last one."""

    def __init__(
        self, tree: Tree, reports: Path, cards: Cards, reader: Reader | None = None
    ) -> None:
        self.tree, self.reports, self.cards = tree, reports, cards
        self.reader = reader or TreeReader(tree)
        self.answers: Mapping[str, Observation] = {}
        self.probed: datetime | None = None
        self._number = 0
        self._releases: tuple[object, ReleasesNow] = ((), ReleasesNow((), known=False))
        self._details: dict[tuple[Stamp, Stamp], ReleaseDetail] = {}
        self._machines: tuple[object, tuple[Stranger, ...]] | None = None

    def ask_nodes(self) -> None:
        """Ask the ssh servers of all nodes for their greeting, once; nobody logs in."""
        nodes, _ = self.reader.file.load()
        now = datetime.now(UTC)
        self.answers = probe_nodes(find_addresses(self.tree, nodes.nodes))
        self.probed = now

    def stamp(self) -> Stamp:
        """The state of everything that a snapshot is made of; it differs when that changed."""
        tree = self.tree
        logs = (tree.reports_log, tree.reports_mark)
        fixed = (tree.nodes_file, tree.path / "seen", tree.boots, *logs)
        rollouts = [*tree.path.glob("rollouts/*.json")]
        running = tuple((path.name, is_running(tree, path.stem), 0, 0) for path in rollouts)
        files = stamp_of((*fixed, *rollouts, self.reports / "nights"))
        return files + running + self.stamp_of_releases()

    def stamp_of_releases(self) -> Stamp:
        tree = self.tree
        patterns = ("http/releases/*", "channels/*", "reports/*/*", "kept/*")
        places = [path for pattern in patterns for path in matching(tree.path, pattern)]
        return stamp_of((tree.journal, tree.http / "releases", *sorted(places)))

    def take(self) -> WebSnapshot:
        nodes, faults = self.reader.file.load()
        rollouts, more = self.find_rollouts()
        releases, known = self.find_releases(nodes)
        self._number += 1
        return WebSnapshot(
            number=self._number,
            at=datetime.now(UTC),
            probed=self.probed,
            nodes=nodes,
            rows=self.find_rows(nodes.nodes),
            releases=releases,
            standings_known=known,
            details=self.find_details([each.release for each in releases]),
            machines=self.find_machines(nodes),
            rollouts=rollouts,
            nightly=read_runs(self.reports, find_ids(self.reports)[-RUNS_SHOWN:]),
            faults=(*faults, *more),
            networks=find_node_networks(self.tree),
        )

    def find_rows(self, nodes: Sequence[Node]) -> tuple[FleetRow, ...]:
        now = self.reader.fleet()
        seen = newest_of(self.tree, nodes, now.seen)
        places = addresses_of(nodes, seen)
        states = find_states(self.tree, nodes, seen, self.answers, self.probed)
        views = views_of(self.tree, nodes, states, seen, now.warnings)
        return tuple(
            FleetRow(node, view, places.get(node.name, ""))
            for node, view in zip(nodes, views, strict=True)
        )

    def find_releases(self, nodes: Nodes) -> tuple[tuple[ListedRelease, ...], bool]:
        """Every release and who runs it; manifests and reports are read again if they changed.

        The other value is whether boot tests were compared with roots.
        """
        state = (self.reader.state, self.stamp_of_releases())
        before, now = self._releases
        if state != before:
            self._releases = state, (now := self.reader.releases())
        usage = read_usage(self.tree, nodes)
        rows = tuple(replace(each, nodes=usage.users(each.release)) for each in now.releases)
        return rows, now.known

    def find_details(self, releases: Sequence[ReleaseName]) -> dict[ReleaseName, ReleaseDetail]:
        """What manifests say; each is read once, and never kept: it has thousands of packages."""
        found: dict[ReleaseName, ReleaseDetail] = {}
        known: dict[tuple[Stamp, Stamp], ReleaseDetail] = {}
        previous: ReleaseName | None = None
        for release in releases:
            before = previous if previous and previous.profile == release.profile else None
            key = (self.stamp_of_manifest(release), self.stamp_of_manifest(before))
            if key not in self._details:
                self._details[key] = read_detail(self.tree, release, before)
            found[release] = known[key] = self._details[key]
            previous = release
        self._details = known
        return found

    def stamp_of_manifest(self, release: ReleaseName | None) -> Stamp:
        return stamp_of([self.tree.release(release) / "manifest.json"]) if release else ()

    def find_machines(self, nodes: Nodes) -> tuple[Stranger, ...]:
        """The machines that asked and are nobody's."""
        stamp = stamp_of((self.tree.dhcp_clients, self.tree.strangers, self.tree.nodes_file))
        state = (stamp, self.stamp_of_releases())
        if self._machines is None or self._machines[0] != state:
            self._machines = state, tuple(discover(self.tree, nodes, self.cards))
        return self._machines[1]

    def find_rollouts(self) -> tuple[tuple[LiveRollout, ...], tuple[Fault, ...]]:
        try:
            return tuple(find_live_rollouts(self.tree)), ()
        except InputError as error:
            return (), error.faults
