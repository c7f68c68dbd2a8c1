# SPDX-License-Identifier: Apache-2.0
"""Settings of container engines with which no container starts, or none gets a card."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.services.containers import prove_containers
from tests.unit.proof.trees import Content, Program, faults, make_tree, subject

UNIT, DAEMON = "/usr/lib/systemd/system/docker.service", "/etc/docker/daemon.json"
TOOLKIT = "/etc/nvidia-container-runtime/config.toml"
START = "[Service]\nExecStart=/usr/bin/dockerd -H fd:// --log-level=warn\n"


def told(root: Path, files: dict[str, Content]) -> list[str]:
    return faults(prove_containers(subject(make_tree(root, {UNIT: START, **files}))))


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"hosts": ["fd://"]}, "hosts of /etc/docker/daemon.json is also an option"),
        ({"log-level": "info"}, "log-level of /etc/docker/daemon.json is also an option"),
        ({"default-runtime": "nvidia"}, "its default runtime nvidia is not among its runtimes"),
        ({"runtimes": {"nvidia": {"path": "nvidia-container-runtime"}}}, "is not in the image"),
        ({"runtimes": {"kata": {"runtimeType": "io.containerd.kata.v2"}}}, ""),
        ({"runtimes": {"own": {"path": "/usr/bin/own"}}, "default-runtime": "own"}, ""),
        ({"runtimes": {"own": {"path": "own"}}}, ""),
        ({"data-root": "/models/docker", "default-runtime": "runc"}, ""),
        ([], "is not a mapping of names to values"),
        (None, ""),
    ],
)
def test_what_dockerd_does_not_accept(settings: Any, why: str, tmp_path: Path) -> None:  # noqa: ANN401
    found = told(tmp_path, {DAEMON: json.dumps(settings), "/usr/bin/own": Program()})
    assert [why in what for what in found] == ([True] if why else [])


def test_settings_that_are_no_json(tmp_path: Path) -> None:
    (found,) = told(tmp_path, {DAEMON: '{"hosts": [],}'})
    assert found.startswith("dockerd does not start: /etc/docker/daemon.json is damaged: not JSON")
    assert told(tmp_path, {DAEMON: ""}) == []


@pytest.mark.parametrize(
    ("content", "version", "why"),
    [
        # dockerd takes the mark of UTF-8 and of UTF-16, and a file with blanks alone.
        (b'\xef\xbb\xbf{"debug": true}', "", ""),
        ('\ufeff{"debug": true}'.encode("utf-16-le"), "", ""),
        ('\ufeff{"debug": true}'.encode("utf-16-be"), "5:27.5.1-1~debian.13~trixie", ""),
        (b" \n\t\n", "", ""),
        (b"\xef\xbb\xbf\n", "", ""),
        # 20.10 said "invalid character" and EOF.
        (b'\xef\xbb\xbf{"debug": true}', "20.10.24+dfsg1-1+deb12u1", "begins with a byte order"),
        (b"\n", "20.10.24+dfsg1-1+deb12u1", "is empty"),
        # Text of Latin-1, in a string too; a decoder that replaces it takes it for valid.
        (b'{"labels": ["site=K\xf6ln"]}', "", "is not UTF-8 text"),
        ('{"debug": true}'.encode("utf-16-le"), "", "is damaged: not JSON"),
        (b'{"debug": true}\n{"debug": true}\n', "", "is damaged: not JSON"),
    ],
)
def test_texts_of_dockerd(content: bytes, version: str, why: str, tmp_path: Path) -> None:
    given = subject(make_tree(tmp_path, {UNIT: START, DAEMON: content}))
    given.__dict__["packages"] = {"docker.io": version} if version else {}
    found = faults(prove_containers(given))
    assert [f"dockerd does not start: {DAEMON} {why}" in what for what in found] == (
        [True] if why else []
    )


def test_settings_of_containerd_that_it_refuses(tmp_path: Path) -> None:
    unit: dict[str, Content] = {"/usr/lib/systemd/system/containerd.service": "[Service]\n"}
    for content in (b"[plugins\n", b'root = "/K\xf6ln"\n'):
        (found,) = told(tmp_path, {"/etc/containerd/config.toml": content, **unit})
        assert found.startswith("containerd does not start: /etc/containerd/config.toml is not")


def test_containers_as_root_with_a_setting_for_those_without(tmp_path: Path) -> None:
    text = "[nvidia-container-cli]\nno-cgroups = {}\n"
    assert told(tmp_path, {TOOLKIT: text.format("false")}) == []
    (found,) = told(tmp_path, {TOOLKIT: text.format("true")})
    assert found.startswith("Docker's containers may not open the card: no-cgroups")
    (found,) = told(tmp_path, {TOOLKIT: text.format("True")})
    assert "is not valid TOML" in found
    (tmp_path / UNIT.lstrip("/")).unlink()
    alone = subject(make_tree(tmp_path, {TOOLKIT: text.format("true")}))
    assert list(prove_containers(alone)) == []


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('disabled_plugins = ["cri"]\n', "the kubelet finds no runtime: disabled_plugins"),
        ('disabled_plugins = ["io.containerd.grpc.v1.cri"]\n', "the kubelet finds no runtime"),
        ("disabled_plugins = []\n", ""),
        ("version = 3\n", ""),
        ("[plugins\n", "containerd does not start: /etc/containerd/config.toml is not valid TOML"),
    ],
)
def test_a_kubelet_whose_runtime_is_switched_off(text: str, why: str, tmp_path: Path) -> None:
    files: dict[str, Content] = {"/etc/containerd/config.toml": text}
    assert told(tmp_path, files) == []
    kubelet: dict[str, Content] = {"/usr/lib/systemd/system/kubelet.service": "[Service]\n"}
    assert [what.startswith(why) for what in told(tmp_path, kubelet)] == ([True] if why else [])


@pytest.mark.parametrize("kind", ["json", "yaml"])
def test_devices_whose_files_are_not_there(kind: str, tmp_path: Path) -> None:
    mount = {"hostPath": "/usr/lib/libcuda.so.570", "containerPath": "/usr/lib/libcuda.so.570"}
    device = {"name": "0", "containerEdits": {"deviceNodes": [{"path": "/dev/nvidia0"}]}}
    edits = {"mounts": [mount, {"hostPath": "/run/made"}], "hooks": [{"path": "/usr/bin/hook"}]}
    listed = {"kind": "nvidia.com/gpu", "devices": [device], "containerEdits": edits}
    files: dict[str, Content] = {f"/etc/cdi/nvidia.{kind}": json.dumps(listed)}
    assert told(tmp_path, files) == []  # no engine is in the image
    engine: dict[str, Content] = {"/usr/bin/podman": Program()}
    (found,) = told(tmp_path, {**files, **engine})
    assert found.startswith(
        f"no container with nvidia.com/gpu starts: /etc/cdi/nvidia.{kind} names "
        "/usr/lib/libcuda.so.570 and 1 more, which the image does not have"
    )
    there: dict[str, Content] = {"/usr/lib/libcuda.so.570": b"", "/usr/bin/hook": Program()}
    assert told(tmp_path, {**files, **there}) == []


@pytest.mark.parametrize(
    ("engine", "unit", "level"),
    [
        ("/usr/bin/podman", "", Level.FAULT),
        ("/usr/bin/apptainer", "", Level.FAULT),
        ("/usr/bin/skopeo", "", Level.WARNING),
        ("/usr/bin/podman", "/usr/bin/nvidia-ctk cdi list", Level.FAULT),
        ("/usr/bin/podman", "/usr/bin/nvidia-ctk cdi generate", Level.WARNING),
    ],
)
def test_who_reads_a_list_of_devices(engine: str, unit: str, level: Level, tmp_path: Path) -> None:
    edits = {"mounts": [{"hostPath": "/usr/lib/libcuda.so.570"}]}
    files: dict[str, Content] = {
        "/etc/cdi/nvidia.json": json.dumps({"kind": "nvidia.com/gpu", "containerEdits": edits}),
        "/usr/lib/systemd/system/cdi.service": f"[Service]\nExecStart={unit}\n",
        engine: Program(),
    }
    (found,) = prove_containers(subject(make_tree(tmp_path, files)))
    assert found.level is level
    assert ("cdi.service may list" in found.what) == unit.endswith("generate")


@pytest.mark.parametrize("text", ["", "devices: 1", "containerEdits: {mounts: [1, {}]}"])
def test_lists_of_devices_of_any_shape(text: str, tmp_path: Path) -> None:
    assert told(tmp_path, {"/etc/cdi/a.yaml": text}) == []


def test_a_list_of_devices_that_is_not_valid(tmp_path: Path) -> None:
    (found,) = told(tmp_path, {"/etc/cdi/a.yaml": "a: [1"})
    assert found.startswith("no container gets the devices of /etc/cdi/a.yaml: not valid YAML")


@pytest.mark.parametrize(
    ("path", "text"),
    [
        (DAEMON, "[" * 100_000),
        ("/etc/cdi/a.yaml", "a: " + "[" * 100_000),
        ("/etc/cdi/a.yaml", "a: &a [x]\n" + "".join(f"b{n}: &b{n} [*a, *a]\n" for n in range(9))),
        (TOOLKIT, "a = " + "[" * 100_000),
    ],
)
def test_texts_that_are_too_deep(path: str, text: str, tmp_path: Path) -> None:
    assert told(tmp_path, {path: text}) is not None


CONTAINERD, KUBELET = "/etc/containerd/config.toml", "/etc/systemd/system/kubelet.service"
NEW, OLD = "plugins.'io.containerd.cri.v1.images'", "plugins.'io.containerd.grpc.v1.cri'"
FOLDER = "registry]\nconfig_path = '/etc/containerd/certs.d'\n"
MIRROR = "registry.mirrors.'docker.io']\nendpoint = ['https://cache']\n"


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        (f"version = 3\n[{NEW}.{FOLDER}[{NEW}.{MIRROR}", "has registry.mirrors beside config_path"),
        (f"version = 2\n[{OLD}.{FOLDER}[{OLD}.{MIRROR}", "has registry.mirrors beside config_path"),
        (
            f"version = 2\n[{OLD}.{FOLDER}[{OLD}.registry.configs.'x'.tls]\nca_file = '/x'\n",
            "has registry.configs with tls beside config_path",
        ),
        (f"version = 2\n[{OLD}.{FOLDER}[{OLD}.registry.configs.'x'.auth]\nusername = 'a'\n", ""),
        (f"version = 3\n[{NEW}.{FOLDER}", ""),
        (f"version = 3\n[{NEW}.{MIRROR}", ""),
        (f"version = 2\n[{OLD}.registry]\nconfig_path = ''\n[{OLD}.{MIRROR}", ""),
    ],
)
def test_mirrors_beside_a_folder_of_them(settings: str, said: str, tmp_path: Path) -> None:
    files: dict[str, Content] = {CONTAINERD: settings, KUBELET: "[Service]\nExecStart=/usr/bin/k\n"}
    found = list(prove_containers(subject(make_tree(tmp_path / "1", files))))
    assert [said in each.what for each in found] == [True] * bool(said)
    assert all(each.level is Level.WARNING for each in found)
    alone = make_tree(tmp_path / "2", {CONTAINERD: settings})
    assert list(prove_containers(subject(alone))) == []
