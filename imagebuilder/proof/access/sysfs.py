# SPDX-License-Identifier: Apache-2.0
"""Writes to sysfs at boot, by udev rules and tmpfiles.d(5), that unbind or slow down the card."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.reading.modules import plain
from imagebuilder.proof.reading.tmpfiles import read_tmpfiles
from imagebuilder.proof.reading.udev import facts_of, read_rules
from imagebuilder.proof.say import Say
from imagebuilder.proof.subject import Subject

SAY = Say(Question.ACCESS)
DRM = ("drm", "card0")
# `echo VALUE > /sys/PATH` in a RUN of a rule.
ECHO = re.compile(r"\becho\s+(?:-n\s+)?['\"]?(?P<value>[^\s'\"]+)['\"]?\s*>+\s*(?P<path>[^\s'\"]+)")
UNBIND = re.compile(r"/drivers/(?P<driver>[\w-]+)/unbind$")


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


def prove_writes(subject: Subject) -> Iterator[Finding]:
    """Faults of writes that unbind a driver; warnings of writes that slow down a card."""
    drivers = {plain(module) for chip in subject.chips for module in chip.modules}
    for write in (*writes_of_tmpfiles(subject), *writes_of_rules(subject)):
        found = UNBIND.search(write.path)
        if found and plain(found["driver"]) in drivers:
            what = f"{write.where.path} unbinds a device from {found['driver']} at every boot"
            hint = "remove that line, or name a device that this image is not for"
            yield SAY.fault(what, write.where, hint=hint)
        for row in SLOW:
            name = posixpath.basename(write.path)
            if re.fullmatch(row.attribute, name) and re.fullmatch(row.value, write.value):
                what = f"{write.where.path} sets {name} to {write.value}: {row.why}"
                yield SAY.warning(what, write.where, hint="remove that line")


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
                where = Evidence(rule.path, said=said)
                yield SysfsWrite(match["path"], match["value"], where)
