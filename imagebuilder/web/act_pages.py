# SPDX-License-Identifier: Apache-2.0
"""The pages on which people act: log in, confirm, see what came of it.

They are made anew for each request, unlike those that only show: what they say depends on who asks.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from http import HTTPStatus
from urllib.parse import parse_qsl, quote, urlencode

from starlette.datastructures import QueryParams
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import HTMLResponse, RedirectResponse, Response
from starlette.routing import Route

from imagebuilder.errors import InputError
from imagebuilder.fleet.select import ask_about, select_nodes
from imagebuilder.tree import CANDIDATE
from imagebuilder.web.act_client import ActClient, order_words
from imagebuilder.web.action_journal import ActionRecord, ActionState, read_actions, read_said
from imagebuilder.web.guard import is_private
from imagebuilder.web.orders import MOST_NODES, ActOrder, parse_form
from imagebuilder.web.pages import FILTER, filter_rows, show_page
from imagebuilder.web.roles import Role
from imagebuilder.web.session import COOKIE, LONGEST, WebSession
from imagebuilder.web.site import WebSite
from imagebuilder.web.snapshot import WebSnapshot

FORM = "application/x-www-form-urlencoded"
MOST_BODY = 128 * 1024
BODY_SECONDS = 15.0
MOST_FIELDS = 64
# Where a log-in may lead: nothing but our own pages on which one acts.
NEXT = re.compile(r"/(act\?[A-Za-z0-9%&=_.+-]{1,4000}|actions)", re.ASCII)
PRIVATE = {"Cache-Control": "no-store"}
Answer = Callable[[WebSite, Request], Awaitable[Response]]


# Something to know before one confirms: its title, a condition or the like, and words about it.
OrderFact = tuple[str, str, str]


def act_routes(site: WebSite) -> list[Route]:
    table: tuple[tuple[str, str, Answer], ...] = (
        ("/login", "GET", login_page),
        ("/login", "POST", log_in),
        ("/logout", "POST", log_out),
        ("/act", "GET", confirm_page),
        ("/act", "POST", confirm),
        ("/actions", "GET", actions_page),
        ("/actions/{id}", "GET", action_page),
    )

    def route(path: str, method: str, make: Answer) -> Route:
        async def answer(request: Request) -> Response:
            return await make(site, request)

        return Route(path, answer, methods=[method])

    return [route(*line) for line in table]


def act_client_of(site: WebSite) -> ActClient:
    """Raises HTTPException where nobody has a token: there are no such pages then."""
    if site.act_client is None or not site.act_client.is_open:
        raise HTTPException(HTTPStatus.NOT_FOUND, "no such page")
    return site.act_client


def session_of(site: WebSite, request: Request) -> WebSession | None:
    return site.sessions.find(request.cookies.get(COOKIE, ""), address_of(request))


def address_of(request: Request) -> str:
    return request.client.host if request.client else "?"


def page(site: WebSite, template: str, status: int = 200, **values: object) -> Response:
    content = show_page(site, site.snapshot, template, here="/actions", **values)
    return HTMLResponse(content, status, PRIVATE)


async def read_body(request: Request) -> bytes:
    """The body, of bounded size and in a bounded time.  Raises HTTPException."""
    found = b""
    try:
        async with asyncio.timeout(BODY_SECONDS):
            async for piece in request.stream():
                found += piece
                if len(found) > MOST_BODY:
                    raise HTTPException(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "it is too long")
    except TimeoutError as error:
        raise HTTPException(HTTPStatus.REQUEST_TIMEOUT, "it did not come in time") from error
    except ClientDisconnect as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "it ended early") from error
    return found


async def read_form(request: Request) -> list[tuple[str, str]]:
    """The fields of a form that a page of ours was sent with.  Raises HTTPException.

    The guard has refused other origins already; a browser says at least once where a form is from.
    """
    headers = request.headers
    if headers.get("content-type", "").partition(";")[0].strip().lower() != FORM:
        raise HTTPException(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, "this takes forms of its own pages")
    if "origin" not in headers and "sec-fetch-site" not in headers:
        words = "the browser does not say from which page this is; programs use /api/v1/actions"
        raise HTTPException(HTTPStatus.FORBIDDEN, words)
    body = await read_body(request)
    try:
        text = body.decode("ascii")
        return parse_qsl(
            text, keep_blank_values=True, strict_parsing=bool(text), errors="strict",
            max_num_fields=MOST_FIELDS,
        )  # fmt: skip
    except ValueError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "this is no form") from error


async def login_page(site: WebSite, request: Request) -> Response:
    act_client_of(site)
    return show_login(site, request.query_params.get("next", ""))


def show_login(site: WebSite, wanted: str, words: str = "", status: int = 200) -> Response:
    following = wanted if NEXT.fullmatch(wanted) else "/actions"
    return page(site, "login.html.j2", status, following=following, words=words)


async def log_in(site: WebSite, request: Request) -> Response:
    """A new session, for the browser of who has a token."""
    act_client, fields = act_client_of(site), dict(await read_form(request))
    token, following = fields.get("token", "").strip(), fields.get("next", "")
    answer = await act_client.ask_soon(token, address_of(request), None)
    if answer.status != HTTPStatus.OK:
        return show_login(site, following, answer.error, answer.status)
    site.sessions.end(request.cookies.get(COOKIE, ""))
    key = site.sessions.begin(token, answer.name, answer.role, address_of(request))
    place = following if NEXT.fullmatch(following) else "/actions"
    response = RedirectResponse(place, HTTPStatus.SEE_OTHER, PRIVATE)
    secure = is_private(request.headers)
    response.set_cookie(
        COOKIE, key, max_age=int(LONGEST), httponly=True, samesite="strict", secure=secure
    )
    return response


async def log_out(site: WebSite, request: Request) -> Response:
    session = session_of_form(site, request, dict(await read_form(request)))
    if session:
        site.sessions.end(request.cookies.get(COOKIE, ""))
    response = RedirectResponse("/actions", HTTPStatus.SEE_OTHER, PRIVATE)
    response.delete_cookie(COOKIE, httponly=True, samesite="strict")
    return response


def session_of_form(site: WebSite, request: Request, fields: dict[str, str]) -> WebSession | None:
    """The session of a form; None if it is over.  Raises HTTPException for another's form."""
    session = session_of(site, request)
    if session and not session.has_form(fields.get("csrf", "")):
        words = "this form is not of your session: go back, load its page again, and repeat it"
        raise HTTPException(HTTPStatus.FORBIDDEN, words)
    return session


async def confirm_page(site: WebSite, request: Request) -> Response:
    """What exactly would happen, and the button that does it."""
    act_client_of(site)
    query = request.query_params
    fields = name_filtered(site.snapshot, query)
    order = resolve(site.snapshot, parse(fields or query.multi_items()))
    session = session_of(site, request)
    if session is None:
        return to_login(query.multi_items())
    return show_confirm(site, session, order)


def name_filtered(snapshot: WebSnapshot, query: QueryParams) -> list[tuple[str, str]]:
    """The fields of an order for what the page of the fleet shows; none without a filter of it.

    Raises HTTPException.
    """
    if not any(query.get(key) for key in FILTER):
        return []
    with refusing():
        names = [row.name for row in filter_rows(snapshot, query)]
    if not names:
        raise HTTPException(HTTPStatus.BAD_REQUEST, "no node fits this filter any more")
    return [("verb", query.get("verb", "")), ("nodes", " ".join(names))]


def show_confirm(site: WebSite, session: WebSession, order: ActOrder, words: str = "") -> Response:
    allowed = Role(session.role).covers(order.kind.role)
    question = question_of(site.snapshot, order)
    status = HTTPStatus.CONFLICT if words else HTTPStatus.OK
    return page(
        site,
        "act.html.j2",
        status if allowed else HTTPStatus.FORBIDDEN,
        session=session,
        order=replace(order, yes=bool(question)),
        allowed=allowed,
        question=question,
        words=words,
        facts=find_facts(site.snapshot, order),
        fields=fields_of(order),
        back=back_of(order),
    )


def question_of(snapshot: WebSnapshot, order: ActOrder) -> str:
    """What is to be confirmed by itself, as on the command line; what is wrong is told there."""
    if not order.kind.asks:
        return ""
    try:
        return ask_about(order.kind.asks, select_nodes(order.nodes, snapshot.nodes))
    except InputError:
        return ""


def back_of(order: ActOrder) -> str:
    """The page that an order is about."""
    if len(order.nodes) == 1:
        return f"/nodes/{quote(order.nodes[0], safe='')}"
    if order.nodes:
        return "/"
    profile, _, version = order.release.partition("@")
    return f"/releases/{quote(profile)}/{quote(version)}" if version else "/rollouts"


def to_login(fields: list[tuple[str, str]]) -> Response:
    place = f"/act?{urlencode(fields)}"
    following = urlencode({"next": place})
    return RedirectResponse(f"/login?{following}", HTTPStatus.SEE_OTHER, PRIVATE)


async def confirm(site: WebSite, request: Request) -> Response:
    """Do it."""
    act_client, fields = act_client_of(site), await read_form(request)
    order = resolve(site.snapshot, parse(fields))
    session = session_of_form(site, request, dict(fields))
    if session is None:
        return to_login([("verb", order.verb), *fields_of(order)])
    question = question_of(site.snapshot, order)
    if question and not order.yes:
        return show_confirm(site, session, order, f"not confirmed: {question}")
    words = order_words(order)
    answer = await act_client.ask_soon(session.token, address_of(request), words)
    if answer.status == HTTPStatus.ACCEPTED:
        return RedirectResponse(f"/actions/{answer.id}", HTTPStatus.SEE_OTHER, PRIVATE)
    if answer.status == HTTPStatus.UNAUTHORIZED:
        site.sessions.end_all_of(session.token)
        return show_login(site, "", f"{session.name}'s token was removed", answer.status)
    raise HTTPException(answer.status, answer.error)


@contextmanager
def refusing() -> Iterator[None]:
    """A block that takes what somebody sent: what is wrong with it is an HTTPException."""
    try:
        yield
    except InputError as error:
        raise HTTPException(HTTPStatus.BAD_REQUEST, str(error)) from error


def parse(fields: list[tuple[str, str]]) -> ActOrder:
    with refusing():
        return parse_form(fields)


def resolve(snapshot: WebSnapshot, order: ActOrder) -> ActOrder:
    """The order with every node and version by name, so that what is confirmed is what is done.

    Raises HTTPException for what does not exist.
    """
    wanted = order.release or order.profile
    profile, _, version = wanted.partition("@")
    known = [each for each in snapshot.releases if each.release.profile == profile]
    if order.release and not version:
        known = [each for each in known if CANDIDATE in each.channels]
        order = replace(order, release=str(known[0].release)) if known else order
    elif version:
        known = [each for each in known if each.release.version == version]
    if wanted and not known:
        raise HTTPException(HTTPStatus.NOT_FOUND, f"there is no release of {wanted!r}")
    if not order.nodes:
        return order
    with refusing():
        chosen = select_nodes(order.nodes, snapshot.nodes)
    if len(chosen) > MOST_NODES:
        raise HTTPException(HTTPStatus.BAD_REQUEST, f"these are more than {MOST_NODES} nodes")
    return replace(order, nodes=tuple(node.name for node in chosen))


def find_facts(snapshot: WebSnapshot, order: ActOrder) -> list[OrderFact]:
    """How what an order is about is now."""
    rows = [snapshot.by_name[name] for name in order.nodes if name in snapshot.by_name]
    facts: list[OrderFact] = [(row.name, row.condition, row.view.state.words) for row in rows]
    profile, _, version = (order.release or order.profile).partition("@")
    for each in snapshot.releases:
        shown = each.release.version == version if version else each.channels
        if each.release.profile == profile and shown:
            state = each.standing.state if snapshot.standings_known else "boot test not known"
            facts.append((str(each.release), state, ", ".join(each.channels)))
    facts += [
        (f"roll-out of {live.rollout.release}", live.word, live.rollout.why)
        for live in snapshot.rollouts
        if live.rollout.profile == profile
    ]
    return facts


def fields_of(order: ActOrder) -> list[tuple[str, str]]:
    """What a form sends again; what the person may still choose is a field of its own."""
    found = [("nodes", " ".join(order.nodes)), ("release", order.release)]
    return [(name, value) for name, value in (*found, ("profile", order.profile)) if value]


async def actions_page(site: WebSite, request: Request) -> Response:
    """Who did what."""
    found = await asyncio.to_thread(read_actions, site.tree)
    if not found:
        act_client_of(site)
    return page(site, "actions.html.j2", actions=found, session=session_of(site, request))


async def action_page(site: WebSite, request: Request) -> Response:
    found = await asyncio.to_thread(find_action, site, request.path_params["id"])
    said = await asyncio.to_thread(read_said, site.tree, found.begun.id)
    running = found.state is ActionState.RUNNING
    return page(site, "action.html.j2", action=found, said=said, running=running)


def find_action(site: WebSite, key: str) -> ActionRecord:
    """Raises HTTPException."""
    for record in read_actions(site.tree):
        if record.begun.id == key:
            return record
    raise HTTPException(HTTPStatus.NOT_FOUND, f"no action {key!r} on record")
