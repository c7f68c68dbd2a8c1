# SPDX-License-Identifier: Apache-2.0
"""The distribution's Chromium, and what it can say of a page."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

PROGRAM = shutil.which("chromium-headless-shell") or ""
NEEDS_BROWSER = pytest.mark.skipif(not PROGRAM, reason="chromium-headless-shell is not installed")

# Text against what lies behind it, as WCAG 2.1 computes it; what is less than 4.5 to 1 (3 to 1 for
# large text) is told.  Colours go through a canvas, which knows every way to write one.
CONTRAST = """() => {
  const context = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
  const parse = (colour) => {
    context.clearRect(0, 0, 1, 1); context.fillStyle = colour; context.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = context.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
  };
  const over = (top, under) => top.slice(0, 3).map((c, i) => c * top[3] + under[i] * (1 - top[3]));
  const behind = (element) => {
    const found = [];
    for (let each = element; each; each = each.parentElement) {
      const style = getComputedStyle(each);
      if (style.backgroundImage !== 'none') return null;
      found.push(parse(style.backgroundColor));
    }
    return found.reverse().reduce((under, top) => over(top, under), [255, 255, 255]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => c / 255)
      .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const faults = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let node = walker.nextNode(); node; node = walker.nextNode()) {
    const element = node.parentElement, style = getComputedStyle(element);
    if (!node.data.trim() || !element.checkVisibility() || element.closest('.skip')) continue;
    const back = behind(element);
    if (!back) continue;
    const front = over(parse(style.color), back);
    const [a, b] = [light(front), light(back)].sort((x, y) => y - x);
    const size = parseFloat(style.fontSize);
    const large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) {
      const text = node.data.trim().slice(0, 20);
      faults.add(`${element.tagName}.${element.className}: ${ratio.toFixed(2)} ${text}`);
    }
  }
  return [...faults];
}"""
# What a screen reader needs, of the rules that axe-core calls serious.
STRUCTURE = """() => {
  const faults = [];
  if (!document.documentElement.lang) faults.push('no language');
  if (!document.title.trim()) faults.push('no title');
  if (document.querySelectorAll('main').length !== 1) faults.push('not one main');
  if (document.querySelectorAll('h1').length !== 1) faults.push('not one h1');
  const ids = [...document.querySelectorAll('[id]')].map((each) => each.id);
  if (new Set(ids).size !== ids.length) faults.push('an id twice');
  for (const each of document.querySelectorAll('a[href], button, input, select, summary')) {
    if (each.closest('[aria-hidden=true]')) {
      if (each.tabIndex >= 0) faults.push(`hidden, and has the focus: ${each.outerHTML}`);
      continue;
    }
    const label = each.getAttribute('aria-label') || each.textContent.trim()
      || [...(each.labels || [])].map((l) => l.textContent.trim()).join('');
    if (!label) faults.push(`no name: ${each.outerHTML.slice(0, 80)}`);
  }
  for (const each of document.querySelectorAll('ul > :not(li), dl > :not(dt, dd, div)')) {
    faults.push(`in a list: ${each.outerHTML.slice(0, 80)}`);
  }
  for (const each of document.querySelectorAll('table')) {
    if (!each.querySelector('th')) faults.push('a table without headers');
  }
  for (const each of document.querySelectorAll('pre, .scroll')) {
    const scrolls = each.scrollWidth > each.clientWidth || each.scrollHeight > each.clientHeight;
    if (scrolls && each.tabIndex < 0) faults.push('scrolls, and not by the keyboard');
  }
  let last = 0;
  for (const each of document.querySelectorAll('main :is(h1, h2, h3)')) {
    if (each.closest('[aria-hidden=true]')) continue;
    const level = Number(each.tagName[1]);
    if (level > last + 1) faults.push(`a heading is left out before ${each.textContent.trim()}`);
    last = level;
  }
  return faults;
}"""


@dataclass
class Heard:
    """What a page complained of."""

    faults: list[str] = field(default_factory=list)


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
    page, heard = context.new_page(), Heard()
    page.on("console", lambda said: heard.faults.append(f"{said.type}: {said.text}"))
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
