# SPDX-License-Identifier: Apache-2.0
"""The proof, without an accelerator."""

from __future__ import annotations

from typing import Annotated

import typer

from imagebuilder.cli.context import Context, print_json, print_text, wants_colour
from imagebuilder.cli.names import AsJson, ImageName


def prove(
    context: typer.Context,
    image: ImageName,
    evidence: Annotated[
        bool, typer.Option("--evidence", help="Show the evidence of every finding.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Check without the card whether an image's accelerator stack can work.

    Checks of the files in the image: kernel, firmware, code objects, libraries, Python, access,
    silent fallback, services, system, provenance, privileges, secrets. Exits with 1 if one fails.

    Example: imagebuilder prove rx7600xt
    """
    from imagebuilder.image.proof import proof_json
    from imagebuilder.proof.image import prove_image
    from imagebuilder.proof.terminal import render_proof

    common: Context = context.obj
    proof = prove_image(common.settings, image, common.ui)
    if json:
        print_json(proof_json(proof))
    else:
        print_text(render_proof(proof, colour=wants_colour(), evidence=evidence))
    if not proof.ok:
        raise typer.Exit(1)


def why(
    context: typer.Context,
    image: ImageName,
    path: Annotated[str, typer.Argument(metavar="PATH", help="An absolute path in the image.")],
    json: AsJson = False,
) -> None:
    """Explain why a path is in an image: the package, overlay or step that brought or changed it.

    Example: imagebuilder why rx7600xt /usr/lib/os-release
    """
    from imagebuilder.proof.provenance.why import explain

    common: Context = context.obj
    found = explain(common.settings, image, path)
    print_json(found.as_json()) if json else print_text(found.render())
