# SPDX-License-Identifier: Apache-2.0
"""Check whether this host can boot releases in machines, for `imagebuilder test`."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path

from imagebuilder.boot.acceleration import KVM, probe
from imagebuilder.boot.machine import MEMORY_MIB
from imagebuilder.bootfiles import KERNEL
from imagebuilder.doctor.finding import HostFinding, fine, warning
from imagebuilder.doctor.host import (
    examine_kernel,
    examine_kvm,
    examine_need,
    examine_root,
    is_present,
    load_needs,
)
from imagebuilder.doctor.serve import examine_ipxe
from imagebuilder.environment import base_environment
from imagebuilder.folders import matching
from imagebuilder.tree import Tree
from imagebuilder.ui import format_size

SERVERS = ("dnsmasq", "nginx", "ip")  # programs that `serve` needs too
MIB = 1 << 20


def examine_boot(tree: Tree) -> tuple[HostFinding, ...]:
    """Everything a boot test needs; tries KVM with a kernel of the tree, if it has one."""
    path, is_root = base_environment()["PATH"], os.geteuid() == 0
    needs = [
        replace(need, group="boot")
        for need in load_needs()
        if need.group == "boot" or (need.group == "serve" and need.tool in SERVERS)
    ]
    kernels = sorted(matching(tree.http, f"releases/*/*/{KERNEL}"))
    return (
        *(examine_need(need, path, required=True) for need in needs),
        examine_ipxe(),
        examine_root(path, is_root=is_root),
        *examine_kernel(path, is_root=is_root),
        examine_free(Path("/proc/meminfo").read_text()),
        examine_acceleration(kernels[-1] if kernels else None, path, is_root=is_root),
    )


def examine_free(meminfo: str) -> HostFinding:
    """Whether a machine fits into the free memory, from the text of /proc/meminfo (proc(5))."""
    lines = (line.split() for line in meminfo.splitlines())
    free = next((int(words[1]) * 1024 for words in lines if words[0] == "MemAvailable:"), 0)
    what = f"{format_size(free)} available; a machine needs {format_size(MEMORY_MIB * MIB)}"
    if free < MEMORY_MIB * MIB:
        return warning("memory", what, "end other programs, or test on another host")
    return fine("memory", what)


def examine_acceleration(kernel: Path | None, path: str, *, is_root: bool) -> HostFinding:
    """Whether machines are run with KVM; emulation is not a fault, only slower."""
    if kernel is None or not is_root or not is_present("qemu-system-x86_64", path):
        return examine_kvm(KVM)
    with tempfile.TemporaryDirectory(prefix="imagebuilder-doctor-") as work:
        found = probe(kernel, Path(work))
    slower = "" if found.kind == "kvm" else ": machines are emulated, which is slower"
    return fine("kvm", f"{found.why}{slower}")
