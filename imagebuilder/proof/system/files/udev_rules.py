# SPDX-License-Identifier: Apache-2.0
"""Rules of udev that assign where they are meant to compare: `=` for `==` (udev(7))."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.udev import UdevRule, read_rules
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY

# What udev itself finds out about a device, so that rules only read it.
FOUND = re.compile(
    r"ID_(PART_\w+|FS_\w+|VENDOR\w*|MODEL\w*|SERIAL\w*|PATH\w*|BUS|TYPE|REVISION|USB_\w+|WWN\w*)"
    r"|DEVTYPE|DEVNAME|DEVPATH|SUBSYSTEM|ACTION|MAJOR|MINOR|PCI_\w+|DRIVER"
)
ACTS = frozenset(("RUN", "OWNER", "GROUP", "MODE", "SYMLINK", "NAME", "TAG"))


def prove_udev_rules(subject: Subject) -> Iterator[Finding]:
    """Warnings of rules that then apply to every device."""
    for rule in read_rules(subject):
        said = assigned(rule) if rule.path not in subject.shipped else ""
        if said:
            what = f"a rule of {rule.path} sets {said} and does not compare it: what follows is "
            what += "done for every device that the rest of the rule matches"
            hint = f"write {said.replace('=', '==', 1)}, if it is to be compared"
            yield SAY.warning(what, Evidence(rule.path, said=said), hint=hint)


def assigned(rule: UdevRule) -> str:
    """A property of udev's own that a rule sets before it does something, "" if none."""
    acts = any(key in ACTS and operator not in ("==", "!=") for key, _, operator, _ in rule.parts)
    for key, name, operator, value in rule.parts if acts else ():
        if key == "ENV" and operator in ("=", ":=") and FOUND.fullmatch(name) and value:
            return f'ENV{{{name}}}="{value}"'
    return ""
