# SPDX-License-Identifier: Apache-2.0
"""What a built `generic` is: its manifest, its SBOM, and the root itself."""

from __future__ import annotations

import grp
import json
import os
import platform
import pwd
import stat
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.digest import digest_of_file
from imagebuilder.image.types import decode_image, encode_image
from imagebuilder.lock.file import load_lock
from imagebuilder.lock.types import Lock
from imagebuilder.process import run
from imagebuilder.sandbox.sandbox import Bind, Sandbox
from tests.workshop import Workshop

pytestmark = pytest.mark.root

UNCHECKED = 1  # PEP 552


@pytest.fixture(scope="module")
def image(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the image, its root a tree."""
    folder = tmp_path_factory.mktemp("image") / "generic"
    workshop("export", "generic", os.fspath(folder))
    return folder


@pytest.fixture(scope="module")
def root(image: Path) -> Path:
    """The root."""
    return image / "root"


@pytest.fixture(scope="module")
def manifest(image: Path) -> dict[str, Any]:
    """The manifest."""
    found: dict[str, Any] = json.loads((image / "manifest.json").read_text())
    return found


@pytest.fixture(scope="module")
def lock(workshop: Workshop) -> Lock:
    """The lock the image was built from."""
    return load_lock(workshop.project / "recipes/locks/generic.lock")


def walk(tree: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """Everything below `tree`, never through a link."""
    for folder, names, files in os.walk(tree):
        for name in (*names, *files):
            yield Path(folder, name), Path(folder, name).lstat()


def settings_of(path: Path) -> dict[str, str]:
    """The assignments of a file like os-release."""
    lines = path.read_text().splitlines()
    return dict(line.split("=", 1) for line in lines if "=" in line)


# What is said of the image.


def test_manifest_names_all_inputs(manifest: dict[str, Any], lock: Lock) -> None:
    told = {(p["name"], p["version"], p["architecture"], p["sha256"]) for p in manifest["packages"]}
    assert told == {(p.name, p.version, p.architecture, p.sha256) for p in lock.packages}
    assert all(package["installed-size"] > 0 for package in manifest["packages"])
    assert manifest["schema"] == 1
    assert manifest["profile"] == "generic"
    assert manifest["epoch"] == lock.epoch
    assert manifest["version"].startswith("20")
    assert [layer["title"] for layer in manifest["layers"]][-1] == "finalise"
    for layer in manifest["layers"]:
        assert len(layer["digest"]) == 64
        assert layer["inputs"]["step"]
        assert layer["inputs"]["epoch"] <= lock.epoch
    titles = {layer["title"]: layer for layer in manifest["layers"]}
    assert len(titles) == len(manifest["layers"])
    assert titles["base debian-forky"]["size"] > 100_000_000
    assert titles["packages llama-cpp"]["inputs"]["packages"].keys() >= {"llama.cpp-tools"}
    assert "/etc/ssh/authorized_keys" in titles["configure ssh"]["inputs"]["files"]


def test_manifest_describes_the_files(manifest: dict[str, Any], image: Path) -> None:
    kernel = manifest["kernel"]
    assert (image / "kernel-version").read_text().strip() == kernel["release"]
    for key, name in (("vmlinuz", "vmlinuz"), ("early", "early.img"), ("initrd", "initrd.img")):
        assert kernel[key]["size"] == (image / name).stat().st_size
        assert kernel[key]["sha256"] == digest_of_file(image / name)
        assert stat.S_IMODE((image / name).stat().st_mode) == 0o644
    real = sum(info.st_size for _, info in walk(image / "root") if stat.S_ISREG(info.st_mode))
    # The sum over layers counts what prune removes, and replaced files, too.
    assert real <= manifest["root"]["size"] <= real * 1.25


def test_manifest_knows_nothing_of_the_builder(image: Path, workshop: Workshop) -> None:
    text = (image / "manifest.json").read_text()
    assert encode_image(decode_image(text, "generic")) == text
    for word in (os.fspath(workshop.state), os.fspath(workshop.project), f'"{platform.node()}"'):
        assert word not in text
    facts = json.loads((image / "build.json").read_text())
    assert facts["builder"] == platform.node()
    assert facts["seconds"].keys() == {layer["title"] for layer in json.loads(text)["layers"]}


def test_sbom_names_every_package(image: Path, lock: Lock, workshop: Workshop) -> None:
    text = (image / "sbom.spdx.json").read_text()
    assert workshop("sbom", "generic").stdout == text
    document = json.loads(text)
    named = {(p["name"], p["versionInfo"]) for p in document["packages"]}
    assert {(p.name, p.version) for p in lock.packages} <= named
    sums = {c["checksumValue"] for p in document["packages"] for c in p.get("checksums", [])}
    assert {p.sha256 for p in lock.packages} == sums


# The root is nobody's in particular.


@pytest.mark.parametrize(
    "place",
    [
        "etc/ssh/ssh_host_*", "etc/hostname", "etc/machine-info", "var/lib/dbus/machine-id",
        "var/lib/apt/lists/*", "var/cache/apt/*", "var/log/*.log", "var/log/apt/*",
        "var/log/journal/*", "var/log/wtmp*", "var/log/lastlog", "var/lib/systemd/random-seed",
        "var/lib/systemd/credential.secret", "root/.ssh", "root/.cache", "root/.bash_history",
        "etc/*-", "var/lib/dpkg/*-old", "etc/apt/apt.conf.d/*proxy*", "boot/initrd.img*",
        "usr/sbin/policy-rc.d", "etc/apt/sources.list.d/*", "tmp/*", "run/*", "dev/*",
        "proc/*", "sys/*", "etc/.resolv*", "etc/ssl/private/*", "var/cache/ldconfig/*",
        "debootstrap", "var/lib/dpkg/lock*",
    ],
)  # fmt: skip
def test_no_trace_is_left(root: Path, place: str) -> None:
    assert [os.fspath(path) for path in root.glob(place)] == []


def test_the_builder_is_not_in_it(root: Path) -> None:
    """Nothing in /etc and /var knows the resolver of the builder."""
    words = Path("/etc/resolv.conf").read_text().split()
    servers = [word.encode() for word in words if word[0].isdigit() and not word.startswith("127")]
    for path, info in (*walk(root / "etc"), *walk(root / "var")):
        if stat.S_ISREG(info.st_mode) and info.st_size < 10_000:
            assert not [server for server in servers if server in path.read_bytes()], path


def test_identity_is_made_at_boot(root: Path, manifest: dict[str, Any]) -> None:
    assert (root / "etc/machine-id").read_bytes() == b""
    resolver = root / "etc/resolv.conf"
    assert resolver.is_symlink()
    assert os.fspath(resolver.readlink()).endswith("run/systemd/resolve/stub-resolv.conf")
    release = settings_of(root / "usr/lib/os-release")
    assert release["IMAGE_ID"] == "generic"
    assert release["IMAGE_VERSION"] == manifest["version"]
    assert release["VERSION_CODENAME"] == "forky"
    assert "deb " not in (root / "etc/apt/sources.list").read_text()


def test_bytecode_does_not_go_by_time(root: Path) -> None:
    flags = {}
    for path, info in walk(root):
        if path.suffix == ".pyc" and stat.S_ISREG(info.st_mode):
            with path.open("rb") as stream:
                flags[os.fspath(path)] = struct.unpack("<4xI", stream.read(8))[0]
    assert len(flags) > 500
    assert [path for path, flag in flags.items() if flag != UNCHECKED] == []


def test_only_files_folders_and_links(root: Path) -> None:
    others = [
        path
        for path, info in walk(root)
        if not (
            stat.S_ISREG(info.st_mode) or stat.S_ISDIR(info.st_mode) or stat.S_ISLNK(info.st_mode)
        )
    ]
    assert others == []


# The root has what the overlays ask for.


def test_accounts(root: Path) -> None:
    lines = (root / "etc/passwd").read_text().splitlines()
    users = {line.split(":")[0]: line.split(":") for line in lines}
    assert users["compute"][2:] == ["1000", "1000", "Compute", "/home/compute", "/bin/bash"]
    groups = {}
    for line in (root / "etc/group").read_text().splitlines():
        name, _, _, members = line.split(":")
        groups[name] = members.split(",")
    for name in ("render", "video", "systemd-journal"):
        assert "compute" in groups[name]
    shadow = (root / "etc/shadow").read_text().splitlines()
    passwords = {line.split(":")[0]: line.split(":")[1] for line in shadow}
    assert set(passwords.values()) <= {"*", "!", "!*", "!!"}, "no account has a password"
    assert (root / "home/compute").stat().st_uid == 1000


@pytest.mark.parametrize(
    ("path", "mode"),
    [
        ("etc/sudoers.d/compute-node", 0o440),
        ("etc/ssh/authorized_keys", 0o644),
        ("usr/libexec/llama-cpp/find-gpus", 0o755),
        ("etc/default/llama-server", 0o644),
        ("etc/systemd/system/llama-server.service", 0o644),
        ("etc/ssh", 0o755),
        ("etc", 0o755),
        ("tmp", 0o1777),
        ("root", 0o700),
        ("usr/bin/sudo", 0o4755),
    ],
)  # fmt: skip
def test_modes_and_owners(root: Path, path: str, mode: int) -> None:
    info = (root / path).lstat()
    assert oct(stat.S_IMODE(info.st_mode)) == oct(mode)
    assert (pwd.getpwuid(info.st_uid).pw_name, grp.getgrgid(info.st_gid).gr_name) == ("root",) * 2


def test_templates_are_rendered(root: Path, workshop: Workshop) -> None:
    key = workshop.site.with_name("key.pub").read_text().strip()
    assert key in (root / "etc/ssh/authorized_keys").read_text()
    assert not [path for path, _ in walk(root / "etc") if path.suffix == ".j2"]


@pytest.mark.parametrize(
    ("unit", "state"),
    [
        ("llama-server.service", "enabled"), ("ssh.service", "enabled"),
        ("systemd-networkd.service", "enabled"), ("systemd-resolved.service", "enabled"),
        ("ssh-host-key.service", "enabled"), ("rpcbind.service", "disabled"),
        ("apt-daily.timer", "masked"), ("sshd-keygen.service", "masked"),
    ],
)  # fmt: skip
def test_units(root: Path, unit: str, state: str) -> None:
    said = run(["systemctl", f"--root={root}", "is-enabled", unit], check=False)
    assert said.stdout.strip() == state


def test_packages_are_those_of_the_lock(workshop: Workshop, lock: Lock) -> None:
    audit = workshop("shell", "generic", "-c", "dpkg --audit; dpkg --verify 2>&1 | grep -v missing")
    assert [line for line in audit.stdout.splitlines() if not is_expected(line)] == []
    form = "${db:Status-Abbrev} ${Package} ${Version} ${Architecture}\\n"
    said = workshop("shell", "generic", "-c", f"dpkg-query --show --showformat='{form}'").stdout
    assert sorted(said.splitlines()) == sorted(
        f"ii  {p.name} {p.version} {p.architecture}" for p in lock.packages
    )


def is_expected(line: str) -> bool:
    """Whether `dpkg --verify` may say so: we write our names into os-release."""
    return line.endswith("/usr/lib/os-release")


# The boot pair.


def test_kernel_and_its_modules_belong_together(root: Path, image: Path) -> None:
    release = (image / "kernel-version").read_text().strip()
    modules = root / "usr/lib/modules" / release
    assert [path.name for path in (root / "usr/lib/modules").iterdir()] == [release]
    assert (modules / "modules.dep").stat().st_size > 10_000
    header = (image / "vmlinuz").read_bytes()
    assert header[0x202:0x206] == b"HdrS"  # Documentation/arch/x86/boot.rst
    start = struct.unpack_from("<H", header, 0x20E)[0] + 0x200
    assert header[start : start + 256].split(b" ")[0].decode() == release


def test_initrd_holds_our_module(root: Path, image: Path, tmp_path: Path) -> None:
    whole, inside = tmp_path / "whole.img", Path("/run/imagebuilder/whole.img")
    parts = ((image / name).read_bytes() for name in ("early.img", "initrd.img"))
    whole.write_bytes(b"".join(parts))
    (tmp_path / "root").symlink_to(root)
    sandbox = Sandbox(tmp_path, ("root",), "u", 1, (Bind(whole, inside),))
    said = run(["lsinitrd", inside], sandbox=sandbox).stdout
    release = (image / "kernel-version").read_text().strip()
    modules = said.partition("dracut modules:\n")[2].partition("\n=")[0].split()
    assert "imagebuilder" in modules
    for driver in ("r8169", "e1000e", "igc", "virtio_net", "overlay", "nfsv4", "squashfs", "erofs"):
        assert f"/{driver}.ko" in said, f"{driver} is not in the initrd"
    assert f"lib/modules/{release}/modules.dep" in said
    assert "early" in said.lower(), "microcode comes first"
