# SPDX-License-Identifier: Apache-2.0
"""ssh to a node under test: one connection for all commands, which trusts only that node."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.boot.lab import Lab
from imagebuilder.errors import WorkError
from imagebuilder.process import Completed, Word, run
from imagebuilder.ssh import NODE_OPTIONS, quoted_path, render_options

CONNECT_SECONDS = 120
CONFIG = """\
Host {name}
    HostName {address}
    User root
    IdentityFile {key}
    IdentitiesOnly yes
    UserKnownHostsFile {known}
    HostKeyAlias {name}
    BatchMode yes
    ConnectTimeout {patience}
    ServerAliveInterval 15
    ServerAliveCountMax 8
    ControlPath {socket}
""" + render_options(NODE_OPTIONS)


@dataclass(frozen=True)
class Login:
    """ssh to a node as root, over an open connection."""

    lab: Lab
    name: str
    config: Path

    @property
    def words(self) -> list[Word]:
        """The command without the script that the node will run."""
        return self.lab.words(["ssh", "-F", self.config, self.name])

    def __call__(self, script: str, *, stdin: bytes = b"", check: bool = True) -> Completed:
        """Run a shell script on the node.  Raises WorkError if it fails."""
        return run([*self.words, script], stdin=stdin or None, check=check)


def make_key(folder: Path) -> Path:
    """A key pair for one test; returns the private key."""
    key = folder / "key"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "imagebuilder-test", "-f", key])
    return key


@contextlib.contextmanager
def login(lab: Lab, name: str, address: str, host_key: str, key: Path) -> Iterator[Login]:
    """Log in to a node whose public host key is `host_key`.

    Raises WorkError with the error of ssh if the login fails.
    """
    known, config = lab.work / f"{name}.known", lab.work / f"{name}.ssh"
    known.write_text(f"{name} {' '.join(host_key.split()[:2])}\n")
    socket = f"/run/{name}.ssh"
    config.write_text(
        CONFIG.format(
            name=name,
            address=address,
            key=quoted_path(key),
            known=quoted_path(known),
            patience=CONNECT_SECONDS,
            socket=socket,
        )
    )
    # The connection is a child process, not a daemon that outlives us.
    argv: list[Word] = [
        "ssh", "-F", config, "-N", "-M",
        "-o", "PermitLocalCommand=yes", "-o", "LocalCommand=echo ready", name,
    ]  # fmt: skip
    with lab.program(f"ssh-{name}", argv) as line:
        try:
            line.wait_for(r"^ready", CONNECT_SECONDS)
        except WorkError as error:
            raise WorkError(f"could not log in to {name}: {error}", where=address) from error
        yield Login(lab, name, config)
