# SPDX-License-Identifier: Apache-2.0
"""Whether services may use the accelerator: account, groups, device policy, memory."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import replace

from imagebuilder.elf import read_needs
from imagebuilder.image.proof import Evidence, Finding, Findings, Level, fact, fault
from imagebuilder.proof.reading import units
from imagebuilder.proof.reading.commands import named_users
from imagebuilder.proof.reading.nodes import FAMILIES, NPU, NVIDIA, find_family, opened_by
from imagebuilder.proof.reading.scripts import PYTHON, SiteService, cannot_run, site_services
from imagebuilder.proof.reading.texts import unquoted
from imagebuilder.proof.reading.udev import node_of
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.expectations import Device, Service
from imagebuilder.root import Root

# The nodes that a glob for all of NVIDIA's stands for.
ALL_NVIDIA = ("/dev/nvidia0", "/dev/nvidiactl", "/dev/nvidia-uvm")
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


def prove_services(subject: Subject, devices: Sequence[Device]) -> Findings:
    for service in subject.expectations.services:
        unit = units.find_unit(subject.root, service.unit)
        if unit is None:
            yield missing(subject.root, service)
            continue
        yield from prove_programs(subject.root, unit)
        yield from prove_arguments(service, unit)
        yield from prove_user_option(subject, unit)
        yield from prove_memlock(subject.root, service, unit)
        yield from prove_use(subject, unit, needed_by(subject, unit, devices))


def missing(root: Root, service: Service) -> Finding:
    path = units.find_file(root, service.unit)
    if path:
        what = f"{service.unit} is masked or a broken link"
        hint = "unmask it (overlay key units:), or remove the service from the overlay's proof:"
        return fault(what, Evidence(path), hint=hint)
    what = f"{service.unit}, which must use the accelerator, does not exist"
    hint = "install the package that has it, or ship it in the overlay's files/etc/systemd/system"
    return fault(what, Evidence(units.FOLDERS[0]), hint=hint)


def prove_programs(root: Root, unit: units.Unit) -> Findings:
    if not unit.every("ExecStart"):
        what = f"{unit.name} starts nothing: it has no ExecStart="
        yield fault(what, *files(unit), hint="set ExecStart=, or remove the drop-in that clears it")
    for program in unit.programs:
        # Specifiers and variables are known only when it runs.
        if "%" in program or "$" in program:
            continue
        if why := cannot_run(root, program):
            what = f"{unit.name} starts {program}, {why}"
            hint = "install the package that has it, or set mode 0755 for the overlay's file"
            yield fault(what, *files(unit), Evidence(program), hint=hint)


def prove_arguments(service: Service, unit: units.Unit) -> Findings:
    for refused in service.refuses:
        for line in unit.every("ExecStart"):
            if refused.argument in line.split():
                what = f"{unit.name} has {refused.argument}: {refused.because}"
                where = [Evidence(path, "Service", said=line) for path in unit.paths[-1:]]
                yield fault(what, *where, hint=f"set ExecStart= without {refused.argument}")


def prove_user_option(subject: Subject, unit: units.Unit) -> Findings:
    """Faults of accounts that the daemon of a unit shall become, and that do not exist."""
    if unit.true("DynamicUser"):
        return
    lines = unit.every("ExecStart")
    commands = ([units.split_prefixes(line)[1], *unquoted(line)[1:]] for line in lines)
    for user in named_users(commands):
        if user not in subject.accounts.users:
            what = f"{unit.name} does not start: its --user {user} does not exist in the image"
            hint = "declare the account (overlay key users:), or remove that option"
            where = [Evidence(path, "Service", said=f"--user {user}") for path in unit.paths[-1:]]
            yield fault(what, *where, hint=hint)


def prove_memlock(root: Root, service: Service, unit: units.Unit) -> Findings:
    if not service.memlock:
        return
    limit = unit.last("LimitMEMLOCK") or units.default_memlock(root)
    if limit and all(part == "infinity" for part in limit.split(":")):
        said = f"LimitMEMLOCK={limit}"
        what = f"{unit.name} may lock memory without limit"
        yield fact(what, *(Evidence(path, "Service", said=said) for path in unit.paths[-1:]))
        return
    what = f"{unit.name} may lock at most {limit or '8 MiB (the default)'} of memory"
    hint = f"set LimitMEMLOCK=infinity in [Service] of {unit.name}, or in a drop-in"
    yield fault(what, *files(unit), hint=hint)


def prove_use(subject: Subject, unit: units.Unit, needed: Sequence[Device]) -> Findings:
    accounts, dynamic = subject.accounts, unit.true("DynamicUser")
    # systemd.exec(5): the name of a dynamic user is made from that of the unit.
    user = unit.last("User", unit.name.partition(".")[0] if dynamic else "root")
    if not dynamic and "%" not in user and user not in accounts.users and not user.isdecimal():
        what = f"{unit.name} runs as {user}, an account that does not exist"
        hint = "declare the account (overlay key users:), or correct User="
        yield fault(what, *files(unit), Evidence("/etc/passwd"), hint=hint)
        return
    if unit.true("PrivateDevices") and needed:
        what = f"{unit.name} has PrivateDevices=yes and cannot see {some(d.path for d in needed)}"
        hint = "set PrivateDevices=no, DevicePolicy=closed, and DeviceAllow= for the accelerator"
        yield fault(what, *files(unit), hint=hint)
        return
    groups = accounts.groups_of_unit(unit, "" if dynamic else user)
    shut = [d for d in needed if not all(unit.allows(node) for node in nodes(d))]
    barred = [d for d in needed if d.group and not reaches(subject, d, user, groups)]
    if shut:
        what = f"the device policy of {unit.name} does not allow {some(d.path for d in shut)}"
        said = f"DeviceAllow={' '.join(unit.every('DeviceAllow'))}"
        hint = "add DeviceAllow= for that device, such as char-drm rw, char-kfd rw, char-nvidia* rw"
        where = [Evidence(path, "Service", said=said) for path in unit.paths[-1:]]
        yield fault(what, *where, hint=hint)
    if barred:
        lacking = dict.fromkeys(d.group for d in barred)
        what = f"{unit.name} runs as {user} without {some(lacking)}, which owns "
        what += f"{some(d.path for d in barred)}"
        hint = f"set SupplementaryGroups={' '.join(lacking)} in [Service], or add {user} to that "
        hint += "group"
        yield fault(what, *files(unit), hint=hint)
    if needed and not shut and not barred:
        yield fact(f"{unit.name} may use {some(d.path for d in needed)} as {user}", *files(unit))


def files(unit: units.Unit) -> tuple[Evidence, ...]:
    return tuple(Evidence(path, "Service") for path in unit.paths)


def reaches(subject: Subject, device: Device, user: str, groups: frozenset[str]) -> bool:
    """Whether the owner, group and mode of a node let the service use it."""
    if user in ("root", "0") or device.group in groups:
        return True
    return node_of(subject, device.path).for_all


def needed_by(subject: Subject, unit: units.Unit, devices: Sequence[Device]) -> list[Device]:
    """The declared devices that a service needs.

    Those that the backends of its engine open.  For a service without an engine: those of the
    families that its device policy allows, or all if it allows none.
    """
    engines = [each for each in subject.expectations.engines if each.unit == unit.name]
    opened = opened_by([backend for each in engines for backend in each.backends])
    if engines:
        return [device for device in devices if opened and device.path.startswith(opened)]
    allowed = [d for d in devices if any(map(unit.allows, nodes(d)))]
    families = [family for d in allowed if (family := find_family(d.path)) and family.kind]
    kinds = {family.kind for family in families}
    begins = tuple(family.begin for family in FAMILIES if family.kind in kinds)
    return [d for d in devices if d.path.startswith(begins)] if begins else list(devices)


def nodes(device: Device) -> tuple[str, ...]:
    if device.path.startswith(NVIDIA) and posixpath.basename(device.path) == "nvidia*":
        return ALL_NVIDIA
    return (device.path,)


def prove_others(subject: Subject, devices: Sequence[Device]) -> Findings:
    """Warnings of what would be faults of a declared service."""
    for service in site_services(subject) if devices else ():
        is_declared = service.name in subject.expectations.units
        needed = [] if is_declared else devices_of(subject, service, devices)
        unit = units.find_unit(subject.root, service.name) if needed else None
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
