# SPDX-License-Identifier: Apache-2.0
"""Who may use a device node, by the udev rules of a root and by the options of NVIDIA's driver.

Known of a device are its subsystem and name, and the driver, vendor and device id of its card.
Rules that match anything else (ENV, KERNELS ...) may or may not apply, so they are ignored here.
"""

from __future__ import annotations

import fnmatch
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from imagebuilder.proof.reading.config import CMDLINE, config_files, config_folders
from imagebuilder.proof.reading.modules import CLASSES
from imagebuilder.proof.reading.mounts import read_tmpfiles
from imagebuilder.proof.reading.nodes import NVIDIA, find_family
from imagebuilder.proof.reading.parameters import config_lines
from imagebuilder.proof.subject import Subject, once
from imagebuilder.recipe.chip import Chip

RULES = config_folders("udev/rules.d")
PART = re.compile(r'\b(\w+)(\{[^{}]*\})?\s*(==|!=|\+=|-=|:=|=)\s*[ei]?"((?:[^"\\]|\\.)*)"')
ROOT_ONLY = 0o600
# The group may also use it if a rule sets a group but no mode (udev(7)).
GROUPS_TOO = 0o660
EVERYBODY = 0o666
# Options for the nodes that `nvidia-modprobe -c` creates; by default everybody may use them.
NVREG = re.compile(r"\bNVreg_DeviceFile(GID|Mode)=(\w+)")


@dataclass(frozen=True)
class DeviceAccess:
    """The group and the mode of a device node, and the file that sets them ("": none does).

    `group` is a name or an id as written; "root" by default.
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
        """The value that the rule assigns to a key, "" if none."""
        return next((v for k, _, op, v in self.parts if k == key and op in ("=", ":=", "+=")), "")

    def holds(self, known: Facts) -> bool | None:
        """Whether the rule applies to this device when it is added; None if unknown."""
        sure = True
        for key, attribute, operator, pattern in self.parts:
            if operator not in ("==", "!="):
                continue
            values = known.get((key, attribute), ())
            if not values:
                sure = False
            elif any(matches(value, pattern) for value in values) != (operator == "=="):
                return False
        return True if sure else None

    @property
    def takes_device(self) -> str:
        """The assignment that takes a device from its driver, "" if none."""
        for key, attribute, operator, value in self.parts:
            if operator in ("==", "!="):
                continue
            if key == "ATTR" and attribute in ("remove", "driver_override") and value.strip():
                return f'ATTR{{{attribute}}}="{value}"'
            if key == "RUN" and re.search(r"/(remove|unbind)\b", value):
                return f'RUN+="{value}"'
        return ""


# Values that a device and its parents have, by key and attribute.
Facts = Mapping[tuple[str, str], tuple[str, ...]]


def facts_of(subsystem: str, name: str, chips: Sequence[Chip] = ()) -> Facts:
    """The known values of a device of one of these chips when it is added."""
    vendors = tuple(f"0x{chip.pci.partition(':')[0]}" for chip in chips)
    devices = tuple(f"0x{chip.pci.partition(':')[2]}" for chip in chips)
    drivers = tuple(module for chip in chips for module in chip.modules)
    of_pci = subsystem == "pci"
    return {
        ("ACTION", ""): ("add",),
        ("KERNEL", ""): (name,) if name else (),
        ("SUBSYSTEM", ""): (subsystem,) if subsystem else (),
        ("SUBSYSTEMS", ""): (subsystem, "pci") if subsystem and chips else (),
        ("DRIVERS", ""): drivers,
        ("DRIVER", ""): drivers if of_pci else (),
        ("ATTRS", "vendor"): vendors,
        ("ATTRS", "device"): devices,
        ("ATTR", "vendor"): vendors if of_pci else (),
        ("ATTR", "device"): devices if of_pci else (),
        ("ATTR", "class"): tuple(f"0x{each}" for each in CLASSES) if of_pci else (),
    }


def matches(value: str, pattern: str) -> bool:
    return any(fnmatch.fnmatchcase(value, each) for each in pattern.split("|"))


def node_of(subject: Subject, path: str) -> DeviceAccess:
    """Who may use the device `path` (or glob), as far as known without the device."""
    if path.startswith(NVIDIA):
        return nvidia_node(subject)
    known = facts_of(*kernel_names(path), subject.chips)
    node = DeviceAccess()
    skip_to, final = "", False
    grouped = moded = False
    for rule in read_rules(subject):
        if skip_to:
            skip_to = "" if rule.value("LABEL") == skip_to else skip_to
            continue
        if rule.holds(known) is not True:
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
    """The subsystem of a device ("" if unknown) and a name that the kernel may give it."""
    family = find_family(path)
    number = "128" if "renderD" in path else "0"
    return family.subsystem if family else "", path.rpartition("/")[2].replace("*", number)


def nvidia_node(subject: Subject) -> DeviceAccess:
    """NVIDIA's nodes: no rule creates them, and the driver's options set their owner."""
    node = DeviceAccess("root", EVERYBODY)
    lines = [each for each in config_lines(subject) if each[1].startswith("options nvidia")]
    words = (word for word in subject.words if word.key.startswith("nvidia."))
    lines += [(CMDLINE, word.text) for word in words]
    for path, line in lines:
        for what, value in NVREG.findall(line):
            if what == "GID":
                node = replace(node, group=value, path=path)
            elif re.fullmatch(r"0?[0-7]{3}", value):
                # The driver reads it as C does: a leading 0 is octal.
                mode = int(value, 8) if value.startswith("0") else int(value)
                node = replace(node, mode=mode, path=path)
    return node


def at_boot(subject: Subject, path: str) -> DeviceAccess | None:
    """The access that tmpfiles.d(5) sets for a node; None if no line names it."""
    found = None
    for line in read_tmpfiles(subject):
        if line.kind not in "zZmcb" or not line.path.startswith("/"):
            continue
        if path == line.path or fnmatch.fnmatchcase(path.replace("*", "0"), line.path):
            mode = GROUPS_TOO if line.mode is None else line.mode
            found = DeviceAccess(line.group, mode, line.place)
    return found


@once
def read_rules(subject: Subject) -> tuple[UdevRule, ...]:
    """Every rule in effect, in udev's order: by the names of the files, wherever they are."""
    found: list[UdevRule] = []
    for path in config_files(subject.root, RULES, ".rules"):
        # A masked one links to /dev/null, which is not a regular file and has no text.
        for line in subject.root.text(path).replace("\\\n", " ").splitlines():
            if line.strip() and not line.lstrip().startswith("#"):
                parts = ((k, a.strip("{}"), op, v) for k, a, op, v in PART.findall(line))
                found.append(UdevRule(path, tuple(parts)))
    return tuple(found)
