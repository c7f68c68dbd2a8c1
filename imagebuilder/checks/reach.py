# SPDX-License-Identifier: Apache-2.0
"""How a check runs a command in a root or on a node, and the prefixes of the plugin's lines."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.process import Word

STATIC, BOOT = "static", "boot"
CHECK, FAULT, LOST = "#check ", "#fault ", "#lost "
MOST_SECONDS = {STATIC: 180, BOOT: 300}  # per command; an emulated node is slow
# sshd answers before a node has started everything.
SETTLE = "timeout 150 systemctl is-system-running --wait"
# Reserves the status of a lost connection for ssh: a command with that status gets 254.
OVER_SSH = '(eval "$1"); status=$?; [ "$status" -ne 255 ] || status=254; exit "$status"'


@dataclass(frozen=True)
class Reach:
    """How to run a command: the words before the script, and its environment.

    `environment` is None for ssh, where the node sets it.
    """

    kind: str
    prefix: tuple[str, ...]
    environment: Mapping[str, str] | None = None

    def words(self, argv: Sequence[Word]) -> list[Word]:
        """The whole command for the script that is the only word of `argv`."""
        (script,) = argv
        if self.kind == STATIC:
            return [*self.prefix, "sh", "-c", script]
        return [*self.prefix, shlex.join(["sh", "-c", OVER_SSH, "sh", str(script)])]
