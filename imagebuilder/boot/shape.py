# SPDX-License-Identifier: Apache-2.0
"""The hardware of the machines of a boot test, and whether this host can provide it.

A host that cannot provide it proves nothing about a release, so this is checked first.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.boot.acceleration import Acceleration, Processor
from imagebuilder.boot.engine import EngineUnderTest
from imagebuilder.boot.machine import MEMORY_MIB, Shape
from imagebuilder.errors import HostError, InputError
from imagebuilder.rootkind import IN_MEMORY, packed_file
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.ui import format_count

MIB = 1 << 20
MEMINFO, CPUINFO = Path("/proc/meminfo"), Path("/proc/cpuinfo")
# Flags that distinguish each level of the x86-64 psABI from the level below.
FLAGS = {
    Processor.V2: {"sse4_2", "popcnt"},
    Processor.V3: {"avx2", "bmi2", "fma", "movbe"},
    Processor.V4: {"avx512f", "avx512bw", "avx512vl"},
}


@dataclass(frozen=True)
class RequestedShape:
    """The requested hardware; 0 and "" mean what the release needs.  `memory` is in MiB."""

    memory: int = 0
    processors: int = 0
    processor: str = ""


AS_NEEDED = RequestedShape()


def shape_for(
    tree: Tree,
    release: ReleaseName,
    engines: Sequence[EngineUnderTest],
    root: str,
    requested: RequestedShape,
) -> Shape:
    """The hardware of a machine: as requested, or else what the release and its engines need.

    Raises InputError.
    """
    boots = [engine.boot for engine in engines]
    memory = max([memory_for(tree, release, root), *(boot.memory for boot in boots)])
    wanted = max([Processor.V2, *(Processor(boot.processor) for boot in boots)])
    return Shape(
        requested.memory or memory, requested.processors, read_processor(requested) or wanted
    )


def read_processor(requested: RequestedShape) -> Processor | None:
    """The requested processor.  Raises InputError."""
    if not requested.processor:
        return None
    try:
        return Processor(requested.processor)
    except ValueError as error:
        levels = ", ".join(Processor)
        raise InputError(
            f"must be one of {levels}", where=f"--cpu {requested.processor}"
        ) from error


def memory_for(tree: Tree, release: ReleaseName, root: str) -> int:
    """The MiB of memory for a machine with that root, which it may have to keep in memory."""
    if root not in IN_MEMORY:
        return MEMORY_MIB
    packed = tree.release(release) / packed_file(root)
    return MEMORY_MIB + 2 * packed.stat().st_size // MIB


def check_memory(shape: Shape, machines: int) -> None:
    """Raise HostError if the host has less free memory than the machines need."""
    lines = (line.split() for line in MEMINFO.read_text().splitlines())
    free = next((int(words[1]) // 1024 for words in lines if words[0] == "MemAvailable:"), 0)
    if free < machines * shape.memory:
        count = format_count(machines, "machine")
        raise HostError(
            f"{count} of {shape.memory} MiB do not fit into {free} MiB of free memory",
            where="memory",
            hint="end other programs, use a smaller --memory, or test on another host",
        )


def check_processor(acceleration: Acceleration, processors: Iterable[Processor]) -> None:
    """Raise HostError if this host cannot provide the best of these processors."""
    processor = max(processors)
    acceleration.words(processor)
    if acceleration.kind != "kvm":
        return
    lines = CPUINFO.read_text().splitlines()
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    if missing := sorted(FLAGS[processor].difference(flags)):
        raise HostError(
            f"the processor of this host is not {processor}: it lacks {', '.join(missing)}",
            hint="test this release on a newer host, or try it here with --cpu x86-64-v2",
        )
