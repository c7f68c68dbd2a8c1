# SPDX-License-Identifier: Apache-2.0
"""KVM is used where a kernel starts under it, and nowhere else; the fake QEMU decides."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.boot import acceleration
from imagebuilder.boot.acceleration import Processor, probe
from imagebuilder.errors import HostError


@pytest.fixture
def kvm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A device that can be opened, and patience with the false QEMU beside it."""
    device = tmp_path / "kvm"
    device.touch()
    monkeypatch.setattr(acceleration, "KVM", device)
    monkeypatch.setattr(acceleration, "PATIENCE", 60.0)
    return device


def make_qemu(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A QEMU on PATH that does `script`."""
    tool = folder / "bin/qemu-system-x86_64"
    tool.parent.mkdir()
    tool.write_text(f"#!/bin/sh\n{script}\n")
    tool.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tool.parent}:{os.environ['PATH']}")


def test_a_kernel_that_starts_is_proof(
    kvm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make_qemu(tmp_path, "echo '[    0.000000] Linux version 7.2.12'; exec sleep 60", monkeypatch)
    found = probe(tmp_path / "vmlinuz", tmp_path)
    assert (found.kind, found.factor, found.cmdline) == ("kvm", 1.0, ())
    assert str(kvm) in found.why


@pytest.mark.parametrize(
    "script",
    [
        "exec sleep 60",
        "echo 'KVM internal error. Suberror: 1'; exit 1",
        "echo 'Decompressing Linux'; exec sleep 60",
    ],
    ids=["hangs", "stops", "hangs-in-the-decompressor"],
)
def test_a_device_that_is_there_is_not_enough(
    kvm: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    monkeypatch.setattr(acceleration, "PATIENCE", 1.0)
    make_qemu(tmp_path, script, monkeypatch)
    found = probe(tmp_path / "vmlinuz", tmp_path)
    assert found.kind == "tcg"
    assert found.factor > 1
    assert f"a kernel does not start with {kvm}" == found.why


def test_without_a_device_nothing_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceleration, "KVM", tmp_path / "absent")
    make_qemu(tmp_path, f"touch {tmp_path}/started", monkeypatch)
    found = probe(tmp_path / "vmlinuz", tmp_path)
    assert (found.kind, found.why) == ("tcg", f"{tmp_path}/absent does not exist")
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("processor", "processors", "words"),
    [
        (Processor.V2, 0, ["-accel", "tcg", "-cpu", "Nehalem,+rdrand", "-smp", "1"]),
        (Processor.V3, 3, ["-accel", "tcg", "-cpu", "max,-la57", "-smp", "3"]),
    ],
)
def test_a_processor_is_emulated(processor: Processor, processors: int, words: list[str]) -> None:
    assert acceleration.emulated("no KVM").words(processor, processors) == words


def test_a_processor_that_cannot_be_emulated_is_refused() -> None:
    with pytest.raises(
        HostError, match=r"no KVM: QEMU cannot emulate x86-64-v4\n  hint: .* with KVM"
    ):
        acceleration.emulated("no KVM").words(Processor.V4)
