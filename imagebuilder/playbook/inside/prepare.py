# SPDX-License-Identifier: Apache-2.0
"""Replace programs that only a running node can use with the shim, until the sandbox ends.

Runs in the root, before the playbook.  The programs remain available below /run/imagebuilder/real,
for what they can do without a running system.
"""

from __future__ import annotations

import ctypes
import json
import os
import shutil
import socket
import sys
from pathlib import Path

MS_BIND = 4096
SHIM = Path("/run/imagebuilder/ansible/shim")
REAL = Path("/run/imagebuilder/real")
# The folder of modules while they run (controller.py pins it).
FILES = Path("/tmp/.ansible")
BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# The boot id that the playbook sees; inside/shim.py increases it when it skips a reboot.
BOOT = Path("/run/imagebuilder/boot_id")
MACHINE_ID = Path("/etc/machine-id")
NAMES = (
    "systemctl", "service", "invoke-rc.d", "uname", "hostnamectl", "sysctl", "udevadm", "mount",
    "modprobe", "insmod", "rmmod", "depmod", "reboot", "shutdown", "poweroff", "halt", "telinit",
    "timedatectl", "loginctl", "tuned-adm", "update-initramfs", "dracut", "update-grub",
    "grub-install", "grub-mkconfig", "grub2-install", "grub2-mkconfig", "grubby",
)  # fmt: skip
PATH = "/usr/sbin:/usr/bin:/sbin:/bin"

libc = ctypes.CDLL(None, use_errno=True)


def bind(source: Path, target: Path) -> None:
    """Bind a file over another.  Raises OSError."""
    done = libc.mount(os.fsencode(source), os.fsencode(target), None, ctypes.c_ulong(MS_BIND), None)
    if done != 0:
        raise OSError(ctypes.get_errno(), "mount --bind", os.fspath(target))


def cover(program: Path) -> None:
    """Keep `program` below REAL and mount the shim over it."""
    kept = REAL / program.name
    kept.touch()
    bind(program, kept)
    bind(SHIM, program)


def main() -> None:
    """Cover every program in the root, once per file: some have several names."""
    settings = json.loads(SHIM.with_name("settings.json").read_text())
    socket.sethostname(settings["host"])
    REAL.mkdir()
    found = {name: shutil.which(name, path=PATH) for name in NAMES}
    real = {os.path.realpath(path) for path in found.values() if path}
    if not settings["kernel"]:  # no release to print instead of the builder's
        real.discard(os.path.realpath(found["uname"] or ""))
    for path in sorted(real):
        cover(Path(path))
    # Programs that check whether systemd runs find it; the shim answers their commands.
    Path("/run/systemd/system").mkdir(parents=True)
    FILES.mkdir()
    FILES.chmod(0o1777)
    BOOT.write_text("00000000-0000-4000-8000-000000000000\n")
    BOOT.chmod(0o666)
    bind(BOOT, BOOT_ID)
    if MACHINE_ID.is_file():
        ours = REAL.with_name("machine-id")
        ours.write_text(f"{settings['machine-id']}\n")
        bind(ours, MACHINE_ID)
    for path, name in settings["covers"].items():
        if Path(path).is_file():
            bind(SHIM.with_name(name), Path(path))


if __name__ == "__main__":
    try:
        main()
    except OSError as error:
        sys.exit(f"prepare: {error}")
