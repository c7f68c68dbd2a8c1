# SPDX-License-Identifier: Apache-2.0
"""The folder of nights: records that are whole, pages that are right at any moment."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, tzinfo
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.errors import HostError, InputError
from imagebuilder.nightly.history import begin_run, find_ids, read_runs
from imagebuilder.nightly.save import KEPT, save_run
from imagebuilder.nightly.types import NIGHTLY_RUN, Ending, NightlyRun, NightlyStage
from imagebuilder.report.save import begin_report, save_report
from imagebuilder.tree import make_tree
from tests.unit.nightly.samples import FIRST, failed, make_nights, night, unchanged, with_pruning
from tests.unit.report.samples import passed

DAY = timedelta(days=1)


def saved_nights(folder: Path) -> list[NightlyRun]:
    """Every night of a folder that can be read, oldest first."""
    return list(read_runs(folder, find_ids(folder)).runs)


# --- as JSON


@pytest.mark.parametrize("one", [*make_nights(8), with_pruning(make_nights(3)[-1])])
def test_a_night_is_read_as_it_was_written(one: NightlyRun) -> None:
    text = json.dumps(NIGHTLY_RUN.encode(one))
    assert NIGHTLY_RUN.decode(json.loads(text), "night.json") == one


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda v: v.pop("schema"), "schema: is missing"),
        (lambda v: v.update(schema=2), "schema 2"),
        (lambda v: v.pop("started"), "started: is missing"),
        (lambda v: v.update(started="yesterday"), "started: 'yesterday' is not a time in UTC"),
        (lambda v: v.update(failed=False), "failed: does not follow from the rest"),
        (lambda v: v.update(surprise=1), "surprise: unknown key"),
        (lambda v: v["profiles"][0].update(ending="perhaps"), r"profiles\[0\]\.ending"),
        (lambda v: v["profiles"][1]["seconds"].update(nap=1.0), r"profiles\[1\]\.seconds\.nap"),
        (lambda v: v["profiles"][0].update(size=-1), r"profiles\[0\]\.size"),
    ],
    ids=range(9),
)
def test_a_damaged_night_is_refused_by_file_and_key(
    change: Callable[[dict[str, Any]], object], said: str
) -> None:
    value = json.loads(
        json.dumps(NIGHTLY_RUN.encode(night(unchanged(), failed("x", NightlyStage.TEST))))
    )
    change(value)
    with pytest.raises(InputError, match=said) as caught:
        NIGHTLY_RUN.decode(value, "there.json")
    assert caught.value.faults[0].where == "there.json"


def test_a_night_from_before_a_field_was_added_is_read() -> None:
    value = json.loads(json.dumps(NIGHTLY_RUN.encode(night(unchanged()))))
    del value["planned"]
    del value["profiles"][0]["warnings"]
    assert NIGHTLY_RUN.decode(value, "night.json").profiles[0].ending is Ending.UNCHANGED


# --- the folder


def texts(folder: Path) -> dict[str, str]:
    """Every file by its name below the folder."""
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): path.read_text() for path in found}


def test_a_night_is_there_from_its_beginning_to_its_end(tmp_path: Path) -> None:
    one = night(unchanged("a"), failed("b", NightlyStage.LOCK), unchanged("c"))
    for done in range(4):
        now = replace(one, finished=False, profiles=one.profiles[:done])
        page = save_run(now, tmp_path)
        assert saved_nights(tmp_path) == [now]
        for text in (page.read_text(), (tmp_path / "index.html").read_text()):
            assert f"running: {done} of 3 profiles done" in text
            assert text.count("</i> waiting") >= 3 - done
    page = save_run(one, tmp_path)
    assert page == tmp_path / "nights" / f"{one.id}.html"
    found = texts(tmp_path)
    assert sorted(found) == [
        "index.html", "latest.json", "month-2026-10.html", f"nights/{one.id}.html",
        f"nights/{one.id}.json",
    ]  # fmt: skip
    assert found["latest.json"] == found[f"nights/{one.id}.json"]
    assert "1 of 3 profiles failed" in found["index.html"]
    assert "waiting" not in found["index.html"].partition("</style>")[2]
    assert {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*.*")} == {0o644}


def test_the_next_night_says_that_one_was_cut_off(tmp_path: Path) -> None:
    cut = night(unchanged("a"), finished=False, planned=2)
    page = save_run(cut, tmp_path)
    assert "running" in page.read_text()
    (tmp_path / f".{page.name}.new").write_text("half")
    (tmp_path / "nights" / f".{page.name}.new").write_text("half")
    save_run(replace(night(unchanged("a"), started=FIRST + DAY), finished=False), tmp_path)
    assert "cut off after 1 of 3 profiles" in page.read_text()
    history = (tmp_path / "index.html").read_text().partition('<p class="legend">')[0]
    assert history.count("</i> cut off") == 2
    assert [path for path in tmp_path.rglob(".*")] == []


def test_a_damaged_night_is_named_and_hides_no_other(tmp_path: Path) -> None:
    first, second, third = (night(unchanged(), started=FIRST + n * DAY) for n in range(3))
    save_run(first, tmp_path)
    save_run(second, tmp_path)
    record = tmp_path / "nights" / f"{first.id}.json"
    record.write_text(record.read_text()[:99])
    (tmp_path / "nights" / "20261020T000000Z-1.json").write_text("[" * 100_000)
    (tmp_path / "nights" / "notes.json").write_text("mine")
    (tmp_path / "nights" / "20261021T000000Z-1.json").mkdir()
    save_run(third, tmp_path)
    assert saved_nights(tmp_path) == [second, third]
    found = read_runs(tmp_path, find_ids(tmp_path))
    assert [Path(fault.where).stem for fault in found.faults] == [
        "20261020T000000Z-1", "20261021T000000Z-1", first.id,
    ]  # fmt: skip
    text = (tmp_path / "index.html").read_text()
    assert re.search(rf"{re.escape(str(record))}:\d+:\d+</code> is damaged", text)
    assert text.count('<th scope="row"><a href="nights/') == 2


def test_a_record_in_another_ones_place_is_named(tmp_path: Path) -> None:
    one = night(unchanged())
    save_run(one, tmp_path)
    other = tmp_path / "nights" / "20200101T000000Z-1.json"
    other.write_text((tmp_path / "latest.json").read_text())
    assert "is the run" in read_runs(tmp_path, find_ids(tmp_path)).faults[0].what


def test_a_record_that_changed_is_read_again(tmp_path: Path) -> None:
    one = night(unchanged())
    save_run(one, tmp_path)
    assert saved_nights(tmp_path) == [one]
    save_run(replace(one, host="another"), tmp_path)
    assert saved_nights(tmp_path)[0].host == "another"


def test_the_history_shows_sixty_nights_and_months_have_the_others(tmp_path: Path) -> None:
    nights = [night(unchanged(), started=FIRST + n * DAY) for n in range(100)]
    (tmp_path / "nights").mkdir()
    for one in nights[:-1]:  # as so many nights would have left them, without their pages
        text = json.dumps(NIGHTLY_RUN.encode(one))
        (tmp_path / "nights" / f"{one.id}.json").write_text(text)
    save_run(nights[-1], tmp_path)
    text = (tmp_path / "index.html").read_text()
    assert text.count('<th scope="row"><a href="nights/') == 60
    assert nights[39].id not in text
    shown = {nights[-1].id, nights[40].id}
    assert all(each in text for each in shown)
    months = sorted(path.name for path in tmp_path.glob("month-*"))
    assert months == [f"month-{m}.html" for m in ("2026-10", "2026-11", "2026-12", "2027-01")]
    assert [m for m in months if f'href="{m}"' in text] == months[:3]
    assert "<h1>2026-11</h1>" in (tmp_path / months[1]).read_text()
    found = (tmp_path / months[1]).read_text()
    assert found.count('<th scope="row"><a href="nights/') == 30


def test_a_clock_that_jumped_hides_no_night(tmp_path: Path) -> None:
    ahead = night(unchanged(), started=FIRST + 4000 * DAY)
    save_run(ahead, tmp_path)
    now = night(failed("generic", NightlyStage.LOCK), started=FIRST)
    save_run(now, tmp_path)
    text = (tmp_path / "index.html").read_text()
    assert "<h1>Nightly run of 2026-10-24</h1>" in text
    assert text.index(f"nights/{now.id}.html") < text.index(f"nights/{ahead.id}.html")
    assert json.loads((tmp_path / "latest.json").read_text())["id"] == now.id


def test_a_night_dated_in_the_future_does_not_stay_the_newest(tmp_path: Path) -> None:
    ahead = night(unchanged(), started=FIRST + 4000 * DAY)
    nights = [night(unchanged(), started=FIRST + n * DAY) for n in range(3)]
    for one in (ahead, *nights):
        save_run(one, tmp_path)
    assert find_ids(tmp_path) == [ahead.id, *(one.id for one in nights)]
    text = (tmp_path / "index.html").read_text()
    shown = re.findall(r'<th scope="row"><a href="nights/([^"]+)\.html', text)
    assert shown == [*(one.id for one in reversed(nights)), ahead.id]
    back = night(unchanged(), started=FIRST - 4000 * DAY)
    save_run(back, tmp_path)
    assert find_ids(tmp_path)[-1] == back.id


def test_a_clock_that_shows_the_same_second_again_loses_no_night(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a container every run may have the same process number."""

    class Stopped(datetime):
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> Stopped:
            return cls(2026, 11, 23, 2, 30, tzinfo=tz)

    monkeypatch.setattr("imagebuilder.nightly.history.datetime", Stopped)
    monkeypatch.setattr(os, "getpid", lambda: 7)
    for number in range(3):
        run = begin_run(("minimal",), tmp_path)
        assert run.id == f"20261123T023000Z-{7 + number}"
        save_run(replace(run, finished=True), tmp_path)
    assert len(find_ids(tmp_path)) == 3


def test_nights_are_kept_for_a_year(tmp_path: Path) -> None:
    (tmp_path / "nights").mkdir()
    for number in range(KEPT + 1):
        one = night(unchanged(), started=FIRST + number * DAY)
        for name in (f"{one.id}.json", f"{one.id}.html", f"{one.id}.generic.log"):
            (tmp_path / "nights" / name).touch()
    save_run(night(unchanged(), started=FIRST + (KEPT + 1) * DAY), tmp_path)
    ids = find_ids(tmp_path)
    assert len(ids) == KEPT
    gone = {f"{FIRST:%Y%m%d}", f"{FIRST + DAY:%Y%m%d}"}
    assert not [path for path in (tmp_path / "nights").iterdir() if path.name[:8] in gone]


def test_the_boot_test_of_a_release_is_kept_with_the_night(tmp_path: Path) -> None:
    tree = make_tree(tmp_path / "tree")
    report = passed()
    with begin_report(tree, report.release, report.id) as staged:
        save_report(tree, report, staged)
    done = replace(
        unchanged(report.profile), ending=Ending.FRESH, version=report.version, report=report.id
    )
    lost = replace(done, profile="gone")
    one = night(unchanged("first"), done, lost)
    page = save_run(one, tmp_path / "nightly", tree)
    boot = page.with_name(f"{one.id}.boot-1.html")
    assert f'href="{boot.name}"' in page.read_text()
    assert "uefi" in boot.read_text()
    assert not page.with_name(f"{one.id}.boot-2.html").exists()
    assert "boot-2" not in page.read_text()


def test_a_log_beside_the_record_is_shown_and_linked(tmp_path: Path) -> None:
    one = night(failed("generic", NightlyStage.BUILD))
    log = tmp_path / "nights" / f"{one.id}.generic.log"
    log.parent.mkdir()
    log.write_text("<b>what it said</b>\n")
    one = replace(one, profiles=(replace(one.profiles[0], log=os.fspath(log)),))
    text = save_run(one, tmp_path).read_text()
    assert "&lt;b&gt;what it said&lt;/b&gt;" in text
    assert f'href="{log.name}"' in text
    folder = replace(one.profiles[0], log=os.fspath(tmp_path))
    assert "Log: " in save_run(replace(one, profiles=(folder,)), tmp_path).read_text()


def test_what_cannot_be_saved_is_said(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="is not a valid id of a run"):
        save_run(replace(night(unchanged()), id="../escape"), tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(HostError, match="cannot be written"):
        save_run(night(unchanged()), tmp_path / "file")
