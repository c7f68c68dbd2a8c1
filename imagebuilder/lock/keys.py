# SPDX-License-Identifier: Apache-2.0
"""OpenPGP certificates as vendors publish them: their bytes without armour, their fingerprints."""

from __future__ import annotations

import base64
import binascii

from imagebuilder.errors import InputError
from imagebuilder.files import read_plain
from imagebuilder.recipe.keys import find_fingerprints
from imagebuilder.recipe.types import Source

BEGIN = b"-----BEGIN PGP PUBLIC KEY BLOCK-----"
END = b"-----END PGP PUBLIC KEY BLOCK-----"


def load_key(source: Source) -> bytes:
    """The certificates of a vendor's source, binary.

    Raises InputError if the file is missing, is not a certificate, or does not have exactly the
    fingerprints that the recipe pins.
    """
    where = f"source {source.id}: key {source.key}"
    try:
        content = dearmoured(read_plain(source.key))
        found = set(find_fingerprints(source.key)) if content else set()
    except OSError as error:
        raise InputError(f"{error.strerror}", where=where) from error
    if not found:
        raise InputError(
            "not an OpenPGP certificate",
            where=where,
            hint="save the vendor's key file there unchanged, armoured or binary",
        )
    wanted = set(source.fingerprints)
    if wanted and found != wanted:
        has, pinned = (", ".join(sorted(each)) for each in (found, wanted))
        raise InputError(
            f"the file has {has}, but the overlay pins {pinned}",
            where=where,
            hint="compare with what the vendor publishes elsewhere before changing either",
        )
    return content


def dearmoured(content: bytes) -> bytes:
    """`content` without ASCII armour; several blocks are joined; empty if one is damaged."""
    if BEGIN not in content:
        return content
    joined = b""
    for block in content.split(BEGIN)[1:]:
        lines = block.partition(END)[0].replace(b"\r", b"").partition(b"\n\n")[2].splitlines()
        # The last line may be a CRC-24, which starts with "=" and is not needed.
        text = b"".join(line for line in lines if not line.startswith(b"="))
        try:
            joined += base64.b64decode(text, validate=True)
        except binascii.Error:
            return b""
    return joined
