# SPDX-License-Identifier: Apache-2.0
"""Runs in an image, with the Python of its vLLM: ask a server about a model.

usage: serving.py HOST PORT MODEL SECONDS LOG

Waits until the server is ready, asks for a completion and prints one line of JSON; exit status 1,
with the end of LOG on stderr, when there is none in SECONDS or LOG ends with `server ended`.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from pathlib import Path

SHOWN = 40
MANY = 12
ENDED = "server ended"


def request(server: tuple[str, int], path: str, body: dict[str, object] | None) -> bytes:
    """The answer to a GET, or with `body` a POST.  Raises OSError and ValueError."""
    line = http.client.HTTPConnection(*server, timeout=120)
    if body is None:
        line.request("GET", path)
    else:
        line.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = line.getresponse()
    said = answer.read()
    if answer.status != http.client.OK:
        raise ValueError(f"{path} was answered with {answer.status}: {said[:400]!r}")
    return said


def is_ready(server: tuple[str, int], log: Path, seconds: float) -> bool:
    """Wait until the model is loaded; False when that will not be."""
    end = time.monotonic() + seconds
    while time.monotonic() < end and not log.read_text().rstrip().endswith(ENDED):
        try:
            request(server, "/health", None)
        except (OSError, ValueError, http.client.HTTPException):
            time.sleep(0.5)
        else:
            return True
    return False


def ask(host: str, port: int, model: str, seconds: float, log: Path) -> int:
    """Ask for a completion, and print what came."""
    began = time.monotonic()
    if not is_ready((host, port), log, seconds):
        print("\n".join(log.read_text().splitlines()[-SHOWN:]), file=sys.stderr)
        print(f"vLLM was not ready in {seconds:.0f} s, or has ended", file=sys.stderr)
        return 1
    loaded = time.monotonic()
    body: dict[str, object] = {
        "model": model,
        "prompt": "Hello",
        "max_tokens": MANY,
        "temperature": 0,
        "ignore_eos": True,
    }
    said = json.loads(request((host, port), "/v1/completions", body))
    print(
        json.dumps(
            {
                "version": json.loads(request((host, port), "/version", None))["version"],
                "completion": said["choices"][0]["text"],
                "tokens": said["usage"]["completion_tokens"],
                "ready_seconds": round(loaded - began, 1),
                "answer_seconds": round(time.monotonic() - loaded, 2),
            }
        )
    )
    return 0 if said["usage"]["completion_tokens"] == MANY else 1


def main() -> int:
    """Do what the command line says."""
    host, port, model, seconds, log = sys.argv[1:]
    return ask(host, int(port), model, float(seconds), Path(log))


if __name__ == "__main__":
    sys.exit(main())
