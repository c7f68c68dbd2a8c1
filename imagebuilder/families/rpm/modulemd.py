# SPDX-License-Identifier: Apache-2.0
"""Read modules.yaml: the streams of modules, and which are the defaults.

The documents are those of libmodulemd: `modulemd` (yaml_specs/modulemd_stream_v2.yaml there) and
`modulemd-defaults`.  Enterprise Linux 8 has ten megabytes of them.  Of PyYAML only the parser in C
is used: it makes events, of which most are skipped, and every value is a text, as `stream: 1.10` is
meant.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, cast

import yaml

from imagebuilder.errors import WorkError
from imagebuilder.families.rpm.repository import Index
from imagebuilder.families.rpm.stored import unpacked
from imagebuilder.untrusted import fit

# What is read, by the keys that lead to it; `*` is any key or item.
WANTED = frozenset(
    (
        ("document",),
        ("data",),
        *(
            ("data", key)
            for key in ("name", "stream", "version", "context", "static_context", "module",
                        "modified", "dependencies", "artifacts")
        ),
        ("data", "dependencies", "*"),
        ("data", "dependencies", "*", "requires"),
        ("data", "dependencies", "*", "requires", "*"),
        ("data", "dependencies", "*", "requires", "*", "*"),
        ("data", "artifacts", "rpms"),
        ("data", "artifacts", "rpms", "*"),
    )
)  # fmt: skip
NUMBER = re.compile(r"[0-9]{1,20}")
# NAME-EPOCH:VERSION-RELEASE.ARCHITECTURE
ARTIFACT = re.compile(r"([^\s:]+)-(?:([0-9]+):)?([^-\s:]+-[^-\s:]+)\.([^-.\s:]+)")
MOST_ARTIFACT = 1024  # characters
SOURCE_ARCHITECTURES = ("src", "nosrc")
Node = str | list["Node"] | dict[str, "Node"] | None
# The allowed streams of other modules by name: none listed means any.
Requires = tuple[tuple[str, tuple[str, ...]], ...]


class YamlEvents(Protocol):
    """PyYAML's parser."""

    def check_event(self, *choices: type) -> bool: ...

    def get_event(self) -> object: ...


@dataclass(frozen=True)
class ModuleStream:
    """One build of a stream of a module.

    `requires` are alternatives.  Builds of one `kind` are active together: those of a context that
    its author gave, or else those with the same requirements.  `artifacts` are packages as
    NAME-EPOCH:VERSION-RELEASE.ARCHITECTURE, `names` those of binary packages.
    """

    name: str
    stream: str
    version: int
    kind: str
    requires: tuple[Requires, ...]
    artifacts: frozenset[str]
    names: frozenset[str]
    source: str

    @property
    def shown(self) -> str:
        return f"{self.name}:{self.stream}"


@dataclass(frozen=True)
class ModuleDefault:
    """The default stream of a module ("" for none), and when that was decided."""

    module: str
    stream: str
    modified: int


def read_modules(indexes: Sequence[Index]) -> tuple[list[ModuleStream], list[ModuleDefault]]:
    """What modules.yaml of all repositories say.  Raises WorkError for one that is damaged."""
    streams: list[ModuleStream] = []
    defaults: list[ModuleDefault] = []
    for index in indexes:
        if not index.modules:
            continue
        source = index.repository.source.id
        text = b"".join(unpacked(index.modules)).decode(errors="replace")
        try:
            for kind, data in documents_of(text):
                if kind == "modulemd" and (stream := stream_of(data, source)):
                    streams.append(stream)
                elif kind == "modulemd-defaults" and (default := default_of(data)):
                    defaults.append(default)
        except (yaml.YAMLError, ValueError) as error:
            raise WorkError(
                f"modules.yaml of {index.repository.name} cannot be read: {fit(str(error))}",
                where=f"source {source}",
                hint="use another mirror; if every mirror has it, tell the owner of the repository",
            ) from error
    return streams, defaults


def documents_of(text: str) -> Iterator[tuple[str, Mapping[str, Node]]]:
    """The kind and the data of each document.  Raises YAMLError, ValueError."""
    loader = getattr(yaml, "CBaseLoader", yaml.BaseLoader)(text)
    try:
        events = cast("YamlEvents", loader)
        while not events.check_event(yaml.StreamEndEvent):
            event = events.get_event()
            if isinstance(event, yaml.NodeEvent):
                document = read_node(events, event, ())
                if isinstance(document, dict):
                    kind, data = document.get("document"), document.get("data")
                    if isinstance(kind, str) and isinstance(data, dict):
                        yield kind, data
    finally:
        loader.dispose()


def read_node(events: YamlEvents, event: object, path: tuple[str, ...]) -> Node:
    """The value that begins with `event`, without what is not wanted; no deeper than WANTED.

    Raises ValueError for what refers to another value, which may make much of little.
    """
    if isinstance(event, yaml.ScalarEvent):
        return cast("str", event.value)
    if isinstance(event, yaml.SequenceStartEvent):
        items: list[Node] = []
        while not isinstance(event := events.get_event(), yaml.SequenceEndEvent):
            if (*path, "*") in WANTED:
                items.append(read_node(events, event, (*path, "*")))
            else:
                skip_node(events, event)
        return items
    if isinstance(event, yaml.MappingStartEvent):
        values: dict[str, Node] = {}
        while not isinstance(event := events.get_event(), yaml.MappingEndEvent):
            key = cast("str", event.value) if isinstance(event, yaml.ScalarEvent) else ""
            skip_node(events, event)
            event = events.get_event()
            below = next((each for each in ((*path, key), (*path, "*")) if each in WANTED), None)
            if below:
                values[key] = read_node(events, event, below)
            else:
                skip_node(events, event)
        return values
    raise ValueError("a value refers to another one")


def skip_node(events: YamlEvents, event: object) -> None:
    """Read up to the end of the value that begins with `event`, at any depth."""
    depth = 0
    while True:
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth == 0:
            return
        event = events.get_event()


def stream_of(data: Mapping[str, Node], source: str) -> ModuleStream | None:
    """A build of a stream; None for one without a name, which no package manager uses."""
    name, stream = text_of(data, "name"), text_of(data, "stream")
    if not name or not stream:
        return None
    artifacts = data.get("artifacts")
    listed = artifacts.get("rpms") if isinstance(artifacts, dict) else None
    found = [
        match
        for item in (listed if isinstance(listed, list) else ())
        if isinstance(item, str)
        and len(item) <= MOST_ARTIFACT
        and (match := ARTIFACT.fullmatch(item))
    ]
    requires = requires_of(data.get("dependencies"))
    fixed = text_of(data, "static_context").lower() == "true"
    version = text_of(data, "version")
    return ModuleStream(
        name=name,
        stream=stream,
        version=int(version) if NUMBER.fullmatch(version) else 0,
        kind=text_of(data, "context") if fixed else repr(requires),
        requires=requires,
        artifacts=frozenset(f"{m[1]}-{int(m[2] or 0)}:{m[3]}.{m[4]}" for m in found),
        names=frozenset(match[1] for match in found if match[4] not in SOURCE_ARCHITECTURES),
        source=source,
    )


def requires_of(node: Node) -> tuple[Requires, ...]:
    """The alternatives of `dependencies`; one without requirements if there are none."""
    found = []
    for each in node if isinstance(node, list) else ():
        requires = each.get("requires") if isinstance(each, dict) else None
        if isinstance(requires, dict):
            items = sorted(requires.items())
            found.append(tuple((name, tuple(texts_of(value))) for name, value in items))
    return tuple(dict.fromkeys(found)) or ((),)


def texts_of(node: Node) -> Iterator[str]:
    items = node if isinstance(node, list) else [node]
    yield from (item for item in items if isinstance(item, str) and item)


def default_of(data: Mapping[str, Node]) -> ModuleDefault | None:
    module, modified = text_of(data, "module"), text_of(data, "modified")
    if not module:
        return None
    when = int(modified) if NUMBER.fullmatch(modified) else 0
    return ModuleDefault(module, text_of(data, "stream"), when)


def text_of(data: Mapping[str, Node], key: str) -> str:
    value = data.get(key)
    return value if isinstance(value, str) else ""
