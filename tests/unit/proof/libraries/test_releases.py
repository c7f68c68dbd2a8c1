# SPDX-License-Identifier: Apache-2.0
"""Drivers whose module, library and firmware must have one version."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest

from imagebuilder.proof.libraries.driver_rules import prove_driver_releases, prove_renamed
from imagebuilder.proof.reading.libraries import search_of
from tests.fixtures.elf import make_elf, make_module
from tests.unit.proof.trees import KERNEL, Content, Link, make_tree, subject, warnings

LIB = "/usr/lib/x86_64-linux-gnu"
FIRMWARE = "/usr/lib/firmware/hailo/hailo8_fw.bin"


def module(version: str, name: str = "hailo_pci") -> dict[str, Content]:
    path = f"/usr/lib/modules/{KERNEL}/updates/dkms/{name}.ko"
    return {path: make_module({"name": name, "version": version} if version else {"name": name})}


def library(version: str) -> dict[str, Content]:
    name = f"libhailort.so.{version}"
    return {f"{LIB}/{name}": make_elf(soname=name)}


def firmware(*version: int, magic: int = 0x1DD89DE0) -> dict[str, Content]:
    return {FIRMWARE: struct.pack("<6I", magic, 0, *version, 1000) + b"code"}


@pytest.mark.parametrize(
    ("files", "said"),
    [
        (module("4.19.0") | library("4.21.0"),
         ["hailo_pci is 4.19.0, but libhailort.so.4.21.0 is 4.21.0"]),
        (module("4.20.0") | library("4.20.1"),
         ["hailo_pci is 4.20.0, but libhailort.so.4.20.1 is 4.20.1"]),
        (module("5.1.1", "hailo1x_pci") | library("5.3.0"), ["hailo1x_pci is 5.1.1"]),
        ({"/opt/hailo/hailo_pci.ko": make_module({"name": "hailo_pci", "version": "4.20.0"}),
          "/etc/systemd/system/hailo.service":
          "[Service]\nExecStart=-/usr/sbin/insmod /opt/hailo/hailo_pci.ko\n"}
         | library("4.21.0"), ["hailo_pci is 4.20.0, but libhailort.so.4.21.0"]),
        (module("4.21.0") | library("4.21.0"), []),
        # A container has the library.
        (module("4.21.0"), []),
        (library("4.21.0"), []),
        (module("") | library("4.21.0"), []),
        (module("4.21.0", "hailo_other") | library("4.19.0"), []),
        # Two families of cards in one image.
        (module("4.23.0") | module("5.3.0", "hailo1x_pci") | library("4.23.0") | library("5.3.0"),
         []),
        (module("4.21.0") | library("4.21.0") | firmware(4, 20, 0),
         [f"{FIRMWARE} is firmware 4.20.0, but libhailort.so.4.21.0 is 4.21.0"]),
        (module("4.21.0") | firmware(4, 20, 0), [f"{FIRMWARE} is firmware 4.20.0, but hailo_pci"]),
        (module("4.21.0") | library("4.21.0") | firmware(4, 21, 0), []),
        (module("4.21.0") | library("4.21.0") | firmware(4, 20, 0, magic=1), []),
        (module("4.21.0") | library("4.21.0") | {FIRMWARE: b"short"}, []),
    ],
)  # fmt: skip
def test_parts_of_a_driver(files: dict[str, Content], said: list[str], tmp_path: Path) -> None:
    asked = subject(make_tree(tmp_path, files))
    found = warnings(prove_driver_releases(asked, search_of(asked).files))
    assert len(found) == len(said), found
    assert all(what.startswith(begin) for what, begin in zip(found, said, strict=True)), found


def driver(name: str, version: str) -> dict[str, Content]:
    path = f"{LIB}/libze_intel_{name}.so.{version}"
    return {path: make_elf(soname=f"libze_intel_{name}.so.1"),
            f"{LIB}/libze_intel_{name}.so.1": Link(path)}  # fmt: skip


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (driver("vpu", "1.13.0") | driver("npu", "1.28.0"), 1),
        (driver("npu", "1.28.0"), 0),
        (driver("vpu", "1.13.0"), 0),
        # For programs that open the old name.
        (driver("npu", "1.28.0") | {f"{LIB}/libze_intel_vpu.so.1": Link("libze_intel_npu.so.1")},
         0),
        # Two devices.
        (driver("npu", "1.28.0") | driver("gpu", "1.6.0") | driver("gpu_legacy1", "1.3.0"), 0),
    ],
)  # fmt: skip
def test_a_driver_under_two_names(files: dict[str, Content], told: int, tmp_path: Path) -> None:
    asked = subject(make_tree(tmp_path, files))
    assert len(warnings(prove_renamed(search_of(asked)))) == told
