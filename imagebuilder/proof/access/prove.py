# SPDX-License-Identifier: Apache-2.0
"""Question 6: accounts and services may use the accelerator: groups, udev rules, limits, units.

Checks the devices, accounts and services that overlays declare, and the render group if the
profile has a device whose nodes that group owns; and writes to sysfs at boot, by udev rules and
tmpfiles.d(5), that unbind or slow down the card.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from imagebuilder.image.proof import Evidence, Finding, Findings, fact, fault, warning
from imagebuilder.proof.access.services import prove_others, prove_services
from imagebuilder.proof.reading.accounts import Accounts, limits_of, read_limits
from imagebuilder.proof.reading.modules import plain
from imagebuilder.proof.reading.mounts import read_tmpfiles
from imagebuilder.proof.reading.nodes import FAMILIES, NVIDIA, find_family
from imagebuilder.proof.reading.udev import DeviceAccess, at_boot, facts_of, node_of, read_rules
from imagebuilder.proof.reading.units import FOLDERS, find_unit
from imagebuilder.proof.say import prove_answered, some
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.expectations import Device
from imagebuilder.root import Root

MODPROBE = "/usr/bin/nvidia-modprobe"
SETUID = 0o4000
OPENING_RULE = 'ship a udev rule with MODE="0666"'
UDEVADM = "/usr/bin/udevadm"
REFUSED = re.compile(r"^(/\S+?):\d+ (.*)$", re.MULTILINE)
DRM = ("drm", "card0")
# `echo VALUE > /sys/PATH` in a RUN of a rule.
ECHO = re.compile(r"\becho\s+(?:-n\s+)?['\"]?(?P<value>[^\s'\"]+)['\"]?\s*>+\s*(?P<path>[^\s'\"]+)")
UNBIND = re.compile(r"/drivers/(?P<driver>[\w-]+)/unbind$")


def prove_access(subject: Subject) -> Findings:
    """Every finding about access; none if nothing is declared and no device is known."""
    devices = tuple(as_owned(subject, each) for each in subject.expectations.devices)
    if devices or subject.hardware:
        yield from prove_rules(subject)
    if subject.hardware:
        yield from prove_writes(subject)
    for device in (*devices, *undeclared(subject)):
        yield from prove_device(subject, device)
    if any(device.path.startswith(NVIDIA) for device in devices):
        yield prove_node_creation(subject)
    for user in subject.expectations.users:
        yield from prove_user(user, devices, subject.accounts)
    if any(service.memlock for service in subject.expectations.services):
        yield from prove_limits(subject)
    yield from prove_services(subject, devices)
    yield from prove_others(subject, devices)


def as_owned(subject: Subject, device: Device) -> Device:
    """The device with the group from the image's rules, if all its users are in that group; also a
    device that is declared for everybody.

    AMD's installer gives its nodes to video, the distributions give them to render.
    """
    node, accounts = node_of(subject, device.path), subject.accounts
    group, users = accounts.group(node.group), subject.expectations.users
    shared = users and all(group in accounts.groups_of(user) for user in users)
    is_owned = shared and node.for_group and (device.group or not node.for_all)
    return replace(device, group=group) if is_owned else device


def undeclared(subject: Subject) -> Iterator[Device]:
    """The nodes of the profile's devices that no overlay declares."""
    declared = {device.path for device in subject.expectations.devices}
    chips = [chip for chip in subject.chips if chip.group]
    nodes = {
        family.path: chip.group
        for chip in chips
        for family in FAMILIES
        if not set(family.modules).isdisjoint(chip.modules)
    }
    for path, group in nodes.items():
        if path not in declared:
            yield Device(path, group)


def prove_device(subject: Subject, device: Device) -> Findings:
    node, accounts = node_of(subject, device.path), subject.accounts
    by = Evidence(node.path or "/usr/lib/udev/rules.d", said=f"{device.path}: {node.text}")
    if device.group and device.group not in accounts.groups:
        what = f"the group {device.group}, which must own {device.path}, does not exist"
        hint = f"declare it (overlay key groups:), or install udev, which creates {device.group}"
        yield fault(what, Evidence("/etc/group"), hint=hint)
        return
    later = at_boot(subject, device.path)
    if later and not later.for_all and not keeps(later, device, accounts):
        what = f"tmpfiles.d gives {device.path} {later.text}"
        hint = "remove that line: udev gives the node its group and mode"
        yield fault(what, Evidence(later.path), hint=hint)
        return
    if node.for_all:
        yield fact(f"everybody may use {device.path}", by)
        return
    if not device.group:
        what = f"{device.path} must be usable by everybody, but has {node.text}"
        name = accounts.group(node.group)
        what += "" if name else ", a group that does not exist"
        hint = f"write `group: {name or 'GROUP'}` beside `path: {device.path}` in `proof: "
        hint += "devices:` of the overlay that declares it, and add its accounts to that group, or "
        is_nvidia = device.path.startswith(NVIDIA)
        hint += f"remove NVreg_DeviceFile* from {node.path}" if is_nvidia else OPENING_RULE
        yield fault(what, by, hint=hint)
        return
    if accounts.group(node.group) == device.group and node.for_group:
        yield fact(f"{device.path} belongs to {device.group}, mode {node.mode:04o}", by)
        return
    known = node.path or find_family(device.path)
    what = f"no udev rule of the image gives {device.path} to {device.group}"
    what += f": it has {node.text}" if node.path else ""
    hint = "install udev with its rules, or ship a rule such as "
    hint += f'SUBSYSTEM=="...", GROUP="{device.group}", MODE="0660" in /usr/lib/udev/rules.d'
    yield fault(what, by, hint=hint) if known else warning(what, by, hint=hint)


def keeps(later: DeviceAccess, device: Device, accounts: Accounts) -> bool:
    """Whether the group of a device may still use its node."""
    group = later.group or device.group
    return later.for_group and accounts.group(group) == device.group


def prove_rules(subject: Subject) -> Findings:
    """Faults of udev rules that take the card from its driver, and of lines that udev rejects."""
    known = facts_of("pci", "", subject.chips)
    for rule in read_rules(subject) if subject.chips else ():
        if rule.takes_device and rule.holds(known):
            what = f"a udev rule takes the card from its driver: {rule.takes_device}"
            hint = "remove the rule, or make it match another device"
            yield fault(what, Evidence(rule.path), hint=hint)
    if subject.root.is_file(UDEVADM):
        done = subject.run([UDEVADM, "verify", "--no-summary", "--no-style"])
        unread = "whether udev accepts its rules"
        yield from prove_answered(done, unread, Evidence(UDEVADM, said="udevadm verify"))
        for path, what in REFUSED.findall(done.stdout + done.stderr):
            hint = "correct it; udevadm verify in the image shows the error"
            is_accepted = "deprecated" in what
            say, does = (warning, "warns of") if is_accepted else (fault, "rejects")
            yield say(f"udev {does} a line of {path}: {what}", Evidence(path), hint=hint)


def prove_node_creation(subject: Subject) -> Finding:
    """The finding about what creates NVIDIA's nodes, because no kernel driver does."""
    root = subject.root
    for folder in ("/etc/udev/rules.d", "/usr/lib/udev/rules.d", *FOLDERS):
        for name in root.names(folder):
            path = f"{folder}/{name}"
            if not root.is_file(path):
                continue
            for line in root.text(path).splitlines():
                if makes_nodes(root, line):
                    what = "NVIDIA's device nodes are created at boot"
                    return fact(what, Evidence(path, said=line.strip()))
    host = root.host(MODPROBE)
    if host is not None and host.stat().st_mode & SETUID:
        where = Evidence(MODPROBE, said="set-user-ID root")
        units = (find_unit(root, service.unit) for service in subject.expectations.services)
        confined = [unit.name for unit in units if unit and unit.true("NoNewPrivileges")]
        if confined:
            what = f"nothing creates NVIDIA's device nodes before {some(confined)}, which cannot "
            what += "create them"
            hint = "ship a udev rule or unit that runs nvidia-modprobe at boot: set-user-ID has no "
            return warning(what, where, hint=f"{hint}effect with NoNewPrivileges=yes")
        return fact("the first program that uses NVIDIA's driver creates its device nodes", where)
    state = "is not set-user-ID" if host is not None else "is missing"
    what = "nothing creates NVIDIA's device nodes: no unit or udev rule does, and nvidia-modprobe "
    what += state
    hint = "install nvidia-modprobe, or ship a udev rule or unit that runs it at boot"
    return fault(what, Evidence(MODPROBE), hint=hint)


def makes_nodes(root: Root, line: str) -> bool:
    """Whether a line of a rule or unit runs what creates the nodes, directly or in a script.

    A rule that only mentions them, such as one about power, does not.
    """
    if line.lstrip().startswith(("#", ";")) or not ("RUN" in line or "Exec" in line):
        return False
    if "nvidia-modprobe" in line or ("mknod" in line and "nvidia" in line):
        return True
    words = line.replace('"', " ").replace("=", " ").split()
    programs = [w for w in words if w.startswith("/") and "nvidia" in w and root.is_file(w)]
    found = [root.read(path) or b"" for path in programs]
    return any(text.startswith(b"#!") and b"nvidia-modprobe" in text for text in found)


def prove_user(user: str, devices: Iterable[Device], accounts: Accounts) -> Findings:
    if user not in accounts.users:
        what = f"the account {user}, which must use the accelerator, does not exist"
        hint = "declare it (overlay key users:), or remove it from the overlay's proof:"
        yield fault(what, Evidence("/etc/passwd"), hint=hint)
        return
    groups = dict.fromkeys(device.group for device in devices if device.group)
    lacking = [group for group in groups if group not in accounts.groups_of(user)]
    if user == "root":
        return
    if lacking:
        what = f"{user} is not in {some(lacking)}, whose devices it must use"
        hint = f"add {some(lacking)} to the groups of {user} (overlay key users: groups:)"
        yield fault(what, Evidence("/etc/group", symbol=lacking[0]), hint=hint)
    elif groups:
        where = (Evidence("/etc/group", symbol=group, said=user) for group in groups)
        yield fact(f"{user} is in {some(groups)}", *where)


def prove_limits(subject: Subject) -> Findings:
    """Memlock of the accounts, who may run by hand what a service runs that locks memory."""
    limits = read_limits(subject.root, "memlock")
    for user in subject.expectations.users:
        found = limits_of(user, subject.accounts, limits)
        bad = [kind for kind in ("soft", "hard") if kind not in found or not found[kind].unlimited]
        where = [
            Evidence(limit.path, said=f"{limit.domain} {limit.kind} memlock {limit.value}")
            for limit in dict.fromkeys(found.values())
        ]
        if not bad:
            yield fact(f"{user} may lock memory without limit", *where)
        elif user != "root" and user in subject.accounts.users:
            what = f"{user} may not lock memory without limit ({' and '.join(bad)} limit)"
            hint = f"ship /etc/security/limits.d/NAME.conf with: {user} - memlock unlimited"
            yield fault(what, *(where or [Evidence("/etc/security/limits.d")]), hint=hint)


@dataclass(frozen=True)
class SlowWrite:
    """A write that slows down a card: the name of the attribute, a pattern of values, and why."""

    attribute: str
    value: str
    why: str
    source: str


AMDGPU = "Documentation/gpu/amdgpu/thermal.rst of Linux"
SLOW = (
    SlowWrite("power_dpm_force_performance_level", r"low|profile_min_.*|perf_determinism",
              "the card keeps its lowest clocks", AMDGPU),
    SlowWrite("power_dpm_state", "battery", "the card keeps its lowest clocks", AMDGPU),
    SlowWrite("gt_max_freq_mhz", r"\d{1,3}", "the card keeps its lowest clocks",
              "Documentation/gpu/i915.rst of Linux"),
    SlowWrite("max_freq", r"\d{1,3}", "the card keeps its lowest clocks",
              "Documentation/ABI/testing/sysfs-driver-intel-xe-hwmon of Linux"),
    SlowWrite("current_link_speed|max_link_speed", "2.5.*", "the card's bus is slow",
              "Documentation/ABI/testing/sysfs-bus-pci of Linux"),
)  # fmt: skip


@dataclass(frozen=True)
class SysfsWrite:
    """A value that is written to an attribute, and the line that does it."""

    path: str
    value: str
    where: Evidence


def prove_writes(subject: Subject) -> Findings:
    drivers = {plain(module) for chip in subject.chips for module in chip.modules}
    for write in (*writes_of_tmpfiles(subject), *writes_of_rules(subject)):
        found = UNBIND.search(write.path)
        if found and plain(found["driver"]) in drivers:
            what = f"{write.where.path} unbinds a device from {found['driver']} at every boot"
            hint = "remove that line, or name a device that this image is not for"
            yield fault(what, write.where, hint=hint)
        for row in SLOW:
            name = posixpath.basename(write.path)
            if re.fullmatch(row.attribute, name) and re.fullmatch(row.value, write.value):
                what = f"{write.where.path} sets {name} to {write.value}: {row.why}"
                yield warning(what, write.where, hint="remove that line")


def writes_of_tmpfiles(subject: Subject) -> Iterator[SysfsWrite]:
    for line in read_tmpfiles(subject):
        if line.kind == "w" and line.path.startswith("/sys/") and line.argument:
            yield SysfsWrite(line.path, line.argument, Evidence(line.place, said=line.said))


def writes_of_rules(subject: Subject) -> Iterator[SysfsWrite]:
    """The writes of rules that apply to a card or to the device of its driver."""
    facts = [facts_of("pci", "", subject.chips), facts_of(*DRM, subject.chips)]
    for rule in read_rules(subject):
        if all(rule.holds(known) is False for known in facts):
            continue
        for key, attribute, operator, value in rule.parts:
            if operator in ("==", "!="):
                continue
            said = f'{key}{{{attribute}}}{operator}"{value}"'
            if key == "ATTR":
                yield SysfsWrite(attribute, value, Evidence(rule.path, said=said))
            for match in ECHO.finditer(value) if key == "RUN" else ():
                yield SysfsWrite(match["path"], match["value"], Evidence(rule.path, said=said))
