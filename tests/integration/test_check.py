# SPDX-License-Identifier: Apache-2.0
"""The static checks on a built `generic`: no false alarm, and every planted fault is named."""

from __future__ import annotations

import json
import lzma
import os
import re
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from imagebuilder.checks.facts import Facts, facts_of
from imagebuilder.checks.find import find_checks
from imagebuilder.checks.run import run_tree_checks
from imagebuilder.cpio import Entry, render_cpio
from imagebuilder.image.assemble import boot_file
from imagebuilder.image.types import load_image
from imagebuilder.process import run
from imagebuilder.report.types import Check, Outcome
from tests.check_room import by_name, make_file
from tests.workshop import SHIPPED_OVERLAYS, Workshop

pytestmark = pytest.mark.root

OTHER = "9.9.9+test1-amd64"
# Revision 2 with cap_net_raw (linux/capability.h: struct vfs_cap_data).
NET_RAW = struct.pack("<IIIII", 0x02000001, 1 << 13, 0, 0, 0)


@dataclass(frozen=True)
class Built:
    """`generic` as files, with the root as a tree."""

    folder: Path

    @property
    def root(self) -> Path:
        return self.folder / "root"

    @property
    def manifest(self) -> dict[str, object]:
        found: dict[str, object] = json.loads((self.folder / "manifest.json").read_text())
        return found

    @property
    def facts(self) -> Facts:
        return facts_of(load_image(self.folder), self.folder)

    def check(
        self, work: Path, selection: str = "", facts: Facts | None = None
    ) -> tuple[Check, ...]:
        """Run its static checks with the shipped overlays."""
        facts = facts or self.facts
        files = find_checks(SHIPPED_OVERLAYS, facts.image.overlays)
        return run_tree_checks(self.root, files, facts, work, epoch=1, selection=selection)


@pytest.fixture(scope="module")
def built(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Built:
    """The image."""
    folder = tmp_path_factory.mktemp("built") / "generic"
    workshop("export", "generic", os.fspath(folder))
    return Built(folder)


def copy_of(built: Built, folder: Path) -> Built:
    """The image again, as hard links: what is planted must be a new file."""
    run(["cp", "--archive", "--link", built.folder, folder])
    return Built(folder)


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    """Put a new file in the place of one."""
    content = change(path.read_bytes()) if path.is_file() else change(b"")
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def failures(checks: tuple[Check, ...]) -> dict[str, str]:
    """The messages of the checks that failed."""
    told = by_name(checks)
    return {name: message for name, (outcome, message) in told.items() if outcome is Outcome.FAILED}


def test_a_good_image_passes(built: Built, tmp_path: Path) -> None:
    found = built.check(tmp_path)
    assert failures(found) == {}
    skipped = [check.title for check in found if check.outcome is Outcome.SKIPPED]
    assert skipped == []
    assert len(found) > 55
    assert {check.group for check in found} == {"common", *built.facts.image.overlays}


def test_the_image_declares_its_ports(built: Built) -> None:
    assert built.facts.image.listens is not None
    assert "22/tcp" in built.facts.image.listens


# Faults in the tree, all at once: each is told by a check of its own.


def plant_module(root: Path, kernel: str) -> None:
    """A module that was built for another kernel, as DKMS does in a chroot."""
    folder = root / "usr/lib/modules" / kernel
    real = next(folder.rglob("dummy.ko.xz"))
    content = lzma.decompress(real.read_bytes())
    strange = f"vermagic={OTHER:<{len(kernel)}}"[: len("vermagic=") + len(kernel)]
    assert f"vermagic={kernel}".encode() in content
    planted = folder / "updates/dkms/strange.ko"
    rewrite(planted, lambda _: content.replace(f"vermagic={kernel}".encode(), strange.encode()))


def plant_faults(built: Built) -> None:
    """Everything at once."""
    root, kernel = built.root, built.facts.image.kernel.release
    (root / "usr/lib/modules" / OTHER).mkdir()
    plant_module(root, kernel)
    next((root / "usr/lib/modules" / kernel).rglob("vxlan.ko.xz")).unlink()
    rewrite(built.folder / "vmlinuz", lambda old: old.replace(kernel.encode(), b"8" * len(kernel)))
    rewrite(root / "etc/machine-id", lambda _: b"0123456789abcdef0123456789abcdef\n")
    rewrite(root / "etc/hostname", lambda _: b"builder\n")
    rewrite(root / "var/lib/systemd/random-seed", lambda _: b"x")
    rewrite(root / "etc/group", lambda old: old.replace(b"render:", b"rendering:"))
    os.mkfifo(root / "var/lib/fifo")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(os.fspath(root / "var/lib/socket"))
    rewrite(root / "opt/anybody", lambda _: b"x")
    (root / "opt/anybody").chmod(0o666)
    rewrite(root / "opt/nobodys", lambda _: b"x")
    os.chown(root / "opt/nobodys", 54321, 0)
    rewrite(root / "usr/bin/ping2", lambda _: b"x")
    (root / "usr/bin/ping2").chmod(0o755)
    os.setxattr(root / "usr/bin/ping2", "security.capability", NET_RAW)
    wants = root / "etc/systemd/system/multi-user.target.wants/gone.service"
    wants.symlink_to("/usr/lib/systemd/system/gone.service")
    (root / "sbin").unlink()
    (root / "sbin").mkdir()


NAMED: Mapping[str, tuple[str, ...]] = {
    "test_there_is_one_kernel": (OTHER,),
    "test_modules_are_listed": (
        "updates/dkms/strange.ko is not in modules.dep",
        "vxlan.ko.xz is in modules.dep, but missing",
    ),
    "test_every_module_is_for_the_kernel": ("updates/dkms/strange.ko is for 9.9.9", "dkms"),
    "test_kernel_is_the_one_of_the_modules": ("vmlinuz is 888",),
    "test_kernel_and_initrd_are_those_of_the_manifest": ("vmlinuz: the content does not match",),
    "test_machine_id_is_empty": ("/etc/machine-id is 0123",),
    "test_nothing_names_one_machine": ("/etc/hostname", "/var/lib/systemd/random-seed"),
    "test_declared_groups_and_users_are_there": ("the group render", "compute in the group render"),
    "test_only_files_folders_and_links": ("/var/lib/fifo", "/var/lib/socket"),
    "test_nothing_is_for_all_to_write": ("/opt/anybody",),
    "test_every_owner_has_a_name": ("/opt/nobodys (54321:0)",),
    "test_nothing_needs_file_capabilities": ("/usr/bin/ping2",),
    "test_enabled_units_exist": ("gone.service",),
    "test_usr_is_merged": ("/sbin",),
}


def test_planted_faults_are_named(built: Built, tmp_path: Path) -> None:
    bad = copy_of(built, tmp_path / "bad")
    plant_faults(bad)
    found = failures(bad.check(tmp_path / "work", "common"))
    for name, words in NAMED.items():
        assert name in found, f"{name} has seen nothing"
        for word in words:
            assert word in found[name]
    assert found.keys() == NAMED.keys()


# Faults in the initrd.


def make_initrd(kernel: str, modules: str, *drivers: str) -> bytes:
    """A small initrd that dracut's tools read."""
    folder = f"usr/lib/modules/{kernel}/kernel"
    entries = [Entry("usr/lib/dracut/modules.txt", modules.encode())]
    entries += [Entry(f"{folder}/{driver}.ko.xz", b"x") for driver in drivers]
    return render_cpio(entries)


def make_bad_initrd(fault: str, real: bytes, kernel: str) -> bytes:
    """The initrd with one fault."""
    match fault:
        case "truncated":
            return real[: len(real) // 2]
        case "other kernel":
            return make_initrd(OTHER, "imagebuilder", "igc")
        case "no init":
            return make_initrd(kernel, "imagebuilder", "igc")
        case "no network root":
            return make_initrd(kernel, "nfs\nbase", "igc")
        case "no driver":
            return make_initrd(kernel, "imagebuilder", "igc")
        case "no firmware":
            return make_initrd(kernel, "imagebuilder", "r8169")
    return os.urandom(5000)


@pytest.mark.parametrize(
    ("fault", "check", "word"),
    [
        ("truncated", "test_initrd_can_be_read", "cannot be read"),
        ("garbage", "test_initrd_can_be_read", "cannot be read"),
        ("other kernel", "test_initrd_is_for_the_kernel", OTHER),
        ("no init", "test_initrd_has_an_init", "/init"),
        ("no network root", "test_initrd_has_the_network_root", "nfs"),
        ("no driver", "test_initrd_has_the_drivers", "r8169"),
        ("no firmware", "test_initrd_has_the_firmware_of_its_nics", "rtl_nic/"),
    ],
)
def test_a_bad_initrd_is_named(
    built: Built, tmp_path: Path, fault: str, check: str, word: str
) -> None:
    bad = copy_of(built, tmp_path / "bad")
    kernel, initrd = bad.facts.image.kernel, bad.folder / "initrd.img"
    early = (bad.folder / "early.img").read_bytes()
    rewrite(initrd, lambda real: make_bad_initrd(fault, early + real, kernel.release))
    kernel = replace(kernel, early=None, initrd=boot_file(initrd))
    facts = facts_of(replace(bad.facts.image, kernel=kernel), bad.folder)
    found = failures(bad.check(tmp_path / "work", "initrd", facts))
    assert word in found[check]
    assert "test_kernel_and_initrd_are_those_of_the_manifest" not in found


# As a person types it.


def test_the_command_says_what_it_did(workshop: Workshop) -> None:
    done = workshop("check", "generic")
    assert "Checking out the image: done in" in done.stderr
    assert re.search(r"Checking generic@\S+: done in .* s, \d+ checks\n", done.stderr)
    assert done.stdout.startswith("generic@")
    assert done.stdout.strip().endswith(" passed")
    told = json.loads(workshop("check", "generic", "-k", "ssh", "--json").stdout)
    assert told["ok"] is True
    assert {check["group"] for check in told["checks"]} >= {"ssh"}
    assert all(check["outcome"] == "passed" for check in told["checks"])
    assert workshop("check", "generic", "-k", "no_such_check", check=False).status == 2


def test_a_failed_check_is_exit_status_1(workshop: Workshop, tmp_path: Path) -> None:
    changed = workshop.with_project(tmp_path / "project")
    body = """
        @pytest.mark.static
        def test_the_moon_is_full(host):
            assert host.file("/etc/moon").exists, "no moon"
        """
    make_file(changed.project / "overlays", body, "test_moon.py", group="ssh")
    done = changed("check", "generic", "-k", "moon or test_ssh", check=False)
    assert done.status == 1
    assert "FAILED ssh: the moon is full\n    no moon\n" in done.stdout
    assert "1 failed" in done.stdout.splitlines()[-1]


def test_a_release_is_checked_where_it_is_served_from(workshop: Workshop, tmp_path: Path) -> None:
    tree = os.fspath(tmp_path / "tree")
    workshop("publish", "generic", IMAGEBUILDER_TREE=tree)
    root = next((tmp_path / "tree/roots/generic").iterdir())
    before = {p: p.lstat().st_mtime_ns for p in root.rglob("*")}
    done = workshop("check", "generic", "--published", IMAGEBUILDER_TREE=tree)
    assert done.stdout.strip().endswith(" passed")
    assert {p: p.lstat().st_mtime_ns for p in root.rglob("*")} == before
    assert list((tmp_path / "tree/work").iterdir()) == []
