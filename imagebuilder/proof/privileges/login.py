# SPDX-License-Identifier: Apache-2.0
"""Who may log in over ssh, and how: sshd's own settings for each account."""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from imagebuilder.proof.privileges.accounts import find_logins
from imagebuilder.proof.privileges.searched import who_adds
from imagebuilder.proof.privileges.types import Opening, Privilege
from imagebuilder.proof.subject import RunInImage
from imagebuilder.root import Root

SSHD = "/usr/sbin/sshd"
CONFIG, FOLDER = "/etc/ssh/sshd_config", "/etc/ssh/sshd_config.d"
ADDRESS = re.compile(
    r"^[ \t]*Match\b.*\bAddress\s+!?([0-9A-Fa-f.:]+)", re.MULTILINE | re.IGNORECASE
)
# Reserved for documentation (RFC 5737), so no rule matches it.
SOMEWHERE = "203.0.113.1"
# With a temporary key, because sshd needs a host key and an image has none.
EFFECTIVE = """\
mkdir -p /run/sshd
ssh-keygen -q -t ed25519 -N '' -f /tmp/host-key >/dev/null </dev/null
for from in $1; do
  for user in $2; do
    echo "account $user"
    /usr/sbin/sshd -T -h /tmp/host-key -C "user=$user,host=host,addr=$from,laddr=$from,lport=22"
  done
done
"""
TRUST = ("/etc/hosts.equiv", "/etc/ssh/shosts.equiv")
REPORTED = "passwordauthentication"  # among all settings
# Printed on one line for each name.
LISTS = ("allowusers", "allowgroups", "denyusers", "denygroups")
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


def find_ways_in(
    root: Root, run: RunInImage, entries: Mapping[str, os.stat_result]
) -> Iterator[Privilege]:
    """Keys, passwords and trusted hosts; `entries` are all paths as they are after the boot."""
    homes = find_logins(root)
    if root.lies(SSHD):
        seen: dict[str, list[str]] = {}
        for settings in sshd_settings(root, run, sorted(homes)):
            if REPORTED not in settings.values:
                who = settings.account
                gains = f"sshd does not report its settings for {who}: who may log in is unknown"
                gains += f" ({settings.error})" if settings.error else ""
                yield Privilege(Opening.NEVER, who, CONFIG, gains)
                continue
            yield from with_passwords(root, settings)
            for path in key_files(root, settings, homes[settings.account]):
                seen.setdefault(path, []).append(settings.account)
            yield from find_open_keys(root, settings, homes[settings.account], entries)
        for path, accounts in seen.items():
            who = ", ".join(dict.fromkeys(accounts))
            yield Privilege(Opening.KEYS, path, path, f"keys in {path} may log in as {who}")
    for path in (
        *TRUST,
        *(f"{home}/{name}" for home in homes.values() for name in (".rhosts", ".shosts")),
    ):
        if root.text(path).strip():
            yield Privilege(Opening.KEYS, path, path, f"{path} trusts users of other hosts")


def sshd_settings(root: Root, run: RunInImage, accounts: list[str]) -> list[SshdSettings]:
    """The effective settings of each account, from anywhere and from each address with a rule."""
    texts = [root.text(path) for path in (CONFIG, *root.glob(f"{FOLDER}/*.conf"))]
    addresses = dict.fromkeys((SOMEWHERE, *(a for text in texts for a in ADDRESS.findall(text))))
    done = run(["sh", "-c", EFFECTIVE, "sh", " ".join(addresses), " ".join(accounts)])
    found: list[SshdSettings] = []
    for block in done.stdout.split("account ")[1:]:
        account, *lines = block.splitlines()
        values: dict[str, str] = {}
        for key, _, value in (line.partition(" ") for line in lines):
            # OpenSSH 10 prints the keywords as its manual writes them, older ones in lower case.
            name = key.lower()
            before = f"{values[name]} " if name in LISTS and name in values else ""
            values[name] = f"{before}{value}"
        said = done.stderr.strip().splitlines()
        error = said[-1].strip() if said and REPORTED not in values else ""
        found.append(SshdSettings(account, values, error))
    return found


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
    """Ways of others to put keys where sshd looks for those of an account, and does not check whose
    they are (sshd_config(5), StrictModes).
    """
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
