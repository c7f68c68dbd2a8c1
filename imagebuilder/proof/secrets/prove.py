# SPDX-License-Identifier: Apache-2.0
"""Find secrets in an image: everybody who can boot it can read them.

Some can only be recognised by path, because they are binary or arbitrary words.  The paths are from
systemd's "Safely Building Images", virt-sysprep's operations, and what the tools on GPU nodes leave
behind.  imagebuilder.secret recognises secrets in text at any path.
"""

from __future__ import annotations

import fnmatch
import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.families.registry import families
from imagebuilder.files import read_plain
from imagebuilder.image.proof import Evidence, Findings, fact, fault
from imagebuilder.proof.reading.provenance import Provenance, TraceKind
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.types import AllowedSecret
from imagebuilder.secret import find_lines, find_secrets, may_be

MOST_BYTES = 1_000_000  # a secret is small; larger files are not read
MOST_LINE = 10_000  # characters of a line that are checked: a setting is not longer
MOST_PLACES = 5
# Libraries contain well-known keys for their own tests.
PUBLIC = re.compile(r"/(site|dist)-packages/|/python[\d.]+/test/|/share/doc/|/node_modules/")
# Files of depmod(8) and of the kernel's build: names of modules, symbols and options.
INDEX = re.compile(
    r"/usr/lib/modules/[^/]+/(modules\..*|config|System\.map)|/boot/(config|System\.map)-.*"
)
# Names of files that contain nothing but a secret.
BY_NAME = re.compile(
    r".*/[^/]*(?i:token|secret|passw(or)?d|psk|api[_-]?key|auth[_-]?key|credential)[^/]*"
)
PUBLIC_PART = re.compile(r".*\.(pub|crt|cer|pem|md|rst|html|py|sh|service|socket|conf|so)$")
# Programs in languages where, unlike in a shell, a bare word is not a value.
CODE = re.compile(r"\.(py|pyi|pl|pm|rb|js|mjs|ts|go|rs|c|h|cc|cpp|hpp|java|lua|php|R|jl)$")
CODE_BEGIN = re.compile(r"#!.*\b(python|perl|ruby|node|lua|php)")
LOGIN_PATHS = ("/etc/passwd", "/etc/passwd-", "/etc/pam.d/")
HOME = r"(/root|/home/[^/]+|/etc/skel|/srv/[^/]+|/opt/[^/]+|/var/lib/[^/]+)"
AS_NODE_FILE = "provide it to the node as one of its own files"
REMOVE = "remove it in the script or package that makes it"
WITH_KEYS = "log in with keys; provide a node's own password as one of its own files"


@dataclass(frozen=True)
class SecretAt:
    """A secret of a kind; `line` is in `path`, 0 for the whole file."""

    kind: str
    path: str
    line: int = 0
    todo: str = AS_NODE_FILE

    @property
    def where(self) -> str:
        return f"{self.path}:{self.line}" if self.line else self.path


def prove_secrets(subject: Subject) -> Findings:
    """A fault for each kind, a fact for each allowed secret; never quotes a value."""
    provenance = subject.provenance or Provenance({})
    faults: dict[tuple[str, str], list[SecretAt]] = {}
    intended: dict[AllowedSecret, list[SecretAt]] = {}
    listed = subject.image.allow_secret or ()
    for found in (*find_in_root(subject, provenance), *find_in_words(subject.cmdline)):
        matching = (each for each in listed if fnmatch.fnmatchcase(found.path, each.path))
        if allowed := next(matching, None):
            intended.setdefault(allowed, []).append(found)
        else:
            faults.setdefault((found.kind, found.todo), []).append(found)
    for (kind, todo), places in faults.items():
        hint = f"{todo}, or allow it in the overlay: `allow-secret: [{{path: PATH, because: WHY}}]`"
        what = f"{kind} in the image: {shown(places)}"
        found_at = (Evidence(p.where, said=provenance.who(p.path)) for p in places)
        yield fault(what, *list(found_at)[:MOST_PLACES], hint=hint)
    for allowed, places in intended.items():
        yield fact(f"{allowed.path} may contain a secret: {allowed.because}",
                       *(Evidence(p.where, said=p.kind) for p in places[:MOST_PLACES]))  # fmt: skip
    if subject.provenance and not faults:
        yield fact("no secret in files other than unchanged files of packages")


def shown(places: Sequence[SecretAt]) -> str:
    listed = ", ".join(dict.fromkeys(place.where for place in places[:MOST_PLACES]))
    more = len(places) - MOST_PLACES
    return f"{listed} and {more} more" if more > 0 else listed


def find_in_root(subject: Subject, provenance: Provenance) -> Iterator[SecretAt]:
    """Secrets in files, except unchanged files of packages, which are public."""
    for path, info in subject.entries.items():
        if not stat.S_ISREG(info.st_mode) or not 0 < info.st_size <= MOST_BYTES:
            continue
        kinds = fitting_kinds(path)
        trace = provenance.traces.get(path)
        shipped = trace is not None and trace.kind is TraceKind.PACKAGE
        if PUBLIC.search(path) or INDEX.fullmatch(path) or (shipped and not kinds):
            continue
        content = read_plain(Path(f"{subject.root.path}{path}"))
        by_place = [kind for kind in kinds if re.search(kind.holds, content)]
        yield from (SecretAt(kind.name, path, todo=kind.todo) for kind in by_place)
        # Scripts of packages make databases, and perhaps a key.
        suspect = not provenance.is_packaged(path) or b"PRIVATE KEY" in content
        if not by_place and suspect:
            yield from find_in_file(path, content)


def find_in_file(path: str, content: bytes) -> Iterator[SecretAt]:
    """Secrets in a text, each kind once per line; binary files are skipped."""
    if b"\0" in content[:8192] or path.startswith(LOGIN_PATHS):
        return
    text = content.decode(errors="replace")
    word = text.strip()
    if BY_NAME.fullmatch(path) and not PUBLIC_PART.fullmatch(path) and may_be(word, password=False):
        yield SecretAt("secret in a file of its own", path, 1)
        return
    code = CODE.search(path) is not None or CODE_BEGIN.match(text) is not None
    for number, line in find_lines(text):
        found = find_secrets(line[:MOST_LINE], code=code)
        for kind in dict.fromkeys(one.kind for one in found):
            yield SecretAt(kind, path, number)


def find_in_words(words: Sequence[str]) -> Iterator[SecretAt]:
    """Secrets in the kernel's command line, which every user of a node can read."""
    for word in words:
        for found in find_secrets(word):
            yield SecretAt(f"{found.kind} of {word.partition('=')[0]}", "kernel command line")


@dataclass(frozen=True)
class SecretPlace:
    """A kind of secret: files at `path` that match `holds`, or that are not empty."""

    name: str
    path: str
    holds: bytes = b""
    todo: str = AS_NODE_FILE


OURS = (
    # Keys of machines and people.
    SecretPlace("ssh host key", r".*/ssh_host_[^/]*key"),
    SecretPlace("GnuPG private key", r".*/(private-keys-v1\.d/[^/]+\.key|secring\.gpg)"),
    SecretPlace("self-signed key", r"/etc/ssl/private/ssl-cert-snakeoil\.key", todo=REMOVE),
    SecretPlace("DKMS signing key", r"/var/lib/(dkms/mok\.key|shim-signed/mok/[^/]+\.priv)",
                todo=REMOVE),
    SecretPlace("munge key", r"(/etc/munge|/var/lib/munge)/munge\.key"),
    SecretPlace("Kerberos keytab", r"/etc/([^/]+/)*[^/]*\.keytab"),
    SecretPlace("disk key", r"/etc/(cryptsetup-keys\.d/.+|luks/.+\.key)"),
    SecretPlace("systemd credential", r"/etc/credstore(\.encrypted)?/.+"),
    # Networks, package managers, clouds and clusters.
    SecretPlace("NetworkManager identity", r"/var/lib/NetworkManager/(secret_key|seen-bssids)",
                todo=REMOVE),
    SecretPlace("Tailscale state", r"/var/lib/tailscale/.+\.state"),
    SecretPlace("netrc", HOME + r"/\.netrc|/etc/netrc"),
    SecretPlace("git credentials", HOME + r"/(\.git-credentials|\.config/git/credentials)"),
    SecretPlace("Google credentials", HOME + r"/\.config/gcloud/credentials\.db"),
    SecretPlace("Azure token",
                HOME + r"/\.azure/(accessTokens|msal_token_cache|service_principal).*"),
    SecretPlace("Hugging Face token",
                HOME + r"/(\.cache/huggingface|\.huggingface)/(token|stored_tokens)"),
    SecretPlace("Ansible vault password",
                HOME + r"/\.(ansible_)?vault[^/]*|/etc/ansible/[^/]*vault[^/]*", todo=REMOVE),
    SecretPlace("Ansible leftovers", HOME + r"/\.ansible/tmp/.+", todo=REMOVE),
    SecretPlace("cloud-init state", r"/var/lib/cloud/.+", todo=REMOVE),
    # Identity of a machine that storage servers know.
    SecretPlace("iSCSI initiator name", r"/etc/iscsi/initiatorname\.iscsi",
                rb"(?m)^InitiatorName=\S"),
    SecretPlace("NVMe host name", r"/etc/nvme/host(nqn|id)"),
    # Passwords.
    SecretPlace("password hash", r"/etc/(shadow|gshadow)-?", rb"(?m)^[^:#]+:[^:!*$]",
                todo=WITH_KEYS),
    SecretPlace("empty password", r"/etc/shadow-?", rb"(?m)^[^:#]+::",
                todo="lock the account: passwd -l"),
    SecretPlace("database password", HOME + r"/\.pgpass", rb"(?m)^[^#\s:]+:[^:]+:[^:]+:[^:]+:\S"),
    SecretPlace("Samba secrets", r"/var/lib/samba/private/secrets\.[tl]db"),
    SecretPlace("VNC password", HOME + r"/\.vnc/passwd"),
    # What builds and people leave.
    SecretPlace("shell history", HOME + r"/\.[a-z_]*(history|hst)", todo=REMOVE),
)  # fmt: skip
OF_FAMILIES = tuple(
    SecretPlace(one.name, one.path, one.holds) for family in families() for one in family.secrets
)
KINDS = (*OURS, *OF_FAMILIES)
PATTERNS = tuple((kind, re.compile(kind.path)) for kind in KINDS)
# Nearly no path fits: one match says so in a fifth of the time.
ANY_OF_OURS = re.compile("|".join(f"(?:{kind.path})" for kind in OURS))


def fitting_kinds(path: str) -> list[SecretPlace]:
    patterns = PATTERNS if ANY_OF_OURS.fullmatch(path) else PATTERNS[len(OURS) :]
    return [kind for kind, pattern in patterns if pattern.fullmatch(path)]
