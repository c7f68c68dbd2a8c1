# SPDX-License-Identifier: Apache-2.0
"""Limits of units that systemd no longer has: those of cgroups v1, gone since systemd 258."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import assignments
from imagebuilder.proof.reading.systemd import REMOVED, Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

# The settings that took their place (systemd.resource-control(5)).
SUCCESSORS = {
    "MemoryLimit": "MemoryMax",
    "(Startup|)CPUShares": r"\1CPUWeight",
    "(Startup|)BlockIOWeight": r"\1IOWeight",
    "BlockIODeviceWeight": "IODeviceWeight",
    "BlockIO(Read|Write)Bandwidth": r"IO\1BandwidthMax",
}


def prove_removed(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings of a site's lines that systemd reports as removed.

    A unit for several releases of systemd has the new setting as well.
    """
    for complaint in startup.complaints:
        found = REMOVED.match(complaint.what)
        key, path = found["key"] if found else "", complaint.where
        new = next((re.sub(old, by, key) for old, by in SUCCESSORS.items()
                    if re.fullmatch(old, key)), "")  # fmt: skip
        if not new or path in subject.shipped:
            continue
        lines = [(name, value) for _, name, value in assignments(subject.root.text(path))]
        if any(name == new for name, _ in lines):
            continue
        said = next((f"{name}={value}" for name, value in lines if name == key), key)
        what = f"{said} of {path} has no effect: this systemd no longer has {key}=, and what the "
        what += "unit starts has no such limit"
        yield SAY.warning(what, Evidence(path, said=said), hint=f"set {new}= instead")
