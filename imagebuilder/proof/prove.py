# SPDX-License-Identifier: Apache-2.0
"""Image -> Proof: the questions in a row, and a sandbox in which they run things of the image."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from time import monotonic

from imagebuilder.image.types import Image
from imagebuilder.process import Completed, Word, check_tools, dies_with_us, run
from imagebuilder.proof.access.prove import prove_access
from imagebuilder.proof.code.prove import prove_code
from imagebuilder.proof.fallback.prove import prove_fallback
from imagebuilder.proof.firmware import prove_firmware
from imagebuilder.proof.kernel.prove import prove_kernel
from imagebuilder.proof.libraries.prove import prove_libraries
from imagebuilder.proof.python.prove import prove_python
from imagebuilder.proof.subject import Ask, Subject, subject_of
from imagebuilder.proof.types import Answer, Finding, Proof, Question
from imagebuilder.recipe.engines import Engines
from imagebuilder.root import Root
from imagebuilder.sandbox import Sandbox
from imagebuilder.sandbox_lasting import Inside, staying

QUESTIONS: tuple[tuple[Question, Callable[[Subject], Iterable[Finding]]], ...] = (
    (Question.KERNEL, prove_kernel),
    (Question.FIRMWARE, prove_firmware),
    (Question.CODE, prove_code),
    (Question.LIBRARIES, prove_libraries),
    (Question.PYTHON, prove_python),
    (Question.ACCESS, prove_access),
    (Question.FALLBACK, prove_fallback),
)


def hear_nothing(_: Answer) -> None:
    """Answers for nobody."""


def prove(subject: Subject, on_answer: Callable[[Answer], None] = hear_nothing) -> Proof:
    """Ask every question; `on_answer` hears of each answer as it comes.  Raises WorkError."""
    answers = []
    for question, ask in QUESTIONS:
        start = monotonic()
        findings = tuple(ask(subject))
        answers.append(Answer(question, findings, round(monotonic() - start, 2)))
        on_answer(answers[-1])
    return Proof(subject.profile, subject.version, tuple(answers))


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
        said: dict[tuple[str, ...], Completed] = {}

        def ask(argv: Sequence[str], *, seconds: int = 60) -> Completed:
            # Two questions may ask the same, and importing vLLM takes a quarter of a minute.
            words = tuple(argv)
            if words not in said:
                said[words] = run(words, sandbox=Limited(inside, seconds), check=False)
            return said[words]

        yield ask


def prove_tree(
    image: Image,
    work: Path,
    name: str,
    engines: Engines,
    *,
    on_answer: Callable[[Answer], None] = hear_nothing,
) -> Proof:
    """Prove `image`; its root is the tree `name` below `work`.

    `engines` are those that overlays describe.

    Raises HostError for missing tools, WorkError when the sandbox does not start.
    """
    check_tools("setpriv", "unshare", "nsenter", "timeout")
    with asking(work, name, image.epoch) as ask:
        return prove(subject_of(image, Root(work / name), ask, engines), on_answer)
