# SPDX-License-Identifier: Apache-2.0
"""Sections of docs/control-node.md, typed where they belong."""

from __future__ import annotations

import re

from imagebuilder.serve.nfsconf import CONNECTIONS
from tests.control.page import BUILDER, Page
from tests.control.world import SERVER, Builder, Nuc


def type_blocks(page: Page, section: str, builder: Builder, nuc: Nuc) -> None:
    """Type a section's commands, each block where it belongs."""
    for block in page.take(section):
        said = (builder if block.where == BUILDER else nuc).type(block.script)
        print(f"## {section} ({block.where})\n{said.stdout}{said.stderr}", flush=True)


def start_serving(page: Page, nuc: Nuc) -> None:
    """Type the commands of that section, the last of which `--install` prints as the page does."""
    install, start = page.take("Serve nodes from boot on")
    said = nuc.type(install.script)
    print(f"{said.stdout}{said.stderr}", flush=True)
    lines = re.findall(r"^ +(sudo .*)$", said.stdout, re.MULTILINE)
    printed = [
        line.partition(" #")[0].strip() for line in lines if "if they were running" not in line
    ]
    joined = re.sub(r"\\\n\s+", "", start.script)
    assert printed == joined.splitlines()
    nuc.type(start.script)


def look_healthy(nuc: Nuc) -> None:
    """What looks at the host finds nothing wrong, as root or not, while it serves."""
    said = {}
    for command in ("doctor --serve", "serve --check"):
        done = nuc.type(f"imagebuilder {command} --interface enp3s0")
        said[command] = done.stdout + done.stderr
        print(f"$ imagebuilder {command}\n{said[command]}", flush=True)
    assert f"tcp port 2049, NFS: listens on {SERVER}" in said["doctor --serve"]
    most = nuc.type("sudo cat /proc/fs/nfsd/max_connections").stdout
    assert most.strip() == str(CONNECTIONS)
    failed = nuc.type("systemctl list-units --failed --no-legend --plain").stdout
    assert "imagebuilder" not in failed


def install_web_page(page: Page, nuc: Nuc) -> tuple[str, str]:
    """Type the commands of that section; the token, and the command that opens a tunnel."""
    install, start, tunnel = page.take("Install the web page")
    said = nuc.type(install.script)
    print(f"{said.stdout}{said.stderr}", flush=True)
    [token] = re.findall(r"^ibt_\S+$", said.stdout, re.MULTILINE)
    printed = [line.split() for line in said.stdout.splitlines()]
    for line in start.script.splitlines():
        assert any({*line.split()} <= {*words} for words in printed), f"not printed: {line}"
    nuc.type(start.script)
    return token, tunnel.script
