# SPDX-License-Identifier: Apache-2.0
"""vLLM is there, its service is ours, and it does not hide a missing device."""

from __future__ import annotations

import re

import pytest
from testinfra.host import Host

UNIT = "/etc/systemd/system/vllm.service"
NODE_UNIT = "/etc/systemd/system/vllm-node@.service"
FIND_DEVICE = "/usr/libexec/vllm/find-device"
# What Triton does before it calls a kernel for the first time.
STUB = """
from triton.backends.nvidia import driver
from triton.runtime.build import compile_module_from_src
compile_module_from_src(
    src=driver.make_launcher({}, {0: "*fp32", 1: "i32"}, None), name="__triton_launcher",
    library_dirs=driver.library_dirs(), include_dirs=driver.include_dirs,
    libraries=driver.libraries)
"""
WANTED_BY = ("multi-user.target", "models.mount")


def guard(host: Host) -> list[str]:
    """The command that looks for the device, none in the variant for the processor."""
    found = re.search(r"^ExecStartPre=(.*)$", host.file(UNIT).content_string, re.MULTILINE)
    return found[1].split() if found else []


def setting(host: Host, name: str) -> str:
    """A variable of /etc/default/vllm, "" when it is not set."""
    found = re.search(rf"^{name}=(.*)$", host.file("/etc/default/vllm").content_string, re.M)
    return found[1].strip('"') if found else ""


def state(host: Host, unit: str) -> str:
    """The unit's ActiveState."""
    return host.check_output(f"systemctl show -P ActiveState {unit}")


@pytest.mark.static
def test_server_can_be_called(host: Host) -> None:
    said = host.run("/opt/vllm/bin/python -c 'import vllm, torch; print(vllm.__version__)'")
    assert said.rc == 0, said.stderr
    assert re.match(r"\d+\.\d+", said.stdout.splitlines()[-1])


@pytest.mark.static
def test_a_missing_device_is_told(host: Host) -> None:
    command = guard(host)
    if not command:
        assert not host.file(FIND_DEVICE).exists
        return
    said = host.run(" ".join(command))
    assert (said.rc, said.stdout) == (1, "")
    assert "vLLM is not started" in said.stderr


@pytest.mark.static
def test_one_unit_serves(host: Host) -> None:
    several = host.file(NODE_UNIT).exists
    for wanted_by in WANTED_BY:
        link = host.file(f"/etc/systemd/system/{wanted_by}.wants/vllm.service")
        assert link.is_symlink != several
    for unit in (UNIT, NODE_UNIT) if several else (UNIT,):
        assert host.file(f"{unit}.d/50-fence.conf").exists
        text = host.file(unit).content_string
        assert "ExecCondition=/usr/bin/test -e ${SERVE_MODEL}/config.json" in text


@pytest.mark.static
def test_several_nodes_know_their_head(host: Host) -> None:
    if host.file(NODE_UNIT).exists:
        assert int(setting(host, "SERVE_NODES")) > 1
        assert setting(host, "SERVE_HEAD"), "set vllm_head to the address of the node with rank 0"


@pytest.mark.static
def test_compiler_is_only_where_something_needs_one(host: Host) -> None:
    compiles = not setting(host, "TORCHDYNAMO_DISABLE")
    assert host.file("/usr/bin/gcc").exists == (bool(guard(host)) or compiles)


@pytest.mark.static
def test_triton_can_call_its_kernels(host: Host) -> None:
    if guard(host)[1:] != ["cuda"]:
        pytest.skip("Triton is used with CUDA")
    said = host.run("TRITON_CACHE_DIR=/tmp/triton /opt/vllm/bin/python -c %s", STUB)
    assert said.rc == 0, said.stderr


@pytest.mark.boot
def test_the_service_serves_or_is_skipped(host: Host) -> None:
    if not host.file(f"{setting(host, 'SERVE_MODEL')}/config.json").exists:
        assert state(host, "vllm.service") == "inactive"
        return
    command = guard(host)
    if command and host.run(" ".join(command)).rc:
        # Without the device that the image is for it must not pretend.
        assert state(host, "vllm.service") != "active"
        return
    assert state(host, "vllm.service") in ("active", "activating")
