# SPDX-License-Identifier: Apache-2.0
"""Runs on a node, with nothing but its Python: ask a llama-server for a completion and a chat.

usage: python3 -c "$program" HOST PORT PID SECONDS

Waits until the server has loaded its model.  Prints one line of JSON: `completion` and `chat` as
they were answered, and `seconds` for both; or `error`.  Prints nothing if process PID, the server,
has ended or SECONDS are over.
"""

from __future__ import annotations

import http.client
import json
import sys
import time
from pathlib import Path

LOOK_EVERY = 0.5
MANY = 8
# Always the most probable token, so that only rounding makes nodes differ.
SAMPLING = {"temperature": 0, "seed": 1}
SAY = "Hello"

Json = dict[str, object]


def request(server: tuple[str, int], path: str, body: Json | None, seconds: float) -> Json:
    """The answer to a GET, or with `body` a POST.  Raises OSError and ValueError."""
    line = http.client.HTTPConnection(*server, timeout=max(1.0, seconds))
    if body is None:
        line.request("GET", path)
    else:
        line.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = line.getresponse()
    said = answer.read().decode(errors="replace")
    if answer.status != http.client.OK:
        raise ValueError(f"{path} was answered with {answer.status}: {said[:400]}")
    value: Json = json.loads(said)
    return value


def is_ready(server: tuple[str, int], process: Path, end: float) -> bool:
    """Wait until the model is loaded; False if that will not be in time."""
    while time.monotonic() < end and process.exists():
        try:
            request(server, "/health", None, end - time.monotonic())
        except (OSError, ValueError, http.client.HTTPException):
            time.sleep(LOOK_EVERY)
        else:
            return True
    return False


def ask(server: tuple[str, int], end: float) -> Json:
    """Both answers as they came, and the seconds for both.  Raises OSError and ValueError."""
    began = time.monotonic()
    words = {"prompt": SAY, "n_predict": MANY, **SAMPLING}
    talk = {"messages": [{"role": "user", "content": SAY}], "max_tokens": MANY, **SAMPLING}
    return {
        "completion": request(server, "/completion", words, end - time.monotonic()),
        "chat": request(server, "/v1/chat/completions", talk, end - time.monotonic()),
        "seconds": round(time.monotonic() - began, 2),
    }


def main() -> None:
    """Ask, and print."""
    host, port, pid, seconds = sys.argv[1:]
    server, end = (host, int(port)), time.monotonic() + float(seconds)
    if not is_ready(server, Path("/proc", pid), end):
        return
    try:
        print(json.dumps(ask(server, end)))
    except (OSError, ValueError, http.client.HTTPException) as error:
        print(json.dumps({"error": f"{type(error).__name__}: {error}"}))


if __name__ == "__main__":
    main()
