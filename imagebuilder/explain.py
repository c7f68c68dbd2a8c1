# SPDX-License-Identifier: Apache-2.0
"""Explain why a node is not up: how far its last boot got, the evidence, and what to try.

All of it follows from evidence: the logs of dnsmasq and nginx, the node's reports, whether it
answers, and the health that it reports.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from imagebuilder.boot.verdict import MEANINGS, find_sign
from imagebuilder.boot.watch import BEGUN, FAILED, Watch
from imagebuilder.digest import Json
from imagebuilder.errors import HostError, RootError
from imagebuilder.fleet.addresses import last_seen
from imagebuilder.fleet.health import Verdict
from imagebuilder.fleet.overview import NodeView, overview
from imagebuilder.fleet.state import LAST_STAGE
from imagebuilder.nodes.evidence.consoles import find_consoles
from imagebuilder.nodes.evidence.seen import Seen
from imagebuilder.nodes.types import Node
from imagebuilder.plain import read_end
from imagebuilder.process import run
from imagebuilder.report.types import Stage
from imagebuilder.serve.stages import DHCP_LINE, DHCP_REQUEST, REQUEST, Talk
from imagebuilder.tree import Tree
from imagebuilder.untrusted import clean, parse_request

MOST = 4 * 1024**2  # bytes of a log, from its end
LINES = 12
NGINX_TAG = "imagebuilder_http"
DAEMONS = ("dnsmasq", "nginx")
# The last lines of each; None if this user may not read them.
DaemonLines = Mapping[str, Sequence[str] | None]
# The message of journalctl(1) to users outside the groups that may read everything.
FOREIGN = "not seeing messages from other users"
TRY = {
    Verdict.DEGRADED: "imagebuilder run {node} -- cat /run/imagebuilder/health/verdict.json",
    Verdict.WRONG: "take the node out of service: its results cannot be trusted",
    Verdict.MISSING: "check the card's seat and power, and its driver: "
    "imagebuilder run {node} -- lspci -nnk",
    Verdict.UNKNOWN: "imagebuilder run {node} -- systemctl status imagebuilder-health.service",
}


@dataclass(frozen=True)
class Explanation:
    """The explanation of a node's state.

    `stage` is the one its last boot did not get past, "" for a node that is up.  `lines` are the
    last lines of dnsmasq and nginx about it; `unread` names the logs that this user may not read.
    `console` are the last messages of its kernel, in the boot `console_of`.
    """

    view: NodeView
    stage: str
    what: str
    hint: str
    lines: tuple[str, ...]
    unread: tuple[str, ...] = ()
    console: tuple[str, ...] = ()
    console_of: str = ""

    def as_json(self) -> dict[str, Json]:
        lines: list[Json] = [*self.lines]
        more: dict[str, Json] = {"stage": self.stage, "what": self.what, "try": self.hint}
        more |= {"lines": lines, "unread": [*self.unread], "console": [*self.console]}
        return {**self.view.as_json(), **more}

    def render(self) -> str:
        """For people."""
        state, health = self.view.state, self.view.health
        parts = [f"{state.node} is {state.condition}: {state.words}", f"  {self.what}"]
        # For a node that was never seen it would be a guess.
        parts += (
            [f"  stopped in stage {self.stage}"]
            if self.stage and (state.evidence or self.lines)
            else []
        )
        parts += [f"  health: {health.verdict}: {health.words}"] if health else []
        parts += [f"  warning: {warning}" for warning in self.view.warnings]
        parts += [f"  boots next: {state.next or 'nothing: its channel is empty'}"]
        parts += [f"  try: {self.hint}"] if self.hint else []
        evidence = [
            f"  {one.at:%Y-%m-%d %H:%M:%S %Z}  {one.source}: {one.what}" for one in state.evidence
        ]
        parts += ["", "evidence:", *evidence] if evidence else []
        lines = [f"  {line}" for line in self.lines]
        lines += [f"  only root can read the log of {each}" for each in self.unread]
        parts += ["", "what the boot server saw:", *(lines or ["  nothing"])]
        if self.console:
            title = f"last lines of its console, {self.console_of}:"
            parts += ["", title, *(f"  {line}" for line in self.console)]
        return "\n".join(parts)


def explain_node(tree: Tree, node: Node) -> Explanation:
    """Observe a node now and explain it."""
    (view,) = overview(tree, [node], ask=True)
    return explain(view, read_trace(tree, node, read_logs(tree)), node)


@dataclass(frozen=True)
class NodeTrace:
    """What the boot server's logs and the console say about a node's last boot.

    `stage` is the one it did not get past, `requested` whether its NIC requested an address; the
    others are as in Explanation.
    """

    stage: Stage
    requested: bool
    lines: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    console: tuple[str, ...] = ()
    console_of: str = ""


def read_trace(tree: Tree, node: Node, logs: DaemonLines) -> NodeTrace:
    """What `logs` and the console say about a node."""
    found = find_trace(last_seen(tree, node), logs["dnsmasq"] or (), logs["nginx"] or (), node)
    unread = tuple(daemon for daemon in DAEMONS if logs[daemon] is None)
    try:
        boots = find_consoles(tree, node.name)
        if boots:
            said = tuple(boots[-1].lines()[-LINES:])
            found = replace(found, console=said, console_of=boots[-1].title)
    except RootError:
        unread += ("its console",)
    return replace(found, unread=unread)


def find_trace(
    seen: Seen | None, dnsmasq: Sequence[str], nginx: Sequence[str], node: Node
) -> NodeTrace:
    """What follows from lines of dnsmasq and nginx, and from the node's report."""
    requests, watch = follow(node, dnsmasq, nginx)
    lines = tuple(clean(line) for line in about(node, watch, requests, nginx)[-LINES:])
    return NodeTrace(find_stage(watch, seen), bool(requests), lines)


def explain(view: NodeView, trace: NodeTrace, node: Node) -> Explanation:
    what, hint, stage = find_reason(view, trace, node)
    if "dnsmasq" in trace.unread and stage == Stage.FIRMWARE:
        stage, what = "", "the progress of its boot is unknown"
        hint = f"run sudo imagebuilder explain {node.name}, which may read the boot server's logs"
    return Explanation(
        view, stage, what, hint, trace.lines, trace.unread, trace.console, trace.console_of
    )


def find_reason(view: NodeView, trace: NodeTrace, node: Node) -> tuple[str, str, str]:
    """What happens on a node, what to try, and the stage it did not get past."""
    state, health = view.state, view.health
    if not state.next and not state.ready:
        what = f"nothing is published in {node.boots}, so it has nothing to boot"
        return what, f"run imagebuilder releases {node.profile}", Stage.RELEASE
    if state.ready:
        hint = TRY.get(health.verdict, "").format(node=node.name) if health else ""
        what = (
            f"runs {state.release}"
            if state.release
            else "runs a release that is unknown to this tree"
        )
        if state.release and state.next != state.release:
            what += f", and {state.next} from its next boot on"
        return what, hint, ""
    meaning = MEANINGS[trace.stage]
    what, hint = find_sign(trace.lines) or (meaning.what, meaning.hint)
    if trace.stage is Stage.FIRMWARE and not trace.requested:
        what = "its NIC never requested an address from this boot server"
        hint = f"its power, cable, VLAN and boot order; is {node.macs[0]} its MAC address?"
    return what, f"check {hint}", trace.stage


def find_stage(watch: Watch, seen: Seen | None) -> Stage:
    """The stage that the last boot did not get past, also by the node's report."""
    if watch.failure and watch.failure.stage:
        return watch.failure.stage
    if seen and watch.last in (None, Stage.RELEASE):
        if seen.stage == LAST_STAGE:
            return Stage.UNITS
        if seen.stage in FAILED:
            return FAILED[seen.stage]
        if seen.stage in BEGUN:
            watch.reach(BEGUN[seen.stage], 0.0)
    if watch.last is Stage.SWITCH_ROOT:
        return Stage.UNITS
    return watch.current


def follow(node: Node, dnsmasq: Sequence[str], nginx: Sequence[str]) -> tuple[list[str], Watch]:
    """The lines of dnsmasq about the last boot of a node, and its progress."""
    start = last_boot(node, dnsmasq)
    watch = Watch("", set())
    requests: list[str] = []
    for line in dnsmasq[start:]:
        for mac in node.macs:
            watch.mac = mac
            watch.hear_dnsmasq(line, 0.0)
        if any(mac in line for mac in node.macs) or watch.addresses & {*line.split()}:
            requests.append(line)
    for line in since_entry(nginx, watch.addresses):
        watch.hear_nginx(line, 0.0)
        request = REQUEST.match(line)
        told = parse_request(request[3]).words if request else {}
        if told.get("stage") == "failed":
            watch.fail(line, FAILED.get(told.get("at", "")))
    return requests, watch


def last_boot(node: Node, lines: Sequence[str]) -> int:
    """Where the last boot begins: at the first request of a firmware, not of iPXE."""
    talks: dict[str, Talk] = {}
    found = 0
    for index, line in enumerate(lines):
        talk = DHCP_LINE.match(line)
        if talk is None:
            continue
        client = talks.setdefault(talk[1], Talk())
        if (
            not client.hear(talk[2])
            and (request := DHCP_REQUEST.match(talk[2]))
            and request[2] in node.macs
            and client.architecture is not None
            and not client.is_ipxe
        ):
            found = index
    return found


def since_entry(lines: Sequence[str], addresses: Iterable[str]) -> Sequence[str]:
    """Lines of nginx since one of `addresses` last requested the entry script."""
    mine = [line for line in lines if line.split(" ", 1)[0] in addresses]
    starts = [index for index, line in enumerate(mine) if path_of(line) == "/boot.ipxe"]
    return mine[starts[-1] :] if starts else []


def path_of(line: str) -> str:
    request = REQUEST.match(line)
    return parse_request(request[3]).path if request else ""


def about(node: Node, watch: Watch, requests: Sequence[str], nginx: Sequence[str]) -> list[str]:
    """All lines about a node, dnsmasq's first."""
    addresses = watch.addresses | {node.address}
    return [*requests[-LINES // 2 :], *since_entry(nginx, addresses)[-LINES // 2 :]]


def read_logs(tree: Tree) -> DaemonLines:
    return {daemon: read_log(tree, daemon) for daemon in DAEMONS}


def read_log(tree: Tree, daemon: str) -> list[str] | None:
    """The last lines of a daemon, from its log in the foreground or from its unit's journal.

    None if this user may not read them.
    """
    path: Path = tree.serve / "logs" / f"{daemon}.log"
    try:
        return read_end(path, MOST).decode(errors="replace").splitlines()
    except PermissionError:
        return None
    except OSError:
        pass
    whose = (
        f"--identifier={NGINX_TAG}"
        if daemon == "nginx"
        else f"--unit=imagebuilder-{daemon}.service"
    )
    try:
        said = run(
            ["journalctl", "--output=cat", "--lines=20000", "--no-pager", whose], check=False
        )
    except HostError:
        return []
    if FOREIGN in said.stderr:
        return None
    return said.stdout.splitlines() if said.status == 0 else []
