# SPDX-License-Identifier: Apache-2.0
"""Devices that containers get: all that a runtime needs, and with the groups that may open them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from imagebuilder.image.proof import Finding
from imagebuilder.proof.clusters import SAY
from imagebuilder.proof.reading.container_runs import ContainerRun, container_runs
from imagebuilder.proof.reading.containers import value_at
from imagebuilder.proof.reading.documents import read_toml
from imagebuilder.proof.reading.nodes import find_family
from imagebuilder.proof.reading.udev import at_boot, node_of
from imagebuilder.proof.reading.units import find_program
from imagebuilder.proof.say import some
from imagebuilder.proof.subject import Subject
from imagebuilder.root import Root

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
class PodmanDefaults:
    """What containers.conf(5) gives to every container of podman."""

    devices: tuple[str, ...] = ()
    annotations: tuple[str, ...] = ()
    runtime: str = ""


def prove_container_devices(subject: Subject) -> Iterator[Finding]:
    """Warnings: what an image of a container needs, only its name says."""
    defaults = read_defaults(subject.root)
    for run in container_runs(subject):
        given = [*run.every("device"), *(defaults.devices if run.engine == PODMAN else ())]
        paths = [each.partition(":")[0].rstrip("/") for each in given]
        yield from prove_complete(run, paths)
        yield from prove_groups(subject, run, paths, defaults)


def prove_complete(run: ContainerRun, paths: Sequence[str]) -> Iterator[Finding]:
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
        yield SAY.warning(what, run.evidence, hint=hint)


def prove_groups(
    subject: Subject, run: ContainerRun, paths: Sequence[str], defaults: PodmanDefaults
) -> Iterator[Finding]:
    """A warning of a container without root that does not keep the groups of its user: keep-groups
    does, with crun alone (podman-run(1), --group-add).
    """
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
        yield SAY.warning(what, run.evidence, hint=hint)


def is_shut(subject: Subject, run: ContainerRun, path: str) -> bool:
    """Whether only a supplementary group of the account may open a device; the account's first
    group is kept.
    """
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
        listed = [value_at(settings, "containers", key) for key in ("devices", "annotations")]
        devices, annotations = (tuple(map(str, e)) if isinstance(e, list) else () for e in listed)
        runtime = value_at(settings, "engine", "runtime")
        found = PodmanDefaults(
            devices or found.devices, annotations or found.annotations,
            runtime if isinstance(runtime, str) else found.runtime,
        )  # fmt: skip
    return found
