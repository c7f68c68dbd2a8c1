# SPDX-License-Identifier: Apache-2.0
"""Container engines: where they keep what they unpack, networks that they make on every node, and
devices that containers get, all that a runtime needs and with the groups that may open them.

The root of a node is an overlay already, and the kernel mounts no overlay whose upper folder is on
another overlay or on NFS ("filesystem on ... not supported as upperdir": ovl_mount_dir_check(),
fs/overlayfs/params.c).  What is meant for an address in a network of containers goes to those.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from ipaddress import IPv4Address, IPv4Network, ip_network
from typing import Any

from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.proof.clusters.kubernetes import k3s_file, k3s_settings
from imagebuilder.proof.reading import containers
from imagebuilder.proof.reading.config import list_at, read_toml, value_at
from imagebuilder.proof.reading.mounts import NFS, find_mounts, mount_of
from imagebuilder.proof.reading.nodes import find_family
from imagebuilder.proof.reading.scripts import SiteService, services_of
from imagebuilder.proof.reading.systemd import read_config
from imagebuilder.proof.reading.texts import parse_address, read_hosts
from imagebuilder.proof.reading.udev import at_boot, node_of
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

# The drivers of Docker, and the snapshotters of containerd, that mount an overlay.
OVERLAYS = frozenset(("overlay2", "overlay", "overlayfs"))
# Where containerd has the settings of its snapshots, of version 1.7 and of 2.
SNAPSHOTTERS = (
    ("io.containerd.grpc.v1.cri", "containerd"),
    ("io.containerd.cri.v1.images",),
)
HINT = "keep it on a disk of the node, such as a folder below /models, and start it after its mount"
# Docker's bridge gets the first of its pools (docs.docker.com, "default-address-pools").
DEFAULT = "172.17.0.0/16"
BRIDGE, NONE = "docker0", ("none",)
# In the device of a mount: the server of NFS, of SMB, of Lustre and of Ceph.
SERVER = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?![\w.])|^(?://)?([A-Za-z][\w.-]*)[:/@]")
REMOTE = re.compile(r"nfs4?|cifs|smb3|lustre|ceph|glusterfs|beegfs|9p|fuse\.\w+")
# Files of systemd with addresses of other machines, and the keys of those.
FILES = (("systemd/resolved.conf", ("DNS", "FallbackDNS")), ("systemd/timesyncd.conf", ("NTP",)))
CHRONY = ("/etc/chrony/chrony.conf", "/etc/chrony.conf", "/etc/chrony/conf.d/*.conf",
          "/etc/chrony/sources.d/*.sources")  # fmt: skip
CHRONY_LINE = re.compile(r"^[ \t]*(?:server|peer)[ \t]+(\d{1,3}(?:\.\d{1,3}){3})\b", re.MULTILINE)
DRI, KFD = "/dev/dri", "/dev/kfd"
# In the name of an image or a program; variables that only ROCm reads.
ROCM = re.compile(r"(?<![a-z])rocm(?![a-z])", re.IGNORECASE)
ROCM_VARIABLE = re.compile(r"(HSA_OVERRIDE_GFX_VERSION|HIP_VISIBLE_DEVICES|ROCR_VISIBLE_DEVICES)\b")
PODMAN = "podman"
KEEP = "keep-groups"
# crun's, of today and before 0.11.
KEEPING = re.compile(r"(run\.oci|io\.crun)\.keep_original_groups=[1t]")
# Settings of podman's containers, the later ones last (containers.conf(5)).
CONF = ("/usr/share/containers/containers.conf", "/usr/share/containers/containers.conf.d/*.conf",
        "/etc/containers/containers.conf", "/etc/containers/containers.conf.d/*.conf")  # fmt: skip


@dataclass(frozen=True)
class ContainerStorage:
    """The folder of an engine, what mounts its layers, and the line that sets either.

    `may_copy` is whether the engine takes another driver where it cannot mount an overlay, and
    `by_clients` whether whoever asks for a container says which to use.
    """

    service: SiteService
    folder: str
    driver: str
    where: Evidence
    may_copy: bool = False
    by_clients: bool = False


def prove_storage(subject: Subject) -> Findings:
    mounts = find_mounts(subject)
    for storage in find_storage(subject):
        if storage.driver not in OVERLAYS:
            continue
        mount = mount_of(mounts, storage.folder)
        if mount is None:
            kind = "the root of a node, which is an overlay itself"
        elif mount.kind in NFS:
            kind = f"{mount.kind} ({mount.device})"
        else:
            continue
        why = f"it keeps layers in {storage.folder}, and the kernel cannot mount an overlay whose "
        why += f"layers are on {kind}"
        where = (storage.where, *([mount.evidence] if mount else ()))
        if storage.may_copy:
            what = f"{storage.service.name} copies every layer of a container: {why}"
            yield warning(what, *where, hint=HINT)
            continue
        what = f"{storage.service.name} cannot start containers: {why}"
        if storage.by_clients:
            what += ", unless its clients ask for another snapshotter (native)"
            yield warning(what, *where, hint=HINT)
        else:
            yield fault(what, *where, hint=HINT)


def find_storage(subject: Subject) -> Iterator[ContainerStorage]:
    """What is known: settings that cannot be read are another finding."""
    root, daemon = subject.root, containers.read_daemon(subject)
    docker = [*services_of(subject, "dockerd")]
    for service in docker if not daemon.problem else ():
        yield storage_of_docker(daemon.values, service)
    # Only the kubelet leaves the choice to containerd's settings; ctr and nerdctl have an option.
    has_kubelet = any(services_of(subject, "kubelet"))
    if not docker or has_kubelet:
        for service in services_of(subject, "containerd"):
            read = read_toml(root, containers.CONTAINERD)
            if not read.problem and not containers.has_no_cri(read.values):
                storage = storage_of_containerd(root, service, read.values)
                yield replace(storage, by_clients=not has_kubelet)
    for service in services_of(subject, "k3s"):
        if k3s_file(service).problem:
            continue
        told = k3s_settings(service)
        driver = str(told.get("snapshotter", "overlayfs"))
        folder = str(told.get("data-dir", "/var/lib/rancher/k3s"))
        yield ContainerStorage(service, folder, driver, service.evidence)


def storage_of_docker(settings: Mapping[str, Any], service: SiteService) -> ContainerStorage:
    folder = service.option("--data-root", "-g") or settings.get("data-root", "/var/lib/docker")
    driver = service.option("--storage-driver", "-s") or settings.get("storage-driver")
    where = (
        Evidence(containers.DAEMON, symbol="data-root")
        if "data-root" in settings
        else service.evidence
    )
    # Without a choice dockerd takes the first driver that works, at last vfs.
    chosen = str(driver or "overlay2")
    return ContainerStorage(service, str(folder), chosen, where, may_copy=not driver)


def storage_of_containerd(
    root: Root, service: SiteService, settings: Mapping[str, Any]
) -> ContainerStorage:
    folder = service.option("--root") or settings.get("root", "/var/lib/containerd")
    drivers = (value_at(settings, "plugins", *keys, "snapshotter") for keys in SNAPSHOTTERS)
    driver = next((each for each in drivers if isinstance(each, str)), "overlayfs")
    where = (
        Evidence(containers.CONTAINERD, symbol="root")
        if root.is_file(containers.CONTAINERD)
        else service.evidence
    )
    return ContainerStorage(service, str(folder), driver, where)


@dataclass(frozen=True)
class Bridge:
    """A network of containers on each node, who makes it, and what sets it."""

    network: IPv4Network
    name: str
    evidence: Evidence


@dataclass(frozen=True)
class NeededAddress:
    """The address of another machine, and what needs it."""

    address: IPv4Address
    user: str
    evidence: Evidence


def prove_bridges(subject: Subject) -> Findings:
    """A warning for each: Docker takes another network where a NIC of the node is in that one."""
    bridges = list(find_bridges(subject))
    for each in needed_addresses(subject) if bridges else ():
        for bridge in bridges:
            if each.address in bridge.network:
                what = f"{each.user} cannot be reached: {each.address} is in {bridge.network}, "
                what += f"which {bridge.name} takes on every node"
                hint = 'choose networks that the site does not use: "bip" and '
                hint += f'"default-address-pools" in {containers.DAEMON}'
                if bridge.name != BRIDGE:
                    hint = "choose a network that the site does not use"
                yield warning(what, each.evidence, bridge.evidence, hint=hint)


def find_bridges(subject: Subject) -> Iterator[Bridge]:
    read = containers.read_daemon(subject)
    for service in services_of(subject, "dockerd") if not read.problem else ():
        yield from bridge_of_docker(service, read.values)
        break
    if any(any(services_of(subject, each)) for each in ("kubelet", "crio")):
        for network in containers.read_networks(subject.root, containers.CNI):
            for text in network.ranges:
                if (parsed := network_of(text)) and network.plugin in ("bridge", "ptp"):
                    said = f"the {network.plugin} of {network.path}"
                    yield Bridge(parsed, said, Evidence(network.path, said=text))


def bridge_of_docker(service: SiteService, settings: Mapping[str, Any]) -> Iterator[Bridge]:
    """The network of docker0, unless another program makes the bridge or there is none."""
    bridge = service.option("--bridge", "-b") or settings.get("bridge")
    told = service.option("--bip") or settings.get("bip")
    base = value_at(next(iter(list_at(settings, "default-address-pools")), None), "base")
    pool_option = service.option("--default-address-pool") or ""
    base = base or next(iter(re.findall(r"base=([\d./]+)", pool_option)), None)
    if bridge:
        return
    where = Evidence(containers.DAEMON, symbol="bip" if told else "default-address-pools")
    where = where if told or base else service.evidence
    if network := network_of(str(told or base or DEFAULT)):
        yield Bridge(network, BRIDGE, where)


def network_of(text: str) -> IPv4Network | None:
    try:
        found = ip_network(text, strict=False)
    except ValueError:
        return None
    return found if isinstance(found, IPv4Network) else None


def needed_addresses(subject: Subject) -> Iterator[NeededAddress]:
    """The servers of mounts, of names and of time."""
    names = {name: each for each, listed, _ in read_hosts(subject.root) for name in listed}
    for mount in find_mounts(subject):
        for number, name in SERVER.findall(mount.device) if REMOTE.fullmatch(mount.kind) else ():
            text = number or names.get(name, "")
            yield from needed(text, f"the server of {mount.place or mount.name}", mount.evidence)
    for file, keys in FILES:
        for line in read_config(subject, file):
            for word in line.value.split() if line.key in keys else ():
                yield from needed(word.partition("#")[0], f"{line.key}= of {file}", line.evidence)
    for path in subject.root.glob(*CHRONY):
        for text in CHRONY_LINE.findall(subject.root.text(path)):
            yield from needed(text, f"a server of {path}", Evidence(path, said=text))


def needed(text: str, user: str, where: Evidence) -> Iterator[NeededAddress]:
    address = parse_address(text)
    if isinstance(address, IPv4Address) and not address.is_loopback:
        yield NeededAddress(address, user, where)


@dataclass(frozen=True)
class PodmanDefaults:
    """What containers.conf(5) gives to every container of podman."""

    devices: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    runtime: str = ""


def prove_container_devices(subject: Subject) -> Findings:
    """Warnings: what an image of a container needs, only its name says."""
    defaults = read_defaults(subject.root)
    for run in containers.container_runs(subject):
        given = [*run.every("device"), *(defaults.devices if run.engine == PODMAN else ())]
        paths = [each.partition(":")[0].rstrip("/") for each in given]
        yield from prove_complete(run, paths)
        yield from prove_groups(subject, run, paths, defaults)


def prove_complete(run: containers.ContainerRun, paths: Sequence[str]) -> Findings:
    """A warning of a container for ROCm that gets one of the nodes which ROCm needs, not both
    (rocm.docs.amd.com, "Running ROCm Docker containers").

    A name of the Container Device Interface, such as amd.com/gpu=all, stands for both.
    """
    variables = any(map(ROCM_VARIABLE.match, run.every("env")))
    if not (variables or ROCM.search(run.image) or ROCM.search(run.program)):
        return
    is_other = any(path and not path.startswith("/") for path in paths)
    if run.privileged or is_other or run.every("gpus") or run.every("runtime")[-1:] == ["amd"]:
        return
    bound = [each.partition(":")[0].rstrip("/") for each in run.every("volume")]
    parts = (part.partition("=") for each in run.every("mount") for part in each.split(","))
    bound += [path for key, _, path in parts if key in ("src", "source")]
    seen = (*paths, *bound)
    if "/dev" in seen:
        return
    has = [each for each in seen if each == KFD or f"{each}/".startswith(f"{DRI}/")]
    lacking = [each for each in (KFD, DRI) if not any(h.startswith(each) for h in has)]
    if has and lacking:
        what = f"{run.who} gives its container {has[0]}, but not {lacking[0]}: ROCm needs both, "
        what += f"and {run.image or 'its image'} finds no card"
        hint = f"add --device {lacking[0]} (AddDevice={lacking[0]} in a Quadlet file)"
        yield warning(what, run.evidence, hint=hint)


def prove_groups(
    subject: Subject, run: containers.ContainerRun, paths: Sequence[str], defaults: PodmanDefaults
) -> Findings:
    """A warning of a container without root that drops groups (podman-run(1), --group-add)."""
    maps = (*run.every("gidmap"), *run.every("uidmap"))
    maps += tuple(each for each in run.every("userns") if "map" in each)
    if run.engine != PODMAN or not run.account or maps:
        return
    # Without a setting podman takes crun before runc (containers.conf(5), runtime).
    there = (name for name in ("crun", "runc") if find_program(subject.root, name))
    runtime = (*run.every("runtime"), defaults.runtime or next(there, ""))[0]
    annotations = (*run.every("annotation"), *defaults.annotations)
    keeps = KEEP in run.every("group-add") or any(map(KEEPING.match, annotations))
    is_crun = not runtime.endswith("runc")
    shut = [path for path in paths if is_shut(subject, run, path)]
    if shut and not (keeps and is_crun):
        what = f"the container of {run.who} cannot open {some(shut)}: podman runs as "
        what += f"{run.account}, without root, and drops its supplementary groups"
        hint = f"add --group-add {KEEP} (GroupAdd={KEEP} in a Quadlet file); it needs crun"
        if keeps:
            what += f": {runtime} ignores {KEEP}"
            hint = "use the runtime crun: --runtime crun"
        yield warning(what, run.evidence, hint=hint)


def is_shut(subject: Subject, run: containers.ContainerRun, path: str) -> bool:
    """Whether only a supplementary group of the account, not its first, may open a device."""
    node = f"{DRI}/renderD128" if path == DRI or path.startswith(f"{DRI}/by-path") else path
    if find_family(node) is None:
        return False
    access = at_boot(subject, node) or node_of(subject, node)
    if access.for_all or not access.for_group:
        return False
    accounts = subject.accounts
    user = accounts.users.get(run.account)
    first = accounts.group(run.unit.last("Group")) if run.unit else ""
    first = first or (accounts.group_names.get(user.gid, "") if user else "")
    return accounts.group(access.group) != first


def read_defaults(root: Root) -> PodmanDefaults:
    found = PodmanDefaults()
    for path in root.glob(*CONF):
        settings = read_toml(root, path).values
        keys = ("devices", "annotations")
        devices, annotations = (tuple(map(str, list_at(settings, "containers", k))) for k in keys)
        runtime = value_at(settings, "engine", "runtime")
        found = PodmanDefaults(
            devices or found.devices, annotations or found.annotations,
            runtime if isinstance(runtime, str) else found.runtime,
        )  # fmt: skip
    return found
