# SPDX-License-Identifier: Apache-2.0
"""Modules from outside the kernel's tree: whether DKMS built them, and whether they are signed."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from imagebuilder.image.proof import Evidence, Finding, Question
from imagebuilder.proof.reading.modules import Kernel, Module, module_name
from imagebuilder.proof.reading.parameters import kernel_words
from imagebuilder.proof.say import Say, some
from imagebuilder.ui import format_count

SAY = Say(Question.KERNEL)
# dkms(8): NAME/VERSION has `source`, a folder per kernel that it is built for, and `build` during a
# build or after it failed.
TREE = "/var/lib/dkms"
# Where a build puts the certificate of the site's key for modules (steps/signing.py).
CERTIFICATE = "/usr/share/imagebuilder/module-signing.der"
NO_KERNELS = ("source", "build")
# Next to the versions: links to what is installed, and the modules that it replaced.
NO_VERSIONS = re.compile(r"kernel-.*|original_module")
NAMES = re.compile(r"^[ \t]*(BUILT|DEST)_MODULE_NAME\[(\d+)\]=(.*)$", re.MULTILINE)
ERROR = re.compile(r"\berror\b|\bError \d+", re.IGNORECASE)


def prove_dkms(kernel: Kernel) -> Iterator[Finding]:
    """Findings about the packages of DKMS: each is installed for the image's kernel."""
    for name in kernel.root.names(TREE):
        for version in kernel.root.names(f"{TREE}/{name}"):
            place = f"{TREE}/{name}/{version}"
            if not NO_VERSIONS.fullmatch(version) and kernel.root.is_dir(place):
                yield state(kernel, f"{name} {version}", place)


def state(kernel: Kernel, what: str, place: str) -> Finding:
    root = kernel.root
    kernels = [n for n in root.names(place) if n not in NO_KERNELS and root.is_dir(f"{place}/{n}")]
    built = [
        path
        for release in kernels
        for path in root.walk(f"{place}/{release}")
        if ".ko" in path.rpartition("/")[2]
    ]
    names = wanted_names(kernel, place) or {module_name(path) for path in built}
    missing = sorted(name for name in names if name not in kernel.by_name)
    log = f"{place}/build/make.log"
    if names and not missing:
        paths = [kernel.by_name[name] for name in sorted(names)]
        return SAY.fact(f"DKMS: {what} is installed: {some(paths)}", Evidence(place))
    if kernels and kernel.release not in kernels:
        return SAY.fault(
            f"DKMS: {what} is built for {some(kernels)}, but the image boots {kernel.release}",
            Evidence(place),
            hint=f"dkms install {what.replace(' ', '/')} -k {kernel.release}, not `uname -r`",
        )
    if root.is_file(log):
        return SAY.fault(
            f"DKMS: {what} failed to build for {kernel.release}: {last_error(kernel, log)}",
            Evidence(log, said=last_error(kernel, log)),
            hint="see make.log; the kernel may be too new for the driver: pin one of them",
        )
    how = "is built, but not installed" if kernels else "is added, but not built"
    return SAY.fault(
        f"DKMS: {what} {how} for {kernel.release}" + (f": no {some(missing)}" if missing else ""),
        Evidence(place),
        hint=f"dkms install {what.replace(' ', '/')} -k {kernel.release}; it needs that "
        "kernel's headers and a compiler",
    )


def wanted_names(kernel: Kernel, place: str) -> set[str]:
    """The modules that dkms.conf installs; none if its text does not tell."""
    text = kernel.root.text(f"{place}/source/dkms.conf")
    package = re.search(r'^[ \t]*PACKAGE_NAME="?([\w.+-]+)', text, re.MULTILINE)
    names: dict[str, str] = {}
    # DEST_MODULE_NAME overrides BUILT_MODULE_NAME.
    for kind in ("BUILT", "DEST"):
        for found, number, value in NAMES.findall(text):
            if found == kind:
                names[number] = value.strip().strip("\"'")
    if package:
        names = {n: re.sub(r"\$\{?PACKAGE_NAME\}?", package[1], v) for n, v in names.items()}
    if any("$" in value for value in names.values()):
        return set()
    return {module_name(value) for value in names.values()}


def last_error(kernel: Kernel, log: str) -> str:
    """The last line of a build's log that mentions an error, else its last line."""
    lines = [line.strip() for line in kernel.root.text(log).splitlines() if line.strip()]
    errors = [line for line in lines if ERROR.search(line)]
    return next(reversed(errors or lines), "the log is empty")


def prove_signed(kernel: Kernel, cmdline: Sequence[str]) -> Iterator[Finding]:
    read = [module for module in kernel.reader.modules(kernel.outside) if not module.problem]
    unsigned = [module for module in read if not module.signed]
    if read and not unsigned:
        many = f"{format_count(len(read), 'module')} from outside the kernel's tree signed"
        if kernel.root.is_file(CERTIFICATE):
            what = f"{many} with the site's key; enrol {CERTIFICATE} for Secure Boot"
        else:
            what = f"{many} with another key; Secure Boot requires enrolling its certificate"
        yield SAY.fact(what, *(signature(module) for module in read))
    if not unsigned:
        return
    names = some(module_name(module.path) for module in unsigned)
    many = f"{format_count(len(unsigned), 'module')} from outside the kernel's tree"
    evidence = [signature(module) for module in unsigned]
    forced = enforced(kernel, cmdline)
    if forced:
        what = f"{many} not signed, and this kernel rejects unsigned modules: {names}"
        hint = "sign them with a key that the kernel trusts, or remove what enforces signatures"
        yield SAY.fault(what, forced, *evidence, hint=hint)
        return
    what = f"{many} not signed, so a kernel under Secure Boot rejects them: {names}"
    yield SAY.fact(what, *evidence)


def signature(module: Module) -> Evidence:
    said = "signed" if module.signed else "not signed"
    return Evidence(module.path, said=said)


def enforced(kernel: Kernel, cmdline: Sequence[str]) -> Evidence | None:
    """What makes the kernel reject unsigned modules on every machine, even without Secure Boot."""
    for word in kernel_words(cmdline):
        locked = word.key == "lockdown" and word.value in ("integrity", "confidentiality")
        if locked or (word.key == "module.sig_enforce" and word.on):
            return word.evidence
    options = ("CONFIG_MODULE_SIG_FORCE=y", "CONFIG_LOCK_DOWN_KERNEL_FORCE_INTEGRITY=y",
               "CONFIG_LOCK_DOWN_KERNEL_FORCE_CONFIDENTIALITY=y")  # fmt: skip
    for path in (f"{kernel.folder}/config", f"/boot/config-{kernel.release}"):
        lines = set(kernel.root.text(path).splitlines())
        for option in options:
            if option in lines:
                return Evidence(path, said=option)
    return None
