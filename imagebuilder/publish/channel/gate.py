# SPDX-License-Identifier: Apache-2.0
"""The gate before a channel: the image is proved and, for `stable`, a boot test of these very bytes
has passed; or somebody says why not.

    reports + digests of the release -> standing -> Passage: the report's id, or the reason
                                                 -> WorkError: what is missing, what to type

What was stable before may be again without one: a rollback must work at any time.
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
MACHINE = "qemu-system-x86_64"  # without it this host serves, and tests nothing
EXAMPLE = "--untested 'the boot server has no KVM, tried on node7 by hand'"


@dataclass(frozen=True)
class Passage:
    """Why a release may become stable: `report` of `machine` passed, or the `reason` to do without.

    Both are empty where nobody asks: it is stable, or was.
    """

    report: str = ""
    reason: str = ""
    machine: str = ""

    def __str__(self) -> str:
        """What to add to the sentence that says what is stable now."""
        if self.reason:
            return f"; untested: {self.reason}"
        where = f" on {self.machine}" if self.machine else ""
        return f"; boot test {self.report} has passed{where}" if self.report else ""


NOT_ASKED = Passage()


def check_reason(reason: str) -> None:
    """Raise InputError unless this can stand in the journal for ever; empty is no reason given."""
    if not reason:
        return
    if len(reason.strip()) not in REASON or not reason.isprintable():
        raise InputError(
            "--untested needs a reason",
            hint=f"{REASON.start} to {REASON.stop - 1} printable characters on one line, such as "
            f"{EXAMPLE}",
        )


def find_unproved(image: Image | None) -> str:
    """What the proof of an image found wrong, in a line; "" for nothing.

    An image from before images were proved has none, and nothing is held against it.
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
    """What lets a channel have a release.  Raises WorkError when nothing does.

    A proof that failed keeps it from every channel; only stable asks for a boot test.  `image`
    is that of a release which is not in the tree yet.  The caller has called check_reason(), and
    check_release() if the release is there.
    """
    if find_version(tree, release.profile, channel) == release.version:
        tell_unneeded(untested, f"it is {channel} already", ui)
        return NOT_ASKED
    unproved = find_unproved(image or find_image(tree.release(release)))
    if unproved and not untested:
        raise WorkError(
            f"is not proved: {unproved}",
            where=str(release),
            hint=f"imagebuilder prove {release} shows why; in an emergency the same again with "
            "--untested REASON",
        )
    if unproved:
        ui.warn(f"{release} may become {channel} although it is not proved: {unproved}")
        return Passage(reason=untested)
    if channel != STABLE:
        tell_unneeded(untested, f"{channel} needs no boot test", ui)
        return NOT_ASKED
    found = read_reports(tree.reports(release))
    for fault in found.faults:
        ui.warn(f"{fault.where}: {fault.what}; it does not count")
    standing = judge(tree, release, found.reports)
    if standing.state is State.PASSED:
        tell_unneeded(untested, f"boot test {standing.report} has passed", ui)
        return Passage(report=standing.report, machine=standing.machine)
    if untested:
        ui.warn(f"{release} may become stable although {standing.why}")
        return Passage(reason=untested)
    raise WorkError(
        f"cannot become stable: {standing.why}",
        where=str(release),
        hint=next_step(tree, release, standing),
    )


def tell_unneeded(untested: str, why: str, ui: Ui) -> None:
    """Say that a reason that was given is not written down."""
    if untested:
        ui.note(f"--untested was not needed: {why}")


def next_step(tree: Tree, release: ReleaseName, standing: Standing) -> str:
    """The command to type for a release that may not become stable."""
    name = str(release)
    if find_version(tree, release.profile, CANDIDATE) == release.version:
        name = release.profile  # what commands take a profile for
    test = f"imagebuilder test {name}"
    if standing.state is State.OTHER_ROOT:
        test += f" --root {root_kind(tree, release)}"
    if not is_installed(MACHINE):
        test += " on the builder; then publish it from there again, which brings the report"
    elif not tree.release(release).is_dir():
        test = f"publish it as {CANDIDATE} first, then {test} and imagebuilder promote {name}"
    if standing.state is State.FAILED:
        test = f"imagebuilder report {name} shows it; once it is fixed, {test}"
    return f"{test}; in an emergency the same again with --untested REASON"


def was_stable(events: Sequence[Event], release: ReleaseName, now: str) -> bool:
    """Whether stable pointed to a release at some time; `now` is where it points."""
    moves = find_moves(events, release.profile, STABLE, now)
    return release.version in {now, *(m.version for m in moves), *(m.previous for m in moves)}


@contextmanager
def under_test(tree: Tree, release: ReleaseName, ui: Ui) -> Iterator[None]:
    """While a release is tested nothing removes it; others may come and go, and be tested.

    Raises InputError when it is not there.
    """
    with ExitStack() as stack:
        with changing(tree, ui):
            find_release(tree, str(release))
            stack.enter_context(file_lock(lock_of_tests(tree, release), shared=True))
        yield


def is_under_test(tree: Tree, release: ReleaseName) -> bool:
    return is_locked(lock_of_tests(tree, release))


def lock_of_tests(tree: Tree, release: ReleaseName) -> Path:
    """The lock that running tests of a release share."""
    return tree.lock(f"testing-{release}")
