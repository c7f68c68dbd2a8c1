# SPDX-License-Identifier: Apache-2.0
"""What the overlay of NVIDIA makes on Rocky Linux beside packages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.process import run
from tests.unit.proof.trees import Content, Program, make_tree
from tests.unit.test_shipped_recipes import CHECKOUT

OVERLAY = CHECKOUT / "overlays/nvidia-cuda-12.8"
KERNEL, DRIVER = "5.14.0-570.12.1.el9_6.x86_64", "580.126.20"
# Builds a module as dkms(8) does, and notes how it was called.
DKMS = """\
#!/bin/sh
set -eu
echo "$*" >> {top}/called
if [ "$1" = add ]; then mkdir -p {top}/var/lib/dkms/$3/$5; exit; fi
[ -z "${{BROKEN-}}" ] || exit 10
made={top}/var/lib/dkms/$3/$5/$7/x86_64/module
mkdir -p $made
echo module > $made/nvidia.ko.xz
echo module > $made/nvidia-uvm.ko.xz
"""


def build(top: Path, *, added: bool = True, **more: str) -> list[str]:
    """Run the program in a folder that stands for the tree; what it made."""
    files: dict[str, Content] = {
        f"/usr/src/nvidia-open-{DRIVER}/dkms.conf": "PACKAGE_NAME=nvidia-open\n",
        f"/usr/lib/firmware/nvidia/{DRIVER}/gsp_ga10x.bin": "firmware",
        "/usr/lib/firmware/nvidia/ga100/gsp.bin": "of nouveau, from linux-firmware",
        "/programs/dkms": Program(DKMS.format(top=top)),
        "/programs/nvidia-smi": Program(),
        "/programs/nvidia-persistenced": Program(),
    }
    make_tree(top, files)
    if added:
        (top / f"var/lib/dkms/nvidia-open/{DRIVER}").mkdir(parents=True)
    text = (OVERLAY / "builds/driver-el9").read_text()
    for folder in ("/usr/src/nvidia*", "/var/lib/dkms/$module"):
        for before in (" ", '"'):
            text = text.replace(f"{before}{folder}", f"{before}{top}{folder}")
    text = text.replace('"/$firmware"', f'"{top}/$firmware"')
    path = f"{top}/programs:{os.environ['PATH']}"
    env = {"KERNEL": KERNEL, "DESTDIR": f"{top}/out", "PATH": path, **more}
    run(["sh", "-c", text], env=env)
    out = top / "out"
    return sorted(f"/{path.relative_to(out)}" for path in out.rglob("*") if path.is_file())


@pytest.mark.parametrize("added", [True, False])
def test_what_requires_a_compiler_is_made(*, added: bool, tmp_path: Path) -> None:
    assert build(tmp_path, added=added) == [
        "/usr/bin/nvidia-persistenced",
        "/usr/bin/nvidia-smi",
        f"/usr/lib/firmware/nvidia/{DRIVER}/gsp_ga10x.bin",
        f"/usr/lib/modules/{KERNEL}/updates/dkms/nvidia-uvm.ko.xz",
        f"/usr/lib/modules/{KERNEL}/updates/dkms/nvidia.ko.xz",
    ]
    called = (tmp_path / "called").read_text().splitlines()
    assert called[-1] == f"build -m nvidia-open -v {DRIVER} -k {KERNEL}"
    assert (called[0] == f"add -m nvidia-open -v {DRIVER}") is not added


def test_a_module_that_does_not_compile_ends_the_build(tmp_path: Path) -> None:
    with pytest.raises(WorkError):
        build(tmp_path, BROKEN="1")


def test_the_unit_starts_what_the_build_makes() -> None:
    unit = (OVERLAY / "files/etc/systemd/system/nvidia-persistenced.service").read_text()
    assert "ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced\n" in unit
