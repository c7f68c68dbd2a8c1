# SPDX-License-Identifier: Apache-2.0
"""Accounts that rules of logrotate(8) name and that do not exist: it skips such a rule."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.site import site_files
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

PROGRAM = "/usr/sbin/logrotate"
FILES = ("/etc/logrotate.conf", "/etc/logrotate.d/*")
# create [MODE] [USER GROUP], createolddir [MODE] [USER GROUP], su USER GROUP
LINE = re.compile(
    r"^[ \t]*(?P<key>create|createolddir|su)[ \t]+(?:0?[0-7]{3,4}[ \t]+)?"
    r"(?P<user>[A-Za-z_][\w.-]*)[ \t]+(?P<group>[A-Za-z_][\w.-]*)[ \t]*(?:#.*)?$",
    re.MULTILINE,
)


def prove_rotation(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings, one for each line."""
    if not subject.root.is_file(PROGRAM):
        return
    # systemd makes them when the service starts, with a group of the same name.
    dynamic = {unit.last("User") or unit.name.removesuffix(".service")
               for unit in startup.starting() if unit.last("DynamicUser") == "yes"}  # fmt: skip
    users = subject.accounts.users.keys() | dynamic
    groups = subject.accounts.groups.keys() | dynamic
    for path in (path for pattern in FILES for path in site_files(subject, pattern)):
        for line in LINE.finditer(subject.root.text(path)):
            lost = [f"the account {line['user']}"] if line["user"] not in users else []
            lost += [f"the group {line['group']}"] if line["group"] not in groups else []
            if lost:
                said = " ".join(line[0].split())
                what = f"logrotate skips the logs of {path}: {said} names {' and '.join(lost)}, "
                what += "which the image does not have, and the logs grow without end"
                hint = "name an account and a group of the image, such as root adm on Debian"
                yield SAY.warning(what, Evidence(path, said=said), hint=hint)
