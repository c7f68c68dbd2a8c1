# SPDX-License-Identifier: Apache-2.0
"""llama.cpp runs, has the backends it was asked for, and does not hide a missing GPU."""

from __future__ import annotations

import re

import pytest
from testinfra.host import Host

UNIT = "/etc/systemd/system/llama-server.service"
RPC_UNIT = "/etc/systemd/system/llama-rpc-server.service"
FIND_GPUS = "/usr/libexec/llama-cpp/find-gpus"
LIBRARIES = {"ROCm": "libggml-hip.so", "Vulkan": "libggml-vulkan.so"}


def gpu_kinds(host: Host) -> list[str]:
    """The kinds of GPU without which the service refuses to start."""
    found = re.search(rf"ExecStartPre={FIND_GPUS}(.*)", host.file(UNIT).content_string)
    return found[1].split() if found else []


def setting(host: Host, name: str) -> str:
    """A variable of /etc/default/llama-server."""
    text = host.file("/etc/default/llama-server").content_string
    found = re.search(rf"^{name}=(.*)$", text, re.MULTILINE)
    assert found, f"{name} is not set"
    return found[1]


def state(host: Host, unit: str) -> str:
    """The unit's ActiveState."""
    return host.check_output(f"systemctl show -P ActiveState {unit}")


@pytest.mark.static
def test_llama_server_starts(host: Host) -> None:
    said = host.run("llama-server --list-devices")
    assert said.rc == 0
    assert "Available devices:" in said.stdout + said.stderr


@pytest.mark.static
def test_backends_are_complete(host: Host) -> None:
    folder = host.check_output("find /usr/lib -type d -path '*/ggml/backends*'")
    names = host.check_output(f"ls {folder}").split()
    assert {LIBRARIES[kind] for kind in gpu_kinds(host)} <= set(names)
    said = host.check_output(f"cd {folder} && ldd {' '.join(names)}")
    assert "not found" not in said, said


@pytest.mark.static
def test_a_missing_gpu_is_told(host: Host) -> None:
    said = host.run(f"{FIND_GPUS} NoSuchKind")
    assert (said.rc, said.stdout) == (1, "")
    assert "NoSuchKind" in said.stderr


@pytest.mark.static
def test_the_unit_is_ours_and_enabled(host: Host) -> None:
    for wanted_by in ("multi-user.target", "models.mount"):
        assert host.file(f"/etc/systemd/system/{wanted_by}.wants/llama-server.service").is_symlink
    assert "ExecCondition=/usr/bin/test -e ${LLAMA_ARG_MODEL}" in host.file(UNIT).content_string


@pytest.mark.static
def test_borrowers_are_fenced(host: Host) -> None:
    unit = host.file(RPC_UNIT)
    if not unit.exists:
        assert host.run("ls /usr/libexec/llama-cpp").stdout.split() == ["find-gpus"]
        return
    lines = unit.content_string.splitlines()
    assert "IPAddressDeny=any" in lines
    allowed = next(line for line in lines if line.startswith("IPAddressAllow="))
    assert not {"any", "0.0.0.0/0", "::/0"} & set(allowed.partition("=")[2].split())
    assert host.check_output("find /usr/libexec -name ggml-rpc-server -type f -perm -0111")


@pytest.mark.static
def test_the_processor_does_not_stand_in_for_a_gpu(host: Host) -> None:
    if "llama_allow_cpu" in host.file(UNIT).content_string:
        pytest.skip("the recipe allows the processor")
    folder = host.check_output("find /usr/lib -type d -path '*/ggml/backends*'")
    there = host.check_output(f"ls {folder}").split()
    wanted = {kind for kind, library in LIBRARIES.items() if library in there}
    unguarded = sorted(wanted - set(gpu_kinds(host)))
    assert not unguarded, (
        f"{UNIT} starts without looking for {' or '.join(unguarded)}, and computes on the "
        f"processor where there is no GPU: ExecStartPre={FIND_GPUS}"
    )


@pytest.mark.boot
def test_the_service_serves_or_is_skipped(host: Host) -> None:
    if not host.file(setting(host, "LLAMA_ARG_MODEL")).exists:
        assert state(host, "llama-server.service") == "inactive"
        return
    kinds = gpu_kinds(host)
    if kinds and host.run(f"{FIND_GPUS} {' '.join(kinds)}").rc:
        # Without the GPU that the image is for it must not pretend.
        assert state(host, "llama-server.service") != "active"
        return
    assert state(host, "llama-server.service") == "active"
    port = setting(host, "LLAMA_ARG_PORT")
    health = (
        "import urllib.request;"
        f"print(urllib.request.urlopen('http://127.0.0.1:{port}/health', timeout=60).status)"
    )
    assert host.check_output(f'python3 -c "{health}"') == "200"


@pytest.mark.boot
def test_gpus_are_found_where_there_are_any(host: Host) -> None:
    kinds = gpu_kinds(host)
    has_gpu = host.run("ls /dev/dri/renderD*").rc == 0
    said = host.run(f"{FIND_GPUS} {' '.join(kinds)}" if kinds else "true")
    assert said.rc == (0 if has_gpu or not kinds else 1)


@pytest.mark.boot
def test_lending_is_as_asked(host: Host) -> None:
    wanted = "/etc/systemd/system/multi-user.target.wants/llama-rpc-server.service"
    assert (state(host, "llama-rpc-server.service") == "active") == host.file(wanted).exists
