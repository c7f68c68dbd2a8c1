# SPDX-License-Identifier: Apache-2.0
"""The receiving end of `imagebuilder publish --to`, which runs it over ssh."""

from __future__ import annotations

from typing import Annotated

import typer

from imagebuilder.cli.context import Context, print_json
from imagebuilder.cli.names import Formats, TreeOption, Untested
from imagebuilder.tree import DEFAULT_TREE


def receive(
    context: typer.Context,
    image: Annotated[str, typer.Argument(help="PROFILE@VERSION to receive.")] = "",
    commit: Annotated[str, typer.Argument(help="Its commit.")] = "",
    tree: TreeOption = DEFAULT_TREE,
    channel: Annotated[str, typer.Option(help="Channel to point to it.")] = "candidate",
    formats: Formats = None,
    untested: Untested = "",
    have: Annotated[bool, typer.Option("--have", help="Only list what the tree contains.")] = False,
    objects: Annotated[
        bool, typer.Option("--objects", help="With --have: name every object.")
    ] = False,
    reports: Annotated[
        bool, typer.Option("--reports", help="Read reports of its boot tests from stdin.")
    ] = False,
) -> None:
    """Receive a release from another machine: objects on stdin, the result as JSON on stdout.

    Example: imagebuilder receive --have
    """
    import os
    import sys

    from imagebuilder.decode import encode_box
    from imagebuilder.publish.find import open_tree
    from imagebuilder.publish.transport.local import (
        LocalTree,
        check_called,
        describe,
        image_named,
    )
    from imagebuilder.publish.transport.protocol import Order
    from imagebuilder.publish.transport.reports import take_reports
    from imagebuilder.publish.transport.stream import begin
    from imagebuilder.tree import Tree

    common: Context = context.obj
    place = LocalTree(Tree(tree.absolute()))
    place.check()
    check_called(place.tree, os.environ)
    if have:
        print_json(describe(place, image, objects=objects))
        return
    ref = image_named(image, commit)
    if reports:
        print_json(encode_box(take_reports(open_tree(tree), ref.name, sys.stdin.buffer, common.ui)))
        return
    first = begin(sys.stdin.buffer)
    with place.arrival(ref, Order(channel, tuple(formats or ()), untested), common.ui) as arrival:
        arrival.unpack(sys.stdin.buffer, first)
        arrival.verify()
        print_json(encode_box(arrival.activate()))
