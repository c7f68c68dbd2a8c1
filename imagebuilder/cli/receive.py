# SPDX-License-Identifier: Apache-2.0
"""The far end of `imagebuilder publish --to`, which runs it over ssh."""

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
    import sys

    from imagebuilder.publish.carried import take_reports
    from imagebuilder.publish.receive import check_fit, check_name, describe, image_named
    from imagebuilder.publish.receive import receive as receive_image
    from imagebuilder.tree import Tree, make_tree

    given: Context = context.obj
    check_fit()
    if have:
        print_json(describe(Tree(tree.absolute()), image, objects=objects))
        return
    if reports:
        kept = take_reports(make_tree(tree), check_name(image), sys.stdin.buffer, given.ui)
        print_json(kept.as_json())
        return
    ref = image_named(image, commit)
    done = receive_image(
        make_tree(tree), ref, sys.stdin.buffer, given.ui,
        channel=channel, formats=formats or (), untested=untested,
    )  # fmt: skip
    print_json({"published": done.as_json(), "said": done.render()})
