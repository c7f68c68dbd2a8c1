# SPDX-License-Identifier: Apache-2.0
"""Characters and operators in a site's files that look right, and mean something else."""

from __future__ import annotations

import re

from imagebuilder.image.proof import Evidence, Findings, warning
from imagebuilder.proof.reading.udev import UdevRule, read_rules
from imagebuilder.proof.subject import Subject

MOST = 256 << 10  # bytes of a file that people write
# For people, or of formats that allow these characters and ends of lines.
ELSEWHERE = re.compile(
    r".*/(motd|issue)\b.*|.*/(update-motd\.d|ssl|ca-certificates)/.*"
    r"|.*(?i:banner|readme|licen[cs]e|notice|welcome)[^/]*"
    r"|.*\.(md|txt|html?|xml|json|ya?ml|toml|pem|crt|cer|key|css|js|rst|csv|po|desktop)"
)
# A dash that begins a word, quotation marks before a value or a word, and blanks that are none.
FOREIGN = re.compile(
    "(?:(?<=\\s)|(?<=[\"'=]))[\u2010-\u2015\u2212]{1,2}[A-Za-z]|(?:(?<=\\s)|(?<==))[\u2018-\u201f]"
    "|[\u00a0\u200b\u2060\ufeff]"
)
NAMES = {
    "\u00a0": "a no-break space",
    "\u200b": "a space without width",
    "\ufeff": "a byte order mark",
}
REMARKS = ("#", ";", "//", "!", '"')
ENDS = re.compile(r"\r\n")
# What udev itself finds out about a device, so that rules only read it.
FOUND = re.compile(
    r"ID_(PART_\w+|FS_\w+|VENDOR\w*|MODEL\w*|SERIAL\w*|PATH\w*|BUS|TYPE|REVISION|USB_\w+|WWN\w*)"
    r"|DEVTYPE|DEVNAME|DEVPATH|SUBSYSTEM|ACTION|MAJOR|MINOR|PCI_\w+|DRIVER"
)
ACTS = frozenset(("RUN", "OWNER", "GROUP", "MODE", "SYMLINK", "NAME", "TAG"))


def prove_characters(subject: Subject) -> Findings:
    for path in subject.root.walk("/etc"):
        if path in subject.shipped or ELSEWHERE.fullmatch(path):
            continue
        data = subject.root.map(path) or b""
        if len(data) > MOST or data.find(b"\0") >= 0:
            continue
        try:
            text = bytes(data).decode()
        except UnicodeDecodeError:
            continue
        yield from prove_text(path, text)


def prove_text(path: str, text: str) -> Findings:
    for number, line in enumerate(text.splitlines(), 1):
        is_remark = line.lstrip().startswith(REMARKS)
        found = None if is_remark else FOREIGN.search(f" {line.partition('#')[0]}")
        if found:
            mark = found[0].strip()[:1] or found[0][:1]
            name = NAMES.get(mark, f'"{mark}"')
            what = f"{path} has {name} (U+{ord(mark):04X}) in line {number}, as web pages and word "
            what += "processors put it: programs do not take it for the plain character"
            hint = "write the plain character: -, \", ' or a space"
            yield warning(what, Evidence(path, said=f"line {number}"), hint=hint)
            return
    if ENDS.search(text) and not text.startswith("#!"):
        what = f"the lines of {path} end in CR LF, as on Windows: programs take the CR for the "
        what += "last character of a name or a value"
        yield warning(what, Evidence(path), hint=f"run sed -i 's/\\r$//' {path}")


def prove_udev_rules(subject: Subject) -> Findings:
    """Warnings of rules that then apply to every device."""
    for rule in read_rules(subject):
        said = assigned(rule) if rule.path not in subject.shipped else ""
        if said:
            what = f"a rule of {rule.path} sets {said} and does not compare it: what follows is "
            what += "done for every device that the rest of the rule matches"
            hint = f"write {said.replace('=', '==', 1)}, if it is to be compared"
            yield warning(what, Evidence(rule.path, said=said), hint=hint)


def assigned(rule: UdevRule) -> str:
    """A property of udev's own that a rule sets before it does something, "" if none."""
    acts = any(key in ACTS and operator not in ("==", "!=") for key, _, operator, _ in rule.parts)
    for key, name, operator, value in rule.parts if acts else ():
        if key == "ENV" and operator in ("=", ":=") and FOUND.fullmatch(name) and value:
            return f'ENV{{{name}}}="{value}"'
    return ""
