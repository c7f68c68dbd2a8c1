# SPDX-License-Identifier: Apache-2.0
"""A report as JSON and back: the keys are the fields of the boxes, docs/reports.md shows them.

Reading is strict, because a gate opens on what is read: a key that is missing, unknown or of
another kind is a fault that is named, never a guess.  A field with a default may be missing: it
was added later, or says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping

from imagebuilder.digest import Json
from imagebuilder.errors import InputError
from imagebuilder.report.boxes import FaultyError, check_utc, decode, encode_fields
from imagebuilder.report.types import SCHEMA, Report

AGAIN = "imagebuilder test makes a new report"
# What follows from the rest, for programs that do not want to know how.
DERIVED = ("passed", "degraded")


def report_json(report: Report) -> dict[str, Json]:
    """The report as a value for programs; equal reports give equal values."""
    own = {name: value for name, value in encode_fields(report).items() if name != "schema"}
    derived = {name: bool(getattr(report, name)) for name in DERIVED}
    return {"schema": report.schema, **derived, **own}


def parse_report(value: object, where: str = "report.json") -> Report:
    """The report that report_json() gave; `where` is the file it comes from.

    Raises InputError that names the file and the key.
    """
    try:
        return parse_whole(value)
    except FaultyError as error:
        raise InputError(f"is damaged: {error}", where=where, hint=AGAIN) from error
    except OtherSchemaError as error:
        raise InputError(str(error), where=where, hint=error.hint) from error


class OtherSchemaError(Exception):
    def __init__(self, schema: object) -> None:
        newer = isinstance(schema, int) and schema > SCHEMA
        self.hint = "use the imagebuilder that wrote it, or a newer one" if newer else AGAIN
        super().__init__(f"is a report of schema {schema}; this imagebuilder reads {SCHEMA}")


def parse_whole(value: object) -> Report:
    """The report in `value`.  Raises FaultyError and OtherSchemaError."""
    if not isinstance(value, Mapping):
        raise FaultyError("it is not an object")
    if "schema" not in value:
        raise FaultyError("schema: is missing")
    if value["schema"] != SCHEMA or isinstance(value["schema"], bool):
        raise OtherSchemaError(value["schema"])
    if missing := [name for name in DERIVED if name not in value]:
        raise FaultyError(f"{missing[0]}: is missing")
    report = decode(Report, {k: v for k, v in value.items() if k not in DERIVED}, "")
    assert isinstance(report, Report)
    check_utc(report.started, "started")  # reports of a profile are sorted by it
    for name in DERIVED:
        if value[name] is not bool(getattr(report, name)):
            raise FaultyError(f"{name}: does not follow from the rest")
    return report
