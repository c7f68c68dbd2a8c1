# SPDX-License-Identifier: Apache-2.0
"""Drop-ins that open a service to everybody, settings of modules that nothing loads, /dev/shm."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.services.start import prove_closed
from imagebuilder.proof.system.files.mounts import prove_mounts
from imagebuilder.proof.system.files.needed import prove_late_settings
from imagebuilder.proof.system.units.reach import prove_fences
from imagebuilder.recipe.expectations import Device
from tests.unit.proof.trees import (
    KERNEL,
    Content,
    Program,
    Sandbox,
    faults,
    make_tree,
    running,
    subject,
    warnings,
)

UNIT, DROP_IN = "/etc/systemd/system/a.service", "/etc/systemd/system/a.service.d/site.conf"
FENCE = "[Service]\nIPAddressDeny=any\nIPAddressAllow=localhost 10.0.0.0/24\n"
EVERYBODY = {"IPAddressDeny": (), "IPAddressAllow": ("0.0.0.0/0", "::/0")}
MODULES = f"/usr/lib/modules/{KERNEL}"


def starting(**values: tuple[str, ...]) -> Startup:
    unit = LoadedUnit(
        "a.service",
        (UNIT, DROP_IN),
        {"Unit Load State": ("loaded",), **values},
        {"ExecStart": (("/usr/libexec/a",),)},
    )
    return Startup(frozenset(("a.service",)), {}, {"a.service": unit}, ())


@pytest.mark.parametrize(
    ("unit", "drop_in", "values", "is_open"),
    [
        (FENCE, "[Service]\nIPAddressDeny=\nIPAddressAllow=any\n", EVERYBODY, True),
        (FENCE, "[Service]\nIPAddressDeny=\n", {"IPAddressAllow": ("127.0.0.0/8",)}, True),
        (FENCE, "[Service]\nIPAddressAllow=any\n",
         {"IPAddressDeny": ("0.0.0.0/0",), "IPAddressAllow": ("0.0.0.0/0",)}, True),
        (FENCE, "[Service]\nIPAddressAllow=10.0.0.7\n",
         {"IPAddressDeny": ("0.0.0.0/0",), "IPAddressAllow": ("10.0.0.7/32",)}, False),
        ("[Service]\n", "[Service]\nIPAddressAllow=any\n", EVERYBODY, False),
        (FENCE, "[Service]\nNice=5\n",
         {"IPAddressDeny": ("0.0.0.0/0",), "IPAddressAllow": ("10.0.0.0/24",)}, False),
    ],
)  # fmt: skip
def test_a_drop_in_that_opens_a_service(
    unit: str,
    drop_in: str,
    values: dict[str, tuple[str, ...]],
    is_open: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    given = subject(make_tree(tmp_path, {UNIT: unit, DROP_IN: drop_in}))
    said = [f"a.service accepts packets from everywhere: {DROP_IN} removes the unit's own "
            "IPAddressDeny=any"]  # fmt: skip
    assert warnings(prove_fences(running(given, starting(**values)))) == (said if is_open else [])


@pytest.mark.parametrize(
    ("files", "words", "said"),
    [
        ({}, (), "which nothing loads at boot"),
        ({"/etc/modules-load.d/a.conf": "# br_netfilter\nbr-netfilter\n"}, (), ""),
        ({}, ("modules_load=overlay,br_netfilter",), ""),
        ({"/usr/libexec/a": Program("#!/bin/sh\nmodprobe br_netfilter\n")}, (), ""),
        ({f"{MODULES}/modules.builtin": "kernel/net/bridge/br_netfilter.ko\n"}, (), ""),
    ],
)
def test_a_setting_of_a_module_that_nothing_loads(
    files: dict[str, Content], words: tuple[str, ...], said: str, tmp_path: Path
) -> None:
    index = {f"{MODULES}/modules.dep": "kernel/net/bridge/br_netfilter.ko.xz:\n"}
    answer = "# /etc/sysctl.d/k8s.conf\nnet.bridge.bridge-nf-call-iptables = 1\n"
    sandbox = Sandbox({"systemd-analyze cat-config sysctl.d": answer})
    given = subject(make_tree(tmp_path, {**index, **files}), run=sandbox, cmdline=words)
    found = warnings(prove_late_settings(running(given, starting())))
    assert [said in what for what in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("options", "small"),
    [("size=64M", True), ("rw,size=1048576k,nosuid", False), ("size=100", True), ("size=8G", False),
     ("size=75%", False), ("rw", False)],
)  # fmt: skip
def test_memory_that_processes_share(options: str, small: bool, tmp_path: Path) -> None:  # noqa: FBT001
    given = subject(make_tree(tmp_path, {"/etc/fstab": f"tmpfs /dev/shm tmpfs {options} 0 0\n"}))
    given.__dict__["shipped"] = {}
    assert [what[:8] for what in warnings(prove_mounts(given))] == (["/dev/shm"] if small else [])


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("nas:/r /r nfs4 soft,timeo=10,nofail 0 0", "(soft), and programs rarely notice"),
        ("nas:/r /r nfs softerr,nofail 0 0", "(softerr), and programs rarely notice"),
        ("nas:/r /r nfs4 ro,soft,nofail 0 0", ""),
        ("nas:/r /r nfs4 hard,nofail 0 0", ""),
        ("//nas/r /r cifs soft,nofail 0 0", ""),
    ],
)
def test_a_server_that_answers_late(line: str, said: str, tmp_path: Path) -> None:
    helpers: dict[str, Content] = {
        f"/usr/sbin/mount.{kind}": "" for kind in ("nfs", "nfs4", "cifs")
    }
    given = subject(make_tree(tmp_path, {"/etc/fstab": f"{line}\n", **helpers}))
    given.__dict__["shipped"] = {}
    found = warnings(prove_mounts(given))
    assert [said in what for what in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("lines", "key"),
    [
        ("PrivateDevices=yes", "PrivateDevices"),
        ("DevicePolicy=closed\nDeviceAllow=char-drm rw", "DevicePolicy"),
        ("DevicePolicy=closed\nDeviceAllow=char-drm rw\nDeviceAllow=char-kfd rw", ""),
        ("PrivateTmp=yes", ""),
    ],
)
def test_a_unit_beside_that_may_not_open_the_card(lines: str, key: str, tmp_path: Path) -> None:
    root = make_tree(tmp_path, {UNIT: f"[Service]\n{lines}\n"})
    devices = [Device("/dev/kfd", "render"), Device("/dev/dri/renderD*", "render")]
    found = faults(prove_closed(root, "a.service", devices))
    assert [f"a.service finds no card: {key}=" in what for what in found] == [True] * bool(key)
