# SPDX-License-Identifier: Apache-2.0
"""Acting by /api/v1/actions: JSON with a token as `Authorization: Bearer`; cookies do not count."""

from __future__ import annotations

import asyncio
from http import HTTPStatus
from pathlib import Path

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from imagebuilder.decode import parse_object
from imagebuilder.digest import Json
from imagebuilder.locks import is_locked
from imagebuilder.nodes.load import stamp_of
from imagebuilder.untrusted import clean_lines
from imagebuilder.web.act_client import order_words
from imagebuilder.web.act_pages import (
    act_client_of,
    address_of,
    find_action,
    question_of,
    read_body,
    refusing,
)
from imagebuilder.web.action_journal import read_actions, read_said
from imagebuilder.web.orders import parse_order
from imagebuilder.web.schema import PATH
from imagebuilder.web.site import WebSite

EVENT = "actions"
EVERY = 0.5  # seconds between two checks of the journal
LOOKED_AT = 8  # actions that may be running
BEARER = "bearer "


def act_api_routes(site: WebSite) -> list[Route]:
    async def post(request: Request) -> Response:
        return await order_action(site, request)

    async def show_all(_: Request) -> Response:
        found = await asyncio.to_thread(read_actions, site.tree)
        return JSONResponse({"actions": [each.as_json() for each in found]})

    async def show(request: Request) -> Response:
        found = await asyncio.to_thread(find_action, site, request.path_params["id"])
        said = await asyncio.to_thread(read_said, site.tree, found.begun.id)
        lines: list[Json] = [*clean_lines(said).splitlines()]
        return JSONResponse({**found.as_json(), "lines": lines})

    return [
        Route(PATH, post, methods=["POST"]),
        Route(PATH, show_all, methods=["GET"]),
        Route(f"{PATH}/{{id}}", show, methods=["GET"]),
    ]


async def order_action(site: WebSite, request: Request) -> Response:
    """Raises HTTPException."""
    act_client, headers = act_client_of(site), request.headers
    if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "send application/json")
    authorization = headers.get("authorization", "")
    if authorization[: len(BEARER)].lower() != BEARER:
        raise unauthorized("send a token: Authorization: Bearer TOKEN")
    body = await read_body(request)
    with refusing():
        order = parse_order(parse_object(body, "the request", hint=""))
    if not order.yes and (question := question_of(site.snapshot, order)):
        words = f"not confirmed: {question} `yes` confirms it"
        raise HTTPException(HTTPStatus.CONFLICT, words)
    token = authorization[len(BEARER) :].strip()
    answer = await act_client.ask_soon(token, address_of(request), order_words(order))
    if answer.status == HTTPStatus.UNAUTHORIZED:
        raise unauthorized(answer.error)
    if answer.status != HTTPStatus.ACCEPTED:
        raise HTTPException(answer.status, answer.error)
    place = {"Location": f"{PATH}/{answer.id}"}
    return JSONResponse({"id": answer.id}, HTTPStatus.ACCEPTED, place)


def unauthorized(words: str) -> HTTPException:
    return HTTPException(HTTPStatus.UNAUTHORIZED, words, {"WWW-Authenticate": "Bearer"})


async def tell_actions(site: WebSite) -> None:
    """Tell those who read events when an action begins, says something or ends; until cancelled."""
    before: object = None
    while True:
        now = await asyncio.to_thread(stamp_of_actions, site)
        if before not in (None, now):
            site.watcher.broker.publish(EVENT, {})
        before = now
        await asyncio.sleep(EVERY)


def stamp_of_actions(site: WebSite) -> object:
    """What differs when there is something new to tell."""
    folder: Path = site.tree.action_log("x").parent
    logs = sorted(folder.glob("*.log"))[-LOOKED_AT:]
    return stamp_of((site.tree.actions, *logs)), [is_locked(log) for log in logs]
