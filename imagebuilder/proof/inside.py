# SPDX-License-Identifier: Apache-2.0
"""A way to run things in the image that is proved: a sandbox without network and devices."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.process import Completed, Word, dies_with_us, run
from imagebuilder.proof.subject import Ask
from imagebuilder.sandbox import Sandbox
from imagebuilder.sandbox_lasting import Inside, staying


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
