# SPDX-License-Identifier: Apache-2.0
"""The pages for people.  Each works without JavaScript; live.js only keeps an open page fresh.

What they show was said by machines and programs, so nothing of it is trusted: templates escape
every value, and the policy in guard.py forbids scripts other than live.js.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from imagebuilder.errors import InputError
from imagebuilder.web.api import AbsentError
from imagebuilder.web.site import WebSite
from imagebuilder.web.snapshot import WebSnapshot

MakePage = Callable[[WebSite, Request], bytes]


@dataclass(frozen=True)
class NavEntry:
    title: str
    place: str


NAVIGATION = (
    NavEntry("Fleet", "/"),
    NavEntry("Releases", "/releases"),
    NavEntry("Roll-outs", "/rollouts"),
    NavEntry("Nightly runs", "/nightly"),
    NavEntry("Machines", "/machines"),
)
ACTIONS = NavEntry("Actions", "/actions")


def show_page(site: WebSite, snapshot: WebSnapshot, template: str, **values: object) -> bytes:
    """A page from its template."""
    page = site.environment.get_template(template)
    navigation = (*NAVIGATION, ACTIONS) if site.acts else NAVIGATION
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
