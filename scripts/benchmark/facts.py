# SPDX-License-Identifier: Apache-2.0
"""What a figure is worth nothing without: the machine, its system and the programs measured."""

from __future__ import annotations

import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path

from imagebuilder import __version__
from imagebuilder.errors import HostError
from imagebuilder.process import check_tools, run

TOOLS: Mapping[str, tuple[str, ...]] = {
    "mmdebstrap": ("mmdebstrap", "--version"),
    "debootstrap": ("debootstrap", "--version"),
    "apt": ("apt-get", "--version"),
    "dpkg": ("dpkg", "--version"),
    "ostree": ("ostree", "--version"),
    "mkosi": ("mkosi", "--version"),
    "diskimage-builder": ("disk-image-create", "--version"),
    "QEMU": ("qemu-system-x86_64", "--version"),
    "nginx": ("nginx", "-v"),
    "nfs-ganesha": ("ganesha.nfsd", "-v"),
    "dnsmasq": ("dnsmasq", "--version"),
}


def host_facts(place: Path) -> dict[str, str]:
    """Facts of this host, ready to print; `place` is where the benchmark works."""
    cores = len(os.sched_getaffinity(0))
    return {
        "processor": f"{cpu_model(Path('/proc/cpuinfo').read_text())}, {cores} cores",
        "memory": memory(Path("/proc/meminfo").read_text()),
        "kernel": platform.release(),
        "distribution": platform.freedesktop_os_release().get("PRETTY_NAME", "unknown"),
        "file system": file_system(place),
        "load before": f"{os.getloadavg()[0]:.2f} (over one minute; other work makes noise)",
        "imagebuilder": f"{__version__}, Python {platform.python_version()}",
        **{name: version_of(argv) for name, argv in TOOLS.items()},
    }


def cpu_model(cpuinfo: str) -> str:
    """The name of the processor in /proc/cpuinfo; not every architecture gives one."""
    found = re.search(r"^model name\s*:\s*(.+)$", cpuinfo, re.MULTILINE)
    return found[1].strip() if found else platform.machine()


def memory(meminfo: str) -> str:
    """The size of memory in /proc/meminfo."""
    found = re.search(r"^MemTotal:\s+(\d+) kB", meminfo, re.MULTILINE)
    return f"{int(found[1]) / (1 << 20):.1f} GiB" if found else "unknown"


def file_system(place: Path) -> str:
    """The kind of file system that `place` is on."""
    return run(["stat", "--file-system", "--format=%T", place]).stdout.strip()


def version_of(argv: tuple[str, ...]) -> str:
    """The first version number a program says, `absent` when it is not installed."""
    try:
        done = run(argv, check=False)
    except HostError:
        return "absent"
    found = re.search(r"\d+(\.\d+)+\S*", done.stdout or done.stderr)
    return found[0].rstrip(",'") if found else "unknown"


def absent_program(name: str) -> str:
    """Why a program cannot be run here, "" when it can."""
    try:
        check_tools(name)
    except HostError as error:
        return error.faults[0].what
    return ""
