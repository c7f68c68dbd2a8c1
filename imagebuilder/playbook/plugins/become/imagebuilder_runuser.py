# SPDX-License-Identifier: Apache-2.0
"""`become:` in the root: runuser(1), which needs no sudo, no password and no terminal.

Loaded by ansible-playbook, whatever `become_method` the playbook names.
"""

from __future__ import annotations

import shlex
from typing import Any

from ansible.plugins.become import BecomeBase

DOCUMENTATION = """
    name: imagebuilder_runuser
    short_description: become another user of the root
    description:
      - runuser(1) from root.
    author: imagebuilder
    options:
      become_user:
        description: Who to become.
        default: root
        keyword:
          - name: become_user
        vars:
          - name: ansible_become_user
      become_exe:
        description: Not used.
        default: runuser
      become_flags:
        description: Not used.
        default: ""
      become_pass:
        description: Not used.
        required: false
"""


class BecomeModule(BecomeBase):  # type: ignore[misc]
    """The command that becomes another user."""

    name = "imagebuilder_runuser"

    def build_become_command(self, cmd: str, shell: Any) -> str:
        """`cmd` as the user of the task, with that user's HOME."""
        super().build_become_command(cmd, shell)
        user = self.get_option("become_user") or "root"
        if not cmd or user == "root":
            return cmd
        command = self._build_success_command(cmd, shell)
        return f"runuser {shlex.quote(user)} -s /bin/sh -c {shlex.quote(command)}"
