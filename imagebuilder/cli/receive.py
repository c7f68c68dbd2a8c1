# SPDX-License-Identifier: Apache-2.0
"""The receiving end of `imagebuilder publish --to`, which runs it over ssh."""

from __future__ import annotations

from typing import Annotated

from imagebuilder.cli.context import Call, argument, option, print_json
from imagebuilder.cli.names import Formats, TreeOption, Untested
from imagebuilder.tree import DEFAULT_TREE


def receive(
    context: Call,
    image: Annotated[str, argument("PROFILE@VERSION to receive.")] = "",
    commit: Annotated[str, argument("Its commit.")] = "",
    tree: TreeOption = DEFAULT_TREE,
    channel: Annotated[str, option("Channel to point to it.")] = "candidate",
    formats: Formats = None,
    untested: Untested = "",
    have: Annotated[bool, option("Only list what the tree contains.", "--have")] = False,
    objects: Annotated[bool, option("With --have: name every object.", "--objects")] = False,
    reports: Annotated[
        bool, option("Read reports of its boot tests from stdin.", "--reports")
    ] = False,
) -> None:
    """Receive a release from another machine: objects on stdin, the result as JSON on stdout.

    Example: imagebuilder receive --have
    """
    import os
    import sys

    from imagebuilder.decode import encode_box
    from imagebuilder.publish.find import open_tree
    from imagebuilder.publish.transport.local import LocalTree, check_called, describe, image_named
    from imagebuilder.publish.transport.protocol import Order
    from imagebuilder.publish.transport.reports import take_reports
    from imagebuilder.publish.transport.stream import begin
    from imagebuilder.tree import Tree

    place = LocalTree(Tree(tree.absolute()))
    place.check()
    check_called(place.tree, os.environ)
    if have:
        print_json(describe(place, image, objects=objects))
        return
    ref = image_named(image, commit)
    if reports:
        print_json(
            encode_box(take_reports(open_tree(tree), ref.name, sys.stdin.buffer, context.obj.ui))
        )
        return
    first = begin(sys.stdin.buffer)
    with place.arrival(
        ref, Order(channel, tuple(formats or ()), untested), context.obj.ui
    ) as arrival:
        arrival.unpack(sys.stdin.buffer, first)
        arrival.verify()
        print_json(encode_box(arrival.activate()))
