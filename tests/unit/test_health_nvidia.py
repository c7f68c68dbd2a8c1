# SPDX-License-Identifier: Apache-2.0
"""What NVIDIA's cards say of themselves: the output of nvidia-smi 580 on an H200, and faults."""

from __future__ import annotations

import re
import shlex
import sys
from pathlib import Path

import pytest

from tests.unit.test_health_probes import STATUS, FakeNode, node
from tests.workshop import CHECKOUT

__all__ = ["node"]

FILES = CHECKOUT / "overlays/nvidia-cuda-12.8/files"
PROBE = FILES / "usr/lib/imagebuilder/health.d/alive-nvidia"
HEALTHY = (CHECKOUT / "tests/fixtures/nvidia-smi-h200.xml").read_text()
SLOT = "0000:00:06.0"


def bind(node: FakeNode, *slots: str) -> None:
    """Cards that NVIDIA's driver has; the driver's folder has other files as well."""
    folder = node.root / "sys/bus/pci/drivers/nvidia"
    folder.mkdir(parents=True)
    (folder / "module").symlink_to("/sys/module/nvidia")
    node.write("sys/bus/pci/drivers/nvidia/new_id", "")
    for slot in slots:
        (folder / slot).symlink_to(f"/sys/devices/{slot}")


def say(node: FakeNode, output: str, status: int = 0) -> None:
    node.write("said", output)
    node.program("nvidia-smi", f"cat {shlex.quote(str(node.root / 'said'))}; exit {status}")


def check(node: FakeNode) -> tuple[str, str]:
    done = node.run(sys.executable, "-IS", PROBE)
    assert not done.stderr
    return STATUS[done.returncode], done.stdout.strip()


def with_field(name: str, value: str, output: str = HEALTHY) -> str:
    """The output with one field changed, the first of that name."""
    field, changed = rf"<{name}>[^<]*</{name}>", f"<{name}>{value}</{name}>"
    changed, count = re.subn(field, changed, output, count=1)
    assert count == 1, name
    return changed


def test_a_healthy_card_is_ok(node: FakeNode) -> None:
    bind(node, SLOT)
    say(node, HEALTHY)
    assert check(node) == ("ok", "1 of 1 answer: NVIDIA H200")


def test_without_a_card_of_the_driver_nobody_asks(node: FakeNode) -> None:
    node.program("nvidia-smi", "exit 9")
    assert check(node) == ("ok", "NVIDIA's driver has no card")


@pytest.mark.parametrize(
    ("field", "value", "verdict", "words"),
    [
        ("dram_uncorrectable", "2", "wrong results", "2 uncorrectable memory errors"),
        ("sram_uncorrectable_secded", "1", "wrong results", "1 uncorrectable memory errors"),
        ("dram_correctable", "100000", "ok", "NVIDIA H200"),
        ("sram_threshold_exceeded", "Yes", "degraded", "too many errors of its SRAM"),
        ("remapped_row_pending", "Yes", "degraded", "a row of its memory is replaced at"),
        ("remapped_row_failure", "Yes", "degraded", "could not be replaced"),
        ("remapped_row_unc", "3", "ok", "NVIDIA H200"),
        ("pending_retirement", "Yes", "degraded", "a page of its memory is retired"),
        ("channel_repair_pending", "Yes", "degraded", "a memory channel"),
        ("tpc_repair_pending", "Yes", "degraded", "a processor cluster"),
        ("gpu_recovery_action", "Reset", "degraded", "asks for recovery: Reset"),
        ("gpu_recovery_action", "N/A", "ok", "NVIDIA H200"),
        ("uuid", "Unknown Error", "missing device", "nvidia-smi says: Unknown Error"),
        ("gpu_temp", "GPU requires reset", "missing device", "GPU requires reset"),
        # A laptop's card cannot read this one, and computes.
        ("memory_temp", "[Unknown Error]", "ok", "NVIDIA H200"),
    ],
)
def test_what_a_card_says_against_itself(
    node: FakeNode, field: str, value: str, verdict: str, words: str
) -> None:
    bind(node, SLOT)
    say(node, with_field(field, value))
    found, said = check(node)
    assert found == verdict
    assert words in said
    assert verdict == "ok" or SLOT in said


@pytest.mark.parametrize(
    ("state", "status", "verdict"),
    [
        ("Completed", "Success", "ok"),
        ("In Progress", "N/A", "degraded"),
        ("Not Started", "N/A", "degraded"),
        ("Completed", "Insufficient Resources", "degraded"),
    ],
)
def test_a_card_behind_nvlinks_switches_waits_for_its_fabric(
    node: FakeNode, state: str, status: str, verdict: str
) -> None:
    bind(node, SLOT)
    fabric = f"<state>{state}</state>\n\t\t\t<status>{status}</status>"
    say(node, HEALTHY.replace("<state>N/A</state>\n\t\t\t<status>N/A</status>", fabric))
    found, said = check(node)
    assert found == verdict
    assert verdict == "ok" or f"NVLink's fabric: {state}" in said


def test_a_card_that_the_driver_has_and_nvidia_smi_does_not_is_missing(node: FakeNode) -> None:
    bind(node, SLOT, "10000:41:00.0")
    say(node, HEALTHY)
    found, said = check(node)
    assert (found, said.partition(":41:00.0: ")[0]) == ("missing device", "10000")
    second = HEALTHY.replace("00000000:00:06.0", "00010000:41:00.0")
    gpu = second[second.index("\t<gpu id=") : second.index("</nvidia_smi_log>")]
    say(node, HEALTHY.replace("</nvidia_smi_log>", f"{gpu}</nvidia_smi_log>"))
    assert check(node) == ("ok", "2 of 2 answer: NVIDIA H200")


@pytest.mark.parametrize(
    ("output", "status", "verdict"),
    [
        ("No devices were found\n", 6, "missing device"),
        ("NVIDIA-SMI has failed because it couldn't communicate with the driver.\n", 9,
         "missing device"),
        ("Failed to initialize NVML: Driver/library version mismatch\n", 18, "missing device"),
        (HEALTHY[:9000], 15, "missing device"),
        ("", 255, "missing device"),
        ("what is this?\n", 0, "unknown"),
        ("<nvidia_smi_log><attached_gpus>0</attached_gpus></nvidia_smi_log>", 0, "unknown"),
    ],
)  # fmt: skip
def test_a_driver_that_does_not_answer_is_no_good_sign(
    node: FakeNode, output: str, status: int, verdict: str
) -> None:
    bind(node, SLOT)
    say(node, output, status)
    found, said = check(node)
    assert found == verdict
    assert said


def test_an_image_without_nvidia_smi_cannot_tell(node: FakeNode, tmp_path: Path) -> None:
    bind(node, SLOT)
    (tmp_path / "empty").mkdir()
    done = node.run("/usr/bin/env", f"PATH={tmp_path}/empty", sys.executable, "-IS", PROBE)
    assert STATUS[done.returncode] == "unknown"
    assert "nvidia-smi cannot be run" in done.stdout


def test_fields_that_an_older_driver_does_not_have_say_nothing(node: FakeNode) -> None:
    bind(node, SLOT)
    older = HEALTHY
    for name in ("gpu_recovery_action", "sram_threshold_exceeded", "tpc_repair_pending"):
        older = re.sub(rf"\s*<{name}>[^<]*</{name}>", "", older, count=1)
    older = re.sub(r"<(fabric|remapped_rows)>.*?</\1>", "", older, flags=re.DOTALL)
    say(node, older)
    assert check(node)[0] == "ok"


def test_a_check_that_fails_itself_says_nothing_of_the_cards(node: FakeNode) -> None:
    bind(node, SLOT)
    say(node, HEALTHY.replace('<gpu id="', '<gpu id="GPU-'))
    assert check(node)[0] == "unknown"
