# SPDX-License-Identifier: Apache-2.0
"""Releases of `minimal`: two good ones, and five that are broken, each in its own way.

Each fault is a file that an overlay brings, of which nothing can be known before it runs.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

from tests.integration.changes import add_file, linked
from tests.workshop import Workshop, make_workshop

PROFILE = "minimal"
UNTESTED = ("--untested", "a broken release is rolled out on purpose")
DROP_INS = "etc/systemd/system/{}.service.d/90-news.conf"
SSH = DROP_INS.format("ssh")
PANIC = """\
[Service]
ExecStartPre=/bin/sh -c 'echo 5 > /proc/sys/kernel/panic; echo c > /proc/sysrq-trigger'
"""
CABLE_OUT = """\
[Service]
ExecStartPre=/bin/sh -c 'for nic in /sys/class/net/e*; do ip link set "$${nic##*/}" down; done'
"""
NO_SSH = "[Service]\nExecStartPre=/bin/false\n"
STUCK = "[Service]\nTimeoutStartSec=infinity\nExecStartPre=/bin/sleep infinity\n"
ILL = "#!/bin/sh\necho 2 and 2 are 5\nexit 2\n"


@dataclass(frozen=True)
class Change:
    """A file that makes one release differ; `says` is a pattern of what its roll-out says."""

    path: str
    text: str
    mode: int = 0o644
    says: str = ""


SILENT = "did not come back"
GOOD = Change("etc/imagebuilder-news", "a good one\n")
BROKEN = {
    # It reboots by itself, so the boot server may have taken it back before the roll-out does.
    "panics": Change(SSH, PANIC, says=rf"{SILENT}|booted .* instead \(the boot server fell back\)"),
    "loses the network": Change(SSH, CABLE_OUT, says=SILENT),
    "has no ssh": Change(SSH, NO_SSH, says=SILENT),
    "computes wrong": Change(
        "usr/lib/imagebuilder/health.d/alive-sums", ILL, 0o755, says="health: wrong results"
    ),
    "hangs": Change(DROP_INS.format("systemd-tmpfiles-setup"), STUCK, says=SILENT),
}


@dataclass(frozen=True)
class Releases:
    """A netboot tree with all of them; `old` is stable, `broken` are versions by what is wrong."""

    workshop: Workshop
    tree: Path
    old: str
    new: str
    broken: dict[str, str]


def make_releases(top: Path) -> Releases:
    """Build and publish them."""
    workshop = make_workshop(top)
    tree = top / "tree"
    old = publish(workshop, tree)
    workshop("promote", PROFILE, *UNTESTED, IMAGEBUILDER_TREE=os.fspath(tree))
    versions = {}
    for number, (name, change) in enumerate({"good": GOOD, **BROKEN}.items()):
        changed = linked(workshop, top / f"changed-{number}")
        add_file(changed.project, "compute-node", change.path, change.text, change.mode)
        versions[name] = publish(changed, tree)
    new = versions.pop("good")
    return Releases(workshop, tree, old, new, versions)


def publish(workshop: Workshop, tree: Path) -> str:
    """Build and publish what the workshop has; its version."""
    image: str = json.loads(workshop("build", PROFILE, "--json").stdout)["image"]
    workshop("publish", image, IMAGEBUILDER_TREE=os.fspath(tree))
    return image.partition("@")[2]
