# SPDX-License-Identifier: Apache-2.0
"""The OpenPGP certificates of vendors: exactly the bytes that will be trusted."""

from __future__ import annotations

from imagebuilder.errors import InputError
from imagebuilder.files import read_plain
from imagebuilder.recipe.keys import dearmoured, fingerprints_of
from imagebuilder.recipe.types import Source


def load_key(source: Source) -> bytes:
    """The certificates of a vendor's source, binary.

    Raises InputError if the file is missing, is not a certificate, or does not have exactly the
    fingerprints that the recipe pins.
    """
    where = f"source {source.id}: key {source.key}"
    try:
        content = dearmoured(read_plain(source.key))
        found = set(fingerprints_of(content))
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
