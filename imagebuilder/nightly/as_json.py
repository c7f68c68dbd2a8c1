# SPDX-License-Identifier: Apache-2.0
"""A night as JSON and back: the keys are the fields of the boxes, docs/nightly.md shows them."""

from __future__ import annotations

import json
from collections.abc import Mapping

from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.nightly.types import Night
from imagebuilder.report.boxes import FaultyError, check_utc, decode, encode_fields

SCHEMA = 1
MEND = "nothing needs it but the history: remove it, or leave it out"


def night_json(night: Night) -> dict[str, Json]:
    """The night as a value for programs; equal nights give equal values."""
    return {"schema": SCHEMA, "failed": night.failed, **encode_fields(night)}


def render_night(night: Night) -> str:
    """The same as the text of a file."""
    return json.dumps(night_json(night), indent=1, ensure_ascii=False, allow_nan=False) + "\n"


def parse_night(value: object, where: str = "night.json") -> Night:
    """The night that night_json() gave; `where` is the file it comes from.

    Raises InputError that names the file and the key.
    """
    if isinstance(value, Mapping) and value.get("schema", SCHEMA) != SCHEMA:
        raise InputError(
            f"is a night of schema {value['schema']}; this imagebuilder reads {SCHEMA}",
            where=where,
            hint="use the imagebuilder that wrote it, or a newer one",
        )
    try:
        return parse_whole(value)
    except FaultyError as error:
        raise InputError(f"is damaged: {error}", where=where, hint=MEND) from error


def parse_whole(value: object) -> Night:
    """The night in `value`.  Raises FaultyError."""
    if not isinstance(value, Mapping):
        raise FaultyError("it is not an object")
    if missing := [name for name in ("schema", "failed") if name not in value]:
        raise FaultyError(f"{missing[0]}: is missing")
    night = decode(Night, {k: v for k, v in value.items() if k not in ("schema", "failed")}, "")
    assert isinstance(night, Night)
    check_utc(night.started, "started")
    if value["failed"] is not night.failed:
        raise FaultyError("failed: does not follow from the rest")
    return night
