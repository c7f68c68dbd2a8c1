# SPDX-License-Identifier: Apache-2.0
"""/api/v1: what the pages show, as JSON.  Routes and the OpenAPI document follow from one table."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache

from pydantic import BaseModel
from pydantic.json_schema import JsonSchemaMode, models_json_schema
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from imagebuilder import __version__
from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.explain import explain
from imagebuilder.fleet.health import Verdict
from imagebuilder.fleet.select import select_nodes
from imagebuilder.fleet.state import Condition
from imagebuilder.nightly.types import NIGHTLY_RUN
from imagebuilder.nodes.evidence.boots import find_fallbacks, read_boots
from imagebuilder.publish.listing import ListedRelease
from imagebuilder.report.save import read_reports
from imagebuilder.report.types import Report
from imagebuilder.report.words import headline
from imagebuilder.web import schema
from imagebuilder.web.connection import networks_of
from imagebuilder.web.site import WebSite
from imagebuilder.web.snapshot import FleetRow, WebSnapshot
from imagebuilder.web.stream import EventStream

PREFIX = "/api/v1"
VERDICTS = ", ".join(Verdict)
STREAM = f"{PREFIX}/events"
EVENTS = (
    "A stream of server-sent events. `node`: a node as in /nodes changed or is new; "
    "`node-removed`: it is no longer in nodes.yaml; `rollout`: a roll-out as in /rollouts; "
    "`releases`, `nightly`, `machines`, `actions`: read them again; `faults`: files that cannot be "
    "read; `resync`: events were lost, read everything again. Send Last-Event-ID to get the events "
    "you missed."
)


class AbsentError(Exception):
    """What was asked for does not exist; the message says what."""


@dataclass(frozen=True)
class Query:
    name: str
    words: str


@dataclass(frozen=True)
class Endpoint:
    """A path below PREFIX and who answers it."""

    path: str
    summary: str
    model: type[BaseModel]
    answer: Callable[[WebSite, Request], Json]
    queries: tuple[Query, ...] = ()

    @property
    def parameters(self) -> Iterable[str]:
        return (part[1:-1] for part in self.path.split("/") if part.startswith("{"))


def choose_rows(snapshot: WebSnapshot, query: Mapping[str, str]) -> list[FleetRow]:
    """The nodes that a query wants.  Raises InputError."""
    rows: Iterable[FleetRow] = snapshot.rows
    if words := query.get("nodes", "").split():
        names = {node.name for node in select_nodes(words, snapshot.nodes)}
        rows = [row for row in rows if row.name in names]
    if group := query.get("group"):
        rows = [row for row in rows if group in (row.node.group, *row.node.labels)]
    if state := query.get("state"):
        if state not in [*Condition]:
            hint = f"there are {', '.join(Condition)}"
            raise InputError(f"there is no state {state!r}", hint=hint)
        rows = [row for row in rows if row.condition == state]
    if health := query.get("health"):
        if health not in [*Verdict]:
            raise InputError(f"there is no verdict {health!r}", hint=f"there are {VERDICTS}")
        rows = [row for row in rows if row.view.health and row.view.health.verdict == health]
    return [*rows]


def at(site: WebSite) -> dict[str, Json]:
    """When the answer was derived."""
    return {"at": site.snapshot.at.isoformat()}


def list_nodes(site: WebSite, request: Request) -> Json:
    snapshot = site.snapshot
    return {
        **at(site),
        "looked": snapshot.probed.isoformat() if snapshot.probed else None,
        "nodes": [row.as_json() for row in choose_rows(snapshot, request.query_params)],
        "faults": [*map(str, snapshot.faults)],
    }


def find_row(site: WebSite, request: Request) -> FleetRow:
    """The node in the path.  Raises AbsentError."""
    name = request.path_params["name"]
    row = site.snapshot.by_name.get(name)
    if row is None:
        raise AbsentError(f"no node named {name!r} in nodes.yaml")
    return row


def show_node(site: WebSite, request: Request) -> Json:
    row = find_row(site, request)
    story = site.reader.story(row.name)
    found = explain(row.view, story.trace, row.node)
    record = read_boots(site.tree).get(row.name)
    fallback = find_fallbacks(site.tree, [row.node]).get(row.name)
    more: dict[str, Json] = {
        "confirmed": [*record.confirmed] if record else [],
        "tries": {**record.tries} if record else {},
        "fell-back-from": str(fallback.wanted) if fallback else None,
        "root": row.node.root,
        "power": row.node.power.driver,
        "login": row.node.login,
    }
    return {**row.as_json(), **found.as_json(), **story.as_json(), **more}


def list_releases(site: WebSite, _: Request) -> Json:
    snapshot = site.snapshot
    return {**at(site), "releases": [snapshot.describe(each) for each in snapshot.releases]}


def find_listed(site: WebSite, request: Request) -> ListedRelease:
    """The release in the path.  Raises AbsentError."""
    wanted = (request.path_params["profile"], request.path_params["version"])
    for listed in site.snapshot.releases:
        if (listed.release.profile, listed.release.version) == wanted:
            return listed
    raise AbsentError(f"no release {'@'.join(wanted)!r} in the tree")


def show_release(site: WebSite, request: Request) -> Json:
    snapshot, listed = site.snapshot, find_listed(site, request)
    found = read_reports(site.tree.reports(listed.release))
    more: dict[str, Json] = {
        "reports": [describe_report(report) for report in reversed(found.reports)],
        "faults": [str(fault) for fault in found.faults],
    }
    return {**snapshot.describe(listed), **snapshot.details[listed.release].as_json(), **more}


def describe_report(report: Report) -> dict[str, Json]:
    return {
        "id": report.id,
        "started": report.started,
        "seconds": report.seconds,
        "passed": report.passed,
        "words": headline(report),
        "trials": [trial.name for trial in report.trials],
    }


def list_nightly(site: WebSite, _: Request) -> Json:
    found = site.snapshot.nightly
    shown = [NIGHTLY_RUN.encode(run) for run in reversed(found.runs)]
    return {**at(site), "nightly": shown, "faults": [*map(str, found.faults)]}


def list_machines(site: WebSite, _: Request) -> Json:
    return {**at(site), "machines": [each.as_json() for each in site.snapshot.machines]}


def list_rollouts(site: WebSite, _: Request) -> Json:
    return {**at(site), "rollouts": [live.as_json() for live in site.snapshot.rollouts]}


def show_rollout(site: WebSite, request: Request) -> Json:
    profile = request.path_params["profile"]
    for live in site.snapshot.rollouts:
        if live.rollout.profile == profile:
            return live.as_json()
    raise AbsentError(f"no roll-out of {profile!r}")


NODE_QUERIES = (
    Query("nodes", "A set of nodes, such as `node[0-3]` or `@gpu!node7`."),
    Query("group", "Nodes of this group, or with this label."),
    Query("state", f"Nodes in this state: {', '.join(Condition)}."),
    Query("health", f"Nodes whose health has this verdict: {VERDICTS}."),
)
ENDPOINTS = (
    Endpoint("/nodes", "Every node and how it is", schema.ApiNodes, list_nodes, NODE_QUERIES),
    Endpoint("/nodes/{name}", "A node, and why it is as it is", schema.ApiNodeDetail, show_node),
    Endpoint("/releases", "Every release and who runs it", schema.ApiReleases, list_releases),
    Endpoint(
        "/releases/{profile}/{version}",
        "A release, its proof, and what changed since the one before",
        schema.ApiReleaseDetail,
        show_release,
    ),
    Endpoint("/rollouts", "The last roll-out of each profile", schema.ApiRollouts, list_rollouts),
    Endpoint(
        "/rollouts/{profile}", "The last roll-out of a profile", schema.ApiRollout, show_rollout
    ),
    Endpoint("/nightly", "The last nightly runs, newest first", schema.ApiNightly, list_nightly),
    Endpoint(
        "/machines", "Machines that asked and are no nodes", schema.ApiMachines, list_machines
    ),
)


def make_routes(site: WebSite) -> list[Route]:
    def route(endpoint: Endpoint) -> Route:
        def answer(request: Request) -> Response:
            snapshot = site.snapshot
            key = f"{request.url.path}?{request.url.query}"
            try:
                made = site.once(key, snapshot, lambda: encode(endpoint.answer(site, request)))
            except AbsentError as error:
                return JSONResponse({"error": str(error)}, 404)
            except InputError as error:
                return JSONResponse({"error": str(error)}, 400)
            return Response(made, media_type="application/json")

        return Route(PREFIX + endpoint.path, answer, methods=["GET"])

    async def events(request: Request) -> Response:
        broker = site.watcher.broker
        if broker.closed:
            return JSONResponse({"error": "the server ends"}, 503, {"Retry-After": "10"})
        networks = networks_of(request.client.host if request.client else "")
        return EventStream(broker, request.headers.get("last-event-id", "")[:80], networks)

    def openapi(_: Request) -> Response:
        return Response(render_document(), media_type="application/json")

    return [
        *map(route, ENDPOINTS),
        Route(STREAM, events, methods=["GET"]),
        Route(f"{PREFIX}/openapi.json", openapi, methods=["GET"]),
    ]


def encode(value: Json) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode() + b"\n"


@cache  # it takes a tenth of a second, and few clients ask for it
def render_document() -> bytes:
    """The OpenAPI document, which is the same for every site."""
    models: list[type[BaseModel]] = [
        *(each.model for each in ENDPOINTS),
        schema.ApiError,
        *schema.ANSWERS,
    ]
    inputs: list[tuple[type[BaseModel], JsonSchemaMode]] = [(m, "serialization") for m in models]
    _, schemas = models_json_schema(inputs, ref_template=schema.REFERENCE)
    paths: dict[str, Json] = {
        PREFIX + endpoint.path: {"get": describe(endpoint)} for endpoint in ENDPOINTS
    }
    stream: dict[str, Json] = {"text/event-stream": {"schema": {"type": "string"}}}
    paths[STREAM] = {
        "get": {
            "summary": "What changes, as it happens",
            "description": EVENTS,
            "operationId": "events",
            "responses": {"200": {"description": "events", "content": stream}},
        }
    }
    document: dict[str, Json] = {
        "openapi": "3.1.0",
        "info": {"title": "imagebuilder", "version": __version__},
        "paths": paths | schema.describe_actions(),
        "components": {
            "schemas": {**schemas["$defs"], schema.ORDER: schema.describe_order()},
            "securitySchemes": schema.SECURITY,
        },
    }
    return encode(document)


def describe(endpoint: Endpoint) -> dict[str, Json]:
    text: Json = {"type": "string"}
    within: list[Json] = [
        {"name": name, "in": "path", "required": True, "schema": text}
        for name in endpoint.parameters
    ]
    queries: list[Json] = [
        {"name": q.name, "in": "query", "description": q.words, "schema": text}
        for q in endpoint.queries
    ]
    answers: dict[str, Json] = {"200": schema.answer_of(endpoint.model, endpoint.summary)}
    if within:
        answers["404"] = schema.answer_of(schema.ApiError, "it does not exist")
    if queries:
        answers["400"] = schema.answer_of(schema.ApiError, "the query is wrong")
    return {
        "summary": endpoint.summary,
        "operationId": endpoint.answer.__name__.replace("_", "-"),
        "parameters": [*within, *queries],
        "responses": answers,
    }
