# SPDX-License-Identifier: Apache-2.0
"""The web application: routes, the guard in front of them, and the watch that runs beside."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Mapping

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from imagebuilder.web.act_api import act_api_routes, tell_actions
from imagebuilder.web.act_pages import act_routes
from imagebuilder.web.api import make_routes
from imagebuilder.web.guard import REPORT_POLICY, Guard
from imagebuilder.web.history_pages import (
    machines_page,
    nightly_file,
    nightly_page,
    release_page,
    releases_page,
    report_page,
    rollouts_page,
)
from imagebuilder.web.metrics import make_metrics_route
from imagebuilder.web.pages import MakePage, fleet_page, node_page, page_route, show_error
from imagebuilder.web.site import WebSite

PAGES: Mapping[str, MakePage] = {
    "/": fleet_page,
    "/nodes/{name}": node_page,
    "/releases": releases_page,
    "/releases/{profile}/{version}": release_page,
    "/rollouts": rollouts_page,
    "/nightly": nightly_page,
    "/machines": machines_page,
}
# Pages of their own, without ours around them.
REPORTS: Mapping[str, MakePage] = {
    "/releases/{profile}/{version}/reports/{id}": report_page,
    "/nightly/files/{path:path}": nightly_file,
}
FOREVER = "public, max-age=31536000, immutable"


def make_app(site: WebSite, hosts: Collection[str]) -> ASGIApp:
    """The application; `hosts` are the names that it answers to."""

    @contextlib.asynccontextmanager
    async def lifespan(app: Starlette) -> AsyncIterator[None]:
        del app
        watching = asyncio.gather(site.watcher.run(), tell_actions(site))
        yield
        watching.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await watching

    def fail(request: Request, error: Exception) -> Response:
        status, words, headers = 500, "the server has a fault; its log says which", None
        if isinstance(error, HTTPException):
            status, words, headers = error.status_code, error.detail, error.headers
        if request.url.path.startswith("/api/"):
            return JSONResponse({"error": words}, status, headers)
        return show_error(site, status, words)

    app = Starlette(
        routes=[
            *(page_route(site, path, make) for path, make in PAGES.items()),
            *(page_route(site, path, make, REPORT_POLICY) for path, make in REPORTS.items()),
            *make_routes(site),
            *act_routes(site),
            *act_api_routes(site),
            make_metrics_route(site),
            make_asset_route(site),
        ],
        exception_handlers={HTTPException: fail, 500: fail},
        # Not events: they are not compressed.
        middleware=[Middleware(GZipMiddleware, minimum_size=2048, compresslevel=3)],
        lifespan=lifespan,
    )
    return Guard(app, hosts, lambda: site.snapshot.networks, lambda: site.acts)


def make_asset_route(site: WebSite) -> Route:
    found = {asset.name: asset for asset in site.assets.values()}

    def answer(request: Request) -> Response:
        asset = found.get(request.path_params["name"])
        if asset is None:
            return show_error(site, 404, "no such file")
        return Response(asset.content, media_type=asset.media, headers={"Cache-Control": FOREVER})

    return Route("/assets/{name}", answer, methods=["GET"])
