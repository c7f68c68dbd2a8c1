# SPDX-License-Identifier: Apache-2.0
"""Settings of sshd that have no effect, and the programs that it starts for those who log in; and
filters of fail2ban for the name that its sessions had.

Since OpenSSH 9.8 sessions are processes of another program, sshd-session (release notes;
fail2ban/fail2ban #3782).
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.image.proof import Evidence, Findings, warning
from imagebuilder.proof.privileges.login import CONFIG, FOLDER, SshdSettings
from imagebuilder.proof.reading.config import assignments, is_true, read_including
from imagebuilder.proof.reading.scripts import services_of, site_files
from imagebuilder.proof.reading.texts import whole
from imagebuilder.proof.services.start import is_there
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

LINE = re.compile(r"[ \t]*(?P<key>[A-Za-z]\w*)(?:[ \t]*=[ \t]*|[ \t]+)(?P<value>[^#\n]*)")
# Files of the node replace the values of this one: it is made to be read last.
DEFAULTS = f"{FOLDER}/50-imagebuilder.conf"
# Values from what allows most to what allows least.
NO, YES = ("yes", "no"), ("no", "yes")
ORDERED = {
    "permitrootlogin": ("yes", "prohibit-password", "forced-commands-only", "no"),
    "gatewayports": ("yes", "clientspecified", "no"),
    **dict.fromkeys(
        ("passwordauthentication", "kbdinteractiveauthentication", "permitemptypasswords",
         "x11forwarding", "allowtcpforwarding", "allowagentforwarding", "permituserrc",
         "allowstreamlocalforwarding", "permittunnel", "permituserenvironment",
         "hostbasedauthentication"), NO,
    ),
    **dict.fromkeys(("strictmodes", "ignorerhosts", "disableforwarding"), YES),
}  # fmt: skip
SAME = {
    "without-password": "prohibit-password",
    "challengeresponseauthentication": "kbdinteractiveauthentication",
}
# The lower, the stricter; and lists, of which every other one has another purpose.
NUMBERS = frozenset(("maxauthtries", "maxsessions"))
LISTS = frozenset(
    ("ciphers", "macs", "kexalgorithms", "hostkeyalgorithms", "pubkeyacceptedalgorithms",
     "authenticationmethods")
)  # fmt: skip
# Keywords that name a program, and what fails without it.
PROGRAMS = {
    "subsystem": "sftp, scp and all that copies files over ssh fail",
    "authorizedkeyscommand": "the keys that it would print let nobody in",
    "authorizedprincipalscommand": "the names that it would print let nobody in",
    "forcecommand": "whoever logs in can run nothing",
}
SESSIONS = "sshd-session"
PLACES = ("/usr/lib/openssh", "/usr/libexec/openssh", "/usr/lib/ssh", "/usr/libexec")
FILTERS, JAILS = "/etc/fail2ban/filter.d", ("/etc/fail2ban/jail", "/etc/fail2ban/jail.d/*")
SUFFIXES = (".conf", ".local")
# Fields of the journal with the name of a program (systemd.journal-fields(7)).
NAMES = ("_COMM", "_EXE", "SYSLOG_IDENTIFIER")
# What a session says; the listener itself only tells of MaxStartups, penalties and its start.
SAID = re.compile(r"nvalid|Failed|authent|preauth|closed|reset|isconnect|negotiate|not allowed")


@dataclass(frozen=True)
class SshdLine:
    """A setting for everybody, as it is written, and where."""

    key: str
    written: str
    value: str
    path: str
    number: int


def prove_sshd_order(subject: Subject) -> Findings:
    """Warnings of stricter values that come second: sshd takes the first (sshd_config(5))."""
    first: dict[str, SshdLine] = {}
    for line in read_lines(subject):
        before = first.setdefault(line.key, line)
        if not is_stricter(line.key, line.value, before.value) or is_default(subject, line):
            continue
        what = f"{line.written} of {line.path} has no effect: sshd takes the first value that it "
        what += f"reads, which is {before.written} of {before.path}"
        name = posixpath.basename(before.path)
        hint = f"change it in {name}, or let the file sort before {name}"
        where = (Evidence(f"{one.path}:{one.number}", said=one.written) for one in (line, before))
        yield warning(what, *where, hint=hint)


def read_lines(subject: Subject) -> Iterator[SshdLine]:
    """The lines outside of Match blocks in sshd's order; a block ends with its file."""
    root = subject.root

    def lines_of(path: str) -> Iterator[SshdLine]:
        for number, text in enumerate(root.text(path).splitlines(), 1):
            if found := LINE.match(text):
                key, value = found["key"].lower(), found["value"].strip().strip('"')
                if key == "match":
                    return
                written = " ".join(found[0].split())
                yield SshdLine(
                    SAME.get(key, key), written, SAME.get(value.lower(), value), path, number
                )

    def included(line: SshdLine) -> list[str] | None:
        if line.key != "include":
            return None
        return root.glob(*(posixpath.join("/etc/ssh", word) for word in line.value.split()))

    yield from read_including(CONFIG, lines_of, included)


def is_stricter(key: str, value: str, than: str) -> bool:
    if key in ORDERED:
        order = ORDERED[key]
        ranks = [order.index(each.lower()) if each.lower() in order else -1
                 for each in (than, value)]  # fmt: skip
        return -1 < ranks[0] < ranks[1]
    if key in NUMBERS:
        return 0 <= whole(value) < whole(than)
    return key in LISTS and value != than


def is_default(subject: Subject, line: SshdLine) -> bool:
    """Whether a package or the base overlay wrote the line, not a site."""
    shipped, host = subject.shipped.get(line.path), subject.root.host(line.path)
    checksum = shipped.checksum if shipped else None
    is_intact = bool(checksum and host and checksum.is_of(Path(host)))
    # Packages set this one at the end of the main file, after what it includes.
    is_usual = line.path == CONFIG and line.key == "kbdinteractiveauthentication"
    return line.path == DEFAULTS or is_intact or is_usual


def prove_sshd_programs(subject: Subject, answers: Iterable[SshdSettings]) -> Findings:
    seen: set[str] = set()
    for settings in answers:
        for name, value in settings.values.items():
            key, _, which = name.partition(" ")
            words = value.split()
            program = (words[1:] if which else words)[:1]
            path = program[0].strip('"') if program else ""
            if key not in PROGRAMS or not path.startswith("/") or path in seen:
                continue
            seen.add(path)
            if not is_there(subject, path):
                does = PROGRAMS[key] if which in ("", "sftp") else f"{which} fails"
                what = f"sshd cannot start {path}, which is not in the image: {does}"
                place = next((line for line in read_lines(subject) if path in line.value), None)
                where = Evidence(place.path, said=place.written) if place else Evidence(CONFIG)
                hint = "name the path of this distribution"
                hint += ", or internal-sftp" if which == "sftp" else ""
                yield warning(what, where, hint=hint)


def prove_bans(subject: Subject) -> Findings:
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
            yield warning(what, Evidence(path, said=line), hint=hint)


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
