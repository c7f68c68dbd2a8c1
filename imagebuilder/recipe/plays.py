# SPDX-License-Identifier: Apache-2.0
"""The plays and tasks of a file, as Ansible reads YAML: with tags, and with merge keys (`<<`).

What Ansible's own reader is sure to refuse is refused here, before anything is built.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path

from ruamel.yaml.events import AliasEvent, Event, MappingEndEvent, ScalarEvent

from imagebuilder.phrases import quote
from imagebuilder.recipe.positions import (
    Builder,
    KeyPath,
    Mark,
    Yaml,
    read_content,
    read_value,
)

MERGE = "<<"
MOST_DIGITS = 4300  # of a number that Python reads
DATE = re.compile(r"(\d{4})-(\d{1,2})-(\d{1,2})(?:[Tt \t].*)?", re.DOTALL)
DIGITS = re.compile(r"[-+]?[0-9_]+")
CORE = "tag:yaml.org,2002:"
# What a scalar with one of YAML's own tags must look like (YAML 1.1, which Ansible reads).
TAGGED = {
    f"{CORE}int": re.compile(r"[-+]?(0b[01_]+|0x[0-9a-fA-F_]+|[0-9][0-9_]*(:[0-5]?[0-9])*)"),
    f"{CORE}float": re.compile(
        r"[-+]?([0-9_]*\.?[0-9][0-9_]*\.?([eE][-+]?[0-9]+)?|[0-9_]+(:[0-5]?[0-9])+(\.[0-9_]*)?"
        r"|\.(inf|Inf|INF))|\.(nan|NaN|NAN)"
    ),
    f"{CORE}bool": re.compile(r"yes|no|true|false|on|off", re.IGNORECASE),
    f"{CORE}timestamp": DATE,
}


class PlayEntry(dict[str, Yaml]):
    """A play, a task or another mapping; `marks` has where each key is written."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: dict[str, Mark] = {}

    def put(self, key: str, value: Yaml, mark: Mark) -> None:
        self[key] = value
        self.marks[key] = mark


def read_entries(path: Path, shown: str) -> list[PlayEntry]:
    """The plays or tasks of the file at `path`, called `shown` in messages.  Raises InputError."""
    builder = PlayBuilder(shown)
    found = read_value(read_content(path, shown, builder.most_bytes), builder)
    return entries_of(found)


def entries_of(value: Yaml) -> list[PlayEntry]:
    """The mappings in a list; empty for anything else."""
    return (
        [item for item in value if isinstance(item, PlayEntry)] if isinstance(value, list) else []
    )


class PlayBuilder(Builder):
    """Turns the events of a file of Ansible's into lists, entries and scalars."""

    most_bytes, most_nodes, most_deep = 1 << 20, 100_000, 100

    def check_tag(self, event: Event, tag: str) -> None:
        fits = TAGGED.get(str(tag))
        if fits and isinstance(event, ScalarEvent) and not fits.fullmatch(event.value):
            kind = str(tag).removeprefix(CORE)
            raise self.refusal(event, f"{quote(event.value)} is not what !!{kind} announces")

    def mapping(self, events: Iterator[Event], path: KeyPath) -> PlayEntry:
        """A mapping, up to its end; of equal keys the last one counts, as for Ansible."""
        entry = PlayEntry()
        merged: list[PlayEntry] = []
        while not isinstance(event := next(events), MappingEndEvent):
            key = self.key(event)
            value = self.node(next(events), events, (*path, key))
            if key == MERGE and isinstance(event, ScalarEvent) and event.implicit[0]:
                merged = [*self.merged(event, value), *merged]
            else:
                mark = event.start_mark
                entry.put(key, value, Mark(mark.line + 1, mark.column + 1))
        for other in merged:
            for key in other.keys() - entry.keys():
                entry.put(key, other[key], other.marks[key])
        return entry

    def key(self, event: Event) -> str:
        """The text of a key; for an alias, that of the value it repeats."""
        if isinstance(event, ScalarEvent):
            return self.text(event)
        value = self.alias(event, ()) if isinstance(event, AliasEvent) else []
        if isinstance(value, list | dict):
            raise self.refusal(event, "a key must be plain text", "put a template in quotes")
        return str(value)

    def merged(self, event: Event, value: Yaml) -> list[PlayEntry]:
        """What a merge key adds: a mapping or those of a list, the first before the others."""
        found = [value] if isinstance(value, PlayEntry) else entries_of(value)
        if not isinstance(value, PlayEntry) and (
            not isinstance(value, list) or len(found) < len(value)
        ):
            raise self.refusal(event, f"{MERGE} needs a mapping, or a list of mappings")
        return found

    def scalar(self, event: ScalarEvent) -> Yaml:
        """A scalar, tagged ones as text; refuses what only looks like a date or number."""
        if event.tag is not None:
            return self.text(event)
        text: str = event.value
        if event.implicit[0] and len(text) > MOST_DIGITS and DIGITS.fullmatch(text):
            what = f"a number of {len(text)} digits is too long for Ansible"
            raise self.refusal(event, what, "put it in quotes")
        if event.implicit[0] and (found := DATE.fullmatch(text)):
            try:
                date(*map(int, found.groups()))
            except ValueError as error:
                what = f"{quote(text)} looks like a date to Ansible, but there is no such day"
                raise self.refusal(event, what, "put it in quotes") from error
        return super().scalar(event)

    def text(self, event: ScalarEvent) -> str:
        """The text of a scalar, which a template or a shell command may need as it is."""
        text: str = event.value
        return text
