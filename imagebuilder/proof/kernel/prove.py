# SPDX-License-Identifier: Apache-2.0
"""Question 1: one kernel with matching modules, and a driver for each device of the profile."""

from __future__ import annotations

import struct
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.kernel import built, devices
from imagebuilder.proof.kernel.options import prove_words
from imagebuilder.proof.reading.modules import FOLDER
from imagebuilder.proof.say import Say, some
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

SAY = Say(Question.KERNEL)
# Documentation/arch/x86/boot.rst of Linux: a magic number, and the offset of the version's text
# from the end of the first sector.
MAGIC_AT, MAGIC, VERSION_AT, SECTOR = 0x202, b"HdrS", 0x20E, 0x200


def prove_kernel(subject: Subject) -> Iterator[Finding]:
    if not subject.kernel:
        return
    yield from one_kernel(subject)
    drivers = devices.drivers_of(subject)
    if not subject.root.is_dir(drivers.kernel.folder):
        return
    needed = devices.needed_files(subject, drivers)
    shipped = built.find_shipped(subject, drivers.kernel)
    yield from built.prove_built(drivers.kernel, needed, shipped)
    # Modules that the kernel's packages shipped fit together.
    if not shipped.issuperset(needed):
        yield from built.prove_content(drivers.kernel, needed, subject.cmdline)
    yield from built.prove_dependencies(drivers.kernel)
    yield from built.prove_dkms(drivers.kernel)
    yield from built.prove_signed(drivers.kernel, subject.cmdline)
    yield from devices.prove_devices(subject, drivers)
    yield from devices.prove_loading(subject, drivers)
    yield from devices.prove_nics(drivers)
    yield from prove_words(subject)


def one_kernel(subject: Subject) -> Iterator[Finding]:
    root, release = subject.root, subject.kernel
    # Removing a kernel's package leaves folders in which other packages had files.
    folders = [name for name in root.names(FOLDER) if root.names(f"{FOLDER}/{name}")]
    images = root.glob("/boot/vmlinuz-*")
    others = [name for name in folders if name != release]
    others += [p for p in images if p.rpartition("/")[2] != f"vmlinuz-{release}"]
    if release not in folders:
        what = f"the image boots {release}, but does not have its modules"
        what += f"; it has {some(folders)}" if folders else ""
        hint = "install the modules of that kernel, or name the other one in the recipe's base"
        yield SAY.fault(what, Evidence(f"{FOLDER}/{release}"), hint=hint)
        return
    if others:
        yield SAY.fault(
            f"the image boots {release}, but also has {some(others)}",
            *(Evidence(n if n.startswith("/") else f"{FOLDER}/{n}") for n in others),
            hint="install only one kernel: with two, DKMS and depmod may use the wrong one",
        )
    for path in (f"{FOLDER}/{release}/vmlinuz", f"/boot/vmlinuz-{release}"):
        if root.is_file(path):
            yield kernel_image(root, path, release)
            return
    hint = "install the package that has the kernel itself, and do not prune it"
    yield SAY.fault(f"the image has no vmlinuz of {release}", Evidence("/boot"), hint=hint)


def kernel_image(root: Root, path: str, release: str) -> Finding:
    """The finding about the file of the kernel, which contains its release on x86."""
    said = version_of_kernel(root.read(path) or b"")
    where = Evidence(path, "setup header", "kernel_version", said)
    if said and said.split()[0] != release:
        what = f"{path} is the kernel {said.split()[0]}, not {release}"
        hint = "install vmlinuz and modules from one kernel package"
        return SAY.fault(what, where, hint=hint)
    return SAY.fact(f"one kernel, {release}", where)


def version_of_kernel(image: bytes) -> str:
    """The version in the header of a kernel for x86, "" for other kernels."""
    if image[MAGIC_AT : MAGIC_AT + len(MAGIC)] != MAGIC:
        return ""
    (offset,) = struct.unpack_from("<H", image, VERSION_AT)
    text = image[offset + SECTOR :][:256].partition(b"\0")[0]
    return text.decode(errors="replace").strip() if offset else ""
