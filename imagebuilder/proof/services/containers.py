# SPDX-License-Identifier: Apache-2.0
"""Settings of container engines with which no container, or none with a card, starts."""

from __future__ import annotations

import posixpath
from collections.abc import Iterator, Mapping
from typing import Any

from imagebuilder.errors import InputError
from imagebuilder.image.proof import Evidence, Findings, fault, warning
from imagebuilder.phrases import list_first
from imagebuilder.proof.reading.config import list_at, read_toml, table_at, value_at
from imagebuilder.proof.reading.containers import (
    CONTAINERD,
    CRI_IMAGES,
    DAEMON,
    OLD_NAMES,
    has_no_cri,
    read_daemon,
)
from imagebuilder.proof.reading.units import FOLDERS, Unit, find_program, find_unit
from imagebuilder.proof.services.start import IN_IMAGE
from imagebuilder.proof.subject import Subject
from imagebuilder.recipe.positions import parse_document
from imagebuilder.root import Root

DOCKER = "docker.service"
# Options of dockerd(8) with other names than the keys of its file, which may not repeat them.
SHORT = {"hosts": ("-H", "--host"), "data-root": ("-g", "--data-root"), "debug": ("-D", "--debug"),
         "storage-driver": ("-s", "--storage-driver"), "group": ("-G", "--group"),
         "log-level": ("-l", "--log-level"), "labels": ("--label",)}  # fmt: skip
BUILT_IN = frozenset(("runc", "io.containerd.runc.v2"))
TOOLKIT, CLI, NO_CGROUPS = (
    "/etc/nvidia-container-runtime/config.toml", "nvidia-container-cli", "no-cgroups",
)  # fmt: skip
KUBELET, ENGINE = "kubelet.service", "containerd.service"
# Specifications of devices for containers (Container Device Interface, "CDI JSON Specification").
DEVICES = ("/etc/cdi/*.json", "/etc/cdi/*.yaml")
# Those that read it.
ENGINES = (
    "podman", "docker", "dockerd", "containerd", "nerdctl", "crio", "k3s", "apptainer",
    "singularity",
)  # fmt: skip
# `nvidia-ctk cdi generate` at boot: what it writes to /run/cdi replaces devices of the same name.
MAKES_LIST = "cdi generate"


def prove_containers(subject: Subject) -> Findings:
    """Faults of what Docker, NVIDIA's toolkit and lists of devices for containers are told."""
    root = subject.root
    docker = find_unit(root, DOCKER)
    if root.is_file(DAEMON):
        yield from prove_daemon(subject, docker)
    if root.is_file(TOOLKIT) and docker:
        yield from prove_toolkit(root)
    if root.is_file(CONTAINERD):
        yield from prove_names(root)
        yield from prove_cri(root)
        yield from prove_registry(root)
    for path in root.glob(*DEVICES):
        yield from prove_devices(root, path)


def prove_daemon(subject: Subject, docker: Unit | None) -> Findings:
    root, read = subject.root, read_daemon(subject)
    if read.problem:
        what = f"dockerd does not start: {DAEMON} {read.problem}"
        yield fault(what, read.evidence, hint="correct it: dockerd --validate")
        return
    settings = read.values
    words = [w for line in docker.every("ExecStart") for w in line.split()] if docker else []
    for key in settings:
        options = SHORT.get(key, (f"--{key}",))
        if option := next((w for w in words if w.partition("=")[0] in options), ""):
            what = f"dockerd does not start: {key} of {DAEMON} is also an option of {DOCKER} "
            what += f"({option})"
            hint = "keep one of them; in a drop-in, an empty ExecStart= removes the unit's own"
            units = [Evidence(path) for path in docker.paths[-1:]] if docker else []
            yield fault(what, Evidence(DAEMON, symbol=key), *units, hint=hint)
    runtimes = table_at(settings, "runtimes")
    for name, runtime in runtimes.items():
        path = value_at(runtime, "path")
        if isinstance(path, str) and not find_program(root, path):
            what = f"Docker's runtime {name} cannot start containers: {path} is not in the image"
            yield fault(what, Evidence(DAEMON, symbol=name, said=path), hint="install it")
    default = str(settings.get("default-runtime", "runc"))
    if default not in BUILT_IN and default not in runtimes:
        what = f"dockerd does not start: its default runtime {default} is not among its runtimes"
        hint = "run nvidia-ctk runtime configure when the image is built, or remove that line"
        yield fault(what, Evidence(DAEMON, symbol="default-runtime"), hint=hint)


def prove_toolkit(root: Root) -> Findings:
    """A fault of NVIDIA's toolkit if it leaves devices to a Docker that nobody tells of them."""
    read = read_toml(root, TOOLKIT)
    if read.problem:
        what = f"no container gets a card: {TOOLKIT} {read.problem}"
        yield fault(what, Evidence(TOOLKIT), hint="write it with nvidia-ctk config")
        return
    cli = table_at(read.values, CLI)
    if cli.get(NO_CGROUPS) is True:
        what = f"Docker's containers may not open the card: {NO_CGROUPS} of {TOOLKIT} is for "
        what += "rootless containers"
        evidence = Evidence(TOOLKIT, CLI, NO_CGROUPS, f"{NO_CGROUPS} = true")
        yield fault(what, evidence, hint=f"set {NO_CGROUPS} = false")
    told = str(cli.get("ldconfig", ""))
    path = told.removeprefix("@")  # which is a program of the node, not of the container
    if told.startswith("@/") and not root.is_file(path):
        what = f"no container gets a card: {TOOLKIT} names {path}, which is not in the image"
        where = Evidence(TOOLKIT, CLI, "ldconfig", f'ldconfig = "{told}"')
        yield fault(what, where, hint='set ldconfig = "@/sbin/ldconfig" (.real is Ubuntu\'s)')


def prove_cri(root: Root) -> Findings:
    """Faults of containerd: settings that it refuses, or no part for the kubelet (Docker's)."""
    read = read_toml(root, CONTAINERD)
    has_kubelet = find_unit(root, KUBELET) is not None
    if read.problem and (has_kubelet or find_unit(root, ENGINE)):
        what = f"containerd does not start: {CONTAINERD} {read.problem}"
        yield fault(what, Evidence(CONTAINERD), hint="generate it: containerd config default")
    elif has_kubelet and has_no_cri(read.values):
        what = f"the kubelet finds no runtime: disabled_plugins of {CONTAINERD} contains cri"
        evidence = Evidence(CONTAINERD, symbol="disabled_plugins")
        yield fault(what, evidence, hint="remove it from that list")


def prove_names(root: Root) -> Findings:
    """A warning about the names that containerd's plugins had before version 3 of its file."""
    settings = read_toml(root, CONTAINERD).values
    version = settings.get("version")
    old = [name for name in table_at(settings, "plugins") if name in OLD_NAMES]
    if isinstance(version, int) and version > 2 and old:
        what = f"containerd ignores [plugins.'{old[0]}'] in {CONTAINERD}: version {version} of the "
        what += "file has other names, and containers run with the default runtime, without a card"
        where = Evidence(CONTAINERD, symbol="version", said=f"version = {version}")
        yield warning(what, where, hint="set version = 2, or run containerd config migrate")


def prove_registry(root: Root) -> Findings:
    """A warning of mirrors beside a folder of them (ValidateImageConfig() of containerd)."""
    if find_unit(root, KUBELET) is None:
        return
    settings = read_toml(root, CONTAINERD).values
    for plugin in (*sorted(OLD_NAMES), CRI_IMAGES):
        registry = value_at(settings, "plugins", plugin, "registry")
        folder, mirrors = value_at(registry, "config_path"), value_at(registry, "mirrors")
        of_hosts = table_at(registry, "configs").values()
        too = [name for name, is_set in (
            ("registry.mirrors", bool(mirrors)),
            ("registry.configs with tls", any(value_at(each, "tls") for each in of_hosts)),
        ) if is_set]  # fmt: skip
        if folder and too:
            what = f"the kubelet finds no runtime: {CONTAINERD} has {too[0]} beside config_path, "
            what += "with which containerd does not load its CRI plugin"
            where = Evidence(CONTAINERD, symbol="config_path", said=f"config_path = {folder}")
            hint = f"remove {too[0]}; {folder}/HOST/hosts.toml names the mirrors of a registry"
            yield warning(what, where, hint=hint)


def prove_devices(root: Root, path: str) -> Findings:
    """Findings about a list of devices with files that are not there; a fault if it is used."""
    content = root.read(path) or b""
    try:
        listed = parse_document(content, path).value if content.strip() else {}
    except InputError as error:
        what = f"no container gets the devices of {path}: {error.faults[0].what}"
        yield fault(
            what,
            Evidence(path, said=error.faults[0].where),
            hint="correct it, or generate it again",
        )
        return
    named = list(dict.fromkeys(paths_of(listed)))
    gone = [each for each in named if each.startswith(IN_IMAGE) and not root.lies(each)]
    if gone:
        what = f"no container with {listed.get('kind', posixpath.basename(path))} starts: {path} "
        what += f"names {list_first(gone, 1)}, which the image does not have"
        hint = "generate it from the image's driver, or on each node at boot (nvidia-ctk "
        hint += "cdi generate --output=/run/cdi/nvidia.yaml)"
        where = [Evidence(path, said=each) for each in gone[:8]]
        if maker := next(makers_of_lists(root), ""):
            what += f"; {maker} may list the same devices again at boot"
        is_used = any(find_program(root, name) for name in ENGINES) and not maker
        say = fault if is_used else warning
        yield say(what, *where, hint=hint)


def makers_of_lists(root: Root) -> Iterator[str]:
    """The files of units that list the devices of a node at boot."""
    for folder in FOLDERS:
        for name in root.names(folder):
            if name.endswith(".service") and MAKES_LIST in root.text(f"{folder}/{name}"):
                yield f"{folder}/{name}"


def paths_of(listed: Mapping[str, Any]) -> Iterator[str]:
    """The files of this machine that a specification mounts or runs."""
    for each in (listed, *list_at(listed, "devices")):
        for key, name in (("mounts", "hostPath"), ("hooks", "path")):
            paths = (value_at(entry, name) for entry in list_at(each, "containerEdits", key))
            yield from (path for path in paths if isinstance(path, str))
