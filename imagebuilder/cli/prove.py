# SPDX-License-Identifier: Apache-2.0
"""The proof that needs no accelerator."""

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
    """Check, without the card, whether an image's accelerator stack can work on it.

    Seven checks of the files in the image: kernel, firmware, code objects, libraries, Python,
    access, silent fallback. Exits with 1 if one of them fails.

    Example: imagebuilder prove rx7600xt
    """
    from imagebuilder.proof.as_json import proof_json
    from imagebuilder.proof.terminal import render_proof
    from imagebuilder.proving import prove_image

    given: Context = context.obj
    proof = prove_image(given.settings, image, given.ui)
    if json:
        print_json(proof_json(proof))
    else:
        print_text(render_proof(proof, colour=wants_colour(), evidence=evidence))
    if not proof.ok:
        raise typer.Exit(1)
