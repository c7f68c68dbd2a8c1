# SPDX-License-Identifier: Apache-2.0
"""Ansible's connection to the root: commands go to the socket of its sandbox (command_socket.py).

Loaded by ansible-playbook.  Hosts other than the image (`delegate_to:`, `add_host:`, localhost) are
refused: no task of a build may reach the builder or another machine.
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
    """The connection of a task; all tasks use the same sandbox."""

    transport = "imagebuilder_sandbox"
    has_pipelining = True
    has_tty = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        path = Path(os.environ["IMAGEBUILDER_REACH"])
        reach = json.loads(path.read_text())
        self.controller = path.parent
        self.host: str = reach["host"]
        self.pins = pins_of(reach["host"], reach["kernel"], reach["epoch"])

    def _connect(self) -> Connection:
        if self.get_option("host") != self.host:
            host = self._play_context.remote_addr
            raise AnsibleConnectionFailure(
                f"this task is for {host}, not for the image: a build reaches no other machine"
            )
        self._connected = True
        return self

    def exec_command(
        self, cmd: str, in_data: bytes | None = None, sudoable: bool = True
    ) -> tuple[int, bytes, bytes]:
        """Run a command in the root; facts in its output are replaced with the image's."""
        self._connect()
        done = self.enter(self.login(f"cd; {cmd}"), in_data)
        output = done.stdout
        if '"ansible_facts"' in output:
            output = self.without_builder(output)
        return done.status, output.encode(), done.stderr.encode()

    def enter(self, argv: list[str], stdin: bytes | IO[bytes] | None = None) -> Completed:
        """Run `argv` in the root's sandbox."""
        try:
            return ask(self.controller, argv, stdin)
        except OSError as error:
            raise AnsibleConnectionFailure(f"the root no longer exists: {error}") from error

    def login(self, cmd: str) -> list[str]:
        """The command that runs `cmd` as ssh would: as the remote user, in its home."""
        user = self.get_option("remote_user") or "root"
        shell = ["/bin/sh", "-c", cmd]
        if self.become is not None or user == "root":  # become starts from root
            return shell
        known = self.enter(["/usr/bin/getent", "passwd", user]).status == 0
        return ["/usr/sbin/runuser", user, "-s", *shell] if known else shell

    def without_builder(self, output: str) -> str:
        """The output of a module with only the image's facts.  Raises AnsibleError."""
        start, end = output.find("{"), output.rfind("}")
        try:
            result = json.loads(output[start : end + 1])
        except ValueError as error:
            raise AnsibleError("a module's facts cannot be read") from error
        if isinstance(result.get("ansible_facts"), dict):
            result["ansible_facts"] = image_facts(result["ansible_facts"], self.pins)
        return json.dumps(result)

    def put_file(self, in_path: str, out_path: str) -> None:
        """Copy a file of the playbook into the root."""
        self._connect()
        with Path(in_path).open("rb") as stream:
            done = self.enter(self.login(f"cat > {shlex.quote(out_path)}"), stream)
        if done.status != 0:
            raise AnsibleError(f"{out_path} cannot be written: {done.stderr.strip()}")

    def fetch_file(self, in_path: str, out_path: str) -> None:
        """Refused, because the file would be written on the builder."""
        raise AnsibleError(f"could not fetch {in_path}: a build must not write on the builder")

    def reset(self) -> None:
        """Do nothing after a skipped reboot."""

    def close(self) -> None:
        """Keep the sandbox."""
        self._connected = False
