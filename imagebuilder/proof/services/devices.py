# SPDX-License-Identifier: Apache-2.0
"""Variables of a service, or of logins, that hide devices, disguise them, or replace libraries; and
which drivers the variables of the Vulkan loader leave.

Vulkan-Loader, docs/LoaderDriverInterface.md and loader/loader_environment.c.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable, Iterator, Sequence
from re import fullmatch, search

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.proof.reading.config import config_folders
from imagebuilder.proof.reading.environment import (
    ADD_LOOPBACK,
    INTERFACE,
    REMOVE,
    USES_LOOPBACK,
    Environment,
    Variable,
    environment_of,
    runtime_files,
    uses_loopback,
)
from imagebuilder.proof.reading.libraries import DRIVERS, USUAL, announced, driver_said, files_in
from imagebuilder.proof.reading.texts import unquoted
from imagebuilder.proof.say import prove_answered
from imagebuilder.proof.services import selectors
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.chip import Chip
from imagebuilder.root import Root

PYTHON, HOME = "PYTHONPATH", "PYTHONHOME"
SEARCH, PRELOAD = "LD_LIBRARY_PATH", "LD_PRELOAD"
RESOLVED = re.compile(r"^[ \t]+(?P<name>\S+) => (?P<path>/\S+)", re.MULTILINE)


UUID = r"\s*(GPU|MIG)-[0-9a-fA-F].*"
# Of NCCL, UCX and Open MPI; mlx5_0 is its name before rdma-core's rule (rdma_rename(8)).
ADAPTERS = r"NCCL_IB_HCA|UCX_NET_DEVICES|OMPI_MCA_btl_openib_if_include|NVSHMEM_HCA_LIST"
OLD_ADAPTERS = r"(^|[=,])(mlx[45]|bnxt_re|irdma|hfi1)_?\d"
RENAMING = r"(?m)^[^#\n]*\brdma_rename\s+%k\s+(NAME_(?!KERNEL)\w+)"
RDMA_RULES = tuple(f"{f}/60-rdma-persistent-naming.rules" for f in config_folders("udev/rules.d"))
OLD_NAMES = r"\s*=?eth\d+(:\d+)?(,eth\d+(:\d+)?)*\s*"
# Read by pam_env(8), by shells, and by systemd for the services of a user.
FILES = ("/etc/environment", "/etc/profile")
FOLDERS = ("/usr/lib/environment.d/*.conf", "/etc/environment.d/*.conf", "/etc/profile.d/*.sh")
ASSIGNMENT = re.compile(r"^[ \t]*(?:export\s+)?(?P<name>\w+)=(?P<value>.*)$", re.MULTILINE)
WHO = "everybody who logs in"
EVERY_PROGRAM = "every program that reads that file"
NPU, XRT = "amdxdna", "xrt"
# Files or folders that are used instead of the announced ones; the first variable counts, and
# with it the one that adds files does not.
ICD_FILES = ("VK_DRIVER_FILES", "VK_ICD_FILENAMES")
SELECT, DISABLE = "VK_LOADER_DRIVERS_SELECT", "VK_LOADER_DRIVERS_DISABLE"
SOFTWARE = re.compile(r"lvp|lavapipe|swiftshader|llvmpipe", re.IGNORECASE)
EVERYTHING = ("*", "**", "~all~")


def prove_selection(unit: str, backends: Sequence[str], environment: Environment) -> Findings:
    for row in selectors.SELECTORS:
        variable = environment.get(row.variable)
        if variable is None or not row.backends & set(backends):
            continue
        where = variable.evidence(row.variable)
        said = f"{row.variable}={variable.value}"
        if fullmatch(row.hides, variable.value):
            yield fault(f"{said} hides every device from {unit}", where, hint=REMOVE)
        elif fullmatch(UUID, variable.value):
            what = (
                f"{said} names a card by its UUID: no other node has that card, and {unit} finds "
            )
            yield warning(f"{what}none there", where, hint=REMOVE)
        elif fullmatch(row.fewer, variable.value):
            what = f"{said} hides devices from {unit}: a node with fewer devices may have none left"
            yield warning(what, where, hint=REMOVE)


def prove_interfaces(
    subject: Subject, unit: str, environment: Environment, *, uses: bool = True
) -> Findings:
    """Faults of variables that name a NIC as the kernel does before udev names it, and warnings of
    those that name an adapter for RDMA so, or leave out interfaces, but not the loopback interface.
    `uses` is whether anything is known to read them.
    """
    words = subject.words
    renames = not any(word.key == "net.ifnames" and word.value == "0" for word in words)
    rules = next(filter(None, map(subject.root.text, RDMA_RULES)), "")
    for name, variable in environment.items():
        if renames and fullmatch(INTERFACE, name) and fullmatch(OLD_NAMES, variable.value):
            what = f"{name}={variable.value} of {unit}: no NIC of a node has that name, and the "
            what += "processes of an engine do not find each other"
            hint = "remove it, or list the NICs to exclude: ^lo,docker"
            yield (fault if uses else warning)(what, variable.evidence(name), hint=hint)
        if uses_loopback(name, variable.value):
            what = f"{name}={variable.value} of {unit} {USES_LOOPBACK}"
            yield warning(what, variable.evidence(name), hint=ADD_LOOPBACK)
        is_old = fullmatch(ADAPTERS, name) and search(OLD_ADAPTERS, variable.value)
        if is_old and (renamed := search(RENAMING, rules)):
            what = f"{name}={variable.value} of {unit}: udev renames the adapters for RDMA "
            what += f"(rdma_rename {renamed[1]}), and none has that name"
            hint = "use the name that `rdma link` prints on a node, or remove the variable"
            yield warning(what, variable.evidence(name), hint=hint)


def prove_emulation(unit: str, backends: Sequence[str], environment: Environment) -> Findings:
    for readers, row in selectors.EMULATIONS:
        variable = environment.get(row.variable)
        if variable and readers & set(backends) and fullmatch(row.value, variable.value.strip()):
            what = f"{row.variable}={variable.value} takes the device from {unit}: {row.what}"
            yield fault(what, variable.evidence(row.variable), hint=REMOVE)


def prove_hindrances(
    unit: str, backends: Sequence[str], environment: Environment, chips: Sequence[Chip]
) -> Findings:
    # Memory of graphics is a processor's if all machines with it have that processor.
    has_memory = any(not chip.integrated and not chip.processor for chip in chips)
    architectures = {chip.architecture for chip in chips}
    for readers, row in (*selectors.HINDRANCES, *(selectors.SHARED if has_memory else ())):
        variable = environment.get(row.variable)
        if architectures and architectures <= row.without:
            continue
        if variable and readers & set(backends) and fullmatch(row.value, variable.value.strip()):
            what = f"{row.variable}={variable.value} makes {unit} slow: {row.what}"
            yield warning(what, variable.evidence(row.variable), hint=REMOVE)


def prove_python_path(
    subject: Subject, unit: str, modules: Iterable[str], environment: Environment
) -> Findings:
    """Findings about modules that override those of the engine's environment.

    A check for the device that runs isolated (`python -I`) does not import them.
    """
    home = environment.get(HOME)
    if home and home.value and not subject.root.glob(f"{home.value}/lib/python3*/os.py"):
        what = f"{unit} does not start: {HOME}={home.value} makes Python look for its own library "
        what += "there, and it is not there"
        hint = f"remove it; {PYTHON} names folders of further modules"
        yield fault(what, home.evidence(HOME), hint=hint)
    variable = environment.get(PYTHON)
    if variable is None or not variable.value.strip(":"):
        return
    said = f"{PYTHON}={variable.value}"
    folders = [folder for folder in variable.value.split(":") if folder]
    found = [
        path
        for folder in folders
        for module in modules
        for path in (f"{folder}/{module}", f"{folder}/{module}.py")
        if subject.root.lies(path)
    ]
    if found:
        what = f"{said} makes {unit} import {found[0]} instead of the module in its environment"
        where = (variable.evidence(PYTHON), Evidence(found[0]))
        yield fault(what, *where, hint=REMOVE)
    else:
        what = f"{said}: {unit} may import modules that its check for the device does not"
        yield warning(what, variable.evidence(PYTHON), hint=REMOVE)


def prove_disguise(subject: Subject, unit: str, environment: Environment) -> Findings:
    """Faults of variables that make ROCm treat the card as another, or load other kernels."""
    override = environment.get(selectors.OVERRIDE)
    targets = [target for target in subject.targets if target.startswith("gfx")]
    if override and targets and selectors.target_of(override.value) not in targets:
        target = selectors.target_of(override.value) or "a card without a target"
        what = f"{selectors.OVERRIDE}={override.value} makes ROCm in {unit} treat the card as "
        what += f"{target}, but the profile is for {' and '.join(targets)}"
        yield fault(what, override.evidence(selectors.OVERRIDE), hint=REMOVE)
    folder = environment.get(selectors.TENSILE)
    if folder and targets:
        names = subject.root.names(folder.value)
        lacking = [t for t in targets if not any(t in name for name in names)]
        if lacking:
            what = f"{selectors.TENSILE}={folder.value} has no kernels for {' and '.join(lacking)}"
            yield fault(what, folder.evidence(selectors.TENSILE), hint=REMOVE)


def prove_search(
    subject: Subject, unit: str, programs: Sequence[str], environment: Environment
) -> Findings:
    preload = environment.get(PRELOAD)
    missing = [p for p in preload.value.replace(":", " ").split()
               if p.startswith("/") and not subject.root.is_file(p)] if preload else []  # fmt: skip
    if preload and missing:
        what = f"{PRELOAD} of {unit} names {missing[0]}, which is not in the image"
        yield fault(what, preload.evidence(PRELOAD), hint=REMOVE)
    variable = environment.get(SEARCH)
    if variable is None or not programs:
        return
    for path, found in replaced(subject, variable.value.split(":")):
        what = f"{SEARCH}={variable.value} makes {unit} load {found} instead of {path}"
        where = (variable.evidence(SEARCH), Evidence(found))
        yield fault(what, *where, hint=REMOVE)
    words = ["ldd", *programs]
    runs = [subject.run(["env", *each, *words]) for each in ((), (f"{SEARCH}={variable.value}",))]
    for done in runs:
        unread = f"which libraries {SEARCH} makes {unit} load"
        yield from prove_answered(done, unread, variable.evidence(SEARCH))
    plain, changed = ({m["name"]: m["path"] for m in RESOLVED.finditer(d.stdout)} for d in runs)
    others = {n: path for n, path in changed.items() if n in plain and plain[n] != path}
    declared = {posixpath.basename(path) for path in subject.expectations.libraries}
    for name, path in ((n, p) for n, p in others.items() if n not in declared):
        what = f"{SEARCH}={variable.value} makes {unit} load {path} instead of {plain[name]}"
        yield fault(what, variable.evidence(SEARCH), Evidence(path), hint=REMOVE)


def replaced(subject: Subject, folders: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The libraries that overlays declare, and what has their name in the first of some folders.

    Programs open them by name (dlopen(3)), so that no loader tells of them.
    """
    for path in subject.expectations.libraries:
        named = (f"{folder}/{posixpath.basename(path)}" for folder in folders if folder)
        found = next((each for each in named if subject.root.is_file(each)), path)
        if subject.root.resolve(found) != subject.root.resolve(path):
            yield path, found


def prove_sessions(subject: Subject) -> Findings:
    environment = session_environment(subject.root)
    backends = {b for engine in subject.expectations.engines for b in engine.backends}
    backends |= {XRT} if has_npu(subject) else set()
    yield from prove_emulation(WHO, sorted(backends), environment)
    yield from prove_selection(WHO, sorted(backends), environment)
    yield from prove_interfaces(subject, WHO, environment, uses=False)
    for settings in runtime_files(subject.root):
        yield from prove_interfaces(subject, EVERY_PROGRAM, settings, uses=False)


def prove_units(subject: Subject) -> Findings:
    """Faults of services whose variables replace the NPU, each variable of a file once.

    The NPU is not declared for a service: any program may use it.
    """
    services = [unit for unit in subject.startup.units.values() if unit.name.endswith(".service")]
    seen: set[tuple[Evidence, ...]] = set()
    for unit in services if has_npu(subject) else ():
        for finding in prove_emulation(unit.name, [XRT], environment_of(subject, unit)):
            if finding.evidence not in seen:
                seen.add(finding.evidence)
                yield finding


def has_npu(subject: Subject) -> bool:
    return any(NPU in chip.modules for chip in subject.chips)


def session_environment(root: Root) -> dict[str, Variable]:
    """The variables that are set for every login, as far as files say so plainly."""
    found: dict[str, Variable] = {}
    paths = (*FILES, *root.glob(*FOLDERS))
    # systemd has a link to /etc/environment in its folder.
    for path in dict.fromkeys(root.resolve(path) or path for path in paths):
        for line in ASSIGNMENT.finditer(root.text(path)):
            words = unquoted(line["value"])
            found[line["name"]] = Variable(words[0] if words else "", path)
    return found


def prove_drivers(subject: Subject, unit: str, environment: Environment) -> Findings:
    """A fault if variables leave no Vulkan driver for a card of the profile."""
    root = subject.root
    vendors = {device.pci.partition(":")[0] for device in subject.hardware} & DRIVERS.keys()
    found = [path for path in announced(root) if is_for_card(root, path, vendors)]
    # The question `libraries` reports an image without a driver: here one may be added to it.
    left = found or [USUAL[vendor] for vendor in sorted(vendors)]
    if added := environment.get("VK_ADD_DRIVER_FILES"):
        left += [path for path in listed(root, added.value) if is_for_card(root, path, vendors)]
    files = next((name for name in ICD_FILES if name in environment), "")
    for name in (files, SELECT, DISABLE):
        variable = environment.get(name)
        if variable is None or not (variable.value or name == files):
            continue
        lost = left
        if name == files:
            named = listed(root, variable.value)
            left = [path for path in named if is_for_card(root, path, vendors)]
        else:
            left = [p for p in left if matches(p, variable.value) == (name == SELECT)]
        if not left:
            gone = " and ".join(sorted({posixpath.basename(path) for path in lost}))
            what = f"{name}={variable.value} leaves {unit} without a Vulkan driver for a card"
            yield fault(
                f"{what}: it leaves out {gone}" if gone else what,
                variable.evidence(name),
                *(Evidence(path) for path in lost if root.lies(path)),
                hint="remove that variable, or name the file of the card's driver in it",
            )
            return


def listed(root: Root, value: str) -> list[str]:
    """The ICD files of a list of files and folders."""
    found: list[str] = []
    for path in filter(None, value.split(":")):
        found += files_in(root, path) if root.is_dir(path) else [path]
    return found


def is_for_card(root: Root, path: str, vendors: set[str]) -> bool:
    """Whether an ICD file may be that of a card of these PCI vendors, by its driver's name."""
    library = driver_said(root, path)
    if library is None or SOFTWARE.search(f"{path} {library}"):
        return False
    name = posixpath.basename(library)
    owners = {v for v, (names, _) in DRIVERS.items() if any(each in name for each in names)}
    return not owners or not vendors or bool(owners & vendors)


def matches(path: str, value: str) -> bool:
    """Whether a list of globs has the name of an ICD file; `*` is special at both ends only."""
    name = posixpath.basename(path).lower()
    for glob in filter(None, value.lower().split(",")):
        text = re.escape(glob.removeprefix("*").removesuffix("*"))
        before, after = ".*" * glob.startswith("*"), ".*" * glob.endswith("*")
        if glob in EVERYTHING or re.fullmatch(f"{before}{text}{after}", name):
            return True
    return False
