# SPDX-License-Identifier: Apache-2.0
"""What vLLM can compute on: it is built for one platform, and looks for that one at start.

A build for the processor says so in its version or in its package's name, and never looks for a GPU
(vllm/platforms/__init__.py, cpu_platform_plugin); any other finds no platform without its device.
"""

from __future__ import annotations

from collections.abc import Iterator

from imagebuilder.proof.fallback_say import SAY
from imagebuilder.proof.python.environment import Torch, ask_environment
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.types import Evidence, Finding
from imagebuilder.recipe.expectations import Engine

TORCH = {"cuda": "cuda", "hip": "hip", "sycl": "xpu"}


def prove_vllm(subject: Subject, engine: Engine) -> Iterator[Finding]:
    """Faults, or nothing: what an environment without vLLM means is the question python's."""
    said = ask_environment(subject, engine.path)
    where = Evidence(f"{engine.path}/bin/vllm")
    if said.failure or said.torch is None or said.vllm is None:
        why = said.failure or "it does not import vllm and torch"
        yield SAY.fault(
            f"what vLLM would compute on cannot be known: {why}",
            where,
            hint="the question python says why",
        )
        return
    if said.vllm.error:
        yield SAY.fault(
            f"vLLM cannot choose a platform: {said.vllm.error}",
            where,
            hint=f"imagebuilder shell PROFILE -c '{engine.path}/bin/python -m vllm.collect_env'",
        )
        return
    chosen = Evidence(
        where.path,
        symbol="vllm.platforms.current_platform",
        said=f"{said.vllm.platform}, device {said.vllm.device or 'none'}",
    )
    if not engine.backends:
        if said.vllm.device != "cpu":
            yield SAY.fault(
                "vLLM is to compute on the processor, and is not built for it",
                chosen,
                hint="vllm_variant: cpu takes the package that is",
            )
        return
    if said.vllm.device == "cpu":
        yield SAY.fault(
            "vLLM is built for the processor: it would compute there, device or not, and nobody "
            "would notice",
            chosen,
            hint=f"take the requirements of a variant for {engine.backends[0]}",
        )
        return
    for backend in engine.backends:
        if not made_for(said.torch, backend):
            yield SAY.fault(
                f"vLLM cannot use {backend}: its torch {said.torch.version} is made for something "
                "else",
                chosen,
                hint=f"take torch and vllm from requirements for {backend}",
            )


def made_for(torch: Torch, backend: str) -> bool:
    """Whether torch knows the devices of the backend."""
    return bool(getattr(torch, TORCH.get(backend, ""), ""))
