# SPDX-License-Identifier: Apache-2.0
"""Services that no overlay declares, with programs that are known to compute."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.access import services as rules
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.recipe.expectations import Device, Expectations, Service
from tests.fixtures.elf import make_elf
from tests.unit.proof.trees import Content, make_tree, running, subject

UNIT = "/etc/systemd/system/a.service"
DEVICES = (Device("/dev/dri/renderD128", "render"), Device("/dev/accel/accel0", "render"))
UDEV = "/usr/lib/udev/rules.d/50-udev-default.rules"
RULES = "".join(f'SUBSYSTEM=="{name}", GROUP="render", MODE="0660"\n' for name in ("drm", "accel"))
TABLES: dict[str, Content] = {
    "/etc/passwd": "root:x:0:0::/root:/bin/sh\nme:x:1000:1000::/home/me:/bin/sh\n",
    UDEV: RULES,
    "/etc/group": "me:x:1000:\nrender:x:105:\n",
}
LOCKED = "LimitMEMLOCK=infinity"


def told(
    root: Path,
    command: str,
    lines: str,
    services: tuple[Service, ...] = (),
) -> list[str]:
    text = f"[Service]\nExecStart={command}\n{lines}\n"
    expected = Expectations(devices=DEVICES, services=services)
    given = subject(make_tree(root, {**TABLES, UNIT: text}), expectations=expected)
    given.__dict__["shipped"] = {}
    commands = {"ExecStart": (tuple(command.split()),)}
    unit = LoadedUnit("a.service", (UNIT,), {"Unit Load State": ("loaded",)}, commands)
    startup = Startup(frozenset(("a.service",)), {}, {"a.service": unit}, ())
    found = list(rules.prove_others(running(given, startup), DEVICES))
    assert all(each.level is Level.WARNING for each in found)
    return [each.what for each in found]


@pytest.mark.parametrize(
    ("command", "lines", "said"),
    [
        ("/usr/bin/flm serve", "User=me", ["as me without render", "at most 8 MiB"]),
        ("/usr/bin/flm serve", f"DeviceAllow=char-drm rw\nDevicePolicy=closed\n{LOCKED}",
         ["does not allow /dev/accel/accel0"]),
        ("/usr/bin/flm serve", f"DeviceAllow=char-accel rw\nDevicePolicy=closed\n{LOCKED}", []),
        ("/usr/bin/flm serve", f"User=me\nSupplementaryGroups=render\n{LOCKED}", []),
        ("/usr/bin/ollama serve", "PrivateDevices=yes", ["cannot see /dev/dri/renderD128"]),
        ("/usr/bin/ollama serve", "User=me", ["which owns /dev/dri/renderD128"]),
        ("/usr/bin/python3 /opt/ComfyUI/main.py", "User=me", ["without render"]),
        ("/srv/comfyui/venv/bin/python main.py", "User=me", ["without render"]),
        ("/opt/venv/bin/python -m sglang.launch_server", "User=me", ["without render"]),
        ("/usr/bin/python3 /opt/other/main.py", "User=me", []),
        ("/usr/bin/caddy run", "User=me\nPrivateDevices=yes", []),
    ],
)  # fmt: skip
def test_programs_that_are_known(command: str, lines: str, said: list[str], tmp_path: Path) -> None:
    found = told(tmp_path, command, lines)
    assert len(found) == len(said), found
    assert all(part in what for part, what in zip(said, found, strict=True)), found


def test_a_program_that_is_made_for_the_card(tmp_path: Path) -> None:
    for library, many in (("libamdhip64.so.6", 1), ("libm.so.6", 0)):
        content = make_elf(needed=(library,))
        make_tree(tmp_path, {"/opt/solve": content})
        assert len(told(tmp_path, "/opt/solve", "PrivateDevices=yes")) == many


def test_a_declared_service_is_judged_elsewhere(tmp_path: Path) -> None:
    declared = (Service("a.service"),)
    assert told(tmp_path, "/usr/bin/ollama", "User=me", declared) == []
