# SPDX-License-Identifier: Apache-2.0
"""YAML 1.2 with a position for every key and value, read within fixed bounds.

Values are built from the parser's events, never from tags: nothing in a file can name a Python
type.  Size, depth and the number of nodes (aliases expanded) are bounded while reading.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Lock

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import (
    AliasEvent,
    DocumentStartEvent,
    Event,
    MappingEndEvent,
    MappingStartEvent,
    NodeEvent,
    ScalarEvent,
    SequenceEndEvent,
    SequenceStartEvent,
)
from ruamel.yaml.reader import ReaderError

from imagebuilder.errors import Fault, InputError
from imagebuilder.files import plain_file
from imagebuilder.plain import read_most

Yaml = None | bool | int | float | str | list["Yaml"] | dict[str, "Yaml"]
Key = str | int
KeyPath = tuple[Key, ...]

MAX_BYTES = 256 * 1024
MAX_NODES = 20_000
MAX_DEPTH = 24
TEXT = 1024  # characters of one scalar that count as one more value
MOST_READ = 128

# The YAML 1.2 core schema (chapter 10.3.2 of the specification).
CONSTANTS: Mapping[str, bool | None] = {
    "": None, "~": None, "null": None, "Null": None, "NULL": None,
    "true": True, "True": True, "TRUE": True,
    "false": False, "False": False, "FALSE": False,
}  # fmt: skip
INTEGER = re.compile(r"[-+]?[0-9]{1,18}|0o[0-7]{1,20}|0x[0-9a-fA-F]{1,15}")
NUMBER = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.inf|\.nan", re.I)
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\ud800-\udfff]")


@dataclass(frozen=True)
class Mark:
    """Where something is, from 1, and how it is written (empty for lists and mappings)."""

    line: int
    column: int
    raw: str = ""


@dataclass(frozen=True)
class Document:
    """One file as it was read: the top-level mapping and the position of everything in it.

    `shown` is the name for people; `values` and `keys` map a path of keys and indices to the mark
    of the value and of the key.
    """

    shown: str
    value: dict[str, Yaml]
    values: Mapping[KeyPath, Mark]
    keys: Mapping[KeyPath, Mark]

    def mark(self, path: KeyPath, *, of_key: bool = False) -> Mark:
        """The mark of `path`, or of the nearest value around it that was written."""
        if of_key and path in self.keys:
            return self.keys[path]
        while path not in self.values:
            path = path[:-1]
        return self.values[path]

    def fault(self, path: KeyPath, what: str, hint: str = "", *, of_key: bool = False) -> Fault:
        mark = self.mark(path, of_key=of_key)
        where = f"{self.shown}:{mark.line}:{mark.column}"
        return Fault(where, f"{render_path(path)}: {what}" if path else what, hint)


@dataclass(frozen=True)
class Parsed:
    """A document without the name of its file; nobody may change its value."""

    value: dict[str, Yaml]
    values: Mapping[KeyPath, Mark]
    keys: Mapping[KeyPath, Mark]


class Shelf:
    """The documents that were read last, by the checksum of their bytes: one command reads bases,
    overlays and nodes.yaml many times.

    `before` are those that an earlier command read (recipe/memory.py).
    """

    def __init__(self) -> None:
        self.before: Mapping[str, Parsed] = {}
        self.read: dict[str, Parsed] = {}
        self.lock = Lock()

    def find(self, content: bytes, parse: Callable[[], Parsed]) -> Parsed:
        """The document in `content`.  Raises what `parse` raises, each time."""
        name = hashlib.sha256(content).hexdigest()
        found = self.read.get(name) or self.before.get(name) or parse()
        with self.lock:
            self.read.pop(name, None)
            self.read[name] = found
            if len(self.read) > MOST_READ:
                del self.read[next(iter(self.read))]
        return found


SHELF = Shelf()


@dataclass(frozen=True)
class Origin:
    """Where something was written."""

    document: Document
    path: KeyPath

    @property
    def where(self) -> str:
        return self.fault("").where

    def fault(self, what: str, hint: str = "") -> Fault:
        return self.document.fault(self.path, what, hint)


def render_path(path: KeyPath) -> str:
    """`("overlays", 2, "when")` as people read it: `overlays[2].when`."""
    text = ""
    for key in path:
        if isinstance(key, int):
            text += f"[{key}]"
        elif re.fullmatch(r"[A-Za-z0-9_-]+", key):
            text += f".{key}" if text else key
        else:
            text += f"[{json.dumps(key, ensure_ascii=False)}]"
    return text


def load_document(path: Path, shown: str) -> Document:
    """Read the file at `path`, called `shown` in messages.  Raises InputError."""
    return parse_document(read_content(path, shown), shown)


def read_content(path: Path, shown: str, most: int = MAX_BYTES) -> bytes:
    """At most `most` + 1 bytes of the file at `path`.  Raises InputError."""
    try:
        if not path.is_file():
            raise InputError("is not a file" if path.exists() else "does not exist", where=shown)
        with plain_file(path) as stream:
            return read_most(stream.fileno(), most)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=shown) from error


def parse_document(content: bytes, shown: str) -> Document:
    """The document in `content`.  Raises InputError: every duplicate key, or the first fault."""
    parsed = SHELF.find(content, lambda: parse_content(content, shown))
    value = {key: copy_of(each) for key, each in parsed.value.items()}
    return Document(shown, value, parsed.values, parsed.keys)


def copy_of(value: Yaml) -> Yaml:
    """A copy; copy.deepcopy() takes three times as long."""
    if isinstance(value, dict):
        return {key: copy_of(each) for key, each in value.items()}
    return [copy_of(each) for each in value] if isinstance(value, list) else value


def parse_content(content: bytes, shown: str) -> Parsed:
    """The content of a document.  Raises InputError."""
    builder = Builder(shown)
    value = read_value(content, builder)
    if not isinstance(value, dict):
        what = "is empty" if value is None else "must be a mapping of keys to values"
        raise InputError(what, where=f"{shown}:1:1")
    return Parsed(value, builder.values, builder.keys)


def read_value(content: bytes, builder: Builder) -> Yaml:
    """What `builder` makes of the only document in `content`.  Raises InputError."""
    shown = builder.shown
    if len(content) > builder.most_bytes:
        raise InputError(f"is larger than {builder.most_bytes // 1024} KiB", where=shown)
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise InputError("is not UTF-8 text", where=f"{shown}:{line}") from error
    try:
        value = builder.build(iter(YAML(typ="safe", pure=True).parse(text)))
    except YAMLError as error:
        raise InputError.of([syntax_fault(error, text, shown)]) from error
    except (ValueError, IndexError, AttributeError) as error:  # escapes of the parser, on odd input
        raise InputError(f"not valid YAML: {error}", where=shown) from error
    if builder.faults:
        raise InputError.of(builder.faults)
    return value


def syntax_fault(error: YAMLError, text: str, shown: str) -> Fault:
    """What the YAML parser objects to, and where."""
    if isinstance(error, ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return Fault(f"{shown}:{line}", "control characters are not allowed")
    problem = error.problem if isinstance(error, MarkedYAMLError) else str(error)
    what = f"not valid YAML: {str(problem).splitlines()[0]}"
    mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
    if mark is None:
        return Fault(shown, what)
    return Fault(f"{shown}:{mark.line + 1}:{mark.column + 1}", what)


class Builder:
    """Turns the events of one document into a value and its marks; `faults` are duplicate keys."""

    most_bytes, most_nodes, most_deep = MAX_BYTES, MAX_NODES, MAX_DEPTH

    def __init__(self, shown: str) -> None:
        self.shown = shown
        self.values: dict[KeyPath, Mark] = {}
        self.keys: dict[KeyPath, Mark] = {}
        self.faults: list[Fault] = []
        self.anchors: dict[str, tuple[Yaml, int, int]] = {}  # with number of values, and depth
        self.nodes = 0
        self.reached = 0  # the greatest depth since the outermost value began

    def build(self, events: Iterator[Event]) -> Yaml:
        """The value of the only document in `events`; None if it is empty."""
        value: Yaml = None
        documents = 0
        self.values[()] = Mark(1, 1)
        for event in events:
            if isinstance(event, DocumentStartEvent):
                documents += 1
            elif isinstance(event, NodeEvent):
                value = self.node(event, events, ())
            if documents > 1:
                raise self.refusal(event, "a second document (`---`) is not allowed")
        return value

    def node(self, event: Event, events: Iterator[Event], path: KeyPath) -> Yaml:
        """The value that starts with `event`, its marks noted under `path`."""
        before, reached, self.reached = self.nodes, self.reached, 0
        raw = event.value if isinstance(event, ScalarEvent) else ""
        self.count(event, 1 + len(raw) // TEXT, len(path))
        self.values[path] = Mark(event.start_mark.line + 1, event.start_mark.column + 1, raw)
        if isinstance(event, AliasEvent):
            self.reached = max(self.reached, reached)
            return self.alias(event, path)
        if (tag := getattr(event, "tag", None)) is not None:
            self.check_tag(event, tag)
        value = self.content(event, events, path)
        if anchor := getattr(event, "anchor", None):
            self.anchors[anchor] = (value, self.nodes - before, self.reached - len(path))
        self.reached = max(self.reached, reached)
        return value

    def check_tag(self, event: Event, tag: str) -> None:
        raise self.refusal(event, f"the tag {tag} is not allowed", "write plain values")

    def content(self, event: Event, events: Iterator[Event], path: KeyPath) -> Yaml:
        """The scalar, list or mapping that starts with `event`."""
        if isinstance(event, ScalarEvent):
            return self.scalar(event)
        if isinstance(event, SequenceStartEvent):
            return self.sequence(events, path)
        assert isinstance(event, MappingStartEvent)
        return self.mapping(events, path)

    def sequence(self, events: Iterator[Event], path: KeyPath) -> list[Yaml]:
        items: list[Yaml] = []
        while not isinstance(event := next(events), SequenceEndEvent):
            items.append(self.node(event, events, (*path, len(items))))
        return items

    def mapping(self, events: Iterator[Event], path: KeyPath) -> dict[str, Yaml]:
        """A mapping, up to its end.  Keys are text as written: `0644:` is the key "0644"."""
        items: dict[str, Yaml] = {}
        while not isinstance(event := next(events), MappingEndEvent):
            if not isinstance(event, ScalarEvent) or event.tag is not None:
                raise self.refusal(event, "a key must be plain text")
            key = self.text(event)
            here = (*path, key)
            if key in items:
                first = self.keys[here]
                what = f"{render_path(here)}: the key is already on line {first.line}"
                self.faults.append(self.refusal(event, what).faults[0])
            mark = event.start_mark
            self.keys.setdefault(here, Mark(mark.line + 1, mark.column + 1, key))
            items[key] = self.node(next(events), events, here)
        return items

    def scalar(self, event: ScalarEvent) -> Yaml:
        """A plain scalar by the core schema, a quoted one as text."""
        text = self.text(event)
        if not event.implicit[0]:
            return text
        if text in CONSTANTS:
            return CONSTANTS[text]
        if INTEGER.fullmatch(text):
            return int(text, 0) if text[:2] in {"0x", "0o"} else int(text)
        if NUMBER.fullmatch(text):
            return (
                math.nan if text.lower() == ".nan" else float(text.lower().replace(".inf", "inf"))
            )
        return text

    def text(self, event: ScalarEvent) -> str:
        """The text of a scalar.  Raises InputError for control characters, which escapes allow."""
        text: str = event.value
        if CONTROL.search(text):
            raise self.refusal(event, "control characters are not allowed")
        return text

    def alias(self, event: AliasEvent, path: KeyPath) -> Yaml:
        """The anchored value, counted once more so that aliases cannot grow without bounds."""
        if event.anchor not in self.anchors:
            raise self.refusal(event, f"no anchor named &{event.anchor[:80]} before this")
        value, size, depth = self.anchors[event.anchor]
        self.count(event, size, len(path) + depth)
        return value

    def count(self, event: Event, nodes: int, depth: int) -> None:
        """Add to the bounds.  Raises InputError beyond them."""
        self.nodes += nodes
        self.reached = max(self.reached, depth)
        if self.nodes > self.most_nodes:
            raise self.refusal(event, f"more than {self.most_nodes} values, aliases expanded")
        if depth > self.most_deep:
            raise self.refusal(event, f"nested deeper than {self.most_deep} levels")

    def refusal(self, event: Event, what: str, hint: str = "") -> InputError:
        mark = event.start_mark
        return InputError(what, where=f"{self.shown}:{mark.line + 1}:{mark.column + 1}", hint=hint)
