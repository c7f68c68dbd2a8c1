# SPDX-License-Identifier: Apache-2.0
"""Run checks with pytest in a separate process, on a root in a sandbox or on a node over ssh."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from tempfile import mkdtemp

from imagebuilder.checks.facts import Facts
from imagebuilder.checks.find import COMMON, CheckFile
from imagebuilder.checks.reach import (
    BOOT,
    CHECK,
    FAULT,
    LOST,
    MOST_SECONDS,
    SETTLE,
    STATIC,
    Reach,
)
from imagebuilder.decode import decode_box, encode_box, parse_object
from imagebuilder.digest import Json
from imagebuilder.errors import Fault, InputError, WorkError
from imagebuilder.files import read_text
from imagebuilder.process import Word, end_children, run
from imagebuilder.report.types import Check, Outcome
from imagebuilder.sandbox.lasting import staying
from imagebuilder.sandbox.sandbox import INSIDE, Bind, Sandbox
from imagebuilder.secret import hidden
from imagebuilder.ui import format_count

# pytest(1) exit codes: all passed, some failed, interrupted, wrong options, nothing selected.
PASSED, FAILED, USAGE, NOTHING = 0, 1, 4, 5
# Plugins of pytest that checks do not need; each takes time at every start.
LEFT_OUT = (
    "cacheprovider", "doctest", "faulthandler", "junitxml", "pastebin", "threadexception",
    "unraisableexception",
)  # fmt: skip


def run_tree_checks(
    root: Path,
    files: Sequence[CheckFile],
    facts: Facts,
    work: Path,
    *,
    epoch: int,
    selection: str = "",
) -> tuple[Check, ...]:
    """Run the static checks on the tree at `root` without changing it.

    The common ones run in parallel with those of overlays, in one sandbox.  `work` is a folder for
    this run, which the caller removes.  `selection` is pytest's -k.  Raises InputError for a wrong
    check file, NothingSelectedError for an empty selection, WorkError if checks cannot run.
    """
    place = make_place(work, STATIC)
    (place / "root").symlink_to(root.absolute())
    binds = tuple(Bind(path, INSIDE / path.name) for path in facts.boot_files)  # not in the root
    sandbox = Sandbox(place, ("root",), "changes", epoch, binds)
    with staying(sandbox, place / "sandbox.log") as inside:
        prefix = tuple(os.fspath(word) for word in inside.words([]))
        reach = Reach(STATIC, prefix, dict(inside.environment))
        common = [file for file in files if file.group == COMMON]
        others = [file for file in files if file.group != COMMON]
        parts = [part for part in (common, others) if part] or [[]]
        with ThreadPoolExecutor(len(parts)) as pool:
            runs = [
                pool.submit(
                    run_pytest, reach, part, facts, make_place(work, STATIC),
                    tree=root.absolute(), selection=selection,
                )
                for part in parts
            ]  # fmt: skip
            try:
                return checks_of([run.result() for run in runs], STATIC, selection)
            except KeyboardInterrupt:
                end_children()  # otherwise leaving the pool waits for the last check
                raise


def run_boot(
    files: Sequence[CheckFile],
    facts: Facts,
    login: Sequence[Word],
    work: Path,
    *,
    selection: str = "",
) -> tuple[Check, ...]:
    """Run the boot checks on the node of `login`, an ssh command without a script.

    Raises as run_tree_checks(), and WorkError if the node can no longer be reached.
    """
    place = make_place(work, BOOT)
    reach = Reach(BOOT, tuple(os.fspath(word) for word in login))
    if selection:  # it may leave out the check that waits
        run([SETTLE], sandbox=reach, seconds=MOST_SECONDS[BOOT], check=False)
    result = run_pytest(reach, files, facts, place, tree=place, selection=selection)
    return checks_of([result], BOOT, selection)


def make_place(work: Path, kind: str) -> Path:
    """A new folder below `work` for one run."""
    work.mkdir(parents=True, exist_ok=True)
    return Path(mkdtemp(prefix=f"checks-{kind}-", dir=work.absolute()))


class NothingSelectedError(InputError):
    """The selection leaves no check of this kind; it may have checks of the other."""


OUTPUT = "the output of pytest"
FORGED = f"a check must not print lines that begin with {CHECK!r}, {FAULT!r} or {LOST!r}"


@dataclass
class PytestRun:
    """The results of a run of pytest, and how it ended."""

    log: Path
    checks: list[Check] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    lost: str = ""
    status: int = PASSED
    output: str = ""

    def read_line(self, line: str) -> None:
        """Take a result from a line; the log has all others.

        Raises InputError if a check printed a line that only looks like a result.
        """
        if line.startswith(CHECK):
            check = decode_box(Check, self.object_in(line, CHECK), OUTPUT, hint=FORGED)
            # A message quotes files of the image, and one of them may contain a secret.
            self.checks.append(replace(check, message=hidden(check.message)))
        elif line.startswith(FAULT):
            self.faults.append(decode_box(Fault, self.object_in(line, FAULT), OUTPUT, hint=FORGED))
        elif line.startswith(LOST):
            lost = self.object_in(line, LOST)
            self.lost = f"{lost['what']} (during {lost['during']})"

    def object_in(self, line: str, prefix: str) -> dict[str, Json]:
        """The object after a prefix; a missing key also raises InputError."""
        return parse_object(line.removeprefix(prefix), OUTPUT, hint=FORGED, whole=True)


def run_pytest(
    reach: Reach,
    files: Sequence[CheckFile],
    facts: Facts,
    place: Path,
    *,
    tree: Path,
    selection: str,
) -> PytestRun:
    work = {
        "kind": reach.kind,
        "groups": {os.fspath(file.path): file.group for file in files},
        "facts": encode_box(facts, nulls=False),
        "prefix": list(reach.prefix),
        "environment": reach.environment and dict(reach.environment),
        "tree": os.fspath(tree),
    }
    (place / "work.json").write_text(json.dumps(work))
    result = PytestRun(place / "pytest.log")
    words = pytest_words(place, files, selection)
    done = run(
        words, env=environment(), cwd=place, log=result.log, on_line=result.read_line, check=False
    )
    result.status, result.output = done.status, done.stdout
    return result


def checks_of(runs: Sequence[PytestRun], kind: str, selection: str) -> tuple[Check, ...]:
    """The checks of all runs.  Raises as run_tree_checks() unless each run is complete."""
    for each in runs:
        if each.lost:
            raise WorkError(
                f"the node can no longer be reached: {each.lost}",
                hint="its console shows whether it is still running",
            )
    if faults := [fault for each in runs for fault in each.faults]:
        raise InputError.of(faults)
    for each in runs:
        if each.status == USAGE:
            lines = read_text(each.log).splitlines()
            errors = [line for line in lines if line.startswith("ERROR: ")]
            what = errors[-1].removeprefix("ERROR: ") if errors else "pytest rejects its options"
            raise InputError(what, hint="join words with and, or and not; see -k in pytest --help")
        if each.status not in (PASSED, FAILED, NOTHING):
            raise WorkError(f"checks were interrupted\n{each.output}", hint=f"see {each.log}")
    if all(each.status == NOTHING for each in runs):
        raise nothing_to_run(kind, selection)
    return tuple(check for each in runs for check in each.checks)


def tell_checks(checks: Sequence[Check]) -> str:
    """`12 checks, 1 failed`."""
    failed = sum(check.outcome is Outcome.FAILED for check in checks)
    return format_count(len(checks), "check") + (f", {failed} failed" if failed else "")


def nothing_to_run(kind: str, selection: str) -> InputError:
    if selection:
        return NothingSelectedError(
            f"-k {selection} selects no {kind} check",
            hint="a word matches part of the name of a check, of its file, or of its overlay",
        )
    return InputError(f"the image has no {kind} checks")


def pytest_words(place: Path, files: Sequence[CheckFile], selection: str) -> list[str]:
    """pytest with our plugin and nothing of the user's: no ini, conftest, plugin or cache."""
    selecting = ["-k", selection] if selection else []
    return [
        sys.executable, "-P", "-m", "pytest", "-q", "--color=no", "--tb=short", "--show-capture=no",
        "-c", os.devnull, "--rootdir", os.fspath(place), "--noconftest", "--strict-markers",
        "--import-mode=importlib", "--capture=sys", "--basetemp", os.fspath(place / "tmp"),
        "-p", "imagebuilder.checks.plugin", *(f"-pno:{name}" for name in LEFT_OUT),
        "--work", os.fspath(place / "work.json"), *selecting,
        *(os.fspath(file.path) for file in files),
    ]  # fmt: skip


def environment() -> dict[str, str]:
    """Variables for pytest besides the allow-listed environment."""
    return {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # The program may run from a checkout that is not installed.
        "PYTHONPATH": os.fspath(Path(__file__).parents[2]),
    }
