# SPDX-License-Identifier: Apache-2.0
"""/metrics for Prometheus: what the newest snapshot says, as numbers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from datetime import datetime

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from imagebuilder import __version__
from imagebuilder.fleet.health import Verdict
from imagebuilder.fleet.rollout.types import RolloutStage
from imagebuilder.fleet.state import Condition
from imagebuilder.notify.send import Notifier
from imagebuilder.web.site import WebSite
from imagebuilder.web.snapshot import WebSnapshot


def gauge(name: str, words: str, *labels: str) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"imagebuilder_{name}", words, labels=labels)


class FleetCollector(Collector):
    def __init__(self, snapshot: WebSnapshot, streams: int, took: float) -> None:
        self.snapshot, self.streams, self.took = snapshot, streams, took

    def collect(self) -> Iterator[GaugeMetricFamily]:
        yield from self.collect_nodes()
        yield from self.collect_readings()
        yield from self.collect_counts()
        yield from self.collect_releases()
        yield from self.collect_rollouts()
        yield from self.collect_nightly()
        yield from self.collect_server()

    def collect_nodes(self) -> Iterator[GaugeMetricFamily]:
        labels = ("node", "group", "profile")
        condition = gauge(
            "node_condition", "1 for the condition a node is in", *labels, "condition"
        )
        health = gauge("node_health", "1 for the verdict on a node's health", *labels, "verdict")
        current = gauge("node_current", "Whether a node runs what it would boot now", *labels)
        evidence = gauge(
            "node_evidence_timestamp_seconds", "When a node was last seen", *labels, "source"
        )
        for row in self.snapshot.rows:
            place = (row.name, row.node.group, row.node.profile)
            for each in Condition:
                condition.add_metric([*place, each.value], float(row.condition is each))
            verdict = row.view.health.verdict if row.view.health else None
            for said in Verdict:
                health.add_metric([*place, said.value], float(verdict is said))
            current.add_metric(place, float(row.is_current))
            for one in row.view.state.evidence:
                evidence.add_metric([*place, one.source], one.at.timestamp())
        yield from (condition, health, current, evidence)

    def collect_readings(self) -> Iterator[GaugeMetricFamily]:
        labels = ("node", "group", "profile")
        celsius = gauge("node_temperature_celsius", "The hottest sensor", *labels, "part")
        used = gauge("node_memory_used_bytes", "Memory in use", *labels, "part")
        size = gauge("node_memory_size_bytes", "Memory there is", *labels, "part")
        speed = gauge("node_speed_ratio", "Its speed to what is usual in this boot", *labels)
        families = {
            "processor-celsius": (celsius, "processor"),
            "card-celsius": (celsius, "card"),
            "memory-used": (used, "host"),
            "memory-size": (size, "host"),
            "card-memory-used": (used, "card"),
            "card-memory-size": (size, "card"),
        }
        for row in self.snapshot.rows:
            place = (row.name, row.node.group, row.node.profile)
            for name, value in row.readings.items():
                if name == "speed":
                    speed.add_metric(place, value / 100)
                else:
                    family, part = families[name]
                    family.add_metric([*place, part], float(value))
        yield from (celsius, used, size, speed)

    def collect_counts(self) -> Iterator[GaugeMetricFamily]:
        nodes = gauge("nodes", "Nodes by group and condition", "group", "condition")
        counted = Counter((row.node.group, row.condition) for row in self.snapshot.rows)
        for group in self.snapshot.groups:
            for condition in Condition:
                nodes.add_metric([group, condition.value], counted[group, condition])
        yield nodes

    def collect_releases(self) -> Iterator[GaugeMetricFamily]:
        labels = ("profile", "version")
        size = gauge("release_root_bytes", "Size of a release's root", *labels)
        users = gauge("release_nodes", "Nodes that run a release", *labels)
        tested = gauge("release_tested", "Whether the boot tests of a release passed", *labels)
        channel = gauge("channel_info", "Where a channel points", *labels, "channel")
        for each in self.snapshot.releases:
            place = (each.release.profile, each.release.version)
            size.add_metric(place, each.size)
            users.add_metric(place, len(each.nodes))
            if self.snapshot.standings_known:
                tested.add_metric(place, float(bool(each.standing.tested)))
            for name in each.channels:
                channel.add_metric([*place, name], 1.0)
        yield from (size, users, tested, channel)

    def collect_rollouts(self) -> Iterator[GaugeMetricFamily]:
        nodes = gauge("rollout_nodes", "Nodes of a roll-out by stage", "profile", "stage")
        status = gauge("rollout_info", "The status of the last roll-out", "profile", "status")
        words = "Whether the process of a roll-out ended before its work did"
        interrupted = gauge("rollout_interrupted", words, "profile")
        for live in self.snapshot.rollouts:
            rollout = live.rollout
            interrupted.add_metric([rollout.profile], float(live.interrupted))
            counted = Counter(node.stage for node in rollout.nodes)
            for stage in RolloutStage:
                nodes.add_metric([rollout.profile, stage.value], counted[stage])
            status.add_metric([rollout.profile, rollout.status.value], 1.0)
        yield from (nodes, status, interrupted)

    def collect_nightly(self) -> Iterator[GaugeMetricFamily]:
        began = gauge("nightly_timestamp_seconds", "When the last nightly run began")
        failed = gauge("nightly_failed", "Whether the last finished nightly run failed")
        done = [run for run in self.snapshot.nightly.runs if run.finished]
        if done:
            began.add_metric([], datetime.fromisoformat(done[-1].started).timestamp())
            failed.add_metric([], float(done[-1].failed))
        yield from (began, failed)

    def collect_server(self) -> Iterator[GaugeMetricFamily]:
        info = gauge("info", "The version of imagebuilder", "version")
        info.add_metric([__version__], 1.0)
        yield info
        at = self.snapshot.at.timestamp()
        words = "When the shown state was derived"
        for name, value, said in (
            ("web_snapshot_timestamp_seconds", at, words),
            ("web_snapshot_seconds", self.took, "How long deriving it took"),
            ("web_streams", float(self.streams), "Open streams of events"),
            ("web_faults", float(len(self.snapshot.faults)), "Files that cannot be read"),
        ):
            made = gauge(name, said)
            made.add_metric([], value)
            yield made


class NotifyCollector(Collector):
    """What became of messages that this server sends; a receiver's label is its name alone."""

    def __init__(self, notifier: Notifier) -> None:
        self.notifier = notifier

    def collect(self) -> Iterator[Metric]:
        def count(name: str, words: str, *labels: str) -> CounterMetricFamily:
            family = f"imagebuilder_notification{name}"
            return CounterMetricFamily(family, words, labels=("receiver", *labels))

        total = count("s", "Notifications by what became of them", "result")
        failures = count("_failures", "Tries to send a notification that failed")
        suppressed = count("_suppressed_changes", "Changes of nodes beyond `per-hour`")
        waiting = gauge("notifications_waiting", "Not sent yet", "receiver")
        words = "When a notification was sent last"
        last = gauge("notification_last_success_timestamp_seconds", words, "receiver")
        for name, lane in self.notifier.lanes.items():
            total.add_metric([name, "sent"], lane.sent)
            total.add_metric([name, "dropped"], lane.dropped)
            failures.add_metric([name], lane.failed)
            suppressed.add_metric([name], lane.suppressed)
            waiting.add_metric([name], len(lane.messages))
            if lane.succeeded:
                last.add_metric([name], lane.succeeded.timestamp())
        yield from (total, failures, suppressed, waiting, last)


def make_metrics_route(site: WebSite) -> Route:
    def answer(_: Request) -> Response:
        snapshot, watcher = site.snapshot, site.watcher

        def render() -> bytes:
            registry = CollectorRegistry(auto_describe=False)
            streams = len(watcher.broker.readers)
            registry.register(FleetCollector(snapshot, streams, watcher.took))
            if watcher.reporter:
                registry.register(NotifyCollector(watcher.reporter.notifier))
            return generate_latest(registry)

        content = site.once("/metrics", snapshot, render)
        return Response(content, headers={"Content-Type": CONTENT_TYPE_LATEST})

    return Route("/metrics", answer, methods=["GET"])
