# SPDX-License-Identifier: Apache-2.0
"""An inference engine on a node answers, and says on what it computed.

The program of its overlay does it, on the node; here that is run, and what it prints is read:

    prepare       before the models disk is plugged in
    infer         the engine's own service answers, or another server where it refuses the processor
    infer_over    a server on one node computes on another
"""

from __future__ import annotations

import io
import json
import shlex
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from imagebuilder.decode import decode_box, parse_object
from imagebuilder.digest import Json
from imagebuilder.errors import InputError, WorkError
from imagebuilder.process import Completed
from imagebuilder.recipe.engines import EngineKind
from imagebuilder.recipe.model_engine import EngineBootModel
from imagebuilder.report.types import Inference

SHOWN_LINES = 20
# The files beside the program come along: it may have parts.
RUN = """\
folder=$(TMPDIR=${{TMPDIR:-/run}} mktemp -d -t imagebuilder-probe.XXXXXX)
trap 'rm -rf "$folder"' EXIT
tar -x -C "$folder"
PYTHONDONTWRITEBYTECODE=1 "$folder"/{words}
"""


class RootShell(Protocol):
    """Runs a shell script on a node as root."""

    def __call__(self, script: str, *, stdin: bytes = b"", check: bool = True) -> Completed:
        """What the script left; with `check`, WorkError when it fails."""
        ...


class InferenceError(WorkError):
    """An engine on a node did not do what it should; `evidence` is what it said last."""

    def __init__(self, what: str, *, where: str, hint: str, evidence: Sequence[str] = ()) -> None:
        self.what, self.hint, self.evidence = what, hint, tuple(evidence)
        shown = "".join(f"\n    {line}" for line in self.evidence)
        super().__init__(f"{what}{shown}", where=where, hint=hint)


@dataclass(frozen=True)
class EngineFailure:
    """How a program says that the engine failed."""

    error: str
    hint: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class AskedEngine:
    """An engine with what its overlay says of a boot test."""

    kind: EngineKind
    boot: EngineBootModel


@dataclass(frozen=True)
class EngineNode:
    """A node by name and address, and how to run scripts on it."""

    name: str
    address: str
    login: RootShell


def prepare(node: EngineNode, asked: AskedEngine) -> None:
    """Let the engine get ready for the models disk.  Raises InferenceError."""
    tell(node, asked, "prepare")


def infer(node: EngineNode, asked: AskedEngine, factor: float) -> Inference:
    """Ask the engine of a node, which is `factor` times slower than a real one.

    The models disk is plugged in, and starts the service by itself.  Raises InferenceError.
    """
    return read_inference(asked, (node,), tell(node, asked, "ask", limit(asked, factor)))


def infer_over(
    first: EngineNode, second: EngineNode, asked: AskedEngine, factor: float
) -> Inference:
    """Ask a server on the first node that computes on the second.  Raises InferenceError."""
    if not asked.boot.together:
        raise InferenceError(
            f"{asked.kind.title} cannot compute over two nodes", where=first.name,
            hint="test one node",
        )  # fmt: skip
    seconds = limit(asked, factor)
    lent = json.dumps(tell(second, asked, "lend", seconds))
    try:
        said = tell(first, asked, "ask", seconds, second.address, lent)
    finally:
        second.login(script(asked, "take-back", lent), stdin=pack(asked), check=False)
    return read_inference(asked, (first, second), said)


def limit(asked: AskedEngine, factor: float) -> str:
    """The seconds that an engine may take to start and answer."""
    return f"{asked.boot.seconds * factor:.0f}"


def read_inference(
    asked: AskedEngine, over: Sequence[EngineNode], said: dict[str, Json]
) -> Inference:
    """What a program said of an answer.  Raises InferenceError."""
    names: Json = [node.name for node in over]
    try:
        return decode_box(Inference, {**said, "over": names}, "its answer")
    except InputError as error:
        raise nonsense(asked, over[0], error) from error


def tell(node: EngineNode, asked: AskedEngine, *words: str) -> dict[str, Json]:
    """Run the engine's program on a node; what it prints.  Raises InferenceError."""
    done = node.login(script(asked, *words), stdin=pack(asked), check=False)
    try:
        said = parse_object(done.stdout.strip().rpartition("\n")[2], "its answer")
    except InputError as error:
        raise InferenceError(
            f"the node was lost while it was asked (exit status {done.status})",
            where=node.name,
            hint="its console has the rest",
            evidence=(done.stderr or done.stdout).splitlines()[-SHOWN_LINES:],
        ) from error
    if "error" not in said:
        return said
    try:
        failure = decode_box(EngineFailure, said, "its answer")
    except InputError as error:
        raise nonsense(asked, node, error) from error
    raise InferenceError(
        failure.error, where=node.name, hint=failure.hint, evidence=failure.evidence
    )


def nonsense(asked: AskedEngine, node: EngineNode, error: InputError) -> InferenceError:
    """What a program said is not what it should."""
    return InferenceError(
        f"the program that asks {asked.kind.title}: {error.faults[0].where} {error.faults[0].what}",
        where=node.name,
        hint=f"correct {asked.kind.program(asked.boot.program)}",
    )


def script(asked: AskedEngine, *words: str) -> str:
    """Run the program on a node; what pack() made comes on stdin."""
    return RUN.format(words=shlex.join((Path(asked.boot.program).name, *words)))


def pack(asked: AskedEngine) -> bytes:
    """The program and the files beside it, as tar(1) reads them."""
    packed = io.BytesIO()
    folder = asked.kind.program(asked.boot.program).parent
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(path for path in folder.iterdir() if path.is_file()):
            entry = tarfile.TarInfo(path.name)
            entry.mode, entry.size = 0o700, path.stat().st_size
            with path.open("rb") as stream:
                archive.addfile(entry, stream)
    return packed.getvalue()
