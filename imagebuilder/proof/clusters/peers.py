# SPDX-License-Identifier: Apache-2.0
"""Programs beside each other: one that needs another, two that do the same, those that share a
card, and those that go to the background, which systemd takes for ended.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.proof.clusters.slurm import read_slurm
from imagebuilder.proof.reading.commands import options_of
from imagebuilder.proof.reading.config import read_yaml
from imagebuilder.proof.reading.parameters import read_sysctl
from imagebuilder.proof.reading.scripts import SiteService, services_of, site_services
from imagebuilder.proof.reading.texts import is_local, unquoted
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
CONDITION = re.compile(r"^[ \t]*(Condition|Assert|ExecCondition)\w*=", re.MULTILINE)
# Of vLLM and of SGLang.
SHARES = ("--gpu-memory-utilization", "--gpu_memory_utilization", "--mem-fraction-static",
          "--mem_fraction_static")  # fmt: skip
NUMBER = re.compile(r"0?\.\d{1,6}|[01](\.\d{1,6})?")
# vLLM's without the option.
VLLM, DEFAULT = re.compile(r"(.*/)?vllm(/serve)?|vllm\.entrypoints\..*"), 0.9
CARD_SELECTORS = ("CUDA_VISIBLE_DEVICES", "HIP_VISIBLE_DEVICES", "ROCR_VISIBLE_DEVICES",
             "ZE_AFFINITY_MASK")  # fmt: skip
FIRST = "0"
ALL = 1.005  # of a card, with what numbers lose in sums
# systemd.service(5), Type=: the service ends with its first process.
FOREGROUND = frozenset(("simple", "exec"))
LEFT_ALONE = frozenset(("process", "none"))  # KillMode= with which what is left goes on


def prove_peers(subject: Subject) -> Findings:
    """Warnings: what is missed may be on another machine, or be made on the node."""
    yield from prove_needed(subject)
    yield from prove_clocks(subject)
    yield from prove_managers(subject)
    yield from prove_namespaces(subject)
    yield from prove_fabric(subject)


def prove_needed(subject: Subject) -> Findings:
    for service, program, where in needs(subject):
        if not any(True for _ in services_of(subject, program)):
            what = f"{service.name} needs {program} on its node, but no unit starts it"
            hint = f"install it and enable its unit, or configure {service.program} not to use it"
            yield warning(what, where, hint=hint)


def needs(subject: Subject) -> Iterator[tuple[SiteService, str, Evidence]]:
    """Services, the program that each of them connects to on its node, and what says so."""
    for exporter in services_of(subject, "dcgm-exporter"):
        told = exporter.option("-r", "--remote-hostengine-info")
        if told and is_local(told):
            yield exporter, "nv-hostengine", exporter.evidence
    for daemon in services_of(subject, "slurmd"):
        path, settings = read_slurm(subject.root, "slurm.conf")
        if path and settings.get("authtype", "auth/munge") == "auth/munge":
            yield daemon, "munged", Evidence(path, symbol="AuthType")
    for kubelet in services_of(subject, "kubelet"):
        path = kubelet.option("--config") or ""
        told = read_yaml(subject.root, path).values.get("containerRuntimeEndpoint", "")
        endpoint = kubelet.option("--container-runtime-endpoint") or str(told)
        for socket, program in (("/containerd.sock", "containerd"), ("/crio.sock", "crio")):
            if endpoint.endswith(socket):
                yield kubelet, program, Evidence(path, symbol="containerRuntimeEndpoint")


def prove_clocks(subject: Subject) -> Findings:
    found = {s.name: s for name in CLOCKS for s in services_of(subject, name)}
    stopped = {word for s in found.values() for word in s.unit.words("Conflicts")}
    if len({s.program for s in found.values()}) > 1 and not stopped & found.keys():
        one, other = list(found.values())[:2]
        what = f"{one.name} and {other.name} both set the clock: it jumps between the times of both"
        where = (Evidence(service.unit.paths[0]) for service in (one, other) if service.unit.paths)
        yield warning(what, *where, hint=f"mask {one.name}")


def prove_managers(subject: Subject) -> Findings:
    networkd = any("systemd-networkd" in name for name in subject.startup.jobs)
    texts = map(subject.root.text, subject.root.glob(*MANAGED))
    if networkd and not any(map(UNMANAGED.search, texts)):
        for service in services_of(subject, "NetworkManager"):
            what = f"{service.name} and systemd-networkd both set up the NIC that a node boots "
            what += "from: two DHCP clients change its address"
            hint = "let one of them manage it: unmanaged-devices=type:ethernet in [keyfile] of "
            hint += f"{MANAGED[0]}"
            yield warning(what, service.evidence, hint=hint)


def prove_namespaces(subject: Subject) -> Findings:
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
                yield warning(what, one.where, hint="remove that line")


def prove_fabric(subject: Subject) -> Findings:
    cards = [h.name for h in subject.hardware if h.pci.lower().startswith("10de:")]
    for service in services_of(subject, "nv-fabricmanager"):
        texts = map(subject.root.text, service.unit.paths)
        if cards and not any(map(FABRIC.search, cards)) and not any(map(CONDITION.search, texts)):
            what = f"{service.name} fails at every boot: {cards[0]} has no NVSwitch to manage"
            yield warning(what, service.evidence, hint="disable it, or add a Condition to it")


@dataclass(frozen=True)
class CardShare:
    """A part of the memory of a card (its number or name) that a service takes."""

    service: SiteService
    card: str
    part: float
    said: str
    evidence: Evidence


def prove_shares(subject: Subject) -> Findings:
    """A warning for a card: which services run at the same time, a site may decide elsewhere.

    An engine that finds less memory free than its share does not start (request_memory() of vLLM's
    v1/worker/utils.py).
    """
    if not subject.chips:
        return
    by_card: dict[str, dict[str, CardShare]] = {}
    for service in site_services(subject):
        if share := share_of(service):
            by_card.setdefault(share.card, {}).setdefault(service.name, share)
    for shares in by_card.values():
        together = [each for each in shares.values() if not excludes(each, shares)]
        total = sum(each.part for each in together)
        if len(together) > 1 and total > ALL:
            parts = " and ".join(f"{each.service.name} {each.said}" for each in together[:4])
            what = f"services want {total:.2f} of the memory of one card: {parts}; those that "
            what += "start last find too little, and fail"
            hint = "let the shares add up to less than 1, or give each service a card of its own "
            hint += f"({CARD_SELECTORS[0]}=)"
            yield warning(what, *(each.evidence for each in together[:4]), hint=hint)


def excludes(share: CardShare, others: dict[str, CardShare]) -> bool:
    """Whether a service stops another one that takes a share, or the other way round."""
    conflicts = {share.service.name: set(share.service.unit.words("Conflicts"))}
    conflicts |= {n: set(s.service.unit.words("Conflicts")) for n, s in others.items()}
    mine = conflicts.pop(share.service.name)
    return bool(mine & conflicts.keys()) or any(share.service.name in c for c in conflicts.values())


def share_of(service: SiteService) -> CardShare | None:
    card = next((v.value for n in CARD_SELECTORS if (v := service.environment.get(n))), FIRST)
    card = card.partition(",")[0].strip() or FIRST
    for option in options_of(service.words, SHARES):
        if NUMBER.fullmatch(option.value):
            return CardShare(
                service, card, float(option.value), f"({option.value})", service.evidence
            )
    # Wrappers take the options of a server from a variable of any name.
    for name, variable in service.environment.items():
        for option in options_of(list(unquoted(variable.value)), SHARES):
            if NUMBER.fullmatch(option.value):
                where, said = variable.evidence(name), f"({option.value})"
                return CardShare(service, card, float(option.value), said, where)
    if any(map(VLLM.fullmatch, service.words[:4])):
        said = f"({DEFAULT}, the default)"
        return CardShare(service, card, DEFAULT, said, service.evidence)
    return None


@dataclass(frozen=True)
class Detaching:
    """A program that goes to the background: its first word that is no option matches `verb`, all
    regular expressions of `when` match a word, and `unless` matches none.
    """

    program: str
    verb: str
    when: tuple[str, ...]
    unless: str
    hint: str


ANYTHING = r".*"
DETACHING = (
    Detaching("ray", "start", (), r"--block", "add --block"),
    Detaching("docker", "run", (r"-[dit]*d[dit]*|--detach(=true)?",), r"-a|--attach",
              "remove -d, or set Type=oneshot with RemainAfterExit=yes"),
    Detaching("podman", "run", (r"-[dit]*d[dit]*|--detach(=true)?",), r"--sdnotify=\S+",
              "remove -d, or write a Quadlet file (podman-systemd.unit(5))"),
    Detaching("docker", "compose", ("up", r"-d|--detach"), r"--wait",
              "remove -d, or set Type=oneshot with RemainAfterExit=yes"),
    Detaching("docker-compose", "up", (r"-d|--detach",), r"--wait",
              "remove -d, or set Type=oneshot with RemainAfterExit=yes"),
    Detaching("screen", ANYTHING, (r"-\w*d\w*",), r"-D",
              "start the program itself, without screen"),
    Detaching("tmux", "new|new-session", (r"-\w*d\w*",), r"(?!)",
              "start the program itself, without tmux"),
    Detaching("slurmd", ANYTHING, (), r"-\w*D\w*", "add -D"),
    Detaching("munged", ANYTHING, (), r"-F|--foreground", "add --foreground"),
    Detaching("opensm", ANYTHING, (r"-B|--daemon",), r"(?!)", "remove --daemon"),
)  # fmt: skip


def prove_detached(subject: Subject) -> Findings:
    for service in site_services(subject):
        unit = service.unit
        if unit.last("Type", "simple") not in FOREGROUND or unit.last("RemainAfterExit") == "yes":
            continue
        if unit.last("KillMode") in LEFT_ALONE:
            continue
        row = next((row for row in DETACHING if detaches(row, service)), None)
        if row:
            what = f"{service.name} stops as soon as it has started: {row.program} goes to the "
            what += "background, and systemd kills the processes that are left"
            yield fault(what, service.evidence, hint=row.hint)


def detaches(row: Detaching, service: SiteService) -> bool:
    words = service.words[1:]
    if service.program != row.program or any(re.fullmatch(row.unless, word) for word in words):
        return False
    verb = next((word for word in words if not word.startswith("-")), "")
    told = all(any(re.fullmatch(each, word) for word in words) for each in row.when)
    return told and re.fullmatch(row.verb, verb) is not None
