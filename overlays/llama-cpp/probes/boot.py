#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs on a node as root: has llama.cpp answer, and says on what it computed.

usage: boot.py prepare                      before the models disk is plugged in
       boot.py ask SECONDS                  the service answers; a server by hand where it refuses
       boot.py lend SECONDS                 let another node compute on this one; prints LENT
       boot.py ask SECONDS ADDRESS LENT     a server by hand computes on the node at ADDRESS
       boot.py take-back LENT               end the lending

Prints one line of JSON.  With exit status 1 that is `error`, `hint` and `evidence`.  What it starts
by hand it stops again; the verbosity that services get stays until a reboot.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from offload import CPU, read_offload
from server import converse

Json = dict[str, object]

UNIT = "llama-server.service"
RPC_UNIT = "llama-rpc-server.service"
BY_HAND = "imagebuilder-test-llama.service"
RPC_BY_HAND = "imagebuilder-test-rpc.service"
PORT_BY_HAND = 18080
VERBOSITY = "LLAMA_ARG_LOG_VERBOSITY=4"  # the first that says where a model is put
REFUSED = "no device of kind"  # find-gpus
DROP_INS = Path("/run/systemd/system", f"{RPC_UNIT}.d")
DROP_IN = DROP_INS / "imagebuilder-test.conf"
# What an image brings for GPUs, the preferred first.
LIBRARIES = (
    ("libggml-hip.so", "rocm"), ("libggml-cuda.so", "cuda"), ("libggml-vulkan.so", "vulkan"),
)  # fmt: skip
SHOWN_LINES = 20
MOST = 400  # characters of an answer in a message
HINT = "journalctl --unit llama-server on the node has all of it"
MOUNT_HINT = "the models disk starts it: systemctl status models.mount, lsblk --fs"


class FailedError(Exception):
    """llama.cpp did not do what it should; `evidence` is what its unit said last."""

    def __init__(self, what: str, *, hint: str, evidence: tuple[str, ...] = ()) -> None:
        super().__init__(what)
        self.what, self.hint, self.evidence = what, hint, evidence


@dataclass(frozen=True)
class Stack:
    """What the image declares.

    `kinds` are the GPUs that its service does not go without, `expected` the backend that the image
    is for, which may go without.  `rpc_port` is 0 where the image has no RPC.
    """

    user: str
    model: str
    address: str
    port: int
    kinds: tuple[str, ...] = ()
    expected: str = CPU
    rpc_port: int = 0


@dataclass(frozen=True)
class Said:
    """What a server answered and logged; `answers` is None if it did not come so far.

    `state` are properties of its unit.
    """

    answers: Mapping[str, object] | None
    state: Mapping[str, str]
    journal: str

    @property
    def refused(self) -> bool:
        """Whether the service wants a GPU that is not there."""
        tried = self.state.get("ActiveState") in ("activating", "failed")
        return self.answers is None and tried and REFUSED in self.journal

    @property
    def tail(self) -> tuple[str, ...]:
        """The last lines of its journal."""
        return tuple(line for line in self.journal.splitlines() if line.strip())[-SHOWN_LINES:]


# --- verbs


def prepare() -> Json:
    """Services that start from now on log where they put a model.

    A manager's variable takes no reload, which costs an emulated node seconds.
    """
    run("systemctl", "set-environment", VERBOSITY)
    return {}


def ask(seconds: str, address: str = "", lent: str = "") -> Json:
    """Have a server answer, here or on the node that lends."""
    stack, limit = find_stack(), float(seconds)
    if address:
        given = json.loads(lent)
        settings = {
            "LLAMA_ARG_RPC": f"{address}:{given['port']}",
            "LLAMA_ARG_DEVICE": "RPC0",
            "LLAMA_ARG_N_GPU_LAYERS": "all",
        }
        said = ask_by_hand(stack, settings, limit)
        return conclude(stack, said, lender=address, refused=bool(given["by-hand"]))
    if VERBOSITY not in run("systemctl", "show-environment").splitlines():
        prepare()
        run("systemctl", "try-restart", UNIT)
    said = follow(UNIT, (stack.address, stack.port), limit)
    refused = bool(stack.kinds) and said.refused
    if refused:
        stop(UNIT)
        settings = {"LLAMA_ARG_DEVICE": "none", "LLAMA_ARG_N_GPU_LAYERS": "0"}
        said = ask_by_hand(stack, settings, limit)
    return conclude(stack, said, refused=refused)


def lend(seconds: str) -> Json:
    """Start the RPC server, and wait until it can be reached; by hand it lends the processor."""
    stack = find_stack()
    if not stack.rpc_port:
        raise FailedError(
            "the image cannot compute over two nodes",
            hint="put rpc into llama_backends of the recipe, or test one node",
        )
    by_hand = bool(stack.kinds)
    unit = RPC_BY_HAND if by_hand else RPC_UNIT
    running = run("systemctl", "is-active", unit).strip() == "active"
    if by_hand:
        settings = {"LLAMA_RPC_PORT": str(stack.rpc_port)}
        start(unit, stack.user, settings, "/usr/libexec/llama-cpp/rpc-server")
    else:
        # To the networks that the image lets borrow come those that this node is in.
        routes = run("ip", "-4", "-o", "route", "show", "scope", "link").splitlines()
        DROP_INS.mkdir(parents=True, exist_ok=True)
        networks = " ".join(line.split()[0] for line in routes)
        DROP_IN.write_text(f"[Service]\nIPAddressAllow={networks}\n")
        run("systemctl", "daemon-reload")
        run("systemctl", "restart", unit)
    if not opens(unit, stack.rpc_port, float(seconds)):
        raise FailedError(
            f"the RPC server does not open its port {stack.rpc_port}",
            hint="on a node of this release: systemctl status llama-rpc-server.service",
            evidence=Said(None, {}, journal(unit)).tail,
        )
    return {"port": stack.rpc_port, "by-hand": by_hand, "running": running}


def take_back(lent: str) -> Json:
    """End the lending; a service that ran before goes on."""
    given = json.loads(lent)
    if not given["running"]:
        stop(RPC_BY_HAND if given["by-hand"] else RPC_UNIT)
    if not given["by-hand"]:
        DROP_IN.unlink()
        if not any(DROP_INS.iterdir()):
            DROP_INS.rmdir()
        run("systemctl", "daemon-reload")
    return {}


# --- units


def run(*words: str) -> str:
    """What a command prints, however it ends."""
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    return done.stdout


def stop(unit: str) -> None:
    """End a unit, and forget that it failed."""
    run("systemctl", "stop", unit)
    run("systemctl", "reset-failed", unit)


def start(unit: str, user: str, settings: Mapping[str, str], program: str) -> None:
    """Start a program as a unit, as the service's user and without its GPUs."""
    given = {"LLAMA_CACHE": "/tmp", "XDG_CACHE_HOME": "/tmp", **settings}
    run(
        "systemd-run", "--quiet", f"--unit={unit}", f"--uid={user}",
        "--property=PrivateTmp=yes", "--property=PrivateDevices=yes",
        *(f"--setenv={name}={value}" for name, value in given.items()), program,
    )  # fmt: skip


def show(unit: str) -> dict[str, str]:
    """The state of a unit."""
    return variables(
        run("systemctl", "show", "--property=ActiveState,SubState,Result,MainPID", unit)
    )


def journal(unit: str) -> str:
    """What a unit has said since the boot."""
    return run("journalctl", "--quiet", "--no-pager", "--boot", "--output", "cat", "--unit", unit)


def has_ended(state: Mapping[str, str]) -> bool:
    """Whether a unit has failed; one that waits for its next try would end as the last one did."""
    return state.get("ActiveState") == "failed" or state.get("SubState", "").startswith(
        "auto-restart"
    )


def opens(unit: str, port: int, seconds: float) -> bool:
    """Wait until a unit listens on a port; False if it ends before, or that takes too long."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not has_ended(show(unit)):
        if run("ss", "-Hltn", f"sport = :{port}"):
            return True
        time.sleep(1)
    return False


def ask_by_hand(stack: Stack, settings: Mapping[str, str], seconds: float) -> Said:
    """Ask a server that is started with `settings`, in the service's place."""
    everything = {
        "LLAMA_ARG_MODEL": stack.model,
        "LLAMA_ARG_HOST": "127.0.0.1",
        "LLAMA_ARG_PORT": str(PORT_BY_HAND),
        **dict([VERBOSITY.split("=")]),
        **settings,
    }
    start(BY_HAND, stack.user, everything, "/usr/bin/llama-server")
    try:
        return follow(BY_HAND, ("127.0.0.1", PORT_BY_HAND), seconds)
    finally:
        stop(BY_HAND)


def follow(unit: str, server: tuple[str, int], seconds: float) -> Said:
    """Wait for a unit to run, and ask it."""
    end = time.monotonic() + seconds
    answers = None
    while time.monotonic() < end:
        state = show(unit)
        if state.get("ActiveState") == "active":
            answers = converse(server, Path("/proc", state["MainPID"]), end)
            break
        if has_ended(state):
            break
        time.sleep(1)
    return Said(answers, show(unit), journal(unit))


# --- what was found


def find_stack() -> Stack:
    """What this node's image declares."""
    plugins = [path.name for path in Path("/usr/lib").glob("*/ggml/backends*/*")]
    unit, rpc = run("systemctl", "cat", UNIT), run("systemctl", "cat", RPC_UNIT)
    stack = read_stack(unit, settings_of(unit), settings_of(rpc), plugins)
    if stack is None:
        raise FailedError(
            "there is no llama-server.service, or it has no settings",
            hint="the overlay llama-cpp brings both; systemctl cat llama-server.service",
        )
    return stack


def settings_of(unit: str) -> str:
    """The text of a unit's files of variables."""
    paths = map(Path, re.findall(r"^EnvironmentFile=-?(/\S+)$", unit, re.MULTILINE))
    return "\n".join(path.read_text() for path in paths if path.exists())


def read_stack(unit: str, settings: str, rpc: str, plugins: list[str]) -> Stack | None:
    """The declaration, from the texts of a node; None if something is missing."""
    given = variables(settings)
    user = re.search(r"^User=(\S+)$", unit, re.MULTILINE)
    if not user or not {"LLAMA_ARG_MODEL", "LLAMA_ARG_PORT"} <= given.keys():
        return None
    guard = re.search(r"^ExecStartPre=\S*/find-gpus(.*)$", unit, re.MULTILINE)
    kinds = tuple(guard[1].split()) if guard else ()
    there = [backend for library, backend in LIBRARIES if library in plugins]
    address = given.get("LLAMA_ARG_HOST", "")
    return Stack(
        user=user[1],
        model=given["LLAMA_ARG_MODEL"],
        address=address if address not in ("", "0.0.0.0") else "127.0.0.1",
        port=int(given["LLAMA_ARG_PORT"]),
        kinds=kinds,
        expected=next(iter([*(kind.lower() for kind in kinds), *there]), CPU),
        rpc_port=int(variables(rpc).get("LLAMA_RPC_PORT", 0)),
    )


def variables(text: str) -> dict[str, str]:
    """Lines NAME=VALUE."""
    pairs = (line.partition("=") for line in text.splitlines() if "=" in line)
    return {name.strip(): value.strip() for name, _, value in pairs if not name.startswith("#")}


def conclude(stack: Stack, said: Said, *, lender: str = "", refused: bool = False) -> Json:
    """What the answers and the log amount to.

    With `lender`, that address must hold some of the model.
    """
    if said.answers is None:
        hint = HINT if said.state.get("ActiveState") != "inactive" else MOUNT_HINT
        raise FailedError(silence(stack, said), hint=hint, evidence=said.tail)
    answered = read_answers(said)
    offload = read_offload(said.journal)
    if offload is None:
        raise FailedError(
            "llama-server answers, but does not log where it has put the model",
            hint=f"its verbosity is to be {VERBOSITY}",
            evidence=said.tail,
        )
    if lender and lender not in {found.rpartition(":")[0] for found in offload.lenders}:
        raise FailedError(
            f"llama-server answers, but {lender} holds nothing of the model: {offload}",
            hint="the RPC server of that node, and what it allows: llama_rpc_allow",
            evidence=said.tail,
        )
    used = {"expected": stack.expected, "used": offload.backend, "placed": str(offload)}
    return {**answered, **used, "refused": refused}


def silence(stack: Stack, said: Said) -> str:
    """Why there was no answer."""
    state = f"{said.state.get('ActiveState', '')} ({said.state.get('SubState', '')})"
    if said.state.get("ActiveState") == "inactive":
        return f"llama-server was not started: it is {state}; is {stack.model} there?"
    if said.state.get("ActiveState") == "active":
        return "llama-server runs, but was not ready in time"
    result = said.state.get("Result", "")
    return f"llama-server ended before it was ready: it is {state}, {result}"


def read_answers(said: Said) -> Json:
    """Both answers, the tokens of both, and the seconds they took together."""
    answers = said.answers or {}
    if error := answers.get("error"):
        what = f"llama-server does not answer as it should: {error}"
        raise FailedError(what, hint=HINT, evidence=said.tail)
    try:
        completion = dig(answers, "completion", "content")
        chat = dig(answers, "chat", "choices", 0, "message", "content")
        counts = (
            dig(answers, "completion", "tokens_predicted"),
            dig(answers, "chat", "usage", "completion_tokens"),
        )
        tokens = sum(int(str(many)) for many in counts)
        seconds = float(str(dig(answers, "seconds")))
    except (LookupError, TypeError, ValueError) as error:
        what = f"an answer of llama-server lacks {error}: {json.dumps(answers)[:MOST]}"
        raise FailedError(what, hint=HINT, evidence=said.tail) from error
    if not completion or not chat:
        what = f"llama-server said nothing: {json.dumps(answers)[:MOST]}"
        raise FailedError(what, hint=HINT, evidence=said.tail)
    return {"completion": str(completion), "chat": str(chat), "tokens": tokens, "seconds": seconds}


def dig(value: object, *keys: str | int) -> object:
    """What is below `keys` in JSON.  Raises LookupError and TypeError."""
    for key in keys:
        value = value[key]  # type: ignore[index]
    return value


VERBS = {"prepare": prepare, "ask": ask, "lend": lend, "take-back": take_back}


def main() -> int:
    """Do what the first word says, and print what came of it."""
    try:
        said = VERBS[sys.argv[1]](*sys.argv[2:])
    except FailedError as error:
        told = {"error": error.what, "hint": error.hint, "evidence": list(error.evidence)}
        print(json.dumps(told))
        return 1
    print(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
