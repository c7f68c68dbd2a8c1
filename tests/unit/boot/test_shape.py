# SPDX-License-Identifier: Apache-2.0
"""Machines have what a release and its engines need; a host that cannot give it is told first."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from imagebuilder.boot import shape
from imagebuilder.boot.acceleration import Acceleration, Processor, emulated
from imagebuilder.boot.engine import EngineUnderTest
from imagebuilder.boot.machine import Shape
from imagebuilder.boot.shape import RequestedShape, check_memory, check_processor, shape_for
from imagebuilder.errors import HostError, InputError
from imagebuilder.tree import ReleaseName, Tree

KVM = Acceleration("kvm", "", 1.0)


def engine(memory: int, processor: str) -> EngineUnderTest:
    needs = SimpleNamespace(memory=memory, processor=processor)
    return cast(EngineUnderTest, SimpleNamespace(boot=needs))


PLAIN, NEEDY = engine(0, "x86-64-v2"), engine(6144, "x86-64-v3")


def chosen(folder: Path, engines: list[EngineUnderTest], asked: RequestedShape) -> Shape:
    return shape_for(Tree(folder), ReleaseName("p", "1"), engines, "nfs", asked)


def test_the_neediest_engine_decides_and_a_person_over_it(tmp_path: Path) -> None:
    assert chosen(tmp_path, [], RequestedShape()) == Shape(2048, 0, Processor.V2)
    assert chosen(tmp_path, [PLAIN], RequestedShape()) == Shape(2048, 0, Processor.V2)
    assert chosen(tmp_path, [PLAIN, NEEDY], RequestedShape()) == Shape(6144, 0, Processor.V3)
    asked = RequestedShape(9000, 4, "x86-64-v2")
    assert chosen(tmp_path, [NEEDY], asked) == Shape(9000, 4, Processor.V2)
    with pytest.raises(
        InputError, match="--cpu 486: must be one of x86-64-v2, x86-64-v3, x86-64-v4"
    ):
        chosen(tmp_path, [], RequestedShape(processor="486"))


@pytest.mark.parametrize(("machines", "fits"), [(1, True), (2, True), (3, False)])
def test_machines_that_do_not_fit_are_no_fault_of_the_release(
    machines: int,
    fits: bool,  # noqa: FBT001 - a table
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text(f"MemTotal: 99999999 kB\nMemAvailable: {4096 << 10} kB\n")
    monkeypatch.setattr(shape, "MEMINFO", meminfo)
    if fits:
        check_memory(Shape(2048), machines)
        return
    with pytest.raises(HostError, match="3 machines of 2048 MiB do not fit into 4096 MiB"):
        check_memory(Shape(2048), machines)


def test_a_processor_that_is_not_here_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\nflags\t\t: fpu sse4_2 popcnt avx2 fma movbe\n\n")
    monkeypatch.setattr(shape, "CPUINFO", cpuinfo)
    check_processor(KVM, [Processor.V2])
    with pytest.raises(HostError, match="is not x86-64-v3: it lacks bmi2"):
        check_processor(KVM, [Processor.V2, Processor.V3])
    check_processor(emulated(""), [Processor.V3])
    with pytest.raises(HostError, match="QEMU cannot emulate x86-64-v4"):
        check_processor(emulated("no KVM"), [Processor.V4])
