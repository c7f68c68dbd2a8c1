# SPDX-License-Identifier: Apache-2.0
"""The socket of the root's sandbox answers, whatever a task does there."""

from __future__ import annotations

from pathlib import Path

from imagebuilder.playbook.command_socket import MOST_SAID, TOO_MUCH, ask, command_socket
from tests.unit.proof.test_hostile_numbers import Directly


def test_a_task_that_prints_without_end_is_stopped_and_told_so(tmp_path: Path) -> None:
    with command_socket(tmp_path, Directly()):
        done = ask(tmp_path, ["yes"])
        assert (done.status, done.stdout, done.stderr) == (1, "", TOO_MUCH)
        assert ask(tmp_path, ["echo", "next"]).stdout == "next\n"
        assert len(ask(tmp_path, ["head", "-c", str(MOST_SAID), "/dev/zero"]).stdout) == MOST_SAID


def test_a_command_that_cannot_run_is_answered(tmp_path: Path) -> None:
    with command_socket(tmp_path, Directly()):
        for word, why in (("x" * (1 << 18), "Argument list too long"), ("a\0b", "null byte")):
            done = ask(tmp_path, ["true", word])
            assert done.status == 1
            assert done.stderr.startswith("could not run true ")
            assert why in done.stderr
        assert ask(tmp_path, ["cat"], b"words").stdout == "words"
