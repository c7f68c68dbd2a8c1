# SPDX-License-Identifier: Apache-2.0
"""Image -> Proof: the questions side by side, and a sandbox that runs programs of the image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Lock
from time import monotonic

from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Answer, Finding, Proof, Question
from imagebuilder.image.types import Image
from imagebuilder.process import Completed, Word, check_tools, dies_with_us, run
from imagebuilder.proof.access.prove import prove_access
from imagebuilder.proof.code.prove import prove_code
from imagebuilder.proof.fallback.prove import prove_fallback
from imagebuilder.proof.firmware import prove_firmware
from imagebuilder.proof.kernel.prove import prove_kernel
from imagebuilder.proof.libraries.prove import prove_libraries
from imagebuilder.proof.privileges.prove import prove_privileges
from imagebuilder.proof.provenance.prove import prove_provenance
from imagebuilder.proof.provenance.types import Provenance
from imagebuilder.proof.python.prove import prove_python
from imagebuilder.proof.secrets.prove import prove_secrets
from imagebuilder.proof.services.prove import prove_services
from imagebuilder.proof.subject import Ask, Subject
from imagebuilder.proof.system.prove import prove_system
from imagebuilder.recipe.engines import Engines
from imagebuilder.root import Root
from imagebuilder.sandbox import Sandbox
from imagebuilder.sandbox_lasting import Inside, staying
from imagebuilder.secret import hidden

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
# They mostly wait for programs and for files.
SIDE_BY_SIDE = 4


def hear_nothing(_: Answer) -> None:
    """Answers for nobody."""


def prove(
    subject: Subject,
    on_answer: Callable[[Answer], None] = hear_nothing,
    only: Question | None = None,
) -> Proof:
    """Ask every question, or `only` one; `on_answer` hears of each answer in their order.

    Raises WorkError.
    """
    chosen = [(question, ask) for question, ask in QUESTIONS if only in (None, question)]
    answers = []
    with ThreadPoolExecutor(SIDE_BY_SIDE) as pool:
        for answer in pool.map(lambda each: answer_to(subject, *each), chosen):
            answers.append(answer)
            on_answer(answer)
    return Proof(subject.image.name, tuple(answers))


def answer_to(
    subject: Subject, question: Question, ask: Callable[[Subject], Iterable[Finding]]
) -> Answer:
    """All findings of one question."""
    start = monotonic()
    findings = tuple(map(without_secrets, ask(subject)))
    return Answer(question, findings, round(monotonic() - start, 2))


def without_secrets(finding: Finding) -> Finding:
    """The finding as it may be printed: evidence quotes lines of files, and they may have any."""
    shown = (replace(one, said=hidden(one.said)) for one in finding.evidence)
    return replace(finding, what=hidden(finding.what), evidence=tuple(shown))


@dataclass(frozen=True)
class Limited:
    """A wrapper for process.run(): in the sandbox, for at most so many seconds."""

    inside: Inside
    seconds: int

    @property
    def environment(self) -> Mapping[str, str]:
        return self.inside.environment

    def words(self, argv: Sequence[Word]) -> list[Word]:
        """The whole command."""
        limit = ["timeout", "--kill-after=5", str(self.seconds), *dies_with_us()]
        return [*limit, *self.inside.words(argv)]


@contextmanager
def asking(work: Path, root: str, epoch: int) -> Iterator[Ask]:
    """Commands run on the tree `root`, a name below `work`; what they write is thrown away.

    Raises WorkError when the sandbox does not start.
    """
    sandbox = Sandbox(work, (root,), "proof", epoch)
    with staying(sandbox, work / "proof.log") as inside:
        said: dict[tuple[str, ...], Future[Completed]] = {}
        lock = Lock()

        def ask(argv: Sequence[str], *, seconds: int = 60) -> Completed:
            # Two questions may ask the same, and importing vLLM takes a quarter of a minute.
            words = tuple(argv)
            with lock:
                first = words not in said
                future = said.setdefault(words, Future())
            if first:
                try:
                    future.set_result(run(words, sandbox=Limited(inside, seconds), check=False))
                except BaseException as error:
                    future.set_exception(error)
                    raise
            return future.result()

        yield ask


def prove_tree(
    image: Image,
    work: Path,
    name: str,
    engines: Engines,
    trace: Callable[[Mapping[str, ShippedFile]], Provenance],
    *,
    on_answer: Callable[[Answer], None] = hear_nothing,
) -> Proof:
    """Prove `image`; its root is the tree `name` below `work`, and `trace` gives its provenance,
    when it is told what the root's packages ship.

    `engines` are those that overlays describe.

    Raises HostError for missing tools, WorkError when the sandbox does not start, and what `trace`
    raises.
    """
    check_tools("setpriv", "unshare", "nsenter", "timeout")
    with ThreadPoolExecutor(1) as beside, asking(work, name, image.epoch) as ask:
        subject = Subject(image, Root(work / name), ask, engines, lambda: traced.result())
        traced = beside.submit(lambda: trace(subject.shipped))
        return prove(subject, on_answer)
