# SPDX-License-Identifier: Apache-2.0
"""llama.cpp on a node answers, and says on what it computed.

    watch_load    before the models disk is plugged in: llama-server is to log how it loads
    infer         its own service answers; where it refuses the processor, a server by hand does
    infer_over    a server by hand on one node computes on the processor of another, over RPC

What they start by hand is stopped again.  The verbosity that services get stays until a reboot.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from imagebuilder.boot.llama import (
    LOOK,
    SHOWN_LINES,
    TRACE,
    WATCH,
    Said,
    Stack,
    by_hand_script,
    lend_script,
    read_said,
    read_stack,
    sections,
    service_script,
    stop_script,
    take_back_script,
)
from imagebuilder.errors import WorkError
from imagebuilder.process import Completed
from imagebuilder.report.types import Inference

ASK = Path(__file__).with_name("ask_llama.py")
MOST = 400  # characters of an answer in a message
HINT = "journalctl --unit llama-server on the node has all of it"
MOUNT_HINT = "the models disk starts it: systemctl status models.mount, lsblk --fs"


class RootShell(Protocol):
    """Runs a shell script on a node as root."""

    def __call__(self, script: str, *, stdin: bytes = b"", check: bool = True) -> Completed:
        """What the script left; with `check`, WorkError when it fails."""
        ...


class InferenceError(WorkError):
    """llama.cpp on a node did not do what it should; `evidence` is what its unit said last."""

    def __init__(self, what: str, *, where: str, hint: str, evidence: Sequence[str] = ()) -> None:
        self.what, self.hint, self.evidence = what, hint, tuple(evidence)
        shown = "".join(f"\n    {line}" for line in self.evidence)
        super().__init__(f"{what}{shown}", where=where, hint=hint)


@dataclass(frozen=True)
class Answered:
    """Both answers, the tokens of both, and the seconds they took together."""

    completion: str
    chat: str
    tokens: int
    seconds: float


def watch_load(login: RootShell) -> None:
    """Make llama-server.service log where it puts a model, from its next start on."""
    login(WATCH)


def infer(login: RootShell, *, node: str, timeout: float) -> Inference:
    """Ask the node's llama-server; `timeout` are the seconds for it to start and answer.

    The models disk is plugged in, and starts the service by itself.  Raises InferenceError.
    """
    stack = look(login, node)
    said = ask(login, stack, service_script(stack, timeout))
    refused = bool(stack.kinds) and said.refused
    if refused:
        login(stop_script(), check=False)
        settings = {"LLAMA_ARG_DEVICE": "none", "LLAMA_ARG_N_GPU_LAYERS": "0"}
        said = ask(login, stack, by_hand_script(stack, settings, timeout))
    return conclude(stack, said, over=(node,), refused=refused)


def infer_over(first: RootShell, second: RootShell, address: str, *, timeout: float) -> Inference:
    """Ask a server on the first node that computes on the second, which is at `address`.

    The second one lends its processor, also where the image is for GPUs.  Raises InferenceError.
    """
    stack, lender = look(first, "the first node"), look(second, "the second node")
    if not stack.rpc_port:
        raise InferenceError(
            "the image cannot compute over two nodes",
            where=stack.node,
            hint="put rpc into llama_backends of the recipe, or test one node",
        )
    by_hand = bool(stack.kinds)
    running = lend(second, lender, timeout, by_hand=by_hand)
    try:
        settings = {
            "LLAMA_ARG_RPC": f"{address}:{stack.rpc_port}",
            "LLAMA_ARG_DEVICE": "RPC0",
            "LLAMA_ARG_N_GPU_LAYERS": "all",
        }
        said = ask(first, stack, by_hand_script(stack, settings, timeout))
    finally:
        second(take_back_script(by_hand=by_hand, running=running), check=False)
    over = (stack.node, lender.node)
    return conclude(stack, said, over=over, lender=address, refused=by_hand)


def look(login: RootShell, node: str) -> Stack:
    """What the node's image declares.  Raises InferenceError."""
    stack = read_stack(follow(login, node, LOOK))
    if stack is None:
        raise InferenceError(
            "there is no llama-server.service, or it has no settings",
            where=node,
            hint="the overlay llama-cpp brings both; systemctl cat llama-server.service",
        )
    return stack


def ask(login: RootShell, stack: Stack, script: str) -> Said:
    """What a script that follows a server finds.  Raises InferenceError."""
    return read_said(follow(login, stack.node, script, ASK.read_bytes()))


def lend(second: RootShell, stack: Stack, timeout: float, *, by_hand: bool) -> bool:
    """Start the RPC server; returns whether it ran before.  Raises InferenceError."""
    found = follow(second, stack.node, lend_script(stack, timeout, by_hand=by_hand))
    if "ready" not in found:
        raise InferenceError(
            f"the RPC server does not open its port {stack.rpc_port}",
            where=stack.node,
            hint="on a node of this release: systemctl status llama-rpc-server.service",
            evidence=read_said(found).tail,
        )
    return found.get("was", "").strip() == "active"


def follow(login: RootShell, node: str, script: str, stdin: bytes = b"") -> dict[str, str]:
    """The parts of what a script prints.  Raises InferenceError when it did not come to its end."""
    done = login(script, stdin=stdin, check=False)
    found = sections(done.stdout)
    if "end" not in found:
        raise InferenceError(
            f"the node was lost while it was asked (exit status {done.status})",
            where=node,
            hint="its console has the rest",
            evidence=(done.stderr or done.stdout).splitlines()[-SHOWN_LINES:],
        )
    return found


def conclude(
    stack: Stack,
    said: Said,
    *,
    over: tuple[str, ...],
    lender: str = "",
    refused: bool = False,
) -> Inference:
    """What the answers and the log of the node over[0] amount to.

    With `lender`, that address must hold some of the model.  Raises InferenceError.
    """
    if said.answers is None:
        hint = HINT if said.state.get("ActiveState") != "inactive" else MOUNT_HINT
        raise InferenceError(silence(stack, said), where=over[0], hint=hint, evidence=said.tail)
    answered = read_answers(said.answers)
    if isinstance(answered, str):
        raise InferenceError(answered, where=over[0], hint=HINT, evidence=said.tail)
    if said.offload is None:
        raise InferenceError(
            "llama-server answers, but does not log where it has put the model",
            where=over[0],
            hint=f"its verbosity is to be {TRACE}: LLAMA_ARG_LOG_VERBOSITY",
            evidence=said.tail,
        )
    if lender and lender not in {found.rpartition(":")[0] for found in said.offload.lenders}:
        raise InferenceError(
            f"llama-server answers, but {lender} holds nothing of the model: {said.offload}",
            where=over[0],
            hint="the RPC server of that node, and what it allows: llama_rpc_allow",
            evidence=said.tail,
        )
    return Inference(
        expected=stack.expected,
        used=said.offload.backend,
        over=over,
        completion=answered.completion,
        chat=answered.chat,
        tokens=answered.tokens,
        seconds=answered.seconds,
        refused=refused,
        placed=str(said.offload),
    )


def silence(stack: Stack, said: Said) -> str:
    """Why there was no answer."""
    state = f"{said.state.get('ActiveState', '')} ({said.state.get('SubState', '')})"
    if said.state.get("ActiveState") == "inactive":
        return f"llama-server was not started: it is {state}; is {stack.model} there?"
    if said.state.get("ActiveState") == "active":
        return "llama-server runs, but was not ready in time"
    result = said.state.get("Result", "")
    return f"llama-server ended before it was ready: it is {state}, {result}"


def read_answers(answers: Mapping[str, object]) -> Answered | str:
    """What was answered, or what is wrong with it."""
    if error := answers.get("error"):
        return f"llama-server does not answer as it should: {error}"
    try:
        completion = dig(answers, "completion", "content")
        chat = dig(answers, "chat", "choices", 0, "message", "content")
        counts = (
            dig(answers, "completion", "tokens_predicted"),
            dig(answers, "chat", "usage", "completion_tokens"),
        )
        seconds = float(str(dig(answers, "seconds")))
    except (LookupError, TypeError, ValueError) as error:
        return f"an answer of llama-server lacks {error}: {json.dumps(answers)[:MOST]}"
    if not completion or not chat:
        return f"llama-server said nothing: {json.dumps(answers)[:MOST]}"
    return Answered(str(completion), str(chat), sum(int(str(many)) for many in counts), seconds)


def dig(value: object, *keys: str | int) -> object:
    """What is below `keys` in JSON.  Raises LookupError and TypeError."""
    for key in keys:
        value = value[key]  # type: ignore[index]
    return value
