# SPDX-License-Identifier: Apache-2.0
"""Services whose program goes to the background, and which systemd therefore takes for ended."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Finding
from imagebuilder.proof.clusters import SAY
from imagebuilder.proof.reading.site import SiteService, site_services
from imagebuilder.proof.subject import Subject

# systemd.service(5), Type=: the service ends with its first process.
FOREGROUND = frozenset(("simple", "exec"))
LEFT_ALONE = frozenset(("process", "none"))  # KillMode= with which what is left goes on


@dataclass(frozen=True)
class Detaching:
    """A program that goes to the background: its first word that is no option matches `verb`, all
    regular expressions of `when` match a word, and `unless` matches none.
    """

    program: str
    verb: str
    when: tuple[str, ...]
    unless: str
    hint: str


ANYTHING = r".*"
DETACHING = (
    Detaching("ray", "start", (), r"--block", "add --block"),
    Detaching("docker", "run", (r"-[dit]*d[dit]*|--detach(=true)?",), r"-a|--attach",
              "remove -d, or set Type=oneshot with RemainAfterExit=yes"),
    Detaching("podman", "run", (r"-[dit]*d[dit]*|--detach(=true)?",), r"--sdnotify=\S+",
              "remove -d, or write a Quadlet file (podman-systemd.unit(5))"),
    Detaching("docker", "compose", ("up", r"-d|--detach"), r"--wait",
              "remove -d, or set Type=oneshot with RemainAfterExit=yes"),
    Detaching("docker-compose", "up", (r"-d|--detach",), r"--wait",
              "remove -d, or set Type=oneshot with RemainAfterExit=yes"),
    Detaching("screen", ANYTHING, (r"-\w*d\w*",), r"-D",
              "start the program itself, without screen"),
    Detaching("tmux", "new|new-session", (r"-\w*d\w*",), r"(?!)",
              "start the program itself, without tmux"),
    Detaching("slurmd", ANYTHING, (), r"-\w*D\w*", "add -D"),
    Detaching("munged", ANYTHING, (), r"-F|--foreground", "add --foreground"),
    Detaching("opensm", ANYTHING, (r"-B|--daemon",), r"(?!)", "remove --daemon"),
)  # fmt: skip


def prove_detached(subject: Subject) -> Iterator[Finding]:
    """Faults of services that end as soon as they have started."""
    for service in site_services(subject):
        unit = service.unit
        if unit.last("Type", "simple") not in FOREGROUND or unit.last("RemainAfterExit") == "yes":
            continue
        if unit.last("KillMode") in LEFT_ALONE:
            continue
        row = next((row for row in DETACHING if detaches(row, service)), None)
        if row:
            what = f"{service.name} stops as soon as it has started: {row.program} goes to the "
            what += "background, and systemd kills the processes that are left"
            yield SAY.fault(what, service.evidence, hint=row.hint)


def detaches(row: Detaching, service: SiteService) -> bool:
    words = service.words[1:]
    if service.program != row.program or any(re.fullmatch(row.unless, word) for word in words):
        return False
    verb = next((word for word in words if not word.startswith("-")), "")
    told = all(any(re.fullmatch(each, word) for word in words) for each in row.when)
    return told and re.fullmatch(row.verb, verb) is not None
