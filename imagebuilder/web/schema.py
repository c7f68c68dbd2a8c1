# SPDX-License-Identifier: Apache-2.0
"""What the answers of /api/v1 look like: the models that its OpenAPI document is made of."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from imagebuilder.fleet.health import Verdict
from imagebuilder.fleet.rollout.types import RolloutStage, RolloutStatus
from imagebuilder.fleet.state import Condition
from imagebuilder.report.standing import State


class ApiModel(BaseModel):
    """An object without other keys than these."""

    model_config = ConfigDict(extra="forbid", populate_by_name=True)


class ApiObservation(ApiModel):
    """One piece of evidence: where it is from, when it was made, what it says."""

    source: str
    at: datetime
    what: str


class ApiHealth(ApiModel):
    """What a node says of its own accelerators and services; `source` is how it was heard of."""

    verdict: Verdict
    source: Literal["ssh", "report"]
    words: str
    at: datetime | None
    release: str
    boot_id: Annotated[str, Field(alias="boot-id")]


class ApiNode(ApiModel):
    """A node of nodes.yaml. `release` is what it booted last, `next` what it would boot now;
    `current` says that these are the same release. `health` is null if nothing is known."""

    node: str
    condition: Condition
    words: str
    release: str
    next: str
    evidence: list[ApiObservation]
    health: ApiHealth | None
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


class ApiNodeDetail(ApiNode):
    """A node with the reason for its state: the stage its last boot did not get past, what
    happened, what to try, and the last lines of the boot server about it. `unread` are logs that
    the web server may not read; `boots` is null if it may not read them."""

    stage: str
    what: str
    try_: Annotated[str, Field(alias="try")]
    lines: list[str]
    unread: list[str]
    boots: list[ApiBoot] | None


class ApiRelease(ApiModel):
    """A release. Sizes are in bytes; `nodes` run it."""

    profile: str
    version: str
    channels: list[str]
    published: datetime
    root_size: Annotated[int, Field(alias="root-size")]
    http_size: Annotated[int, Field(alias="http-size")]
    formats: list[str]
    kept: bool
    tested: bool | None
    standing: State
    report: str | None
    tested_on: Annotated[str | None, Field(alias="tested-on")]
    tested_at: Annotated[str | None, Field(alias="tested-at")]
    untested: str | None
    nodes: list[str]


class ApiReleases(ApiModel):
    at: datetime
    releases: list[ApiRelease]


class ApiRolloutNode(ApiModel):
    node: str
    phase: int
    stage: RolloutStage
    since: str
    why: str


class ApiRollout(ApiModel):
    """The last roll-out of a profile."""

    profile: str
    from_: Annotated[str, Field(alias="from")]
    to: str
    status: RolloutStatus
    why: str
    by: str
    started: str
    nodes: list[ApiRolloutNode]


class ApiRollouts(ApiModel):
    at: datetime
    rollouts: list[ApiRollout]


class ApiError(ApiModel):
    """Why there is no answer."""

    error: str
