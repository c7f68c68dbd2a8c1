# SPDX-License-Identifier: Apache-2.0
"""On what llama.cpp computes, read from what it logs when it loads a model.

A layer is computed where its weights lie, and the loader says how much lies where:

    load_tensors: offloaded 3/3 layers to GPU
    load_tensors:   CPU_Mapped model buffer size =     0.17 MiB
    load_tensors:        ROCm0 model buffer size =     1.80 MiB

The second kind of line decides.  The first one counts what was asked for: with the RPC backend it
says 3/3 on a machine that has nothing but its processor.  The embedding of the input is always on
the processor.  Level "trace" (4) is the first that has these lines (LLAMA_ARG_LOG_VERBOSITY).
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass

CPU = "cpu"
LOADING = "loading model tensors"
BUFFER = re.compile(r"(\S+) model buffer size = +([\d.]+) MiB")
OFFLOADED = re.compile(r"offloaded (\d+)/(\d+) layers to GPU")
# A GPU's own memory (`ROCm0`); `ROCm_Host` is the processor's memory that a GPU can reach.
GPU = re.compile(r"(ROCm|Vulkan|CUDA)\d*(_Split)?$")
REMOTE = re.compile(r"RPC\d*\[(.+)\]$")
# Mesa's Vulkan on the processor.
DISGUISED = re.compile(r"using device (\S+) \(llvmpipe")


@dataclass(frozen=True)
class Offload:
    """Where the weights of a model lie: MiB by buffer; `layers` of `of` were to go to GPUs.

    `disguised` are devices that call themselves GPUs and are the processor.
    """

    buffers: tuple[tuple[str, float], ...]
    layers: int = 0
    of: int = 0
    disguised: frozenset[str] = frozenset()

    @property
    def backend(self) -> str:
        """What computes here: cpu, or the kind of GPU with most weights (rocm, vulkan, cuda)."""
        weights: Counter[str] = Counter()
        for name, size in self.buffers:
            if (gpu := GPU.match(name)) and size and name not in self.disguised:
                weights[gpu[1].lower()] += round(size * 100)
        return weights.most_common(1)[0][0] if weights else CPU

    @property
    def lenders(self) -> tuple[str, ...]:
        """Addresses (HOST:PORT) of the nodes that hold weights over RPC."""
        found = ((REMOTE.match(name), size) for name, size in self.buffers)
        return tuple(remote[1] for remote, size in found if remote and size)

    def __str__(self) -> str:
        placed = ", ".join(f"{name} {size:g} MiB" for name, size in self.buffers)
        if self.backend == CPU and not self.lenders:
            return f"all layers on the processor ({placed})"
        return f"{self.layers} of {self.of} layers offloaded ({placed})"


def read_offload(log: str) -> Offload | None:
    """What the log says of the model that was loaded last; None if it does not say."""
    loaded = log.rpartition(LOADING)[2]
    sizes: dict[str, float] = {}
    for name, size in BUFFER.findall(loaded):
        sizes[name] = sizes.get(name, 0.0) + float(size)
    if not sizes:
        return None
    counts = OFFLOADED.search(loaded)
    layers, of = (int(counts[1]), int(counts[2])) if counts else (0, 0)
    return Offload(tuple(sizes.items()), layers, of, frozenset(DISGUISED.findall(log)))
