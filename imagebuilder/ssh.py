# SPDX-License-Identifier: Apache-2.0
"""The options of every ssh(1) that is started here, and what its failures mean."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from imagebuilder.errors import InputError

SSH_FAILED = 255  # ssh(1), EXIT STATUS: the connection, not the command
# For every session: ~/.ssh/config says how a machine is reached (keys, user, jump hosts), but never
# what a command there does, gets or prints.  The first SetEnv counts (ssh_config(5)); nothing reads
# this one.  sftp does not take a SessionType.
SESSION = {
    "SetEnv": "IMAGEBUILDER=1",
    "StdinNull": "no",
    "ForkAfterAuthentication": "no",
    "PermitLocalCommand": "no",
    "ForwardX11": "no",
    "ClearAllForwardings": "yes",
    "Tunnel": "no",
}
# What a program needs that talks to another one: its own command, and its bytes as they are.
PLAIN = {"RequestTTY": "no", "RemoteCommand": "none", "SessionType": "default"}
# For the person's own machines: as they connect to them, but without questions.  Our connection
# does not stay open for others.
HOST_OPTIONS = {
    "BatchMode": "yes",
    "ConnectTimeout": "20",
    "ServerAliveInterval": "15",
    "ControlMaster": "no",
    **SESSION,
    **PLAIN,
}
# For nodes.  What a person wants of other hosts is nothing for a node's root.  No PLAIN: people log
# in with these too, and Ansible asks for terminals.
NODE_OPTIONS = {
    "GlobalKnownHostsFile": "none",
    "KnownHostsCommand": "none",
    "StrictHostKeyChecking": "yes",
    "GSSAPIDelegateCredentials": "no",
    "ForwardAgent": "no",
    "UpdateHostKeys": "no",
    "VerifyHostKeyDNS": "no",
    **SESSION,
}
# A connection that a person keeps open (ControlPersist) may lead to whoever had this address
# before, and nobody compared its host key with the tree's.
NOT_SHARED = {"ControlMaster": "no", "ControlPath": "none"}
# Part of an error of ssh, and what to do about it.
HINTS = {
    "Permission denied": "ssh cannot ask for a password here: authorize your key with ssh-copy-id; "
    "under sudo, use --preserve-env=SSH_AUTH_SOCK to keep your agent",
    "Host key verification failed": "connect once by hand with ssh and compare the host's key",
    "": "check the name, the address and the port, and try to connect by hand with ssh",
}


def option_words(options: Mapping[str, str]) -> list[str]:
    """Options for the command line of ssh, sftp and scp."""
    return [word for name, value in options.items() for word in ("-o", f"{name}={value}")]


def render_options(options: Mapping[str, str]) -> str:
    """Options as lines of a block of ssh_config(5)."""
    return "".join(f"  {name} {value}\n" for name, value in options.items())


def quoted_path(path: Path) -> str:
    """A path as a value of an option: ssh expands `%` and `${...}` in it, and ends it at a quote.

    Raises InputError for a path that no option can have.
    """
    text = os.fspath(path)
    if not text.isprintable() or any(part in text for part in ('"', "\\", "${")):
        what = "contains characters that ssh does not take in the path of a file"
        hint = 'use a folder whose path has no control characters and none of " \\ ${'
        raise InputError(what, where=ascii(text), hint=hint)
    return f'"{text.replace("%", "%%")}"'


def find_hint(said: str) -> str:
    """What to do about an error of ssh."""
    return next(hint for part, hint in HINTS.items() if part in said)


def ssh_environment() -> dict[str, str]:
    """Variables that ssh also gets: the person's agent."""
    return {name: os.environ[name] for name in ("SSH_AUTH_SOCK",) if name in os.environ}
