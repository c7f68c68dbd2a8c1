# SPDX-License-Identifier: Apache-2.0
"""A node that cannot boot says which stage failed, why, and where to look; then it ends."""

from __future__ import annotations

import re
import stat
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from imagebuilder.boot.lab import SERVER, Lab
from imagebuilder.cpio import Entry
from tests.boot.lab import ABSENT, dhcp_server, nfs_server, web_server
from tests.boot.machine import MACS
from tests.boot.node import NODE, Image, run_failing_node

pytestmark = pytest.mark.boot

HUGE = 8 << 30


@dataclass(frozen=True)
class Failure:
    """A way not to boot: what is planted, the stage that fails, what is said, and which hint."""

    name: str
    root: str
    stage: str
    what: str
    look: str
    entries: tuple[Entry, ...] = ()


FAILURES = (
    Failure(
        "wrong-path", f"nfs4:{SERVER}:/nothing", "root",
        "No such file or directory", f"the server {SERVER}: .*does it export that path",
    ),
    Failure(
        "absent-server", f"nfs4:{ABSENT}:/root", "root",
        f"{ABSENT} does not answer on TCP port 2049", "this node: .*10.77.0.1[0-9][0-9]/24",
    ),
    Failure(
        "image-too-large", f"http://{SERVER}/huge.squashfs", "root",
        "the image has 8192 MiB", f"the server {SERVER}: is the web server running",
    ),
    Failure(
        "device-among-node-files", f"nfs4:{SERVER}:/root", "node-files",
        "./etc/disk", "regular files, directories and symlinks",
        (Entry(f"{NODE}/etc/disk", kind=stat.S_IFBLK, mode=0o600),),
    ),
)  # fmt: skip


@pytest.mark.parametrize("failure", FAILURES, ids=lambda failure: failure.name)
def test_a_failure_names_stage_cause_and_where_to_look(
    room: Lab, image: Image, failure: Failure
) -> None:
    with (room.work / "huge.squashfs").open("wb") as file:
        file.truncate(HUGE)
    words = (
        f"root={failure.root}", "imagebuilder.root-wait=5",
        f"imagebuilder.report=http://{SERVER}/report",
    )  # fmt: skip
    with ExitStack() as servers:
        servers.enter_context(dhcp_server(room))
        web = servers.enter_context(web_server(room, room.work))
        servers.enter_context(nfs_server(room, [("root", image.root)]))
        said = run_failing_node(room, image, words, failure.entries)
        reported = web.said(rf"stage=failed&at={failure.stage}&node={MACS[0]} ")
    check_failure(said, failure.stage, failure.what, failure.look)
    assert reported


def test_a_node_without_an_address_says_what_its_nics_see(room: Lab, image: Image) -> None:
    words = (f"root=nfs4:{SERVER}:/root", "rd.retry=6")
    said = run_failing_node(room, image, words)
    check_failure(said, "network", "no network interface got an address", "virtio_net: link is up")


def check_failure(said: list[str], stage: str, what: str, look: str) -> None:
    """One failure, of that stage, with that cause and that hint."""
    failed = [line for line in said if line.startswith("BOOT FAILED")]
    assert len(failed) == 1, said
    assert failed[0].startswith(f"BOOT FAILED in stage {stage}: ")
    assert what in failed[0]
    hints = [line for line in said if line.startswith("look at: ")]
    assert any(re.search(look, line) for line in hints), hints
