# SPDX-License-Identifier: Apache-2.0
"""A node boots from NFS version 3, keeps its network, takes its own files, and powers off.

Roots over NFS version 4 and HTTP are in test_gate.py.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from imagebuilder.boot.lab import SERVER, Lab
from imagebuilder.boot.machine import MEMORY_MIB
from imagebuilder.cpio import Entry
from tests.boot.lab import address_of, dhcp_server, nfs_server, web_server
from tests.boot.machine import MACS, UUID
from tests.boot.node import NODE, OFF_SECONDS, Image, Told, run_node

pytestmark = pytest.mark.boot

STAGES = ["network", "root", "overlay", "node-files", "switch-root"]
NAME = "node7"
# path, what stat must tell: modes and owners are kept, links of the root neither followed by a
# file nor replaced by a folder, and folders of the root keep their own modes.
NODE_FILES = (
    (Entry(f"{NODE}/etc/secret", b"x", 0o640, 0, 4), "regular file 640 0:4"),
    (Entry(f"{NODE}/etc/owned", b"x", 0o4755, 1, 2), "regular file 4755 1:2"),
    (Entry(f"{NODE}/etc/link", link="/run/nowhere"), "symbolic link 777 0:0"),
    (Entry(f"{NODE}/etc/os-release", b"ID=node\n"), "regular file 644 0:0"),
    (Entry(f"{NODE}/lib/laboratory", b"x", 0o600), "regular file 600 0:0"),
    (Entry(f"{NODE}/var/lib/node/deep", b"x", 0o600, 7, 7), "regular file 600 7:7"),
)


def test_a_node_boots_from_nfs_version_3_and_takes_its_own_files(room: Lab, image: Image) -> None:
    entries = [entry for entry, _ in NODE_FILES]
    words = [
        f"root=nfs:{SERVER}:{image.root}", f"imagebuilder.report=http://{SERVER}/report",
        "imagebuilder.overlay-size=25%",
    ]  # fmt: skip
    with ExitStack() as servers:
        servers.enter_context(dhcp_server(room, [(MACS[0], NAME)]))
        web = servers.enter_context(web_server(room, room.work))
        servers.enter_context(nfs_server(room, [("root", image.root)]))
        told = run_node(room, image, words, entries)
        reports = [line.partition("stage=")[2] for line in web.said("GET /report")]

    # 1. It is up, as who it is.
    assert told.one("state") == "running", told.all("failed")
    assert [line.split()[1] for line in told.all("stage")] == STAGES
    assert told.one("machine-id") == UUID.replace("-", "")
    assert told.one("name") == NAME
    assert f" {address_of(room, MACS[0])}/24 " in told.one("address")

    # 2. The root: what a release that never changes allows, and a bounded overlay.
    assert told.one("root") == "overlay"
    assert told.one("write") == "written"
    assert int(told.one("read")) > 1_000_000
    assert told.one("lower").startswith(f"nfs {SERVER}:{image.root} ro,")
    assert {"vers=3", "nolock", "nocto", "mountproto=tcp", "hard"} <= options(told)
    size = int(told.one("overlay").split()[0])
    assert 0.2 < size / (MEMORY_MIB << 20) < 0.25

    # 3. The reports name the stages and the NIC.
    assert [report.partition("&")[0] for report in reports] == STAGES
    assert all(f"&node={MACS[0]} " in report for report in reports)

    # 4. The node's own files.
    shown = {f"/{entry.path.removeprefix(f'{NODE}/')} {stat}" for entry, stat in NODE_FILES}
    assert set(told.all("stat")) == shown

    # 5. Nothing on a node that its state makes no sense of.
    assert told.all("journal") == []
    assert not [line for line in told.all("timer") if "apt" in line or "fstrim" in line]
    assert not [line for line in told.all("listens") if ":111 " in line]
    assert told.off_seconds < OFF_SECONDS


def options(told: Told) -> set[str]:
    """The mount options of the read-only root."""
    return set(told.one("lower").split()[2].split(","))
