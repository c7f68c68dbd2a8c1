# SPDX-License-Identifier: Apache-2.0
"""The pages for people, and first of them those of the fleet and of a node.

Each works without JavaScript; live.js only keeps an open page fresh.  What they show was said by
machines and programs, so nothing of it is trusted: templates escape every value, and the policy in
guard.py forbids scripts other than live.js.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from urllib.parse import quote, urlencode

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from imagebuilder.boot.watch import BEGUN
from imagebuilder.errors import InputError
from imagebuilder.explain import explain
from imagebuilder.fleet.overview import ILL
from imagebuilder.fleet.state import Condition
from imagebuilder.nodes.evidence.boots import find_fallbacks, read_boots
from imagebuilder.nodes.evidence.report_log import ReportedBoot
from imagebuilder.nodes.types import Node
from imagebuilder.web.api import AbsentError, choose_rows, find_row
from imagebuilder.web.site import WebSite
from imagebuilder.web.snapshot import FleetRow, WebSnapshot

MOST_ONLY = 100  # rows that live.js asks for by name
FILTER = ("group", "state", "health", "q")
MakePage = Callable[[WebSite, Request], bytes]


@dataclass(frozen=True)
class FilterChip:
    """How many nodes have a condition or verdict (`word`), and the way to see them alone."""

    word: str
    count: int
    place: str


@dataclass(frozen=True)
class ShownStep:
    """A stage of a boot: `left` and `width` of its bar are in percent."""

    title: str
    seconds: float
    left: float
    width: float
    failed: bool


@dataclass(frozen=True)
class ShownBoot:
    boot: ReportedBoot
    begun: datetime
    steps: tuple[ShownStep, ...]
    seconds: float


def fleet_page(site: WebSite, request: Request) -> bytes:
    """Every node: a tile and a row.  `only` limits the rows, for live.js.  Raises InputError."""
    snapshot, query = site.snapshot, request.query_params
    rows = filter_rows(snapshot, query)
    rows.sort(key=lambda row: row.view.urgency)  # others stay in the order of nodes.yaml
    shown = rows
    if only := query.getlist("only")[:MOST_ONLY]:
        shown = [row for row in rows if row.name in only]
    chosen = {key: query.get(key, "") for key in FILTER}
    return show_page(
        site,
        snapshot,
        "fleet.html.j2",
        here="/",
        rows=shown,
        tiles=tile_groups(snapshot, shown),
        total=len(rows),
        chips=find_chips(snapshot),
        chosen=chosen,
        filtered=any(chosen.values()) or "nodes" in query,
        query=urlencode([(k, v) for k, v in query.items() if v and k in (*FILTER, "nodes")]),
        behind=sum(1 for row in snapshot.rows if row.view.state.release and not row.is_current),
    )


def filter_rows(snapshot: WebSnapshot, query: Mapping[str, str]) -> list[FleetRow]:
    """The nodes that the page of the fleet shows.  Raises InputError."""
    rows = choose_rows(snapshot, query)
    words = query.get("q", "").strip().lower()
    return [row for row in rows if words in haystack(row)]


def haystack(row: FleetRow) -> str:
    """The words in which the filter of the fleet looks."""
    state, node = row.view.state, row.node
    words = (node.name, node.group, *node.labels, *node.macs, row.address, row.view.words)
    return " ".join((*words, state.release, state.next)).lower()


def find_chips(snapshot: WebSnapshot) -> list[FilterChip]:
    counts = snapshot.counts
    chips = [FilterChip(c, counts.get(c, 0), f"/?state={c.value}") for c in Condition]
    ill = Counter(row.illness for row in snapshot.rows)
    return [*chips, *(FilterChip(v, ill[v], f"/?health={quote(v)}") for v in ILL if ill[v])]


def tile_groups(snapshot: WebSnapshot, rows: Sequence[FleetRow]) -> dict[str, list[FleetRow]]:
    found: dict[str, list[FleetRow]] = {group: [] for group in snapshot.groups}
    names = {row.name for row in rows}
    for row in snapshot.rows:  # in the order of nodes.yaml: a tile has its place
        if row.name in names:
            found[row.node.group].append(row)
    return {name: rows for name, rows in found.items() if rows}


def node_page(site: WebSite, request: Request) -> bytes:
    """A node.  Raises AbsentError."""
    snapshot, row = site.snapshot, find_row(site, request)
    story = site.reader.story(row.name)
    boots = story.boots
    return show_page(
        site,
        snapshot,
        "node.html.j2",
        here="",
        row=row,
        found=explain(row.view, story.trace, row.node),
        boots=None if boots is None else [show_boot(boot) for boot in boots],
        facts=facts_of(row.node, row),
        more=story,
        record=read_boots(site.tree).get(row.name),
        fallback=find_fallbacks(site.tree, [row.node]).get(row.name),
    )


def facts_of(node: Node, row: FleetRow) -> Mapping[str, str]:
    """What nodes.yaml says of a node, in words."""
    found = {
        "Boots": node.boots,
        "Group": node.group,
        "Labels": ", ".join(node.labels),
        "MAC": ", ".join(node.macs),
        "Address": row.address,
        "Root": node.root or "as the release says",
        "Power": node.power.driver,
        "Login": node.login,
    }
    return {name: value for name, value in found.items() if value}


def show_boot(boot: ReportedBoot) -> ShownBoot:
    """A boot with a bar for each stage, from its begin to that of the next."""
    begun = datetime.fromisoformat(boot.begun)
    times = [begun, *(datetime.fromisoformat(step.at) for step in boot.steps)]
    whole = max((times[-1] - begun).total_seconds(), 1.0)
    titles = ["firmware and kernel", *(title_of(step.stage) for step in boot.steps)]
    steps = []
    for index, (title, start) in enumerate(zip(titles, times, strict=True)):
        end = times[index + 1] if index + 1 < len(times) else start
        seconds = max(0.0, (end - start).total_seconds())
        left = min(100.0, max(0.0, (start - begun).total_seconds() * 100 / whole))
        width = min(100.0 - left, seconds * 100 / whole)
        steps.append(ShownStep(title, seconds, left, width, title.startswith("failed")))
    return ShownBoot(boot, begun, tuple(steps), (times[-1] - begun).total_seconds())


def title_of(stage: str) -> str:
    """What the initrd begins when it reports a stage."""
    if stage in BEGUN:
        return "left the initrd" if stage == "switch-root" else stage
    return stage


NAVIGATION = {
    "/": "Fleet",
    "/releases": "Releases",
    "/rollouts": "Roll-outs",
    "/nightly": "Nightly runs",
    "/machines": "Machines",
}
ACTIONS = {"/actions": "Actions"}


def show_page(site: WebSite, snapshot: WebSnapshot, template: str, **values: object) -> bytes:
    page = site.environment.get_template(template)
    navigation = NAVIGATION | (ACTIONS if site.acts else {})
    text = page.render(snapshot=snapshot, navigation=navigation, acts=site.acts, **values)
    return text.encode(errors="replace")


def page_route(site: WebSite, path: str, make: MakePage, policy: str = "") -> Route:
    """A route to what `make` gives; `policy` replaces the Content-Security-Policy of others."""
    headers = {"Content-Security-Policy": policy} if policy else {}

    def answer(request: Request) -> Response:
        key = f"{request.url.path}?{request.url.query}"
        try:
            content = site.once(key, site.snapshot, lambda: make(site, request))
        except AbsentError as error:
            return show_error(site, 404, str(error))
        except InputError as error:
            return show_error(site, 400, str(error))
        return HTMLResponse(content, headers=headers)

    return Route(path, answer, methods=["GET"])


def show_error(site: WebSite, status: int, words: str) -> Response:
    """A page that says what is wrong."""
    content = show_page(site, site.snapshot, "error.html.j2", here="", status=status, words=words)
    return HTMLResponse(content, status)
