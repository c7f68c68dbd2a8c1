# SPDX-License-Identifier: Apache-2.0
"""The lock on disk: JSON with one package per line, and a digest that detects manual edits."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import cast

from pydantic import ValidationError

from imagebuilder.decode import describe, encode_box, parse_json, read_or_say, validate
from imagebuilder.digest import Json, digest_of
from imagebuilder.errors import InputError, WorkError
from imagebuilder.files import write_file
from imagebuilder.lock.difference import lock_differences
from imagebuilder.lock.storage import make_folder, storing
from imagebuilder.lock.types import SCHEMA, Lock

__all__ = [
    "check_lock",
    "find_lock",
    "find_siblings",
    "load_lock",
    "lock_differences",
    "make_lock_file",
    "render_lock",
]

HEAD = ("schema", "digest")
INDENT = " "
SPACE = re.compile(r"[ \t\r\n]*")


def find_siblings(path: Path, tell: Callable[[str], None]) -> list[Lock]:
    """The locks beside `path`; the error of an unreadable one only goes to `tell`."""
    found = []
    for sibling in sorted(path.parent.glob("[!.]*.lock")):
        if sibling == path:
            continue
        try:
            found.append(load_lock(sibling))
        except InputError as error:
            tell(f"{error.faults[0]}")
    return found


def find_lock(path: Path) -> Lock | None:
    """The lock at `path`, None if it does not exist.  Raises as load_lock()."""
    return load_lock(path) if path.exists() else None


def load_lock(path: Path) -> Lock:
    """The lock at `path`.

    Raises InputError when it is missing, is not a lock of this version, or was edited by hand.
    """
    hint = relock_hint(os.fspath(path))
    try:
        text = read_or_say(path, hint).decode()
    except UnicodeDecodeError as error:
        raise InputError("is not UTF-8 text", where=os.fspath(path), hint=hint) from error
    return parse_lock(text, os.fspath(path))


def parse_lock(text: str, where: str) -> Lock:
    """The lock in `text`, called `where` in errors.  Raises InputError."""
    hint = relock_hint(where)
    if not text.strip():
        raise InputError("is empty", where=where, hint=hint)
    data = parse_json(text, where, hint=hint_for(text, hint))
    if not isinstance(data, Mapping) or data.get("schema") != SCHEMA:
        found = data.get("schema") if isinstance(data, Mapping) else None
        raise InputError(
            f"its schema is {found}, this imagebuilder reads {SCHEMA}",
            where=f"{where}:1",
            hint=hint,
        )
    content = {name: value for name, value in data.items() if name not in HEAD}
    try:
        lock = validate(Lock, content)
    except ValidationError as error:
        loc, what = describe(error)
        raise InputError(what, where=f"{where}:{line_of(text, loc)}", hint=hint) from error
    if data.get("digest") != digest_of(content):
        at = f"{where}:{line_of(text, ('digest',))}"
        raise InputError("edited by hand: its digest does not match", where=at, hint=hint)
    return lock


def check_lock(lock: Lock) -> None:
    """Raise WorkError unless load_lock() will take what archives and indexes said for `lock`."""
    try:
        validate(Lock, encode_box(lock))
    except ValidationError as error:
        _, what = describe(error)
        raise WorkError(
            f"an archive or an index says {error.errors()[0]['input']!r}, which no lock may "
            f"contain\n    {what}",
            hint="use another mirror or index, or ask its owner",
        ) from error


def relock_hint(where: str) -> str:
    return f"run imagebuilder lock {Path(where).stem} to write a new one"


def hint_for(text: str, hint: str) -> str:
    """The hint for a file that is not JSON; git may have left conflict markers."""
    if re.search(r"^(<<<<<<<|>>>>>>>)", text, re.MULTILINE):
        return f"a merge left conflict markers: {hint}"
    return hint


def line_of(text: str, loc: tuple[int | str, ...]) -> int:
    """The line of a value in JSON text, or of the nearest existing value around it."""
    at = 0
    for part in loc:
        found = find_inside(text, at, part)
        if found is None:
            break
        at = found
    return text.count("\n", 0, SPACE.match(text, at).end()) + 1  # type: ignore[union-attr]


def find_inside(text: str, at: int, part: int | str) -> int | None:
    """The position of the value at a key or index, in the value that begins at `at`."""
    decoder = json.JSONDecoder()
    at = SPACE.match(text, at).end()  # type: ignore[union-attr]
    if text[at : at + 1] not in ("{", "["):
        return None
    named, number = text[at] == "{", 0
    while True:
        at = SPACE.match(text, at + 1).end()  # type: ignore[union-attr]
        if text[at : at + 1] in ("}", "]"):
            return None
        key: object = number
        if named:
            key, at = decoder.raw_decode(text, at)
            at = SPACE.match(text, text.index(":", at) + 1).end()  # type: ignore[union-attr]
        if key == part:
            return at
        _, at = decoder.raw_decode(text, at)
        at, number = SPACE.match(text, at).end(), number + 1  # type: ignore[union-attr]
        if text[at : at + 1] != ",":
            return None


def make_lock_file(lock: Lock, path: Path) -> None:
    """Write `lock` to `path` atomically, with the owner of its folder.

    Raises HostError if the file cannot be written.
    """
    with storing(path.parent):
        make_folder(path.parent)
        above = path.parent.stat()
        owner, group = (above.st_uid, above.st_gid) if os.geteuid() == 0 else (-1, -1)
        write_file(path, render_lock(lock).encode(), owner=owner, group=group)


def render_lock(lock: Lock) -> str:
    """The text of a lock file: canonical, with one package, wheel or source per line."""
    content = encode_box(lock)
    whole: Json = {"schema": SCHEMA, "digest": digest_of(content), **content}
    return "\n".join(lines_of(whole, "")) + "\n"


def lines_of(value: Json, indent: str) -> Iterator[str]:
    """The lines of a JSON value: one line unless it contains a list of objects."""
    inner = indent + INDENT
    if isinstance(value, Mapping) and any(holds_objects(each) for each in value.values()):
        yield indent + "{"
        last = len(value) - 1
        for number, (name, each) in enumerate(value.items()):
            lines = list(lines_of(each, inner))
            lines[0] = f"{inner}{json.dumps(name)}: {lines[0].lstrip()}"
            yield from (*lines[:-1], lines[-1] + ("," if number < last else ""))
        yield indent + "}"
    elif holds_objects(value) and not isinstance(value, Mapping):
        elements = cast(list[Json], value)
        yield indent + "["
        for number, each in enumerate(elements):
            lines = list(lines_of(each, inner))
            yield from (*lines[:-1], lines[-1] + ("," if number < len(elements) - 1 else ""))
        yield indent + "]"
    else:
        yield indent + json.dumps(value, ensure_ascii=False)


def holds_objects(value: Json) -> bool:
    return isinstance(value, list) and any(isinstance(each, Mapping) for each in value)
