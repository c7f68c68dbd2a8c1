# SPDX-License-Identifier: Apache-2.0
"""What the requests and answers about actions look like, for the OpenAPI document."""

from __future__ import annotations

from typing import Annotated

from pydantic import BaseModel, Field, TypeAdapter

from imagebuilder.digest import Json
from imagebuilder.web.action_journal import ActionState
from imagebuilder.web.orders import ActOrder, ActVerb
from imagebuilder.web.roles import Role
from imagebuilder.web.schema import REFERENCE, ApiError, ApiModel

PATH = "/api/v1/actions"


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


def describe_actions() -> dict[str, Json]:
    """The paths of actions in OpenAPI's words."""

    def content(name: str) -> dict[str, Json]:
        schema: Json = {"$ref": REFERENCE.format(model=name)}
        return {"application/json": {"schema": schema}}

    def answer(model: type[BaseModel], words: str) -> dict[str, Json]:
        return {"description": words, "content": content(model.__name__)}

    refused: dict[str, Json] = {k: answer(ApiError, words) for k, words in REFUSALS.items()}
    identity: Json = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
    return {
        PATH: {
            "get": {
                "summary": "The last actions, and who did them",
                "operationId": "list-actions",
                "responses": {"200": answer(ApiActions, "the actions")},
            },
            "post": {
                "summary": "Act on nodes, releases or roll-outs",
                "operationId": "order-action",
                "security": [{"token": []}],
                "requestBody": {"required": True, "content": content(ORDER)},
                "responses": {"202": answer(ApiAccepted, "it has begun"), **refused},
            },
        },
        f"{PATH}/{{id}}": {
            "get": {
                "summary": "An action, and what its command said",
                "operationId": "show-action",
                "parameters": [identity],
                "responses": {
                    "200": answer(ApiActionDetail, "the action"),
                    "404": answer(ApiError, "it is not on record"),
                },
            }
        },
    }


SECURITY: dict[str, Json] = {"token": {"type": "http", "scheme": "bearer"}}
