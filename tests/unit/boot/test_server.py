# SPDX-License-Identifier: Apache-2.0
"""The nodes of a test, as the server is told of them."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.boot.gate import (
    GateOptions,
    choose_firmwares,
    choose_release,
    choose_roots,
    tell_release,
)
from imagebuilder.boot.machine import Firmware
from imagebuilder.boot.server import LET_ROOT_IN, SSHD_FILE, guests_of, make_view
from imagebuilder.checks.facts import Facts
from imagebuilder.errors import InputError
from imagebuilder.nodes.load import load_nodes
from imagebuilder.process import Word, run
from imagebuilder.tree import ReleaseName, make_tree
from imagebuilder.ui import Ui
from tests.images import IMAGE

OLD, NEW = ReleaseName("generic", "20260101-a"), ReleaseName("generic", "20260202-b")
FACTS = Facts(replace(IMAGE, profile="generic", version="20260101-a"))


def test_the_view_has_the_release_as_candidate_and_nodes_that_boot_it(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.with_suffix(".pub").write_text("ssh-ed25519 AAAA test\n")
    guests = guests_of(2)
    view = make_view(tmp_path / "view", OLD, guests, key, root="http", cmdline=("quiet", "a=b"))
    nodes = load_nodes(view).nodes
    assert [(n.name, n.macs, n.address) for n in nodes] == [
        (g.name, (g.nic.mac,), g.address) for g in guests
    ]
    assert {(n.boots, n.root, n.console, n.cmdline) for n in nodes} == {
        ("generic/candidate", "http", ("ttyS0",), ("quiet", "a=b"))
    }
    keys = view.path / nodes[0].files / "root/.ssh/authorized_keys"
    assert keys.read_text() == "ssh-ed25519 AAAA test\n"
    assert "PermitRootLogin prohibit-password" in (view.path / "own" / SSHD_FILE).read_text()
    assert view.channel("generic", "candidate").resolve() == view.release(
        ReleaseName("generic", OLD.version)
    )


def test_no_two_guests_are_alike() -> None:
    guests = guests_of(8)
    assert len({g.nic.mac for g in guests}) == len({g.address for g in guests}) == 8


def test_a_profile_stands_for_its_candidate_and_without_one_for_its_newest(tmp_path: Path) -> None:
    tree = make_tree(tmp_path)
    for release in (OLD, NEW):
        tree.release(release).mkdir(parents=True)
    assert choose_release(tree, "generic") == NEW
    link = tree.channel("generic", "candidate")
    link.parent.mkdir(parents=True)
    link.symlink_to(f"../../http/releases/generic/{OLD.version}")
    assert choose_release(tree, "generic") == OLD
    assert choose_release(tree, f"generic@{NEW.version}") == NEW


def test_which_release_is_tested_is_told_unless_it_is_named(tmp_path: Path) -> None:
    tree, stream = make_tree(tmp_path), io.StringIO()
    tree.release(NEW).mkdir(parents=True)
    ui = Ui.for_stream(stream, {})
    assert tell_release(tree, "generic", ui) == NEW
    assert tell_release(tree, str(NEW), ui) == NEW
    assert stream.getvalue() == f"Testing {NEW}\n"


def test_ways_are_chosen_or_refused() -> None:
    assert choose_firmwares("both") == (Firmware.UEFI, Firmware.BIOS)
    assert choose_roots(FACTS, "") == ("nfs",)
    assert choose_roots(FACTS, "both") == ("nfs", "http")
    assert choose_roots(FACTS, "all") == ("nfs", "nfs-squashfs", "http", "http-erofs")
    assert choose_roots(FACTS, "http-erofs") == ("http-erofs",)
    with pytest.raises(InputError, match="uefi, bios or both"):
        choose_firmwares("coreboot")
    with pytest.raises(InputError, match="nfs, nfs-squashfs, http, http-erofs, both, all"):
        choose_roots(FACTS, "iscsi")


def test_the_default_is_how_nodes_boot() -> None:
    options = GateOptions()
    assert (options.firmware, options.root, options.nodes, options.selection) == ("uefi", "", 1, "")


@pytest.mark.root
def test_root_gets_in_where_the_image_keeps_it_out(tmp_path: Path) -> None:
    Path("/run/sshd").mkdir(exist_ok=True)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", tmp_path / "key"])
    (tmp_path / "00.conf").write_text(LET_ROOT_IN)
    (tmp_path / "10.conf").write_text(
        "AllowGroups compute\nDenyUsers root\nPermitRootLogin no\nForceCommand /bin/false\n"
        "PubkeyAuthentication no\nAuthorizedKeysFile /etc/ssh/keys\n"
    )
    (tmp_path / "sshd_config").write_text(f"Include {tmp_path}/*.conf\n")

    def settings(user: str) -> set[str]:
        who = f"user={user},host=h,addr=203.0.113.1"
        words: list[Word] = [
            "/usr/sbin/sshd",
            "-T",
            "-f",
            tmp_path / "sshd_config",
            "-h",
            tmp_path / "key",
            "-C",
            who,
        ]
        return set(run(words).stdout.lower().splitlines())

    root, other = settings("root"), settings("daemon")
    assert {"allowusers root", "allowgroups root", "authorizedkeysfile .ssh/authorized_keys",
            "pubkeyauthentication yes", "forcecommand none"} <= root  # fmt: skip
    assert {"permitrootlogin no", "denyusers root", "pubkeyauthentication no"} <= other
    assert not {"denyusers root", "permitrootlogin no", "permitrootlogin yes"} & root
