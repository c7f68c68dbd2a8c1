# SPDX-License-Identifier: Apache-2.0
"""Agents of Kubernetes: the kubelet beside swap, containerd, networks of pods and settings of the
kernel; K3s after a reboot.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Mapping
from typing import Any

from imagebuilder.image.proof import Evidence, Finding, Findings, fault, warning
from imagebuilder.proof.reading import containers
from imagebuilder.proof.reading.config import SettingsFile, read_toml, read_yaml, value_at
from imagebuilder.proof.reading.mounts import FSTAB, find_mounts, mount_of
from imagebuilder.proof.reading.parameters import name_of, read_sysctl
from imagebuilder.proof.reading.scripts import SiteService, services_of, texts_of
from imagebuilder.proof.reading.systemd import read_config
from imagebuilder.proof.reading.texts import is_loopback
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

SWAPON = re.compile(r"^[^#\n]*\bswapon\b", re.MULTILINE)
ZRAM = ("/etc/systemd/zram-generator.conf", "/usr/lib/systemd/zram-generator.conf")
# The stub of systemd-resolved, and the name servers that it asks itself (systemd-resolved(8)).
RESOLVER, STUB, UPSTREAM = (
    "/etc/resolv.conf",
    "stub-resolv.conf",
    "/run/systemd/resolve/resolv.conf",
)
SERVER = re.compile(r"^[ \t]*nameserver[ \t]+(\S+)", re.MULTILINE)
K3S = "/etc/rancher/k3s/config.yaml"
# Where an agent keeps the password by which the server knows its node (docs.k3s.io, "Node password
# secret").
PASSWORD_FOLDER = "/etc/rancher/node"
# Plugins that connect the containers of one machine, with addresses out of a range of its own.
OF_ONE_NODE = frozenset(("bridge", "ptp"))


def prove_kubernetes(subject: Subject) -> Findings:
    for kubelet in services_of(subject, "kubelet"):
        path = kubelet.option("--config") or ""
        read = read_yaml(subject.root, path)
        if read.problem:
            yield unread(kubelet, read)
            continue
        yield from prove_swap(subject, kubelet, path, read.values)
        yield from prove_cgroups(subject.root, kubelet, path, read.values)
        yield from prove_networks(subject.root, kubelet, read.values)
        yield from prove_resolver(subject.root, kubelet, path, read.values)
    for agent in services_of(subject, "k3s"):
        read = k3s_file(agent)
        if read.problem:
            yield unread(agent, read)
        elif "agent" in agent.words:
            yield from prove_password(subject, agent)


def unread(service: SiteService, read: SettingsFile) -> Finding:
    """A finding about settings that cannot be read, and that the program may refuse as well."""
    say, happens = (fault, "does") if read.refused else (warning, "may")
    what = f"{service.name} {happens} not start: {read.path} {read.problem}"
    return say(what, read.evidence, hint="correct the file; its settings were not checked")


def prove_swap(
    subject: Subject, kubelet: SiteService, path: str, settings: Mapping[str, Any]
) -> Findings:
    """A fault of a kubelet that ends because the node swaps (failSwapOn is true by default)."""
    told = kubelet.option("--fail-swap-on")
    fails = settings.get("failSwapOn", True) if told is None else told != "false"
    swap = find_swap(subject) if fails else None
    if swap:
        what = f"{kubelet.name} exits when it starts: the node swaps, and failSwapOn is true"
        hint = "set failSwapOn: false and memorySwap: in its configuration, or turn swap off"
        where = Evidence(path, symbol="failSwapOn") if settings else kubelet.evidence
        yield fault(what, where, swap, hint=hint)


def find_swap(subject: Subject) -> Evidence | None:
    root = subject.root
    for mount in find_mounts(subject):
        if mount.path == FSTAB and mount.kind == "swap" and "noauto" not in mount.options:
            return mount.evidence
    for path in ZRAM:
        if root.is_file(path):
            return Evidence(path)
    for name in sorted(subject.startup.jobs):
        unit = subject.startup.units.get(name)
        if name.endswith(".swap") and unit and unit.paths:
            return Evidence(unit.paths[0])
    for unit in subject.startup.starting():
        for words in unit.commands.get("ExecStart", ()):
            is_shipped = all(path in subject.shipped for path in unit.paths)
            texts = [" ".join(words)] if is_shipped else texts_of(root, words)
            if any(map(SWAPON.search, texts)):
                return Evidence(unit.paths[0] if unit.paths else "/", said=" ".join(words))
    return None


def prove_cgroups(
    root: Root, kubelet: SiteService, path: str, settings: Mapping[str, Any]
) -> Findings:
    """A fault of a kubelet and a containerd that manage control groups in different ways."""
    told = read_toml(root, containers.CONTAINERD).values
    endpoint = str(settings.get("containerRuntimeEndpoint", containers.CONTAINERD))
    # containerd 2 tells the kubelet which driver it uses (KubeletCgroupDriverFromCRI).
    if not settings or not told or told.get("version") == 3 or "containerd" not in endpoint:
        return
    ours = str(settings.get("cgroupDriver", "cgroupfs"))
    driver = (
        "systemd" if any(uses_systemd(told, name) for name in containers.OLD_NAMES) else "cgroupfs"
    )
    if ours != driver:
        what = f"{kubelet.name} uses the cgroup driver {ours}, but containerd uses {driver}: pods "
        what += "fail, or their limits are not enforced"
        where = Evidence(path, symbol="cgroupDriver")
        hint = "set cgroupDriver: systemd, and SystemdCgroup = true in the options of runc"
        yield fault(what, where, Evidence(containers.CONTAINERD, symbol="SystemdCgroup"), hint=hint)


def uses_systemd(told: Mapping[str, Any], plugin: str) -> bool:
    """Whether the default runtime of containerd leaves control groups to systemd."""
    engine = value_at(told, "plugins", plugin, "containerd")
    name = str(value_at(engine, "default_runtime_name") or "runc")
    return value_at(engine, "runtimes", name, "options", "SystemdCgroup") is True


def prove_resolver(
    root: Root, kubelet: SiteService, path: str, settings: Mapping[str, Any]
) -> Findings:
    """A warning of name servers for pods that only the node reaches (resolvConf of the kubelet).

    kubeadm sets resolvConf on a node that runs systemd-resolved, which nobody does in an image.
    """
    told = kubelet.option("--resolv-conf")
    named = told if told is not None else settings.get("resolvConf")
    if not settings and told is None:  # the node gets its settings later
        return
    chosen = str(RESOLVER if named is None else named)
    lies_at = root.link_at(chosen) or chosen
    servers = SERVER.findall(root.text(chosen))
    is_stub = posixpath.basename(lies_at) == STUB
    if is_stub or (servers and all(map(is_loopback, servers))):
        said = f"{chosen} -> {lies_at}" if lies_at != chosen else chosen
        what = f"pods of {kubelet.name} get the node's own resolver as their name server: "
        what += f"{chosen} names {servers[0] if servers and not is_stub else '127.0.0.53'}, which "
        what += "is the pod itself in a pod, and CoreDNS forwards to itself"
        where = Evidence(path or "/", symbol="resolvConf", said=said)
        yield warning(what, where, hint=f"set resolvConf: {UPSTREAM}")


def prove_password(subject: Subject, agent: SiteService) -> Findings:
    """A fault of an agent whose server does not let it in again after a reboot."""
    told = k3s_settings(agent)
    kept = mount_of(find_mounts(subject), PASSWORD_FOLDER)
    if told.get("with-node-id") or kept or subject.root.lies(f"{PASSWORD_FOLDER}/password"):
        return
    what = f'the server refuses {agent.name} after a reboot ("Node password rejected"): what the '
    what += f"agent writes to {PASSWORD_FOLDER} is lost with the node's memory"
    hint = f"set with-node-id: true in {K3S}, or mount a disk at {PASSWORD_FOLDER}"
    yield fault(what, agent.evidence, hint=hint)


def k3s_settings(service: SiteService) -> Mapping[str, Any]:
    """The settings of K3s: its file, and options, which override it."""
    found = dict(k3s_file(service).values)
    for name in ("with-node-id", "data-dir", "snapshotter"):
        value = service.option(f"--{name}")
        if value is not None:
            found[name] = value or True
    return found


def k3s_file(service: SiteService) -> SettingsFile:
    return read_yaml(service.subject.root, service.option("--config", "-c") or K3S)


def prove_networks(root: Root, kubelet: SiteService, settings: Mapping[str, Any]) -> Findings:
    """A warning of a network of one node that hides the one of the cluster.

    containerd and CRI-O take the first file by name (max_conf_num in docs/cri/config.md of
    containerd; contrib/cni/README.md of CRI-O).  With a bridge and a fixed range, pods of all nodes
    get the same addresses.
    """
    told = kubelet.option("--container-runtime-endpoint")
    endpoint = told or str(settings.get("containerRuntimeEndpoint", containers.CONTAINERD))
    runtime = "CRI-O" if "crio" in endpoint else "containerd"
    folder = folder_of_crio(root) if runtime == "CRI-O" else folder_of_containerd(root)
    networks = list(containers.read_networks(root, folder)) if folder else []
    if not networks or networks[0].plugin not in OF_ONE_NODE or not networks[0].ranges:
        return
    first = networks[0]
    # One of a cluster has a plugin of its own, or leaves its range to one (kube-router).
    others = (n for n in networks[1:] if n.plugin not in OF_ONE_NODE or not n.ranges)
    if other := next(others, None):
        names = [posixpath.basename(each.path) for each in (first, other)]
        what = f"{runtime} takes {names[0]} of {folder} for pods, a {first.plugin} of each node "
        what += f"with {first.ranges[0]}, and not {names[1]} ({other.plugin}), whose name sorts "
        what += "after it: pods of several nodes have the same addresses, and do not reach each "
        what += "other"
        where = (Evidence(first.path, said=first.plugin), Evidence(other.path, said=other.plugin))
        hint = f"remove {names[0]}, or give it a name that sorts after {names[1]}"
        yield warning(what, *where, hint=hint)


def folder_of_containerd(root: Root) -> str:
    """The folder of which containerd takes the first file, "" if it takes more of them."""
    settings = read_toml(root, containers.CONTAINERD).values
    found = [value_at(settings, "plugins", name, "cni") for name in containers.CRI_NAMES]
    cni = next((each for each in found if isinstance(each, dict)), {})
    return str(cni.get("conf_dir", containers.CNI)) if cni.get("max_conf_num", 1) == 1 else ""


def folder_of_crio(root: Root) -> str:
    """The folder of which CRI-O takes the first file, "" if it takes one by the network's name."""
    folder, name = containers.CNI, ""
    for path in root.glob(*containers.CRIO):
        network = value_at(read_toml(root, path).values, "crio", "network")
        if isinstance(network, dict):
            folder = str(network.get("network_dir", folder))
            name = str(network.get("cni_default_network", name))
    return "" if name else folder


# Names of one setting of the kernel, of which the last assignment counts, and what follows if it
# is 0.  kubeadm tests both before it joins a node (its "preflight" checks); some network plugins
# set the first by themselves, such as Calico's.
NEEDED = (
    (
        ("net.ipv4.ip_forward", "net.ipv4.conf.all.forwarding"),
        "pods of this node reach neither those of other nodes nor anything outside",
    ),
    (
        ("net.bridge.bridge-nf-call-iptables",),
        "pods do not reach services of the cluster whose pods are on the same node",
    ),
)


def prove_forwarding(subject: Subject) -> Findings:
    """Warnings of settings that are off beside a kubelet, which does not change them."""
    kubelet = next(services_of(subject, "kubelet"), None)
    if kubelet is None:
        return
    lines = list(read_config(subject, "sysctl.d"))
    settings = read_sysctl(subject)
    for names, effect in NEEDED:
        last = [name for name in settings if name in names][-1:]
        if not last or settings[last[0]].value != "0":
            continue
        one = settings[last[0]]
        on = [line for line in lines if name_of(line.key) in names and line.value == "1"]
        what = f"{last[0]}=0 of {one.where.path}: {kubelet.name} does not change it, and unless "
        what += f"its network plugin does, {effect}"
        what += f" ({on[-1].path} sets 1, but is read before)" if on else ""
        hint = "remove that line, or set 1 in a file that sorts after it"
        yield warning(what, one.where, *(line.evidence for line in on[-1:]), hint=hint)
