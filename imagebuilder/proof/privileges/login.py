# SPDX-License-Identifier: Apache-2.0
"""Who may log in over ssh, and how: sshd's own settings for each account."""

from __future__ import annotations

import os
import posixpath
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import chain, islice, product

from imagebuilder.proof.privileges.searched import who_adds
from imagebuilder.proof.privileges.types import Opening, Privilege
from imagebuilder.proof.say import some, why_unanswered
from imagebuilder.proof.subject import RunInImage, Subject, once
from imagebuilder.root import Root

SSHD = "/usr/sbin/sshd"
CONFIG, FOLDER = "/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d"
ADDRESS = re.compile(
    r"^[ \t]*Match\b.*\bAddress\s+!?([0-9A-Fa-f.:]+)", re.MULTILINE | re.IGNORECASE
)
# Reserved for documentation (RFC 5737), so no rule matches it.
SOMEWHERE = "203.0.113.1"
# With a temporary key, because sshd needs a host key and an image has none.  For each word of a
# line, sshd allocates as much as the rest of the line: a line of 200 kB would take 3.6 GB.
EFFECTIVE = """\
mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f /tmp/host-key >/dev/null </dev/null
ulimit -v 524288
while [ $# -gt 1 ]; do
  printf 'account %s\\n' "$2"
  /usr/sbin/sshd -T -h /tmp/host-key -C "user=$2,host=host,addr=$1,laddr=$1,lport=22"
  shift 2
done
"""
# Combinations of an account and an address; sshd takes some milliseconds for each, and reads its
# whole configuration again, of which it may read so many characters.
MOST_ASKED, ASKED_AT_ONCE = 1000, 100
MOST_PARSED = 64 << 20
TRUST = ("/etc/hosts.equiv", "/etc/ssh/shosts.equiv")
REPORTED = "passwordauthentication"  # among all settings
# Printed on one line for each name.
SUBSYSTEM = "subsystem"  # likewise, with its name before its command
LISTS = ("allowusers", "allowgroups", "denyusers", "denygroups")
BLOCK = re.compile(r"^account ", re.MULTILINE)
KEY = re.compile(r"^[^#\n]*\b(ssh-|ecdsa-|sk-)[\w.@-]{1,64}[ \t]+AAAA", re.MULTILINE)


@dataclass(frozen=True)
class SshdSettings:
    """The settings of sshd for an account, by keyword in lower case.

    `error` is why sshd reports none, "" otherwise.
    """

    account: str
    values: Mapping[str, str]
    error: str = ""

    def is_yes(self, key: str) -> bool:
        return self.values.get(key) == "yes"


def find_ways_in(subject: Subject, entries: Mapping[str, os.stat_result]) -> Iterator[Privilege]:
    """Keys, passwords and trusted hosts; `entries` are all paths as they are after the boot."""
    root, homes = subject.root, subject.accounts.logins
    if root.lies(SSHD):
        seen: dict[str, list[str]] = {}
        unknown: dict[str, list[str]] = {}
        for settings in sshd_settings(subject):
            if REPORTED not in settings.values:
                unknown.setdefault(settings.error, []).append(settings.account)
                continue
            yield from with_passwords(root, settings)
            for path in key_files(root, settings, homes[settings.account]):
                seen.setdefault(path, []).append(settings.account)
            yield from find_open_keys(root, settings, homes[settings.account], entries)
        for error, accounts in unknown.items():
            who = some(dict.fromkeys(accounts))
            gains = f"sshd does not report its settings for {who}: who may log in is unknown"
            gains += f" ({error})" if error else ""
            yield Privilege(Opening.NEVER, who, CONFIG, gains)
        for path, accounts in seen.items():
            who = ", ".join(dict.fromkeys(accounts))
            yield Privilege(Opening.KEYS, path, path, f"keys in {path} may log in as {who}")
    for path in (
        *TRUST,
        *(f"{home}/{name}" for home in homes.values() for name in (".rhosts", ".shosts")),
    ):
        if root.text(path).strip():
            yield Privilege(Opening.KEYS, path, path, f"{path} trusts users of other hosts")


@once
def sshd_settings(subject: Subject) -> tuple[SshdSettings, ...]:
    """The settings of each account with a shell, from anywhere and each address with a rule.

    Those that sshd was not asked for, or did not answer for, have an `error`.
    """
    root, accounts = subject.root, sorted(subject.accounts.logins)
    texts = [root.text(path) for path in (CONFIG, *root.glob(f"{FOLDER}/*.conf"))]
    addresses = dict.fromkeys((SOMEWHERE, *(a for text in texts for a in ADDRESS.findall(text))))
    most = min(MOST_ASKED, MOST_PARSED // max(1, sum(map(len, texts))))
    every = product(addresses, accounts)
    pairs = list(islice(every, most))
    found: dict[tuple[object, ...], SshdSettings] = {}
    for start in range(0, len(pairs), ASKED_AT_ONCE):
        for one in ask_sshd(subject.run, pairs[start : start + ASKED_AT_ONCE]):
            found[one.account, one.error, frozenset(one.values.items())] = one
    # As many as there are accounts: each is among them if it was not asked from everywhere.
    rest = dict.fromkeys(account for _, account in islice(every, len(accounts)))
    why = f"only {most} combinations of an account with an address of a rule were examined"
    return (*found.values(), *(SshdSettings(account, {}, why) for account in rest))


def ask_sshd(run: RunInImage, pairs: list[tuple[str, str]]) -> Iterator[SshdSettings]:
    """The settings for some pairs of an address and an account, which must fit into one command."""
    done = run(["sh", "-c", EFFECTIVE, "sh", *chain.from_iterable(pairs)])
    said = done.stderr.strip().splitlines()
    why = why_unanswered(done) or (said[-1].strip() if said else "")
    lacking = Counter(account for _, account in pairs)
    for block in BLOCK.split(done.stdout)[1:]:
        account, *lines = block.splitlines()
        values: dict[str, str] = {}
        for key, _, value in (line.partition(" ") for line in lines):
            # OpenSSH 10 prints the keywords as its manual writes them, older ones in lower case.
            name = key.lower()
            if name == SUBSYSTEM:
                name = f"{name} {value.partition(' ')[0]}"
            before = f"{values[name]} " if name in LISTS and name in values else ""
            values[name] = f"{before}{value}"
        if lacking[account]:
            lacking[account] -= 1
            yield SshdSettings(account, values, "" if REPORTED in values else why)
    for account in +lacking:
        yield SshdSettings(account, {}, why)


def with_passwords(root: Root, settings: SshdSettings) -> Iterator[Privilege]:
    name = settings.account
    if name == "root" and not settings.is_yes("permitrootlogin"):
        return
    for key in ("passwordauthentication", "kbdinteractiveauthentication"):
        if settings.is_yes(key):
            path, line = said_in(root, key)
            gains = f"{name} may log in over ssh with a password"
            yield Privilege(Opening.PASSWORDS, name, path, gains, line=line)
            break
    if settings.is_yes("permitemptypasswords"):
        path, line = said_in(root, "permitemptypasswords")
        gains = f"{name} may log in over ssh with an empty password"
        yield Privilege(Opening.NEVER, name, path, gains, line=line)


def said_in(root: Root, key: str, value: str = "yes") -> tuple[str, int]:
    """The file and line that set a key to a value; sshd's main file if none does."""
    pattern = re.compile(rf"\s*{key}[\s=]+{value}\b", re.IGNORECASE)
    for path in (*root.glob(f"{FOLDER}/*.conf"), CONFIG):
        for number, line in enumerate(root.text(path).splitlines(), 1):
            if pattern.match(line):
                return path, number
    return CONFIG, 0


def find_open_keys(
    root: Root, settings: SshdSettings, home: str, entries: Mapping[str, os.stat_result]
) -> Iterator[Privilege]:
    """Ways of others to put keys where sshd does not check whose they are (StrictModes)."""
    if settings.values.get("strictmodes") != "no":
        return
    for place in key_places(settings, home):
        folder = posixpath.dirname(place)
        info = entries.get(place)
        who = "everybody" if info and info.st_mode & 0o002 else who_adds(folder, entries)
        # The account itself is nobody else.
        if who and not (folder.startswith(f"{home}/") and "owner" in who):
            path, line = said_in(root, "authorizedkeysfile", "")
            gains = f"{who} may put keys for {settings.account} into {folder}, and sshd accepts "
            yield Privilege(Opening.NEVER, place, path, gains + "them (StrictModes no)", line=line)


def key_places(settings: SshdSettings, home: str) -> Iterator[str]:
    """Where sshd looks for the keys of an account."""
    for pattern in settings.values.get("authorizedkeysfile", "").split():
        path = pattern.replace("%h", home).replace("%u", settings.account).replace("%%", "%")
        yield path if path.startswith("/") else f"{home}/{path}"


def key_files(root: Root, settings: SshdSettings, home: str) -> Iterator[str]:
    """The files in the root whose keys may log in to an account."""
    for key in ("authorizedkeyscommand", "trustedusercakeys"):
        value = settings.values.get(key, "none")
        if value != "none":
            yield value.split()[0]
    yield from (place for place in key_places(settings, home) if KEY.search(root.text(place)))
