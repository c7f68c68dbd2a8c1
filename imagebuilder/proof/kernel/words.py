# SPDX-License-Identifier: Apache-2.0
"""Harmful words of the kernel command line and harmful options of drivers.

Data: the effect of each, and where it is documented.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from operator import itemgetter

from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.kernel.options import (
    GRAPHICS,
    REMOVE,
    Harmful,
    prove_option,
    prove_requested,
    prove_unknown,
    prove_values,
)
from imagebuilder.proof.reading.modprobe import options_of
from imagebuilder.proof.reading.numbers import whole
from imagebuilder.proof.reading.parameters import kernel_words
from imagebuilder.proof.say import Say
from imagebuilder.proof.subject import Subject

SAY = Say(Question.KERNEL)
BOOT_OPTIONS = "Documentation/arch/x86/x86_64/boot-options.rst of Linux"
PARAMETERS = "Documentation/admin-guide/kernel-parameters.txt of Linux"
SELINUX = "/etc/selinux/config"
UNITS = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
# Less has no room for the root in memory and a model.
LEAST_MEMORY = 2 << 30


IGNORED = "the kernel ignores this value"
PCI = r"(.*,)?(off|nomsi|noacpi|nobios|conf1)(,.*)?"
NPU = frozenset({"amdxdna"})
UNREPORTED = "errors of memory and processors are neither reported nor contained"
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
    Harmful("mce", "off", UNREPORTED, BOOT_OPTIONS),
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


def prove_words(subject: Subject) -> Iterator[Finding]:
    """Faults and warnings."""
    drivers = {name for chip in subject.chips for name in chip.modules}
    for word in kernel_words(subject.cmdline):
        for row in WORDS:
            applies = not row.modules or row.modules & drivers
            if row.key == word.key and applies and re.fullmatch(row.value, word.value):
                yield row.say(f"{word.text} on the command line: {row.why}", word.evidence)
    yield from prove_memory(subject)
    yield from prove_interface(subject)
    yield from prove_policy(subject)
    yield from prove_governor(subject)
    for module, option, value, where in options_of(subject):
        yield from prove_option(subject.chips, module, option, value, where)
    kernel = subject.drivers
    yield from prove_values(subject, kernel)
    yield from prove_unknown(subject, kernel, drivers)
    yield from prove_requested(subject, kernel)


def prove_interface(subject: Subject) -> Iterator[Finding]:
    """Faults of words for a NIC by a name that udev replaces before it is asked for (eth0)."""
    words = list(kernel_words(subject.cmdline))
    if any(word.key == "net.ifnames" and word.value == "0" for word in words):
        return
    named = {word.value.partition(":")[0] for word in words if word.key == "ifname"}
    for word in words:
        # ip=NAME:METHOD, or five other fields before the name (dracut.cmdline(7)).
        found = re.fullmatch(r"(?:(?:[^:]*:){5})?(eth\d+)(:.*)?", word.value)
        if found and word.key in ("ip", "bootdev") and found[1] not in named:
            what = f"{word.text} on the command line: udev has renamed {found[1]} by then, and the "
            what += "node gets no address"
            yield SAY.fault(what, word.evidence, hint="use ip=dhcp, which tries every NIC")


def prove_governor(subject: Subject) -> Iterator[Finding]:
    """A warning of processors that keep their lowest clock: powersave means that to every driver
    but amd_pstate and intel_pstate when they are active (admin-guide/pm/cpufreq.rst).
    """
    words = {word.key: word for word in kernel_words(subject.cmdline)}
    governor = words.get("cpufreq.default_governor")
    if governor is None or governor.value != "powersave":
        return
    for driver in ("amd_pstate", "intel_pstate"):
        state = words.get(driver)
        if state and state.value in ("disable", "passive", "guided"):
            what = f"{governor.text} with {state.text} on the command line: processors keep their "
            what += "lowest clock"
            hint = f"remove {governor.text}, or let {driver} be active"
            yield SAY.warning(what, governor.evidence, state.evidence, hint=hint)


def prove_policy(subject: Subject) -> Iterator[Finding]:
    """A fault if SELinux is enforced and has no policy: systemd stops (mac_selinux_setup())."""
    words = {word.key: word for word in kernel_words(subject.cmdline)}
    values = {key: word.value for key, word in words.items()}
    lsm = f"{values.get('security', '')},{values.get('lsm', '')}".split(",")
    is_on = values.get("selinux") != "0" and (values.get("selinux") == "1" or "selinux" in lsm)
    config = re.search(r"^SELINUX=enforcing", subject.root.text(SELINUX), re.MULTILINE)
    enforced = values.get("enforcing", "1" if config else "") == "1"
    if is_on and enforced and not subject.root.glob("/etc/selinux/*/policy/policy.*"):
        where = words["enforcing"].evidence if "enforcing" in words else Evidence(SELINUX)
        what = "SELinux is enforced, but the image has no policy: systemd stops at boot"
        yield SAY.fault(what, where, hint="disable SELinux, or install a policy")


def prove_memory(subject: Subject) -> Iterator[Finding]:
    """A finding for each `mem=`: a fault if it hides what graphics without memory may use."""
    promised = [
        (whole(value) * unit, f"{module}.{option}={value}", where)
        for module, option, value, where in options_of(subject)
        for driver, key, unit in GRAPHICS
        if (module, option) == (driver, key) and value.isdecimal()
    ]
    most, promise, promised_in = max(promised, default=(0, "", Evidence("")), key=itemgetter(0))
    for word in kernel_words(subject.cmdline):
        size = size_of(word.value) if word.key == "mem" else 0
        shown = f"{word.text} on the command line"
        if 0 < size < LEAST_MEMORY:
            what = f"{shown} leaves the node too little memory"
            yield SAY.fault(what, word.evidence, hint=REMOVE)
        elif 0 < size < most:
            what = f"{shown} hides memory that {promise} promises to the graphics "
            what += f"({most / (1 << 30):.0f} GiB)"
            yield SAY.fault(what, word.evidence, promised_in, hint=REMOVE)
        elif size:
            what = f"{shown} hides all memory of a node beyond that"
            yield SAY.warning(what, word.evidence, hint=REMOVE)


def size_of(value: str) -> int:
    """The bytes of a size such as `512M`; 0 if it is invalid."""
    found = re.fullmatch(r"(\d+)([kmgt]?)", value.lower())
    return whole(found[1]) * UNITS.get(found[2], 1) if found else 0
