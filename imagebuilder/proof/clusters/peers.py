# SPDX-License-Identifier: Apache-2.0
"""Programs beside each other: one that needs another, and two that do the same."""

from __future__ import annotations

import re
from collections.abc import Iterator

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.clusters import SAY
from imagebuilder.proof.clusters.slurm import read_slurm
from imagebuilder.proof.reading.addresses import is_local
from imagebuilder.proof.reading.documents import read_yaml
from imagebuilder.proof.reading.site import SiteService, services_of
from imagebuilder.proof.reading.sysctl import read_sysctl
from imagebuilder.proof.reading.systemd import Startup
from imagebuilder.proof.subject import Subject

# Programs that steer the clock of a node; two of them pull it to and fro.
CLOCKS = ("systemd-timesyncd", "chronyd", "ntpd", "openntpd")
MANAGED = ("/etc/NetworkManager/NetworkManager.conf", "/etc/NetworkManager/conf.d/*.conf",
           "/usr/lib/NetworkManager/conf.d/*.conf")  # fmt: skip
# Of a card; managed=false of [ifupdown], as Debian ships it, leaves none alone.
UNMANAGED = re.compile(
    r"^[ \t]*unmanaged-devices\s*=\s*\S"
    r"|^\[device[^\]\n]*\][^\[]*\n[ \t]*managed\s*=\s*(0|no|false)\b",
    re.MULTILINE,
)
# Settings that forbid user namespaces, and programs that make one for each container.
NAMESPACES = ("user.max_user_namespaces", "kernel.unprivileged_userns_clone")
ROOTLESS = ("apptainer", "singularity", "enroot", "podman", "ch-run")
SETUID = "/usr/libexec/{}/bin/starter-suid"
# In the names of cards and machines that have an NVSwitch (NVIDIA's Fabric Manager guide).
FABRIC = re.compile(r"\b(SXM\d?|HGX|DGX|NVL\d*|NVSwitch|G[BH]\d{3})\b", re.IGNORECASE)
NVIDIA = "10de:"
CONDITION = re.compile(r"^[ \t]*(Condition|Assert|ExecCondition)\w*=", re.MULTILINE)


def prove_peers(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Warnings: what is missed may be on another machine, or be made on the node."""
    yield from prove_needed(subject, startup)
    yield from prove_clocks(subject, startup)
    yield from prove_managers(subject, startup)
    yield from prove_namespaces(subject)
    yield from prove_fabric(subject, startup)


def prove_needed(subject: Subject, startup: Startup) -> Iterator[Finding]:
    for service, program, where in needs(subject, startup):
        if not any(True for _ in services_of(subject, startup, program)):
            what = f"{service.name} needs {program} on its node, but no unit starts it"
            hint = f"install it and enable its unit, or configure {service.program} not to use it"
            yield SAY.warning(what, where, hint=hint)


def needs(subject: Subject, startup: Startup) -> Iterator[tuple[SiteService, str, Evidence]]:
    """Services, the program that each of them connects to on its node, and what says so."""
    for exporter in services_of(subject, startup, "dcgm-exporter"):
        told = exporter.option("-r", "--remote-hostengine-info")
        if told and is_local(told):
            yield exporter, "nv-hostengine", exporter.evidence
    for daemon in services_of(subject, startup, "slurmd"):
        path, settings = read_slurm(subject.root, "slurm.conf")
        if path and settings.get("authtype", "auth/munge") == "auth/munge":
            yield daemon, "munged", Evidence(path, symbol="AuthType")
    for kubelet in services_of(subject, startup, "kubelet"):
        path = kubelet.option("--config") or ""
        told = read_yaml(subject.root, path).values.get("containerRuntimeEndpoint", "")
        endpoint = kubelet.option("--container-runtime-endpoint") or str(told)
        for socket, program in (("/containerd.sock", "containerd"), ("/crio.sock", "crio")):
            if endpoint.endswith(socket):
                yield kubelet, program, Evidence(path, symbol="containerRuntimeEndpoint")


def prove_clocks(subject: Subject, startup: Startup) -> Iterator[Finding]:
    found = {s.name: s for name in CLOCKS for s in services_of(subject, startup, name)}
    stopped = {word for s in found.values() for word in s.unit.words("Conflicts")}
    if len({s.program for s in found.values()}) > 1 and not stopped & found.keys():
        one, other = list(found.values())[:2]
        what = f"{one.name} and {other.name} both set the clock: it jumps between the times of both"
        where = (Evidence(service.unit.paths[0]) for service in (one, other) if service.unit.paths)
        yield SAY.warning(what, *where, hint=f"mask {one.name}")


def prove_managers(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """A warning about NetworkManager beside networkd, which sets up the boot NIC."""
    networkd = any("systemd-networkd" in name for name in startup.jobs)
    texts = map(subject.root.text, subject.root.glob(*MANAGED))
    if networkd and not any(map(UNMANAGED.search, texts)):
        for service in services_of(subject, startup, "NetworkManager"):
            what = f"{service.name} and systemd-networkd both set up the NIC that a node boots "
            what += "from: two DHCP clients change its address"
            hint = "let one of them manage it: unmanaged-devices=type:ethernet in [keyfile] of "
            hint += f"{MANAGED[0]}"
            yield SAY.warning(what, service.evidence, hint=hint)


def prove_namespaces(subject: Subject) -> Iterator[Finding]:
    settings = read_sysctl(subject)
    for name in NAMESPACES:
        one = settings.get(name)
        if one is None or one.value != "0":
            continue
        for program in ROOTLESS:
            is_there = any(
                subject.root.lies(f"{top}/bin/{program}") for top in ("/usr", "/usr/local")
            )
            if is_there and not subject.root.lies(SETUID.format(program)):
                what = f"{program} cannot start containers: {name}=0 forbids user namespaces"
                yield SAY.warning(what, one.where, hint="remove that line")


def prove_fabric(subject: Subject, startup: Startup) -> Iterator[Finding]:
    cards = [h.name for h in subject.hardware if h.pci.lower().startswith(NVIDIA)]
    for service in services_of(subject, startup, "nv-fabricmanager"):
        texts = map(subject.root.text, service.unit.paths)
        if cards and not any(map(FABRIC.search, cards)) and not any(map(CONDITION.search, texts)):
            what = f"{service.name} fails at every boot: {cards[0]} has no NVSwitch to manage"
            yield SAY.warning(what, service.evidence, hint="disable it, or add a Condition to it")
