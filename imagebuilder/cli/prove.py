# SPDX-License-Identifier: Apache-2.0
"""The proof, without an accelerator."""

from __future__ import annotations

from typing import Annotated

from imagebuilder.cli.context import (
    Call,
    argument,
    exit_unless,
    option,
    print_json,
    print_result,
    print_text,
    wants_colour,
)
from imagebuilder.cli.names import AsJson, ImageName


def prove(
    context: Call,
    image: ImageName,
    evidence: Annotated[bool, option("Show the evidence of every finding.", "--evidence")] = False,
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

    proof = prove_image(context.obj.settings, image, context.obj.ui)
    if json:
        print_json(proof_json(proof))
    else:
        print_text(render_proof(proof, colour=wants_colour(), evidence=evidence))
    exit_unless(proof.ok)


def why(
    context: Call,
    image: ImageName,
    path: Annotated[str, argument("An absolute path in the image.", metavar="PATH")],
    json: AsJson = False,
) -> None:
    """Explain why a path is in an image: the package, overlay or step that brought or changed it.

    Example: imagebuilder why rx7600xt /usr/lib/os-release
    """
    from imagebuilder.proof.provenance.why import explain

    found = explain(context.obj.settings, image, path)
    print_result(found, json=json)
