# SPDX-License-Identifier: Apache-2.0
"""The command line of the benchmark: which tables, where, and what comes out."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.boot.acceleration import emulated
from imagebuilder.boot.machine import Firmware
from imagebuilder.errors import ImagebuilderError, InputError, WorkError
from imagebuilder.rights import check_root
from imagebuilder.rootkind import KINDS
from imagebuilder.store.workplace import remove_tree
from imagebuilder.ui import Ui, format_duration
from scripts.benchmark import boot, nights, own, table
from scripts.benchmark.bed import CHECKOUT, Asked, Bed, check_space
from scripts.benchmark.boot import BootAsked, Boots
from scripts.benchmark.facts import host_facts
from scripts.benchmark.figures import Figure, Section, SectionName
from scripts.benchmark.goals import all_met
from scripts.benchmark.nights import Nights
from scripts.benchmark.page import render_report
from scripts.benchmark.record import JSON, Recorder, find_report, write
from scripts.benchmark.table import MAKERS, Table, order_of

SMALL, LARGE = "generic", "rx7600xt"
# What the tables of one profile, and of both, need at most at one time, in bytes.
SPACE_SMALL, SPACE_BOTH = 12 * 10**9, 30 * 10**9
DEFAULT_OUTPUT = CHECKOUT / "build/bench"


def parse_arguments(argv: Sequence[str]) -> argparse.Namespace:
    """The options."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench",
        description="Measure imagebuilder beside other tools, and against its goals; needs root.",
        epilog="ends with 0 when every goal of what was measured is reached, 1 when one is not, "
        "3 on an unfit host",
    )
    names = ",".join(SectionName)
    tools = ",".join(MAKERS)
    parser.add_argument("--sections", default=names, help=f"tables to measure, of {names}")
    parser.add_argument("--runs", type=int, default=3, help="rounds of what takes long (3)")
    parser.add_argument("--tools", default=tools, help=f"columns of the build table, of {tools}")
    parser.add_argument("--rows", default="", help=f"of the table own: {','.join(own.ROWS)}")
    parser.add_argument("--profile", default=SMALL, help=f"what is built ({SMALL})")
    parser.add_argument("--small", action="store_true", help=f"leave {LARGE} out of the table own")
    parser.add_argument("--boot-runs", type=int, default=1, help="boots of each cell (1)")
    parser.add_argument("--nodes", default="1,2,4", help="machines at once (1,2,4)")
    parser.add_argument("--roots", default=",".join(KINDS), help=f"of {','.join(KINDS)}")
    parser.add_argument("--firmware", default="uefi", choices=[*Firmware], help="of the machines")
    parser.add_argument("--output", type=Path, default=DEFAULT_OUTPUT, help="folder for the result")
    parser.add_argument("--pool", type=Path, help="a filled pool (debs/, wheels/) to begin with")
    parser.add_argument("--work", type=Path, help="where to work; stays, with its pool")
    parser.add_argument(
        "--resume", action="store_true", help="leave what the output has of these tables already"
    )
    parser.add_argument("--estimate", action="store_true", help="only say how long it would take")
    parser.add_argument(
        "--render",
        type=Path,
        help="only write the page of this JSON, or of the goals if there is no such file",
    )
    return parser.parse_args(argv)


@dataclass(frozen=True)
class Wanted:
    """What was asked for, checked."""

    sections: tuple[SectionName, ...]
    runs: int
    tools: tuple[str, ...]
    rows: tuple[str, ...]
    profiles: tuple[str, ...]
    boot: BootAsked

    @property
    def large(self) -> bool:
        """Whether the large profile is built."""
        return SectionName.OWN in self.sections and len(self.profiles) > 1


def check_asked(given: argparse.Namespace) -> Wanted:
    """What the options ask for.  Raises InputError."""
    if given.runs < 1 or given.boot_runs < 1:
        raise InputError("--runs and --boot-runs must be 1 or more")
    try:
        nodes = tuple(int(word) for word in given.nodes.split(","))
    except ValueError as error:
        raise InputError(f"--nodes: {error}") from error
    if not all(1 <= many <= 8 for many in nodes):
        raise InputError("--nodes must be of 1 to 8")
    sections = choose("--sections", given.sections, [str(name) for name in SectionName])
    profile = given.profile
    profiles = (profile,) if given.small or profile != SMALL else (SMALL, LARGE)
    return Wanted(
        sections=tuple(map(SectionName, sections)),
        runs=given.runs,
        tools=choose("--tools", given.tools, list(MAKERS)),
        rows=choose("--rows", given.rows or ",".join(own.ROWS), list(own.ROWS)),
        profiles=profiles,
        boot=BootAsked(
            profile,
            choose("--roots", given.roots, list(KINDS)),
            nodes,
            given.boot_runs,
            Firmware(given.firmware),
        ),
    )


def choose(option: str, text: str, known: Sequence[str]) -> tuple[str, ...]:
    """The names in a list with commas.  Raises InputError for one there is not, or for none."""
    wanted = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    if unknown := [name for name in wanted if name not in known]:
        what = f"{option}: there is no {', '.join(unknown)!r}"
        raise InputError(what, hint=f"there are {', '.join(known)}")
    return wanted


def estimates(wanted: Wanted) -> Mapping[SectionName, float]:
    """Seconds of each table that is asked for, by earlier runs on two cores, machines emulated."""
    seconds = {
        SectionName.TOOLS: table.estimate(wanted.tools, wanted.runs),
        SectionName.NIGHTS: nights.ESTIMATE_SECONDS,
        SectionName.BOOT: boot.estimate(wanted.boot, emulated("the slower of the two")),
        SectionName.OWN: own.estimate(wanted.rows, wanted.runs, large=wanted.large),
    }
    return {name: seconds[name] for name in SectionName if name in wanted.sections}


def tell_estimate(wanted: Wanted) -> None:
    """Say how long it takes."""
    found = estimates(wanted)
    for name, seconds in found.items():
        how = ", machines emulated; a quarter of it with KVM" if name is SectionName.BOOT else ""
        print(f"{name}: about {format_duration(seconds)}{how}", file=sys.stderr)
    print(f"all: about {format_duration(sum(found.values()))}", file=sys.stderr)


@contextmanager
def workbench(given: Path | None) -> Iterator[Path]:
    """The folder to work in: the person's, or one that is gone at the end."""
    if given:
        given.mkdir(parents=True, exist_ok=True)
        yield given.resolve()
        return
    # /tmp is often in memory; an overlayfs and hard links of gigabytes belong on a disk.
    top = Path(tempfile.mkdtemp(prefix="imagebuilder-bench-", dir="/var/tmp"))
    # apt reads archives as a user of its own.
    top.chmod(0o755)
    try:
        yield top
    finally:
        remove_tree(top)


def begin(wanted: Wanted, name: SectionName, bed: Bed, output: Path, *, resume: bool) -> Recorder:
    """The recorder of a table: empty, or to resume with what the output has, less its faults."""
    profiles = wanted.profiles if name is SectionName.OWN else wanted.profiles[:1]
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    section = Section(date=now, facts=host_facts(bed.top), subjects=bed.facts(profiles))
    kept = find_report(output / JSON).get(name) if resume else None
    if kept:
        whole = (replace(figure, fault="") for figure in kept.figures)
        section = replace(
            section,
            date=f"{kept.date}, resumed {now}",
            figures=tuple(figure for figure in whole if figure.values),
            remarks=kept.remarks,
        )
    return Recorder(output, name, section)


def measure_tools(bed: Bed, wanted: Wanted, recorder: Recorder) -> None:
    """The build table."""
    tools = [MAKERS[name](bed) for name in wanted.tools]
    order = order_of(bed, wanted.profiles[0])
    Table(bed.top, bed.ui, recorder).measure(tools, order, wanted.runs)


def measure_nights(bed: Bed, wanted: Wanted, recorder: Recorder) -> None:
    """Nights."""
    Nights(bed, wanted.profiles[0], recorder).measure(wanted.runs)


def measure_boots(bed: Bed, wanted: Wanted, recorder: Recorder) -> None:
    """The boot table."""
    Boots(bed, wanted.boot, recorder).measure()


def measure_own(bed: Bed, wanted: Wanted, recorder: Recorder) -> None:
    """Every row; one that fails does not keep the others from being measured."""
    asked = Asked(wanted.runs, wanted.profiles)
    for name in wanted.rows:
        if recorder.section.columns(name):
            continue
        try:
            recorder.put(*own.ROWS[name](bed, asked))
        except WorkError as error:
            recorder.put(Figure(name, asked.largest, fault=str(error)))
        finally:
            own.clean(bed, name)


MEASURES: Mapping[SectionName, Callable[[Bed, Wanted, Recorder], None]] = {
    SectionName.TOOLS: measure_tools,
    SectionName.NIGHTS: measure_nights,
    SectionName.BOOT: measure_boots,
    SectionName.OWN: measure_own,
}


def run_all(given: argparse.Namespace, wanted: Wanted) -> None:
    """Measure and write; what is measured is written at once, so that it is not lost."""
    ui = Ui.for_stream(sys.stderr, os.environ)
    find_report(given.output / JSON)  # what is not ours is told before anything is measured
    with workbench(given.work) as top:
        bed = Bed(top, ui)
        check_space(top, SPACE_BOTH if wanted.large else SPACE_SMALL)
        bed.prepare(wanted.profiles if wanted.large else wanted.profiles[:1], given.pool)
        for name in wanted.sections:
            recorder = begin(wanted, name, bed, given.output, resume=given.resume)
            MEASURES[name](bed, wanted, recorder)


def main() -> int:
    """Parse, measure, print the page."""
    given = parse_arguments(sys.argv[1:])
    try:
        if given.render:
            write(find_report(given.render), given.output)
            return 0
        wanted = check_asked(given)
        tell_estimate(wanted)
        if given.estimate:
            return 0
        check_root("measuring builds")
        run_all(given, wanted)
        report = find_report(given.output / JSON)
    except ImagebuilderError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130
    print(render_report(report))
    print(f"written to {given.output}", file=sys.stderr)
    return 0 if all_met(report, wanted.sections) else 1
