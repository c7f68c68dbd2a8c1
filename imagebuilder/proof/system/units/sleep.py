# SPDX-License-Identifier: Apache-2.0
"""What sends a node to sleep, or turns it off, while it computes: systemd-logind, and timers."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import is_false
from imagebuilder.proof.reading.systemd import Startup, last_lines
from imagebuilder.proof.reading.units import FOLDERS, find_file, find_unit
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.root import Root

LOGIND = "systemd-logind.service"
# By action (logind.conf(5)): the key of systemd-sleep.conf(5) that forbids it.
SLEEPS = {
    "suspend": "AllowSuspend",
    "hibernate": "AllowHibernation",
    "hybrid-sleep": "AllowHybridSleep",
    "suspend-then-hibernate": "AllowSuspendThenHibernate",
    "sleep": "",
}
ENDS = frozenset(("poweroff", "halt", "reboot", "kexec", "soft-reboot", "factory-reset"))
# The unit that a timer starts, if not its namesake.
STARTS = re.compile(r"^[ \t]*Unit\s*=\s*(\S+)", re.MULTILINE)
NEVER = re.compile(r"0+\s*\w*|infinity")


def prove_sleep(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """A node is idle to logind while nobody is logged in, whatever its services do."""
    lines = last_lines(subject, "systemd/logind.conf")
    action, after = lines.get("IdleAction"), lines.get("IdleActionSec")
    seconds = after.value if after and after.value else "30min"
    harmful = action is not None and (action.value in ENDS or sleeps(subject, action.value))
    if action and harmful and LOGIND in startup.jobs and not NEVER.fullmatch(seconds):
        what = f"a node on which nobody has been logged in for {seconds} stops in the middle of "
        what += f"its work: IdleAction={action.value}"
        yield SAY.fault(what, action.evidence, hint="remove that line, or set IdleAction=ignore")
    yield from prove_timers(subject, startup)


def prove_timers(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings: somebody may want it, but it interrupts what computes at that time."""
    for timer in sorted(name for name in startup.jobs if name.endswith(".timer")):
        path = find_file(subject.root, timer)
        if path is None:
            continue
        named = STARTS.findall(subject.root.text(path))
        verb = verb_of(subject.root, named[-1] if named else f"{timer[:-6]}.service")
        if sleeps(subject, verb):
            what = f"{timer} sends the node to sleep ({verb}), even while it computes"
            yield SAY.warning(what, Evidence(path), hint=f"do not enable {timer}")


def verb_of(root: Root, name: str) -> str:
    """What a unit does to the node: the name of a target, or what it tells `systemctl` to do."""
    if name.endswith(".target"):
        return name.removesuffix(".target")
    unit = find_unit(root, name)
    for words in (line.split() for line in (unit.every("ExecStart") if unit else ())):
        if posixpath.basename(words[0]) == "systemctl":
            return next((word for word in words[1:] if not word.startswith("-")), "")
    return ""


def sleeps(subject: Subject, action: str) -> bool:
    """Whether an action suspends a node, and nothing in the image prevents it."""
    if action not in SLEEPS or any(is_masked(subject.root, each) for each in (action, "sleep")):
        return False
    line = last_lines(subject, "systemd/sleep.conf").get(SLEEPS[action])
    return line is None or not is_false(line.value)


def is_masked(root: Root, target: str) -> bool:
    paths = (f"{folder}/{target}.target" for folder in FOLDERS)
    return any(root.link_at(path) == "/dev/null" for path in paths)
