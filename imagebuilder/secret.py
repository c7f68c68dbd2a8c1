# SPDX-License-Identifier: Apache-2.0
"""Find secrets in text: known forms, and settings whose name says so.

Images must not contain secrets and reports must not quote them; both use this detector, so hidden()
hides what find_secrets() finds.  A path to a secret, a variable and a word such as `none` are not
secrets.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

HIDDEN = "(hidden)"
# Characters of a line that people are shown; the time to look for secrets grows with its square.
MOST_SHOWN = 2000
# Bits per character: names of words have less, random names have more.
ENTROPY = 3.2
SHORTEST = 8  # characters of a token; a password may be shorter
# The group `secret` is the secret part, if it is not the whole match.  The prefixes of tokens are
# those that their issuers document for scanners.
FORMS = (
    ("private key", r"-----BEGIN (?:[A-Z0-9]+ )*PRIVATE KEY(?: BLOCK)?-----\s*(?:\\n|$)"),
    ("private key of PuTTY", r"^PuTTY-User-Key-File-\d:"),
    ("private key of age", r"\bAGE-SECRET-KEY-1[0-9A-Z]{20,}"),
    ("password in a URL", r"\b[a-z][a-z0-9+.-]*://[^\s/:@'\"]*:(?P<secret>[^\s/@'\"]+)@"),
    ("Hugging Face token", r"\bhf_[A-Za-z0-9]{20,}"),
    ("GitHub token", r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,})"),
    ("GitLab token", r"\bgl(?:pat|rt|cbt|dt)-[\w-]{16,}"),
    ("Slack token", r"\bxox[abeoprs]-[\w-]{10,}"),
    ("AWS access key", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    ("Tailscale key", r"\btskey-[a-z]+-[\w-]{8,}"),
    ("API key", r"\b(?:sk-|rk-|[sr]k_live_|nvapi-|dop_v1_|r8_|gsk_)[A-Za-z0-9_-]{20,}"),
    ("PyPI token", r"\bpypi-[\w-]{16,}"),
    ("npm token", r"\bnpm_[A-Za-z0-9]{30,}"),
    ("Google key", r"\bAIza[\w-]{30,}|\bya29\.[\w-]{20,}"),
    ("Vault token", r"\bhv[bsr]\.[\w-]{20,}"),
    ("Docker token", r"\bdckr_pat_[\w-]{20,}"),
    ("JSON web token", r"\beyJ[\w-]{10,}\.eyJ[\w-]{10,}\.[\w-]{10,}"),
    ("password hash", r"\$(?:[1567y]|2[aby]|gy|argon2\w*|sha1)\$[^\s:'\"$]+\$[^\s:'\"\\$]{8,}"),
    ("bearer token", r"(?i)\b(?:bearer|basic)\s+(?P<secret>(?=\S*\d)[\w.~+/-]{16,}=*)"),
    ("password for curl", r"\bcurl\b.*\s(?:-u|-U|--user|--proxy-user)[\s=]*['\"]?[^\s:'\"$]+:"
     r"(?P<secret>[^\s'\"$]+)"),
    ("password for curl", r"^[^\S\n]*(?:-u\s+|--(?:proxy-)?user[\s=]+|(?:proxy-)?user\s*[=:]\s*)"
     r"['\"]?[^\s:'\"=]+:(?P<secret>[^\s'\"$]{3,})"),
    ("password of ipmitool", r"\bipmi\w+\b.*\s-[pP]\s*['\"]?(?P<secret>[^\s'\"$]+)"),
    ("password of sshpass", r"\bsshpass\s+-p\s*['\"]?(?P<secret>[^\s'\"$]+)"),
    ("password of redis", r"\bredis-cli\b.*\s-a\s+['\"]?(?P<secret>[^\s'\"$]+)"),
    ("password of mysql", r"\b(?:mysql|mariadb)\w*\b.*\s-p['\"]?(?P<secret>[^\s'\"$]+)"),
    ("password of openssl", r"\bpass(?:in|out)?[ =]pass:(?P<secret>[^\s'\"$]+)"),
    ("password of smbclient", r"\b(?:smbclient|rpcclient)\b.*\s-U\s*['\"]?[^\s'\"%]+%"
     r"(?P<secret>[^\s'\"$]+)"),
    ("password of snmp", r"\bsnmp\w+\b.*\s-[AXac]\s+['\"]?(?P<secret>[^\s'\"$]+)"),
    ("password of mosquitto", r"\bmosquitto_\w+\b.*\s-P\s+['\"]?(?P<secret>[^\s'\"$]+)"),
    ("password of LDAP", r"\bldap\w+\b.*\s-w\s+['\"]?(?P<secret>[^\s'\"$]+)"),
    ("webhook URL", r"\bhttps?://[^\s/]+/\S*?(?:hooks?|webhooks?|services)/"
     r"(?P<secret>[\w/-]*(?=[\w-]*\d)[\w-]{16,})"),
    ("pre-shared key", r":\s*(?:PSK|XAUTH|EAP|RSA)\s+(?P<secret>\"[^\"]+\")"),
    ("WireGuard key", r"\b(?:Private|Preshared)Key\s*=\s*(?P<secret>[A-Za-z0-9+/]{42,44}=?)"),
    ("password", r"^[^\S\n]*(?:bindpw|rootpw|requirepass|masterauth|password|secret)\s+"
     r"(?P<secret>\S+)$"),
    ("password of netrc", r"\blogin\s+\S+\s+password\s+(?P<secret>\S+)"),
    ("systemd credential", r"^[^\S\n]*SetCredential=[^:]+:(?P<secret>\S.*)"),
    ("password in XML", r"(?i)<(?:\w*password|\w*secret|\w*token)>(?P<secret>[^<\s]+)</"),
)  # fmt: skip
# Every form and every setting contains one of these; other lines are skipped.
HINT = re.compile(
    r"(?i)pass|pwd|psk|secret|token|key|auth|cred|bearer|basic|login|bindpw|rootpw|curl|user|://|"
    r"\$\w{1,9}\$|hf_|gh[pousr]_|gl[a-z]{1,20}-|xox|akia|asia|\bsk[-_]|\brk[-_]|nvapi|dop_v1|\br8_|gsk_|pypi-|"
    r"npm_|aiza|ya29|hv[bsr]\.|dckr|eyj|xauth|\beap\b|\brsa\b|hook|services/|snmp|ipmi|redis|mysql|mariadb|smbclient|rpcclient|mosquitto|ldap"
)
PATTERNS = tuple((kind, re.compile(pattern)) for kind, pattern in FORMS)
PASSWORD = r"passw(?:or)?d|passphrase|passwort|pwd|psk|sae_password"
TOKEN = (
    r"(?:secret|token|credential)(?![a-rt-z])|api[_-]?key|auth[_-]?key|access[_-]?key|"
    r"private[_-]?key|encryption[_-]?key|client[_-]key[_-]data|signing[_-]?key|shared[_-]?key|"
    r"(?:_|(?<![a-z]))auth(?![a-z])"
)
# NAME=VALUE, NAME: VALUE, "NAME": "VALUE", --NAME VALUE; a value in quotes may have blanks.
SETTING = re.compile(
    rf"(?P<option>--?)?(?P<name>(?<![\w/+])[\w.-]{{0,64}}?(?:(?P<password>{PASSWORD})|{TOKEN})(?P<rest>[\w.-]{{0,64}}))"
    r"['\"]?(?P<assigned>\s*:?=\s*|\s*:\s+|:(?=['\"])|\s+)"
    r"(?:\"(?P<double>[^\"]*)\"|'(?P<single>[^']*)'|(?P<plain>[^\s'\",;#&|<>(){}\[\]]+)(?![\w.(\[]))",
    re.IGNORECASE,
)
# Names with these endings are about a secret, but not a secret.
ABOUT = re.compile(
    r"(?i)(?:^|[_.-]|(?<=[a-z]))(?:file|path|dir|directory|folder|names?|type|ttl|age|days|len|length|"
    r"min|max|policy|prompt|command|cmd|helper|url|uri|endpoint|env|expir\w*|timeout|required|"
    r"authentication|algorithm|algo|store|storage|provider|field|header|attempts?|lifetime|count|"
    r"size|quality|mode|rotation|source|manager|service|user|group|id|format|scope|prefix|suffix|"
    r"realm|backend|method|methods|socket|sock|ref|hash|version|tries|change|login|aging|ko|xz|zst)s?$"
)
# Settings of systemd that refer to a credential.
LOADED = re.compile(r"(?i)(?:load|import|inherit)credential")
WORDS = frozenset(
    (
        "yes", "no", "on", "off", "true", "false", "none", "null", "nil", "ask", "prompt",
        "auto", "optional", "required", "requisite", "sufficient", "include", "enabled",
        "disabled", "default", "unset", "undefined", "empty", "str", "string", "bytes",
        "text", "int", "bool", "object", "password", "passwd", "token", "secret", "key",
        "file", "files", "keyring", "read", "write", "any", "all", "never", "always",
        "must", "should", "is", "are", "was", "will", "and", "or", "for", "the", "a", "an",
        "of", "to", "in", "from", "if", "then", "else", "not", "with", "without", "be",
        "been", "has", "login", "plain", "pass", "basic", "digest", "bearer", "md5", "sha256",
        "sha512", "yescrypt", "systemd", "sss", "ldap", "compat", "prohibit-password",
        "without-password", "forced-commands-only",
    )
)  # fmt: skip
# A path, a variable, a template, a credential of systemd, a reference to a secret store.
REFERENCE = re.compile(
    r"[`/~.$%{<@*!+-]|\\|[A-Za-z]:[\\/]|(?i:file|env|vault|keyring|pkcs11|secret|awskms|sops|op|ref|"
    r"https?|unix|tpm2?|cred|pass)[:/]|x+$|\.+$|\*+$|\(hidden\)"
)
COMMENT = re.compile(r"\s*(#|;|//\s|\*|--\s|<!--)")


@dataclass(frozen=True)
class FoundSecret:
    """A secret in a text: its kind, and its start and end."""

    kind: str
    start: int
    end: int


def find_lines(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a text that may contain a secret, with their numbers."""
    number, start = 1, 0
    for match in HINT.finditer(text):
        if match.start() < start:
            continue
        number += text.count("\n", start, match.start())
        first = text.rfind("\n", 0, match.start()) + 1
        end = text.find("\n", match.start())
        end = len(text) if end < 0 else end
        yield number, text[first:end]
        start = end


def find_secrets(line: str, *, code: bool = False) -> Iterator[FoundSecret]:
    """The possible secrets in a line.  A setting in a comment is an example.

    With `code` the line is of a program, where only text in quotes is a value.
    """
    known = list(find_forms(line))
    yield from known
    if not COMMENT.match(line):
        for found in find_settings(line, code=code):
            if not any(found.start < one.end and one.start < found.end for one in known):
                yield found


def find_forms(line: str) -> Iterator[FoundSecret]:
    """Secrets with a known form."""
    for kind, pattern in PATTERNS:
        group = "secret" if "secret" in pattern.groupindex else 0
        for match in pattern.finditer(line):
            if not group or may_be(match[group], password=True):
                yield FoundSecret(kind, match.start(group), match.end(group))


def find_settings(line: str, *, code: bool) -> Iterator[FoundSecret]:
    """The values of settings with the name of a secret."""
    place = 0
    while match := SETTING.search(line, place):
        group = next(name for name in ("double", "single", "plain") if match[name] is not None)
        place = max(match.end("name"), match.start() + 1)
        spaced = not match["assigned"].strip()
        if ABOUT.search(match["name"]) or LOADED.match(match["name"]):
            continue
        # After a blank comes the value of an option, or more prose.
        if spaced and not (match["option"] and any(not c.isalpha() for c in match[group])):
            continue
        if group == "plain" and (code or goes_on(match, line)):
            continue
        if may_be(match[group], password=bool(match["password"])):
            kind = "password" if match["password"] else "token or key"
            yield FoundSecret(kind, match.start(group), match.end(group))
            place = match.end()


def goes_on(match: re.Match[str], line: str) -> bool:
    """Whether a colon is followed by prose: `the password: it is not here`."""
    more = line[match.end() :].lstrip()
    return ":" in match["assigned"] and match["plain"].isalpha() and more[:1].isalpha()


def may_be(value: str, *, password: bool) -> bool:
    """Whether a value may be a secret; a password may be any word except those of settings."""
    if not value or REFERENCE.match(value) or value.lower() in WORDS:
        return False
    if password:
        return not (value.isdecimal() and len(value) < 4)
    mixed = any(c.isdigit() for c in value) and any(c.isalpha() for c in value)
    return len(value) >= SHORTEST and (mixed or entropy(value) >= ENTROPY) and " " not in value


def entropy(text: str) -> float:
    """Bits per character (Shannon)."""
    many = len(text)
    return -sum(n / many * math.log2(n / many) for n in Counter(text).values())


def hidden(text: str) -> str:
    """The text with every secret replaced by `(hidden)`, and long lines cut."""
    return "\n".join(map(hidden_line, text.split("\n")))


def hidden_line(line: str) -> str:
    if len(line) > MOST_SHOWN:
        line = f"{line[:MOST_SHOWN]}…"
    if not HINT.search(line):
        return line
    for found in sorted(find_secrets(line), key=lambda one: -one.start):
        if HIDDEN not in line[found.start : found.end]:
            line = line[: found.start] + HIDDEN + line[found.end :]
    return line
