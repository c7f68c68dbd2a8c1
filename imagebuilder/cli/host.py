# SPDX-License-Identifier: Apache-2.0
"""About the house and the host: profiles, schema, doctor."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from imagebuilder.cli.context import Context, print_json, print_table, print_text
from imagebuilder.cli.names import AsJson, TreeOption
from imagebuilder.tree import DEFAULT_TREE

INTERFACE = "IMAGEBUILDER_INTERFACE"


def profiles(
    context: typer.Context,
    proof: Annotated[
        bool, typer.Option("--proof", help="What the newest image of each was proved to be.")
    ] = False,
    json: AsJson = False,
) -> None:
    """List what can be built; with --proof the matrix of profiles and questions.

    Example: imagebuilder profiles --proof
    """
    from imagebuilder.recipe.find import find_profiles

    given: Context = context.obj
    if proof:
        print_matrix(given, json=json)
        return
    found = find_profiles(given.settings)
    if json:
        print_json(
            [
                {
                    "name": p.name,
                    "description": p.description,
                    "base": p.base,
                    "overlays": list(p.overlays),
                    "hardware": list(p.hardware),
                    "fault": p.fault,
                }
                for p in found
            ]
        )
        return
    rows = [(p.name, p.base, p.fault.partition("\n")[0] or p.description) for p in found]
    print_table(rows, ("profile", "base", "what it is"), empty="no recipes here")


def print_matrix(given: Context, *, json: bool) -> None:
    """The proof of each profile's newest image, as its manifest has it."""
    from imagebuilder.proof.terminal import MATRIX_HEAD, matrix_row
    from imagebuilder.proving import list_proofs

    found = list_proofs(given.settings)
    if json:
        print_json([standing.as_json() for standing in found])
        return
    rows = [matrix_row(standing.profile, standing.version, standing.proof) for standing in found]
    print_table(rows, MATRIX_HEAD, empty="no recipes here")


def schema() -> None:
    """Print the JSON Schema of recipes, bases, overlays, nodes.yaml and the site file, for editors.

    Example: imagebuilder schema > .vscode/imagebuilder.schema.json
    """
    from imagebuilder.reference import json_schema

    print_json(json_schema())


def doctor(
    context: typer.Context,
    serve: Annotated[bool, typer.Option("--serve", help="Fit to serve nodes, instead?")] = False,
    test: Annotated[
        bool, typer.Option("--test", help="Fit to boot releases in machines, instead?")
    ] = False,
    interface: Annotated[
        str, typer.Option("--interface", "-i", envvar=INTERFACE, help="With --serve: their wire.")
    ] = "",
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Say whether this host is fit to build; each finding comes with what mends it.

    Ends with 3 when something must be mended first.

    Example: imagebuilder doctor --serve --interface enp3s0
    """
    from imagebuilder.doctor import (
        Level,
        examine,
        examine_boot,
        examine_serve,
        render_findings,
    )
    from imagebuilder.tree import Tree

    given: Context = context.obj
    place = Tree(tree.absolute())
    findings = examine_serve(place, interface) if serve else ()
    findings += examine_boot(place) if test else ()
    if not (serve or test):
        findings = examine(given.settings, os.environ)
    if json:
        print_json(
            [
                {"subject": f.subject, "level": str(f.level), "what": f.what, "mend": f.mend}
                for f in findings
            ]
        )
    else:
        print_text(render_findings(findings))
    if any(f.level is Level.PROBLEM for f in findings):
        raise typer.Exit(3)
