# SPDX-License-Identifier: Apache-2.0
"""Image -> Proof: ask all questions concurrently, and run the image's programs in a sandbox."""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from threading import Lock
from time import monotonic

from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Answer, Evidence, Finding, Proof, Question, fault
from imagebuilder.image.types import Image
from imagebuilder.process import Completed, ExcessError, Wrapper, check_tools, run
from imagebuilder.proof.access.prove import prove_access
from imagebuilder.proof.code.prove import prove_code
from imagebuilder.proof.facts import Once
from imagebuilder.proof.fallback.prove import prove_fallback
from imagebuilder.proof.firmware import prove_firmware
from imagebuilder.proof.kernel.prove import prove_kernel
from imagebuilder.proof.libraries.prove import prove_libraries
from imagebuilder.proof.privileges.prove import prove_privileges
from imagebuilder.proof.provenance.prove import prove_provenance
from imagebuilder.proof.python.prove import prove_python
from imagebuilder.proof.reading.provenance import Entries, Provenance
from imagebuilder.proof.say import CUT_OFF, REFUSED
from imagebuilder.proof.secrets.prove import prove_secrets
from imagebuilder.proof.services.prove import prove_services
from imagebuilder.proof.subject import RootReader, RunInImage, Subject
from imagebuilder.proof.system.prove import prove_system
from imagebuilder.recipe.engines import Engines
from imagebuilder.root import FinishedRoot
from imagebuilder.sandbox.lasting import staying
from imagebuilder.sandbox.sandbox import Sandbox
from imagebuilder.secret import hidden
from imagebuilder.untrusted import MOST_LONG, fit

QUESTIONS: tuple[tuple[Question, Callable[[Subject], Iterable[Finding]]], ...] = (
    (Question.KERNEL, prove_kernel),
    (Question.FIRMWARE, prove_firmware),
    (Question.CODE, prove_code),
    (Question.LIBRARIES, prove_libraries),
    (Question.PYTHON, prove_python),
    (Question.ACCESS, prove_access),
    (Question.FALLBACK, prove_fallback),
    (Question.SERVICES, prove_services),
    (Question.SYSTEM, prove_system),
    (Question.PROVENANCE, prove_provenance),
    (Question.PRIVILEGES, prove_privileges),
    (Question.SECRETS, prove_secrets),
)
# Bytes that a program of the image may print, and all of them: it is kept until the proof ends.
MOST_SAID, MOST_TOGETHER = 16 << 20, 256 << 20
# They mostly wait for programs and for files.
THREADS = 6
MOST_FINDINGS = 2000  # of a question; a unit may have 20,000 paths, and each a finding
# These run programs one after the other, which take long: asked first, they do it while the others
# take the interpreter.
FIRST = (Question.PYTHON, Question.FALLBACK, Question.SERVICES)


def ignore(_: Answer) -> None:
    """For callers that only need the proof."""


def prove(
    subject: Subject, on_answer: Callable[[Answer], None] = ignore, only: Question | None = None
) -> Proof:
    """Ask all questions, or only one; `on_answer` is called with each answer, in their order.

    Raises WorkError.
    """
    chosen = [(question, find) for question, find in QUESTIONS if only in (None, question)]
    answers = []
    with ThreadPoolExecutor(THREADS) as pool:
        ordered = sorted(chosen, key=lambda each: each[0] not in FIRST)
        asked = {each[0]: pool.submit(answer_question, subject, *each) for each in ordered}
        try:
            for question, _ in chosen:
                answers.append(asked[question].result())
                on_answer(answers[-1])
        finally:
            pool.shutdown(wait=False, cancel_futures=True)
    return Proof(subject.image.name, tuple(answers))


def answer_question(
    subject: Subject, question: Question, find: Callable[[Subject], Iterable[Finding]]
) -> Answer:
    start = monotonic()
    findings = tuple(shown(each, question) for each in islice(find(subject), MOST_FINDINGS))
    if len(findings) == MOST_FINDINGS:
        what = f"there are {MOST_FINDINGS} findings or more; only these are shown"
        findings += (replace(fault(what, hint="correct these first"), question=question),)
    return Answer(question, findings, round(monotonic() - start, 2))


def shown(finding: Finding, question: Question) -> Finding:
    """The finding in printable lines, with secrets hidden: files may contain anything."""
    return replace(
        finding,
        question=question,
        what=line_of(hidden(finding.what)),
        hint=line_of(finding.hint),
        evidence=tuple(
            Evidence(*map(line_of, (one.path, one.section, one.symbol, hidden(one.said))))
            for one in finding.evidence
        ),
    )


def line_of(text: str) -> str:
    return fit(text, MOST_LONG)


@contextmanager
def image_sandbox(work: Path, root: str, epoch: int) -> Iterator[RunInImage]:
    """Run commands in the tree `root`, a name below `work`; what they write is discarded.

    Raises WorkError if the sandbox does not start.
    """
    sandbox = Sandbox(work, (root,), "proof", epoch)
    with staying(sandbox, work / "proof.log") as inside:
        results: Once[tuple[str, ...], Completed] = Once()
        printed = Printed()

        def run_once(argv: Sequence[str], *, seconds: int = 60) -> Completed:
            # Several questions run the same command, and importing vLLM takes 15 s.
            return results.get(tuple(argv), lambda: run_in(inside, argv, seconds, printed))

        yield run_once


@dataclass
class Printed:
    """The bytes that all programs of an image have printed."""

    total: int = 0
    lock: Lock = field(default_factory=Lock)

    def add(self, count: int) -> None:
        with self.lock:
            self.total += count


def run_in(inside: Wrapper, argv: Sequence[str], seconds: int, printed: Printed) -> Completed:
    """Run a command.  Its words are those of files of the image: the kernel may not take them."""
    most = max(0, min(MOST_SAID, MOST_TOGETHER - printed.total))
    try:
        done = run(argv, sandbox=inside, seconds=seconds, most=most, check=False)
    except ExcessError:
        why = f"it printed more than {MOST_SAID >> 20} MiB"
        if most < MOST_SAID:
            why = f"the programs of the image printed more than {MOST_TOGETHER >> 20} MiB"
        return Completed(CUT_OFF, "", why)
    except ValueError:
        return Completed(REFUSED, "", f"{argv[0]}: an argument contains a zero byte")
    except OSError as error:
        if error.errno != errno.E2BIG:
            raise
        return Completed(REFUSED, "", f"{argv[0]}: {error.strerror}")
    printed.add(len(done.stdout) + len(done.stderr))
    return done


def prove_tree(
    image: Image,
    work: Path,
    name: str,
    engines: Engines,
    trace: Callable[[Mapping[str, ShippedFile], Entries], Provenance],
    reading: RootReader | None = None,
    *,
    on_answer: Callable[[Answer], None] = ignore,
) -> Proof:
    """Prove `image`, whose root is the tree `name` below `work`.

    `engines` are those that overlays describe; `trace` returns the provenance of the root, given
    what its packages ship and its paths.  `reading` may know facts about the root.

    Raises HostError for missing tools, WorkError if the sandbox does not start, and what `trace`
    raises.
    """
    check_tools("setpriv", "unshare", "nsenter")
    with ThreadPoolExecutor(1) as beside, image_sandbox(work, name, image.epoch) as inside:
        root = FinishedRoot(work / name)
        subject = Subject(image, root, inside, engines, lambda: traced.result(), reading)
        traced = beside.submit(lambda: trace(subject.shipped, subject.entries))
        return prove(subject, on_answer)
