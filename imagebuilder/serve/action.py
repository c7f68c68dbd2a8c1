# SPDX-License-Identifier: Apache-2.0
"""The actions of `imagebuilder serve`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import StrEnum
from pathlib import Path

from imagebuilder.errors import InputError
from imagebuilder.nodes.load import load_nodes
from imagebuilder.rights import check_root
from imagebuilder.serve import foreground
from imagebuilder.serve.config import ServeConfig
from imagebuilder.serve.install import install, refresh, uninstall
from imagebuilder.serve.options import Options
from imagebuilder.serve.prepare import (
    CHECKED,
    FOREGROUND,
    INSTALLED,
    check_host,
    prepare,
)
from imagebuilder.serve.running import describe_ours
from imagebuilder.serve.units import UnitFile, is_live
from imagebuilder.tree import make_tree
from imagebuilder.ui import Ui


class ServeAction(StrEnum):
    SERVE = "serve"
    CHECK = "check"
    INSTALL = "install"
    UNINSTALL = "uninstall"
    REFRESH = "refresh"


MakeUnits = Callable[[ServeConfig], Sequence[UnitFile]]


def act(
    action: ServeAction,
    options: Options,
    place: Path,
    root: Path,
    ui: Ui,
    more: MakeUnits | None = None,
) -> str:
    """Run an action on the tree at `place`; returns what to print.  Raises every ImagebuilderError.

    `more` makes units to install in addition to those of the daemons.
    """
    check_root("serving nodes")
    if action is ServeAction.UNINSTALL:
        return uninstall(root, live=is_live(root))
    check_host()
    if not options.interface:
        raise InputError("is missing", where="--interface", hint="list them with ip -brief address")
    tree = make_tree(place)
    nodes = load_nodes(tree)
    if action is ServeAction.SERVE:
        foreground.serve(prepare(options, tree, nodes, FOREGROUND), nodes, ui)
        return ""
    if action is ServeAction.CHECK:
        config = foreground.check(prepare(options, tree, nodes, CHECKED), nodes, ui)
        served = describe_ours(config.tree)
        how = f"is served by {served}" if served else "can be served"
        return f"{options.interface} {how}: no problems found"
    if action is ServeAction.REFRESH:
        return refresh(prepare(options, tree, nodes, INSTALLED, pinned=True), nodes)
    prepared = prepare(options, tree, nodes, INSTALLED)
    return install(prepared, nodes, options, root, ui, more(prepared.config) if more else ())
