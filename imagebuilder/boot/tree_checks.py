# SPDX-License-Identifier: Apache-2.0
"""Run the static checks on an image of the store, or on the root of a release."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path

from imagebuilder.checks.facts import facts_of
from imagebuilder.checks.find import find_checks
from imagebuilder.checks.run import run_tree_checks, tell_checks
from imagebuilder.digest import Json
from imagebuilder.image.types import read_image
from imagebuilder.locks import file_lock
from imagebuilder.process import check_tools
from imagebuilder.report.types import Check, Outcome
from imagebuilder.rights import check_root
from imagebuilder.settings import Settings
from imagebuilder.store.state import open_store
from imagebuilder.store.workplace import new_id, workplace
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui


@dataclass(frozen=True)
class TreeCheckResult:
    """The result of the static checks of `name` (`profile@version`)."""

    name: str
    checks: tuple[Check, ...]

    def find(self, outcome: Outcome) -> list[Check]:
        return [check for check in self.checks if check.outcome is outcome]

    @property
    def passed(self) -> bool:
        """Whether no check failed."""
        return not self.find(Outcome.FAILED)

    def as_json(self) -> dict[str, Json]:
        checks: list[Json] = [{**asdict(check)} for check in self.checks]
        return {"image": self.name, "ok": self.passed, "checks": checks}

    def render(self) -> str:
        """As text: failed and skipped checks with their reasons, and the totals."""
        lines: list[str] = []
        for outcome in (Outcome.SKIPPED, Outcome.FAILED):
            for check in self.find(outcome):
                lines.append(f"{outcome.upper()} {check.title}")
                lines.extend(f"    {line}" for line in check.message.splitlines())
        counted = [(outcome, len(self.find(outcome))) for outcome in Outcome]
        said = ", ".join(f"{many} {outcome}" for outcome, many in counted if many)
        return "\n".join([*lines, f"{self.name}: {said}"])


def check_image(settings: Settings, name: str, ui: Ui, *, selection: str = "") -> TreeCheckResult:
    """Check an image of the store; `selection` is pytest's -k.

    Raises InputError, HostError, WorkError.
    """
    check_host()
    store = open_store(settings)
    ref = store.image(name)
    image = read_image(store, ref)
    with (
        file_lock(store.gc_lock, shared=True),
        workplace(settings.state, new_id(f"check-{image.profile}")) as work,
    ):
        with ui.step("Checking out the image"):
            store.checkout(ref.commit, work / "image")
            store.checkout(image.root.commit, work / "root")
        facts = facts_of(image, work / "image")
        files = find_checks(settings.find_overlays(), facts.image.overlays)
        with ui.step(f"Checking {image.name}") as step:
            root, epoch = work / "root", image.epoch
            checks = run_tree_checks(root, files, facts, work, epoch=epoch, selection=selection)
            step.remark(tell_checks(checks))
    return TreeCheckResult(image.name, checks)


def check_published(
    settings: Settings, tree: Tree, name: str, ui: Ui, *, selection: str = ""
) -> TreeCheckResult:
    """Check the served root of a release; for a profile alone, of its candidate.

    Raises InputError, HostError, WorkError.
    """
    # Importing the code that reads releases takes twice as long as the rest of a check.
    from imagebuilder.boot.gate import choose_release, read_facts

    check_host()
    release = choose_release(tree, name)
    with (
        file_lock(tree.lock("gc"), shared=True),
        workplace(tree.path, new_id(f"check-{release.profile}")) as work,
    ):
        facts = read_facts(tree, release)
        files = find_checks(settings.find_overlays(), facts.image.overlays)
        root, epoch = Path(facts.release), facts.image.epoch
        with ui.step(f"Checking {release}") as step:
            checks = run_tree_checks(root, files, facts, work, epoch=epoch, selection=selection)
            step.remark(tell_checks(checks))
    return TreeCheckResult(str(release), checks)


def check_host() -> None:
    """Raise HostError if no check can run here."""
    check_root("checking an image, in a sandbox,")
    check_tools("setpriv", "unshare", "nsenter")
