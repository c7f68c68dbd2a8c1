# SPDX-License-Identifier: Apache-2.0
"""Certificates in PEM files: who they are for, and when they end (RFC 5280).

Python's ssl module shows only those of authorities, and a package that reads all of them is large
for the two fields that are wanted here.
"""

from __future__ import annotations

import binascii
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime

PEM = re.compile(
    r"-----BEGIN (?:TRUSTED |X509 )?CERTIFICATE-----(?P<text>[A-Za-z0-9+/=\s]+)-----END "
)
MOST_BYTES = 4 << 20  # of such a file
VERSION = 0xA0  # the tag of a version
# The two forms of a time, by their tags.
TIMES = {0x17: "%y%m%d%H%M%SZ", 0x18: "%Y%m%d%H%M%SZ"}
# The object identifiers of a common name and of an organisation, as they are encoded.
NAMES = (b"\x06\x03\x55\x04\x03", b"\x06\x03\x55\x04\x0a")


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
