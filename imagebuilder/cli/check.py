# SPDX-License-Identifier: Apache-2.0
"""Static checks, without a boot."""

from __future__ import annotations

from typing import Annotated

import typer

from imagebuilder.cli.context import Context, print_json, print_text
from imagebuilder.cli.names import AsJson, ImageName, TreeOption
from imagebuilder.tree import DEFAULT_TREE


def check(
    context: typer.Context,
    image: ImageName,
    select: Annotated[
        str, typer.Option("-k", metavar="EXPR", help="Run only checks that match (pytest -k).")
    ] = "",
    published: Annotated[
        bool,
        typer.Option(
            "--published", help="Check the published release instead of the image in the store."
        ),
    ] = False,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Run the static checks on an image, without booting it.

    The checks run in a sandbox and do not change the image.

    Example: imagebuilder check rx7600xt
    """
    from imagebuilder.boot.tree_checks import check_image, check_published

    common: Context = context.obj
    if published:
        from imagebuilder.publish.find import open_tree

        place = open_tree(tree)
        done = check_published(common.settings, place, image, common.ui, selection=select)
    else:
        done = check_image(common.settings, image, common.ui, selection=select)
    print_json(done.as_json()) if json else print_text(done.render())
    if not done.passed:
        raise typer.Exit(1)
