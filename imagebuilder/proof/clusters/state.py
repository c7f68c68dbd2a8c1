# SPDX-License-Identifier: Apache-2.0
"""What daemons and LVM wrote while the image was built, and take up again on every node; and what
is written to a node's root until its memory is full.
"""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from imagebuilder.decode import parse_json
from imagebuilder.errors import InputError
from imagebuilder.image.proof import Evidence, Findings, warning
from imagebuilder.proof.reading.config import read_yaml
from imagebuilder.proof.reading.mounts import SiteMount, find_mounts, mount_of, read_tmpfiles
from imagebuilder.proof.reading.scripts import SiteService, services_of, site_services, texts_of
from imagebuilder.proof.reading.units import find_program, service_lines
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

REMOVES = re.compile(r"\brm\b")
KUBELET = "/var/lib/kubelet"
HINT = "remove it when the image is built, and do not start the daemon there"
LVM, CONFIG, LISTS = "lvm", ("/etc/lvm/lvm.conf", "/etc/lvm/lvmlocal.conf"), "/etc/lvm/devices/*"
# lvmdevices(8): a disk by what only it has; `devname` and files of loop devices may be anywhere.
DISK = re.compile(
    r"^[ \t]*IDTYPE=(?P<kind>(?!devname\b|loop_file\b)\w+)[ \t]+IDNAME=(?P<name>\S+)", re.MULTILINE
)
LIST_ON = re.compile(r"^[ \t]*use_devicesfile[ \t]*=[ \t]*(?P<value>[01])", re.MULTILINE)
LIST_NAME = re.compile(r"^[ \t]*devicesfile[ \t]*=[ \t]*\"(?P<name>[^\"]*)\"", re.MULTILINE)
# lvm.conf(5), global_filter: accepts one disk by its serial number, and refuses all others.
FILTER = re.compile(r"^[ \t]*(global_)?filter[ \t]*=[ \t]*\[(?P<rules>[^\]]*)\]", re.MULTILINE)
ACCEPTS = re.compile(r"\"a[|/!#](?P<path>[^\"]*)")
BY_ID = re.compile(r"/disk/by-(?:id|uuid)/[^*]*\w{6}")
REFUSES = re.compile(r"\"r[|/!#](\^?/?\.\*|\.\*/?)[|/!#]\"")
OUTPUTS = frozenset(("StandardOutput", "StandardError"))
TO_FILE = re.compile(r"(append|file):(?P<path>/.*)")
LOGROTATE = ("/usr/sbin/logrotate", "/etc/logrotate.d/*")
# Folders that hold nothing but devices and what the kernel says.
NO_MEMORY = ("/dev/", "/proc/", "/sys/")
ENROOT = ("/usr/bin/enroot", ("/etc/enroot/enroot.conf", "/etc/enroot/enroot.conf.d/*.conf"))
UNPACKED = re.compile(r"^[ \t]*ENROOT_DATA_PATH[\s=]+[\"']?(?P<path>/[^\s\"'$]*)", re.MULTILINE)
# Commands that fetch models: the words after the program, and the variables that say where to.
FETCHING = (
    ("flm", ("pull",), ("FLM_MODEL_PATH",)),
    ("ollama", ("pull",), ("OLLAMA_MODELS",)),
    ("hf", ("download",), ("HF_HUB_CACHE", "HF_HOME")),
    ("huggingface-cli", ("download",), ("HF_HUB_CACHE", "HF_HOME")),
    ("lms", ("get",), ("HOME",)),
)
TARGETS = ("--local-dir", "--output", "-o", "-O", "--output-document", "--directory-prefix", "-P")
DOWNLOADERS = frozenset(("curl", "wget", "aria2c"))
WEIGHTS = re.compile(r"https?://\S+\.(gguf|safetensors|bin|pt|onnx)\b\S*")
ON_DISK = "keep it on a disk of the node, such as a folder below /models"


@dataclass(frozen=True)
class DaemonState:
    """Files (a glob) that a program wrote, and what follows if every node has them."""

    pattern: str
    program: str
    effect: str


MEMBER = "all nodes are one and the same member of a cluster"
# etcd(1), --data-dir; dockerd's swarm/; "Node ID" of developer.hashicorp.com/consul/docs/agent, and
# "client-id" of Nomad's client/state.
STATES = (
    DaemonState("/var/lib/etcd/member/*", "etcd", MEMBER),
    DaemonState("/var/lib/docker/swarm/docker-state.json", "dockerd", MEMBER),
    *(DaemonState(f"{top}/node-id", "consul", MEMBER) for top in ("/var/lib/consul",
                                                                 "/opt/consul*")),
    *(DaemonState(f"{top}/client/client-id", "nomad", MEMBER) for top in ("/var/lib/nomad",
                                                                         "/opt/nomad*")),
)  # fmt: skip
# State of the kubelet's managers, which it refuses if their policy is another one: the setting and
# the option of the policy, and its default (kubernetes.io, "CPU Management Policies on the Node":
# remove the file when the policy changes; NewMemoryManager() of pkg/kubelet/cm/memorymanager).
MANAGERS = (
    ("cpu_manager_state", "cpuManagerPolicy", "--cpu-manager-policy", "none", "processors"),
    ("memory_manager_state", "memoryManagerPolicy", "--memory-manager-policy", "None", "memory"),
)


def prove_state(subject: Subject) -> Findings:
    """Warnings of runtime state in the image, unless a mount hides it or something removes it."""
    for state in STATES:
        for service in [*services_of(subject, state.program)][:1]:
            paths = (p for p in subject.root.glob(state.pattern) if stays(subject, p))
            if path := next(paths, ""):
                what = f"{path} was written by a {state.program} that ran while the image was "
                what += f"built: {service.name} reads it on every node, and {state.effect}"
                yield warning(what, Evidence(path), hint=HINT)
    for kubelet in services_of(subject, "kubelet"):
        yield from prove_managers(subject, kubelet)


def prove_managers(subject: Subject, kubelet: SiteService) -> Findings:
    """A warning of state with which a kubelet exits: of another policy, or another machine."""
    root, config = subject.root, kubelet.option("--config") or ""
    settings = read_yaml(root, config).values
    for name, key, option, default, of in MANAGERS:
        path = f"{kubelet.option('--root-dir') or KUBELET}/{name}"
        policy = kubelet.option(option) or str(settings.get(key, default))
        written = policy_of(root, path)
        if written is None or written == policy == default or not stays(subject, path):
            continue
        if written == policy:
            why = f"it lists the {of} of the builder, and {kubelet.name} exits on a node with "
            why += f"other {of}"
        else:
            why = f"its policy is {written or 'not valid'}, but {kubelet.name} has {policy}, and "
            why += "exits whenever it starts"
        what = f"{path} was written by a kubelet that ran while the image was built: {why}"
        where = Evidence(path, said=f"policyName {written}")
        setting = Evidence(config or kubelet.evidence.path, symbol=key)
        yield warning(what, where, setting, hint=HINT)


def policy_of(root: Root, path: str) -> str | None:
    """The policy in a file of state, "" if it has none; None without a file."""
    text = root.text(path)
    if not text:
        return None
    try:
        state = parse_json(text, path)
    except InputError:
        return ""
    return str(state.get("policyName", "")) if isinstance(state, dict) else ""


def stays(subject: Subject, path: str) -> bool:
    """Whether a file of the image is there when its program starts."""
    if path in subject.shipped or mount_of(find_mounts(subject), path):
        return False
    gone = (line.path for line in read_tmpfiles(subject) if line.kind in "rR")
    if any(fnmatch.fnmatchcase(each, p.rstrip("/")) for p in gone for each in above(path)):
        return False
    marks = (path, f"{posixpath.dirname(path)}/*", posixpath.basename(path))
    for unit in subject.startup.starting():
        for _, words in unit.started():
            for line in "\n".join(texts_of(subject.root, words)).splitlines():
                if REMOVES.search(line) and any(mark in line for mark in marks):
                    return False
    return True


def above(path: str) -> Iterator[str]:
    """A path, and the folders that it is in."""
    while path != "/":
        yield path
        path = posixpath.dirname(path)


def prove_disks(subject: Subject) -> Findings:
    """Warnings of lists of one machine's disks, by which LVM passes over those of other nodes."""
    root = subject.root
    if not find_program(root, LVM):
        return
    text = "".join(f"{root.text(path)}\n" for path in CONFIG)
    is_on = LIST_ON.search(text)
    named = LIST_NAME.search(text)
    path = LISTS.replace("*", named["name"] if named else "system.devices")
    disks = list(DISK.finditer(root.text(path)))
    if disks and not (is_on and is_on["value"] == "0") and stays(subject, path):
        first = disks[0]
        what = f"{path} lists the disks of one machine ({first['name']}): LVM passes over those of "
        what += "all other nodes, and finds no volume group there"
        hint = "remove the file, or set use_devicesfile = 0 in lvm.conf"
        yield warning(what, Evidence(path, said=first[0].strip()), hint=hint)
    for config in CONFIG:
        for found in FILTER.finditer(root.text(config)):
            accepted = [each["path"].rstrip("|/!#") for each in ACCEPTS.finditer(found["rules"])]
            is_one = accepted and all(map(BY_ID.search, accepted))
            if is_one and REFUSES.search(found["rules"]):
                what = f"the filter of {config} accepts the disks of one machine alone "
                what += f"({accepted[0]}): LVM finds no volume group on all other nodes"
                said = " ".join(found[0].split())
                yield warning(what, Evidence(config, said=said), hint="remove the filter")


def prove_growth(subject: Subject) -> Findings:
    """Warnings: how much is written, the image does not say."""
    mounts = find_mounts(subject)
    services = list(site_services(subject))
    for service in {service.name: service for service in services}.values():
        yield from prove_logs(subject.root, service, mounts)
        yield from prove_fetched(service, mounts)
    yield from prove_unpacked(subject.root, mounts)


def in_memory(mounts: tuple[SiteMount, ...], path: str) -> bool:
    mount = mount_of(mounts, path)
    return not path.startswith(NO_MEMORY) and (mount is None or mount.kind in ("tmpfs", "ramfs"))


def prove_logs(root: Root, service: SiteService, mounts: tuple[SiteMount, ...]) -> Findings:
    if service.unit.last("Type") == "oneshot":  # what runs once writes little
        return
    for unit_file in service.unit.paths:
        for key, value in service_lines(root.text(unit_file)):
            found = TO_FILE.fullmatch(value) if key in OUTPUTS else None
            if found and in_memory(mounts, found["path"]) and not is_rotated(root, found["path"]):
                what = f"{service.name} writes to {found['path']}, in the node's memory, and "
                what += "nothing rotates it"
                where = Evidence(unit_file, "Service", said=f"{key}={value}")
                hint = f"remove {key}= to log to the journal, which has a limit; or rotate the file"
                yield warning(what, where, hint=hint)


def is_rotated(root: Root, path: str) -> bool:
    """Whether logrotate(8) is in the image and has a rule for a file."""
    program, rules = LOGROTATE
    words = (word.strip("\"'") for rule in root.glob(rules) for word in root.text(rule).split())
    return root.is_file(program) and any(fnmatch.fnmatchcase(path, word) for word in words)


def prove_fetched(service: SiteService, mounts: tuple[SiteMount, ...]) -> Findings:
    for key, words in service.unit.started():
        path = fetched_to(service, words)
        if path and in_memory(mounts, path):
            what = f"{service.name} fetches a model at every boot and keeps it in the node's "
            what += f"memory: {path} is not on a disk"
            where = Evidence(service.unit.place, said=f"{key}={' '.join(words)}")
            yield warning(what, where, hint=ON_DISK)
            return


def fetched_to(service: SiteService, words: tuple[str, ...]) -> str:
    """The folder that a command fetches a model to, "" if it fetches none or does not say."""
    program = posixpath.basename(words[0])
    targets = [after for word, after in pairwise(words) if word in TARGETS]
    if program in DOWNLOADERS and any(map(WEIGHTS.fullmatch, words)):
        return next((path for path in targets if path.startswith("/")), "")
    for name, verb, variables in FETCHING:
        if program == name and words[1 : 1 + len(verb)] == verb:
            values = (service.environment[v].value for v in variables if v in service.environment)
            return next((path for path in (*targets, *values) if path.startswith("/")), "")
    return ""


def prove_unpacked(root: Root, mounts: tuple[SiteMount, ...]) -> Findings:
    program, patterns = ENROOT
    for path in root.glob(*patterns):
        found = UNPACKED.search(root.text(path))
        if found and root.lies(program) and in_memory(mounts, found["path"]):
            what = "Enroot unpacks every container image into the node's memory: "
            what += f"{found['path']} is not on a disk"
            yield warning(what, Evidence(path, said=found[0].strip()), hint=ON_DISK)
