# SPDX-License-Identifier: Apache-2.0
"""The pure parts of scripts/bench: what a figure is worth, and how it is told."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from imagebuilder.errors import InputError
from imagebuilder.process import Word, run
from scripts.benchmark import own
from scripts.benchmark.facts import absent_program, cpu_model, memory, version_of
from scripts.benchmark.figures import (
    Figure,
    Report,
    Section,
    SectionName,
    parse_report,
    ratios,
    report_json,
)
from scripts.benchmark.goals import GOALS, OURS, ROWS, Row, Verdict, all_met, judgements
from scripts.benchmark.main import check_asked, estimates, parse_arguments
from scripts.benchmark.page import TITLES, WHY, render_report
from scripts.benchmark.record import JSON, PAGE, Recorder, find_report, write
from scripts.benchmark.table import MAKERS, ROUND_SECONDS

CHECKOUT = Path(__file__).parents[2]
TOOLS, NIGHTS, OWN = SectionName.TOOLS, SectionName.NIGHTS, SectionName.OWN


def section(*figures: Figure) -> Section:
    return Section("2026-11-22 12:00 UTC", {"processor": "two stones"}, {"generic": "5"}, figures)


def columns(row: str, **values: tuple[float, ...]) -> list[Figure]:
    return [Figure(row, name, of) for name, of in values.items()]


def verdicts(report: Report) -> dict[str, str]:
    """The verdict on each goal by what it is."""
    return {one.goal.what: str(one.verdict) for one in judgements(report)}


def row_of(page: str, first: str) -> list[str]:
    """The cells of the one row of a table that begins with a cell."""
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {first} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_ratios_pair_runs_that_took_turns() -> None:
    # The machine was half as fast in the last round: neither side gains by it.
    assert ratios((10.0, 11.0, 20.0), (10.0, 10.0, 20.0)) == (1.0, 1.1, 1.0)
    with pytest.raises(ValueError, match="shorter"):
        ratios((1.0, 2.0), (1.0,))


@pytest.mark.parametrize(
    ("ours", "others", "verdict"),
    [
        ((10.0, 30.0), (10.0, 30.0), Verdict.MET),
        ((10.1, 30.1), (10.0, 30.0), Verdict.FAILED),
        # The median of the ratios, not the ratio of the medians.
        ((9.0, 9.0, 50.0), (10.0, 10.0, 10.0), Verdict.MET),
        # Rounds without a partner do not count.
        ((9.0, 50.0), (10.0,), Verdict.MET),
        ((), (10.0,), Verdict.NOT_MEASURED),
    ],
)
def test_a_ratio_is_judged_by_rounds(
    ours: tuple[float, ...], others: tuple[float, ...], verdict: Verdict
) -> None:
    made = section(*columns(Row.COLD, imagebuilder=ours, mmdebstrap=others))
    assert verdicts({TOOLS: made})["cold build, against mmdebstrap and dracut"] == verdict


def test_first_is_told_against_the_best_of_the_others() -> None:
    what = "best or equal: cold build"
    figures = columns(Row.COLD, imagebuilder=(10.4,), mmdebstrap=(10.0,), mkosi=(30.0,))
    assert verdicts({TOOLS: section(*figures)})[what] == Verdict.MET
    figures = columns(Row.COLD, imagebuilder=(10.6,), mmdebstrap=(10.0,), mkosi=(30.0,))
    assert verdicts({TOOLS: section(*figures)})[what] == Verdict.FAILED
    figures = columns(Row.COLD, imagebuilder=(9.0, 8.0, 8.5), mmdebstrap=(10.0, 11.0, 12.0))
    # One ratio, of two medians: it comes from three runs.
    assert row_of(render_report({TOOLS: section(*figures)}), what)[-2:] == ["3", "reached"]
    # Nothing differs is the best there is: equal to it is first, one path is not.
    same = "best or equal: paths that differ between two cold builds"
    for count, verdict in ((0.0, Verdict.MET), (1.0, Verdict.FAILED)):
        figures = columns(Row.SAME, imagebuilder=(count,), mkosi=(0.0,), debootstrap=(500.0,))
        assert verdicts({TOOLS: section(*figures)})[same] == verdict


def test_a_column_that_broke_breaks_its_goals() -> None:
    broken = Figure(Row.COLD, "mmdebstrap", (10.0,), fault="it ended")
    made = {TOOLS: section(Figure(Row.COLD, OURS, (1.0,)), broken)}
    assert verdicts(made)["cold build, against mmdebstrap and dracut"] == Verdict.BROKEN
    assert not all_met(made, [TOOLS])


def test_sections_are_judged_by_themselves() -> None:
    nights = section(
        Figure("quiet", "generic", (2.0, 3.0)),
        Figure("quiet-bytes", "generic", (0.0, 0.0)),
        Figure("one-package", "libssl3t64", (9.9,)),
    )
    assert all_met({NIGHTS: nights}, [NIGHTS])
    assert not all_met({NIGHTS: nights}, [NIGHTS, OWN])
    published = nights.having([Figure("quiet-bytes", "generic", (0.0, 4096.0))])
    assert not all_met({NIGHTS: published}, [NIGHTS])
    # Of two packages each is judged.
    two = nights.having([Figure("one-package", "openssh-server", (10.1,))])
    assert not all_met({NIGHTS: two}, [NIGHTS])


def test_a_row_in_which_another_is_first_says_so_and_why() -> None:
    figures = [
        *columns(Row.COLD, imagebuilder=(30.0, 34.0), mmdebstrap=(40.0, 41.0)),
        *columns(Row.MEMORY, imagebuilder=(600.0,), mmdebstrap=(200.0,)),
        Figure(Row.LAST, "mmdebstrap", (40.0, 41.0), instead="no incremental build: full rebuild"),
        Figure(Row.LAST, OURS, (2.0, 2.2)),
    ]
    made = section(*figures)
    remarks = {OURS: "0.1.0: as it is", "mmdebstrap": "1.3.5: plain"}
    made = Section(made.date, made.facts, made.subjects, made.figures, remarks)
    page = render_report({TOOLS: made})
    assert row_of(page, "cold build, s") == [
        "cold build, s", "**32.0** (30.0 to 34.0)", "40.5 (40.0 to 41.0)",
    ]  # fmt: skip
    assert row_of(page, "file of the last overlay changed, s")[1:] == [
        "**2.10** (2.00 to 2.20)", "40.5 (40.0 to 41.0), full rebuild",
    ]  # fmt: skip
    why = f"* peak memory of the cold build: mmdebstrap is the best; {WHY[Row.MEMORY]}"
    assert why in page.splitlines()
    assert "* cold build: " not in page.partition("and why:")[2].partition("Notes about cells")[0]
    assert "* mmdebstrap 1.3.5: plain" in page.splitlines()


def test_every_row_that_can_be_lost_has_a_reason() -> None:
    assert set(WHY) == set(Row) == set(ROWS)
    assert set(MAKERS) == set(ROUND_SECONDS)
    assert set(TITLES) == set(SectionName)


def test_a_column_that_broke_says_why_on_one_line() -> None:
    made = section(Figure(Row.COLD, "mkosi", (), fault="it ended\n    badly"))
    page = render_report({TOOLS: made})
    line = "* cold build, mkosi: could not be measured: it ended badly"
    assert line in page.splitlines()


def test_a_figure_of_our_own_is_told_with_what_it_was_computed_from() -> None:
    parts = {"one, MB": (500.0,), "ten, MB": (511.0, 513.0)}
    page = render_report({OWN: section(Figure("size", "generic", (1.1,), parts, "warm"))})
    line = "* size, `generic`: 1.100 times; one, MB 500.00; ten, MB 512.00 (511.00 to 513.00); warm"
    assert line in page.splitlines()
    what = "stored size of ten versions that differ by one file, against one"
    assert row_of(page, what)[1:] == [
        "`generic`", "1.02 times", "1.100 times", "", "1", "**not reached**",
    ]  # fmt: skip


def test_the_page_is_the_json_again() -> None:
    made = {
        TOOLS: section(Figure(Row.COLD, OURS, (1.5, 2.5), {"processor, s": (1.0, 2.0)}, "n", "i")),
        OWN: section(Figure("memory", "generic", (), fault="no /proc")),
    }
    text = report_json(made)
    assert parse_report(text) == made
    assert json.loads(text)["sections"]["tools"]["figures"][0]["values"] == [1.5, 2.5]
    assert render_report(parse_report(text)) == render_report(made)


def test_a_report_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    path.write_text(report_json({}).replace('"schema": 2', '"schema": 1'))
    with pytest.raises(InputError, match="schema is 1"):
        find_report(path)
    path.write_text("{}")
    with pytest.raises(InputError, match="not a report"):
        find_report(path)


def test_without_a_report_the_page_names_every_goal_and_no_figure(tmp_path: Path) -> None:
    write({}, tmp_path)
    page = (tmp_path / PAGE).read_text()
    assert [row_of(page, goal.what)[-1] for goal in GOALS] == ["not measured"] * len(GOALS)
    assert not (tmp_path / JSON).exists()


def test_the_page_in_docs_is_what_its_json_says() -> None:
    found = find_report(CHECKOUT / "docs/benchmarks.json")
    again = "scripts/bench --render docs/benchmarks.json --output docs writes it"
    assert found
    assert (CHECKOUT / "docs/benchmarks.md").read_text() == render_report(found), again


def test_every_row_of_our_own_is_a_goal() -> None:
    assert sorted(own.ROWS) == sorted(goal.row for goal in GOALS if goal.section is OWN)


def test_what_is_measured_is_on_disk_at_once_and_other_tables_stay(tmp_path: Path) -> None:
    write({OWN: section(Figure("plan", "generic", (0.3,)))}, tmp_path)
    recorder = Recorder(tmp_path, TOOLS, section())
    recorder.add(Row.COLD, OURS, 30.0, {"processor, s": 40.0})
    recorder.add(Row.COLD, OURS, 32.0, {"processor, s": 41.0})
    assert TOOLS not in find_report(tmp_path / JSON)
    recorder.save()
    recorder.fault(Row.COLD, "mkosi", "it ended")
    recorder.instead(Row.NOOP, Row.COLD, OURS, "full rebuild")
    recorder.save()
    kept = find_report(tmp_path / JSON)
    assert kept[OWN].figures == (Figure("plan", "generic", (0.3,)),)
    cold = Figure(Row.COLD, OURS, (30.0, 32.0), {"processor, s": (40.0, 41.0)})
    assert kept[TOOLS].find(Row.COLD, OURS) == cold
    assert kept[TOOLS].find(Row.NOOP, OURS) == Figure(
        Row.NOOP, OURS, (30.0, 32.0), instead="full rebuild"
    )
    assert recorder.broken(Row.COLD, "mkosi")
    assert (tmp_path / PAGE).read_text() == render_report(kept)


@pytest.mark.parametrize(
    "wrong",
    [
        ["--sections", "speed"],
        ["--sections", ""],
        ["--tools", "mkosi,"],
        ["--rows", "cold"],
        ["--roots", "iscsi"],
        ["--nodes", "one"],
        ["--nodes", "0"],
        ["--nodes", "9"],
        ["--runs", "0"],
        ["--boot-runs", "0"],
    ],
)
def test_what_cannot_be_measured_is_refused(wrong: list[str]) -> None:
    with pytest.raises(InputError):
        check_asked(parse_arguments(wrong))


def test_what_is_asked_for_is_estimated() -> None:
    asked = ["--sections", "tools,boot", "--runs", "2", "--small"]
    wanted = check_asked(parse_arguments(asked))
    assert list(estimates(wanted)) == [TOOLS, SectionName.BOOT]
    assert not wanted.large
    less = check_asked(parse_arguments([*asked, "--tools", OURS, "--nodes", "1"]))
    for name in (TOOLS, SectionName.BOOT):
        assert estimates(less)[name] < estimates(wanted)[name]
    # The promise for two rounds with everything.
    assert estimates(wanted)[TOOLS] <= 30 * 60


def test_the_script_writes_a_page_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    script: list[Word] = [sys.executable, CHECKOUT / "scripts/bench", "--output", tmp_path / "page"]
    source = tmp_path / "benchmarks.json"
    source.write_text(report_json({OWN: section(Figure("plan", "generic", (0.7,)))}))
    run([*script, "--render", source], cwd=tmp_path)
    page = (tmp_path / "page" / PAGE).read_text()
    assert row_of(page, "`plan`")[-1] == "**not reached**"
    done = run([*script, "--sections", "speed"], cwd=tmp_path, check=False)
    assert done.status == 2
    assert done.stderr.startswith("error: --sections: there is no 'speed'\n  hint: there are tools")


def test_facts_are_read_from_the_kernel_and_from_programs() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: Two Stones 3000\n") == "Two Stones 3000"
    assert cpu_model("CPU implementer : 0x41\n")
    assert memory("MemTotal:       16777216 kB\n") == "16.0 GiB"
    assert version_of(("sh", "-c", "echo \"tool (Debian) Version: '2022.7'\"")) == "2022.7"
    assert version_of(("sh", "-c", "echo 'tool version: tool/1.22.1' >&2")) == "1.22.1"
    assert version_of(("there-is-no-such-tool", "--version")) == "absent"
    assert "there-is-no-such-tool" in absent_program("there-is-no-such-tool")
    assert absent_program("sh") == ""
