# SPDX-License-Identifier: Apache-2.0
"""TREE/seen/MAC.json as it lies on the disk: a record is whole, missing or damaged.

A damaged record may say anything about what its machine runs, so it must never be taken for a
missing one.  Power cuts, full disks and people leave every kind of file.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping
from pathlib import Path

from imagebuilder.decode import parse_json
from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.untrusted import fit

MAC = re.compile(r"([0-9a-f]{2}:){5}[0-9a-f]{2}")
# What a recipe and the store allow in names; nothing that is a path.
PROFILE, VERSION = r"[a-z0-9][a-z0-9.+-]*", r"[A-Za-z0-9][A-Za-z0-9_.+-]*"
MOST_BYTES = 4096  # of one record
# The fields of a record; a record from before nodes told what they were given lacks `given`.
FIELDS = {
    "mac": MAC,
    "node": re.compile(r"[A-Za-z0-9.-]*"),
    "profile": re.compile(PROFILE),
    "version": re.compile(VERSION),
    "address": re.compile(r"[0-9A-Fa-f.:]*"),
    "stage": re.compile(r"(?s:.*)"),
    "root": re.compile(r"(?s:.*)"),
    "first": re.compile(r"[0-9T:.Z+-]+"),
    "last": re.compile(r"[0-9T:.Z+-]+"),
    "given": re.compile(r"[0-9a-f]*"),
}


class DamagedRecordError(ValueError):
    """A file in TREE/seen that is no record; the message says in which way."""


def read_fields(path: Path) -> dict[str, str] | None:
    """The fields of a record; None when there is no such file.  Raises DamagedRecordError."""
    content = read_bounded(path, MOST_BYTES)
    return None if content is None else check_fields(parse_record(content))


def check_fields(value: Json) -> dict[str, str]:
    """The fields in a decoded record.  Raises DamagedRecordError."""
    if not isinstance(value, Mapping):
        raise DamagedRecordError("is no record")
    found: dict[str, str] = {}
    for name, pattern in FIELDS.items():
        text = value.get(name, "" if name == "given" else None)
        if not isinstance(text, str) or not pattern.fullmatch(text):
            raise DamagedRecordError(f"has no valid {name}")
        found[name] = fit(text)
    return found


def parse_record(content: bytes) -> Json:
    """What JSON says.  Raises DamagedRecordError."""
    try:
        return parse_json(content, "")
    except InputError as error:
        raise DamagedRecordError("is not JSON") from error


def read_bounded(path: Path, most: int) -> bytes | None:
    """The content of a plain file of at most `most` bytes; None when nothing is there.

    Raises DamagedRecordError for everything else; it never waits for the writer of a pipe.
    """
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DamagedRecordError(f"cannot be read: {error.strerror}") from error
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise DamagedRecordError("is no plain file")
        content = os.read(descriptor, most + 1)
    except OSError as error:
        raise DamagedRecordError(f"cannot be read: {error.strerror}") from error
    finally:
        os.close(descriptor)
    if len(content) > most:
        raise DamagedRecordError("is too large")
    return content
