# SPDX-License-Identifier: Apache-2.0
"""Dataclasses as JSON and back: the keys are the names of the fields.

Reading is strict: a key that is missing, unknown or of another kind is a fault that is named, never
a guess.  A field with a default may be missing: it was added later, or says nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import datetime, timedelta
from enum import Enum
from functools import cache
from types import NoneType, UnionType
from typing import TypeVar, get_args, get_origin, get_type_hints

from imagebuilder.digest import Json

T = TypeVar("T")
DIGITS = 3  # of seconds: a millisecond is more than any clock here is worth
LARGEST = 1 << 63  # of a number


class FaultyError(Exception):
    """A key is not as it must be; the text names it."""


def encode_fields(box: object) -> dict[str, Json]:
    assert is_dataclass(box)
    return {field.name: encode(getattr(box, field.name)) for field in fields(box)}


def encode(value: object) -> Json:
    """What a field holds, as JSON has it."""
    if isinstance(value, Mapping):
        return {str(key): encode(value[key]) for key in sorted(value)}
    if isinstance(value, tuple):
        return [encode(item) for item in value]
    if is_dataclass(value):
        return encode_fields(value)
    if isinstance(value, Enum):
        return str(value.value)
    if isinstance(value, float):
        return round(value, DIGITS)
    assert value is None or isinstance(value, bool | int | str)
    return value


@dataclass(frozen=True)
class Shape:
    """A box for reading: the kind of each field by name, and those that must be there."""

    kinds: Mapping[str, object]
    needed: frozenset[str]


@cache
def find_shape(box: type) -> Shape:
    """The shape of a dataclass; finding it is slow, and a report has hundreds of boxes."""
    assert is_dataclass(box)
    missing = (f.name for f in fields(box) if f.default is MISSING)
    return Shape(get_type_hints(box), frozenset(missing))


@cache
def find_parts(kind: object) -> tuple[object, tuple[object, ...]]:
    """What an annotation is made of: tuple, Mapping, UnionType or None, and its arguments."""
    origin = UnionType if isinstance(kind, UnionType) else get_origin(kind)
    return origin, tuple(part for part in get_args(kind) if part is not NoneType)


def decode(kind: object, value: object, key: str) -> object:
    """`value`, found at `key`, as what the annotation `kind` says.  Raises FaultyError."""
    origin, parts = find_parts(kind)
    if origin is UnionType:
        return None if value is None else decode(parts[0], value, key)
    if origin is tuple:
        items = need(list, value, key, "a list")
        return tuple(decode(parts[0], item, f"{key}[{i}]") for i, item in enumerate(items))
    if origin is Mapping:
        found = need(dict, value, key, "an object")
        return {
            decode(parts[0], name, f"{key}.{name}"): decode(parts[1], item, f"{key}.{name}")
            for name, item in found.items()
        }
    assert isinstance(kind, type)
    if is_dataclass(kind):
        return decode_fields(kind, need(dict, value, key, "an object"), key)
    if issubclass(kind, Enum):
        return decode_word(kind, need(str, value, key, "a text"), key)
    if kind in (int, float):
        return decode_number(kind, value, key)
    return need(kind, value, key, {str: "a text", bool: "true or false"}[kind])


def decode_fields(kind: type, value: dict[str, object], key: str) -> object:
    shape = find_shape(kind)
    prefix = f"{key}." if key else ""
    for name in sorted(shape.needed - value.keys()):
        raise FaultyError(f"{prefix}{name}: is missing")
    for name in sorted(value.keys() - shape.kinds.keys()):
        raise FaultyError(f"{prefix}{name}: there is no such key")
    return kind(
        **{name: decode(shape.kinds[name], item, f"{prefix}{name}") for name, item in value.items()}
    )


def decode_word(kind: type[Enum], value: str, key: str) -> Enum:
    try:
        return kind(value)
    except ValueError:
        words = ", ".join(str(member.value) for member in kind)
        raise FaultyError(f"{key}: is {value!r}, not one of {words}") from None


def decode_number(kind: type, value: object, key: str) -> int | float:
    """A number that is not negative, and no more than a number can be."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or (kind is int and not isinstance(value, int)):
        raise FaultyError(f"{key}: is not a {'whole ' if kind is int else ''}number")
    assert isinstance(value, int | float)
    if not 0 <= value < LARGEST:  # neither is NaN
        raise FaultyError(f"{key}: is not a number between 0 and 2^63")
    return value if kind is int else float(value)


def need(kind: type[T], value: object, key: str, what: str) -> T:
    if not isinstance(value, kind):
        raise FaultyError(f"{key}: is not {what}")
    return value


def check_utc(text: str, key: str) -> None:
    """Raise FaultyError unless it is a time in UTC (ISO 8601)."""
    try:
        offset = datetime.fromisoformat(text).utcoffset()
    except ValueError:
        offset = None
    if offset != timedelta(0):
        raise FaultyError(f"{key}: {text!r} is not a time in UTC")
