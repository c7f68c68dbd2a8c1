# SPDX-License-Identifier: Apache-2.0
"""Answers every task instead of a node, and records the packages that the tasks request.

Loaded by ansible-playbook for `lock`, which has no root to run a task on.  Ansible itself decides
includes, loops, variables and conditions; what a task would find on a node is unknown, so anything
that depends on it is recorded as unknown.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ansible.plugins.callback import CallbackBase
from ansible.plugins.loader import action_loader

DOCUMENTATION = """
    name: imagebuilder_ask
    type: notification
    short_description: tells imagebuilder which packages a playbook asks for
    description:
      - Answers every task, and writes a JSON object a line.
    author: imagebuilder
"""
# Actions of Ansible itself, which do not need the node.
LOCAL = frozenset((
    "add_host", "assert", "debug", "fail", "group_by", "include_vars", "set_fact", "set_stats",
    "validate_argument_spec",
))  # fmt: skip
FACTS = frozenset(("gather_facts", "setup"))
PACKAGES = frozenset(("apt", "dnf", "dnf5", "yum", "package"))
INCLUDES = frozenset(("include_tasks", "include_role", "import_tasks", "import_role"))
COMMANDS = frozenset(("command", "shell", "raw"))
# What modules need in the root besides Python; `package` is the module that is named as the
# package manager.
NEEDS: Mapping[str, tuple[str, ...]] = {
    "apt": ("python3-apt",),
    "dnf": ("python3-dnf",),
    "yum": ("python3-dnf",),
    "dnf5": ("python3-libdnf5",),
    "apt_repository": ("python3-apt",),
    "deb822_repository": ("python3-debian",),
}
BY_COMMAND = re.compile(r"\b(?:apt(?:-get)?|dnf|yum)\s[^;&|\n]*?\binstall\b([^;&|\n]*)")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]+")


class CallbackModule(CallbackBase):  # type: ignore[misc]
    """Answers the tasks of one run."""

    CALLBACK_VERSION = 2.0
    CALLBACK_TYPE = "notification"
    CALLBACK_NAME = "imagebuilder_ask"

    def __init__(self) -> None:
        super().__init__()
        self.told = Path(os.environ["IMAGEBUILDER_TOLD"])
        reach = json.loads(Path(os.environ["IMAGEBUILDER_REACH"]).read_text())
        self.facts: dict[str, Any] = reach["facts"]
        self.unknown: set[str] = set()
        real = action_loader.get

        def get(name: str, *words: Any, **named: Any) -> Any:
            """The action, which calls us instead of the node."""
            handler = real(name, *words, **named)
            task = named.get("task")
            if task is not None and kind_of(task) not in LOCAL and handler is not None:
                handler.run = lambda **_: self.answer(task)
            return handler

        action_loader.get = get

    def tell(self, event: str, task: Any, **facts: object) -> None:
        row = {"event": event, "where": task.get_path() or "", "task": task.get_name(), **facts}
        with self.told.open("a") as sink:
            sink.write(json.dumps(row, default=str) + "\n")

    def answer(self, task: Any) -> dict[str, Any]:
        """The result of a task; runs where Ansible runs its actions."""
        kind, arguments = kind_of(task), dict(task.args)
        if kind in FACTS:
            return {"changed": False, "ansible_facts": dict(self.facts)}
        module = str(self.facts.get("ansible_pkg_mgr", "")) if kind == "package" else kind
        for package in (*packages_of(kind, arguments), *NEEDS.get(module, ())):
            self.tell("package", task, package=package)
        if kind in PACKAGES:
            if arguments.get("deb"):
                why = f"{arguments['deb']} is a package file, which a lock cannot contain"
                self.tell("unknown", task, why=why)
            return {"changed": False}
        return {"changed": True}

    def v2_playbook_on_play_start(self, play: Any) -> None:
        """An unknown task must not end the play."""
        play.ignore_errors = True

    def v2_playbook_on_task_start(self, task: Any, is_conditional: bool) -> None:
        """Ignore errors of the task, and remember its registered variable as unknown."""
        task.ignore_errors = True
        kind = kind_of(task)
        if task.register and kind not in LOCAL | FACTS | PACKAGES:
            self.unknown.add(str(task.register))

    v2_playbook_on_handler_task_start = v2_playbook_on_task_start

    def v2_runner_on_failed(self, result: Any, ignore_errors: bool = False) -> None:
        task = getattr(result, "task", None) or result._task
        if matters(task):
            found = getattr(result, "result", None) or result._result
            self.tell("unknown", task, why=reason_of(found))

    v2_runner_on_unreachable = v2_runner_on_failed

    def v2_runner_on_skipped(self, result: Any) -> None:
        """Record a task that is skipped because of something unknown."""
        task = getattr(result, "task", None) or result._task
        words = set(re.findall(r"\w+", json.dumps(task.when, default=str)))
        if matters(task) and (named := sorted(words & self.unknown)):
            why = f"its condition depends on what the build finds: {', '.join(named)}"
            self.tell("unknown", task, why=why)

    def v2_playbook_on_stats(self, stats: Any) -> None:
        with self.told.open("a") as sink:
            sink.write(json.dumps({"event": "stats"}) + "\n")


def kind_of(task: Any) -> str:
    """The module of a task, without its collection."""
    return str(task.action).rpartition(".")[2]


def matters(task: Any) -> bool:
    """Whether the task may request packages."""
    kind = kind_of(task)
    return kind in PACKAGES | INCLUDES | {"set_fact", "include_vars"}


def packages_of(kind: str, arguments: Mapping[str, Any]) -> Iterator[str]:
    """The names of the packages that a task installs, without versions."""
    if kind in COMMANDS:
        text = arguments.get("_raw_params") or arguments.get("cmd") or ""
        text = text or " ".join(map(str, arguments.get("argv") or ()))
        for words in BY_COMMAND.findall(str(text)):
            yield from (word for word in words.split() if NAME.fullmatch(word))
    if kind not in PACKAGES or arguments.get("state") in ("absent", "build-dep"):
        return
    named = arguments.get("name") or arguments.get("pkg") or arguments.get("package") or ()
    for entry in [named] if isinstance(named, str) else named:
        for name in str(entry).split(","):
            bare = re.split(r"[=<>:/\s]", name.strip())[0]
            if bare and "*" not in bare and not bare.startswith("@"):  # a group of packages
                yield bare


def reason_of(found: Mapping[str, Any]) -> str:
    """Why a task could not be evaluated, in one line."""
    for item in found.get("results") or ():
        if isinstance(item, dict) and item.get("failed"):
            return reason_of(item)
    message = str(found.get("msg") or "it failed").strip().removeprefix("Task failed: ")
    return message.splitlines()[0]
