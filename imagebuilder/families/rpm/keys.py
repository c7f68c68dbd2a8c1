# SPDX-License-Identifier: Apache-2.0
"""The OpenPGP certificates that a source trusts, for gpgv(1) and for rpmkeys(8)."""

from __future__ import annotations

import base64
import os
import re
from collections.abc import Iterator
from pathlib import Path

from imagebuilder.errors import HostError, WorkError
from imagebuilder.process import run
from imagebuilder.recipe.keys import load_key
from imagebuilder.recipe.types import Source

# The package with the keyrings of distributions, by its name in every distribution.
KEYRING_PACKAGE = "distribution-gpg-keys"
GOOD = re.compile(r"^\[GNUPG:\] GOODSIG ", re.MULTILINE)
# Fingerprint, date, time, expiry, version, reserved, key algorithm, hash algorithm (doc/DETAILS).
VALID = re.compile(r"^\[GNUPG:\] VALIDSIG \w+ \S+ \S+ \S+ \S+ \S+ \S+ (\d+) ", re.MULTILINE)
UNSAFE = {"1": "MD5", "2": "SHA-1", "3": "RIPEMD-160"}  # RFC 9580, "Hash Algorithms"
BAD = re.compile(
    r"^\[GNUPG:\] (BADSIG|ERRSIG|EXPSIG|EXPKEYSIG|REVKEYSIG|NO_PUBKEY) (\w+)", re.MULTILINE
)
REASONS = {
    "BADSIG": "it was not made of this file",
    "ERRSIG": "it was made with another key",
    "NO_PUBKEY": "it was made with another key",
    "EXPSIG": "it has expired",
    "EXPKEYSIG": "its key has expired",
    "REVKEYSIG": "its key was revoked",
}
# What is said of a further signature by a key that is not pinned, such as a vendor's next one.
ANOTHERS = frozenset(("ERRSIG", "NO_PUBKEY"))
# Tags of packets, and a type of signatures (RFC 9580, "Packet Types", "Signature Types").
CERTIFICATE, SIGNATURE = 6, 2
KEY_REVOCATION = b"\x20"
CRC_START, CRC_POLYNOMIAL = 0xB704CE, 0x1864CFB  # RFC 4880, 6.1
LINE = 64


def load_certificates(source: Source) -> bytes:
    """The certificates that may sign a source, binary.

    Raises HostError for a distribution's keyring that this host does not have, and as load_key().
    """
    if not source.uri and not os.access(source.key, os.R_OK):
        raise HostError(
            f"this host does not have the keyring {source.key}",
            where=f"source {source.id}",
            hint=f"run imagebuilder setup --rpm, or install {KEYRING_PACKAGE}",
        )
    return load_key(source)


def signature_problem(content: Path, signature: Path, keyring: Path) -> str:
    """What is wrong with the detached signature of a file; "" if a key of `keyring` made it.

    `keyring` has binary certificates.  A signature by SHA-1 is invalid, but one by a certificate
    that binds its user IDs by SHA-1 is not, as those of Enterprise Linux 9 do: `--weak-digest` of
    gpgv(1) would refuse both.  Raises HostError if gpgv is not installed.
    """
    options = ("--status-fd", "1", "--keyring", keyring.absolute())
    done = run(["gpgv", *options, "--", signature, content], check=False)
    hashes = {match[1] for match in VALID.finditer(done.stdout)}
    bad = {match[1]: match[2] for match in BAD.finditer(done.stdout)}
    if GOOD.search(done.stdout) and hashes and not bad.keys() - ANOTHERS:
        weak = [UNSAFE[number] for number in hashes if number in UNSAFE]
        return f"it was made by means of {weak[0]}, which can be forged" if weak else ""
    for reason, key in bad.items():
        return f"{REASONS[reason]} ({key})"
    return "it is damaged, or made in a way that is no longer safe"


def armour(certificates: bytes) -> bytes:
    """Each certificate in a block of its own, the form that rpmkeys imports.

    Without those that were revoked: not every rpm heeds that, as gpgv(1) does.  Raises WorkError if
    they cannot be told apart.
    """
    split = split_certificates(certificates)
    return b"".join(armoured(each) for each in split if not is_revoked(each))


def is_revoked(certificate: bytes) -> bool:
    """Whether a certificate has a revocation of itself (RFC 9580, 5.2.1)."""
    for at, tag in packets(certificate):
        if tag == SIGNATURE:
            body = certificate[body_start(certificate, at) :][:3]
            kind = body[2:3] if body[:1] == b"\x03" else body[1:2]
            if kind == KEY_REVOCATION:
                return True
    return False


def armoured(certificate: bytes) -> bytes:
    """ASCII armour (RFC 4880, 6.2)."""
    text = base64.b64encode(certificate).decode()
    lines = [text[at : at + LINE] for at in range(0, len(text), LINE)]
    check = base64.b64encode(crc24(certificate).to_bytes(3)).decode()
    begin, end = (f"-----{word} PGP PUBLIC KEY BLOCK-----" for word in ("BEGIN", "END"))
    return "\n".join([begin, "", *lines, f"={check}", end, ""]).encode()


def crc24(content: bytes) -> int:
    value = CRC_START
    for byte in content:
        value ^= byte << 16
        for _ in range(8):
            value <<= 1
            if value & 0x1000000:
                value ^= CRC_POLYNOMIAL
    return value


def split_certificates(content: bytes) -> Iterator[bytes]:
    """Each certificate: a public key and the packets up to the next one.  Raises WorkError."""
    starts = [at for at, tag in packets(content) if tag == CERTIFICATE]
    for at, end in zip(starts, [*starts[1:], len(content)], strict=True):
        yield content[at:end]


def packets(content: bytes) -> Iterator[tuple[int, int]]:
    """The place and the tag of each packet (RFC 9580, 4.2).  Raises WorkError."""
    at = 0
    while at < len(content):
        first = content[at]
        new = bool(first & 0x40)
        tag = first & 0x3F if new else (first >> 2) & 0x0F
        yield at, tag
        end = packet_end(content, at, first, new=new) if first & 0x80 else -1
        if not at < end <= len(content):
            raise WorkError("a certificate is damaged", hint="export it again from GnuPG")
        at = end


def body_start(content: bytes, at: int) -> int:
    """Where the body of a packet begins that has a length (RFC 9580, 4.2)."""
    first, length = content[at], content[at + 1]
    if not first & 0x40:
        return at + 1 + (1, 2, 4)[first & 0x03]
    return at + (2 if length < 192 else 3 if length < 224 else 6)


def packet_end(content: bytes, at: int, first: int, *, new: bool) -> int:
    """Where a packet ends; -1 for one without a length, which no certificate has."""
    body = content[at + 1 : at + 6]
    if not body:
        return -1
    if not new:
        count = (1, 2, 4, 0)[first & 0x03]
        return at + 1 + count + int.from_bytes(body[:count]) if count else -1
    if body[0] < 192:
        return at + 2 + body[0]
    if body[0] < 224:
        return at + 3 + ((body[0] - 192) << 8) + int.from_bytes(body[1:2]) + 192
    return at + 6 + int.from_bytes(body[1:5]) if body[0] == 255 else -1
