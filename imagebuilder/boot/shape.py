# SPDX-License-Identifier: Apache-2.0
"""What the machines of a boot test have, and whether this host can give it to them.

A host that cannot says nothing about a release: this is found out before anything is reported.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.boot.acceleration import Acceleration, Processor
from imagebuilder.boot.engine import AskedEngine
from imagebuilder.boot.machine import MEMORY_MIB, Shape
from imagebuilder.errors import HostError, InputError
from imagebuilder.rootkind import IN_MEMORY, packed_file
from imagebuilder.tree import ReleaseName, Tree
from imagebuilder.ui import format_count

MIB = 1 << 20
MEMINFO, CPUINFO = Path("/proc/meminfo"), Path("/proc/cpuinfo")
# Flags of the levels of the x86-64 psABI that tell them from the level below.
FLAGS = {
    Processor.V2: {"sse4_2", "popcnt"},
    Processor.V3: {"avx2", "bmi2", "fma", "movbe"},
    Processor.V4: {"avx512f", "avx512bw", "avx512vl"},
}


@dataclass(frozen=True)
class AskedShape:
    """What a person asked for: 0 and "" are what the release needs.  `memory` is in MiB."""

    memory: int = 0
    processors: int = 0
    processor: str = ""


AS_NEEDED = AskedShape()


def shape_for(
    tree: Tree,
    release: ReleaseName,
    engines: Sequence[AskedEngine],
    root: str,
    asked: AskedShape,
) -> Shape:
    """What a machine has: what was asked for, or else what the release and its engines need.

    Raises InputError.
    """
    boots = [engine.boot for engine in engines]
    memory = max([memory_for(tree, release, root), *(boot.memory for boot in boots)])
    wanted = max([Processor.V2, *(Processor(boot.processor) for boot in boots)])
    return Shape(asked.memory or memory, asked.processors, read_processor(asked) or wanted)


def read_processor(asked: AskedShape) -> Processor | None:
    """The processor that was asked for.  Raises InputError."""
    if not asked.processor:
        return None
    try:
        return Processor(asked.processor)
    except ValueError as error:
        levels = ", ".join(Processor)
        raise InputError(f"is none of {levels}", where=f"--cpu {asked.processor}") from error


def memory_for(tree: Tree, release: ReleaseName, root: str) -> int:
    """MiB of a machine with that root, which it may have to hold."""
    if root not in IN_MEMORY:
        return MEMORY_MIB
    packed = tree.release(release) / packed_file(root)
    return MEMORY_MIB + 2 * packed.stat().st_size // MIB


def check_memory(shape: Shape, machines: int) -> None:
    """Raise HostError when the host has less free memory than the machines would take."""
    lines = (line.split() for line in MEMINFO.read_text().splitlines())
    free = next((int(words[1]) // 1024 for words in lines if words[0] == "MemAvailable:"), 0)
    if free < machines * shape.memory:
        count = format_count(machines, "machine")
        raise HostError(
            f"{count} of {shape.memory} MiB would not fit into the {free} MiB that are free",
            where="memory",
            hint="end other programs, or test on another host; --memory MIB makes them smaller",
        )


def check_processor(acceleration: Acceleration, processors: Iterable[Processor]) -> None:
    """Raise HostError when machines cannot have the best of these processors here."""
    processor = max(processors)
    acceleration.words(processor)
    if acceleration.kind != "kvm":
        return
    lines = CPUINFO.read_text().splitlines()
    flags = next((line.split() for line in lines if line.startswith("flags")), [])
    if missing := sorted(FLAGS[processor].difference(flags)):
        raise HostError(
            f"the processor of this host is no {processor}: it lacks {', '.join(missing)}",
            hint="test this release on a newer host; --cpu x86-64-v2 tries it here all the same",
        )
