# SPDX-License-Identifier: Apache-2.0
"""The one place that decodes JSON from files and from other programs.

Whatever the bytes are, the result is a value of known bounds or an InputError with three parts.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Hashable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Generic, TypeVar, cast

from pydantic import (
    AfterValidator,
    Field,
    PlainSerializer,
    StringConstraints,
    TypeAdapter,
    ValidationError,
)

from imagebuilder.digest import Json
from imagebuilder.errors import ImagebuilderError, InputError
from imagebuilder.files import make_folder, plain_file, write_file

T = TypeVar("T")
# A field that is kept as it is; whoever it belongs to knows its shape.
if TYPE_CHECKING:
    Opaque = Mapping[str, Json]
else:  # pydantic does not resolve a type that contains itself
    Opaque = dict[str, object]

# A manifest of 3,000 packages has 1 MB and 8 levels.
MAX_BYTES = 64 * 1024 * 1024
MAX_DEPTH = 64
# Of 64 MiB: a value in memory takes 30 times its place in the text.  A manifest of 3,000 packages
# has some 40,000; the most are names of objects, which one machine tells another.
MOST_VALUES, FEW_VALUES = 4_000_000, 500_000
# Linear: one without an end extends to the end.
STRING = re.compile(r'"(?:[^"\\]|\\.)*+(?:"|\Z)', re.DOTALL)
END_OF_TIME = 253_402_300_800  # the year 10000, in seconds since 1970: no date is that late
DIGITS = 3  # of seconds: a millisecond is more than any clock here is worth
# Faults of a value that pydantic says in the words of Python.
WORDS = {"missing": "is missing", "unexpected_keyword_argument": "unknown key"}
DAMAGED = "it is damaged: restore it from a backup, or remove it and run the command that writes it"


def parse_time(text: str) -> datetime | None:
    """A time with its zone (ISO 8601), of a year that clocks show and hours can be added to."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        return None
    return time if time.tzinfo and 1970 <= time.year < 9999 else None


def check_time(text: str) -> str:
    """A time with its zone, as it was.  Raises ValueError."""
    if parse_time(text) is None:
        raise ValueError(f"{text!r} is not a time with a zone")
    return text


def check_utc(text: str) -> str:
    """A time in UTC, as it was.  Raises ValueError."""
    time = parse_time(text)
    if time is None or time.utcoffset():
        raise ValueError(f"{text!r} is not a time in UTC")
    return text


def check_time_if_any(text: str) -> str:
    """A time with its zone, or empty."""
    return text and check_time(text)


# Kinds of fields.  An amount is of bytes or of things.
Amount = Annotated[int, Field(ge=0, lt=1 << 63)]
# A time in seconds since 1970, until the end of the year 9999; 0 often means none.
Moment = Annotated[int, Field(ge=0, lt=END_OF_TIME)]
# The time of the files of an image, which packed file systems and names of versions have too.
Epoch = Annotated[int, Field(ge=0, lt=1 << 33)]
# A manifest and a lock may come from another builder, and their texts go to terminals, as those of
# recipes do, which have none of these control characters either (recipe/positions.py).
Text = Annotated[str, StringConstraints(max_length=65536, pattern=r"^[^\x00-\x08\x0b-\x1f\x7f]*$")]
Seconds = Annotated[
    float, Field(ge=0, lt=1 << 63), PlainSerializer(lambda seconds: round(seconds, DIGITS))
]
UtcTime = Annotated[str, AfterValidator(check_utc)]
ZonedTime = Annotated[str, AfterValidator(check_time)]
ZonedTimeIfAny = Annotated[str, AfterValidator(check_time_if_any)]
Place = tuple[str | int, ...]


class JsonObject(dict[str, Json]):
    """A JSON object that raises InputError for a key it lacks."""

    def __init__(self, value: dict[str, Json], where: str, hint: str) -> None:
        super().__init__(value)
        self.where, self.hint = where, hint

    def __missing__(self, key: str) -> Json:
        what = f"is damaged: the key {key!r} is missing"
        raise InputError(what, where=self.where, hint=self.hint)


def parse_json(
    content: bytes | str,
    where: str,
    *,
    hint: str = DAMAGED,
    whole: bool = False,
    most: int = MOST_VALUES,
) -> Json:
    """The value in `content`, of at most `most` values; `where` names it in errors.

    With `whole`, the value is built from objects that raise InputError for a missing key.  Raises
    InputError.
    """
    hook = (lambda value: JsonObject(value, where, hint)) if whole else None
    if len(content) > MAX_BYTES:
        raise InputError(f"is larger than {MAX_BYTES >> 20} MiB", where=where, hint=hint)
    try:
        text = content.decode("utf-8") if isinstance(content, bytes) else content
        check_values(text, most)
        value = json.loads(
            text, parse_constant=refuse_constant, parse_float=parse_float, object_hook=hook
        )
        check_depth(value)
        if "\\u" in text:  # half of a surrogate pair, which no file and no terminal takes
            json.dumps(value, ensure_ascii=False).encode()
    except json.JSONDecodeError as error:
        at = f"{where}:{error.lineno}:{error.colno}"
        raise InputError(f"is damaged: not JSON: {error.msg}", where=at, hint=hint) from error
    except UnicodeError as error:
        raise InputError("is damaged: not UTF-8 text", where=where, hint=hint) from error
    except RecursionError as error:
        what = f"is damaged: nested deeper than {MAX_DEPTH} levels"
        raise InputError(what, where=where, hint=hint) from error
    except ValueError as error:  # of Python: it reads no number of more than 4,300 digits
        said = str(error) if str(error).startswith("holds") else "holds a number that is too large"
        raise InputError(f"is damaged: it {said}", where=where, hint=hint) from error
    return cast("Json", value)


def check_values(text: str, most: int) -> None:
    """Raise ValueError for a text with more than `most` values, before they are made.

    Lists and objects count twice, and take as much memory.
    """
    if len(text) <= most:
        return
    bare = STRING.sub("", text)
    if sum(map(bare.count, ",[{")) > most:
        raise ValueError(f"holds more than {most} values")


def refuse_constant(name: str) -> Json:
    """NaN and the infinities are Python's, not JSON's."""
    raise ValueError(f"holds {name}, which is not a JSON number")


def parse_float(text: str) -> float:
    """A number that a program can go on with."""
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"holds the number {text[:40]}, which is too large")
    return value


def check_depth(value: object) -> None:
    """Raise RecursionError when other code could not walk through `value`."""
    level = [value]
    for _ in range(MAX_DEPTH):
        inside: list[object] = []
        for each in level:
            if isinstance(each, dict):
                inside.extend(each.values())
            elif isinstance(each, list):
                inside.extend(each)
        if not inside:
            return
        level = inside
    raise RecursionError


def parse_object(
    content: bytes | str,
    where: str,
    *,
    hint: str = DAMAGED,
    whole: bool = False,
    most: int = MOST_VALUES,
) -> dict[str, Json]:
    """The JSON object in `content`.  Raises InputError as parse_json() and for other values."""
    value = parse_json(content, where, hint=hint, whole=whole, most=most)
    if not isinstance(value, dict):
        raise InputError("is not a JSON object", where=where, hint=hint)
    return value


def read_bytes(path: Path) -> bytes:
    """The content of a file of bounded size.  Raises OSError as plain_file()."""
    with plain_file(path) as stream:
        return stream.read(MAX_BYTES + 1)


def read_object(path: Path, *, hint: str = DAMAGED, whole: bool = False) -> dict[str, Json]:
    """The JSON object in the file at `path`.  Raises InputError."""
    return parse_object(read_or_say(path, hint), os.fspath(path), hint=hint, whole=whole)


def read_or_say(path: Path, hint: str) -> bytes:
    """The content of a file.  Raises InputError."""
    try:
        return read_bytes(path)
    except OSError as error:
        what = f"cannot be read: {error.strerror}"
        raise InputError(what, where=os.fspath(path), hint=hint) from error


def find_object(path: Path) -> dict[str, Json] | None:
    """The object in a file that only saves time; None when it is missing or damaged."""
    try:
        return read_object(path)
    except ImagebuilderError:
        return None


def keep_object(path: Path, value: Mapping[str, object]) -> None:
    """Write a file that only saves time, for find_object(); a failure is ignored."""
    with suppress(OSError):
        make_folder(path.parent)
        write_file(path, json.dumps(value).encode())


@cache
def find_adapter(kind: Hashable) -> TypeAdapter[object]:
    """The validator of a type; making one is slow."""
    return TypeAdapter(cast("type[object]", kind))


def validate(kind: type[T], value: object) -> T:
    """A JSON value as the dataclass or model `kind`.  Raises pydantic's ValidationError."""
    validator = find_adapter(cast("Hashable", kind))
    return cast("T", validator.validate_json(json.dumps(value), strict=True))


def decode_box(kind: type[T], value: object, where: str, *, hint: str = DAMAGED) -> T:
    """A JSON value as the dataclass or model `kind`.  Raises InputError for another shape."""
    try:
        return validate(kind, value)
    except ValidationError as error:
        _, what = describe(error)
        raise InputError(f"is damaged: {what}", where=where, hint=hint) from error


def describe(error: ValidationError) -> tuple[Place, str]:
    """Where the first fault of a value is, and a line that names it: `layers[1].size: ...`."""
    first = error.errors(include_url=False, include_input=False)[0]
    at = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in first["loc"])
    what = WORDS.get(first["type"], first["msg"].removeprefix("Value error, "))
    return first["loc"], f"{at.lstrip('.')}: {what}".removeprefix(": ")


def encode_box(box: object, *, nulls: bool = True) -> dict[str, Json]:
    """A dataclass as the JSON object that decode_box() reads; without `nulls` no field is null."""
    adapter = find_adapter(cast("Hashable", type(box)))
    value = adapter.dump_python(box, mode="json", by_alias=True, exclude_none=not nulls)
    return cast("dict[str, Json]", value)


@dataclass(frozen=True)
class JsonFile(Generic[T]):
    """A kind of JSON file that later versions of this program read: a box and a schema number.

    `derived` names properties of the box that are written for other programs.  A file in which one
    of them does not follow from the rest is damaged.  `hint` says what to do about such a file.
    `unnumbered` says that files without a number are of this schema: older versions wrote them.
    """

    kind: type[T]
    schema: int
    hint: str
    derived: tuple[str, ...] = ()
    unnumbered: bool = False

    def encode(self, box: T, *, nulls: bool = True) -> dict[str, Json]:
        """The box as a JSON object; equal boxes give equal objects."""
        return {"schema": self.schema, **self.derive(box), **encode_box(box, nulls=nulls)}

    def render(self, box: T) -> str:
        value = self.encode(box)
        return json.dumps(value, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

    def load(self, path: Path) -> T:
        """The box in a file.  Raises InputError."""
        content, where = read_or_say(path, self.hint), os.fspath(path)
        return self.decode(parse_json(content, where, hint=self.hint), where)

    def find_line(self, line: bytes) -> T | None:
        """The box in a line of a journal; None for a damaged line."""
        try:
            return self.decode(parse_json(line, "journal"), "journal")
        except InputError:
            return None

    def derive(self, box: T) -> dict[str, Json]:
        return {name: getattr(box, name) for name in self.derived}

    def decode(self, value: object, where: str) -> T:
        """The box in a decoded file.  Raises InputError that names `where` and the key."""
        if not isinstance(value, Mapping):
            raise InputError("is not a JSON object", where=where, hint=self.hint)
        if "schema" not in value and not self.unnumbered:
            what = "is damaged: schema: is missing"
            raise InputError(what, where=where, hint=self.hint)
        schema = value.get("schema", self.schema)
        if schema != self.schema or isinstance(schema, bool):
            newer = isinstance(schema, int) and schema > self.schema
            raise InputError(
                f"is of schema {schema}; this imagebuilder reads {self.schema}",
                where=where,
                hint="use the imagebuilder that wrote it, or a newer one" if newer else self.hint,
            )
        own = {key: value[key] for key in value if key not in ("schema", *self.derived)}
        box = decode_box(self.kind, own, where, hint=self.hint)
        for name, derived in self.derive(box).items():
            if value.get(name) != derived:
                what = f"is damaged: {name}: does not follow from the rest"
                raise InputError(what, where=where, hint=self.hint)
        return box


@contextmanager
def reading(where: str, hint: str = DAMAGED) -> Iterator[None]:
    """A block that takes a decoded value apart; another shape than it expects is an InputError."""
    try:
        yield
    except (LookupError, TypeError, AttributeError, ValueError) as error:
        what = f"is damaged: {type(error).__name__}: {str(error)[:200]}"
        raise InputError(what, where=where, hint=hint) from error
