# SPDX-License-Identifier: Apache-2.0
"""How machines are run: with KVM if a kernel really starts under it, otherwise emulated (TCG).

/dev/kvm may exist and not work, for instance in a virtual machine without nested virtualisation: a
kernel hangs or QEMU stops in the first second.  So the probe starts a kernel.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

from imagebuilder.errors import HostError, WorkError
from imagebuilder.process import Word
from imagebuilder.program import program


class Processor(StrEnum):
    """Levels of the x86-64 psABI: v2 is Nehalem, v3 has AVX2, v4 AVX-512."""

    V2 = "x86-64-v2"
    V3 = "x86-64-v3"
    V4 = "x86-64-v4"


KVM = Path("/dev/kvm")
PATIENCE = 3.0  # seconds; under KVM the line appears within one
# Emulated, a boot takes this many times as long; limits are scaled by it.
TCG_FACTOR = 3.0
# Kernel arguments that save an emulated processor work: it needs no mitigations, and its kernel
# need not test itself, zero pages, move or watch itself to show what a release does.  QEMU 7.2
# translates a program again for every address where it lies.  logind loads drm for the sake of
# screens; a release with a driver that needs it still does.
CHEAP = (
    "mitigations=off", "cryptomgr.notests", "init_on_alloc=0", "nokaslr", "nowatchdog",
    "norandmaps", "rcupdate.rcu_expedited=1", "systemd.show_status=no",
    "systemd.mask=modprobe@drm.service",
)  # fmt: skip
EMULATED = {Processor.V2: "Nehalem,+rdrand", Processor.V3: "max,-la57"}


@dataclass(frozen=True)
class Acceleration:
    """`kind` is kvm or tcg, `why` the reason for it, `factor` how much slower than KVM it is."""

    kind: str
    why: str
    factor: float

    def words(self, processor: Processor = Processor.V2, processors: int = 0) -> list[Word]:
        """Arguments for QEMU; `processors` 0: two under KVM, one emulated.  Raises HostError.

        With several, multi-threaded TCG can run the stale half of an instruction that the kernel is
        patching (static keys), and panics once in some dozen boots.
        An old processor is emulated faster than the newest: no five-level page tables, no AVX.
        """
        if self.kind == "kvm":
            return ["-accel", "kvm", "-cpu", "host", "-smp", str(processors or 2)]
        if processor not in EMULATED:
            raise HostError(
                f"QEMU cannot emulate {processor}",
                where=self.why,
                hint="test this release on a host with KVM and such a processor",
            )
        return ["-accel", "tcg", "-cpu", EMULATED[processor], "-smp", str(processors or 1)]

    @property
    def cmdline(self) -> tuple[str, ...]:
        """More arguments for the kernels of machines."""
        return () if self.kind == "kvm" else CHEAP


def probe(kernel: Path, work: Path) -> Acceleration:
    """Whether `kernel` starts under KVM here; `work` takes a log.  Takes up to three seconds."""
    if not KVM.exists():
        return emulated(f"{KVM} does not exist")
    if not os.access(KVM, os.R_OK | os.W_OK):
        return emulated(f"could not open {KVM}")
    argv: list[Word] = [
        "qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-m", "256", "-nodefaults",
        "-display", "none", "-serial", "stdio", "-no-reboot", "-kernel", kernel,
        "-append", "console=ttyS0 earlyprintk=ttyS0 panic=-1",
    ]  # fmt: skip
    try:
        with program("probe", argv, work / "probe.log") as started:
            started.wait_for(r"Linux version", PATIENCE)
    except WorkError:
        return emulated(f"a kernel does not start with {KVM}")
    return Acceleration("kvm", f"a kernel starts with {KVM}", 1.0)


def emulated(why: str) -> Acceleration:
    return Acceleration("tcg", why, TCG_FACTOR)
