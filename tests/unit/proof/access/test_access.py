# SPDX-License-Identifier: Apache-2.0
"""Question 6 on small trees: who may use the devices, by rules, groups, limits and units."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.image.proof import Finding
from imagebuilder.process import Completed
from imagebuilder.proof.access.prove import prove_access
from imagebuilder.proof.reading.accounts import limits_of, read_accounts, read_limits
from imagebuilder.proof.reading.udev import node_of
from imagebuilder.proof.reading.units import drop_ins, find_unit
from imagebuilder.recipe.expectations import (
    Device,
    Expectations,
    ExpectedEngine,
    RefusedArgument,
    Service,
)
from tests.unit.proof.trees import (
    Content,
    Link,
    Program,
    facts,
    faults,
    make_tree,
    subject,
    warnings,
)

DEFAULT = "/usr/lib/udev/rules.d/50-udev-default.rules"
# As Debian's udev has it.
RULES = """\
# comment
ACTION=="remove", GOTO="default_end"
SUBSYSTEM=="tty", KERNEL=="tty[0-9]*|hvc[0-9]*", GROUP="tty", MODE="0600"
ACTION!="add", GOTO="default_end"
SUBSYSTEM=="drm", KERNEL!="renderD*", GROUP="video"
SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="render", \\
  MODE="0660"
SUBSYSTEM=="kfd", GROUP="render", MODE="0660"
SUBSYSTEM=="accel", GROUP="render", MODE="0660"
LABEL="default_end"
"""
UNIT = "/etc/systemd/system/llama-server.service"
SERVICE = """\
[Unit]
Description=x
[Service]
ExecCondition=/usr/bin/absent
ExecStartPre=-/usr/bin/absent
ExecStart=!/usr/bin/llama-server --port \\
  8080
User=compute
LimitMEMLOCK=infinity
DevicePolicy=closed
DeviceAllow=char-drm rw
DeviceAllow=char-kfd rw
"""
TREE: dict[str, Content] = {
    DEFAULT: RULES,
    UNIT: SERVICE,
    "/etc/passwd": "root:x:0:0::/root:/bin/sh\ncompute:x:1000:1000::/home/compute:/bin/sh\n",
    "/etc/group": "root:x:0:\nvideo:x:44:\nrender:x:990:compute\ncompute:x:1000:\n",
    "/etc/security/limits.d/c.conf": "compute - memlock unlimited # for weights\n",
    "/usr/bin/llama-server": Program(),
    "/bin": Link("usr/bin"),
    "/usr/bin/sh": Program(""),
}
VIDEO_OWNS = """\
KERNEL=="kfd", GROUP="video", MODE="0660"
SUBSYSTEM=="drm", KERNEL=="renderD*", GROUP="video", MODE="0660"
SUBSYSTEM=="accel", GROUP="video", MODE="0660"
"""
RENDER = Device("/dev/dri/renderD*", "render")
KFD = Device("/dev/kfd", "render")
ACCEL = Device("/dev/accel/accel*", "render")
NVIDIA = Device("/dev/nvidia*")
LLAMA = Service("llama-server.service", memlock=True)
ENGINE = ExpectedEngine("llama.cpp", ("hip", "vulkan"), unit="llama-server.service")
EXPECTED: dict[str, Any] = {
    "devices": (RENDER, KFD, ACCEL),
    "users": ("compute",),
    "services": (LLAMA,),
    "engines": (ENGINE,),
}


def prove(path: Path, cmdline: tuple[str, ...] = (), **changed: tuple[Any, ...]) -> list[Finding]:
    """The findings about a root that is to fulfil EXPECTED, with some of that changed."""
    expected = Expectations(**(EXPECTED | changed))
    return list(prove_access(subject(path, expectations=expected, cmdline=cmdline)))


def make(path: Path, changed: dict[str, Content] | None = None) -> Path:
    """The good tree with some files changed."""
    return make_tree(path, TREE | (changed or {})).path


def test_a_good_tree_has_no_fault(tmp_path: Path) -> None:
    found = prove(make(tmp_path))
    assert (faults(found), warnings(found)) == ([], [])
    assert "/dev/kfd belongs to render, mode 0660" in facts(found)
    assert "compute is in render" in facts(found)
    assert "compute may lock memory without limit" in facts(found)
    assert "llama-server.service may use /dev/dri/renderD*, /dev/kfd as compute" in facts(found)


def test_nothing_declared_raises_no_question(tmp_path: Path) -> None:
    assert list(prove_access(subject(make(tmp_path)))) == []


def test_lines_that_udev_rejects_or_will_reject(tmp_path: Path) -> None:
    def verify(argv: Sequence[str], *, seconds: int = 60) -> Completed:
        assert seconds
        said = "/etc/udev/rules.d/1.rules:1 Invalid key.\n"
        said += "/etc/udev/rules.d/2.rules:3 Group npu is no system group: deprecated.\n"
        return Completed(1, "", said if argv else "")

    tree = make(tmp_path, {"/usr/bin/udevadm": Program()})
    asked = subject(tree, expectations=Expectations(**EXPECTED), run=verify)
    found = list(prove_access(asked))
    assert faults(found) == ["udev rejects a line of /etc/udev/rules.d/1.rules: Invalid key."]
    assert [each.partition(":")[0] for each in warnings(found)] == [
        "udev warns of a line of /etc/udev/rules.d/2.rules"
    ]


def test_a_device_of_the_profile_is_asked_about(tmp_path: Path) -> None:
    radeon = [("1002:7480", "Radeon RX 7600 XT", "gfx1102")]
    found = list(prove_access(subject(make(tmp_path), hardware=radeon)))
    assert facts(found) == ["/dev/dri/renderD* belongs to render, mode 0660"]
    make_tree(tmp_path, {"/etc/group": "root:x:0:\n"})
    found = list(prove_access(subject(tmp_path, hardware=radeon)))
    assert faults(found) == ["the group render, which must own /dev/dri/renderD*, does not exist"]


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"/etc/group": "root:x:0:\nvideo:x:44:compute\ncompute:x:1000:\n"},
         "the group render, which must own /dev/kfd, does not exist"),
        ({"/etc/group": "root:x:0:\nrender:x:990:\ncompute:x:1000:\n"},
         "compute is not in render, whose devices it must use"),
        ({"/etc/group": "root:x:0:\nrender:x:990:\ncompute:x:1000:\n"},
         "llama-server.service runs as compute without render, which owns "
         "/dev/dri/renderD*, /dev/kfd"),
        ({"/etc/passwd": "root:x:0:0::/root:/bin/sh\n"},
         "the account compute, which must use the accelerator, does not exist"),
        ({"/etc/passwd": "root:x:0:0::/root:/bin/sh\n"},
         "llama-server.service runs as compute, an account that does not exist"),
        ({DEFAULT: ""}, "no udev rule of the image gives /dev/kfd to render"),
        ({DEFAULT: RULES.replace('"kfd", GROUP="render"', '"kfd", GROUP="video"')},
         "no udev rule of the image gives /dev/kfd to render: it has group video, mode 0660"),
        ({DEFAULT: RULES.replace('"kfd", GROUP="render", MODE="0660"',
                                 '"kfd", GROUP="render", MODE="0600"')},
         "no udev rule of the image gives /dev/kfd to render: it has group render, mode 0600"),
        ({"/etc/udev/rules.d/70-amdgpu.rules": VIDEO_OWNS},
         "no udev rule of the image gives /dev/kfd to render: it has group video, mode 0660"),
        ({"/etc/udev/rules.d/70-amdgpu.rules": VIDEO_OWNS,
          "/etc/group": "root:x:0:\nvideo:x:44:compute\nrender:x:990:\ncompute:x:1000:\n",
          UNIT: SERVICE.replace("User=compute", "DynamicUser=yes\nSupplementaryGroups=render")},
         "llama-server.service runs as llama-server without video, which owns "
         "/dev/dri/renderD*, /dev/kfd"),
        ({f"/etc/udev/rules.d/{DEFAULT.rpartition('/')[2]}": Link("/dev/null")},
         "no udev rule of the image gives /dev/kfd to render"),
        ({"/etc/udev/rules.d/99-mine.rules": 'KERNEL=="kfd", MODE="0600"'},
         "no udev rule of the image gives /dev/kfd to render: it has group render, mode 0600"),
        ({"/etc/security/limits.d/c.conf": "compute - memlock 65536\n"},
         "compute may not lock memory without limit (soft and hard limit)"),
        ({"/etc/security/limits.d/c.conf": "compute hard memlock unlimited\n"},
         "compute may not lock memory without limit (soft limit)"),
        ({UNIT: SERVICE.replace("LimitMEMLOCK=infinity", "LimitMEMLOCK=64M")},
         "llama-server.service may lock at most 64M of memory"),
        ({UNIT: SERVICE.replace("LimitMEMLOCK=infinity\n", "")},
         "llama-server.service may lock at most 8 MiB (the default) of memory"),
        ({f"{UNIT}.d/50-x.conf": "[Service]\nLimitMEMLOCK=1G\n"},
         "llama-server.service may lock at most 1G of memory"),
        ({UNIT: SERVICE + "PrivateDevices=yes\n"},
         "llama-server.service has PrivateDevices=yes and cannot see /dev/dri/renderD*, /dev/kfd"),
        ({UNIT: SERVICE.replace("DeviceAllow=char-kfd rw\n", "")},
         "the device policy of llama-server.service does not allow /dev/kfd"),
        ({UNIT: SERVICE.replace("char-drm rw", "char-drm r")},
         "the device policy of llama-server.service does not allow /dev/dri/renderD*"),
        ({f"{UNIT}.d/50-x.conf": "[Service]\nDeviceAllow=\n"},
         "the device policy of llama-server.service does not allow /dev/dri/renderD*, /dev/kfd"),
        ({UNIT: SERVICE.replace("/usr/bin/llama-server", "/usr/bin/gone")},
         "llama-server.service starts /usr/bin/gone, which is not in the image"),
        ({"/usr/bin/llama-server": "#!/bin/sh\n"},
         "llama-server.service starts /usr/bin/llama-server, which is not executable"),
        ({"/usr/bin/llama-server": Program("#!/usr/bin/python3.99\n")},
         "llama-server.service starts /usr/bin/llama-server, whose interpreter "
         "/usr/bin/python3.99 is not in the image"),
        ({f"{UNIT}.d/50-x.conf": "[Service]\nExecStart=\n"},
         "llama-server.service starts nothing: it has no ExecStart="),
        ({UNIT: Link("/dev/null")}, "llama-server.service is masked or a broken link"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_found(tmp_path: Path, changed: dict[str, Content], said: str) -> None:
    assert said in faults(prove(make(tmp_path, changed)))


@pytest.mark.parametrize(
    ("added", "said"),
    [
        ("[Service]\nExecStart=\nExecStart=/usr/bin/llama-server --verbose --idle\n",
         ["llama-server.service has --idle: the card is let go"]),
        ("[Service]\nExecStart=\nExecStart=/usr/bin/llama-server --idle-seconds 5\n", []),
        ("[Service]\nExecStart=/usr/bin/llama-server --idle\nExecStart=\n"
         "ExecStart=/usr/bin/llama-server\n", []),
    ],
)  # fmt: skip
def test_arguments_that_a_service_must_not_have(
    tmp_path: Path, added: str, said: list[str]
) -> None:
    refused = RefusedArgument("--idle", "the card is let go")
    drop_in = f"{UNIT}.d/60-verbose.conf"
    found = list(
        prove(
            make(tmp_path, {drop_in: added}),
            services=(replace(LLAMA, refuses=(refused,)),),
        )
    )
    assert faults(found) == said
    where = [one.evidence[0].path for one in found if one.what in said]
    assert where == [drop_in] * len(said)


def test_a_unit_that_is_not_there(tmp_path: Path) -> None:
    found = prove(make(tmp_path), services=(Service("vllm.service"),))
    assert faults(found) == ["vllm.service, which must use the accelerator, does not exist"]


@pytest.mark.parametrize(
    "changed",
    [
        {"/etc/udev/rules.d/99-mine.rules": 'KERNEL=="kfd", MODE="0666"'},
        # What may hold or not decides nothing.
        {"/etc/udev/rules.d/99-x.rules": 'KERNEL=="kfd", ENV{X}=="1", GROUP="video"'},
        {"/etc/udev/rules.d/99-x.rules": 'SUBSYSTEM=="drm", KERNEL=="card*", MODE="0600"'},
        {"/etc/udev/rules.d/99-x.rules": 'GOTO="end"\nKERNEL=="kfd", MODE="0600"\nLABEL="end"'},
        {"/etc/udev/rules.d/49-x.rules": 'KERNEL=="kfd", GROUP:="990", MODE:="0660"'},
        {"/etc/udev/rules.d/99-x.txt": 'KERNEL=="kfd", MODE="0600"'},
        {"/etc/security/limits.d/c.conf": "* - memlock 64\n@render - memlock infinity\n"},
        {"/etc/security/limits.d/c.conf": "@render - memlock 9\ncompute - memlock -1\n"},
        {UNIT: SERVICE.replace("infinity", "64M"),
         f"{UNIT}.d/50-x.conf": "[Service]\nLimitMEMLOCK=infinity\n"},
        {UNIT: SERVICE.replace("LimitMEMLOCK=infinity", ""),
         "/etc/systemd/system.conf.d/x.conf": "[Manager]\nDefaultLimitMEMLOCK=infinity\n"},
        # The name decides which comes last, not the folder.
        {UNIT: SERVICE.replace("LimitMEMLOCK=infinity", ""),
         "/etc/systemd/system.conf.d/10-x.conf": "[Manager]\nDefaultLimitMEMLOCK=64K\n",
         "/usr/lib/systemd/system.conf.d/90-x.conf": "[Manager]\nDefaultLimitMEMLOCK=infinity\n"},
        {UNIT: SERVICE.replace("DevicePolicy=closed", "").replace("DeviceAllow", "#DeviceAllow")},
        {UNIT: SERVICE.replace("User=compute", "User=root")},
        {UNIT: SERVICE.replace("User=compute", "DynamicUser=yes\nSupplementaryGroups=render")},
        {UNIT: SERVICE.replace("User=compute", "User=1000\nGroup=990")},
        {UNIT: SERVICE.replace("char-drm", "char-d*")},
        {UNIT: SERVICE.replace("ExecStart=!/usr/bin/", "ExecStart=")},
        # AMD's installer: the other group, in which the account is too.
        {"/etc/udev/rules.d/70-amdgpu.rules": VIDEO_OWNS,
         "/etc/group": "root:x:0:\nvideo:x:44:compute\nrender:x:990:\ncompute:x:1000:\n",
         "/etc/security/limits.d/c.conf": "@video - memlock unlimited\n"},
    ],
)  # fmt: skip
def test_what_is_right_in_another_way(tmp_path: Path, changed: dict[str, Content]) -> None:
    found = prove(make(tmp_path, changed))
    assert (faults(found), warnings(found)) == ([], [])


def test_which_devices_a_service_needs(tmp_path: Path) -> None:
    drm = SERVICE.replace("DeviceAllow=char-kfd rw\n", "")
    make(tmp_path, {UNIT: drm})
    vulkan = ExpectedEngine("llama.cpp", ("vulkan",), unit="llama-server.service")
    assert faults(prove(tmp_path, engines=(vulkan,))) == []
    # No engine's: kfd belongs to the family that is let in, the NPU does not.
    assert faults(prove(tmp_path, engines=())) == [
        "the device policy of llama-server.service does not allow /dev/kfd"
    ]
    nothing = drm.replace("DeviceAllow=char-drm rw\n", "")
    make_tree(tmp_path, {UNIT: nothing})
    [fault] = faults(prove(tmp_path, engines=()))
    assert "/dev/dri/renderD*, /dev/kfd, /dev/accel/accel*" in fault


NVREG = "/etc/modprobe.d/nvidia.conf"
MAKES: dict[str, Content] = {
    "/usr/lib/udev/rules.d/71-nvidia.rules": 'DRIVER=="nvidia", RUN+="/usr/bin/nvidia-modprobe -u"'
}
ON_NVIDIA: dict[str, Any] = {"devices": (NVIDIA,), "engines": (), "services": ()}


def test_nvidias_nodes_are_everybodys(tmp_path: Path) -> None:
    assert faults(prove(make(tmp_path, MAKES), **ON_NVIDIA)) == []


@pytest.mark.parametrize("where", ["file", "cmdline"])
def test_nvidias_nodes_may_be_a_groups(tmp_path: Path, where: str) -> None:
    options = "NVreg_DeviceFileUID=0 NVreg_DeviceFileGID=44 NVreg_DeviceFileMode=0660"
    make(tmp_path, MAKES | ({NVREG: f"options nvidia {options}\n"} if where == "file" else {}))
    cmdline = [f"nvidia.{word}" for word in options.split()] if where == "cmdline" else []
    [fault] = faults(prove(tmp_path, tuple(cmdline), **ON_NVIDIA))
    assert fault == "/dev/nvidia* must be usable by everybody, but has group 44, mode 0660"
    hint = next(f.hint for f in prove(tmp_path, tuple(cmdline), **ON_NVIDIA) if f.hint)
    assert "`group: video` beside `path: /dev/nvidia*` in `proof: devices:`" in hint
    group = Device("/dev/nvidia*", "video")
    found = prove(tmp_path, tuple(cmdline), **(ON_NVIDIA | {"devices": (group,)}))
    assert faults(found) == ["compute is not in video, whose devices it must use"]
    table = tmp_path / "etc/group"
    table.write_text(table.read_text().replace("video:x:44:", "video:x:44:compute"))
    assert faults(prove(tmp_path, tuple(cmdline), **ON_NVIDIA)) == []


def test_nothing_makes_nvidias_nodes(tmp_path: Path) -> None:
    [fault] = faults(prove(make(tmp_path), **ON_NVIDIA))
    assert fault.endswith("no unit or udev rule does, and nvidia-modprobe is missing")
    make_tree(tmp_path, {"/usr/bin/nvidia-modprobe": Program()})
    [fault] = faults(prove(tmp_path, **ON_NVIDIA))
    assert fault.endswith("nvidia-modprobe is not set-user-ID")
    (tmp_path / "usr/bin/nvidia-modprobe").chmod(0o4755)
    assert faults(prove(tmp_path, **ON_NVIDIA)) == []
    # That is of no use to a service that may not gain privileges.
    make_tree(tmp_path, {UNIT: SERVICE + "NoNewPrivileges=yes\n"})
    expected = ON_NVIDIA | {"services": (LLAMA,)}
    assert any(
        "which cannot create them" in warning for warning in warnings(prove(tmp_path, **expected))
    )


def test_a_program_of_ours_makes_nvidias_nodes(tmp_path: Path) -> None:
    program = "/usr/libexec/nvidia-cuda/make-devices"
    make(tmp_path, {
        "/usr/lib/udev/rules.d/71-n.rules": f'DRIVER=="nvidia", RUN+="{program}"',
        program: Program("#!/bin/sh\nnvidia-modprobe -u -c 0\n"),
    })  # fmt: skip
    assert faults(prove(tmp_path, **ON_NVIDIA)) == []


def test_all_of_nvidias_nodes_are_needed(tmp_path: Path) -> None:
    cuda = ExpectedEngine("vllm", ("cuda",), unit="llama-server.service")
    expected = ON_NVIDIA | {"engines": (cuda,), "services": (LLAMA,)}
    make(tmp_path, MAKES | {UNIT: SERVICE.replace("char-drm", "char-nvidia")})
    assert len(faults(prove(tmp_path, **expected))) == 1
    make_tree(tmp_path, {UNIT: SERVICE.replace("char-drm", "char-nvidia*")})
    assert faults(prove(tmp_path, **expected)) == []


def test_a_device_nobody_knows_the_rules_of(tmp_path: Path) -> None:
    odd = Device("/dev/odd0", "render")
    found = prove(make(tmp_path), devices=(odd,), services=(), engines=())
    assert faults(found) == []
    assert warnings(found) == ["no udev rule of the image gives /dev/odd0 to render"]


def test_root_needs_no_group(tmp_path: Path) -> None:
    assert faults(prove(make(tmp_path), users=("root",), services=())) == []


def test_a_rule_that_names_a_group_only(tmp_path: Path) -> None:
    node = node_of(subject(make(tmp_path)), "/dev/dri/card*")
    assert (node.group, node.mode, node.path) == ("video", 0o660, DEFAULT)


def test_drop_ins_of_templates_and_prefixes(tmp_path: Path) -> None:
    top = "/etc/systemd/system"
    files: dict[str, Content] = {
        f"{top}/vllm-node@.service": "[Service]\nExecStart=/a\n",
        f"{top}/vllm-node@.service.d/20-b.conf": "",
        f"{top}/vllm-node@1.service.d/10-c.conf": "",
        f"{top}/vllm-.service.d/30-d.conf": "",
        f"{top}/service.d/40-e.conf": "",
        f"/usr/lib{top.removeprefix('/etc')}/vllm-node@.service.d/20-b.conf": "",
        f"{top}/other.service.d/10-f.conf": "",
    }
    root = make_tree(tmp_path, files)
    assert [path.rpartition("/")[2] for path in drop_ins(root, "vllm-node@1.service")] == [
        "10-c.conf", "20-b.conf", "30-d.conf", "40-e.conf",
    ]  # fmt: skip
    unit = find_unit(root, "vllm-node@1.service")
    assert unit is not None
    assert unit.paths[0] == f"{top}/vllm-node@.service"
    assert unit.programs == ("/a",)


def test_the_order_of_limits(tmp_path: Path) -> None:
    root = make_tree(
        make(tmp_path),
        {
            "/etc/security/limits.conf": "compute soft memlock 1\n",
            "/etc/security/limits.d/b.conf": "* hard memlock 2\ncompute soft memlock 3\n",
        },
    )
    (tmp_path / "etc/security/limits.d/c.conf").unlink()
    found = limits_of("compute", read_accounts(root), read_limits(root, "memlock"))
    assert {kind: limit.value for kind, limit in found.items()} == {"soft": "3", "hard": "2"}


@pytest.mark.parametrize(
    ("line", "is_told"),
    [
        ("/usr/bin/llama-server --user daemon --verbose", True),
        ("-/usr/bin/llama-server --user=daemon", True),
        ("/usr/bin/llama-server --user compute", False),
        ("/usr/bin/llama-server --user 970", False),
        ("/usr/bin/llama-server --user-data daemon", False),
        ("/usr/bin/llama-server --user daemon\nDynamicUser=yes", False),
        ("/usr/bin/docker run --user daemon image", False),
    ],
)
def test_the_account_that_a_daemon_becomes(line: str, is_told: bool, tmp_path: Path) -> None:  # noqa: FBT001
    unit = SERVICE.partition("ExecStart=")[0] + f"ExecStart={line}\n"
    make(tmp_path, {UNIT: unit, "/usr/bin/docker": Program()})
    found = [what for what in faults(prove(tmp_path)) if "--user" in what]
    said = "llama-server.service does not start: its --user daemon does not exist in the image"
    assert found == [said] * is_told
