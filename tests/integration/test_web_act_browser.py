# SPDX-License-Identifier: Apache-2.0
"""Acting in a real browser: log in, confirm, follow the outcome; a page elsewhere that tries."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from imagebuilder.tree import Tree
from imagebuilder.web.action_journal import read_actions
from imagebuilder.web.roles import Role
from imagebuilder.web.tokens import add_token
from tests.acting import await_end, running_act_client
from tests.fleet_world import NEW, make_site, make_world, serving
from tests.integration.web_browser import (
    CROWDED,
    NEEDS_BROWSER,
    SIZES,
    browser,
    find_unreachable,
    find_violations,
    opened,
)

pytestmark = NEEDS_BROWSER
ACTING = (
    "/login", "/actions", "/act?verb=rollout&release=rx7600xt", "/nodes/node001", "/rollouts",
    "/?group=rack1", "/act?verb=restart&nodes=node[000-039]", "/act?verb=down&nodes=node[000-040]",
)  # fmt: skip
# A page of somebody else with a form of ours in it, which sends itself.
EVIL = (
    "data:text/html,<form method=post action={address}/act><input name=verb value=rollback>"
    "<input name=profile value=generic></form><script>document.forms[0].submit()</script>"
)


@dataclass(frozen=True)
class ActingServer:
    address: str
    tree: Tree
    token: str


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ActingServer]:
    top = tmp_path_factory.mktemp("acting")
    world = make_world(top, racks=2)
    world.plant_history()
    tokens = Path(top, "tokens.json")
    secret = add_token(tokens, "ada", Role.ADMIN)
    with (
        running_act_client(world.tree, tokens) as act_client,
        serving(make_site(world, act_client=act_client)) as address,
    ):
        yield ActingServer(address, world.tree, secret)


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as made:
        yield made


@pytest.mark.parametrize("scripts", [True, False], ids=["JavaScript", "no JavaScript"])
def test_from_the_button_to_the_outcome(
    chromium: Browser, server: ActingServer, *, scripts: bool
) -> None:
    with opened(chromium, java_script_enabled=scripts) as (page, heard):
        page.goto(f"{server.address}/releases/generic/{NEW}")
        page.get_by_role("link", name="Roll back").click()
        page.get_by_label("Token").fill(server.token)
        page.get_by_role("button", name="Log in").click()
        expect(page.get_by_role("heading", level=1)).to_have_text("Roll back generic?")
        expect(page.get_by_label("The command")).to_have_text("imagebuilder rollback -- generic")
        page.get_by_role("button", name="Roll back").click()
        if scripts:
            expect(page.locator("main .state").first).to_contain_text("failed", timeout=120_000)
        else:
            page.wait_for_url("**/actions/*")
        shown = page.url.rpartition("/")[2]
        assert shown in [each.begun.id for each in read_actions(server.tree)]
        await_end(server.tree, shown)  # the next test compares whole records
        page.goto(f"{server.address}/actions")
        page.get_by_role("button", name="Log out").click()
        expect(page.get_by_text("Not logged in.")).to_be_visible()
        assert heard.faults == []


@pytest.mark.parametrize("scripts", [True, False], ids=["JavaScript", "no JavaScript"])
def test_a_group_is_acted_on_by_keyboard_and_not_unasked(
    chromium: Browser, server: ActingServer, *, scripts: bool
) -> None:
    with opened(chromium, java_script_enabled=scripts) as (page, heard):
        page.goto(f"{server.address}/?q=node")
        page.get_by_role("link", name="Shut down 80 nodes…").press("Enter")
        page.get_by_label("Token").fill(server.token)
        page.get_by_label("Token").press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Shut down 80 nodes?")
        expect(page.get_by_role("rowheader")).to_have_count(80)
        before = read_actions(server.tree)
        page.get_by_role("button", name="Shut down").press("Enter")
        tick = page.get_by_label("Yes, shut down 80 nodes of 2 groups (rack1, rack2)")
        expect(tick).to_be_focused()  # which the browser asks for
        tick.press("Space")
        expect(tick).to_be_checked()
        assert read_actions(server.tree) == before
        page.get_by_role("link", name="Cancel").press("Enter")
        page.get_by_label("Group").select_option("rack1")
        if not scripts:
            page.get_by_role("button", name="Filter").press("Enter")
        page.get_by_role("link", name="Restart 40 nodes…").press("Enter")
        expect(page.get_by_role("heading", level=1)).to_have_text("Restart 40 nodes?")
        expect(page.get_by_label("Yes, ")).to_have_count(0)
        assert heard.faults == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_no_page_on_which_one_acts_has_a_fault(
    chromium: Browser, server: ActingServer, scheme: str, size: str
) -> None:
    with opened(chromium, color_scheme=scheme, **SIZES[size]) as (page, heard):
        page.goto(f"{server.address}/login")
        page.get_by_label("Token").fill(server.token)
        page.get_by_role("button", name="Log in").click()
        for path in ACTING:
            page.goto(server.address + path)
            assert find_violations(page) == [], path
            wide = page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
            assert wide <= 0, path
            assert page.evaluate(CROWDED) == [], path
            if path != "/login":  # whose first field has the focus from the beginning
                assert find_unreachable(page) == [], path
        assert heard.faults == []


def test_a_page_elsewhere_can_do_nothing(chromium: Browser, server: ActingServer) -> None:
    with opened(chromium) as (page, _):
        page.goto(f"{server.address}/login")
        page.get_by_label("Token").fill(server.token)
        page.get_by_role("button", name="Log in").click()
        page.wait_for_url("**/actions")
        before = len(read_actions(server.tree))
        with page.expect_response("**/act") as answer:
            page.goto(EVIL.format(address=server.address))
        assert answer.value.status == 403
        assert len(read_actions(server.tree)) == before
