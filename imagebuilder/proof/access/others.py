# SPDX-License-Identifier: Apache-2.0
"""Services that no overlay declares, and whose program is known to compute on a card or an NPU."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import replace

from imagebuilder.elf import read_needs
from imagebuilder.image.proof import Finding, Level
from imagebuilder.proof.access.services import prove_memlock, prove_use
from imagebuilder.proof.reading.interpreters import PYTHON
from imagebuilder.proof.reading.nodes import FAMILIES, NPU, opened_by
from imagebuilder.proof.reading.site import SiteService, site_services
from imagebuilder.proof.reading.systemd import read_startup
from imagebuilder.proof.reading.units import find_unit
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.expectations import Device, Service

CARD = tuple(family.begin for family in FAMILIES if family.backends)
# Libraries that a program needs which computes with them alone, by the beginning of their names.
RUNTIMES = {
    "libcuda.so": opened_by(["cuda"]),
    "libcudart.so": opened_by(["cuda"]),
    "libamdhip64.so": opened_by(["hip"]),
    "libhsa-runtime64.so": opened_by(["hip"]),
    "libze_loader.so": opened_by(["sycl"]),
    "libxrt_coreutil.so": (NPU,),
}
# Programs, modules of `python -m`, and folders of applications that run from where they are.
KNOWN = {
    "flm": (NPU,),
    **dict.fromkeys(
        ("ollama", "tritonserver", "text-generation-launcher", "text-embeddings-router",
         "koboldcpp", "whisper-server", "sd-server", "vllm", "sglang", "lmdeploy", "torchrun",
         "deepspeed", "faster_whisper", "comfyui", "invokeai", "invokeai-web", "exo",
         "stable-diffusion-webui", "text-generation-webui", "tabbyapi", "localai"),
        CARD,
    ),
}  # fmt: skip


def prove_others(subject: Subject, devices: Sequence[Device]) -> Iterator[Finding]:
    """Warnings of what would be faults of a declared service."""
    startup = read_startup(subject) if devices else None
    if startup is None:
        return
    for service in site_services(subject, startup):
        is_declared = service.name in subject.expectations.units
        needed = [] if is_declared else devices_of(subject, service, devices)
        unit = find_unit(subject.root, service.name) if needed else None
        if unit is None:
            continue
        found = list(prove_use(subject, unit, needed))
        if any(device.path.startswith(NPU) for device in needed):
            # Buffers of an NPU are locked (amdxdna_gem_pin() and others).
            told = Service(service.name, memlock=True)
            found += prove_memlock(subject.root, told, unit)
        for finding in found:
            if finding.level is Level.FAULT:
                yield replace(finding, level=Level.WARNING)


def devices_of(subject: Subject, service: SiteService, devices: Sequence[Device]) -> list[Device]:
    """The devices that the program of a service is known to open."""
    begins = tuple(begins_of(subject, service))
    return [each for each in devices if begins and each.path.startswith(begins)]


def begins_of(subject: Subject, service: SiteService) -> Iterator[str]:
    """The beginnings of the nodes that the program of a service opens."""
    names = {service.program.lower()}
    if PYTHON.fullmatch(service.program):
        places = (*service.words[:2], f"{service.unit.last('WorkingDirectory')}/")
        names |= {part for place in places for part in place.lower().split("/")[:-1]}
        names.add((service.option("-m") or "").partition(".")[0])
    for name in names:
        yield from KNOWN.get(name, ())
    host = subject.root.host(service.written[0])
    needs = read_needs(host) if host and host.is_file() else None
    for library in needs.needed if needs else ():
        for begin, devices in RUNTIMES.items():
            if posixpath.basename(library).startswith(begin):
                yield from devices
