# SPDX-License-Identifier: Apache-2.0
"""The pages in a real browser, with 800 simulated nodes."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from datetime import timedelta
from itertools import cycle, product
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.fleet_world import NEW, OLD, FleetWorld, mac_of, make_site, make_world, name_of, serving
from tests.integration.web_browser import (
    CROWDED,
    NEEDS_BROWSER,
    SIZES,
    browser,
    find_unreachable,
    find_violations,
    opened,
)
from tests.ports import free_port
from tests.sampling import ALL

pytestmark = NEEDS_BROWSER
RELEASE = f"/releases/rx7600xt/{NEW}"
PAGES = (
    "/", "/?state=failed", "/nodes/node040", "/nodes/node013", "/nodes/none", "/releases", RELEASE,
    "/rollouts", "/nightly", "/machines",
)  # fmt: skip
REPORTS = (f"{RELEASE}/reports/20261121T100002Z", "/nightly/files/index.html")
ATTACK = "'\"><img src=x onerror=alert(1)><script>alert(2)</script>"
PAINT = "performance.getEntriesByName('first-contentful-paint')[0]?.startTime"
TRIES = 3  # the quickest counts: what takes longer waited for other tests
MOST_TIMES = 8
# Colours do not depend on the size, nor widths on the colours.
SCHEMES = ("light", "dark")
LOOKS = list(product(SIZES, SCHEMES) if ALL else zip(SIZES, cycle(SCHEMES), strict=False))


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> FleetWorld:
    world = make_world(tmp_path_factory.mktemp("fleet"))
    world.plant_history()
    world.plant_boots(40)
    world.plant_console(40, ["Linux version 6.12"] * 40, ["Kernel panic: " + "x" * 500] * 900)
    world.plant_health(40, "ok", "missing device", "degraded", "ok")
    return world


@pytest.fixture(scope="module")
def address(world: FleetWorld) -> Iterator[str]:
    with serving(make_site(world)) as address:
        yield address


@pytest.fixture(scope="module")
def chromium() -> Iterator[Browser]:
    with browser() as made:
        yield made


def wait_until_live(page: Page) -> None:
    expect(page.locator("#live")).to_have_text("live")


def test_800_nodes_are_painted_nearly_as_fast_as_a_few(chromium: Browser, address: str) -> None:
    times: dict[str, list[float]] = {"/": [], "/?state=failed": []}
    for _ in range(TRIES):
        for path, found in times.items():
            with opened(chromium) as (page, _):
                page.goto(address + path)
                page.wait_for_function(f"() => {PAINT} > 0")
                found.append(page.evaluate(PAINT))
                rows = page.locator("table.fleet tbody tr").count()
                assert (rows == 800) is (path == "/")
    all_of_them, few = map(min, times.values())
    assert all_of_them < MOST_TIMES * few, times


def test_an_event_is_visible(chromium: Browser, world: FleetWorld, address: str) -> None:
    with opened(chromium) as (page, heard):
        page.goto(address)
        wait_until_live(page)
        for index, stage in enumerate(("network", "root", "overlay"), 300):
            row = page.locator(f'[data-key="row-{name_of(index)}"]')
            assert "ready" in row.inner_text()
            del world.answers[name_of(index)]
            world.report(index, stage, NEW, timedelta(0))
            expect(row.locator(".words")).to_contain_text(f"stage {stage}")
            tile = page.locator(f'[data-key="tile-{name_of(index)}"]')
            expect(tile).to_have_class("cell booting behind")
        assert heard.faults == []


def test_the_page_of_a_node_follows_its_boot(
    chromium: Browser, world: FleetWorld, address: str
) -> None:
    with opened(chromium) as (page, heard):
        page.goto(f"{address}/nodes/{name_of(500)}")
        wait_until_live(page)
        expect(page.locator("main .state").first).to_contain_text("ready")
        del world.answers[name_of(500)]
        world.report(500, "failed", NEW, timedelta(0))
        expect(page.locator("main .state").first).to_contain_text("failed")
        expect(page).to_have_title(f"{name_of(500)}: failed · imagebuilder")
        assert heard.faults == []


@pytest.mark.parametrize(("size", "scheme"), LOOKS)
def test_no_page_has_a_fault(chromium: Browser, address: str, size: str, scheme: str) -> None:
    """Nothing in the console, nothing too wide, and nothing that axe-core objects to."""
    shape = SIZES[size]
    for path in PAGES:
        with opened(chromium, color_scheme=scheme, **shape) as (page, heard):
            page.goto(address + path)
            wait_until_live(page)
            assert find_violations(page) == [], path
            wide = page.evaluate("document.scrollingElement.scrollWidth - innerWidth")
            assert wide <= 0, path
            assert page.evaluate(CROWDED) == [], path
            expected = ["error: Failed to load resource"] if path == "/nodes/none" else []
            assert [fault[:30] for fault in heard.faults] == expected, path


def test_reports_look_as_they_were_written(chromium: Browser, address: str) -> None:
    """Their own style applies under the policy that they are sent with."""
    for path in REPORTS:
        with opened(chromium) as (page, heard):
            page.goto(address + path)
            assert page.evaluate("getComputedStyle(document.querySelector('.card')).borderRadius")
            assert (
                page.evaluate("getComputedStyle(document.querySelector('main')).display") == "grid"
            )
            assert heard.faults == []


def test_faults_of_a_page_are_found(chromium: Browser) -> None:
    """The checks above find what is planted for them."""
    planted = """<!doctype html><title></title><body style="background:#fff">
      <p style="color:#999">pale</p><h1>top</h1><h3>early</h3><a href="/"></a>
      <ul><p>no item</p></ul>
      <div aria-hidden=true><a href="/">hidden</a></div><img src="data:,">
      <input onkeydown="event.preventDefault()" aria-label="trap">
      <pre style="height: 9px; overflow: auto">much\nmore\nthan\nfits</pre>
      <button>after</button></body>"""
    with opened(chromium) as (page, heard):
        page.set_content(planted)
        found = "\n".join(find_violations(page))
        for rule in ("serious color-contrast", "serious html-has-lang", "serious document-title",
                     "serious link-name", "serious list", "critical image-alt", "heading-order",
                     "serious aria-hidden-focus", "landmark-one-main"):  # fmt: skip
            assert rule in found
        unreachable = find_unreachable(page)
        page.evaluate("console.error('planted')")
        with page.expect_event("dialog"):
            page.evaluate("setTimeout(() => alert('planted'))")
        assert heard.faults == ["error: planted", "dialog: planted"]
        assert unreachable == ["not reached: <button>after</button>"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_tab_comes_to_every_control_and_the_focus_is_seen(
    chromium: Browser, address: str, scheme: str
) -> None:
    for path in ("/?group=rack1", *PAGES[1:]):
        with opened(chromium, color_scheme=scheme) as (page, _):
            page.goto(address + path)
            wait_until_live(page)
            assert find_unreachable(page) == [], path


def test_a_control_without_a_visible_focus_is_found(chromium: Browser) -> None:
    planted = """<!doctype html><style>a:focus { outline: none }</style>
      <a href="/">plain</a><button>fine</button>"""
    with opened(chromium) as (page, _):
        page.set_content(planted)
        assert find_unreachable(page) == ['no focus is seen: <a href="/">plain</a>']


def test_the_keyboard_is_enough(chromium: Browser, address: str) -> None:
    with opened(chromium) as (page, _):
        page.goto(address)
        focused = "document.activeElement.textContent.trim()"
        page.keyboard.press("Tab")
        assert page.evaluate(focused) == "Skip to the content"
        page.keyboard.press("Enter")
        for _ in range(12):
            page.keyboard.press("Tab")
            if page.evaluate("document.activeElement.name") == "q":
                break
        outline = "getComputedStyle(document.activeElement).outlineStyle"
        assert page.evaluate(outline) != "none"
        page.keyboard.type("node077")
        page.keyboard.press("Enter")
        page.wait_for_url("**/?q=node077*")
        for _ in range(24):
            page.keyboard.press("Tab")
            if page.evaluate(focused) == "node077":
                break
        page.keyboard.press("Enter")
        page.wait_for_url("**/nodes/node077")


def test_the_focus_stays_where_it_is(chromium: Browser, world: FleetWorld, address: str) -> None:
    """A row that is replaced under the keyboard keeps it."""
    name = name_of(600)
    with opened(chromium) as (page, _):
        page.goto(address)
        wait_until_live(page)
        page.locator(f'[data-key="row-{name}"] a').focus()
        del world.answers[name]
        world.report(600, "root", OLD, timedelta(0))
        page.wait_for_selector(f'[data-key="row-{name}"] .words:has-text("stage root")')
        assert page.evaluate("document.activeElement.textContent") == name


def test_it_works_without_javascript(chromium: Browser, address: str) -> None:
    with opened(chromium, java_script_enabled=False) as (page, _):
        page.goto(address)
        page.locator("select[name=state]").select_option("silent")
        page.locator("form.filter button").click()
        page.wait_for_url("**/?q=&group=&state=silent")
        rows = page.locator("table.fleet tbody tr")
        assert {"silent" in row.inner_text() for row in rows.all()} == {True}
        rows.first.locator("a").click()
        expect(page.locator("h1")).to_contain_text("node")


def test_what_a_machine_sends_does_nothing(
    chromium: Browser, world: FleetWorld, address: str
) -> None:
    name = name_of(700)
    del world.answers[name]
    with opened(chromium) as (page, heard):
        page.goto(address)
        wait_until_live(page)
        world.report(700, ATTACK, NEW, timedelta(0))
        page.wait_for_selector(f'[data-key="row-{name}"] .words:has-text("onerror")')
        page.goto(f"{address}/nodes/{name}")
        expect(page.locator("main")).to_contain_text("<script>alert(2)</script>")
        page.goto(f"{address}/?q={mac_of(700)}{ATTACK}")
        page.wait_for_timeout(200)
        assert heard.faults == []


def test_a_script_that_got_in_would_not_run(chromium: Browser, address: str) -> None:
    """The policy alone is enough: markup that is planted into the page runs nothing."""
    with opened(chromium) as (page, heard):
        page.goto(address)
        refused = "Content Security Policy"
        with page.expect_console_message(lambda said: refused in said.text):
            page.evaluate(
                "document.querySelector('main').insertAdjacentHTML('beforeend',"
                '\'<img src=x onerror="document.title = 1"><b style="color:red">x</b>\')'
            )
        page.wait_for_timeout(200)
        assert page.title() != "1"
        assert any(refused in fault for fault in heard.faults)


def test_a_page_comes_back_after_the_server(chromium: Browser, tmp_path: Path) -> None:
    """The server is gone and comes back, on the same port: the page says so and is fresh again."""
    from tests.integration.test_web import start_web

    world = make_world(tmp_path, racks=1)
    port = free_port()
    first = start_web(world, port)
    with opened(chromium) as (page, _):
        page.goto(f"http://127.0.0.1:{port}/")
        wait_until_live(page)
        first.send(signal.SIGKILL)
        first.wait(60)
        expect(page.locator("#live")).to_contain_text("no connection")
        world.report(3, "network", NEW, timedelta(0))
        second = start_web(world, port)
        expect(page.locator("#live")).to_have_text("live")
        expect(page.locator('[data-key="row-node003"]')).to_contain_text("stage network")
        second.send(signal.SIGTERM)
        second.wait(60)
