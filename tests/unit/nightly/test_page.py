# SPDX-License-Identifier: Apache-2.0
"""The pages of nights: what they say, that they need nothing else, and that text stays text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import timedelta
from html.parser import HTMLParser

import pytest

from imagebuilder.errors import Fault
from imagebuilder.lock.changes import PackageChange
from imagebuilder.nightly.history import find_records
from imagebuilder.nightly.page import render_index, render_month, render_run_page
from imagebuilder.nightly.types import Ending, NightlyRun, NightlyStage
from tests.unit.nightly.samples import (
    FIRST,
    HOSTILE,
    PROFILES,
    failed,
    make_nights,
    night,
    unchanged,
    with_pruning,
)

VOID = {"meta", "br", "wbr", "path"}


class Outline(HTMLParser):
    """The visible words and the ids of a page, links, and whether every tag is closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.words: list[str] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.open: list[str] = []
        self.cells: list[str] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        self.ids += [given["id"] or ""] if "id" in given else []
        self.links += [given["href"] or ""] if "href" in given else []
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.words.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.words).split())


def index(nights: Sequence[NightlyRun], *, runs: bool = False) -> str:
    """The history of nights, newest first."""
    return render_index(nights, faults=(), months=(), running=runs)


def page(one: NightlyRun, *, runs: bool = False, logs: Mapping[int, str] | None = None) -> str:
    """The page of a night."""
    return render_run_page(one, running=runs, logs=logs or {}, boots={})


def without_legend(text: str) -> str:
    """A history without what explains its words."""
    before, found, _ = text.partition('<p class="legend">')
    assert found
    return before


def every_page(one: NightlyRun) -> list[str]:
    """All kinds of pages that show it."""
    return [page(one, logs={0: HOSTILE}), index([one]), render_month("2026-10", [one])]


def hostile() -> NightlyRun:
    """Every text of it tries to be more than text."""
    done = failed("rx7600xt", NightlyStage.TEST)
    for each in fields(done):
        if each.type == "str":
            object.__setattr__(done, each.name, HOSTILE)
    done = replace(
        done, fault=Fault(HOSTILE, HOSTILE, HOSTILE), warnings=(HOSTILE,),
        reasons=(HOSTILE,), changes=(PackageChange(HOSTILE, HOSTILE, HOSTILE, True, HOSTILE),),  # noqa: FBT003
    )  # fmt: skip
    one = night(done, planned=0)
    return replace(one, host=HOSTILE, tool=HOSTILE, warnings=(HOSTILE,), committed=HOSTILE)


@pytest.mark.parametrize("one", [hostile(), with_pruning(make_nights(9)[-1])], ids=["hostile", "9"])
def test_pages_need_nothing_else_and_take_text_as_text(one: NightlyRun) -> None:
    for text in every_page(one):
        outline = Outline(text)
        assert outline.open == []
        assert len(set(outline.ids)) == len(outline.ids)
        assert "<img" not in text
        assert "<script" not in text
        assert "\x1b" not in text
        assert "\u202e" not in text
        assert not [link for link in outline.links if "//" in link or link.startswith("/")]
        assert not re.search(r"url\(|@import|<link|<iframe", text)
        assert "default-src 'none'" in text
        assert "prefers-color-scheme" in text
        assert '<meta name="viewport"' in text


def test_every_link_into_a_night_has_its_place() -> None:
    for one in (*make_nights(12), hostile()):
        outline = Outline(page(one))
        inside = {link[1:] for link in outline.links if link.startswith("#")}
        assert inside <= set(outline.ids)
        linked = re.findall(rf"nights/{one.id}\.html#([^\"]+)", index([one]))
        assert set(linked) <= set(outline.ids)
        assert len(linked) >= len(one.profiles)


def test_an_ending_is_told_in_words_and_in_colour() -> None:
    done = [
        replace(unchanged(ending.value), ending=ending)
        for ending in Ending
        if ending is not Ending.FAILED
    ]
    text = index([night(*done, failed("broken", NightlyStage.PROVE), finished=False, planned=1)])
    text = without_legend(text)
    for mark, word, tone in (
        ("=", "unchanged", "calm"),
        ("✓", "fresh", "passed"),
        ("▲", "promoted", "passed"),
        ("✗", "failed <small>prove</small>", "failed"),
        ("!", "cut off", "degraded"),
    ):
        assert f'outcome {tone}"><i aria-hidden="true">{mark}</i> {word}' in text


def test_a_night_that_runs_and_one_that_was_cut_off() -> None:
    one = night(unchanged(), failed("rx7600xt", NightlyStage.BUILD), finished=False, planned=3)
    runs, cut = Outline(page(one, runs=True)).text, Outline(page(one)).text
    assert "running: 2 of 5 profiles done, 1 failed" in runs
    assert "waiting" in runs
    assert "cut off after" not in runs
    assert "cut off after 2 of 5 profiles, 1 failed" in cut
    assert "waiting" not in cut
    assert "never finished: it was killed, or the power failed" in cut
    newer = night(unchanged(), started=FIRST + timedelta(days=1), finished=False, planned=3)
    history = index([newer, one], runs=True)
    assert without_legend(history).count("</i> cut off") == 3, "the older night"
    assert without_legend(history).count("</i> waiting") == 6, "in both tables"
    assert "if imagebuilder is not running now, it was cut off" in Outline(history).text


def test_a_failure_is_told_with_where_what_hint_and_the_end_of_its_log() -> None:
    one = night(
        failed("rx7600xt", NightlyStage.BUILD, stable="20261101-aa", log="/logs/1/build.log")
    )
    log = "".join(f"line {number}\n" for number in range(300)) + "ln: File exists\n"
    text = Outline(page(one, logs={0: log})).text
    for part in (
        "rx7600xt failed at build", "overlays/llama-cpp/scripts/10-link", "10-link failed",
        "Hint : the command was: sh scripts/10-link", "/logs/1/build.log", "ln: File exists",
        "the last 200 of 301 lines", "20261101-aa",
    ):  # fmt: skip
        assert part in text
    assert "line 100 " not in text
    named = Outline(page(one)).text
    assert "Log: /logs/1/build.log" in named, "where it was, once it is gone"
    said = Outline(index([one])).text
    assert "10-link failed" in said
    assert "Stable is still 20261101-aa" in said


def test_security_changes_come_first_and_are_marked() -> None:
    moved = (
        PackageChange("aaa", "1", "2", suite="trixie"),
        PackageChange("zlib1g", "1.3", "1.3+deb13u1", security=True, suite="trixie-security"),
        PackageChange("new", "", "1", suite="trixie"),
        PackageChange("old", "1", "", suite=""),
    )
    done = replace(unchanged("generic"), ending=Ending.FRESH, changes=moved)
    text = page(night(done))
    assert text.index("zlib1g") < text.index(">aaa<")
    assert 'class="badge degraded">security</span> trixie-security' in text
    words = Outline(text).text
    assert "4, 1 security" in words
    assert "3 other packages changed" in words
    assert "aaa 1 2 trixie" in words
    assert "new new 1 trixie" in words
    assert "old 1 removed" in words


def test_a_boot_test_is_linked_where_it_is_kept() -> None:
    done = replace(unchanged("generic"), ending=Ending.FRESH, report="20261024T0-1")
    one = night(done)
    assert ".boot-0.html" not in page(one)
    kept = render_run_page(one, running=False, logs={}, boots={0: f"{one.id}.boot-0.html"})
    assert f'<a href="{one.id}.boot-0.html">report 20261024T0-1</a>' in kept


# --- what the history says


def days(*endings: str, stables: str = "") -> list[NightlyRun]:
    """Nights of one profile, oldest first, by letter: u, f(resh), p, x (failed), c(ut off), -."""
    made = []
    for number, letter in enumerate(endings[0]):
        started = FIRST + timedelta(days=number)
        stable = stables[number] if stables else "1"
        if letter == "x":
            made.append(
                night(failed("generic", NightlyStage.BUILD, stable=stable), started=started)
            )
        elif letter == "c":
            cut = night(started=started, finished=False)
            made.append(replace(cut, planned=("generic",)))
        elif letter == "-":
            made.append(night(unchanged("other"), started=started))
        else:
            ending = {"u": Ending.UNCHANGED, "f": Ending.FRESH, "p": Ending.PROMOTED}[letter]
            done = replace(unchanged("generic", stable), ending=ending)
            made.append(night(done, started=started))
    return made


@pytest.mark.parametrize(
    ("letters", "runs", "streak", "well", "behind", "fresh"),
    [
        ("ufp", False, 3, True, 0, 2),
        ("uxxx", False, 3, False, 3, 0),
        ("xxu", False, 1, True, 0, 2),
        ("ux-x", False, 2, False, 2, 0),
        ("uxc", False, 2, False, 2, 0),
        ("uxc", True, 1, False, 1, 0),
        ("xx", False, 2, False, 2, None),
    ],
)
def test_streaks_and_freshness(
    letters: str,
    runs: bool,  # noqa: FBT001
    streak: int,
    well: bool,  # noqa: FBT001
    behind: int,
    fresh: int | None,
) -> None:
    nights = days(letters)
    found = {r.profile: r for r in find_records(nights[::-1], running=runs)}["generic"]
    assert (found.streak, found.well, found.behind) == (streak, well, behind)
    assert found.fresh == (None if fresh is None else nights[fresh])


@pytest.mark.parametrize(
    ("stables", "moved"), [("1112", 3), ("1222", 1), ("1121", 3), ("1111", None)]
)
def test_when_stable_moved(stables: str, moved: int | None) -> None:
    nights = days("uuux", stables=stables)
    (found,) = find_records(nights[::-1], running=False)
    assert found.stable == stables[-1]
    assert found.moved == (None if moved is None else nights[moved])


def test_sixty_nights_of_ten_profiles_are_small() -> None:
    nights = make_nights(60)[::-1]
    text = index(nights)
    assert len(text.encode()) < 300_000
    assert len(re.findall(r'<th scope="row"><a href="nights/', text)) == 60
    outline = Outline(text)
    assert all(
        name.replace("-", "") in outline.text.replace(" ", "").replace("-", "") for name in PROFILES
    )
    assert max(len(page(one).encode()) for one in nights) < 1_000_000
