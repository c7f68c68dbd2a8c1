# SPDX-License-Identifier: Apache-2.0
"""Who may use a device node, by the udev rules of a root and by the options of NVIDIA's driver.

Rules are followed for a device of which nothing is known but its subsystem and its name: what a
rule asks besides (ENV, ATTR, DRIVERS ...) may or may not hold, so such a rule decides nothing here.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from imagebuilder.proof.kernel.settings import config_lines
from imagebuilder.root import Root

# A file of an earlier folder hides one of the same name in a later (udev(7)).
FOLDERS = (
    "/etc/udev/rules.d",
    "/run/udev/rules.d",
    "/usr/local/lib/udev/rules.d",
    "/usr/lib/udev/rules.d",
)
PART = re.compile(r'(\w+)(\{[^}]*\})?\s*(==|!=|\+=|-=|:=|=)\s*[ei]?"((?:[^"\\]|\\.)*)"')
ROOT_ONLY = 0o600
# The group may use it, where a rule names one and no mode (udev(7)).
GROUPS_TOO = 0o660
EVERYBODY = 0o666
SUBSYSTEMS = (
    ("/dev/dri/", "drm"),
    ("/dev/kfd", "kfd"),
    ("/dev/accel/", "accel"),
    ("/dev/infiniband/uverbs", "infiniband_verbs"),
)
NVIDIA = "/dev/nvidia"
# `nvidia-modprobe -c` makes the nodes as these say; without them, for everybody.
NVREG = re.compile(r"\bNVreg_DeviceFile(GID|Mode)=(\w+)")


@dataclass(frozen=True)
class DeviceAccess:
    """The group and the mode that a device node gets, and the file that says so ("": none does).

    `group` is a name or an id as it is written; "root" where nothing gives another.
    """

    group: str = "root"
    mode: int = ROOT_ONLY
    path: str = ""

    @property
    def for_all(self) -> bool:
        """Whether everybody may read and write it."""
        return self.mode & 0o006 == 0o006

    @property
    def for_group(self) -> bool:
        """Whether its group may read and write it."""
        return self.mode & 0o060 == 0o060

    @property
    def text(self) -> str:
        """`group render, mode 0660`."""
        return f"group {self.group}, mode {self.mode:04o}"


@dataclass(frozen=True)
class UdevRule:
    """One rule: its parts as (key, attribute, operator, value)."""

    path: str
    parts: tuple[tuple[str, str, str, str], ...]

    def value(self, key: str) -> str:
        """What the rule assigns to a key, "" for nothing."""
        return next((v for k, _, op, v in self.parts if k == key and op in ("=", ":=", "+=")), "")

    def holds(self, subsystem: str, name: str) -> bool | None:
        """Whether the rule is about this device, as it is added; None when that is not known."""
        known = {"ACTION": "add", "KERNEL": name, "SUBSYSTEM": subsystem}
        sure = True
        for key, attribute, operator, pattern in self.parts:
            if operator not in ("==", "!="):
                continue
            if attribute or not known.get(key):
                sure = False
            elif matches(known[key], pattern) != (operator == "=="):
                return False
        return True if sure else None


def matches(value: str, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(value, each) for each in pattern.split("|"))


def node_of(root: Root, path: str, cmdline: Iterable[str] = ()) -> DeviceAccess:
    """Who may use the device `path` (or glob), as far as it can be known without the device."""
    if path.startswith(NVIDIA):
        return nvidia_node(root, cmdline)
    subsystem, name = kernel_names(path)
    node = DeviceAccess()
    skip_to, final = "", False
    grouped = moded = False
    for rule in read_rules(root):
        if skip_to:
            skip_to = "" if rule.value("LABEL") == skip_to else skip_to
            continue
        if rule.holds(subsystem, name) is not True:
            continue
        skip_to = rule.value("GOTO")
        group, mode = rule.value("GROUP"), rule.value("MODE")
        if not final and (group or mode):
            grouped, moded = grouped or bool(group), moded or bool(mode)
            node = replace(
                node,
                group=group or node.group,
                mode=int(mode, 8) if re.fullmatch("[0-7]+", mode) else node.mode,
                path=rule.path,
            )
        final = final or any(k in ("GROUP", "MODE") and op == ":=" for k, _, op, _ in rule.parts)
    return replace(node, mode=GROUPS_TOO) if grouped and not moded else node


def kernel_names(path: str) -> tuple[str, str]:
    """The subsystem of a device ("" when not known) and a name that the kernel may give it."""
    subsystem = next((name for begin, name in SUBSYSTEMS if path.startswith(begin)), "")
    number = "128" if "renderD" in path else "0"
    return subsystem, path.rpartition("/")[2].replace("*", number)


def nvidia_node(root: Root, cmdline: Iterable[str]) -> DeviceAccess:
    """NVIDIA's nodes: no rule makes them, the driver's options say whose they are."""
    node = DeviceAccess("root", EVERYBODY)
    lines = [(path, line) for path, line in config_lines(root) if line.startswith("options nvidia")]
    lines += [("/proc/cmdline", word) for word in cmdline if word.startswith("nvidia.")]
    for path, line in lines:
        for what, value in NVREG.findall(line):
            if what == "GID":
                node = replace(node, group=value, path=path)
            elif re.fullmatch(r"0?[0-7]{3}", value):
                # The driver reads it as C does: a leading 0 is octal.
                mode = int(value, 8) if value.startswith("0") else int(value)
                node = replace(node, mode=mode, path=path)
    return node


def read_rules(root: Root) -> Iterator[UdevRule]:
    """Every rule in effect, in udev's order: by the names of the files, wherever they are."""
    chosen: dict[str, str] = {}
    for folder in FOLDERS:
        for name in root.names(folder):
            if name.endswith(".rules"):
                chosen.setdefault(name, f"{folder}/{name}")
    for _, path in sorted(chosen.items()):
        # One that is masked leads to /dev/null, which is no regular file: no text.
        for line in root.text(path).replace("\\\n", " ").splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                parts = ((k, a.strip("{}"), op, v) for k, a, op, v in PART.findall(line))
                yield UdevRule(path, tuple(parts))
