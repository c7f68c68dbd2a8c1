# SPDX-License-Identifier: Apache-2.0
"""What grows on a node until its memory is full: everything that is written to its root."""

from __future__ import annotations

import fnmatch
import posixpath
import re
from collections.abc import Iterator
from itertools import pairwise

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.clusters import SAY
from imagebuilder.proof.reading.mounts import SiteMount, find_mounts, mount_of
from imagebuilder.proof.reading.site import SiteService, site_services
from imagebuilder.proof.reading.units import service_lines
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

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
HINT = "keep it on a disk of the node, such as a folder below /models"


def prove_growth(subject: Subject) -> Iterator[Finding]:
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


def prove_logs(
    root: Root, service: SiteService, mounts: tuple[SiteMount, ...]
) -> Iterator[Finding]:
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
                yield SAY.warning(what, where, hint=hint)


def is_rotated(root: Root, path: str) -> bool:
    """Whether logrotate(8) is in the image and has a rule for a file."""
    program, rules = LOGROTATE
    words = (word.strip("\"'") for rule in root.glob(rules) for word in root.text(rule).split())
    return root.is_file(program) and any(fnmatch.fnmatchcase(path, word) for word in words)


def prove_fetched(service: SiteService, mounts: tuple[SiteMount, ...]) -> Iterator[Finding]:
    for key, words in service.unit.started():
        path = fetched_to(service, words)
        if path and in_memory(mounts, path):
            what = f"{service.name} fetches a model at every boot and keeps it in the node's "
            what += f"memory: {path} is not on a disk"
            where = Evidence(service.unit.place, said=f"{key}={' '.join(words)}")
            yield SAY.warning(what, where, hint=HINT)
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


def prove_unpacked(root: Root, mounts: tuple[SiteMount, ...]) -> Iterator[Finding]:
    program, patterns = ENROOT
    for path in root.glob(*patterns):
        found = UNPACKED.search(root.text(path))
        if found and root.lies(program) and in_memory(mounts, found["path"]):
            what = "Enroot unpacks every container image into the node's memory: "
            what += f"{found['path']} is not on a disk"
            yield SAY.warning(what, Evidence(path, said=found[0].strip()), hint=HINT)
