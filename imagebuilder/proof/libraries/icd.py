# SPDX-License-Identifier: Apache-2.0
"""Drivers of Vulkan and OpenCL that the devices of a profile need."""

from __future__ import annotations

import posixpath
from collections.abc import Iterable, Iterator

from imagebuilder.image.proof import Evidence, Finding, Level, Question
from imagebuilder.proof.libraries import SAY
from imagebuilder.proof.reading.icd import DRIVERS, SOFTWARE, VULKAN, Icd


def prove_icds(
    icds: Iterable[Icd], vendors: frozenset[str], *, wants_vulkan: bool
) -> Iterator[Finding]:
    """Every announced driver exists, and the card has one if an engine computes with Vulkan.

    `vendors` are the PCI vendors of the profile's devices.
    """
    listed = list(icds)
    vulkan = [icd for icd in listed if icd.kind == "Vulkan"]
    for icd in listed:
        if not icd.library:
            yield dangling(icd, vendors)
    for vendor in sorted(vendors & DRIVERS.keys()) if wants_vulkan else ():
        names, package = DRIVERS[vendor]
        of_card = [icd for icd in vulkan if any(name in icd.name for name in names)]
        if any(icd.library for icd in of_card):
            continue
        if not of_card:
            present = " ".join(icd.name for icd in vulkan) or "none at all"
            software = all(icd.name.startswith(SOFTWARE) for icd in vulkan)
            only = ", only one that computes on the processor" if vulkan and software else ""
            yield SAY.fault(
                f"missing ICD: no Vulkan driver for PCI vendor {vendor}{only}",
                *(
                    tuple(Evidence(icd.path, said=icd.said) for icd in vulkan)
                    or (Evidence(VULKAN[-1], said=present),)
                ),
                hint=f"install {package}, or exclude its file in {VULKAN[-1]} from `prune:`",
            )
    good = [icd for icd in listed if icd.library]
    if good and vendors:
        yield SAY.fact(
            f"present Vulkan and OpenCL drivers: {' '.join(sorted({icd.name for icd in good}))}",
            *(Evidence(icd.path, said=icd.library) for icd in good),
        )


def dangling(icd: Icd, vendors: frozenset[str]) -> Finding:
    """An ICD file that leads nowhere: a fault if a device of the profile needs it."""
    what = icd.problem or f"points at {icd.said or 'nothing'}, which does not exist"
    names = {n for vendor in vendors for n in DRIVERS.get(vendor, ((), ""))[0]}
    needed = bool(vendors) and (icd.kind == "OpenCL" or any(n in icd.name for n in names))
    return Finding(
        Question.LIBRARIES,
        Level.FAULT if needed else Level.WARNING,
        f"{icd.kind} ICD {posixpath.basename(icd.path)} {what}",
        (Evidence(icd.path, said=icd.said),),
        "install the driver's library, or remove the file too",
    )
