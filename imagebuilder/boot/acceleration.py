# SPDX-License-Identifier: Apache-2.0
"""How machines are run: by KVM where a kernel really starts under it, else emulated (TCG).

/dev/kvm may be there and not work, such as in a machine that is itself virtual without nested
virtualisation: then a kernel hangs or QEMU stops in the first second.  So one is started.
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
PATIENCE = 3.0  # seconds; under KVM the line comes in one
# Emulated, a boot takes this many times as long; limits are scaled by it.
TCG_FACTOR = 3.0
EMULATED = {Processor.V2: "Nehalem,+rdrand", Processor.V3: "max,-la57"}


@dataclass(frozen=True)
class Acceleration:
    """`kind` is kvm or tcg, `why` how that was decided, `factor` how much slower than KVM it is."""

    kind: str
    why: str
    factor: float

    def words(self, processor: Processor = Processor.V2, processors: int = 0) -> list[Word]:
        """QEMU's words; `processors` 0: two under KVM, one emulated.  Raises HostError.

        With several, multi-threaded TCG can run the stale half of an instruction that the kernel is
        patching (static keys), and panics once in some dozen boots.
        An old processor is emulated faster than the newest: no five-level page tables, no AVX.
        """
        if self.kind == "kvm":
            return ["-accel", "kvm", "-cpu", "host", "-smp", str(processors or 2)]
        if processor not in EMULATED:
            raise HostError(
                f"QEMU emulates no {processor}",
                where=self.why,
                hint="test this release on a host with KVM and such a processor",
            )
        return ["-accel", "tcg", "-cpu", EMULATED[processor], "-smp", str(processors or 1)]

    @property
    def cmdline(self) -> tuple[str, ...]:
        """Words for a kernel that spare an emulated processor a fifth of its work."""
        return () if self.kind == "kvm" else ("mitigations=off", "systemd.show_status=no")


def probe(kernel: Path, work: Path) -> Acceleration:
    """Whether `kernel` starts under KVM here; `work` takes a log.  Takes up to three seconds."""
    if not KVM.exists():
        return emulated(f"there is no {KVM}")
    if not os.access(KVM, os.R_OK | os.W_OK):
        return emulated(f"{KVM} cannot be opened")
    argv: list[Word] = [
        "qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-m", "256", "-nodefaults",
        "-display", "none", "-serial", "stdio", "-no-reboot", "-kernel", kernel,
        "-append", "console=ttyS0 earlyprintk=ttyS0 panic=-1",
    ]  # fmt: skip
    try:
        with program("probe", argv, work / "probe.log") as started:
            started.wait_for(r"Linux version", PATIENCE)
    except WorkError:
        return emulated(f"no kernel starts under {KVM}")
    return Acceleration("kvm", f"a kernel starts under {KVM}", 1.0)


def emulated(why: str) -> Acceleration:
    """TCG, and why."""
    return Acceleration("tcg", why, TCG_FACTOR)
