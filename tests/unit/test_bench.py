# SPDX-License-Identifier: Apache-2.0
"""The pure parts of scripts/bench: what a figure is worth, and how it is told."""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

import pytest

from imagebuilder.digest import Json
from imagebuilder.errors import InputError, WorkError
from imagebuilder.process import Word, run
from scripts.benchmark.compare import (
    another_environment,
    differing_lines,
    differing_parts,
    on_another,
)
from scripts.benchmark.facts import cpu_model, memory, version_of
from scripts.benchmark.figures import (
    GOALS,
    Figure,
    Report,
    Verdict,
    all_met,
    judge,
    parse_report,
    ratios,
    render_report,
    report_json,
)
from scripts.benchmark.main import find_report, parse_rows, write
from scripts.benchmark.plain import DRACUT, Outcome, check_same_work
from scripts.benchmark.rows import (
    PLAIN,
    ROWS,
    Spent,
    add_package,
    compare,
    planned_wrongly,
    timed,
)

HOUSE = Path(__file__).parents[2]
HOST = {"processor": "two stones", "load before": "0.01"}


def report(*figures: Figure) -> Report:
    return Report("2026-11-21 12:00 UTC", HOST, {"generic": "5 packages"}, figures)


def row_of(page: str, row: str) -> list[str]:
    """The cells of a row of the table."""
    (line,) = [line for line in page.splitlines() if line.startswith(f"| {row} |")]
    return [cell.strip() for cell in line.strip("|").split("|")]


def test_ratios_pair_runs_that_took_turns() -> None:
    # The machine was half as fast in the last round: neither side gains by it.
    assert ratios((10.0, 11.0, 20.0), (10.0, 10.0, 20.0)) == (1.0, 1.1, 1.0)


def test_ratios_refuse_runs_without_a_partner() -> None:
    with pytest.raises(ValueError, match="shorter"):
        ratios((1.0, 2.0), (1.0,))


@pytest.mark.parametrize(
    ("figure", "verdict"),
    [
        (Figure("mmdebstrap", "generic", (1.0, 1.15, 9.0)), Verdict.MET),
        (Figure("mmdebstrap", "generic", (1.0, 1.1501, 1.2)), Verdict.FAILED),
        (Figure("same", "generic", (0.0,)), Verdict.MET),
        (Figure("same", "generic", (1.0,)), Verdict.FAILED),
        (Figure("file", "rx7600xt", ()), Verdict.NOT_MEASURED),
        # What was measured before it broke does not count as measured.
        (Figure("debootstrap", "generic", (0.1,), fault="it ended"), Verdict.BROKEN),
    ],
)
def test_the_median_is_judged(figure: Figure, verdict: Verdict) -> None:
    assert judge(figure) is verdict
    assert all_met([figure]) is (verdict is Verdict.MET)


def test_a_failed_goal_is_shown_as_failed() -> None:
    page = render_report(
        report(
            Figure("unchanged", "generic", (0.4, 0.5, 0.6)),
            Figure("file", "rx7600xt", (9.9, 10.004, 12.0)),
        )
    )
    assert row_of(page, "unchanged")[3:] == [
        "at most 1 s", "0.50 s", "0.40 s to 0.60 s", "3", "met",
    ]  # fmt: skip
    # Shown as 10.00, judged as it is.
    assert row_of(page, "file")[3:] == [
        "at most 10 s", "10.00 s", "9.90 s to 12.00 s", "3", "**failed**",
    ]  # fmt: skip


def test_a_row_that_broke_says_why_on_one_line() -> None:
    page = render_report(report(Figure("debootstrap", "generic", (), fault="it ended\n    badly")))
    assert row_of(page, "debootstrap")[-1] == "**could not be measured**"
    assert "* debootstrap, `generic`: it ended badly" in page.splitlines()


def test_what_a_figure_was_computed_from_is_told() -> None:
    parts = {"imagebuilder, s": (30.0, 33.0, 31.0), "mmdebstrap, s": (30.0,)}
    page = render_report(report(Figure("mmdebstrap", "generic", (1.1,), parts, note="warm")))
    expected = (
        "* mmdebstrap, `generic`: imagebuilder, s 31.00 (30.00 to 33.00); mmdebstrap, s 30.00; warm"
    )
    assert expected in page.splitlines()
    assert row_of(page, "mmdebstrap")[4:] == ["1.100 times", "", "1", "met"]


def test_a_goal_of_two_profiles_has_two_rows() -> None:
    page = render_report(
        report(Figure("same", "generic", (0.0,)), Figure("same", "rx7600xt", (2.0,)))
    )
    rows = [line for line in page.splitlines() if line.startswith("| same |")]
    assert [line.split("|")[-2].strip() for line in rows] == ["met", "**failed**"]


def test_the_page_is_the_json_again() -> None:
    figures = (
        Figure("mmdebstrap", "generic", (1.1, 1.2), {"mmdebstrap, s": (1.0, 2.0)}, "n"),
        Figure("memory", "generic", (), fault="no /proc"),
    )
    made = report(*figures)
    text = report_json(made)
    assert parse_report(text) == made
    first = json.loads(text)["figures"][0]
    assert first["values"] == [1.1, 1.2]
    assert first["verdict"] == "MET"
    assert first["goal"]["limit"] == 1.15


def test_a_report_of_another_schema_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "benchmarks.json"
    path.write_text(report_json(report()).replace('"schema": 1', '"schema": 2'))
    with pytest.raises(InputError, match="schema is 2"):
        find_report(path)
    path.write_text("{}")
    with pytest.raises(InputError, match="not a report"):
        find_report(path)


def test_without_a_report_the_page_names_every_goal_and_no_figure(tmp_path: Path) -> None:
    write(None, tmp_path)
    page = (tmp_path / "benchmarks.md").read_text()
    assert [row_of(page, goal.row)[-1] for goal in GOALS] == ["not measured"] * len(GOALS)
    assert not (tmp_path / "benchmarks.json").exists()


def test_the_page_in_docs_is_what_its_json_says() -> None:
    found = find_report(HOUSE / "docs/benchmarks.json")
    again = "scripts/bench --render docs/benchmarks.json --output docs writes it"
    assert (HOUSE / "docs/benchmarks.md").read_text() == render_report(found), again


def test_every_goal_is_a_row_and_every_row_a_goal() -> None:
    assert sorted((*PLAIN, *ROWS)) == sorted(goal.row for goal in GOALS)
    assert parse_rows("plan, same") == ("plan", "same")
    for wrong in ("plan,speed", "", "plan,"):
        with pytest.raises(InputError, match="no row"):
            parse_rows(wrong)


def test_the_script_writes_a_page_and_refuses_what_it_does_not_know(tmp_path: Path) -> None:
    script: list[Word] = [sys.executable, HOUSE / "scripts/bench", "--output", tmp_path / "page"]
    source = tmp_path / "benchmarks.json"
    source.write_text(report_json(report(Figure("plan", "generic", (0.7,)))))
    run([*script, "--render", source], cwd=tmp_path)
    page = (tmp_path / "page/benchmarks.md").read_text()
    assert row_of(page, "plan")[-1] == "**failed**"
    done = run([*script, "--rows", "speed"], cwd=tmp_path, check=False)
    assert done.status == 2
    assert done.stderr.startswith("error: no row 'speed'\n  hint: rows are mmdebstrap, ")


def test_plain_engines_must_have_done_the_same_work() -> None:
    ours = Outcome(189, "abc", 50_000_000)
    check_same_work(ours, Outcome(189, "abc", 50_400_000), "mmdebstrap")
    for other in (
        Outcome(188, "abc", 50_000_000),
        Outcome(189, "abd", 50_000_000),
        Outcome(189, "abc", 10_000_000),
    ):
        with pytest.raises(WorkError, match="did not do the same work"):
            check_same_work(ours, other, "mmdebstrap")


def test_the_plain_dracut_has_the_words_of_the_step() -> None:
    # Python joins the strings of the step's script: so does this.
    source = re.sub(r"'\n\s*'", "", (HOUSE / "imagebuilder/steps/initrd.py").read_text())
    assert f'{DRACUT} "$1"' in source


def test_a_comparison_tells_clock_and_processors() -> None:
    ours, plain = [Spent(10, 15), Spent(30, 16)], [Spent(20, 15), Spent(20, 14)]
    figure = compare("mmdebstrap", ours, plain, "")
    assert figure.values == (0.5, 1.5)
    assert figure.parts["imagebuilder, s"] == (10, 30)
    assert figure.parts["mmdebstrap, processor s"] == (15, 14)
    broken = compare("debootstrap", ours, plain[:1], "it ended")
    assert broken.values == (0.5,)
    assert judge(broken) is Verdict.BROKEN


def test_the_processor_time_of_programs_is_counted() -> None:
    spin = "import time\nwhile time.process_time() < 0.2: pass"
    spent = timed(lambda: run(["sh", "-c", f"{sys.executable} -c '{spin}'; sleep 0.1"]))
    assert spent.cpu >= 0.2
    assert spent.wall >= 0.3


def test_steps_planned_wrongly_are_named() -> None:
    def steps(*actions: str) -> list[dict[str, Json]]:
        titles = ("base b", "packages a", "packages b", "finalise")
        return [{"title": t, "action": a} for t, a in zip(titles, actions, strict=True)]

    assert planned_wrongly(steps("REUSE", "REUSE", "BUILD", "BUILD"), "packages b") == []
    assert planned_wrongly(steps("BUILD", "REUSE", "BUILD", "REUSE"), "packages b") == [
        "base b",
        "finalise",
    ]
    assert planned_wrongly(steps("REUSE", "REUSE", "REUSE", "REUSE"), "packages c") == [
        "packages c"
    ]


@pytest.mark.parametrize("listed", ["packages: [ssh]\n", "packages:\n  - ssh  # needed\n"])
def test_a_package_is_added_to_an_overlay(tmp_path: Path, listed: str) -> None:
    path = tmp_path / "overlay.yaml"
    path.write_text(f"description: x\n{listed}")
    add_package(path, "tree")
    assert "tree" in path.read_text()
    assert path.read_text().startswith("description: x\npackages:")


def manifest(
    root: str = "r", initrd: str = "i", kernel: str = "k", **more: Json
) -> dict[str, Json]:
    return {
        "root": {"commit": root},
        "kernel": {
            "initrd": {"sha256": initrd, "size": 1},
            "vmlinuz": {"sha256": kernel, "size": 1},
        },
        **more,
    }


def test_parts_that_differ_are_named() -> None:
    assert differing_parts(manifest(), manifest()) == ()
    assert differing_parts(manifest(), manifest("x", "y", "z")) == ("root", "initrd", "kernel")
    assert differing_parts(manifest(), manifest(initrd="y")) == ("initrd",)
    assert differing_parts(manifest(), manifest(version="2")) == ("manifest",)


def test_paths_that_differ_are_named_with_what_differs() -> None:
    checksums = ["a" * 64, "b" * 64, "c" * 64]
    one = (
        f"d00755 0 0      0 {checksums[0]} {checksums[1]} {{ @a(ayay) [] }} /etc\n"
        f"-00644 0 0     12 {checksums[0]} {{ @a(ayay) [] }} /etc/a b\n"
        f"l00777 0 0      0 {checksums[0]} {{ @a(ayay) [] }} /etc/c -> d\n"
        f"-00644 0 0     12 {checksums[0]} {{ @a(ayay) [] }} /etc/gone\n"
    )
    # Only the checksum of the folder, the content of a file, the mode of none.
    other = (
        f"d00755 0 0      0 {checksums[2]} {checksums[1]} {{ @a(ayay) [] }} /etc\n"
        f"-00644 0 0     12 {checksums[1]} {{ @a(ayay) [] }} /etc/a b\n"
        f"l00777 0 0      0 {checksums[0]} {{ @a(ayay) [] }} /etc/c -> d\n"
    )
    lines = differing_lines(one, other)
    assert [line.partition(":")[0] for line in lines] == ["/etc/a b", "/etc/gone"]
    assert lines[1].endswith("| absent")
    assert differing_lines(one, one) == ()
    moded = one.replace("d00755", "d00700")
    (line,) = differing_lines(one, moded)
    assert line.startswith("/etc: d00755")


def test_another_builder_has_another_world(tmp_path: Path) -> None:
    environment = another_environment(tmp_path)
    assert environment["TMPDIR"].startswith(os.fspath(tmp_path))
    assert Path(environment["TMPDIR"]).is_dir()
    words = on_another(["date", "+%Z"])
    # All but the namespace, which needs root; the host's name is not ours to change here.
    inside = words[words.index("sh") :]
    inside[2] = str(inside[2]).replace("hostname another-builder;", "")
    assert inside[-2:] == ["date", "+%Z"]
    shown = [*inside[:-2], "sh", "-c", "umask; nproc; date +%z"]
    assert run(shown, env=environment).stdout.split() == ["0077", "1", "+1400"]


def test_peak_memory_is_that_of_one_process_alone() -> None:
    script = (
        "import subprocess, sys; from pathlib import Path; from scripts.benchmark.peak import *; "
        "subprocess.run([sys.executable, '-c', 'bytearray(200 << 20)']); "
        "print(peak_of(Path('/proc/self')), len(children(Path('/proc/self'))))"
    )
    said = run([sys.executable, "-c", script], env={"PYTHONPATH": os.fspath(HOUSE)}, cwd=HOUSE)
    peak, living = map(int, said.stdout.split())
    assert 5 << 20 < peak < 190 << 20
    assert living == 0


def test_living_children_are_found() -> None:
    script = (
        "import subprocess; from pathlib import Path; from scripts.benchmark.peak import *; "
        "sleeper = subprocess.Popen(['sleep', '60']); "
        "found = children(Path('/proc/self')); "
        "print([p.name for p in found] == [str(sleeper.pid)], peak_of(found[0]) > 0); "
        "sleeper.kill(); sleeper.wait()"
    )
    said = run([sys.executable, "-c", script], env={"PYTHONPATH": os.fspath(HOUSE)}, cwd=HOUSE)
    assert said.stdout == "True True\n"


def test_facts_are_read_from_the_kernel_and_from_programs() -> None:
    assert cpu_model("processor\t: 0\nmodel name\t: Two Stones 3000\n") == "Two Stones 3000"
    assert cpu_model("CPU implementer : 0x41\n")
    assert memory("MemTotal:       16777216 kB\n") == "16.0 GiB"
    assert version_of(("sh", "-c", "echo \"tool (Debian) Version: '2022.7'\"")) == "2022.7"
    assert version_of(("there-is-no-such-tool", "--version")) == "absent"
