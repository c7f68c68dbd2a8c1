# SPDX-License-Identifier: Apache-2.0
"""The distribution's Chromium, and what it can say of a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, expect, sync_playwright

PROGRAM = shutil.which("chromium-headless-shell") or ""
NEEDS_BROWSER = pytest.mark.skipif(not PROGRAM, reason="chromium-headless-shell is not installed")

# Everything that Tab must come to; what lies in a closed <details> is not there.
CONTROLS = """() => {
  const all = 'a[href], button, input:not([type=hidden]), select, summary, [tabindex="0"]';
  window.controls = [...document.querySelectorAll(all)]
    .filter((each) => each.tabIndex >= 0 && each.checkVisibility());
  return window.controls.map((each) => each.outerHTML.slice(0, 80));
}"""
FOCUSED = """() => {
  const style = getComputedStyle(document.activeElement);
  const seen = style.outlineStyle !== 'none' && parseFloat(style.outlineWidth) >= 1;
  return [window.controls.indexOf(document.activeElement), seen];
}"""


SIZES: dict[str, dict[str, Any]] = {
    "desk": {},
    "laptop": {"viewport": {"width": 1100, "height": 700}},
    "phone": {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True},
}
# Cells whose text goes on into the next one.
CROWDED = """() => [...document.querySelectorAll('td, th')].filter((cell) => {
  const content = document.createRange();
  content.selectNodeContents(cell);
  const right = content.getBoundingClientRect().right;
  const clipped = getComputedStyle(cell.closest('thead, tbody')).clipPath !== 'none';
  return cell.checkVisibility() && !clipped && right > cell.getBoundingClientRect().right + 1;
}).map((cell) => `crowded: ${cell.textContent.trim().slice(0, 60)}`)"""


def find_violations(page: Page) -> list[str]:
    """What axe-core says of a page: rules that are broken, and where."""
    said = Axe().run(page).response["violations"]
    return [
        f"{rule['impact']} {rule['id']}: {node['html'][:120]}"
        for rule in said
        for node in rule["nodes"]
    ]


def find_unreachable(page: Page) -> list[str]:
    """Controls that Tab does not come to, and those on which the focus cannot be seen."""
    controls = page.evaluate(CONTROLS)
    lacking, unseen = dict(enumerate(controls)), []
    for _ in controls:
        page.keyboard.press("Tab")
        index, seen = page.evaluate(FOCUSED)
        if lacking.pop(index, None) and not seen:
            unseen.append(f"no focus is seen: {controls[index]}")
    return [*(f"not reached: {each}" for each in lacking.values()), *unseen]


@dataclass
class Heard:
    """What a page complained of."""

    faults: list[str] = field(default_factory=list)

    def hear(self, said: ConsoleMessage) -> None:
        """Chromium's own remarks are `info`: that a field had the focus before autofocus, say."""
        if said.type != "info":
            self.faults.append(f"{said.type}: {said.text}")


# Only what hangs needs it all; by themselves, expectations are given up after five seconds.
PATIENCE_MS = 60_000
expect.set_options(timeout=PATIENCE_MS)


@contextmanager
def browser(program: str = PROGRAM) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        # Tests run as root, for whom Chromium has no sandbox; it opens nothing but our own pages.
        made = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield made
        made.close()


@contextmanager
def opened(browser: Browser, **options: Any) -> Iterator[tuple[Page, Heard]]:  # noqa: ANN401
    """A page in a profile of its own, and its complaints: errors, dialogs, foreign requests."""
    context = browser.new_context(**{"viewport": {"width": 1400, "height": 900}, **options})
    context.set_default_timeout(PATIENCE_MS)
    page, heard = context.new_page(), Heard()
    page.on("console", heard.hear)
    page.on("pageerror", lambda error: heard.faults.append(f"error: {error}"))

    def refuse(dialog: Any) -> None:  # noqa: ANN401
        heard.faults.append(f"dialog: {dialog.message}")
        dialog.dismiss()

    page.on("dialog", refuse)

    def look(request: Any) -> None:  # noqa: ANN401
        if not request.url.startswith("http://127.0.0.1:"):
            heard.faults.append(f"request: {request.url}")

    page.on("request", look)
    yield page, heard
    context.close()
