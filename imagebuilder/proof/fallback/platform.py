# SPDX-License-Identifier: Apache-2.0
"""An engine in a Python environment: it is built for one platform, and checks for it at start.

A program of its overlay reports what it chooses without a device.  A build for the processor
chooses the processor, and never checks for anything else.
"""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.fallback import SAY
from imagebuilder.proof.reading.python import Torch, inspect_environment
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.engines import EngineKind
from imagebuilder.recipe.expectations import ExpectedEngine

TORCH = {"cuda": "cuda", "hip": "hip", "sycl": "xpu"}


def prove_platform(subject: Subject, engine: ExpectedEngine, kind: EngineKind) -> Iterator[Finding]:
    """Faults only; the question `python` reports an environment without the engine."""
    if not kind.model.platform:
        return
    title, module = kind.title, kind.model.platform.module
    said = inspect_environment(subject, engine.path)
    where = Evidence(f"{engine.path}/bin/{module}")
    found = said.platforms.get(kind.name)
    if said.failure or said.torch is None or found is None:
        why = said.failure or f"it does not import {module} and torch"
        yield SAY.fault(
            f"cannot determine what {title} would compute on: {why}",
            where,
            hint="see the question `python`",
        )
        return
    if found.error:
        yield SAY.fault(
            f"{title} cannot choose a platform: {found.error}",
            where,
            hint=f"imagebuilder shell PROFILE -c '{engine.path}/bin/python -c \"import {module}\"'",
        )
        return
    chosen = Evidence(
        where.path, symbol=module, said=f"{found.platform}, device {found.device or 'none'}"
    )
    if not engine.backends:
        if found.device != "cpu":
            yield SAY.fault(
                f"{title} must compute on the processor, but is not built for it",
                chosen,
                hint=f"choose the build for the processor with {kind.choice}",
            )
        return
    if found.device == "cpu":
        yield SAY.fault(
            f"{title} is built for the processor: it would compute there even with a device, and "
            "nobody would notice",
            chosen,
            hint=f"use the requirements of a variant for {engine.backends[0]}",
        )
        return
    for backend in engine.backends:
        if not is_built_for(said.torch, backend):
            yield SAY.fault(
                f"{title} cannot use {backend}: its torch {said.torch.version} is built for "
                "something else",
                chosen,
                hint=f"use torch and {module} from requirements for {backend}",
            )


def is_built_for(torch: Torch, backend: str) -> bool:
    return bool(getattr(torch, TORCH.get(backend, ""), ""))
