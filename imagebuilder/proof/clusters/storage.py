# SPDX-License-Identifier: Apache-2.0
"""Where container engines keep what they unpack: the root of a node is an overlay already.

The kernel mounts no overlay whose upper folder is on another overlay or on NFS ("filesystem on ...
not supported as upperdir": ovl_mount_dir_check(), fs/overlayfs/params.c).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from imagebuilder.image.proof import Evidence, Finding
from imagebuilder.proof.clusters import SAY
from imagebuilder.proof.clusters.kubernetes import k3s_file, k3s_settings
from imagebuilder.proof.reading.containers import (
    CONTAINERD,
    DAEMON,
    has_no_cri,
    read_containerd,
    read_daemon,
    value_at,
)
from imagebuilder.proof.reading.mounts import NFS, find_mounts, mount_of
from imagebuilder.proof.reading.site import SiteService, services_of
from imagebuilder.proof.reading.systemd import Startup
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


def prove_storage(subject: Subject, startup: Startup) -> Iterator[Finding]:
    """Faults of engines that cannot unpack an image where they keep it."""
    mounts = find_mounts(subject)
    for storage in find_storage(subject, startup):
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
            yield SAY.warning(what, *where, hint=HINT)
            continue
        what = f"{storage.service.name} cannot start containers: {why}"
        if storage.by_clients:
            what += ", unless its clients ask for another snapshotter (native)"
            yield SAY.warning(what, *where, hint=HINT)
        else:
            yield SAY.fault(what, *where, hint=HINT)


def find_storage(subject: Subject, startup: Startup) -> Iterator[ContainerStorage]:
    """What is known: settings that cannot be read are another finding."""
    root, daemon = subject.root, read_daemon(subject)
    docker = [*services_of(subject, startup, "dockerd")]
    for service in docker if not daemon.problem else ():
        yield storage_of_docker(daemon.values, service)
    # Only the kubelet leaves the choice to containerd's settings; ctr and nerdctl have an option.
    has_kubelet = any(services_of(subject, startup, "kubelet"))
    if not docker or has_kubelet:
        for service in services_of(subject, startup, "containerd"):
            read = read_containerd(root)
            if not read.problem and not has_no_cri(read.values):
                storage = storage_of_containerd(root, service, read.values)
                yield replace(storage, by_clients=not has_kubelet)
    for service in services_of(subject, startup, "k3s"):
        if k3s_file(service).problem:
            continue
        told = k3s_settings(service)
        driver = str(told.get("snapshotter", "overlayfs"))
        folder = str(told.get("data-dir", "/var/lib/rancher/k3s"))
        yield ContainerStorage(service, folder, driver, service.evidence)


def storage_of_docker(settings: Mapping[str, Any], service: SiteService) -> ContainerStorage:
    folder = service.option("--data-root", "-g") or settings.get("data-root", "/var/lib/docker")
    driver = service.option("--storage-driver", "-s") or settings.get("storage-driver")
    where = Evidence(DAEMON, symbol="data-root") if "data-root" in settings else service.evidence
    # Without a choice dockerd takes the first driver that works, at last vfs.
    chosen = str(driver or "overlay2")
    return ContainerStorage(service, str(folder), chosen, where, may_copy=not driver)


def storage_of_containerd(
    root: Root, service: SiteService, settings: Mapping[str, Any]
) -> ContainerStorage:
    folder = service.option("--root") or settings.get("root", "/var/lib/containerd")
    drivers = (value_at(settings, "plugins", *keys, "snapshotter") for keys in SNAPSHOTTERS)
    driver = next((each for each in drivers if isinstance(each, str)), "overlayfs")
    where = Evidence(CONTAINERD, symbol="root") if root.is_file(CONTAINERD) else service.evidence
    return ContainerStorage(service, str(folder), driver, where)
