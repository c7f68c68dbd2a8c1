# SPDX-License-Identifier: Apache-2.0
"""Firmware, kernel modules and libraries that go, and what must not."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.root import Root
from imagebuilder.slim.firmware import slim_firmware
from imagebuilder.slim.modules import slim_modules
from imagebuilder.slim.types import Kept, SlimChange, SlimError, SlimOrder
from imagebuilder.slim.unlinked import slim_unlinked
from tests.fixtures.elf import make_elf
from tests.unit.proof.trees import Link, make_tree

FIRMWARE = "/usr/lib/firmware"
KERNEL = "7.2.12+deb14-amd64"
MODULES = f"/usr/lib/modules/{KERNEL}"
LIB = "/usr/lib/x86_64-linux-gnu"


def firmware_tree(path: Path) -> Root:
    """Firmware as linux-firmware has it: compressed, shared by symlinks, in folders of folders."""
    return make_tree(
        path,
        {
            "/lib": Link("usr/lib"),
            f"{FIRMWARE}/amdgpu/gc_11_0_2_me.bin.xz": "ours",
            f"{FIRMWARE}/amdgpu/gc_11_0_2_mes.bin.xz": Link("gc_11_0_0_mes.bin.xz"),
            f"{FIRMWARE}/amdgpu/gc_11_0_0_mes.bin.xz": "of a sibling, and ours",
            f"{FIRMWARE}/amdgpu/gc_11_0_0_me.bin.xz": "of a sibling",
            f"{FIRMWARE}/amdgpu/renamed.bin.xz": Link("gc_11_0_2_me.bin.xz"),
            f"{FIRMWARE}/amdgpu/psp_13_0_7_ta.bin": Link("../shared/ta.bin"),
            f"{FIRMWARE}/amdgpu/old/vega_me.bin": "old",
            f"{FIRMWARE}/shared/ta.bin": "outside the folder",
            f"{FIRMWARE}/rtl_nic/rtl8125.fw": "a card's",
        },
    )


WANTED = ("amdgpu/gc_11_0_2_*.bin", "amdgpu/psp_13_0_7_*.bin", "i915/dg2_guc_*.bin")


def test_firmware_of_other_devices_goes(tmp_path: Path) -> None:
    root = firmware_tree(tmp_path)
    told = list(slim_firmware(root, SlimOrder(firmware=("amdgpu",), wanted=WANTED)))
    assert [str(one) for one in told] == [
        f"removed {FIRMWARE}/amdgpu/gc_11_0_0_me.bin.xz (12 B)",
        f"removed {FIRMWARE}/amdgpu/old/vega_me.bin (3 B)",
    ]
    assert root.names(f"{FIRMWARE}/amdgpu") == [
        "gc_11_0_0_mes.bin.xz", "gc_11_0_2_me.bin.xz", "gc_11_0_2_mes.bin.xz",
        "psp_13_0_7_ta.bin", "renamed.bin.xz",
    ]  # fmt: skip
    assert root.is_file(f"{FIRMWARE}/amdgpu/psp_13_0_7_ta.bin")
    assert root.is_file(f"{FIRMWARE}/rtl_nic/rtl8125.fw")


@pytest.mark.parametrize(
    ("folder", "wanted", "what"),
    [
        ("amdgpu", ("i915/dg2_guc_*.bin",), "no device of the recipe asks for firmware of"),
        ("amdgpu", (), "no device of the recipe asks for firmware of"),
        ("nvidia", WANTED, "/usr/lib/firmware/nvidia contains no firmware"),
    ],
)
def test_firmware_that_would_all_go_is_a_fault(
    tmp_path: Path, folder: str, wanted: tuple[str, ...], what: str
) -> None:
    root = firmware_tree(tmp_path)
    with pytest.raises(SlimError, match=what):
        list(slim_firmware(root, SlimOrder(firmware=("amdgpu", folder), wanted=wanted)))
    assert len(root.names(f"{FIRMWARE}/amdgpu")) == 7


def modules_tree(path: Path) -> Root:
    """A kernel: amdgpu needs cec, and cec needs rc-core; all of sound but soundcore is unused."""
    depends = {
        "kernel/drivers/gpu/amdgpu.ko.xz": "kernel/drivers/media/cec.ko.xz "
        "kernel/drivers/media/rc/rc-core.ko.xz",
        "kernel/drivers/media/cec.ko.xz": "kernel/drivers/media/rc/rc-core.ko.xz",
        "kernel/drivers/media/rc/rc-core.ko.xz": "",
        "kernel/drivers/media/usb/camera.ko.xz": "kernel/drivers/media/cec.ko.xz",
        "kernel/sound/pci/card.ko.xz": "kernel/sound/soundcore.ko.xz",
        "kernel/sound/soundcore.ko.xz": "",
        "kernel/drivers/net/e1000.ko.xz": "",
    }
    listed = "".join(f"{name}: {lower}\n".replace(": \n", ":\n") for name, lower in depends.items())
    files = {f"{MODULES}/{name}": name for name in depends}
    return make_tree(path, {**files, f"{MODULES}/modules.dep": listed, "/lib": Link("usr/lib")})


def test_modules_go_but_for_what_others_need(tmp_path: Path) -> None:
    root = modules_tree(tmp_path)
    globs = ("kernel/sound", "kernel/drivers/media", "kernel/net/hamradio")
    told = list(slim_modules(root, SlimOrder(modules=globs, kernel=KERNEL)))
    assert [str(one).replace(MODULES, "M") for one in told] == [
        "nothing matches M/kernel/net/hamradio",
        "removed M/kernel/sound/pci/card.ko.xz (27 B)",
        "removed M/kernel/sound/soundcore.ko.xz (28 B)",
        "kept M/kernel/drivers/media/cec.ko.xz: kernel/drivers/gpu/amdgpu.ko.xz needs it",
        "kept M/kernel/drivers/media/rc/rc-core.ko.xz: kernel/drivers/gpu/amdgpu.ko.xz needs it",
        "removed M/kernel/drivers/media/usb/camera.ko.xz (37 B)",
    ]
    assert root.names(f"{MODULES}/kernel") == ["drivers"]
    assert root.names(f"{MODULES}/kernel/drivers/media") == ["cec.ko.xz", "rc"]


def test_a_single_module_goes(tmp_path: Path) -> None:
    root = modules_tree(tmp_path)
    told = list(
        slim_modules(root, SlimOrder(modules=("kernel/drivers/*/e1000.ko*",), kernel=KERNEL))
    )
    assert [type(one) for one in told] == [SlimChange]
    assert root.names(f"{MODULES}/kernel/drivers") == ["gpu", "media", "net"]


def test_a_module_that_depmod_has_not_seen_is_a_fault(tmp_path: Path) -> None:
    root = modules_tree(tmp_path)
    (tmp_path / f"{MODULES}/kernel/sound/new.ko"[1:]).touch()
    with pytest.raises(SlimError, match=r"kernel/sound/new.ko is not in modules.dep"):
        list(slim_modules(root, SlimOrder(modules=("kernel/sound",), kernel=KERNEL)))
    assert root.is_file(f"{MODULES}/kernel/sound/soundcore.ko.xz")


def test_another_kernel_is_a_fault(tmp_path: Path) -> None:
    with pytest.raises(SlimError, match=r"no modules of the kernel 6\.1"):
        list(
            slim_modules(modules_tree(tmp_path), SlimOrder(modules=("kernel/sound",), kernel="6.1"))
        )


def library_tree(path: Path) -> Root:
    """A program that links cublas, which links cublasLt, and opens cudnn by name; the rest lies
    about, and two of that link each other.
    """
    libraries = {
        "libcublas.so.12": ["libcublasLt.so.12"],
        "libcublasLt.so.12": [],
        "libcudnn.so.9": [],
        "libcufft.so.11": ["libcufftw.so.11"],
        "libcufftw.so.11": ["libcufft.so.11"],
    }
    opened = {".rodata": b"lib%s.so\0libcudnn.so.9\0"}
    program = make_elf(opened, needed=["libcublas.so.12"], interpreter="/lib/ld.so")
    return make_tree(
        path,
        {
            "/usr/bin/serve": program,
            "/usr/bin/script": "#!/bin/sh\necho libcufft.so.11\n",
            f"{LIB}/libcufft.so": Link("libcufft.so.11"),
            **{
                f"{LIB}/{name}": make_elf(soname=name, needed=needed)
                for name, needed in libraries.items()
            },
        },
    )


def test_libraries_that_nothing_links_go(tmp_path: Path) -> None:
    root = library_tree(tmp_path)
    told = list(slim_unlinked(root, SlimOrder(unlinked=(f"{LIB}/libcu*.so*", "/opt/none/lib*"))))
    assert str(told[0]) == "nothing matches /opt/none/lib*"
    kept = {one.path: one.why for one in told if isinstance(one, Kept)}
    assert kept == {
        f"{LIB}/libcublas.so.12": "/usr/bin/serve needs it",
        f"{LIB}/libcudnn.so.9": "/usr/bin/serve needs it",
        f"{LIB}/libcublasLt.so.12": f"{LIB}/libcublas.so.12 needs it",
    }
    assert [one.path for one in told if isinstance(one, SlimChange)] == [
        f"{LIB}/libcufft.so", f"{LIB}/libcufft.so.11", f"{LIB}/libcufftw.so.11",
    ]  # fmt: skip
    assert root.names(LIB) == ["libcublas.so.12", "libcublasLt.so.12", "libcudnn.so.9"]


def test_a_driver_that_a_loader_is_told_of_stays(tmp_path: Path) -> None:
    icd = '{"ICD": {"library_path": "libvulkan_radeon.so", "api_version": "1.4.0"}}'
    root = make_tree(
        tmp_path,
        {
            "/usr/share/vulkan/icd.d/radeon_icd.json": icd,
            f"{LIB}/libvulkan_radeon.so": make_elf(),
            f"{LIB}/libvulkan_lvp.so": make_elf(),
        },
    )
    told = list(slim_unlinked(root, SlimOrder(unlinked=(f"{LIB}/libvulkan_*.so",))))
    assert [str(one).partition(" (")[0] for one in told] == [
        f"kept {LIB}/libvulkan_radeon.so: /usr/share/vulkan/icd.d/radeon_icd.json needs it",
        f"removed {LIB}/libvulkan_lvp.so",
    ]


def test_a_library_is_asked_for_by_the_name_of_a_symlink(tmp_path: Path) -> None:
    root = make_tree(
        tmp_path,
        {
            "/usr/bin/serve": make_elf(needed=["libfoo.so.1"]),
            f"{LIB}/libfoo.so.1": Link("libfoo.so.1.2"),
            f"{LIB}/libfoo.so.1.2": make_elf(),
        },
    )
    told = list(slim_unlinked(root, SlimOrder(unlinked=(f"{LIB}/libfoo*",))))
    assert [type(one) for one in told] == [Kept]
