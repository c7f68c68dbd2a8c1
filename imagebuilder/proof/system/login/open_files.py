# SPDX-License-Identifier: Apache-2.0
"""Limits of open files that the kernel refuses, because fs.nr_open is lower."""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.limits import limits_of, read_limits
from imagebuilder.proof.reading.numbers import whole
from imagebuilder.proof.reading.sysctl import read_sysctl
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

ITEM, MOST = "nofile", "fs.nr_open"


def prove_open_files(subject: Subject) -> Iterator[Finding]:
    """Warnings, one for each limit: setrlimit(2) fails with EPERM, for root as well.

    Debian's pam_limits goes on without the limit (tried with 1.7), that of Linux-PAM refuses the
    session.  systemd raises fs.nr_open when it starts, so only a setting lowers it, and caps its
    own limits by it.
    """
    most = read_sysctl(subject).get(MOST)
    if most is None or not most.value.isdecimal():
        return
    lines = read_limits(subject.root, ITEM)
    refused: dict[Evidence, list[str]] = {}
    for user in sorted(subject.accounts.logins):
        own = lines if user != "root" else [line for line in lines if line.domain != "*"]
        limit = limits_of(user, subject.accounts, own).get("hard")
        if limit and whole(limit.value) > whole(most.value):
            said = f"{limit.domain} {limit.kind} {ITEM} {limit.value}"
            refused.setdefault(Evidence(limit.path, said=said), []).append(user)
    for where, users in refused.items():
        what = f"{where.said} of {where.path} is more than the kernel allows ({MOST} = "
        what += f"{most.value}): {some(users)} cannot have so many open files, and PAM may refuse "
        what += "the login"
        hint = f"remove {MOST}, which systemd raises by itself, or lower the limit"
        yield SAY.warning(what, where, most.where, hint=hint)
