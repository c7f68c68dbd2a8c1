# SPDX-License-Identifier: Apache-2.0
"""The gate before a channel: the image must be proved and, for `stable`, a boot test of exactly
these bytes must have passed, or a person gives the reason to proceed without.

    reports + digests of the release -> standing -> Passage: the report's id, or the reason
                                                 -> WorkError: what is missing, what to type

A release that was stable before needs no new boot test: a rollback must work at any time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import InputError, WorkError
from imagebuilder.image.types import Image, find_image
from imagebuilder.locks import file_lock, is_locked
from imagebuilder.nodes.references import find_version
from imagebuilder.process import is_installed
from imagebuilder.publish.channel.standing import judge, root_kind
from imagebuilder.publish.find import changing, find_release
from imagebuilder.publish.journal import Event, find_moves
from imagebuilder.report.save import read_reports
from imagebuilder.report.standing import Standing, State
from imagebuilder.tree import CANDIDATE, STABLE, ReleaseName, Tree
from imagebuilder.ui import Ui

# Long enough to say something, short enough for one line of the journal.
REASON = range(10, 301)
MACHINE = "qemu-system-x86_64"  # without it this host can serve but not test
EXAMPLE = "--untested 'the boot server has no KVM, tried on node7 by hand'"


@dataclass(frozen=True)
class Passage:
    """Why a release may become stable: `report` of `machine` passed, or `reason` to do without.

    Both are empty if no test is needed: the release is stable, or was before.
    """

    report: str = ""
    reason: str = ""
    machine: str = ""

    def __str__(self) -> str:
        """The end of a sentence that says what is stable now."""
        if self.reason:
            return f"; untested: {self.reason}"
        where = f" on {self.machine}" if self.machine else ""
        return f"; boot test {self.report} has passed{where}" if self.report else ""


NOT_NEEDED = Passage()


def check_reason(reason: str) -> None:
    """Raise InputError for a reason that the journal cannot keep; an empty string is no reason."""
    if not reason:
        return
    if len(reason.strip()) not in REASON or not reason.isprintable():
        raise InputError(
            f"--untested: the reason must have {REASON.start} to {REASON.stop - 1} printable "
            "characters on one line",
            hint=f"for example {EXAMPLE}",
        )


def find_unproved(image: Image | None) -> str:
    """What the proof of an image found wrong, in one line; "" if nothing.

    An image that is older than the proof has none; it passes.
    """
    proof = image.proof if image else None
    faults = proof.faults if proof else ()
    more = f" and {len(faults) - 1} more" if len(faults) > 1 else ""
    return f"{faults[0].what}{more}" if faults else ""


def pass_gate(
    tree: Tree,
    release: ReleaseName,
    ui: Ui,
    *,
    channel: str = STABLE,
    untested: str = "",
    image: Image | None = None,
) -> Passage:
    """Why a channel may have a release.  Raises WorkError if it may not.

    A failed proof blocks every channel; only stable needs a boot test.  `image` is the image of a
    release that is not in the tree yet.  The caller has called check_reason(), and check_release()
    if the release exists.
    """
    if find_version(tree, release.profile, channel) == release.version:
        note_unneeded(untested, f"the release is already {channel}", ui)
        return NOT_NEEDED
    unproved = find_unproved(image or find_image(tree.release(release)))
    if unproved and not untested:
        raise WorkError(
            f"failed its proof: {unproved}",
            where=str(release),
            hint=f"run imagebuilder prove {release} to see why; in an emergency repeat the command "
            "with --untested REASON",
        )
    if unproved:
        ui.warn(f"{release} may become {channel} although its proof failed: {unproved}")
        return Passage(reason=untested)
    if channel != STABLE:
        note_unneeded(untested, f"{channel} needs no boot test", ui)
        return NOT_NEEDED
    found = read_reports(tree.reports(release))
    for fault in found.faults:
        ui.warn(f"{fault.where}: {fault.what}; ignoring this report")
    standing = judge(tree, release, found.reports)
    if standing.state is State.PASSED:
        note_unneeded(untested, f"boot test {standing.report} has passed", ui)
        return Passage(report=standing.report, machine=standing.machine)
    if untested:
        ui.warn(f"{release} may become stable although {standing.why}")
        return Passage(reason=untested)
    raise WorkError(
        f"cannot become stable: {standing.why}",
        where=str(release),
        hint=next_step(tree, release, standing),
    )


def note_unneeded(untested: str, why: str, ui: Ui) -> None:
    """Say that the given reason is not recorded, because none was needed."""
    if untested:
        ui.note(f"--untested was not needed: {why}")


def next_step(tree: Tree, release: ReleaseName, standing: Standing) -> str:
    """The command to type for a release that may not become stable."""
    name = str(release)
    if find_version(tree, release.profile, CANDIDATE) == release.version:
        name = release.profile  # commands take it for the candidate
    test = f"run imagebuilder test {name}"
    if standing.state is State.OTHER_ROOT:
        test += f" --root {root_kind(tree, release)}"
    if not is_installed(MACHINE):
        test += " on the builder, then publish it again from there, which also sends the report"
    elif not tree.release(release).is_dir():
        test = f"publish it as {CANDIDATE} first, then {test} and imagebuilder promote {name}"
    if standing.state is State.FAILED:
        test = f"run imagebuilder report {name} to see why; once it is fixed, {test}"
    return f"{test}; in an emergency repeat the command with --untested REASON"


def was_stable(events: Sequence[Event], release: ReleaseName, now: str) -> bool:
    """Whether stable pointed to a release at some time; `now` is where it points."""
    moves = find_moves(events, release.profile, STABLE, now)
    return release.version in {now, *(m.version for m in moves), *(m.previous for m in moves)}


@contextmanager
def under_test(tree: Tree, release: ReleaseName, ui: Ui) -> Iterator[None]:
    """Keep a release from being removed while it is tested; other releases may change.

    Raises InputError if the release does not exist.
    """
    with ExitStack() as stack:
        with changing(tree, ui):
            find_release(tree, str(release))
            stack.enter_context(file_lock(lock_of_tests(tree, release), shared=True))
        yield


def is_under_test(tree: Tree, release: ReleaseName) -> bool:
    return is_locked(lock_of_tests(tree, release), shared=True)


def lock_of_tests(tree: Tree, release: ReleaseName) -> Path:
    return tree.lock(f"testing-{release}")
