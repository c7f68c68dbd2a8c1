# SPDX-License-Identifier: Apache-2.0
"""Files that programs expect on a running machine but no image may have, for one playbook."""

from __future__ import annotations

import stat
from collections.abc import Sequence
from pathlib import Path

from imagebuilder.process import run
from imagebuilder.sandbox.lasting import Inside

# A fixed id of this program, which no node has.
MACHINE_ID = "f1d2d2f924e986ac86fdf7b36c94bcdf"
HOST_KEY = "/etc/ssh/ssh_host_ed25519_key"
# Larger files are not searched: they are data, not settings.
MOST_BYTES = 1_000_000
# 1. What tmpfiles.d(5) and RuntimeDirectory= make below /run when a node boots.
# 2. A host key, without which sshd(8) does not even check its settings; run_clean() removes it.
MAKE = f"""\
exec 3>&1 >/dev/null 2>&1
systemd-tmpfiles --create --prefix=/run
sed -n 's/^RuntimeDirectory=//p' /usr/lib/systemd/system/*.service /etc/systemd/system/*.service |
tr ' ' '\\n' | while read -r name; do
    case $name in '' | *%* | *..*) ;; *) mkdir -p "/run/$name" ;; esac
done
if [ -d /etc/ssh ] && [ ! -e {HOST_KEY} ]; then
    ssh-keygen -q -t ed25519 -N '' -C '' -f {HOST_KEY} && cut -d' ' -f2 {HOST_KEY}.pub >&3
fi
true
"""


def make_machine_files(inside: Inside) -> tuple[str, ...]:
    """Make them in the root; returns the words that must not get into the layer."""
    host_keys = run(["sh", "-c", MAKE], sandbox=inside).stdout.split()
    return (MACHINE_ID, *host_keys)


def find_machine_words(tree: Path, paths: Sequence[Path], words: Sequence[str]) -> str:
    """The first file that contains one of the words; "" if none."""
    for path in paths:
        place = f"/{path.relative_to(tree)}"
        found = path.lstat()  # a link may lead out of the root, to whatever this host has there
        small = stat.S_ISREG(found.st_mode) and found.st_size <= MOST_BYTES
        if small and place != f"{HOST_KEY}.pub":
            content = path.read_bytes()
            if any(word.encode() in content for word in words):
                return place
    return ""
