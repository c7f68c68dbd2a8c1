# SPDX-License-Identifier: Apache-2.0
"""Cards that Slurm expects of nodes (Gres= of slurm.conf), and those that a node reports
(gres.conf): with another type the controller drains the node.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.clusters import SAY
from imagebuilder.proof.clusters.slurm import SETTING, read_slurm
from imagebuilder.proof.reading.site import SiteService, services_of
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

GPU = "gpu"
# NAME:TYPE or NAME:TYPE:COUNT; a mere number is a count (slurm.conf(5), "Gres").
TYPED = re.compile(r"(?<!\w)(?P<name>\w+):(?P<type>[^:,(\s]*[^\d:,(\s][^:,(\s]*)(?=[:,(\s]|$)")
# Of a name of a product, what tells it from others: A100, RTX5090, MI300X.
MODEL = re.compile(r"[a-z]?\d{2,}(?!\d*gb)")


def prove_gres(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings: slurm.conf names the nodes of the whole cluster, which may have other images."""
    for daemon in services_of(subject, startup, "slurmd"):
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
    return SAY.warning(what, expected[kind], where, hint=hint)


def first_of(types: dict[str, Evidence]) -> str:
    return next(iter(types))


def expected_types(root: Root) -> Iterator[tuple[str, Evidence]]:
    """The types of cards in the lines of nodes, each with its first line."""
    path, _ = read_slurm(root, "slurm.conf")
    told: set[str] = set()
    for line in lines_of(root, path):
        settings = {found["key"].lower(): found["value"] for found in SETTING.finditer(line)}
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
        settings = {each["key"].lower(): each["value"] for each in SETTING.finditer(line)}
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
