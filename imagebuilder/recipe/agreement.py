# SPDX-License-Identifier: Apache-2.0
"""Check that devices, targets, backends and ports of a recipe fit together."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from imagebuilder.errors import Fault, InputError
from imagebuilder.phrases import listing
from imagebuilder.recipe.fields import scopes_of
from imagebuilder.recipe.hardware import chip_of
from imagebuilder.recipe.model_proof import CodeModel
from imagebuilder.recipe.model_stages import TargetsModel
from imagebuilder.recipe.part import Part
from imagebuilder.recipe.positions import Document, KeyPath
from imagebuilder.recipe.render import Scope
from imagebuilder.recipe.resolve import Merged
from imagebuilder.recipe.rules import NAME, PORT
from imagebuilder.recipe.types import Hardware, Overlay, Recipe

# The interface that a backend of an engine computes with, where they are not called the same.
INTERFACES = {"rocm": "hip", "xpu": "sycl"}


def check_agreement(
    merged: Merged,
    devices: tuple[Hardware, ...] | None,
    overlays: Sequence[Overlay],
    parts: Mapping[str, Part],
    scopes: Mapping[str, Scope],
    architecture: str,
    faults: list[Fault],
) -> None:
    """Overlays compute on devices of the recipe, and no two programs listen on one TCP port.

    `devices` is None if one is invalid; `architecture` is "" if the base is invalid.
    """
    check_hardware(devices or (), merged.lists_hardware, architecture, faults)
    targets = targets_of(devices or ())
    for overlay in overlays:
        if targets is not None:
            check_targets_of(parts[overlay.name], scopes[overlay.name], targets)
        check_interfaces(overlay, parts[overlay.name], scopes[overlay.name], devices or ())
    check_ports(overlays, parts, scopes)


def check_hardware(
    devices: Sequence[Hardware], document: Document, architecture: str, faults: list[Fault]
) -> None:
    """Devices have the target that the recipe gives them, and fit the processor of the base."""
    for number, device in enumerate(devices):
        chip = chip_of(device)
        if chip and chip.processor and architecture not in ("", chip.processor):
            what = f"{chip.pci} is {chip.name}, found only in machines with {chip.processor} "
            what += f"processors; the base is for {architecture}"
            hint = f"use a base for {chip.processor}, or correct `hardware:`"
            faults.append(document.fault(("hardware", number), what, hint))
        if chip and device.target and device.target != chip.target:
            has = f"has the target {chip.target}" if chip.target else "has no target"
            what = f"{device.pci} is {chip.name}, which {has}, not {device.target}"
            path = ("hardware", number, "target")
            faults.append(document.fault(path, what, "correct one of them"))


def targets_of(devices: Sequence[Hardware]) -> frozenset[str] | None:
    """The targets of the devices; None without devices, or if a target is not known."""
    chips = {device.pci: chip_of(device) for device in devices}
    if not devices or any(not device.target and not chips[device.pci] for device in devices):
        return None
    found = (d.target or (c.target if (c := chips[d.pci]) else "") for d in devices)
    return frozenset(plain_target(target) for target in found if target)


def plain_target(target: str) -> str:
    """A target without the letter of its features: sm_120a is code for sm_120."""
    return re.sub(r"(sm_\d+)[af]", r"\1", target)


def check_targets_of(part: Part, scope: Scope, targets: frozenset[str]) -> None:
    for path, model in written_targets(part):
        for one in scopes_of(model, path, scope):
            if not one.holds((*path, "when"), model.when):
                continue
            target = one.text((*path, "target"), model.target)
            if target and plain_target(target) not in targets:
                have = listing(sorted(targets)) or "no target"
                what = f"no device of the recipe has the target {target}; its devices have {have}"
                hint = "correct the target, or the devices under `hardware:`"
                one.refuse((*path, "target"), what, hint, template=model.target)


def written_targets(part: Part) -> Iterator[tuple[KeyPath, TargetsModel | CodeModel]]:
    for number, model in enumerate(part.file.targets):
        yield ("targets", number), model
    for number, code in enumerate(part.file.proof.code):
        yield ("proof", "code", number), code


def check_interfaces(
    overlay: Overlay, part: Part, scope: Scope, devices: Sequence[Hardware]
) -> None:
    """Some device supports each interface that an overlay and its engines compute with."""
    chips = [chip for device in devices if (chip := chip_of(device))]
    if not chips or len(chips) < len(devices):  # what the others compute with is unknown
        return
    wanted = list(written_backends(overlay))
    for number, entry in enumerate(part.file.computes):
        if name := scope.entry(("computes", number), entry, NAME):
            when = "" if isinstance(entry, str) else f"{{{{ {entry.when} }}}}"
            wanted.append((name, when, name))
    for name, template, interface in wanted:
        if not any(interface in chip.computes for chip in chips):
            what = f"{name} cannot compute on any device of the recipe"
            for chip in chips:
                if why := chip.refuses.get(interface):
                    what += f"; {chip.names[0]}: {why}"
            able = listing(sorted({each for chip in chips for each in chip.computes}))
            hint = f"the devices support {able}: choose one of them, or correct `hardware:`"
            scope.refuse(("computes",), what, hint, template=template)


def written_backends(overlay: Overlay) -> Iterator[tuple[str, str, str]]:
    """For each backend of an overlay's engines: its name for people, the expression that chooses
    it, and the interface that it computes with.
    """
    option = overlay.engine.option if overlay.engine else ""
    for engine in overlay.expectations.engines:
        for backend in engine.backends:
            interface = INTERFACES.get(backend, backend)
            yield f"the backend {backend}", f"{{{{ {option} }}}}", interface


def check_ports(
    overlays: Sequence[Overlay], parts: Mapping[str, Part], scopes: Mapping[str, Scope]
) -> None:
    """Programs may share a UDP port; the second program on a TCP port would not start."""
    taken: dict[str, str] = {}
    for overlay in overlays:
        scope = scopes[overlay.name]
        for number, entry in enumerate(parts[overlay.name].file.listens):
            path: KeyPath = ("listens", number)
            port = scope.entry(path, entry, PORT)
            if port and port.endswith("/tcp") and port in taken:
                what = f"the overlay {taken[port]} already listens on {port}"
                template = entry if isinstance(entry, str) else entry.name
                scope.refuse(path, what, "choose another port for one of them", template=template)
            elif port:
                taken[port] = overlay.name


@dataclass(frozen=True)
class Needed:
    """A version that cards need (a key of `minimum`): its name for people, the package that has it,
    and what to do about an older one.
    """

    key: str
    title: str
    package: str
    hint: str


def check_versions(recipe: Recipe, versions: Mapping[str, str]) -> None:
    """Raise InputError when a package at its locked version is older than a device needs."""
    chips = [chip for device in recipe.hardware if (chip := chip_of(device))]
    where = f"recipes/{recipe.profile}.yaml"
    faults = []
    for needed in needed_by(recipe):
        version = versions.get(needed.package, "")
        for chip in chips if version else ():
            least, most = chip.minimum.get(needed.key, ""), chip.maximum.get(needed.key, "")
            said = f"hardware: {chip.name} needs {needed.title} "
            but = f", but {needed.package} is {version}"
            if least and numbers(version) < numbers(least):
                faults.append(Fault(where, f"{said}{least} or newer{but}", needed.hint))
            if most and numbers(version)[:1] > numbers(most)[:1]:
                hint = f"choose {needed.title} {most}, the last version that supports it"
                faults.append(Fault(where, f"{said}{most} or older{but}", hint))
    if faults:
        raise InputError.of(faults)


def needed_by(recipe: Recipe) -> Iterator[Needed]:
    """The versions to compare with what the devices of a recipe need.

    The kernel's does not count if an overlay builds a driver, which may be newer than its own.
    """
    if not any(overlay.builds for overlay in recipe.overlays):
        hint = "choose another base, or set `kernel:` in the recipe to a newer one"
        yield Needed("kernel", "Linux", recipe.base.kernel, hint)
    for package in ("libcuda1", "nvidia-driver-cuda-libs"):
        yield Needed("driver", "NVIDIA's driver", package, "choose a newer driver or another base")
    hint = "choose a base with a newer one, or set intel_source: ppa"
    yield Needed("level-zero", "Intel's compute runtime", "libze-intel-gpu1", hint)
    engines = (engine for each in recipe.overlays for engine in each.expectations.engines)
    if any("vulkan" in engine.backends for engine in engines):
        hint = "choose a base with a newer Mesa, or another backend than vulkan"
        yield Needed("mesa", "Mesa", "mesa-vulkan-drivers", hint)


def numbers(version: str) -> tuple[int, ...]:
    """The first two numbers of a version, without an epoch; none of ""."""
    return tuple(map(int, re.findall(r"\d+", version.rpartition(":")[2])[:2]))
