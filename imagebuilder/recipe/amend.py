# SPDX-License-Identifier: Apache-2.0
"""Add packages to a file that a person wrote: nothing else of it changes, not even a comment."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ruamel.yaml import YAML
from ruamel.yaml.nodes import MappingNode, Node, SequenceNode

from imagebuilder.errors import InputError
from imagebuilder.files import read_text, write_file
from imagebuilder.recipe.positions import parse_document

KEY = "packages"


def add_packages(path: Path, shown: str, packages: Sequence[str]) -> None:
    """Add `packages` to the list of that name in the overlay's file.  Raises InputError."""
    text = read_text(path)
    added = with_packages(text, packages)
    if not is_as_wanted(text, added, packages, shown):
        raise InputError(
            f"could not add packages to `{KEY}:` without changing something else in the file",
            where=shown,
            hint=f"add them by hand: {', '.join(packages)}",
        )
    found = path.stat()
    write_file(path, added.encode(), found.st_mode & 0o777, group=found.st_gid, owner=found.st_uid)


def is_as_wanted(text: str, added: str, packages: Sequence[str], shown: str) -> bool:
    """Whether the new text means the same as the old one, with the packages added."""
    wanted = parse_document(text.encode(), shown).value
    listed = wanted.get(KEY) or []
    wanted[KEY] = [*(listed if isinstance(listed, list) else []), *packages]
    try:
        return parse_document(added.encode(), shown).value == wanted
    except InputError:
        return False


def with_packages(text: str, packages: Sequence[str]) -> str:
    key, node = find_list(text)
    if isinstance(node, SequenceNode) and node.flow_style:
        end = end_of(node.value[-1]) if node.value else node.start_mark.index + 1
        return f"{text[:end]}{', ' if node.value else ''}{', '.join(packages)}{text[end:]}"
    if isinstance(node, SequenceNode):
        indent = " " * node.start_mark.column
        return after_line(text, end_of(node), [f"{indent}- {name}" for name in packages])
    lines = [f"  - {name}" for name in packages]
    if key is not None:  # without a value
        return after_line(text, key.start_mark.index, lines)
    body = text if text.endswith("\n") else f"{text}\n"
    return "\n".join([f"{body}{KEY}:", *lines, ""])


def find_list(text: str) -> tuple[Node | None, Node | None]:
    """The key and its value in the file; None if missing."""
    top = YAML(typ="rt", pure=True).compose(text)
    pairs = top.value if isinstance(top, MappingNode) else []
    return next(((key, value) for key, value in pairs if key.value == KEY), (None, None))


def end_of(node: Node) -> int:
    """Where the last value of a block ends, before any comments."""
    if isinstance(node, MappingNode) and node.value and not node.flow_style:
        return end_of(node.value[-1][1])
    if isinstance(node, SequenceNode) and node.value and not node.flow_style:
        return end_of(node.value[-1])
    return int(node.end_mark.index)


def after_line(text: str, index: int, lines: Sequence[str]) -> str:
    end = text.find("\n", index)
    head, tail = (text, "") if end < 0 else (text[:end], text[end + 1 :])
    return "\n".join([head, *lines, tail])
