# SPDX-License-Identifier: Apache-2.0
"""Certificates that a site adds: authorities that expired or that nobody trusts, and servers'.

Python's ssl module shows only those of authorities, and a package that reads all of them (RFC 5280)
is large for the two fields that are wanted here.
"""

from __future__ import annotations

import binascii
import re
import ssl
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from imagebuilder.image.proof import Evidence, Findings, warning
from imagebuilder.proof.reading.scripts import texts_of
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.subject import Subject, once

# Where programs look for them (containers-certs.d(5), update-ca-certificates(8)).
AUTHORITIES = (
    "/etc/containers/certs.d/*/*.crt", "/etc/docker/certs.d/*/*.crt",
    "/etc/containerd/certs.d/*/*.crt", "/usr/local/share/ca-certificates/*.crt",
    "/usr/local/share/ca-certificates/*/*.crt", "/etc/ssl/certs/*.crt", "/etc/pki/*/*.crt",
    "/etc/pki/*/*.pem",
)  # fmt: skip
# Where a distribution's own program reads authorities to trust, and its name.
ANCHORS = (
    ("/usr/local/share/ca-certificates/", "update-ca-certificates"),
    ("/etc/pki/ca-trust/source/anchors/", "update-ca-trust"),
    ("/etc/ca-certificates/trust-source/anchors/", "update-ca-trust"),
    ("/etc/pki/trust/anchors/", "update-ca-certificates"),
)
# What these programs make, and what OpenSSL, GnuTLS and others read.
BUNDLES = (
    "/etc/ssl/certs/ca-certificates.crt", "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
    "/etc/ca-certificates/extracted/tls-ca-bundle.pem", "/var/lib/ca-certificates/ca-bundle.pem",
    "/etc/ssl/cert.pem",
)  # fmt: skip
CERTIFICATE = (".crt", ".pem", ".cer", ".cert")
SERVED = ("/etc/", "/opt/", "/srv/", "/usr/local/", "/var/lib/")
MOST = 64 << 10  # bytes of a file of settings
OWN = ("/usr/local/", "/usr/lib/systemd/", "/usr/libexec/", "/opt/", "/srv/")
# Links to certificates and what only caches have.
ELSEWHERE = ("/etc/ssl/certs/", "/etc/alternatives/")
SUFFIX = re.compile(r".*\.(so[\d.]*|pyc?|crt|pem|cer|key|js|html?|css|md|png|svg|json\.gz)")
PEM = re.compile(
    r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----(?P<text>[A-Za-z0-9+/=\s]+)-----END "
)
MOST_BYTES = 4 << 20  # of such a file
VERSION = 0xA0  # the tag of a version
# The two forms of a time, by their tags.
TIMES = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
# The object identifiers of a common name and of an organisation, as they are encoded.
NAMES = (b"\x06\x03\x55\x04\x03", b"\x06\x03\x55\x04\x0a")


def prove_authorities(subject: Subject) -> Findings:
    """Warnings of authorities that had all expired when the packages were chosen."""
    for path in subject.root.glob(*AUTHORITIES):
        dates = [] if path in subject.shipped else ends_of(subject.root.text(path))
        if dates and max(dates) < subject.image.epoch:
            day = f"{datetime.fromtimestamp(max(dates), UTC):%Y-%m-%d}"
            what = f"the certificate of an authority in {path} expired on {day}: connections to "
            what += "servers that it vouches for fail"
            yield warning(what, Evidence(path), hint="replace it, or remove the file")


def prove_anchors(subject: Subject) -> Findings:
    """Warnings of authorities that lie where some distribution looks, but not this one."""
    folders = tuple(folder for folder, _ in ANCHORS)
    added = [path for path, info in subject.entries.items()
             if path.startswith(folders) and stat.S_ISREG(info.st_mode)]  # fmt: skip
    if not added or updates(subject):
        return
    root = subject.root
    paths = (*BUNDLES, *root.glob("/etc/ssl/certs/*.0"))
    trusted = {one.der for path in paths for one in read_certificates(root.text(path))}
    for path in added:
        lost = [one for one in read_certificates(root.text(path)) if one.der not in trusted]
        if not lost or path in subject.shipped or naming(subject, path):
            continue
        program = next(name for folder, name in ANCHORS if path.startswith(folder))
        why = f"the image has no {program}, which reads that folder"
        hint = "put it where this distribution looks for it, and run its program"
        if find_program(root, program):
            why = f"nothing ran {program} after it was added"
            hint = f"run {program} when the image is built"
        what = (
            f"programs do not trust the authority {lost[0].name or 'of a site'} in {path}: {why}, "
        )
        what += "and connections to servers that it vouches for fail"
        yield warning(what, Evidence(path), hint=hint)


def updates(subject: Subject) -> bool:
    """Whether something makes the bundles anew when a node boots."""
    commands = (words for unit in subject.startup.starting() for _, words in unit.started())
    programs = {name for _, name in ANCHORS}
    return any(name in text for words in commands for text in texts_of(subject.root, words)
               for name in programs)  # fmt: skip


def prove_served(subject: Subject) -> Findings:
    """Warnings of other expired certificates that some file names, by the first of a file."""
    authorities = set(subject.root.glob(*AUTHORITIES))
    for path, info in subject.entries.items():
        if not path.startswith(SERVED) or not path.endswith(CERTIFICATE):
            continue
        if not stat.S_ISREG(info.st_mode) or path in authorities or path in subject.shipped:
            continue
        first = next(read_certificates(subject.root.text(path)), None)
        if first is None or first.end >= subject.image.epoch:
            continue
        if by := naming(subject, path):
            what = f"the certificate of {first.name or 'a server'} in {path}, which {by} names, "
            what += f"expired on {first.last_day}: whoever checks it refuses the connection"
            yield warning(what, Evidence(path), hint="replace it, or let each node get its own")


def ends_of(text: str) -> list[float]:
    """When the certificates of authorities in a PEM file expire, in seconds since 1970."""
    if "BEGIN CERTIFICATE" not in text or len(text) > MOST_BYTES:
        return []
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=text)
        ends = [one.get("notAfter") for one in context.get_ca_certs()]
        return [ssl.cert_time_to_seconds(end) for end in ends if isinstance(end, str)]
    except (ssl.SSLError, ValueError):
        return []


@once
def settings_texts(subject: Subject) -> Mapping[str, str]:
    """The small texts of /etc, and those of the site elsewhere, by path."""
    found: dict[str, str] = {}
    for path, info in subject.entries.items():
        is_own = path.startswith(OWN) and path not in subject.shipped
        is_text = stat.S_ISREG(info.st_mode) and info.st_size <= MOST and not SUFFIX.fullmatch(path)
        if is_text and (is_own or path.startswith("/etc/")) and not path.startswith(ELSEWHERE):
            found[path] = subject.root.text(path)
    return found


def naming(subject: Subject, path: str) -> str:
    """The first file that names a path, or the folder that it is in; "" if none does."""
    folder = path.rpartition("/")[0]
    named = re.compile(
        rf"(?<![\w./-])(?:{re.escape(path)}(?![\w.-])|{re.escape(folder)}/?(?![\w./-]))"
    )
    texts = settings_texts(subject).items()
    lines = ((name, line) for name, text in texts if folder in text for line in text.splitlines())
    return next((name for name, line in lines if not line.lstrip().startswith(("#", ";"))
                 and named.search(line)), "")  # fmt: skip


@dataclass(frozen=True)
class Certificate:
    """The encoded certificate, the name that it is for ("" if unknown), and its last second."""

    der: bytes
    name: str
    end: float

    @property
    def last_day(self) -> str:
        return f"{datetime.fromtimestamp(self.end, UTC):%Y-%m-%d}"


def read_certificates(text: str) -> Iterator[Certificate]:
    """The certificates of a PEM file that can be read, in order."""
    for found in PEM.finditer(text) if len(text) <= MOST_BYTES else ():
        try:
            yield parse_certificate(binascii.a2b_base64(found["text"]))
        except (ValueError, IndexError, OverflowError):
            continue


def parse_certificate(der: bytes) -> Certificate:
    """Raises ValueError or IndexError for bytes that are no certificate."""
    signed = children(der, *content(der, 0)[1:])
    _, start, end = signed[0]
    parts = [part for part in children(der, start, end) if part[0] != VERSION]
    _, _, _, validity, subject = parts[:5]
    tag, start, end = children(der, *validity[1:])[1]
    return Certificate(der, name_in(der[subject[1] : subject[2]]), time_of(tag, der[start:end]))


def content(der: bytes, at: int) -> tuple[int, int, int]:
    """The tag of an element, and where its content begins and ends."""
    tag, length, start = der[at], der[at + 1], at + 2
    if length & 0x80:
        many = length & 0x7F
        length, start = int.from_bytes(der[start : start + many], "big"), start + many
    if not 0 <= length <= len(der) - start:
        raise ValueError("the element is longer than the certificate")
    return tag, start, start + length


def children(der: bytes, start: int, end: int) -> list[tuple[int, int, int]]:
    found = []
    while start < end:
        found.append(content(der, start))
        start = found[-1][2]
    return found


def time_of(tag: int, text: bytes) -> float:
    """Seconds since 1970.  Raises ValueError for what is no time."""
    if tag not in TIMES:
        raise ValueError("the certificate has no end")
    return datetime.strptime(text.decode("ascii"), TIMES[tag]).replace(tzinfo=UTC).timestamp()


def name_in(subject: bytes) -> str:
    """The common name, or else the organisation."""
    for oid in NAMES:
        at = subject.find(oid)
        if at >= 0:
            _, start, end = content(subject, at + len(oid))
            return subject[start:end].decode(errors="replace")
    return ""
