# SPDX-License-Identifier: Apache-2.0
"""The lock on disk: JSON with one package a line, and a digest that tells edits by hand."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from io import StringIO
from pathlib import Path
from typing import cast

from pydantic import TypeAdapter, ValidationError
from ruamel.yaml import YAML

from imagebuilder.digest import Json, digest_of
from imagebuilder.errors import InputError
from imagebuilder.lock.difference import lock_differences
from imagebuilder.lock.storage import beside, make_folder, storing, sync
from imagebuilder.lock.types import SCHEMA, Lock

__all__ = ["find_lock", "load_lock", "lock_differences", "make_lock_file", "render_lock"]

AGAIN = "imagebuilder lock PROFILE writes it again"
HEAD = ("schema", "digest")
INDENT = " "


def find_lock(path: Path) -> Lock | None:
    """The lock at `path`, None when there is none.  Raises as load_lock()."""
    return load_lock(path) if path.exists() else None


def load_lock(path: Path) -> Lock:
    """The lock at `path`.

    Raises InputError when it is missing, is not a lock of this version, or was edited by hand.
    """
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"cannot be read: {error}", where=os.fspath(path), hint=AGAIN) from error
    return parse_lock(text, os.fspath(path))


def parse_lock(text: str, where: str) -> Lock:
    """The lock that `text` is; `where` names it in errors.  Raises InputError."""
    try:
        given = cast(Json, json.loads(text))
    except json.JSONDecodeError as error:
        at = f"{where}:{error.lineno}:{error.colno}"
        raise InputError(f"not JSON: {error.msg}", where=at, hint=hint_for(text)) from error
    if not isinstance(given, Mapping) or given.get("schema") != SCHEMA:
        found = given.get("schema") if isinstance(given, Mapping) else None
        raise InputError(
            f"its schema is {found}, this imagebuilder reads {SCHEMA}",
            where=f"{where}:1",
            hint=AGAIN,
        )
    content = {name: value for name, value in given.items() if name not in HEAD}
    try:
        lock = TypeAdapter(Lock).validate_json(json.dumps(content), strict=True)
    except ValidationError as error:
        first = error.errors()[0]
        at = f"{where}:{line_of(text, first['loc'])}"
        raise InputError(
            f"{path_of(first['loc'])}: {first['msg']}", where=at, hint=AGAIN
        ) from error
    if given.get("digest") != digest_of(content):
        at = f"{where}:{line_of(text, ('digest',))}"
        raise InputError("edited by hand: its digest does not match", where=at, hint=AGAIN)
    return lock


def hint_for(text: str) -> str:
    """What to do about a file that is not JSON: git leaves its own marks."""
    if re.search(r"^(<<<<<<<|>>>>>>>)", text, re.MULTILINE):
        return f"a merge left its marks; take either side, and {AGAIN}"
    return AGAIN


def path_of(loc: tuple[int | str, ...]) -> str:
    """A place in the file as `layers[1].packages[3].sha256`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def line_of(text: str, loc: tuple[int | str, ...]) -> int:
    """The line of a place in JSON text, or of the nearest thing around it that is there."""
    node: object = YAML().load(StringIO(text))
    line = 0
    for part in loc:
        try:
            position, node = node.lc.data[part], node[part]  # type: ignore[attr-defined,index]
        except (AttributeError, KeyError, IndexError, TypeError):
            break
        line = position[0]
    return line + 1


def make_lock_file(lock: Lock, path: Path) -> None:
    """Write `lock` to `path`, whole or not at all, owned as its folder.

    Raises HostError when the place does not take it.
    """
    with storing(path.parent):
        make_folder(path.parent)
        new = beside(path)
        try:
            new.write_text(render_lock(lock))
            sync(new)
            if os.geteuid() == 0:
                owner = path.parent.stat()
                os.chown(new, owner.st_uid, owner.st_gid)
            new.replace(path)
        finally:
            new.unlink(missing_ok=True)
        sync(path.parent)


def render_lock(lock: Lock) -> str:
    """The text of a lock file: canonical, and a package, wheel or source a line."""
    content = cast(Mapping[str, Json], json.loads(json.dumps(asdict(lock))))
    whole: Json = {"schema": SCHEMA, "digest": digest_of(content), **content}
    return "\n".join(lines_of(whole, "")) + "\n"


def lines_of(value: Json, indent: str) -> Iterator[str]:
    """A JSON value over lines: what holds no list is one line."""
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
    """Whether `value` is a list of objects."""
    return isinstance(value, list) and any(isinstance(each, Mapping) for each in value)
