# SPDX-License-Identifier: Apache-2.0
"""Ansible's way into the root: each command goes to the socket of its sandbox (command_socket.py).

Loaded by ansible-playbook.  Another host than the image (`delegate_to:`, `add_host:`, localhost)
is refused: a build reaches the builder and other machines by no task.
"""

from __future__ import annotations

import json
import os
import shlex
from pathlib import Path
from typing import IO, Any

from ansible.errors import AnsibleConnectionFailure, AnsibleError
from ansible.plugins.connection import ConnectionBase

from imagebuilder.playbook.command_socket import ask
from imagebuilder.playbook.facts import image_facts, pins_of
from imagebuilder.process import Completed

DOCUMENTATION = """
    name: imagebuilder_sandbox
    short_description: into the root that imagebuilder builds
    description:
      - Runs each command in the sandbox on the root.
    author: imagebuilder
    options:
      host:
        description: Set for the image alone; a host that is delegated to does not have it.
        vars:
          - name: imagebuilder_host
      remote_user:
        description: Who logs in, where the root has that account; root otherwise.
        vars:
          - name: ansible_user
          - name: ansible_ssh_user
        keyword:
          - name: remote_user
    extends_documentation_fragment:
      - connection_pipelining
"""


class Connection(ConnectionBase):  # type: ignore[misc]
    """One task's connection; the same sandbox for all."""

    transport = "imagebuilder_sandbox"
    has_pipelining = True
    has_tty = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        told = Path(os.environ["IMAGEBUILDER_REACH"])
        reach = json.loads(told.read_text())
        self.controller = told.parent
        self.host: str = reach["host"]
        self.pins = pins_of(reach["host"], reach["kernel"], reach["epoch"])

    def _connect(self) -> Connection:
        if self.get_option("host") != self.host:
            asked = self._play_context.remote_addr
            raise AnsibleConnectionFailure(
                f"this task is for {asked}, not for the image: a build reaches no other machine"
            )
        self._connected = True
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Run a command in the root; facts in what it says are made the image's."""
        self._connect()
        done = self.enter(self.login(f"cd; {cmd}"), in_data)
        said = done.stdout
        if '"ansible_facts"' in said:
            said = self.without_builder(said)
        return done.status, said.encode(), done.stderr.encode()

    def enter(self, argv: list[str], stdin: bytes | IO[bytes] | None = None) -> Completed:
        """Run `argv` in the root's sandbox."""
        try:
            return ask(self.controller, argv, stdin)
        except OSError as error:
            raise AnsibleConnectionFailure(f"the root no longer exists: {error}") from error

    def login(self, cmd: str) -> list[str]:
        """The words that run `cmd` as ssh would: as whom one logs in, in that home."""
        user = self.get_option("remote_user") or "root"
        shell = ["/bin/sh", "-c", cmd]
        if self.become is not None or user == "root":  # become starts from root
            return shell
        known = self.enter(["/usr/bin/getent", "passwd", user]).status == 0
        return ["/usr/sbin/runuser", user, "-s", *shell] if known else shell

    def without_builder(self, said: str) -> str:
        """What a module said, with the facts of the image only.  Raises AnsibleError."""
        start, end = said.find("{"), said.rfind("}")
        try:
            told = json.loads(said[start : end + 1])
        except ValueError as error:
            raise AnsibleError("a module's facts cannot be read") from error
        if isinstance(told.get("ansible_facts"), dict):
            told["ansible_facts"] = image_facts(told["ansible_facts"], self.pins)
        return json.dumps(told)

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file of the playbook into the root."""
        self._connect()
        with Path(in_path).open("rb") as stream:
            done = self.enter(self.login(f"cat > {shlex.quote(out_path)}"), stream)
        if done.status != 0:
            raise AnsibleError(f"{out_path} cannot be written: {done.stderr.strip()}")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Refused: what is fetched would be written on the builder."""
        raise AnsibleError(f"{in_path} is not fetched: a build writes nothing on the builder")

    def reset(self) -> None:
        """After a reboot that was skipped: nothing to do."""

    def close(self) -> None:
        """The sandbox stays."""
        self._connected = False
