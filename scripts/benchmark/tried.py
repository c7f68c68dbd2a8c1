# SPDX-License-Identifier: Apache-2.0
"""When and how each shipped profile was built, proved and booted: the table in docs/bases.md."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from imagebuilder.decode import decode_box, parse_object
from imagebuilder.errors import InputError
from imagebuilder.process import Completed, run
from imagebuilder.report.types import REPORT, Report
from imagebuilder.report.words import headline

RECORD, PAGE = "docs/tried.json", "docs/bases.md"
BEGIN, END = "<!-- written by scripts/tried -->\n", "<!-- end of what scripts/tried writes -->\n"
FIRMWARES = ("uefi", "bios")
NEVER = "never"
HEADERS = ("profile", "base", "built and proved", *map(str.upper, FIRMWARES), "engine", "date")


@dataclass(frozen=True)
class Tried:
    """What came of a profile; a text is a result in words, "" where it did not come so far."""

    date: str
    built: str
    boots: Mapping[str, str]
    engine: str = ""

    @property
    def passed(self) -> bool:
        return self.built == "yes" and all(said.startswith("PASS") for said in self.boots.values())


def main(words: Sequence[str], checkout: Path) -> int:
    """Try profiles, and write the page; the exit status."""
    profiles = [word for word in words if not word.endswith(".json")]
    shipped = {path.stem: path for path in sorted((checkout / "recipes").glob("*.yaml"))}
    bases = {path.stem for path in (checkout / "recipes/bases").glob("*.yaml")}
    for profile in profiles:
        name, _, base = profile.partition(".")
        if name not in shipped or (base and base not in bases):
            print(f"tried: {profile}: no such profile or base is shipped")
            return 2
    results = read_record(checkout)
    for word in words:
        if word not in profiles:
            try:
                report = read_report(Path(word).read_text())
            except (OSError, UnicodeDecodeError, InputError) as error:
                print(f"tried: {word}: {error}")
                return 2
            before = results.get(report.profile) or Tried("", "yes", {})
            results[report.profile] = with_report(before, report)
    for profile in profiles:
        results[profile] = try_profile(profile, checkout)
        write(checkout, results)
    write(checkout, results)
    return 0 if all(results[profile].passed for profile in profiles) else 1


def try_profile(profile: str, checkout: Path) -> Tried:
    """Build a profile with its proof, and boot it with each firmware."""
    tried = Tried(f"{datetime.now(UTC):%Y-%m-%d}", "yes", {})
    built = call(checkout, ".venv/bin/imagebuilder", "build", profile)
    if built.status:
        return replace(tried, built=f"no: {reason(built)}")
    for firmware in FIRMWARES:
        done = call(checkout, "scripts/smoke", profile, "--firmware", firmware, "--json")
        try:
            tried = with_report(tried, read_report(done.stdout))
        except InputError:
            said = {firmware: f"no test: {reason(done)}"}
            tried = replace(tried, boots={**tried.boots, **said})
    return tried


def read_report(text: str) -> Report:
    """A report of `imagebuilder test --json`, after lines of another command or without."""
    said = text[text.find("{\n") :]
    return REPORT.decode(parse_object(said, "report"), "report")


def with_report(tried: Tried, report: Report) -> Tried:
    """What was known of a profile, and what a report says; its root is the one that nodes use."""
    said = "PASS" if report.passed else headline(report)
    boots = {**tried.boots, **{trial.firmware: said for trial in report.trials}}
    return Tried(report.started[:10], tried.built, boots, engine_of(report) or tried.engine)


def engine_of(report: Report) -> str:
    """What the engine computed on; "" for a profile without one."""
    found = [trial.inference for trial in report.trials if trial.inference]
    if not found:
        return ""
    less = found[0].expected if found[0].degraded else ""
    return found[0].used + (f", is for {less}" if less else "")


def call(checkout: Path, *words: str) -> Completed:
    """Run a command, however it ends; what it says of its progress is shown afterwards."""
    print(f"$ {' '.join(words)}", flush=True)
    # The person's own state, home and mirrors.
    done = run(words, env=dict(os.environ), cwd=checkout, check=False)
    print(done.stderr, flush=True)
    return done


def reason(done: Completed) -> str:
    """The first error that a command printed."""
    lines = done.stderr.splitlines()
    return next((line for line in lines if line.startswith("error:")), f"exit {done.status}")


def read_record(checkout: Path) -> dict[str, Tried]:
    path = checkout / RECORD
    found = parse_object(path.read_text(), RECORD) if path.exists() else {}
    return {profile: decode_box(Tried, value, RECORD) for profile, value in found.items()}


def write(checkout: Path, results: Mapping[str, Tried]) -> None:
    """Write the record, and the table into the page."""
    record = {profile: asdict(result) for profile, result in sorted(results.items())}
    (checkout / RECORD).write_text(json.dumps(record, indent=2) + "\n")
    page = (checkout / PAGE).read_text()
    before, after = page.partition(BEGIN)[0], page.partition(END)[2]
    text = before + BEGIN + render(results, checkout) + END + after
    (checkout / PAGE).write_text(text)


def render(results: Mapping[str, Tried], checkout: Path) -> str:
    """The table: every shipped profile, and the ones on other bases that were tried."""
    shipped = sorted(path.stem for path in (checkout / "recipes").glob("*.yaml"))
    rows = [HEADERS, ("---",) * len(HEADERS), *rows_of(sorted({*shipped, *results}), results)]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def rows_of(profiles: Sequence[str], results: Mapping[str, Tried]) -> Iterator[tuple[str, ...]]:
    for profile in profiles:
        name, _, base = profile.partition(".")
        found = results.get(profile)
        boots = [(found.boots.get(firmware) if found else "") or NEVER for firmware in FIRMWARES]
        engine = (found.engine if found else "") or "-"
        built, date = (found.built, found.date) if found else (NEVER, "-")
        yield f"`{name}`", f"`{base}`" if base else "its own", built, *boots, engine, date
