# SPDX-License-Identifier: Apache-2.0
"""SELinux that is enforced needs a policy, and files with labels."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path

from imagebuilder.image.proof import Evidence, Findings, fault
from imagebuilder.proof.reading.modules import read_options
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

CONFIG = "/etc/selinux/config"
LABEL = "security.selinux"
# Each of these runs at boot, and in every policy it has a label of its own.
LABELLED = ("/usr/lib/systemd/systemd", "/usr/bin/bash", "/usr/bin/sh")
# What SELinux is on by default with: all that is started (security/Kconfig of Linux).
DEFAULT = re.compile(r'CONFIG_LSM="(?:.*,)?selinux(?:,.*)?"|CONFIG_DEFAULT_SECURITY_SELINUX=y')
OFF = "disable SELinux (selinux=0, overlay key cmdline:)"


def prove_selinux(subject: Subject) -> Findings:
    """Faults if SELinux is enforced: without a policy systemd stops (mac_selinux_setup()), and
    without labels nothing may be started.
    """
    words = {word.key: word for word in subject.words}
    values = {key: word.value for key, word in words.items()}
    config = re.search(r"^SELINUX=enforcing", subject.root.text(CONFIG), re.MULTILINE)
    enforced = values.get("enforcing", "1" if config else "") == "1"
    if not enforced or not is_on(subject, values):
        return
    where = words["enforcing"].evidence if "enforcing" in words else Evidence(CONFIG)
    if not subject.root.glob("/etc/selinux/*/policy/policy.*"):
        what = "SELinux is enforced, but the image has no policy: systemd stops at boot"
        yield fault(what, where, hint=f"{OFF}, or install a policy")
    elif bare := find_bare(subject.root):
        what = "SELinux is enforced, but the files of the image have no labels: nothing may start"
        said = f"has no {LABEL}"
        hint = f"{OFF}, or set SELINUX=permissive: images have no labels"
        yield fault(what, where, Evidence(bare, said=said), hint=hint)


def is_on(subject: Subject, values: dict[str, str]) -> bool:
    """Whether the kernel starts SELinux, by the command line's `values` or else as it was built."""
    if "selinux" in values:
        return values["selinux"] != "0"
    if chosen := [values[key] for key in ("lsm", "security") if key in values]:
        return "selinux" in ",".join(chosen).split(",")
    _, options = read_options(subject.root, subject.kernel)
    return any(map(DEFAULT.fullmatch, options))


def find_bare(root: Root) -> str:
    """A program without a label, "" if none is found."""
    for name in LABELLED:
        place = root.host(name)
        if place and LABEL not in attributes_of(place):
            return name
    return ""


def attributes_of(path: Path) -> list[str]:
    """The names of a file's extended attributes; none where its file system has none."""
    try:
        return os.listxattr(path)
    except OSError as error:
        if error.errno != errno.ENOTSUP:
            raise
        return []
