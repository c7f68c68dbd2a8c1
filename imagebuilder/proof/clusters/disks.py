# SPDX-License-Identifier: Apache-2.0
"""Lists of the disks of one machine, by which LVM passes over those of all other nodes."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.clusters import SAY
from imagebuilder.proof.clusters.state import stays
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.subject import Subject

LVM, CONFIG, LISTS = "lvm", ("/etc/lvm/lvm.conf", "/etc/lvm/lvmlocal.conf"), "/etc/lvm/devices/*"
# lvmdevices(8): a disk by what only it has; `devname` and files of loop devices may be anywhere.
DISK = re.compile(
    r"^[ \t]*IDTYPE=(?P<kind>(?!devname\b|loop_file\b)\w+)[ \t]+IDNAME=(?P<name>\S+)", re.MULTILINE
)
LIST_ON = re.compile(r"^[ \t]*use_devicesfile[ \t]*=[ \t]*(?P<value>[01])", re.MULTILINE)
LIST_NAME = re.compile(r"^[ \t]*devicesfile[ \t]*=[ \t]*\"(?P<name>[^\"]*)\"", re.MULTILINE)
DEFAULT = "system.devices"
# lvm.conf(5), global_filter: accepts one disk by its serial number, and refuses all others.
FILTER = re.compile(r"^[ \t]*(global_)?filter[ \t]*=[ \t]*\[(?P<rules>[^\]]*)\]", re.MULTILINE)
ACCEPTS = re.compile(r"\"a[|/!#](?P<path>[^\"]*)")
BY_ID = re.compile(r"/disk/by-(?:id|uuid)/[^*]*\w{6}")
REFUSES = re.compile(r"\"r[|/!#](\^?/?\.\*|\.\*/?)[|/!#]\"")


def prove_disks(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings: every node may have the disks, such as one of a shared storage."""
    root = subject.root
    if not find_program(root, LVM):
        return
    text = "".join(f"{root.text(path)}\n" for path in CONFIG)
    is_on = LIST_ON.search(text)
    named = LIST_NAME.search(text)
    path = LISTS.replace("*", named["name"] if named else DEFAULT)
    disks = list(DISK.finditer(root.text(path)))
    if disks and not (is_on and is_on["value"] == "0") and stays(subject, startup, path):
        first = disks[0]
        what = f"{path} lists the disks of one machine ({first['name']}): LVM passes over those of "
        what += "all other nodes, and finds no volume group there"
        hint = "remove the file, or set use_devicesfile = 0 in lvm.conf"
        yield SAY.warning(what, Evidence(path, said=first[0].strip()), hint=hint)
    for config in CONFIG:
        for found in FILTER.finditer(root.text(config)):
            accepted = [each["path"].rstrip("|/!#") for each in ACCEPTS.finditer(found["rules"])]
            is_one = accepted and all(map(BY_ID.search, accepted))
            if is_one and REFUSES.search(found["rules"]):
                what = f"the filter of {config} accepts the disks of one machine alone "
                what += f"({accepted[0]}): LVM finds no volume group on all other nodes"
                said = " ".join(found[0].split())
                yield SAY.warning(what, Evidence(config, said=said), hint="remove the filter")
