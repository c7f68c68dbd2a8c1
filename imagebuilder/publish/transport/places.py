# SPDX-License-Identifier: Apache-2.0
"""The places that releases can be published to, by the beginning of their URL."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from imagebuilder.errors import InputError
from imagebuilder.publish.transport.local import LocalTree
from imagebuilder.publish.transport.protocol import Transport
from imagebuilder.publish.transport.ssh import parse_remote
from imagebuilder.tree import Tree

# The beginning of a URL: what parses the URL and the command that runs there, and the URL's form.
PLACES: Mapping[str, tuple[Callable[[str, str], Transport], str]] = {
    "ssh://": (parse_remote, "ssh://[user@]host[:port]/srv/netboot"),
    "/": (lambda url, _: LocalTree(Tree(Path(url))), "the path of a tree on this machine"),
}


def parse_place(url: str, command: str = "") -> Transport:
    """The place that `url` names; `command` runs imagebuilder there.  Raises InputError."""
    hint = f"write {', or '.join(form for _, form in PLACES.values())}"
    for begin, (parse, _) in PLACES.items():
        if url.startswith(begin):
            try:
                return parse(url, command)
            except InputError as error:
                raise InputError.of(
                    [replace(f, hint=f.hint or hint) for f in error.faults]
                ) from error
    raise InputError("is not a valid place to publish to", where=url, hint=hint)
