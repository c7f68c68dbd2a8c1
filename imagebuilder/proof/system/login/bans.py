# SPDX-License-Identifier: Apache-2.0
"""Filters of fail2ban for the name that sshd's sessions had: since OpenSSH 9.8 they are processes
of another program, sshd-session (release notes; fail2ban/fail2ban #3782).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.reading.config import assignments, is_true
from imagebuilder.proof.reading.site import services_of, site_files
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system import SAY
from imagebuilder.root import Root

SESSIONS = "sshd-session"
PLACES = ("/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh", "/usr/libexec")
FILTERS, JAILS = "/etc/fail2ban/filter.d", ("/etc/fail2ban/jail", "/etc/fail2ban/jail.d/*")
SUFFIXES = (".conf", ".local")
# Fields of the journal with the name of a program (systemd.journal-fields(7)).
NAMES = ("_COMM", "_EXE", "SYSLOG_IDENTIFIER")
# What a session says; the listener itself only tells of MaxStartups, penalties and its start.
SAID = re.compile(r"nvalid|Failed|authent|preauth|closed|reset|isconnect|negotiate|not allowed")


def prove_bans(subject: Subject) -> Iterator[Finding]:
    """Warnings of filters that match no session, of jails that are enabled."""
    root = subject.root
    has_sessions = any(root.is_file(f"{place}/{SESSIONS}") for place in PLACES)
    if not has_sessions or not any(services_of(subject, "fail2ban-server")):
        return
    used = set(used_filters(root))
    for path in (p for end in SUFFIXES for p in site_files(subject, f"{FILTERS}/*{end}")):
        text = root.text(path)
        name = posixpath.splitext(posixpath.basename(path))[0]
        if name in used and SAID.search(text) and (line := blind_line(text)):
            what = f"fail2ban bans nobody by {path}: `{line}` is the listener's name, and this "
            what += f"OpenSSH logs its sessions as {SESSIONS}"
            hint = f"match {SESSIONS} too (_COMM=sshd + _COMM={SESSIONS}), or the unit "
            hint += "(_SYSTEMD_UNIT=ssh.service), and allow for both names in its expressions"
            yield SAY.warning(what, Evidence(path, said=line), hint=hint)


def used_filters(root: Root) -> Iterator[str]:
    """The names of the filters of all enabled jails (jail.conf(5))."""
    found: dict[str, dict[str, str]] = {}
    for place in JAILS:
        for end in SUFFIXES:
            for path in root.glob(f"{place}{end}"):
                for section, key, value in assignments(root.text(path)):
                    found.setdefault(section, {})[key] = value
    for section, settings in found.items():
        if is_true(settings.get("enabled", found.get("DEFAULT", {}).get("enabled", ""))):
            name = settings.get("filter", section).partition("[")[0].strip()
            yield name.replace("%(__name__)s", section)


def blind_line(text: str) -> str:
    """The setting by which a filter passes over sessions, "" if it has none."""
    matches = values_of(text, "journalmatch")
    if matches and all(map(is_blind, matches)):
        return f"journalmatch = {matches[0]}"
    daemon = values_of(text, "_daemon")
    by_prefix = "%(__prefix_line)s" in text and not matches
    return "_daemon = sshd" if by_prefix and daemon == ["sshd"] else ""


def values_of(text: str, name: str) -> list[str]:
    """The lines of the last value of a setting; the following lines of one begin with blanks."""
    found: list[str] = []
    is_inside = False
    for line in text.splitlines():
        key, has_value, value = line.partition("=")
        if line[:1] in (" ", "\t"):
            found += [line.strip()] if is_inside and line.strip() else []
        else:
            is_inside = bool(has_value) and key.strip() == name
            found = [value.strip()] if is_inside else found
    return [value for value in found if value]


def is_blind(match: str) -> bool:
    """Whether no session fits a match of journalctl(1): `+` is or, and so is a repeated field."""
    groups: list[dict[str, set[str]]] = [{}]
    for word in match.split():
        if word == "+":
            groups.append({})
            continue
        field, _, value = word.partition("=")
        groups[-1].setdefault(field, set()).add(posixpath.basename(value))
    return all(any(group.get(name) == {"sshd"} for name in NAMES) for group in groups)
