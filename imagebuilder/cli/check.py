# SPDX-License-Identifier: Apache-2.0
"""Static checks, without a boot."""

from __future__ import annotations

from typing import Annotated

from imagebuilder.cli.context import Call, exit_unless, option, print_result
from imagebuilder.cli.names import AsJson, ImageName, TreeOption
from imagebuilder.tree import DEFAULT_TREE


def check(
    context: Call,
    image: ImageName,
    select: Annotated[
        str, option("Run only checks that match (pytest -k).", "-k", metavar="EXPR")
    ] = "",
    published: Annotated[
        bool,
        option("Check the published release instead of the image in the store.", "--published"),
    ] = False,
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Run the static checks on an image, without booting it.

    The checks run in a sandbox and do not change the image.

    Example: imagebuilder check rx7600xt
    """
    from imagebuilder.boot.tree_checks import check_image, check_published

    if published:
        from imagebuilder.publish.find import open_tree

        place = open_tree(tree)
        done = check_published(context.obj.settings, place, image, context.obj.ui, selection=select)
    else:
        done = check_image(context.obj.settings, image, context.obj.ui, selection=select)
    print_result(done, json=json)
    exit_unless(done.passed)
