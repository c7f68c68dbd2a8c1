# SPDX-License-Identifier: Apache-2.0
"""What scripts/bench measures with: trees, memory, bytes on wires, and what tools are told."""

from __future__ import annotations

import io
import json
import os
import re
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from imagebuilder.digest import Json
from imagebuilder.errors import WorkError
from imagebuilder.process import run
from imagebuilder.ui import Ui
from scripts.benchmark import table
from scripts.benchmark.bed import Bed, Place, add_package
from scripts.benchmark.boot import used_memory
from scripts.benchmark.compare import (
    another_environment,
    differing_lines,
    differing_parts,
    on_another,
)
from scripts.benchmark.figures import Figure, Section, SectionName
from scripts.benchmark.goals import Row
from scripts.benchmark.load import Traffic, http_bytes, processor_seconds, traffic_of
from scripts.benchmark.nights import SUFFIX, ending_of, repack
from scripts.benchmark.own import planned_wrongly
from scripts.benchmark.page import render_report
from scripts.benchmark.page_boot import STAGES, TO_NODES, cpu_of
from scripts.benchmark.record import JSON, Recorder, find_report
from scripts.benchmark.spent import timed
from scripts.benchmark.table import Table
from scripts.benchmark.tools.dib import Dib
from scripts.benchmark.tools.mkosi import Mkosi
from scripts.benchmark.tools.order import DRACUT, check_changed, check_same_work
from scripts.benchmark.tools.tool import MARK, Kind, Made, Order, Outcome
from scripts.benchmark.trees import differing, list_tree, size_of

CHECKOUT = Path(__file__).parents[2]


# --- trees


def make_tree(path: Path) -> Path:
    (path / "etc").mkdir(parents=True)
    (path / "etc/a").write_text("a")
    (path / "etc/a").chmod(0o644)
    (path / "etc/link").symlink_to("a")
    return path


def test_what_differs_between_two_trees_is_named(tmp_path: Path) -> None:
    one, other = make_tree(tmp_path / "one"), make_tree(tmp_path / "other")
    os.utime(other / "etc/a", (0, 0))
    assert differing(list_tree([one]), list_tree([other])) == ()
    (other / "etc/a").write_text("b")
    (other / "etc/new").touch()
    (other / "etc/link").unlink()
    (other / "etc/link").symlink_to("new")
    assert differing(list_tree([one]), list_tree([other])) == ("etc/a", "etc/link", "etc/new")
    (one / "etc").chmod(0o700)
    assert "etc" in differing(list_tree([one]), list_tree([other]))


def test_a_kernel_beside_the_root_is_compared_and_weighed_too(tmp_path: Path) -> None:
    root, kernel = make_tree(tmp_path / "root"), tmp_path / "vmlinuz"
    kernel.write_bytes(b"k" * 100_000)
    made = Made(root, kernel, root / "etc/a")
    assert made.places == (root, kernel)
    before = list_tree(made.places)
    assert size_of(made.places) >= size_of([root]) + 100_000
    kernel.write_bytes(b"x" * 100_000)
    assert differing(before, list_tree(made.places)) == ("vmlinuz",)


def test_hard_links_count_once(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"a" * 1_000_000)
    before = size_of([tmp_path])
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    assert size_of([tmp_path]) < before + 10_000


# --- time and memory


def test_time_and_memory_of_programs_are_counted() -> None:
    spin = (
        "import time; held = bytearray(80 << 20)\n"
        "while time.process_time() < 0.2: pass\ntime.sleep(0.6)"
    )
    spent = timed(lambda: run(["sh", "-c", f"{sys.executable} -c '{spin}'; sleep 0.1"]))
    assert spent.cpu >= 0.2
    assert spent.wall >= 0.9
    assert spent.memory >= 80 << 20


def test_memory_of_others_is_not_counted() -> None:
    ours = bytearray(120 << 20)
    spent = timed(lambda: run(["sleep", "0.7"]))
    assert spent.memory < len(ours)


# --- what every tool is told


def order(tmp_path: Path) -> Order:
    files = tmp_path / "files"
    (files / "etc/default").mkdir(parents=True)
    (files / "etc/default/llama").write_text("A=1\n")
    run(["tar", "--create", f"--file={tmp_path}/boot.tar", f"--directory={files}", "etc"])
    return Order(
        profile="generic", suite="forky", architecture="amd64", packages=("base", "kernel"),
        added="tree", path_excludes=("/usr/share/doc/*/[!c]*",), repository=tmp_path / "repository",
        boot_files=tmp_path / "boot.tar", files=files, changing="/etc/default/llama", epoch=7,
    )  # fmt: skip


def test_tools_must_have_done_the_same_work() -> None:
    ours = Outcome(189, "abc", 50_000_000)
    check_same_work(ours, Outcome(189, "abc", 50_400_000), "mmdebstrap")
    for other in (
        Outcome(188, "abc", 50_000_000),
        Outcome(189, "abd", 50_000_000),
        Outcome(189, "abc", 10_000_000),
    ):
        with pytest.raises(WorkError, match="did not do the same work"):
            check_same_work(ours, other, "mmdebstrap")


def test_a_result_without_the_change_does_not_count(tmp_path: Path) -> None:
    asked = order(tmp_path)
    made = Made(asked.files, tmp_path / "vmlinuz", tmp_path / "initrd.img")
    with pytest.raises(WorkError, match="has it as before"):
        check_changed(made, asked, added=False)
    (asked.files / "etc/default/llama").write_text(f"A=1\n{MARK}\n")
    check_changed(made, asked, added=False)
    (asked.files / "var/lib/dpkg/info").mkdir(parents=True)
    status = "Package: {}\nStatus: install ok installed\nVersion: 1\nArchitecture: all\n\n"
    listed = asked.files / "var/lib/dpkg/status"
    listed.write_text(status.format("base"))
    with pytest.raises(WorkError, match="tree was asked for"):
        check_changed(made, asked, added=True)
    listed.write_text(status.format("base") + status.format("tree"))
    check_changed(made, asked, added=True)


def test_dracut_has_the_words_of_the_step() -> None:
    # Python joins the strings of the step's script: so does this.
    source = re.sub(r"'\n\s*'", "", (CHECKOUT / "imagebuilder/steps/initrd.py").read_text())
    assert f'{DRACUT} "$1"' in source


def test_mkosi_is_told_all_of_the_order(tmp_path: Path) -> None:
    asked, folder = order(tmp_path), tmp_path / "mkosi"
    folder.mkdir()
    tool = Mkosi()
    tool.begin(asked, folder, tmp_path / "log")
    text = (folder / "mkosi.conf").read_text()
    assert "Packages=base\n         kernel\n" in text
    for line in ("Incremental=yes", "Release=forky", "SourceDateEpoch=7", "Format=directory"):
        assert line in text.splitlines()
    assert (folder / "skeleton/etc/default/llama").exists()
    tool.change(Kind.LAST)
    assert MARK in (folder / "extra/etc/default/llama").read_text()
    assert MARK not in (asked.files / "etc/default/llama").read_text()
    tool.change(Kind.MIDDLE)
    assert "kernel\n         tree\n" in (folder / "mkosi.conf").read_text()


def test_diskimage_builder_gets_an_element_whose_hooks_shells_can_read(tmp_path: Path) -> None:
    asked, folder = order(tmp_path), tmp_path / "dib"
    folder.mkdir()
    tool = Dib()
    tool.begin(asked, folder, tmp_path / "log")
    element = folder / "elements/bench"
    hooks = sorted(p for p in element.rglob("*") if p.is_file() and os.access(p, os.X_OK))
    assert [hook.parent.name for hook in hooks] == ["finalise.d", "root.d", "root.d"]
    for hook in hooks:
        run(["bash", "-n", hook])
    assert (folder / "packages").read_text() == "base,kernel\n"
    tool.change(Kind.MIDDLE)
    assert (folder / "packages").read_text() == "base,kernel,tree\n"
    tool.change(Kind.LAST)
    assert MARK in (folder / "extra/etc/default/llama").read_text()


# --- bytes, load, nights


def test_bytes_on_the_wires_of_the_machines_are_summed() -> None:
    def link(name: str, sent: int, received: int) -> dict[str, Json]:
        return {"ifname": name, "stats64": {"tx": {"bytes": sent}, "rx": {"bytes": received}}}

    shown = json.dumps([link("lo", 9, 9), link("tap1", 100, 10), link("tap2", 200, 20)])
    assert traffic_of(shown, frozenset(("tap1", "tap2"))) == Traffic(300, 30)


def test_what_the_web_server_sent_is_read_from_its_log() -> None:
    log = (
        "10.77.0.11 200 14550976 0.412 /releases/generic/1/vmlinuz\n"
        "10.77.0.11 404 153 0.000 /nodes/x 1\n"
        "2026/11/22 12:00:00 [notice] 1#1: start\n"
        "10.77.0.11 206 24 0.000 /nodes/a/node.img\n"
    )
    assert http_bytes(log) == 14550976 + 24


def test_processor_time_is_read_after_a_name_with_spaces() -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    stat = f"7 (nginx: a) b) S {' '.join(['0'] * 10)} {3 * ticks} {2 * ticks} 9 9 20 0"
    assert processor_seconds(stat) == 5.0


def test_the_memory_of_a_node_is_what_it_cannot_give() -> None:
    assert used_memory("MemTotal: 2000 kB\nMemFree: 1 kB\nMemAvailable: 1500 kB\n") == 512_000
    with pytest.raises(WorkError, match="does not tell"):
        used_memory("nothing\n")


def test_a_repacked_package_is_of_another_version_and_content(tmp_path: Path) -> None:
    control = "Package: a\nVersion: 1.2-3\nArchitecture: all\nMaintainer: m\nDescription: d\n"
    tree = tmp_path / "tree"
    (tree / "DEBIAN").mkdir(parents=True)
    (tree / "DEBIAN/control").write_text(control)
    (tree / "usr").mkdir()
    (tree / "usr/file").write_text("content")
    run(["dpkg-deb", "--build", tree, tmp_path / "a.deb"])
    work = tmp_path / "work"
    work.mkdir()
    made = repack(tmp_path / "a.deb", work)
    assert run(["dpkg-deb", "--field", made, "Version"]).stdout == f"1.2-3{SUFFIX}\n"
    assert run(["dpkg-deb", "--fsys-tarfile", made]).stdout.count("content\n") == 1
    said = run(["dpkg-deb", "--info", made, "md5sums"]).stdout
    assert re.fullmatch(r"[0-9a-f]{32}  usr/file\n", said)


def test_how_a_night_ended_is_read_by_profile() -> None:
    said: dict[str, Json] = {"profiles": [{"profile": "generic", "ending": "unchanged"}]}
    assert ending_of(said, "generic") == "unchanged"
    with pytest.raises(WorkError, match="nothing of l40s"):
        ending_of(said, "l40s")


def test_boots_are_told_by_stage_and_by_node() -> None:
    parts = {name: (float(10 * number),) for number, name in enumerate(STAGES, 1)}
    parts |= {TO_NODES: (400.0,), cpu_of("ganesha"): (1.5,)}
    figures = (
        Figure("nfs", "1", (50.0,), {**parts, TO_NODES: (110.0,)}),
        Figure("nfs", "4", (50.0, 60.0), {**parts, "ssh": (50.0, 60.0)}),
        Figure("http", "4", (), fault="stage root: nothing"),
    )
    made = Section("now", {}, {}, figures, {"acceleration": "tcg (no /dev/kvm)"})
    lines = render_report({SectionName.BOOT: made}).splitlines()
    assert "Acceleration: tcg (no /dev/kvm)." in lines
    assert "| nfs | 1 | 10.0 | 20.0 | 30.0 | 40.0 | 50.0 | 1 |" in lines
    assert "| nfs | 4 | 10.0 | 20.0 | 30.0 | 40.0 | 55.0 (50.0 to 60.0) | 2 |" in lines
    assert "| nfs | 110.0 | 100.0 |" in lines
    assert "* http, 4 nodes: stage root: nothing" in lines
    # A cell that was measured again stands where it stood.
    again = replace(made, figures=figures[::-1])
    assert render_report({SectionName.BOOT: again}).splitlines() == lines
    one = replace(made, figures=figures[:1])
    assert "nothing" not in render_report({SectionName.BOOT: one}).partition("## Power-on")[2]


# --- our own rows


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
    said = run(
        [sys.executable, "-c", script], env={"PYTHONPATH": os.fspath(CHECKOUT)}, cwd=CHECKOUT
    )
    peak, living = map(int, said.stdout.split())
    assert 5 << 20 < peak < 190 << 20
    assert living == 0


def test_forks_of_a_process_count_with_it() -> None:
    script = (
        "import os, time; from pathlib import Path; from scripts.benchmark.peak import *; "
        "print(forked_now()); reading, writing = os.pipe(); pid = os.fork(); "
        "big = b'' if pid else bytes(bytearray(b'x') * (100 << 20)); "
        "pid or os.write(writing, b'x'); pid or time.sleep(60); os.read(reading, 1); "
        "print(forked_now() > 100 << 20); os.kill(pid, 9)"
    )
    said = run(
        [sys.executable, "-c", script], env={"PYTHONPATH": os.fspath(CHECKOUT)}, cwd=CHECKOUT
    )
    assert said.stdout == "0\nTrue\n"


def test_living_children_are_found() -> None:
    script = (
        "import subprocess; from pathlib import Path; from scripts.benchmark.peak import *; "
        "sleeper = subprocess.Popen(['sleep', '60']); "
        "found = children(Path('/proc/self')); "
        "print([p.name for p in found] == [str(sleeper.pid)], peak_of(found[0]) > 0); "
        "sleeper.kill(); sleeper.wait()"
    )
    said = run(
        [sys.executable, "-c", script], env={"PYTHONPATH": os.fspath(CHECKOUT)}, cwd=CHECKOUT
    )
    assert said.stdout == "True True\n"


# --- the build table


class Copier:
    """A tool that takes a folder as it is: `broken` says at which kind it fails, `odd` adds a
    path that is another in each build."""

    full: Mapping[Kind, str] = {Kind.MIDDLE: "it has no layers"}
    notes = "copies"

    def __init__(self, name: str, told: list[str], *, broken: str = "", odd: bool = False) -> None:
        self.name, self.told, self.broken, self.odd = name, told, broken, odd

    def version(self) -> str:
        return "1.0"

    def missing(self) -> str:
        return "it is not installed" if self.broken == "missing" else ""

    def begin(self, order: Order, folder: Path, log: Path) -> None:
        del log
        self.order, self.folder = order, folder
        self.source = folder / "source"
        shutil.copytree(order.files, self.source)

    def change(self, kind: Kind) -> None:
        assert kind is Kind.LAST
        path = self.source / "etc/default/llama"
        path.write_text(f"{path.read_text()}{MARK}\n")

    def build(self, kind: Kind) -> None:
        self.told.append(f"{self.name} {kind}")
        if kind == self.broken:
            raise WorkError("it ended")
        if self.broken == f"{kind} interrupted":
            raise KeyboardInterrupt
        root = self.folder / "root"
        shutil.copytree(self.source, root, dirs_exist_ok=True)
        if self.odd:
            (root / f"odd-{len(self.told)}").touch()

    def made(self) -> Made:
        root = self.folder / "root"
        return Made(root, root / "boot/vmlinuz-1", root / "boot/initrd.img")

    def end(self) -> None:
        shutil.rmtree(self.folder)


def bootable(tmp_path: Path) -> Order:
    asked = order(tmp_path)
    for name in ("boot/vmlinuz-1", "boot/initrd.img", "var/lib/dpkg/status"):
        (asked.files / name).parent.mkdir(parents=True, exist_ok=True)
        (asked.files / name).write_text("")
    (asked.files / "var/lib/dpkg/info").mkdir()
    return asked


def measured(tmp_path: Path, tools: list[Copier], runs: int) -> Section:
    recorder = Recorder(tmp_path / "out", SectionName.TOOLS, Section("now", {}, {}))
    table = Table(tmp_path / "top", Ui.for_stream(io.StringIO(), {}), recorder)
    table.measure(tools, bootable(tmp_path), runs)
    return find_report(tmp_path / "out" / JSON)[SectionName.TOOLS]


def test_tools_take_turns_and_each_round_begins_with_another(tmp_path: Path) -> None:
    told: list[str] = []
    made = measured(tmp_path, [Copier("a", told), Copier("b", told, odd=True)], 2)
    kinds = ("cold", "noop", "last")
    assert told == [f"{name} {kind}" for name in "abba" for kind in kinds]
    for row in (Row.COLD, Row.NOOP, Row.LAST, Row.SIZE, Row.MEMORY):
        assert [len(figure.values) for figure in made.columns(row)] == [2, 2]
    same = {figure.column: figure for figure in made.columns(Row.SAME)}
    assert same["a"].values == (0.0,)
    assert same["b"].values == (2.0,)
    assert "odd-" in same["b"].note
    full = made.find(Row.MIDDLE, "a")
    cold = made.find(Row.COLD, "a")
    assert full
    assert cold
    assert (full.values, full.instead) == (cold.values, "it has no layers")


def test_a_tool_that_fails_keeps_what_it_reached_and_stops_no_other(tmp_path: Path) -> None:
    told: list[str] = []
    tools = [
        Copier("last", told, broken="last"),
        Copier("cold", told, broken="cold"),
        Copier("gone", told, broken="missing"),
        Copier("well", told),
    ]
    made = measured(tmp_path, tools, 2)
    faults = {(f.row, f.column): f.fault for f in made.figures if f.fault}
    assert faults == {
        (Row.LAST, "last"): "it ended",
        (Row.COLD, "cold"): "it ended",
        (Row.MIDDLE, "cold"): "it ended",
        (Row.COLD, "gone"): "it is not installed",
    }
    assert told.count("cold cold") == 1
    for name in ("last", "well"):
        figure = made.find(Row.COLD, name)
        assert figure
        assert len(figure.values) == 2


def test_a_tool_that_made_something_else_does_not_count(tmp_path: Path) -> None:
    class Other(Copier):
        def build(self, kind: Kind) -> None:
            super().build(kind)
            (self.folder / "root/boot/vmlinuz-1").write_text("another")

    made = measured(tmp_path, [Copier("a", []), Other("b", [])], 1)
    figure = made.find(Row.COLD, "b")
    assert figure
    assert "did not do the same work: another kernel" in figure.fault


def test_half_a_round_is_not_kept_and_the_rest_is_resumed(tmp_path: Path) -> None:
    told: list[str] = []
    tools = [Copier("a", told), Copier("b", told, broken="noop interrupted")]
    with pytest.raises(KeyboardInterrupt):
        measured(tmp_path, tools, 1)
    kept = find_report(tmp_path / "out" / JSON)[SectionName.TOOLS]
    assert {figure.column for figure in kept.figures} == {"a"}
    told.clear()
    recorder = Recorder(tmp_path / "out", SectionName.TOOLS, kept)
    table = Table(tmp_path / "top", Ui.for_stream(io.StringIO(), {}), recorder)
    asked = bootable(tmp_path / "again")
    table.measure([Copier("a", told), Copier("b", told)], asked, 1)
    assert told == ["b cold", "b noop", "b last"]


def test_the_added_package_is_there_on_a_machine_that_never_had_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A place is made of links to the pool: of what is in it at that moment."""
    pool, state = tmp_path / "pool", tmp_path / "state"

    class Fetching:
        top = tmp_path

        def wider(self, _: str) -> SimpleNamespace:
            pool.mkdir()
            (pool / "tree.deb").touch()
            return SimpleNamespace(added=("tree",))

        def fresh(self, _: str) -> SimpleNamespace:
            shutil.copytree(pool, state / "debs")
            return SimpleNamespace(state=state, recipe=str, lock=str)

    def see(recipe: str, lock: str, more: object, debs: Path, folder: Path) -> list[str]:
        del recipe, lock, more, folder
        return [path.name for path in debs.iterdir()]

    monkeypatch.setattr(table, "make_order", see)
    assert cast("object", table.order_of(cast("Bed", Fetching()), "generic")) == ["tree.deb"]


def test_what_is_measured_keeps_its_bytecode(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """scripts/bench itself leaves none, and programs inherit that."""
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    Place(tmp_path, CHECKOUT, tmp_path / "state")("--version")
    found = {path.name.partition(".")[0] for path in (tmp_path / "bytecode").rglob("*.pyc")}
    assert {"main", "core"} <= found, "ours and those of libraries"
