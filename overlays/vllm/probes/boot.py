#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
"""Runs on a node as root: has vLLM answer, and says on what it computed.

usage: boot.py prepare          before the models disk is plugged in
       boot.py ask SECONDS      the service answers, or refuses to run without its device

Prints one line of JSON.  With exit status 1 that is `error`, `hint` and `evidence`.  vLLM for a GPU
cannot compute on the processor: where its service refuses, nothing has computed, and that is said.
"""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

Json = dict[str, object]

UNIT = "vllm.service"
NODE_UNIT = Path("/etc/systemd/system/vllm-node@.service")
SETTINGS = Path("/etc/default/vllm")
MANY = 8
SAY = "Hello"
REFUSED = "vLLM is not started"  # find-device
PLATFORMS = {"cuda": "cuda", "rocm": "rocm", "xpu": "sycl"}  # what find-device is asked for
SHOWN_LINES = 20
MOST = 400  # characters of an answer in a message
HINT = "journalctl --unit vllm on the node has all of it"
MOUNT_HINT = "the models disk starts it: systemctl status models.mount vllm, lsblk --fs"


class FailedError(Exception):
    """vLLM did not do what it should."""

    def __init__(self, what: str, hint: str = HINT) -> None:
        super().__init__(what)
        self.what, self.hint = what, hint


def prepare() -> Json:
    """Nothing has to be done before the disk is there."""
    return {}


def ask(seconds: str) -> Json:
    """Wait until the service is ready, and ask it."""
    end = time.monotonic() + float(seconds)
    if not SETTINGS.exists() or "[Service]" not in run("systemctl", "cat", UNIT):
        hint = "the overlay vllm has both"
        raise FailedError(f"there is no {UNIT}, or it has no {SETTINGS}", hint)
    if NODE_UNIT.exists():
        return nothing("several nodes", "this image serves one model over several nodes together")
    settings = dict(re.findall(r"^(\w+)=(.*)$", SETTINGS.read_text(), re.MULTILINE))
    guard = re.search(r"^ExecStartPre=\S*/find-device (\w+)", run("systemctl", "cat", UNIT), re.M)
    expected = PLATFORMS[guard[1]] if guard else "cpu"
    address = settings["SERVE_HOST"]
    server = ("127.0.0.1" if address in ("", "0.0.0.0") else address, int(settings["SERVE_PORT"]))
    while not is_ready(server):
        if guard and REFUSED in journal():
            return nothing(expected, "vLLM for a GPU cannot compute on the processor", refused=True)
        if failure := failure_of(timed_out=time.monotonic() > end):
            raise failure
        time.sleep(2)
    return {"expected": expected, "used": expected, **converse(server, settings["SERVE_MODEL"])}


def nothing(expected: str, why: str, *, refused: bool = False) -> Json:
    """An answer that is none: what the image is for was not shown, and why."""
    return {
        "expected": expected, "used": "nothing", "completion": "", "chat": "", "tokens": 0,
        "seconds": 0, "refused": refused, "placed": f"nowhere: {why}",
    }  # fmt: skip


def failure_of(*, timed_out: bool) -> FailedError | None:
    """Why there will be no answer; None while there may be one."""
    state = dict(
        line.partition("=")[::2]
        for line in run("systemctl", "show", "-p", "ActiveState,SubState,Result", UNIT).split()
    )
    said = f"{state.get('ActiveState')} ({state.get('SubState')}), {state.get('Result')}"
    if state.get("ActiveState") == "failed" or state.get("SubState") == "auto-restart":
        return FailedError(f"vLLM ended before it was ready: it is {said}")
    if timed_out and state.get("ActiveState") == "inactive":
        return FailedError(f"vLLM was not started: it is {said}", MOUNT_HINT)
    return FailedError(f"vLLM was not ready in time: it is {said}") if timed_out else None


def is_ready(server: tuple[str, int]) -> bool:
    """Whether the model is loaded."""
    try:
        request(server, "/health")
    except (OSError, ValueError, http.client.HTTPException):
        return False
    return True


def converse(server: tuple[str, int], model: str) -> Json:
    """A completion and a chat, and the seconds that they took together."""
    settings: Json = {"model": model, "max_tokens": MANY, "temperature": 0, "ignore_eos": True}
    began = time.monotonic()
    try:
        completed = request(server, "/v1/completions", {**settings, "prompt": SAY})
        talk = {**settings, "messages": [{"role": "user", "content": SAY}]}
        chatted = request(server, "/v1/chat/completions", talk)
        tokens = [int(said["usage"]["completion_tokens"]) for said in (completed, chatted)]
        answer = {
            "completion": str(completed["choices"][0]["text"]),
            "chat": str(chatted["choices"][0]["message"]["content"]),
        }
    except (OSError, LookupError, TypeError, ValueError, http.client.HTTPException) as error:
        what = f"vLLM does not answer as it should: {type(error).__name__}: {error}"
        raise FailedError(what) from error
    if tokens != [MANY, MANY]:
        raise FailedError(f"vLLM was asked for {MANY} tokens twice and answered with {tokens}")
    return {**answer, "tokens": sum(tokens), "seconds": round(time.monotonic() - began, 2)}


def request(server: tuple[str, int], path: str, body: Json | None = None) -> dict[str, Any]:
    """The answer to a GET, or with `body` a POST.  Raises OSError and ValueError."""
    line = http.client.HTTPConnection(*server, timeout=300)
    if body is None:
        line.request("GET", path)
    else:
        line.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = line.getresponse()
    said = answer.read().decode(errors="replace")
    if answer.status != http.client.OK:
        raise ValueError(f"{path} was answered with {answer.status}: {said[:MOST]}")
    return json.loads(said) if body is not None else {}


def journal() -> str:
    """What the unit has said since the boot."""
    return run("journalctl", "--quiet", "--no-pager", "--boot", "--output", "cat", "--unit", UNIT)


def run(*words: str) -> str:
    """What a command prints, however it ends."""
    done = subprocess.run(words, capture_output=True, text=True, errors="replace", check=False)
    return done.stdout


VERBS = {"prepare": prepare, "ask": ask}


def main() -> int:
    """Do what the first word says, and print what came of it."""
    try:
        said = VERBS[sys.argv[1]](*sys.argv[2:])
    except FailedError as error:
        lines = [line for line in journal().splitlines() if line.strip()][-SHOWN_LINES:]
        print(json.dumps({"error": error.what, "hint": error.hint, "evidence": lines}))
        return 1
    print(json.dumps(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
