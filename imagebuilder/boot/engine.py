# SPDX-License-Identifier: Apache-2.0
"""Ask an inference engine on a node, and find out on what it computed.

The program of its overlay does this on the node; this module runs it and reads its output:

    prepare       before the models disk is attached
    infer         the engine's own service answers, or another server if it refuses the processor
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
# The files beside the program are copied too: it may need them.
RUN = """\
folder=$(TMPDIR=${{TMPDIR:-/run}} mktemp -d -t imagebuilder-probe.XXXXXX)
trap 'rm -rf "$folder"' EXIT
tar -x -C "$folder"
PYTHONDONTWRITEBYTECODE=1 "$folder"/{words}
"""


class RootShell(Protocol):
    """Runs a shell script on a node as root."""

    def __call__(self, script: str, *, stdin: bytes = b"", check: bool = True) -> Completed:
        """The result of the script.  With `check`, raises WorkError if it fails."""
        ...


class InferenceError(WorkError):
    """An engine on a node failed; `evidence` are its last lines."""

    def __init__(self, what: str, *, where: str, hint: str, evidence: Sequence[str] = ()) -> None:
        self.what, self.hint, self.evidence = what, hint, tuple(evidence)
        shown = "".join(f"\n    {line}" for line in self.evidence)
        super().__init__(f"{what}{shown}", where=where, hint=hint)


@dataclass(frozen=True)
class EngineFailure:
    """The failure of an engine as its program reports it."""

    error: str
    hint: str = ""
    evidence: tuple[str, ...] = ()


@dataclass(frozen=True)
class EngineUnderTest:
    """An engine, and what its overlay says about a boot test."""

    kind: EngineKind
    boot: EngineBootModel


@dataclass(frozen=True)
class EngineNode:
    """A node by name and address, and how to run scripts on it."""

    name: str
    address: str
    login: RootShell


def prepare(node: EngineNode, engine: EngineUnderTest) -> None:
    """Prepare the engine for the models disk.  Raises InferenceError."""
    tell(node, engine, "prepare")


def infer(node: EngineNode, engine: EngineUnderTest, factor: float) -> Inference:
    """Ask the engine of a node, which is `factor` times slower than a real one.

    The models disk is attached, which starts the service.  Raises InferenceError.
    """
    return read_inference(engine, (node,), tell(node, engine, "ask", limit(engine, factor)))


def infer_over(
    first: EngineNode, second: EngineNode, engine: EngineUnderTest, factor: float
) -> Inference:
    """Ask a server on the first node that computes on the second.  Raises InferenceError."""
    if not engine.boot.together:
        raise InferenceError(
            f"{engine.kind.title} cannot compute on two nodes together", where=first.name,
            hint="test with one node",
        )  # fmt: skip
    seconds = limit(engine, factor)
    lent = json.dumps(tell(second, engine, "lend", seconds))
    try:
        said = tell(first, engine, "ask", seconds, second.address, lent)
    finally:
        second.login(script(engine, "take-back", lent), stdin=pack(engine), check=False)
    return read_inference(engine, (first, second), said)


def limit(engine: EngineUnderTest, factor: float) -> str:
    """The seconds that an engine may take to start and answer."""
    return f"{engine.boot.seconds * factor:.0f}"


def read_inference(
    engine: EngineUnderTest, over: Sequence[EngineNode], said: dict[str, Json]
) -> Inference:
    """Parse a program's report of an answer.  Raises InferenceError."""
    names: Json = [node.name for node in over]
    try:
        return decode_box(Inference, {**said, "over": names}, "its answer")
    except InputError as error:
        raise nonsense(engine, over[0], error) from error


def tell(node: EngineNode, engine: EngineUnderTest, *words: str) -> dict[str, Json]:
    """Run the engine's program on a node and parse its output.  Raises InferenceError."""
    done = node.login(script(engine, *words), stdin=pack(engine), check=False)
    try:
        said = parse_object(done.stdout.strip().rpartition("\n")[2], "its answer")
    except InputError as error:
        raise InferenceError(
            f"lost the connection to the node during the request (exit status {done.status})",
            where=node.name,
            hint="see its console",
            evidence=(done.stderr or done.stdout).splitlines()[-SHOWN_LINES:],
        ) from error
    if "error" not in said:
        return said
    try:
        failure = decode_box(EngineFailure, said, "its answer")
    except InputError as error:
        raise nonsense(engine, node, error) from error
    raise InferenceError(
        failure.error, where=node.name, hint=failure.hint, evidence=failure.evidence
    )


def nonsense(engine: EngineUnderTest, node: EngineNode, error: InputError) -> InferenceError:
    """The error for an invalid answer of a program."""
    return InferenceError(
        f"the program of {engine.kind.title}: {error.faults[0].where} {error.faults[0].what}",
        where=node.name,
        hint=f"correct {engine.kind.program(engine.boot.program)}",
    )


def script(engine: EngineUnderTest, *words: str) -> str:
    """The script that runs the program on a node; its stdin is the output of pack()."""
    return RUN.format(words=shlex.join((Path(engine.boot.program).name, *words)))


def pack(engine: EngineUnderTest) -> bytes:
    """The program and the files beside it, as tar(1) reads them."""
    packed = io.BytesIO()
    folder = engine.kind.program(engine.boot.program).parent
    with tarfile.open(fileobj=packed, mode="w") as archive:
        for path in sorted(path for path in folder.iterdir() if path.is_file()):
            entry = tarfile.TarInfo(path.name)
            entry.mode, entry.size = 0o700, path.stat().st_size
            with path.open("rb") as stream:
                archive.addfile(entry, stream)
    return packed.getvalue()
