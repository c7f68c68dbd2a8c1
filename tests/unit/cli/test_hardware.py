# SPDX-License-Identifier: Apache-2.0
"""`hardware list`, `show` and `detect` as they are typed."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Program


def test_cards_are_listed_by_words(program: Program) -> None:
    done = program("hardware", "list", "rx", "9070")
    assert done.status == 0
    assert [line.split()[0] for line in done.stdout.splitlines()[1:]] == ["1002:7550"]
    [card] = json.loads(program("hardware", "list", "7900 XTX", "--json").stdout)
    assert card["target"] == "gfx1100"
    assert "hardware/NAME.yaml" in program("hardware", "list", "voodoo").stdout


def test_a_card_is_shown(program: Program) -> None:
    assert "target: gfx1201\n  from LLVM" in program("hardware", "show", "1002:7550").stdout
    assert json.loads(program("hardware", "show", "arc a770", "--json").stdout)["family"] == "dg2"
    unknown = program("hardware", "show", "Radeon RX 9071")
    assert unknown.status == 2
    assert "no card has this PCI id or name" in unknown.stderr
    assert "Radeon RX 9070" in unknown.stderr


def test_a_machine_without_a_known_card(
    program: Program, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh = tmp_path / "bin/ssh"
    ssh.parent.mkdir()
    lines = [f"0000:01:00.0/{n}:0x{v}" for n, v in (("vendor", "1a03"), ("device", "2000"))]
    said = "\n".join([*lines, "0000:01:00.0/class:0x030000"])
    ssh.write_text(f"#!/bin/sh\ncat <<'END'\n{said}\nEND\n")
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{ssh.parent}:/usr/bin:/bin")
    found = json.loads(program("hardware", "detect", "node3", "--json").stdout)
    assert found["machine"] == "node3"
    assert [device["pci"] for device in found["devices"]] == ["1a03:2000"]
    assert found["recipe"] is None
    refused = program("hardware", "detect", "node3", "--write", "node3")
    assert refused.status == 2
    assert "node3: has no known card" in refused.stderr
    assert "--card" in refused.stderr


def test_a_recipe_for_a_card_that_is_elsewhere(program: Program) -> None:
    done = program("hardware", "detect", "--card", "h100 sxm5 80gb", "--json")
    assert 'pci: "10de:2330"' in json.loads(done.stdout)["recipe"]
    several = program("hardware", "detect", "--card", "1002:7480", "--card", "Radeon RX 7900 XTX")
    assert 'gfx_target: ["gfx1102", "gfx1100"]' in several.stdout
    keyless = program("hardware", "detect", "--card", "Instinct MI300X").stdout
    nearest, _, others = keyless.partition("What other recipes lack:")
    assert 'rocm_source: "amd"' in nearest
    assert "What it lacks:" in nearest
    assert "the vendor's key is missing" in nearest
    assert "has no code for gfx942" in others
    unknown = program("hardware", "detect", "--card", "h100")
    assert unknown.status == 2
    assert '"H100 PCIe", "H100 SXM5 80GB"' in unknown.stderr
    both = program("hardware", "detect", "node3", "--card", "1002:7480")
    assert (both.status, "leave out one" in both.stderr) == (2, True)


def test_no_folder_takes_a_temporary_file(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a full disk, of which Python only says that it found no folder."""
    with monkeypatch.context() as full:
        full.setattr(tempfile, "tempdir", None)
        full.setattr(tempfile, "_candidate_tempdir_list", lambda: ["/proc"])
        done = program("hardware", "detect", "--card", "Instinct MI300X")
    assert done.status == 3
    assert done.stderr.splitlines()[-2:] == [
        "error: temporary files: No usable temporary directory found in ['/proc']",
        "  hint: see with df -h which disk is full, or set TMPDIR to a folder with space",
    ]
