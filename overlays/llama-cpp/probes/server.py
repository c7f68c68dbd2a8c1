# SPDX-License-Identifier: Apache-2.0
"""Ask a llama-server for a completion and a chat, with nothing but Python."""

from __future__ import annotations

import http.client
import json
import time
from pathlib import Path

Json = dict[str, object]

MANY = 8
# Always the most probable token, so that only rounding makes nodes differ.
SAMPLING = {"temperature": 0, "seed": 1}
SAY = "Hello"
MOST = 400  # characters of an answer in a message


def converse(server: tuple[str, int], process: Path, end: float) -> Json | None:
    """A completion and a chat as they were answered, and the seconds for both; or `error`.

    None if the process has ended, or the model is not loaded in time.
    """
    while time.monotonic() < end and process.exists():
        try:
            request(server, "/health", None, end - time.monotonic())
            break
        except (OSError, ValueError, http.client.HTTPException):
            time.sleep(0.5)
    else:
        return None
    began = time.monotonic()
    words = {"prompt": SAY, "n_predict": MANY, **SAMPLING}
    talk = {"messages": [{"role": "user", "content": SAY}], "max_tokens": MANY, **SAMPLING}
    try:
        return {
            "completion": request(server, "/completion", words, end - time.monotonic()),
            "chat": request(server, "/v1/chat/completions", talk, end - time.monotonic()),
            "seconds": round(time.monotonic() - began, 2),
        }
    except (OSError, ValueError, http.client.HTTPException) as error:
        return {"error": f"{type(error).__name__}: {error}"}


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
        raise ValueError(f"{path} was answered with {answer.status}: {said[:MOST]}")
    value: Json = json.loads(said)
    return value
