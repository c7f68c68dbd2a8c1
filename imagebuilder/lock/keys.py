# SPDX-License-Identifier: Apache-2.0
"""OpenPGP certificates as vendors publish them: their bytes without armour, their fingerprints."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Iterator

from imagebuilder.errors import InputError
from imagebuilder.recipe.types import Source

BEGIN = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
END = b"-----END PGP PUBLIC KEY BLOCK-----"
PRIMARY_KEY = 6  # packet tag, RFC 9580 section 5


def load_key(source: Source) -> bytes:
    """The certificates of a vendor's source, binary.

    Raises InputError when the file is missing, is no certificate, or has not exactly the
    fingerprints the recipe pins.
    """
    where = f"source {source.id}: key {source.key}"
    try:
        content = dearmoured(source.key.read_bytes())
        found = set(fingerprints(content))
    except OSError as error:
        raise InputError(f"{error.strerror}", where=where) from error
    except (ValueError, IndexError) as error:
        raise InputError(
            "not an OpenPGP certificate",
            where=where,
            hint="the vendor's key file, armoured or binary, goes there unchanged",
        ) from error
    wanted = set(source.fingerprints)
    if not found or (wanted and found != wanted):
        raise InputError(
            f"the file has {listed(found)}, the overlay pins {listed(wanted)}",
            where=where,
            hint="compare with what the vendor publishes elsewhere before changing either",
        )
    return content


def listed(fingerprints: set[str]) -> str:
    """Fingerprints for a message."""
    return ", ".join(sorted(fingerprints)) or "no key"


def dearmoured(content: bytes) -> bytes:
    """`content` without ASCII armour; several armoured blocks are joined.  Raises ValueError."""
    if BEGIN not in content:
        return content
    joined = b""
    for block in content.split(BEGIN)[1:]:
        lines = block.partition(END)[0].replace(b"\r", b"").partition(b"\n\n")[2].splitlines()
        # The last line may be a CRC-24, which starts with "=" and tells nothing a signature needs.
        text = b"".join(line for line in lines if not line.startswith(b"="))
        try:
            joined += base64.b64decode(text, validate=True)
        except binascii.Error as error:
            raise ValueError("bad armour") from error
    return joined


def fingerprints(content: bytes) -> Iterator[str]:
    """The fingerprints of the primary keys, upper-case hex (RFC 9580 section 5.5.4).

    Raises ValueError or IndexError when `content` is not a sequence of OpenPGP packets.
    """
    for tag, body in packets(content):
        if tag != PRIMARY_KEY:
            continue
        if body[0] == 4:
            framed = b"\x99" + len(body).to_bytes(2, "big") + body
            yield hashlib.sha1(framed, usedforsecurity=False).hexdigest().upper()
        elif body[0] == 6:
            framed = b"\x9b" + len(body).to_bytes(4, "big") + body
            yield hashlib.sha256(framed).hexdigest().upper()
        else:
            raise ValueError("key version")


def packets(content: bytes) -> Iterator[tuple[int, bytes]]:
    """The packets of a binary certificate as (tag, body) (RFC 9580 section 4.2)."""
    at = 0
    while at < len(content):
        first = content[at]
        if not first & 0x80:
            raise ValueError("not a packet")
        if first & 0x40:
            tag, (length, start) = first & 0x3F, new_length(content, at + 1)
        else:
            size = 1 << (first & 3)
            if size == 8:
                raise ValueError("packet without a length")
            tag, start = (first >> 2) & 0xF, at + 1 + size
            length = int.from_bytes(content[at + 1 : start], "big")
        at = start + length
        if at > len(content):
            raise ValueError("truncated packet")
        yield tag, content[start:at]


def new_length(content: bytes, at: int) -> tuple[int, int]:
    """The length of a new-format packet and where its body starts."""
    first = content[at]
    if first < 192:
        return first, at + 1
    if first < 224:
        return ((first - 192) << 8) + content[at + 1] + 192, at + 2
    if first == 255:
        return int.from_bytes(content[at + 1 : at + 5], "big"), at + 5
    raise ValueError("partial lengths are not for keys")
