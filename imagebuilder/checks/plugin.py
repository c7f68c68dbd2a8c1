# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin for checks: the fixtures `host`, `facts` and `tree`, and the results as JSON.

run.py starts pytest with this plugin and no other, and reads its output line by line:

    #check {"group": ..., "name": ..., ...}   a check has ended (report.types.Check)
    #fault {"where": ..., "what": ...}        a check file is wrong
    #lost  {"what": ..., "during": ...}       the node can no longer be reached

A check may query `host` (testinfra), compare with `facts` (facts.Facts) and read `tree`, the root
on this host, whose symlinks must not be followed from here.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Generator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from testinfra.host import Host

from imagebuilder.checks.backend import LostConnection, make_host
from imagebuilder.checks.facts import Facts
from imagebuilder.checks.reach import BOOT, CHECK, FAULT, LOST, STATIC, Reach
from imagebuilder.decode import decode_box, read_object

KINDS = {
    STATIC: "a check of the tree, without a boot",
    BOOT: "a check of a running node, over ssh",
}
MOST_LINES, MOST_COLUMNS = 12, 400
HINT = "mark it @pytest.mark.static or @pytest.mark.boot, depending on where it can run"


@dataclass(frozen=True)
class Work:
    """The job from run.py: `groups` are by path of the check file."""

    kind: str
    groups: Mapping[Path, str]
    facts: Facts
    reach: Reach
    tree: Path


WORK = pytest.StashKey[Work]()
MESSAGE = pytest.StashKey[dict[str, str]]()


def load_work(path: Path) -> Work:
    value: dict[str, Any] = dict(read_object(path))
    return Work(
        kind=value["kind"],
        groups={Path(name): group for name, group in value["groups"].items()},
        facts=decode_box(Facts, value["facts"], os.fspath(path)),
        reach=Reach(value["kind"], tuple(value["prefix"]), value["environment"]),
        tree=Path(value["tree"]),
    )


def tell(word: str, value: Mapping[str, object]) -> None:
    """Print a line for run.py; the output of checks goes to sys.stdout instead."""
    assert sys.__stdout__ is not None
    sys.__stdout__.write(f"\n{word}{json.dumps(value)}\n")
    sys.__stdout__.flush()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--work", metavar="FILE", help="what to check, written by imagebuilder")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[WORK] = load_work(Path(config.getoption("--work")))
    for name, meaning in KINDS.items():
        config.addinivalue_line("markers", f"{name}: {meaning}")
    config.pluginmanager.register(Teller(config.stash[WORK]))


@pytest.fixture(scope="session")
def host(pytestconfig: pytest.Config) -> Host:
    """The root in its sandbox, or the node over ssh."""
    return make_host(pytestconfig.stash[WORK].reach)


@pytest.fixture(scope="session")
def facts(pytestconfig: pytest.Config) -> Facts:
    """The image, and for boot checks what is expected of the node."""
    return pytestconfig.stash[WORK].facts


@pytest.fixture(scope="session")
def tree(pytestconfig: pytest.Config) -> Path:
    """The root on this host, for static checks, which must not write to it."""
    return pytestconfig.stash[WORK].tree


class Teller:
    """Selects the checks of one kind and reports their results."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.broken: set[Path] = set()
        self.seconds: dict[str, float] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_modifyitems(
        self, config: pytest.Config, items: list[pytest.Item]
    ) -> None:
        """Each file must have checks and each check a kind; those of another are left out."""
        faults = 0
        for path in self.work.groups.keys() - {item.path for item in items} - self.broken:
            tell(FAULT, {"where": os.fspath(path), "what": "has no checks", "hint": HINT})
        wanted: list[pytest.Item] = []
        for item in items:
            item.extra_keyword_matches.add(self.work.groups.get(item.path, ""))
            kinds = {mark.name for mark in item.iter_markers()} & KINDS.keys()
            if not kinds:
                faults += 1
                what = f"{item.name} is marked neither way"
                tell(FAULT, {"where": os.fspath(item.path), "what": what, "hint": HINT})
            elif self.work.kind in kinds:
                wanted.append(item)
        config.hook.pytest_deselected(items=[item for item in items if item not in wanted])
        items[:] = [] if faults else wanted

    def pytest_exception_interact(
        self, node: pytest.Item | pytest.Collector, call: pytest.CallInfo[Any]
    ) -> None:
        """Report a file that cannot be imported."""
        if isinstance(node, pytest.Collector) and call.excinfo:
            self.broken.add(node.path)
            error = call.excinfo.value
            what = f"cannot be imported: {describe(error.__cause__ or error)}"
            hint = "run python -m py_compile on it, and install every library that it imports"
            tell(FAULT, {"where": os.fspath(node.path), "what": what, "hint": hint})

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item, call: pytest.CallInfo[None]
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Keep the message of a failure, and stop if the node can no longer be reached."""
        report = yield
        error = call.excinfo.value if call.excinfo else None
        if isinstance(error, LostConnection):
            tell(LOST, {"what": str(error), "during": item.name})
            pytest.exit("the connection is lost", returncode=pytest.ExitCode.INTERRUPTED)
        self.seconds[item.nodeid] = self.seconds.get(item.nodeid, 0.0) + report.duration
        if report.failed and error is not None:
            item.stash.setdefault(MESSAGE, {})["failed"] = describe(error, place_of(call, item))
        elif report.skipped:
            why = getattr(report, "wasxfail", "") or str(error)
            item.stash.setdefault(MESSAGE, {})["skipped"] = why
        if report.when == "teardown":
            self.tell_end(item)
        return report

    def tell_end(self, item: pytest.Item) -> None:
        """Report the result of a check: it failed if any part of it did."""
        messages = item.stash.get(MESSAGE, {})
        outcome = next((o for o in ("failed", "skipped") if o in messages), "passed")
        result = {
            "group": self.work.groups.get(item.path, ""),
            "name": item.name,
            "kind": self.work.kind,
            "outcome": outcome,
            "seconds": round(self.seconds.pop(item.nodeid), 3),
            "message": messages.get(outcome, ""),
        }
        tell(CHECK, result)


def place_of(call: pytest.CallInfo[None], item: pytest.Item) -> str:
    """The line of the check file that failed: `test_ssh.py:41`."""
    assert call.excinfo is not None
    lines = [e.lineno + 1 for e in call.excinfo.traceback if Path(e.path) == item.path]
    return f"{item.path.name}:{lines[-1]}" if lines else item.path.name


def describe(error: BaseException, place: str = "") -> str:
    """An error in a few lines, the fact first; the message of pytest.fail() is not changed."""
    said = str(error).strip()
    if isinstance(error, pytest.fail.Exception):
        place = ""
    elif not isinstance(error, AssertionError):
        said = f"{type(error).__name__}: {said}"
    lines = [line.rstrip()[:MOST_COLUMNS] for line in said.splitlines() if line.strip()]
    many = len(lines) - MOST_LINES
    more = [f"… and {many} more lines"] if many > 0 else []
    where = [f"({place})"] if place else []
    return "\n".join([*lines[:MOST_LINES], *more, *where])
