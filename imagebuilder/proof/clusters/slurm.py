# SPDX-License-Identifier: Apache-2.0
"""Slurm on a node: plugins, control groups, locked memory, and the cards that it reports."""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding, Findings, fault, warning
from imagebuilder.proof.reading.config import is_true
from imagebuilder.proof.reading.nodes import NPU, find_family
from imagebuilder.proof.reading.parameters import requested
from imagebuilder.proof.reading.scripts import SiteService, services_of
from imagebuilder.proof.reading.systemd import said_in
from imagebuilder.proof.reading.texts import whole
from imagebuilder.proof.reading.units import default_memlock
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

# What ends a daemon that cannot be read (slurm.conf(5), "Parse error in file").
FILES = ("slurm.conf", "cgroup.conf", "gres.conf")
INCLUDE = re.compile(r"include\s", re.IGNORECASE)
FOLDERS = ("/etc/slurm", "/etc/slurm-llnl")
SETTING = re.compile(r"(?<!\w)(?P<key>\w+)\s*=\s*(?P<value>\S+)")
PLUGINS = ("/usr/lib/*/slurm-wlm", "/usr/lib/*/slurm", "/usr/lib64/slurm", "/usr/lib/slurm")
# What slurmd loads (slurm.conf(5)).
LOADED = ("selecttype", "authtype", "credtype", "proctracktype", "taskplugin", "switchtype",
          "jobacctgathertype")  # fmt: skip
NAME = re.compile(r"\w+")
MEMLOCK = str(8 << 20)  # the kernel's default, for what systemd starts
# Of systemd before 256, which could still mount the old hierarchies.
UNIFIED = "systemd.unified_cgroup_hierarchy"
CARD = re.compile(r"(?P<begin>/dev/(?:nvidia|dri/renderD|dri/card))(?P<numbers>\[[\d,-]+\]|\d+)$")
# The number of the first card, by the beginning of its node.
FIRST = {"/dev/dri/renderD": 128}
# What AutoDetect= asks for cards, and the PCI vendor of those.
DETECTED = {"nvml": "10de", "nvidia": "10de", "rsmi": "1002", "oneapi": "8086"}
LEAST_MIB = 2048
# What cgroup.conf restricts, and the plugin that does so (cgroup.conf(5), "Task/cgroup Plugin").
CONSTRAINS = re.compile(r"^[ \t]*(Constrain(?:Cores|Devices|RAMSpace|SwapSpace))[ \t]*=[ \t]*yes\b",
                        re.MULTILINE | re.IGNORECASE)  # fmt: skip
CONSTRAINER = "task/cgroup"
# What slurmd runs; a prolog or an epilog that fails drains its node.
JOB_PROGRAMS = ("prolog", "epilog", "taskprolog", "taskepilog", "healthcheckprogram")
RDMA = re.compile(r"ib_uverbs|rdma_ucm|\w+_ib|irdma|bnxt_re|hns_roce\w*")
GPU = "gpu"
# NAME:TYPE or NAME:TYPE:COUNT; a mere number is a count (slurm.conf(5), "Gres").
TYPED = re.compile(r"(?<!\w)(?P<name>\w+):(?P<type>[^:,(\s]*[^\d:,(\s][^:,(\s]*)(?=[:,(\s]|$)")
# Of a name of a product, what tells it from others: A100, RTX5090, MI300X.
MODEL = re.compile(r"[a-z]?\d{2,}(?!\d*gb)")


def prove_slurm(subject: Subject) -> Findings:
    for daemon in services_of(subject, "slurmd"):
        for name in FILES:
            yield from prove_lines(subject.root, daemon, name)
        yield from prove_plugins(subject.root, daemon)
        yield from prove_hierarchy(subject, daemon)
        yield from prove_constrained(subject.root, daemon)
        yield from prove_locked(subject, daemon)
        yield from prove_cards(subject.root, daemon)
        yield from prove_detection(subject, daemon)
        yield from prove_memory(subject.root, daemon)


def prove_lines(root: Root, daemon: SiteService, name: str) -> Findings:
    """A warning of a line that is no setting: Slurm reads `name=value` and Include alone."""
    path, _ = read_slurm(root, name)
    for line in map(str.strip, lines_of(root, path)):
        if line and "=" not in line and not INCLUDE.match(line):
            what = f'{daemon.name} does not start: {path} has a line without "="'
            yield warning(what, Evidence(path, said=line), hint="write NAME=VALUE")
            return


def prove_plugins(root: Root, daemon: SiteService) -> Findings:
    """Warnings of plugins of slurmd that slurm.conf names, and that this Slurm does not have.

    Others are the controller's, whose packages a node may lack; `none` needs no file.
    """
    path, settings = read_slurm(root, "slurm.conf")
    folder = settings.get("plugindir", "")
    places = [folder] if folder else root.glob(*PLUGINS)
    there = {name for place in places for name in root.names(place)}
    for value in (v for key in LOADED for v in settings.get(key, "").split(",")):
        kind, _, name = value.partition("/")
        plugin = f"{kind}_{name}.so"
        like = sorted(each for each in there if each.startswith(f"{kind}_"))
        if like and NAME.fullmatch(name) and name != "none" and plugin not in there:
            what = f"{daemon.name} may not start: {path} names {value}, and {plugin} is not among "
            what += "the plugins of this Slurm"
            where = (Evidence(path, said=value), Evidence(places[0], said=" ".join(like[:8])))
            yield warning(what, *where, hint="name one of those, or install its package")


def prove_hierarchy(subject: Subject, daemon: SiteService) -> Findings:
    words = subject.words
    if any(word.key == UNIFIED and not word.on for word in words):
        return
    path, settings = read_slurm(subject.root, "cgroup.conf")
    if settings.get("cgroupplugin") == "cgroup/v1":
        what = f"{daemon.name} does not start: CgroupPlugin=cgroup/v1, but nodes only "
        what += "have cgroup v2"
        where = Evidence(path, said="CgroupPlugin=cgroup/v1")
        yield fault(what, where, hint="set CgroupPlugin=autodetect, or remove that line")


def prove_constrained(root: Root, daemon: SiteService) -> Findings:
    """A warning of limits in cgroup.conf(5) that nothing enforces without the plugin task/cgroup.

    Versions of Slurm differ in the default of TaskPlugin=, so that only a line of it counts.
    """
    path, _ = read_slurm(root, "cgroup.conf")
    told, settings = read_slurm(root, "slurm.conf")
    plugins = settings.get("taskplugin", "")
    keys = list(dict.fromkeys(CONSTRAINS.findall(root.text(path)))) if path else []
    if keys and plugins and CONSTRAINER not in plugins.lower().split(","):
        what = f"{some(keys)} of {path} {'has' if len(keys) == 1 else 'have'} no effect on jobs of "
        what += f"{daemon.name}: {CONSTRAINER} enforces them, and {told} has TaskPlugin={plugins}"
        if any(key.lower().endswith("devices") for key in keys):
            what += "; a job can use cards that it did not ask for"
        where = (Evidence(told, said=f"TaskPlugin={plugins}"), Evidence(path, said=" ".join(keys)))
        hint = f"set TaskPlugin={CONSTRAINER},task/affinity, on the controller too"
        yield warning(what, *where, hint=hint)


def prove_locked(subject: Subject, daemon: SiteService) -> Findings:
    """A warning about jobs that get too little locked memory from the daemon, for RDMA or for an
    NPU, whose buffers are locked (amdxdna_gem_pin()).

    Jobs inherit the daemon's limit (slurm.schedmd.com/faq.html, "memlock"); with UsePAM=,
    pam_limits(8) sets theirs.
    """
    limit = daemon.unit.last("LimitMEMLOCK") or default_memlock(subject.root) or MEMLOCK
    settings = read_slurm(subject.root, "slurm.conf")[1]
    has_pam = is_true(settings.get("usepam", "")) and subject.root.is_file("/etc/pam.d/slurm")
    if has_pam or not limit.isdecimal() or whole(limit) >= 1 << 40:
        return
    for why, loads in [*locking(subject)][:1]:
        what = f"jobs of {daemon.name} may lock {limit} bytes, too little for {why}: limits.d "
        what += "applies to logins, but jobs inherit the daemon's limit"
        where = (said_in(subject.root, daemon.unit, "LimitMEMLOCK"), *loads)
        yield warning(what, *where, hint=f"set LimitMEMLOCK=infinity in a drop-in of {daemon.name}")


def locking(subject: Subject) -> Iterator[tuple[str, tuple[Evidence, ...]]]:
    """What makes programs lock memory, and what says so."""
    for name, where in requested(subject):
        if RDMA.fullmatch(name) and where.path not in subject.shipped:
            yield "RDMA", (where,)
    npu = find_family(NPU)
    for chip in subject.chips:
        if npu and not set(npu.modules).isdisjoint(chip.modules):
            yield "the NPU", ()


def prove_detection(subject: Subject, daemon: SiteService) -> Findings:
    """A warning of AutoDetect= for the cards of another maker than the profile's (gres.conf(5))."""
    path, settings = read_slurm(subject.root, "gres.conf")
    value = settings.get("autodetect", "").lower()
    vendors = {one.pci.partition(":")[0] for one in subject.hardware}
    if vendors & {*DETECTED.values()} and DETECTED.get(value, "") not in {*vendors, ""}:
        what = f"{daemon.name} finds no card: AutoDetect={value} of {path} asks for those of "
        what += "another maker"
        fitting = sorted(name for name, vendor in DETECTED.items() if vendor in vendors)
        where = Evidence(path, said=f"AutoDetect={value}")
        yield warning(what, where, hint=f"set AutoDetect={fitting[0]}")


def prove_memory(root: Root, daemon: SiteService) -> Findings:
    """A warning of nodes with less memory than the system takes: RealMemory= counts MiB."""
    path, settings = read_slurm(root, "slurm.conf")
    value = settings.get("realmemory", "")
    if value.isdecimal() and 1 < whole(value) < LEAST_MIB:
        what = (
            f"jobs of {daemon.name} get at most {value} MiB of a node: RealMemory={value} of {path}"
        )
        hint = f"the unit is MiB: {value} GiB are {whole(value) << 10}"
        yield warning(what, Evidence(path, said=f"RealMemory={value}"), hint=hint)


def prove_cards(root: Root, daemon: SiteService) -> Findings:
    path, _ = read_slurm(root, "gres.conf")
    for line in root.text(path).splitlines():
        card = CARD.match(settings_of(line.partition("#")[0]).get("file", ""))
        if card is None:
            continue
        most = max((whole(each) for each in re.findall(r"\d+", card["numbers"])), default=0)
        more = most - FIRST.get(card["begin"], 0)
        if more > 0:
            fewer = "one card" if more == 1 else f"fewer than {more + 1} cards"
            what = f"{daemon.name} does not start on a node with {fewer}: {path} names "
            what += f"{card['begin']}{most}"
            hint = "let AutoDetect= find the cards, or add a line with NodeName= for each node"
            yield warning(what, Evidence(path, said=line.strip()), hint=hint)


def job_programs(subject: Subject) -> Iterator[tuple[str, str]]:
    """The programs that slurmd runs beside jobs (slurm.conf(5), "Prolog"), with their settings."""
    if not any(True for _ in services_of(subject, "slurmd")):
        return
    path, _ = read_slurm(subject.root, "slurm.conf")
    for line in subject.root.text(path).splitlines() if path else ():
        for found in SETTING.finditer(line.partition("#")[0]):
            if found["key"].lower() in JOB_PROGRAMS:
                for named in found["value"].split(","):
                    full = named if named.startswith("/") else f"{posixpath.dirname(path)}/{named}"
                    yield from ((each, found["key"]) for each in subject.root.glob(full) or [full])


def read_slurm(root: Root, name: str) -> tuple[str, dict[str, str]]:
    """A file of Slurm: its path, and its settings by name in lower case, the last of each."""
    path = next((f"{f}/{name}" for f in FOLDERS if root.is_file(f"{f}/{name}")), "")
    lines = (line.partition("#")[0] for line in root.text(path).splitlines()) if path else ()
    return path, {key: value for line in lines for key, value in settings_of(line).items()}


def settings_of(line: str) -> dict[str, str]:
    return {found["key"].lower(): found["value"] for found in SETTING.finditer(line)}


def prove_gres(subject: Subject) -> Findings:
    """Warnings of cards of another type (gres.conf) than Slurm expects (Gres= of slurm.conf): the
    controller drains such a node.  slurm.conf names all nodes, which may have other images.
    """
    for daemon in services_of(subject, "slurmd"):
        expected = dict(expected_types(subject.root))
        path, types, is_detected = reported_types(subject.root)
        if not expected or not path:
            continue
        if types and not set(types) & set(expected):
            yield drained(
                daemon, expected, f"{path} says {first_of(types)}", types[first_of(types)]
            )
        elif is_detected and not types and subject.hardware:
            names = [re.sub(r"[\W_]", "", h.name.lower()) for h in subject.hardware]
            models = {model for each in expected for model in MODEL.findall(each.lower())}
            if models and not any(model in name for model in models for name in names):
                said = f"the image is for {subject.hardware[0].name}"
                yield drained(daemon, expected, said, Evidence(path, said="AutoDetect="))


def drained(
    daemon: SiteService, expected: dict[str, Evidence], said: str, where: Evidence
) -> Finding:
    kind = first_of(expected)
    what = f"Slurm expects cards of the type {kind} on its nodes ({expected[kind].path}), and "
    what += (
        f"{said}: the controller counts none of that type for {daemon.name}, and drains the node"
    )
    hint = "write the same type in both files, also in those of the controller"
    return warning(what, expected[kind], where, hint=hint)


def first_of(types: dict[str, Evidence]) -> str:
    return next(iter(types))


def expected_types(root: Root) -> Iterator[tuple[str, Evidence]]:
    """The types of cards in the lines of nodes, each with its first line."""
    path, _ = read_slurm(root, "slurm.conf")
    told: set[str] = set()
    for line in lines_of(root, path):
        settings = settings_of(line)
        for found in TYPED.finditer(settings.get("gres", "")) if "nodename" in settings else ():
            if found["name"] == GPU and found["type"] not in told:
                told.add(found["type"])
                yield found["type"], Evidence(path, said=f"Gres={settings['gres']}")


def reported_types(root: Root) -> tuple[str, dict[str, Evidence], bool]:
    """The file, the types of its cards, none if a line has cards without one, and whether something
    detects them.
    """
    path, whole_file = read_slurm(root, "gres.conf")
    found: dict[str, Evidence] = {}
    detects = whole_file.get("autodetect", "off").lower() not in ("off", "")
    for line in lines_of(root, path):
        settings = settings_of(line)
        if settings.get("name", "").lower() != GPU:
            continue
        if "type" not in settings:
            return path, {}, detects
        found.setdefault(settings["type"], Evidence(path, said=line.strip()))
    return path, found, detects


def lines_of(root: Root, path: str) -> list[str]:
    """The lines of a file of Slurm without comments, continued ones joined."""
    text = root.text(path) if path else ""
    return [line.partition("#")[0] for line in text.replace("\\\n", " ").splitlines()]
