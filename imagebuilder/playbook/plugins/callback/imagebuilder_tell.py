# SPDX-License-Identifier: Apache-2.0
"""Reports to the build what happened, a JSON object per line, in addition to Ansible's own output.

Loaded by ansible-playbook.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase

DOCUMENTATION = """
    name: imagebuilder_tell
    type: notification
    short_description: tells imagebuilder what failed and what was skipped
    description:
      - Writes a JSON object a line.
    author: imagebuilder
"""
SAID_LINES = 4
# The prefix for a line of inside/shim.py, by its kind.
SKIPPED = "skipped, because it needs a running node"
WORDS = {
    "read": "answered by the builder's kernel",
    "boot": "skipped, because initrd and boot loader are not part of the root",
}


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Reports the results of tasks."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "imagebuilder_tell"

    def __init__(self) -> None:
        super().__init__()
        self.told = Path(os.environ["IMAGEBUILDER_TOLD"])
        self.skipped = Path(os.environ["IMAGEBUILDER_SKIPPED"])
        self.seen = 0
        self.play = ""

    def tell(self, event: str, **facts: object) -> None:
        with self.told.open("a") as sink:
            sink.write(json.dumps({"event": event, **facts}, default=str) + "\n")

    def tell_failed(self, result: Any) -> None:
        """Report a failed task: where it is, and its message."""
        task, found = task_of(result), result_of(result)
        self.tell(
            "failed",
            play=self.play,
            task=task.get_name(),
            where=task.get_path() or "",
            what=reason_of(found),
            module=str(task.action),
        )

    def show_skipped(self) -> None:
        """Show what the last task requested that an image cannot do."""
        lines = self.skipped.read_text().splitlines()
        for line in lines[self.seen :]:
            row = json.loads(line)
            what = f"{row['what']} ({row['verb']})" if row["kind"] == "service" else row["what"]
            self._display.display(f"{WORDS.get(row['kind'], SKIPPED)}: {what}")
        self.seen = len(lines)

    def v2_playbook_on_play_start(self, play: Any) -> None:
        self.play = play.get_name()

    def v2_runner_on_ok(self, result: Any) -> None:
        self.show_skipped()

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        self.show_skipped()
        if not ignore_errors:
            self.tell_failed(result)

    def v2_runner_on_unreachable(self, result: Any) -> None:
        self.show_skipped()
        self.tell_failed(result)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        sums = [stats.summarize(host) for host in stats.processed]
        self.tell("stats", **{key: sum(s[key] for s in sums) for key in ("ok", "changed")})


def task_of(result: Any) -> Any:
    """The task of a result; ansible-core 2.19 renamed the attribute."""
    return getattr(result, "task", None) or result._task


def result_of(result: Any) -> dict[str, Any]:
    """What the task returned."""
    found = getattr(result, "result", None)
    return dict(found if found is not None else result._result)


def reason_of(found: dict[str, Any]) -> str:
    """Why a task failed: its message (for a loop that of the first failed item), and its output."""
    for item in found.get("results") or ():
        if isinstance(item, dict) and (item.get("failed") or item.get("unreachable")):
            return f"item {item.get('item')}: {reason_of(item)}"
    message = str(found.get("msg") or "it failed").strip().removeprefix("Task failed: ")
    said = str(found.get("stderr") or found.get("module_stderr") or found.get("stdout") or "")
    lines = [line for line in said.splitlines() if line.strip() and line not in message]
    return "\n    ".join([message, *lines[-SAID_LINES:]])
