# SPDX-License-Identifier: Apache-2.0
"""Who may run commands as root by a rule: sudoers(5), doas.conf(5), polkit(8), pam.d(5)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Findings, warning
from imagebuilder.proof.privileges.types import Opening, Privilege
from imagebuilder.proof.reading.config import read_including
from imagebuilder.proof.reading.texts import whole
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

SUDO = ("/usr/bin/sudo", "/usr/bin/sudo-rs")
INCLUDE = re.compile(r"[@#]include(dir)?\s+(\S+)")
ALIAS = re.compile(r"User_Alias\s+(.+)")
OTHER_ALIAS = re.compile(r"(Runas|Host|Cmnd|Cmd)_Alias\s")
LIFTED = re.compile(r"Defaults([:@>!]\s*(?P<who>\S+)(?!\S))?.*!authenticate")
# USERS HOSTS = (RUNAS) TAGS: COMMANDS; a list goes on over a comma.
RULE = re.compile(
    r"(?P<users>[^\s,=]+(\s*,\s*[^\s,=]+)*)\s+(?=\S)[^=]+=\s*(\((?P<runas>[^)]*)\))?(?P<rest>.*)"
)
TAG = re.compile(r"\b(NO)?(PASSWD|EXEC|SETENV|LOG_INPUT|LOG_OUTPUT|MAIL|FOLLOW|INTERCEPT)\s*:")
DOAS = ("/etc/doas.conf", "/etc/doas.d/*.conf")
PERMIT = re.compile(r"permit\b(?P<options>.*?)\s(?P<who>:?[\w-]+)(\s+(as|cmd)\b.*)?$")
POLKIT = (
    "/etc/polkit-1/rules.d/*.rules",
    "/usr/share/polkit-1/rules.d/*.rules",
    "/usr/local/share/polkit-1/rules.d/*.rules",
)
PAM = ("/etc/pam.d/*", "/usr/lib/pam.d/*")
# Lets anyone in: a sufficient pam_permit(8) or pam_exec(8), or a trusting pam_wheel(8).
LETS_IN = re.compile(
    r"-?auth\s+(sufficient|\[(?=[^\]]*success=(done|\d))[^\]]*\])\s+(\S*/)?"
    r"(pam_permit\.so|pam_exec\.so|pam_wheel\.so.*\btrust\b)"
)
# Lets in whom it is about: modules that look at a name, a list or a place, and at no secret.  A
# number instead of `done` only leaves out the next modules; root needs no secret.
NAMES = re.compile(
    r"-?auth\s+(sufficient|\[(?=[^\]]*success=done)[^\]]*\])\s+(\S*/)?"
    r"pam_(succeed_if|listfile|localuser|access|time|shells)\.so"
    r"(?!.*\b(uid|user) (=|eq|is) (0|root)\b)(?P<whom>.*)"
)


AUTH = re.compile(r"-?auth\s+(?P<control>\[[^]]*\]|\w+)\s+(?P<module>\S+)")
INCLUDES = re.compile(r"@include\s|-?auth\s+(include|substack)\s")
PERMIT_ALL = "pam_permit.so"
# Modules that do not check a password; modules that do.
FREE = frozenset((PERMIT_ALL, "pam_env.so", "pam_cap.so", "pam_group.so", "pam_faildelay.so"))
ASKING = frozenset(("pam_unix.so", "pam_sss.so", "pam_ldap.so", "pam_krb5.so", "pam_winbind.so"))
# Programs from which a shell is one key or one option away (gtfobins).
SHELLS_INSIDE = frozenset(
    ("less", "more", "most", "man", "vi", "vim", "view", "nano", "ed", "emacs", "find", "awk",
     "gawk", "mawk", "perl", "python", "python3", "ruby", "lua", "env", "xargs", "watch", "bash",
     "sh", "dash", "zsh", "su", "gdb", "ftp", "socat", "screen", "tmux")
)  # fmt: skip
MOST_LINE = 4096
# A command with a wildcard in a word behind it; `^...$` is a regular expression.
COMMAND = re.compile(
    r"(?<![^\s,:=!])(?P<program>/[^\s,:=*?]+)[ \t]+(?P<words>[^,^*?\[]*(?<!\\)[*?\[][^,]*)"
)


@dataclass(frozen=True)
class SudoersLine:
    """A line without comments, continuations joined, with its file and first line number."""

    path: str
    number: int
    text: str


def find_rules(root: Root) -> Iterator[Privilege]:
    if any(root.lies(program) for program in SUDO):
        yield from find_sudo(root)
    if root.lies("/usr/bin/doas"):
        for line in lines_of(root, DOAS):
            if match := PERMIT.match(line.text):
                who = match["who"].replace(":", "%")
                minor = "nopass" not in match["options"]
                gains = f"doas lets {who} act as root" + " without a password" * (not minor)
                yield Privilege(Opening.SUDO, who, line.path, gains, minor, line.number)
    for path in root.glob(*POLKIT):
        if "polkit.Result.YES" in root.text(path):
            groups = re.findall(r"isInGroup\(['\"]([\w-]+)", root.text(path))
            users = re.findall(r"subject\.user\s*===?\s*['\"]([\w-]+)", root.text(path))
            who = next(iter((*(f"%{name}" for name in groups), *users)), "")
            gains = f"polkit lets {who or 'users'} act as root without a password"
            yield Privilege(Opening.SUDO, who or path, path, gains, minor=bool(who))
    for path in root.glob(*PAM):
        if opens(root, path):
            gains = f"{path} accepts any password: if all other modules fail, pam_permit.so decides"
            yield Privilege(Opening.NEVER, path, path, gains)
    for line in lines_of(root, PAM):
        if match := LETS_IN.match(line.text):
            gains = f"{match[4].split()[0]} lets anyone in without a password"
            yield Privilege(Opening.NEVER, line.path, line.path, gains, line=line.number)
        elif match := NAMES.match(line.text):
            whom = " ".join(match["whom"].split()) or "whom it names"
            gains = f"pam_{match[3]}.so ({whom}) lets users in without a password"
            yield Privilege(Opening.NEVER, line.path, line.path, gains, line=line.number)


def opens(root: Root, path: str) -> bool:
    """Whether a PAM stack succeeds although every module that checks something refuses.

    False for a stack without such a module, such as that of runuser(1).
    """
    asks, result, skip = False, None, 0
    for line in joined_lines(root, path):
        match = AUTH.match(line.text)
        if match is None:
            if INCLUDES.match(line.text):
                return False
            continue
        if skip:
            skip -= 1
            continue
        control, module = match["control"], match["module"].rpartition("/")[2]
        if module not in FREE:
            asks = asks or module in ASKING
            if control in ("requisite", "required"):
                return False
            found = re.search(r"\bdefault=(\w+)", control)
            if found and found[1] in ("die", "bad"):
                return False
            skip = whole(found[1]) if found and found[1].isdecimal() else 0
            continue
        if module == PERMIT_ALL:
            result = True
            if control == "sufficient":
                break
    return asks and result is True


def find_sudo(root: Root) -> Iterator[Privilege]:
    """The ways in sudoers files, without rules for root."""
    lines = list(read_sudoers(root))
    aliases: dict[str, tuple[str, ...]] = {}
    for line in lines:
        if match := ALIAS.match(line.text):
            for one in match[1].split(":"):
                name, _, members = one.partition("=")
                aliases[name.strip()] = names_in(members)
    for line in lines:
        if match := LIFTED.match(line.text):
            who = (match["who"] or "").strip(":")
            gains = f"sudo does not ask {who} for a password"
            gains = gains if who else "sudo asks nobody for a password"
            yield Privilege(Opening.SUDO, who or "ALL", line.path, gains, line=line.number)
        elif not (OTHER_ALIAS.match(line.text) or ALIAS.match(line.text)):
            yield from allowed(line, aliases)


def allowed(line: SudoersLine, aliases: Mapping[str, tuple[str, ...]]) -> Iterator[Privilege]:
    """The ways to act as root that one rule opens."""
    match = RULE.fullmatch(line.text)
    if match is None or line.text.startswith("Defaults"):
        return
    runas = names_in((match["runas"] or "root").partition(":")[0])
    if match["runas"] and not {"ALL", "root", "#0"} & set(runas):
        return
    free = re.search(r"\bNOPASSWD\s*:", match["rest"]) is not None
    commands = names_in(TAG.sub("", match["rest"]))
    inside = [c for c in commands if c.split()[0].rpartition("/")[2] in SHELLS_INSIDE]
    anything = "ALL" in commands
    for named in names_in(match["users"]):
        for who in aliases.get(named, (named,)):
            if who == "root":
                continue
            what = "any command" if anything else "some commands"
            gains = f"{who} may run {what} as root" + " without a password" * free
            if inside and not anything:
                gains += f": {inside[0].split()[0]} can start a shell or change any file"
            minor = not (free and (anything or inside))
            yield Privilege(Opening.SUDO, who, line.path, gains, minor, line.number)


def names_in(text: str) -> tuple[str, ...]:
    return tuple(name for each in text.split(",") if (name := each.strip()))


def read_sudoers(root: Root) -> Iterator[SudoersLine]:
    """The lines of sudo's file and of those it includes, in order; each file once.

    Like sudo, skips names in a folder that contain a dot or end in a tilde.
    """

    def included(line: SudoersLine) -> list[str] | None:
        match = INCLUDE.match(line.text)
        if match is None:
            return None
        place = match[2].strip('"')
        names = [n for n in root.names(place) if "." not in n and not n.endswith("~")]
        return [f"{place}/{name}" for name in names] if match[1] else [place]

    for line in read_including(
        "/etc/sudoers", lambda path: joined_lines(root, path, comments=True), included
    ):
        if not re.match(r"#(?!\d)", line.text):
            yield SudoersLine(line.path, line.number, re.sub(r"\s#.*$", "", line.text).strip())


def lines_of(root: Root, patterns: tuple[str, ...]) -> Iterator[SudoersLine]:
    """The lines without comments of every file that matches."""
    for path in root.glob(*patterns):
        yield from joined_lines(root, path)


def joined_lines(root: Root, path: str, *, comments: bool = False) -> Iterator[SudoersLine]:
    """The lines of a file, joined at backslashes, with or without comments."""
    kept, first = "", 0
    for number, text in enumerate(root.text(path).splitlines(), 1):
        first = first or number
        if text.endswith("\\"):
            kept += f"{text[:-1]} "
            continue
        whole = (kept + text).strip()
        if whole and (comments or not whole.startswith("#")):
            yield SudoersLine(path, first, whole)
        kept, first = "", 0


def prove_patterns(subject: Subject) -> Findings:
    """Warnings: a word more, such as another file, fits a wildcard as well."""
    if not any(subject.root.lies(program) for program in SUDO):
        return
    for line in read_sudoers(subject.root):
        if line.path in subject.shipped or len(line.text) > MOST_LINE:
            continue
        for found in COMMAND.finditer(line.text):
            words = " ".join(found["words"].split())
            what = f"sudo lets {line.text.split()[0]} give {found['program']} more than {words}: a "
            what += "wildcard in arguments stands for / and for further words too"
            where = Evidence(f"{line.path}:{line.number}", said=f"{found['program']} {words}")
            hint = "list the arguments, or let them run a script that checks them"
            yield warning(what, where, hint=hint)
