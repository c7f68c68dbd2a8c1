# SPDX-License-Identifier: Apache-2.0
"""Run checks: pytest as a process of its own, on a root in a sandbox or on a node over ssh."""

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
from imagebuilder.checks.reach import BOOT, CHECK, FAULT, LOST, STATIC, Reach
from imagebuilder.decode import decode_box, encode_box, parse_object
from imagebuilder.digest import Json
from imagebuilder.errors import Fault, InputError, WorkError
from imagebuilder.process import Word, end_children, run
from imagebuilder.report.types import Check, Outcome
from imagebuilder.sandbox import INSIDE, Bind, Sandbox
from imagebuilder.sandbox_lasting import staying
from imagebuilder.secret import hidden
from imagebuilder.ui import format_count

# pytest(1) exit codes: all passed, some failed, interrupted, wrong options, nothing selected.
PASSED, FAILED, USAGE, NOTHING = 0, 1, 4, 5
# Parts of pytest that checks do not need; each takes some time at every start.
LEFT_OUT = (
    "cacheprovider", "doctest", "faulthandler", "junitxml", "pastebin", "threadexception",
    "unraisableexception",
)  # fmt: skip


def run_static(
    root: Path,
    files: Sequence[CheckFile],
    facts: Facts,
    work: Path,
    *,
    epoch: int,
    selection: str = "",
) -> tuple[Check, ...]:
    """Run the static checks on the tree at `root`, which nothing writes to.

    The common ones run beside those of overlays, in one sandbox.  `work` is a folder for us alone,
    which the caller removes.  `selection` is pytest's -k.  Raises InputError for a check file that
    is wrong, NothingSelectedError for a selection of nothing, WorkError when checks cannot run.
    """
    place = make_place(work, STATIC)
    (place / "root").symlink_to(root.absolute())
    sandbox = Sandbox(place, ("root",), "changes", epoch, binds_for(facts))
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
                return judge([run.result() for run in runs], STATIC, selection)
            except KeyboardInterrupt:
                end_children()  # else leaving the pool waits for the last check
                raise


def run_boot(
    files: Sequence[CheckFile],
    facts: Facts,
    login: Sequence[Word],
    work: Path,
    *,
    selection: str = "",
) -> tuple[Check, ...]:
    """Run the boot checks on the node that `login`, an ssh command without a script, leads to.

    Raises what run_static() does, and WorkError when the node cannot be asked any more.
    """
    place = make_place(work, BOOT)
    reach = Reach(BOOT, tuple(os.fspath(word) for word in login))
    ended = run_pytest(reach, files, facts, place, tree=place, selection=selection)
    return judge([ended], BOOT, selection)


def make_place(work: Path, kind: str) -> Path:
    """A fresh folder for one run, of which there may be several in one `work`."""
    work.mkdir(parents=True, exist_ok=True)
    return Path(mkdtemp(prefix=f"checks-{kind}-", dir=work.absolute()))


def binds_for(facts: Facts) -> tuple[Bind, ...]:
    """The kernel and the initrd, which lie beside the root, for checks to read inside."""
    pair = (facts.vmlinuz, facts.initrd)
    return tuple(Bind(Path(path), INSIDE / Path(path).name) for path in pair if path)


class NothingSelectedError(InputError):
    """The selection leaves no check of this kind, perhaps because it is meant for the other."""


TOLD = "what pytest tells"
FORGED = f"a check must not print lines that begin with {CHECK!r}, {FAULT!r} or {LOST!r}"


@dataclass
class Heard:
    """What a run of pytest told, and how it ended."""

    log: Path
    checks: list[Check] = field(default_factory=list)
    faults: list[Fault] = field(default_factory=list)
    lost: str = ""
    status: int = PASSED
    said: str = ""

    def hear(self, line: str) -> None:
        """Take a line in; what is not for us is in the log.

        Raises InputError when a check printed a line that only looks like one of ours.
        """
        if line.startswith(CHECK):
            check = decode_box(Check, self.told(line, CHECK), TOLD, hint=FORGED)
            # A message quotes files of the image, and one of them may have a secret.
            self.checks.append(replace(check, message=hidden(check.message)))
        elif line.startswith(FAULT):
            self.faults.append(decode_box(Fault, self.told(line, FAULT), TOLD, hint=FORGED))
        elif line.startswith(LOST):
            told = self.told(line, LOST)
            self.lost = f"{told['what']} (during {told['during']})"

    def told(self, line: str, word: str) -> dict[str, Json]:
        """The object after a word.  Raises InputError, and for a key it lacks."""
        return parse_object(line.removeprefix(word), TOLD, hint=FORGED, whole=True)


def run_pytest(
    reach: Reach,
    files: Sequence[CheckFile],
    facts: Facts,
    place: Path,
    *,
    tree: Path,
    selection: str,
) -> Heard:
    work = {
        "kind": reach.kind,
        "groups": {os.fspath(file.path): file.group for file in files},
        "facts": encode_box(facts, nulls=False),
        "prefix": list(reach.prefix),
        "environment": reach.environment and dict(reach.environment),
        "tree": os.fspath(tree),
    }
    (place / "work.json").write_text(json.dumps(work))
    heard = Heard(place / "pytest.log")
    words = pytest_words(place, files, selection)
    done = run(
        words, env=environment(), cwd=place, log=heard.log, on_line=heard.hear, check=False
    )  # fmt: skip
    heard.status, heard.said = done.status, done.stdout
    return heard


def judge(runs: Sequence[Heard], kind: str, selection: str) -> tuple[Check, ...]:
    """The checks of all runs, if each ended well.  Raises what run_static() does."""
    for heard in runs:
        if heard.lost:
            raise WorkError(
                f"the node cannot be asked any more: {heard.lost}",
                hint="its console tells whether it still runs",
            )
    if faults := [fault for heard in runs for fault in heard.faults]:
        raise InputError.of(faults)
    for heard in runs:
        if heard.status == USAGE:
            lines = heard.log.read_text().splitlines()
            said = [line for line in lines if line.startswith("ERROR: ")]
            what = said[-1].removeprefix("ERROR: ") if said else "pytest does not take these words"
            raise InputError(what, hint="-k takes words with and, or, not: pytest --help")
        if heard.status not in (PASSED, FAILED, NOTHING):
            raise WorkError(
                f"checks did not run to their end\n{heard.said}", hint=f"see {heard.log}"
            )
    if all(heard.status == NOTHING for heard in runs):
        raise nothing_to_run(kind, selection)
    return tuple(check for heard in runs for check in heard.checks)


def tell_checks(checks: Sequence[Check]) -> str:
    """How many ran and failed, in words."""
    failed = sum(check.outcome is Outcome.FAILED for check in checks)
    return format_count(len(checks), "check") + (f", {failed} failed" if failed else "")


def nothing_to_run(kind: str, selection: str) -> InputError:
    if selection:
        return NothingSelectedError(
            f"-k {selection} selects no {kind} check",
            hint="a word is a part of a check's name, of its file's, or its overlay's name",
        )
    return InputError(f"there is no {kind} check to run")


def pytest_words(place: Path, files: Sequence[CheckFile], selection: str) -> list[str]:
    """pytest with our plugin and nothing of the person's: no ini, conftest, plugin or cache."""
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
    """What pytest finds besides the allow-listed environment."""
    return {
        "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        # The program may run from a checkout that is not installed.
        "PYTHONPATH": os.fspath(Path(__file__).parents[2]),
    }
