# SPDX-License-Identifier: Apache-2.0
"""The page beside `serve`, while three machines boot for real; a browser looks at it."""

from __future__ import annotations

import os
import re
import shlex
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.boot.server import START_SECONDS, command
from tests.integration.web_browser import NEEDS_BROWSER, PROGRAM, browser, opened
from tests.rollout.test_rollout import note, stable
from tests.rollout.world import BOOT_SECONDS, NAMES, World

pytestmark = NEEDS_BROWSER
ADDRESS = "http://127.0.0.1:8470"
PATIENCE = BOOT_SECONDS * 1000
LIVE = 30_000


@pytest.fixture(scope="module")
def chromium(three: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser where the nodes are."""
    program = tmp_path_factory.mktemp("browser") / "chromium"
    words = shlex.join(map(str, three.server.room.words([PROGRAM])))
    program.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    program.chmod(0o755)
    with browser(os.fspath(program)) as made:
        yield made


@pytest.fixture(scope="module")
def page_server(three: World) -> Iterator[None]:
    words = command(three.releases.workshop, "web")
    with three.server.room.program("web", words, dies_by="TERM") as running:
        running.wait_for("listening on", START_SECONDS)
        yield


@pytest.mark.usefixtures("page_server")
def test_a_node_is_followed_through_its_boot(three: World, chromium: Browser, kept: Path) -> None:
    version = stable(three)
    good = dict.fromkeys(NAMES, version)
    three.await_that(lambda: three.versions() == good, "not every node is up")
    with opened(chromium) as (page, heard), opened(chromium) as (own, heard_too):
        page.goto(ADDRESS)
        own.goto(f"{ADDRESS}/nodes/node2")
        expect(page.locator("#live")).to_have_text("live", timeout=LIVE)
        rows = page.locator("table.fleet tbody tr")
        expect(rows).to_have_count(len(NAMES))
        for name in NAMES:
            row = page.locator(f'[data-key="row-{name}"]')
            expect(row).to_contain_text("ready", timeout=LIVE)
            expect(row).to_contain_text(version)
        tile, row = (page.locator(f'[data-key="{each}-node2"]') for each in ("tile", "row"))
        expect(own.locator("main .state").first).to_contain_text("ready", timeout=LIVE)
        started = time.monotonic()
        typed = threading.Thread(target=three.type, args=["restart", "node2"])
        typed.start()
        # The stages follow one another within seconds.
        boots = re.compile("reached stage|left the initrd")
        expect(row.locator(".words")).to_contain_text(boots, timeout=PATIENCE)
        began = time.monotonic() - started
        expect(tile).to_have_class("cell booting")
        expect(own.locator("main .state").first).to_contain_text("booting", timeout=LIVE)
        page.screenshot(path=kept / "fleet.png")
        own.screenshot(path=kept / "node.png", full_page=True)
        expect(tile).to_have_class("cell passed", timeout=PATIENCE)
        took = time.monotonic() - started
        typed.join()
        note(kept, "restart seen on the page", took, f"booting after {began:.0f} s\n")
        assert (heard.faults, heard_too.faults) == ([], [])
        others = [page.locator(f'[data-key="tile-{name}"]') for name in ("node1", "node3")]
        for other in others:
            expect(other).to_have_class("cell passed")


@pytest.mark.usefixtures("page_server")
def test_pages_show_what_the_nodes_went_through(three: World, chromium: Browser) -> None:
    with opened(chromium) as (page, heard):
        page.goto(f"{ADDRESS}/releases")
        for version in (three.releases.old, three.releases.new, *three.releases.broken.values()):
            expect(page.locator("main")).to_contain_text(version)
        for name in NAMES:
            page.goto(f"{ADDRESS}/nodes/{name}")
            expect(page.locator("main")).to_contain_text(stable(three))
        assert heard.faults == []
