# SPDX-License-Identifier: Apache-2.0
"""What requests and answers of /api/v1 look like: what its OpenAPI document is made of."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, TypeAdapter

from imagebuilder.digest import Json
from imagebuilder.fleet.health import Verdict
from imagebuilder.fleet.rollout.types import RolloutStage, RolloutStatus
from imagebuilder.fleet.state import Condition
from imagebuilder.image.proof import Level, Result
from imagebuilder.report.standing import State
from imagebuilder.web.action_journal import ActionState
from imagebuilder.web.orders import ActOrder, ActVerb
from imagebuilder.web.roles import Role

REFERENCE = "#/components/schemas/{model}"  # in the OpenAPI document
PATH = "/api/v1/actions"


class ApiModel(BaseModel):
    """An object without other keys than these."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class ApiObservation(ApiModel):
    """One piece of evidence: where it is from, when it was made, what it says."""

    source: str
    at: datetime
    what: str


class ApiReadings(ApiModel):
    """What a node measured: degrees, bytes, and its speed in percent of what is usual in this boot.
    Null if it did not report a value."""

    processor_celsius: Annotated[int | None, Field(alias="processor-celsius")]
    card_celsius: Annotated[int | None, Field(alias="card-celsius")]
    memory_used: Annotated[int | None, Field(alias="memory-used")]
    memory_size: Annotated[int | None, Field(alias="memory-size")]
    card_memory_used: Annotated[int | None, Field(alias="card-memory-used")]
    card_memory_size: Annotated[int | None, Field(alias="card-memory-size")]
    speed: int | None


class ApiHealth(ApiModel):
    """What a node says of its own accelerators and services; `source` is how it was heard of."""

    verdict: Verdict
    source: Literal["ssh", "report"]
    words: str
    at: datetime | None
    release: str
    boot_id: Annotated[str, Field(alias="boot-id")]
    readings: ApiReadings


class ApiNode(ApiModel):
    """A node of nodes.yaml. `release` is what it booted last, `next` what it would boot now;
    `current` says that these are the same release. `health` is null if nothing is known.
    `warnings` are what a person should know beside the condition and the health."""

    node: str
    condition: Condition
    words: str
    release: str
    next: str
    evidence: list[ApiObservation]
    health: ApiHealth | None
    warnings: list[str]
    group: str
    labels: list[str]
    profile: str
    channel: str
    pinned: str
    macs: list[str]
    address: str
    current: bool


class ApiNodes(ApiModel):
    """The nodes. `at` is when this was derived, `looked` when the ssh servers were asked last."""

    at: datetime
    looked: datetime | None
    nodes: list[ApiNode]
    faults: list[str]


class ApiBootStep(ApiModel):
    stage: str
    at: datetime


class ApiBoot(ApiModel):
    """One boot of a node, as it reported it."""

    begun: datetime
    address: str
    release: str
    steps: list[ApiBootStep]


class ApiConsole(ApiModel):
    """The last lines that the kernel of a node said in a boot; `left-out` were before them."""

    boot: datetime
    lines: list[str]
    left_out: Annotated[int, Field(alias="left-out")]


class ApiHealthChange(ApiModel):
    """A verdict of a node on itself, which held until the next one."""

    at: datetime
    verdict: str
    words: str
    release: str
    boot_id: Annotated[str, Field(alias="boot-id")]


class ApiNodeDetail(ApiNode):
    """A node with the reason for its state: the stage its last boot did not get past, what
    happened, what to try, and the last lines of the boot server about it. `unread` are logs that
    the web server may not read; `boots` is null if it may not read them. `console` is what its
    kernel said last, `consoles` its last boots, newest first, null if the web server may not read
    them. `health-history` are changes of its health, newest first. `drift` is what
    `imagebuilder drift --json` prints of it, null if the web server may not look. `confirmed` are
    releases that it became ready with, newest first, `tries` counts its boots of others since, and
    `fell-back-from` is the release that it is not given any more. `root` is how it gets its root
    (empty: as the release says), `power` its power driver, `login` who logs in to it."""

    stage: str
    what: str
    try_: Annotated[str, Field(alias="try")]
    lines: list[str]
    unread: list[str]
    console: list[str]
    boots: list[ApiBoot] | None
    consoles: list[ApiConsole] | None
    health_history: Annotated[list[ApiHealthChange], Field(alias="health-history")]
    drift: dict[str, JsonValue] | None
    confirmed: list[str]
    tries: dict[str, int]
    fell_back_from: Annotated[str | None, Field(alias="fell-back-from")]
    root: str
    power: str
    login: str


class ApiRelease(ApiModel):
    """A release. Sizes are in bytes; `nodes` run it. `standing` is what its boot tests say of it,
    null if the web server may not look at its root."""

    profile: str
    version: str
    channels: list[str]
    published: datetime
    root_size: Annotated[int, Field(alias="root-size")]
    http_size: Annotated[int, Field(alias="http-size")]
    formats: list[str]
    kept: bool
    tested: bool | None
    standing: State | None
    report: str | None
    tested_on: Annotated[str | None, Field(alias="tested-on")]
    tested_at: Annotated[str | None, Field(alias="tested-at")]
    untested: str | None
    nodes: list[str]


class ApiReleases(ApiModel):
    at: datetime
    releases: list[ApiRelease]


class ApiFinding(ApiModel):
    """What the proof found. Of a question that has nothing but facts, the first one is here."""

    question: str
    level: Level
    what: str
    hint: str


class ApiBootTest(ApiModel):
    """A boot test of a release; `/releases/PROFILE/VERSION/reports/ID` is its page."""

    id: str
    started: datetime
    seconds: float
    passed: bool
    words: str
    trials: list[str]


class ApiReleaseDetail(ApiRelease):
    """A release with what its manifest says. `proof` is the result of each question, and `findings`
    say why; `reports` are its boot tests, newest first, `faults` those that cannot be read;
    `difference` is what `imagebuilder diff` prints of `previous` and this one, and `security` are
    those of its packages that come from a source of security updates."""

    description: str
    base: str
    kernel: str
    packages: int
    proof: dict[str, Result]
    findings: list[ApiFinding]
    reports: list[ApiBootTest]
    faults: list[str]
    previous: str | None
    security: list[str]
    difference: dict[str, JsonValue] | None


class ApiNightly(ApiModel):
    """Nightly runs, as nights/ID.json has them."""

    at: datetime
    nightly: list[dict[str, JsonValue]]
    faults: list[str]


class ApiMachine(ApiModel):
    """A machine that asked the boot server and is in no nodes.yaml, by what it says of itself.
    `pci` is null if its cards are not known."""

    mac: str
    firmware: str
    vendor: str
    address: str
    first: str
    last: str
    pci: list[str] | None
    cards: list[str]
    profiles: list[str]


class ApiMachines(ApiModel):
    at: datetime
    machines: list[ApiMachine]


class ApiRolloutNode(ApiModel):
    node: str
    phase: int
    stage: RolloutStage
    since: str
    why: str


class ApiRollout(ApiModel):
    """The last roll-out of a profile; `window` is the maintenance window that it keeps to."""

    profile: str
    from_: Annotated[str, Field(alias="from")]
    to: str
    status: RolloutStatus
    interrupted: bool
    why: str
    by: str
    started: str
    window: str
    nodes: list[ApiRolloutNode]


class ApiRollouts(ApiModel):
    at: datetime
    rollouts: list[ApiRollout]


class ApiError(ApiModel):
    """Why there is no answer."""

    error: str


class ApiAccepted(ApiModel):
    """The action has begun; `/actions/{id}` tells how it goes."""

    id: str


class ApiAction(ApiModel):
    """An action and how it ended: `status` is the command's, `words` is what it said last."""

    id: str
    verb: ActVerb
    command: str
    by: str
    role: Role
    from_: Annotated[str, Field(alias="from")]
    state: ActionState
    begun: str
    ended: str | None
    status: int | None
    words: str


class ApiActionDetail(ApiAction):
    """An action with the lines that its command said so far."""

    lines: list[str]


class ApiActions(ApiModel):
    """The last actions, the newest first."""

    actions: list[ApiAction]


ANSWERS = (ApiAccepted, ApiActions, ApiActionDetail)
ORDER = "ApiOrder"
REFUSALS = {
    "400": "the order is wrong",
    "401": "there is no such token",
    "403": "the token's role is for something else, or the request is of another origin",
    "404": "nobody has a token, so nobody may act",
    "409": "nodes of more than one group, and no `yes`",
    "415": "the body is not JSON",
    "429": "too many wrong tokens: wait",
    "503": "actions cannot be asked for",
    "507": "the action cannot be recorded, so it is not done",
}


def describe_order() -> dict[str, Json]:
    """The schema of an order, by what checks it; that of its verb is among those of ANSWERS."""
    schema = TypeAdapter(ActOrder).json_schema(ref_template=REFERENCE)
    return {**{key: schema[key] for key in schema if key != "$defs"}, "title": ORDER}


def content(name: str) -> dict[str, Json]:
    schema: Json = {"$ref": REFERENCE.format(model=name)}
    return {"application/json": {"schema": schema}}


def answer_of(model: type[BaseModel], words: str) -> dict[str, Json]:
    return {"description": words, "content": content(model.__name__)}


def describe_actions() -> dict[str, Json]:
    """The paths of actions in OpenAPI's words."""

    refused: dict[str, Json] = {k: answer_of(ApiError, words) for k, words in REFUSALS.items()}
    identity: Json = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        PATH: {
            "get": {
                "summary": "The last actions, and who did them",
                "operationId": "list-actions",
                "responses": {"200": answer_of(ApiActions, "the actions")},
            },
            "post": {
                "summary": "Act on nodes, releases or roll-outs",
                "operationId": "order-action",
                "security": [{"token": []}],
                "requestBody": {"required": True, "content": content(ORDER)},
                "responses": {"202": answer_of(ApiAccepted, "it has begun"), **refused},
            },
        },
        f"{PATH}/{{id}}": {
            "get": {
                "summary": "An action, and what its command said",
                "operationId": "show-action",
                "parameters": [identity],
                "responses": {
                    "200": answer_of(ApiActionDetail, "the action"),
                    "404": answer_of(ApiError, "it is not on record"),
                },
            }
        },
    }


SECURITY: dict[str, Json] = {"token": {"type": "http", "scheme": "bearer"}}
