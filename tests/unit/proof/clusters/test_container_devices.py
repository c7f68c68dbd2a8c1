# SPDX-License-Identifier: Apache-2.0
"""Containers and their devices, by each way to start one."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.clusters.engines import prove_container_devices
from imagebuilder.proof.reading.containers import parse_options
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from tests.unit.proof.trees import Content, Program, make_tree, running, subject

RADEON = ("1002:7480", "Radeon RX 7600 XT", "gfx1102")
UNIT = "/etc/systemd/system/a.service"
ROOT: dict[str, Content] = {
    "/usr/lib/udev/rules.d/50-udev-default.rules": (
        'SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", MODE="0660"\n'
        'SUBSYSTEM=="kfd", GROUP="render", MODE="0660"\n'
        'SUBSYSTEM=="infiniband_verbs", MODE="0666"\n'
    ),
    "/etc/group": "render:x:105:\nann:x:1000:\n",
    "/etc/passwd": "ann:x:1000:1000::/home/ann:/bin/sh\n",
    "/usr/bin/crun": Program(),
}
DOCKER, PODMAN = "/usr/bin/docker run --rm", "/usr/bin/podman run"
BOTH = "--device /dev/kfd --device=/dev/dri"
ANN = {"User": "ann"}
COMPOSE, UP = "/opt/a/compose.yaml", "/usr/bin/docker compose -f /opt/a/compose.yaml up"
OLLAMA = "services:\n  llm:\n    image: ollama:rocm\n    devices: [/dev/dri:/dev/dri]\n"
QUADLET = "/etc/containers/systemd/a.container"
OF_ANN = "/etc/containers/systemd/users/1000/a.container"
IN_HOME = "/home/ann/.config/containers/systemd/a.container"
DRI = "[Container]\nImage=x\nAddDevice=/dev/dri\n"
CONF = "/etc/containers/containers.conf"
SCRIPT = "/opt/serve"


def told(
    root: Path, command: str, files: dict[str, Content], values: dict[str, str]
) -> list[tuple[Level, str]]:
    asked = subject(make_tree(root, {**ROOT, UNIT: "[Service]\n", **files}), hardware=[RADEON])
    asked.__dict__["shipped"] = {}
    settings = {"Unit Load State": ("loaded",)} | {key: (value,) for key, value in values.items()}
    lines = {"ExecStart": (tuple(command.split()),)}
    unit = LoadedUnit("a.service", (UNIT,), settings, lines)
    startup = Startup(frozenset((unit.name,)), {}, {unit.name: unit}, ())
    return [(each.level, each.what) for each in prove_container_devices(running(asked, startup))]


KFD = "gives its container /dev/dri, but not /dev/kfd: ROCm needs both"
GROUPS = "podman runs as ann, without root, and drops its supplementary groups"
BAD: list[tuple[str, dict[str, Content], dict[str, str], str]] = [
    (f"{DOCKER} --device /dev/dri ollama:rocm", {}, {}, KFD),
    (f"{PODMAN} -it --name a -v /m:/m --device=/dev/dri:/dev/dri x/vllm-rocm:7 s", {}, {}, KFD),
    ("/usr/bin/env nerdctl run --device /dev/dri -e HSA_OVERRIDE_GFX_VERSION=11.0.0 x", {}, {},
     KFD),
    (f"{DOCKER} --device /dev/dri/renderD128 rocm/pytorch:latest", {}, {}, "not /dev/kfd"),
    (f"{DOCKER} --device /dev/kfd rocm/pytorch", {}, {}, "/dev/kfd, but not /dev/dri"),
    (SCRIPT, {SCRIPT: Program("#!/bin/sh\nexec podman run --device /dev/dri ollama:rocm\n")}, {},
     f"a.service {KFD}"),
    (UP, {COMPOSE: OLLAMA}, {}, f"llm of /opt/a/compose.yaml {KFD}"),
    ("/usr/bin/docker-compose up", {COMPOSE: OLLAMA}, {"WorkingDirectory": "/opt/a"}, KFD),
    ("/opt/x", {QUADLET: "[Container]\nImage=ollama:rocm\nAddDevice=-/dev/dri\n"}, {}, KFD),
    (f"{PODMAN} {BOTH} x", {}, ANN, f"/dev/kfd, /dev/dri: {GROUPS}"),
    (f"{PODMAN} {BOTH} --group-add video x", {}, ANN, GROUPS),
    (f"/usr/bin/podman --runtime runc run {BOTH} --group-add keep-groups x", {}, ANN,
     "runc ignores keep-groups"),
    ("/opt/x", {OF_ANN: DRI}, {}, f"/dev/dri: {GROUPS}"),
    ("/opt/x", {IN_HOME: "[Container]\nImage=x\nPodmanArgs=--device /dev/kfd\n"}, {}, GROUPS),
]  # fmt: skip
GOOD: list[tuple[str, dict[str, Content], dict[str, str]]] = [
    (f"{DOCKER} {BOTH} ollama:rocm", {}, {}),
    (f"{DOCKER} --device /dev/dri llama.cpp:server-vulkan", {}, {}),
    (f"{DOCKER} --privileged --device /dev/dri ollama:rocm", {}, {}),
    (f"{DOCKER} --device /dev/dri -v /dev/kfd:/dev/kfd ollama:rocm", {}, {}),
    (f"{DOCKER} --device amd.com/gpu=all --device /dev/dri ollama:rocm", {}, {}),
    (f"{DOCKER} --device /dev/dri jellyfin --comment rocm", {}, {}),
    (f"{DOCKER} ollama:rocm", {}, {}),
    ("/usr/bin/docker volume create --device /dev/dri rocm", {}, {}),
    ("/usr/bin/docker stop rocm", {}, {}),
    (UP, {COMPOSE: OLLAMA.replace("dri]", "dri, /dev/kfd]")}, {}),
    (UP, {COMPOSE: "services: [\n"}, {}),
    (f"{PODMAN} --device /dev/dri ollama:rocm",
     {CONF: '[containers]\ndevices = ["/dev/kfd"]\n'}, {}),
    ("/opt/x", {QUADLET: "[Container]\nImage=ollama:rocm\nAddDevice=/dev/dri /dev/kfd\n"}, {}),
    (f"{PODMAN} {BOTH} x", {}, {}),
    (f"{PODMAN} {BOTH} x", {}, {"User": "root"}),
    (f"{PODMAN} {BOTH} --group-add keep-groups x", {}, ANN),
    (f"{PODMAN} {BOTH} --annotation=run.oci.keep_original_groups=1 x", {}, ANN),
    (f"{PODMAN} {BOTH} x",
     {CONF: '[containers]\nannotations = ["run.oci.keep_original_groups=1"]\n'}, ANN),
    (f"{PODMAN} {BOTH} --gidmap=+g105:@105 x", {}, ANN),
    (f"{PODMAN} {BOTH} x", {}, {**ANN, "Group": "render"}),
    (f"{PODMAN} --device /dev/infiniband/uverbs0 --device /dev/nvidia0 x", {}, ANN),
    (f"{PODMAN} {BOTH} x", {"/etc/udev/rules.d/70.rules": 'SUBSYSTEM=="kfd|drm", MODE="0666"\n'},
     ANN),
    ("/opt/x", {OF_ANN: f"{DRI}GroupAdd=keep-groups\n"}, {}),
    ("/opt/x", {OF_ANN: f"{DRI}PodmanArgs=--group-add keep-groups\n"}, {}),
    ("/opt/x", {OF_ANN: DRI, f"{OF_ANN}.d/a.conf": "[Container]\nGroupAdd=keep-groups\n"}, {}),
]  # fmt: skip


@pytest.mark.parametrize(("command", "files", "values", "said"), BAD)
def test_devices_that_a_container_cannot_use(
    command: str, files: dict[str, Content], values: dict[str, str], said: str, tmp_path: Path
) -> None:
    found = told(tmp_path, command, files, values)
    assert [(level, said in what) for level, what in found] == [(Level.WARNING, True)], found


@pytest.mark.parametrize(("command", "files", "values"), GOOD)
def test_devices_that_a_container_can_use(
    command: str, files: dict[str, Content], values: dict[str, str], tmp_path: Path
) -> None:
    assert told(tmp_path, command, files, values) == []


def test_options_of_a_container() -> None:
    words = ["-dit", "--rm", "--read-only=false", "-v/a:/b", "-e", "A=b", "image", "-v", "c"]
    options, image, program = parse_options(words)
    assert (image, program) == ("image", "-v")
    assert (options["volume"], options["env"]) == (["/a:/b"], ["A=b"])
    assert (options["rm"], options["read-only"]) == (["true"], ["false"])
    assert parse_options(["--name"]) == ({"name": [""]}, "", "")
