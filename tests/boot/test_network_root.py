# SPDX-License-Identifier: Apache-2.0
"""A node boots from NFS, keeps its network, takes its own files, and powers off.

Roots over HTTP are in test_chain.py.
"""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from imagebuilder.nodes.initrd import Entry
from tests.boot.lab import SERVER, Lab, address_of, dhcp_server, nfs_server, web_server
from tests.boot.machine import MACS, MEMORY_MIB, UUID
from tests.boot.node import NODE, Image, Told, run_node

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
ROOTS_OWN = (
    Entry(f"{NODE}/usr/lib/laboratory", b"x", 0o600),
    Entry(f"{NODE}/usr/lib/os-release"),
)


def check_root(told: Told, room: Lab) -> None:
    """What holds over every version of NFS."""
    assert told.one("state") == "running", told.all("failed")
    assert told.one("root") == "overlay"
    assert told.one("write") == "written"
    assert int(told.one("read")) > 1_000_000
    assert [line.split()[1] for line in told.all("stage")] == STAGES
    assert told.one("machine-id") == UUID.replace("-", "")
    assert told.one("name") == NAME
    assert f" {address_of(room, MACS[0])}/24 " in told.one("address")


def test_a_node_boots_from_nfs_and_takes_its_own_files(room: Lab, image: Image) -> None:
    entries = [entry for entry, _ in NODE_FILES]
    words = [
        f"root=nfs4:{SERVER}:/root", f"imagebuilder.report=http://{SERVER}/report",
        "imagebuilder.overlay-size=25%",
    ]  # fmt: skip
    with ExitStack() as servers:
        servers.enter_context(dhcp_server(room, [(MACS[0], NAME)]))
        web = servers.enter_context(web_server(room, room.work))
        servers.enter_context(nfs_server(room, [("root", image.root)]))
        told = run_node(room, image, words, entries)
        reports = [line.partition("stage=")[2] for line in web.said("GET /report")]
    check_root(told, room)

    # 1. The root: what a release that never changes allows, and a bounded overlay.
    assert told.one("lower").startswith(f"nfs4 {SERVER}:/root ro,")
    assert {"vers=4.1", "nocto", "noatime", "hard", "acregmax=86400"} <= options(told)
    size = int(told.one("overlay").split()[0])
    assert 0.2 < size / (MEMORY_MIB << 20) < 0.25

    # 2. The reports name the stages and the NIC.
    assert [report.partition("&")[0] for report in reports] == STAGES
    assert all(f"&node={MACS[0]} " in report for report in reports)

    # 3. The node's own files.
    shown = {f"/{entry.path.removeprefix(f'{NODE}/')} {stat}" for entry, stat in NODE_FILES}
    assert set(told.all("stat")) == shown

    # 4. Nothing on a node that its state makes no sense of.
    assert told.all("journal") == []
    assert not [line for line in told.all("timer") if "apt" in line or "fstrim" in line]
    assert not [line for line in told.all("listens") if ":111 " in line]
    assert told.off_seconds < 30


def test_a_node_boots_from_nfs_version_3(room: Lab, image: Image) -> None:
    with ExitStack() as servers:
        servers.enter_context(dhcp_server(room, [(MACS[0], NAME)]))
        servers.enter_context(nfs_server(room, [("root", image.root)]))
        told = run_node(room, image, [f"root=nfs:{SERVER}:{image.root}"], ROOTS_OWN)
    check_root(told, room)
    assert told.one("lower").startswith(f"nfs {SERVER}:{image.root} ro,")
    assert {"vers=3", "nolock", "nocto", "mountproto=tcp"} <= options(told)


def options(told: Told) -> set[str]:
    """The mount options of the read-only root."""
    return set(told.one("lower").split()[2].split(","))
