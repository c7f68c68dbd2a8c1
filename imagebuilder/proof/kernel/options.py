# SPDX-License-Identifier: Apache-2.0
"""Harmful words of the kernel command line and harmful options of drivers; and options that a site
sets for modules, and modules that it asks for: do they exist?
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from operator import itemgetter

from imagebuilder.image.proof import Evidence, Finding, Findings, fault, warning
from imagebuilder.proof.kernel.selinux import prove_selinux
from imagebuilder.proof.reading.modules import Kernel, module_name
from imagebuilder.proof.reading.parameters import options_of, read_settings, requested
from imagebuilder.proof.reading.texts import whole
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.chip import Chip

NUMBER = r"[+-]?(0[xX][0-9a-fA-F]+|0[0-7]*|[1-9]\d*)"
WHOLE = frozenset(("byte", "short", "ushort", "int", "uint", "long", "ulong", "ullong", "hexint"))
# kstrtobool() takes the first letter, of on and off the second.
TRUTH = re.compile(r"[01yYnNtTfFeEdD].*|[oO][nNfF].*|")
WORD = re.compile(r"\w+")
AMDGPU = "drivers/gpu/drm/amd/amdgpu/amdgpu_drv.c of Linux"
I915 = "drivers/gpu/drm/i915/i915_params.c of Linux"
XE = "drivers/gpu/drm/xe/xe_module.c of Linux"
AMDXDNA = "drivers/accel/amdxdna/aie2_pci.c of Linux"
# Options of every module (kernel/params.c, lib/dynamic_debug.c of Linux).
OF_ALL = frozenset(("dyndbg", "async_probe"))
LEAST_GRAPHICS = 1 << 30
PAGE = 4096
REMOVE = "remove that parameter or line (overlay key cmdline: or modules:)"
PARAMETERS = "Documentation/admin-guide/kernel-parameters.txt of Linux"
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# Less has no room for the root in memory and a model.
LEAST_MEMORY = 2 << 30


IGNORED = "the kernel ignores this value"
PCI = r"(.*,)?(off|nomsi|noacpi|nobios|conf1)(,.*)?"
NPU = frozenset({"amdxdna"})
UNREPORTED = "errors of memory and processors are neither reported nor contained"


@dataclass(frozen=True)
class Harmful:
    """A harmful word `key=value`.

    `value` is a regular expression; `modules` are the drivers that it harms (none: any node), and
    `architecture` the chips of those (none: all).  `is_fault` is False if the node works, but worse
    than expected.
    """

    key: str
    value: str
    why: str
    source: str
    modules: frozenset[str] = frozenset()
    is_fault: bool = True
    architecture: str = ""

    def harms(self, chips: Sequence[Chip], driver: str) -> bool:
        """Whether a driver drives one of the chips that its option harms."""
        return any(
            driver in chip.modules and self.architecture in ("", chip.architecture)
            for chip in chips
        )

    def say(self, what: str, where: Evidence) -> Finding:
        return (fault if self.is_fault else warning)(what, where, hint=REMOVE)


PART_OF_MEMORY = "the driver uses only part of the card's memory: this is an option for tests"
SMALL_WINDOW = "the processor reaches the card's memory through a small window, and loading a "
SMALL_WINDOW += "model is slow"
# In MiB; cards of this product have more than 4 GiB.
SMALL = r"[1-9]\d{0,2}|[1-3]\d{3}"
MILLISECONDS = "the unit is milliseconds: longer jobs count as hangs, and the driver ends them"
SHORT = r"(.*,)?[1-9]\d{0,2}(,.*)?"
LOST = "a card that hangs is not reset, and nothing computes on it until the node reboots"
UNNOTICED = "nobody notices that a card hangs, and what waits for it waits forever"
WEDGED = "the driver gives up a card after one job that takes too long, until the node reboots"
COLUMNS = "the driver uses only these columns of the NPU, which has 8: programs for more do not run"
OPTIONS: tuple[tuple[str, Harmful], ...] = (
    *(
        (driver, Harmful("enable_guc", "0", "it does not load the GuC firmware, without which "
                         "DG2 cannot compute", I915))
        for driver in ("i915", "xe")
    ),
    ("nvidia", Harmful("NVreg_EnableGpuFirmware", "0", "the open modules only work with the GSP "
                       "firmware", "NVIDIA driver README, GSP Firmware")),
    ("amdgpu", Harmful("dpm", "0", "the card's power management is off, and it keeps its "
                       "initial clocks", AMDGPU)),
    ("amdgpu", Harmful("ppfeaturemask", r"(?!([+-]?(0[xX][0-9a-fA-F]+|\d+))$).*", "it is no number "
                       "without 0x, and the kernel does not load the driver", AMDGPU)),
    ("amdgpu", Harmful("vramlimit", r"[1-9]\d*", PART_OF_MEMORY, AMDGPU)),
    ("i915", Harmful("lmem_size", r"[1-9]\d*", PART_OF_MEMORY, I915)),
    ("amdgpu", Harmful("ip_block_mask", "(?!0xf{8}$|-1$|4294967295$).*", "it disables parts of "
                       "the card", AMDGPU)),
    ("amdgpu", Harmful("lockup_timeout", SHORT, MILLISECONDS, AMDGPU)),
    ("i915", Harmful("request_timeout_ms", SHORT, MILLISECONDS, I915)),
    ("amdgpu", Harmful("vis_vramlimit", SMALL, SMALL_WINDOW, AMDGPU, is_fault=False)),
    ("i915", Harmful("lmem_bar_size", SMALL, SMALL_WINDOW, I915, is_fault=False)),
    ("xe", Harmful("vram_bar_size", rf"-\d+|{SMALL}", SMALL_WINDOW, XE, is_fault=False)),
    ("amdgpu", Harmful("gpu_recovery", "0+", LOST, AMDGPU, is_fault=False)),
    ("i915", Harmful("reset", "0+", LOST, I915, is_fault=False)),
    ("i915", Harmful("enable_hangcheck", "[0nN].*|off", UNNOTICED, I915, is_fault=False)),
    ("xe", Harmful("wedged_mode", "2|upon-any-hang-no-reset", WEDGED, XE, is_fault=False)),
    ("amdxdna", Harmful("aie2_max_col", "[1-7]", COLUMNS, AMDXDNA, is_fault=False,
                        architecture="XDNA 2")),
)  # fmt: skip
# Limits of the memory of graphics without memory of their own: option, and bytes per unit.
GRAPHICS = (("ttm", "pages_limit", PAGE), ("amdgpu", "gttsize", 1 << 20))
WORDS: tuple[Harmful, ...] = (
    Harmful("pci", PCI, "PCI devices do not work", PARAMETERS),
    Harmful("acpi", "off", "the node does not find its devices", PARAMETERS),
    Harmful("noapic", ".*", "interrupts of PCI devices do not arrive", PARAMETERS),
    Harmful("nolapic", ".*", "only one processor is used, without MSI", PARAMETERS),
    Harmful("nosmp", ".*", "only one processor is used", PARAMETERS),
    Harmful("maxcpus", "[01]", "only one processor is used", PARAMETERS),
    Harmful("nr_cpus", "1", "only one processor is used", PARAMETERS),
    Harmful("nomodule", ".*", "no driver is loaded", PARAMETERS),
    Harmful("ip", "none|off", "the initrd sets up no network for the root", "dracut.cmdline(7)"),
    Harmful("amd_iommu", "off", "the NPU's driver needs the IOMMU", PARAMETERS, NPU),
    Harmful("iommu", "off|soft", "the NPU's driver needs the IOMMU", PARAMETERS, NPU),
    # Words of a kdump kernel among them.
    Harmful("mce", "off", UNREPORTED, "Documentation/arch/x86/x86_64/boot-options.rst of Linux"),
    Harmful("nomce", ".*", UNREPORTED, "arch/x86/kernel/cpu/mce/core.c of Linux"),
    Harmful("swiotlb", "(.*,)?force", "every transfer of a card is copied through a small buffer",
            PARAMETERS),
    Harmful("noxsave", ".*", "programs cannot use AVX", PARAMETERS),
    Harmful("hest_disable", ".*", "the firmware's reports of failing hardware are not read",
            PARAMETERS, is_fault=False),
    Harmful("pci", "(.*,)?noaer(,.*)?", "PCIe errors of a card are not reported",
            PARAMETERS, is_fault=False),
    Harmful("pcie_aspm", "force", "PCIe power saving is forced on devices that do not support it, "
            "which may hang", PARAMETERS, is_fault=False),
    # Only kernels of Red Hat know it (parse_crashkernel()).
    Harmful("crashkernel", "auto|(?!.*\\d).*", "this kernel needs a size: nothing is reserved, and "
            "no dump is written", PARAMETERS, is_fault=False),
    Harmful("transparent_hugepage", "(?!(always|madvise|never)$).*", IGNORED,
            PARAMETERS, is_fault=False),
    Harmful("numa_balancing", "(?!(enable|disable)$).*", IGNORED,
            PARAMETERS, is_fault=False),
    Harmful("mitigations", "(?!(off|auto)\\b).*", IGNORED,
            PARAMETERS, is_fault=False),
    Harmful("nopat", ".*", "access to a card's memory is slow: writes are not combined",
            PARAMETERS, is_fault=False),
)  # fmt: skip


def types_of(kernel: Kernel, path: str) -> dict[str, str]:
    """The options of a module, with their types (modinfo -p)."""
    pairs = (text.partition(":") for text in kernel.reader.module(path).info.get("parmtype", ()))
    return {name: kind for name, _, kind in pairs}


def prove_values(subject: Subject, kernel: Kernel) -> Findings:
    """Faults, and warnings, of options that a site sets for modules of the image."""
    for module, option, value, where in options_of(subject):
        path = kernel.by_name.get(module, "") if where.path not in subject.shipped else ""
        kind = types_of(kernel, path).get(option, "") if path else ""
        is_number = kind in WHOLE and not re.fullmatch(NUMBER, value)
        gets = f"and gets {value or 'nothing'}"
        hint = f"modinfo -p {module} in the image lists the types of its options"
        if is_number:
            what = f"the kernel does not load {module}: its option {option} takes a number "
            yield fault(f"{what}(such as 0x1f), {gets}", where, hint=hint)
        elif kind == "bool" and not TRUTH.fullmatch(value):
            # Some take words of their own, as nx_huge_pages= of kvm does.
            what = f"the kernel may not load {module}: its option {option} takes 0 or 1, {gets}"
            yield warning(what, where, hint=hint)


def prove_requested(subject: Subject, kernel: Kernel) -> Findings:
    settings = read_settings(subject)
    for name, where in requested(subject) if kernel.by_name else ():
        module = settings.real(name)
        is_there = module in kernel.by_name or module in kernel.builtin
        # systemd looks for aliases too, which may have any form.
        if is_there or where.path in subject.shipped or not WORD.fullmatch(module):
            continue
        if module in kernel.named or module in settings.never:
            continue
        near = get_close_matches(module, kernel.by_name, n=1, cutoff=0.75)
        hint = f"did you mean {near[0]}?" if near else "install it, or remove that line"
        yield warning(f"{name} is not loaded: the image has no such module", where, hint=hint)


def prove_unknown(subject: Subject, kernel: Kernel, drivers: set[str]) -> Findings:
    """Warnings about options that the kernel would ignore, because the module does not have them.

    Also those of a module that is not in the image, if a driver, or what it needs, has that option:
    vendors' own builds of a driver have other names (amdttm, amdkcl).
    """
    options = list(options_of(subject))
    there = kernel.by_name.keys() | kernel.builtin
    paths = [kernel.by_name[name] for name in sorted(drivers) if name in kernel.by_name]
    paths += [need for path in paths for need in kernel.needs(path)]
    names = {module_name(path): types_of(kernel, path) for path in dict.fromkeys(paths)}
    for module, option, _, where in options:
        path = kernel.by_name.get(module, "") if where.path not in subject.shipped else ""
        known = types_of(kernel, path) if path else {}
        if known and option not in {*known, *OF_ALL} and not kernel.reader.mentions(path, option):
            what = f"{module} has no option {option}: the kernel ignores it"
            yield warning(what, where, hint=f"modinfo -p {module} in the image lists its options")
        meant = [name for name, known in names.items() if option in known]
        is_set = any((name, option) == each[:2] for name in meant for each in options)
        if module not in there and meant and not is_set:
            what = f"{module}.{option} does nothing: the image has no module {module}"
            yield warning(what, where, hint=f"{meant[0]} has that option here")


def prove_option(
    chips: Sequence[Chip], module: str, option: str, value: str, where: Evidence
) -> Findings:
    drivers = {name for chip in chips for name in chip.modules}
    for driver, row in OPTIONS:
        is_named = (driver, row.key) == (module, option)
        if is_named and row.harms(chips, driver) and re.fullmatch(row.value, value):
            yield row.say(f"{module} has {option}={value}: {row.why}", where)
    for chip in chips:
        if module in chip.modules and option == "force_probe" and refuses(value, chip):
            what = f"{module} has force_probe={value}, so it does not drive {chip.pci}"
            yield fault(what, where, hint=REMOVE)
        if module == "vfio_pci" and option == "ids" and takes(value, chip):
            what = f"vfio-pci takes {chip.pci} from {' and '.join(chip.modules)}: ids={value}"
            yield fault(what, where, hint=REMOVE)
    for driver, key, unit in GRAPHICS:
        limited = (driver, key) == (module, option) and "amdgpu" in drivers and value.isdecimal()
        if limited and 0 < whole(value) * unit < LEAST_GRAPHICS:
            what = f"{module} has {option}={value}: graphics may use less than 1 GiB"
            yield fault(what, where, hint=REMOVE)


def refuses(value: str, chip: Chip) -> bool:
    """Whether `force_probe` of i915 and xe excludes a device."""
    device = chip.pci.partition(":")[2]
    return any(part.strip().lower() in (f"!{device}", "!*") for part in value.split(","))


def takes(value: str, chip: Chip) -> bool:
    """Whether `ids` of vfio-pci contains a device: vendor:device[:subvendor[:subdevice]]."""
    return any(part.strip().lower().startswith(chip.pci) for part in value.split(","))


def prove_words(subject: Subject) -> Findings:
    drivers = {name for chip in subject.chips for name in chip.modules}
    for word in subject.words:
        for row in WORDS:
            applies = not row.modules or row.modules & drivers
            if row.key == word.key and applies and re.fullmatch(row.value, word.value):
                yield row.say(f"{word.text} on the command line: {row.why}", word.evidence)
    yield from prove_memory(subject)
    yield from prove_interface(subject)
    yield from prove_selinux(subject)
    yield from prove_governor(subject)
    for module, option, value, where in options_of(subject):
        yield from prove_option(subject.chips, module, option, value, where)
    kernel = subject.drivers
    yield from prove_values(subject, kernel)
    yield from prove_unknown(subject, kernel, drivers)
    yield from prove_requested(subject, kernel)


def prove_interface(subject: Subject) -> Findings:
    """Faults of words for a NIC by a name that udev replaces before it is asked for (eth0)."""
    words = subject.words
    if any(word.key == "net.ifnames" and word.value == "0" for word in words):
        return
    named = {word.value.partition(":")[0] for word in words if word.key == "ifname"}
    for word in words:
        # ip=NAME:METHOD, or five other fields before the name (dracut.cmdline(7)).
        found = re.fullmatch(r"(?:(?:[^:]*:){5})?(eth\d+)(:.*)?", word.value)
        if found and word.key in ("ip", "bootdev") and found[1] not in named:
            what = f"{word.text} on the command line: udev has renamed {found[1]} by then, and the "
            what += "node gets no address"
            yield fault(what, word.evidence, hint="use ip=dhcp, which tries every NIC")


def prove_governor(subject: Subject) -> Findings:
    """A warning of processors that keep their lowest clock (admin-guide/pm/cpufreq.rst)."""
    words = {word.key: word for word in subject.words}
    governor = words.get("cpufreq.default_governor")
    if governor is None or governor.value != "powersave":
        return
    for driver in ("amd_pstate", "intel_pstate"):
        state = words.get(driver)
        if state and state.value in ("disable", "passive", "guided"):
            what = f"{governor.text} with {state.text} on the command line: processors keep their "
            what += "lowest clock"
            hint = f"remove {governor.text}, or let {driver} be active"
            yield warning(what, governor.evidence, state.evidence, hint=hint)


def prove_memory(subject: Subject) -> Findings:
    """A finding for each `mem=`: a fault if it hides what graphics without memory may use."""
    promised = [
        (whole(value) * unit, f"{module}.{option}={value}", where)
        for module, option, value, where in options_of(subject)
        for driver, key, unit in GRAPHICS
        if (module, option) == (driver, key) and value.isdecimal()
    ]
    most, promise, promised_in = max(promised, default=(0, "", Evidence("")), key=itemgetter(0))
    for word in subject.words:
        size = size_of(word.value) if word.key == "mem" else 0
        shown = f"{word.text} on the command line"
        if 0 < size < LEAST_MEMORY:
            yield fault(f"{shown} leaves the node too little memory", word.evidence, hint=REMOVE)
        elif 0 < size < most:
            what = f"{shown} hides memory that {promise} promises to the graphics "
            what += f"({most / (1 << 30):.0f} GiB)"
            yield fault(what, word.evidence, promised_in, hint=REMOVE)
        elif size:
            what = f"{shown} hides all memory of a node beyond that"
            yield warning(what, word.evidence, hint=REMOVE)


def size_of(value: str) -> int:
    """The bytes of a size such as `512M`; 0 if it is invalid."""
    found = re.fullmatch(r"(\d+)([kmgt]?)", value.lower())
    return whole(found[1]) * UNITS.get(found[2], 1) if found else 0
