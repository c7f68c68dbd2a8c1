# SPDX-License-Identifier: Apache-2.0
"""The project and the host: profiles, schema, init, setup, doctor."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from imagebuilder.cli.context import Context, print_json, print_table, print_text
from imagebuilder.cli.names import AsJson, TreeOption
from imagebuilder.share import SHARE
from imagebuilder.tree import DEFAULT_TREE

INTERFACE = "IMAGEBUILDER_INTERFACE"


def profiles(
    context: typer.Context,
    proof: Annotated[
        bool,
        typer.Option("--proof", help="Show the proof of each profile's newest image."),
    ] = False,
    json: AsJson = False,
) -> None:
    """List the profiles, or with --proof the proof of each one.

    Example: imagebuilder profiles --proof
    """
    from imagebuilder.recipe.find import find_profiles

    common: Context = context.obj
    if proof:
        print_matrix(common, json=json)
        return
    found = find_profiles(common.settings)
    if json:
        print_json(
            [
                {
                    "name": p.name,
                    "description": p.description,
                    "base": p.base,
                    "overlays": list(p.overlays),
                    "hardware": list(p.hardware),
                    "origin": p.origin,
                    "fault": p.fault,
                }
                for p in found
            ]
        )
        return
    rows = [(p.name, p.base, p.origin, p.fault.partition("\n")[0] or p.description) for p in found]
    print_table(rows, ("profile", "base", "from", "what it is"), empty="no recipes in this project")


def print_matrix(common: Context, *, json: bool) -> None:
    """Print the proof of each profile's newest image, from its manifest."""
    from imagebuilder.proof.image import list_proofs
    from imagebuilder.proof.terminal import MATRIX_HEAD, matrix_row

    found = list_proofs(common.settings)
    if json:
        print_json([standing.as_json() for standing in found])
        return
    rows = [matrix_row(standing.profile, standing.version, standing.proof) for standing in found]
    print_table(rows, MATRIX_HEAD, empty="no recipes in this project")


def schema() -> None:
    """Print the JSON Schema of recipes, bases, overlays, nodes.yaml and the site file, for editors.

    Example: imagebuilder schema > .vscode/imagebuilder.schema.json
    """
    from imagebuilder.reference import json_schema

    print_json(json_schema())


def init(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="A new or empty folder.")],
) -> None:
    """Create a project with a recipe, an overlay, a README and a CI workflow.

    The project can use shipped recipes and overlays by name.

    Example: imagebuilder init my-nodes
    """
    from imagebuilder.init import make_project

    files = make_project(folder)
    print_text("\n".join(f"{folder}/{name}" for name in files))
    print_text(f"To build its image: cd {shlex.quote(str(folder))} && imagebuilder build mynode")


def setup(
    build: Annotated[
        bool, typer.Option("--build", help="Install what builds need (the default).")
    ] = False,
    serve: Annotated[
        bool, typer.Option("--serve", help="Install what serving nodes needs.")
    ] = False,
    boot: Annotated[
        bool, typer.Option("--boot", help="Install what boot tests in QEMU need.")
    ] = False,
    engines: Annotated[
        bool, typer.Option("--engines", help="Install mkosi, for bases with `engine: mkosi`.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Only list what is missing.")] = False,
) -> None:
    """Install the host packages that imagebuilder needs (Debian, Ubuntu), with sudo.

    Installs only what the options name. --build also creates an ssh key and a site file, if you
    have none. Exits with 3 if something is still missing.

    Example: imagebuilder setup --serve
    """
    flags = {"build": build, "serve": serve, "boot": boot, "engines": engines, "check": check}
    options = [f"--{name}" for name, chosen in flags.items() if chosen]
    os.execv("/bin/sh", ["sh", os.fspath(SHARE / "scripts" / "host-setup"), *options])


def doctor(
    context: typer.Context,
    serve: Annotated[
        bool, typer.Option("--serve", help="Check whether this host can serve nodes.")
    ] = False,
    test: Annotated[
        bool,
        typer.Option("--boot", "--test", help="Check whether this host can boot releases in QEMU."),
    ] = False,
    interface: Annotated[
        str,
        typer.Option(
            "--interface", "-i", envvar=INTERFACE, help="With --serve: the interface of the nodes."
        ),
    ] = "",
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Check whether this host is fit to build, and suggest a fix for every finding.

    Exits with 3 if something must be fixed first.

    Example: imagebuilder doctor --serve --interface enp3s0
    """
    from imagebuilder.doctor import (
        Severity,
        examine,
        examine_boot,
        examine_serve,
        render_findings,
    )
    from imagebuilder.tree import Tree

    common: Context = context.obj
    place = Tree(tree.absolute())
    findings = examine_serve(place, interface) if serve else ()
    findings += examine_boot(place) if test else ()
    if not (serve or test):
        findings = examine(common.settings, os.environ)
    if json:
        print_json(
            [
                {"subject": f.subject, "level": str(f.level), "what": f.what, "mend": f.fix}
                for f in findings
            ]
        )
    else:
        print_text(render_findings(findings))
    if any(f.level is Severity.PROBLEM for f in findings):
        raise typer.Exit(3)
