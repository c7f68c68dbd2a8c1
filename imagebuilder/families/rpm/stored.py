# SPDX-License-Identifier: Apache-2.0
"""Whether a file is the index that repomd.xml lists, as it is stored and as it unpacks."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO, cast

from imagebuilder.families.compressed import BROKEN, unpack
from imagebuilder.families.rpm.repomd import IndexRecord
from imagebuilder.files import plain_file

# How files are compressed, by their endings.
KINDS = {".gz": "gzip", ".xz": "xz", ".zst": "zstd", ".bz2": "bzip2"}
PIECE = 1 << 18
FAULTS = BROKEN


def is_stored(path: Path, record: IndexRecord) -> bool:
    """Whether the file `path` exists and has the hash of the stored index."""
    try:
        with plain_file(path, follow=False) as stream:
            found = hashlib.file_digest(stream, record.stored[0]).hexdigest()
    except OSError:
        return False
    return found == record.stored[1]


def index_problem(path: Path, record: IndexRecord) -> str:
    """What is wrong with a fetched index; "" if nothing is.

    It is unpacked for that, so that whoever reads it later unpacks no more than repomd.xml says.
    """
    if path.stat().st_size > record.size:
        return f"it has {path.stat().st_size} bytes, not {record.size}"
    if not is_stored(path, record):
        return f"its {record.stored[0]} is not {record.stored[1]}"
    if record.opened is None:
        return "" if path.suffix not in KINDS else "repomd.xml has no hash of its content"
    name, expected = record.opened
    found, size = hashlib.new(name), 0
    try:
        for piece in unpacked(path):
            size += len(piece)
            if size > record.open_size:
                return f"it unpacks to more than {record.open_size} bytes"
            found.update(piece)
    except FAULTS as error:
        return f"it cannot be unpacked: {error}"
    return "" if found.hexdigest() == expected else f"its content does not have {name} {expected}"


def unpacked(path: Path) -> Iterator[bytes]:
    """The content of an index in pieces, unpacked.  Raises FAULTS."""
    with plain_file(path, follow=False) as stream:
        content = unpack(KINDS.get(path.suffix, ""), cast(BinaryIO, stream))
        while piece := content.read(PIECE):
            yield piece
