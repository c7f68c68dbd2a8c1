# SPDX-License-Identifier: Apache-2.0
"""The shipped base of Rocky Linux with shipped overlays, locked from stand-ins of its packages.

Every package is empty; what they require of each other is what decides here: NVIDIA's are those of
https://github.com/NVIDIA/yum-packaging-nvidia-driver and -kmod-common.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.lock.file import load_lock
from imagebuilder.lock.types import Lock
from imagebuilder.process import run
from imagebuilder.recipe.load import load_recipe
from imagebuilder.resolve import requests_of
from imagebuilder.settings import Settings
from tests.fixtures.aptrepo import SigningKey, keyring, make_key
from tests.fixtures.rpm_archive import (
    APPSTREAM,
    BASEOS,
    CRB,
    EVERYTHING,
    add_rpm,
    index_component,
)
from tests.fixtures.rpm_repository import Rpm, armoured, make_repository
from tests.workshop import CHECKOUT, Workshop

RECIPE = """\
description: Nodes with an L40S
base: rocky-9
overlays: [netboot, ssh, compute-node, nvidia-cuda-12.8]
hardware: [{pci: "10de:26b9", name: NVIDIA L40S, target: sm_89}]
vars: {cuda_target: sm_89, nvidia_source: vendor}
"""
DRIVER, NEWER = "580.126.20", "590.48.01"
VERSION = f"3:{DRIVER}"
# Where what is not in BaseOS or AppStream is from.
OF_EPEL = ("busybox", "dkms", "systemd-networkd", "systemd-timesyncd")
KERNEL = ("5.14.0", "570.12.1.el9_6")
STREAM = """\
---
document: modulemd
version: 2
data:
  name: nvidia-driver
  stream: "{stream}"
  version: 20250101000000
  context: abcdef12
  arch: x86_64
  summary: NVIDIA's driver
  description: NVIDIA's driver
  license: {{module: [MIT]}}
  artifacts: {{rpms: [{artifacts}]}}
...
"""


def driver(version: str) -> list[Rpm]:
    """NVIDIA's packages of one version."""
    same = f"= 3:{version}"

    def package(name: str, *requires: str, provides: tuple[str, ...] = ()) -> Rpm:
        return Rpm(name, version, epoch=3, requires=requires, provides=provides)

    return [
        package("nvidia-driver-cuda-libs", f"libnvidia-ml {same}", f"libnvidia-cfg {same}"),
        package("libnvidia-ml"),
        package("libnvidia-cfg"),
        package("nvidia-modprobe"),
        package("nvidia-persistenced", f"nvidia-kmod-common {same}", f"nvidia-driver-cuda {same}"),
        package(
            "nvidia-driver-cuda", f"nvidia-driver-cuda-libs {same}", f"nvidia-kmod-common {same}",
            f"nvidia-persistenced {same}",
        ),
        package("nvidia-kmod-common", f"nvidia-kmod {same}"),
        package(
            "kmod-nvidia-open-dkms", f"nvidia-kmod-common {same}", "dkms",
            provides=(f"nvidia-kmod {same}",),
        ),
    ]  # fmt: skip


def modules() -> str:
    """A stream for each version, as NVIDIA's repository has them."""
    return "".join(
        STREAM.format(
            stream=f"{version.partition('.')[0]}-open",
            artifacts=", ".join(f'"{each.nevra}"' for each in driver(version)),
        )
        for version in (DRIVER, NEWER)
    )


@dataclass(frozen=True)
class Rocky:
    shop: Workshop
    archive: Path
    key: SigningKey

    def lock(self, profile: str) -> Lock:
        self.shop("lock", profile)
        return load_lock(self.shop.project / f"recipes/locks/{profile}.lock")


def stand_ins(names: Sequence[str]) -> Iterator[tuple[str, Rpm]]:
    """An empty package for each name, and its component."""
    version, release = KERNEL
    for name in names:
        component = EVERYTHING if name in OF_EPEL else BASEOS
        if name == "kernel":
            core = f"kernel-core = {version}-{release}"
            yield component, Rpm(name, version, release, requires=(core,))
            yield component, Rpm("kernel-core", version, release)
        elif name == "kernel-devel":
            yield APPSTREAM, Rpm(name, version, release)
        elif name == "dracut-network":
            yield component, Rpm(name, requires=("(NetworkManager >= 1.20 or dhcp-client)",))
        else:
            yield component, Rpm(name, requires=("gcc", "make") if name == "dkms" else ())
    yield BASEOS, Rpm("NetworkManager", "1.52")


@pytest.fixture(scope="module")
def rocky(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Rocky]:
    """The shipped project with one more recipe, and an archive that has what it asks for."""
    top = tmp_path_factory.mktemp("rocky")
    for name in ("recipes", "overlays", "hardware"):
        shutil.copytree(CHECKOUT / name, top / "project" / name)
    (top / "project/recipes/inferno.yaml").write_text(RECIPE)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "tests", "-f", top / "key"])
    with keyring() as home:
        key = make_key(home, "Archive")
        (top / "keyring").write_bytes(armoured(key))
        own = f"{{keyring: {top}/keyring, because: stand-ins of the tests}}"
        (top / "site.yaml").write_text(
            f"ssh-keys: [{top}/key.pub]\n"
            f"mirrors: {{rocky: 'file:{top}/archive', epel: 'file:{top}/archive'}}\n"
            f"keyrings: {{rocky: {own}, epel: {own}}}\n"
            f"sources:\n  nvidia-rhel9:\n    uri: file://{top}/nvidia\n    key: {top}/keyring\n"
            f"    fingerprints: [{key.fingerprint}]\n    because: stand-ins of the tests\n"
        )
        shop = Workshop(top / "project", top / "state", top / "site.yaml", top / "cache")
        fill(top, shop, key)
        yield Rocky(shop, top / "archive", key)


def fill(top: Path, shop: Workshop, key: SigningKey) -> None:
    """Make the repositories with what the recipe asks for."""
    settings = load_settings(shop)
    words = {
        word.partition("=")[0]
        for request in requests_of(load_recipe("inferno", settings))
        for word in request.packages
    }
    of_nvidia = {each.name for each in driver(DRIVER)}
    for component, rpm in stand_ins(sorted({*words, "dkms"} - of_nvidia)):
        add_rpm(top / "archive", rpm, key, component)
    for component in (BASEOS, APPSTREAM, CRB, EVERYTHING):
        index_component(top / "archive", component, None if component == EVERYTHING else key)
    make_repository(top / "nvidia", [*driver(DRIVER), *driver(NEWER)], key, modules=modules())


def load_settings(shop: Workshop) -> Settings:
    return Settings(shop.project, shop.state, shop.cache, shop.site)


def test_the_shipped_base_is_locked(rocky: Rocky) -> None:
    lock = rocky.lock("minimal.rocky-9")
    sources = {source.id for source in lock.sources}
    assert sources == {"rocky:9", "epel:9"}
    base = {package.name: package for package in lock.layer("").packages}
    assert base["systemd-networkd"].source == "epel:9"
    assert base["systemd-udev"].source == "rocky:9"
    assert "kernel-core" in base
    netboot = {package.name for package in lock.layer("netboot").packages}
    assert {"busybox", "nfs-utils", "microcode_ctl", "dhcp-client"} <= netboot
    # The other one that fits dracut-network.
    assert "NetworkManager" not in {package.name for package in lock.packages}


def test_no_compiler_comes_with_the_driver(rocky: Rocky) -> None:
    lock = rocky.lock("inferno")
    layer = lock.layer("nvidia-cuda-12.8")
    assert {package.name for package in layer.packages} == {
        "nvidia-driver-cuda-libs", "libnvidia-ml", "libnvidia-cfg", "nvidia-modprobe",
    }  # fmt: skip
    assert {package.version for package in layer.packages} == {f"{VERSION}-1.el9"}
    (build,) = layer.builds
    tools = {package.name: package.version for package in build.packages}
    assert tools.keys() >= {"kmod-nvidia-open-dkms", "nvidia-kmod-common", "dkms", "gcc"}
    assert tools["kernel-devel"] == "-".join(KERNEL)
    assert not {"dkms", "gcc", "kernel-devel"} & {package.name for package in lock.packages}


def test_another_branch_of_the_driver_is_another_stream(rocky: Rocky) -> None:
    recipe = rocky.shop.project / "recipes/newer.yaml"
    version = f"vars: {{nvidia_driver_version: {NEWER}-1}}\n"
    recipe.write_text(f"description: Newer\nextends: inferno\n{version}")
    layer = rocky.lock("newer").layer("nvidia-cuda-12.8")
    assert {package.version for package in layer.packages} == {f"3:{NEWER}-1.el9"}


def test_a_package_that_no_mirror_has_is_said_with_its_place(rocky: Rocky) -> None:
    overlay = rocky.shop.project / "overlays/ssh/overlay.yaml"
    text = overlay.read_text()
    overlay.write_text(text.replace("packages: [openssh-server]", "packages: [OpenSSH-server]"))
    try:
        done = rocky.shop("lock", "minimal.rocky-9", check=False)
    finally:
        overlay.write_text(text)
    assert re.search(
        r"overlays/ssh/overlay\.yaml:\d+:\d+: no source has a package named", done.stderr
    )
