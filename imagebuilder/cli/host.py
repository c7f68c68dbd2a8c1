# SPDX-License-Identifier: Apache-2.0
"""The project and the host: profiles, schema, init, setup, doctor."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Annotated

import typer

from imagebuilder.cli.context import (
    Call,
    Context,
    argument,
    option,
    print_answer,
    print_json,
    print_list,
    print_table,
    print_text,
)
from imagebuilder.cli.names import AsJson, TreeOption
from imagebuilder.share import SHARE
from imagebuilder.tree import DEFAULT_TREE

INTERFACE = "IMAGEBUILDER_INTERFACE"
EMPTY = "no recipes in this project"


def profiles(
    context: Call,
    proof: Annotated[
        bool, option("Show the proof of each profile's newest image.", "--proof")
    ] = False,
    json: AsJson = False,
) -> None:
    """List the profiles, or with --proof the proof of each one.

    Example: imagebuilder profiles --proof
    """
    from imagebuilder.recipe.find import find_profiles

    if proof:
        print_matrix(context.obj, json=json)
        return
    found = find_profiles(context.obj.settings)
    print_list(found, ("profile", "base", "from", "what it is"), empty=EMPTY, json=json)


def print_matrix(common: Context, *, json: bool) -> None:
    """Print the proof of each profile's newest image, from its manifest."""
    from imagebuilder.proof.image import list_proofs
    from imagebuilder.proof.terminal import MATRIX_HEAD, matrix_row

    found = list_proofs(common.settings)
    if json:
        print_json([standing.as_json() for standing in found])
        return
    rows = [matrix_row(standing.profile, standing.version, standing.proof) for standing in found]
    print_table(rows, MATRIX_HEAD, empty=EMPTY)


def schema() -> None:
    """Print the JSON Schema of recipes, bases, overlays, nodes.yaml and the site file, for editors.

    Example: imagebuilder schema > .vscode/imagebuilder.schema.json
    """
    from imagebuilder.reference import json_schema

    print_json(json_schema())


def init(folder: Annotated[Path, argument("A new or empty folder.", metavar="DIR")]) -> None:
    """Create a project with a recipe, an overlay, a README and a CI workflow.

    The project can use shipped recipes and overlays by name.

    Example: imagebuilder init my-nodes
    """
    from imagebuilder.init import make_project

    files = make_project(folder)
    print_text("\n".join(f"{folder}/{name}" for name in files))
    print_text(f"To build its image: cd {shlex.quote(str(folder))} && imagebuilder build mynode")


def setup(
    build: Annotated[bool, option("Install what builds need (the default).", "--build")] = False,
    serve: Annotated[bool, option("Install what serving nodes needs.", "--serve")] = False,
    boot: Annotated[bool, option("Install what boot tests in QEMU need.", "--boot")] = False,
    rpm: Annotated[
        bool, option("Install what images of distributions with RPMs need.", "--rpm")
    ] = False,
    engines: Annotated[
        bool, option("Install mkosi, for bases with `engine: mkosi`.", "--engines")
    ] = False,
    check: Annotated[bool, option("Only list what is missing.", "--check")] = False,
) -> None:
    """Install the host packages that imagebuilder needs (Debian, Ubuntu), with sudo.

    Installs only what the options name. --build also creates an ssh key and a site file, if you
    have none. Exits with 3 if something is still missing.

    Example: imagebuilder setup --serve
    """
    flags = {"build": build, "serve": serve, "boot": boot, "rpm": rpm}
    flags |= {"engines": engines, "check": check}
    options = [f"--{name}" for name, chosen in flags.items() if chosen]
    os.execv("/bin/sh", ["sh", os.fspath(SHARE / "scripts" / "host-setup"), *options])


def doctor(
    context: Call,
    serve: Annotated[bool, option("Check whether this host can serve nodes.", "--serve")] = False,
    test: Annotated[
        bool, option("Check whether this host can boot releases in QEMU.", "--boot", "--test")
    ] = False,
    interface: Annotated[
        str,
        option("With --serve: the interface of the nodes.", "--interface", "-i", envvar=INTERFACE),
    ] = "",
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Check whether this host is fit to build, and suggest a fix for every finding.

    Exits with 3 if something must be fixed first.

    Example: imagebuilder doctor --serve --interface enp3s0
    """
    from imagebuilder.doctor import Severity, examine, examine_boot, examine_serve, render_findings
    from imagebuilder.tree import Tree

    place = Tree(tree.absolute())
    findings = examine_serve(place, interface) if serve else ()
    findings += examine_boot(place) if test else ()
    if not (serve or test):
        findings = examine(context.obj.settings, os.environ)
    print_answer([f.as_json() for f in findings], render_findings(findings), json=json)
    if any(f.level is Severity.PROBLEM for f in findings):
        raise typer.Exit(3)
