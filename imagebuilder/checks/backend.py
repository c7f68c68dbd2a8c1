# SPDX-License-Identifier: Apache-2.0
"""The `host` of checks: testinfra with commands that run in a sandbox or over ssh."""

from __future__ import annotations

import re

from testinfra.backend.base import BaseBackend, CommandResult
from testinfra.host import Host

from imagebuilder.checks.reach import BOOT, MOST_SECONDS, Reach
from imagebuilder.process import run

LOST = 255  # the status of ssh(1) if the connection failed, not the command
MOST = 300  # characters of a command or an answer in a message


class LostConnection(Exception):  # noqa: N818  # says what happened
    """The node can no longer be reached."""


class CommandBackend(BaseBackend):
    """Runs every command through a Reach; output is UTF-8."""

    NAME = "imagebuilder"

    def __init__(self, reach: Reach) -> None:
        super().__init__(reach.kind)
        self.reach = reach
        self._encoding = "utf-8"

    def run(self, command: str, *args: str, **_: object) -> CommandResult:
        """Run a command with sh.  Raises LostConnection, TimeoutError."""
        script = self.get_command(command, *args)
        limit = MOST_SECONDS[self.reach.kind]
        done = run([script], sandbox=self.reach, seconds=limit, check=False)
        if done.late:
            raise TimeoutError(f"did not end within {limit} s: {shortened(script)}")
        if self.reach.kind == BOOT and done.status == LOST:
            raise LostConnection(last_line(done.stderr) or "ssh ended without a message")
        status = done.status if done.status >= 0 else 128 - done.status
        return self.result(status, self.encode(script), done.stdout, done.stderr)


class CheckedHost(Host):
    """testinfra's Host with errors that show a command's output instead of its representation."""

    def run_expect(
        self, expected: list[int], command: str, *args: str, **kwargs: object
    ) -> CommandResult:
        """Run a command.  Raises AssertionError unless its exit status is one of `expected`."""
        __tracebackhide__ = True
        done = self.run(command, *args, **kwargs)
        if done.rc not in expected:
            raise AssertionError(complaint(done))
        return done

    def check_output(self, command: str, *args: str, **kwargs: object) -> str:
        """A command's output without the last newline.  Raises AssertionError if it failed."""
        __tracebackhide__ = True
        return self.run_expect([0], command, *args, **kwargs).stdout.rstrip("\r\n")


def make_host(reach: Reach) -> Host:
    backend = CommandBackend(reach)
    host = CheckedHost(backend)
    backend.set_host(host)
    return host


def complaint(done: CommandResult) -> str:
    """The failed command and its last line of output, in two lines."""
    output = last_line(done.stderr) or last_line(done.stdout) or "it printed nothing"
    command = shortened(done.command.decode(errors="replace"))
    return f"exit status {done.rc} of: {command}\n{shortened(output)}"


def last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""


def shortened(text: str) -> str:
    """A command or an answer in one line."""
    line = re.sub(r"\s+", " ", text).strip()
    return line if len(line) <= MOST else f"{line[:MOST]}…"
