# SPDX-License-Identifier: Apache-2.0
"""Identity: sha256 over canonical JSON, so that every value is framed and nothing collides."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path

from imagebuilder.files import plain_file

Json = None | bool | int | float | str | Sequence["Json"] | Mapping[str, "Json"]


def canonical_json(value: Json) -> bytes:
    """`value` as the one JSON text that equal values share: sorted keys, no spaces, UTF-8."""
    return json.dumps(
        value, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False
    ).encode()


def digest_of(value: Json) -> str:
    """The sha256 (hex) of a JSON value; `["lib", "foo"]` and `["libfoo"]` differ."""
    return hashlib.sha256(canonical_json(value)).hexdigest()


def digest_of_bytes(content: bytes) -> str:
    """The sha256 (hex) of raw content."""
    return hashlib.sha256(content).hexdigest()


def digest_of_file(path: Path) -> str:
    """The sha256 (hex) of a file's content; follows a symlink at `path`.  Raises OSError."""
    with plain_file(path) as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
