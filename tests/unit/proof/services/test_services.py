# SPDX-License-Identifier: Apache-2.0
"""What variables of runtimes mean, and what a service gets of them."""

from __future__ import annotations

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.environment import Variable, assignments, expanded, remarks
from imagebuilder.proof.reading.units import UnitPath, UnitSettings, unit_paths
from imagebuilder.proof.services.devices import prove_selection
from imagebuilder.proof.services.programs import covers
from imagebuilder.proof.services.selectors import target_of


@pytest.mark.parametrize(
    ("name", "value", "backend", "level"),
    [
        ("HIP_VISIBLE_DEVICES", "-1", "hip", Level.FAULT),
        ("HIP_VISIBLE_DEVICES", "", "hip", None),
        ("HIP_VISIBLE_DEVICES", "0", "hip", None),
        ("HIP_VISIBLE_DEVICES", "0,1", "hip", None),
        ("HIP_VISIBLE_DEVICES", "3", "hip", Level.WARNING),
        ("HIP_VISIBLE_DEVICES", "-1", "vulkan", None),
        ("ROCR_VISIBLE_DEVICES", "GPU-0f3a", "hip", Level.WARNING),
        ("CUDA_VISIBLE_DEVICES", "", "cuda", Level.FAULT),
        ("CUDA_VISIBLE_DEVICES", "NoDevFiles", "cuda", Level.FAULT),
        ("GGML_VK_VISIBLE_DEVICES", "none", "vulkan", Level.FAULT),
        ("GGML_VK_VISIBLE_DEVICES", "0", "vulkan", None),
        ("ONEAPI_DEVICE_SELECTOR", "opencl:cpu", "sycl", Level.FAULT),
        ("ONEAPI_DEVICE_SELECTOR", "level_zero:gpu", "sycl", None),
        ("ONEAPI_DEVICE_SELECTOR", "level_zero:0", "sycl", None),
        ("ONEAPI_DEVICE_SELECTOR", "!level_zero:gpu", "sycl", Level.FAULT),
    ],
)
def test_selectors(name: str, value: str, backend: str, level: Level | None) -> None:
    found = list(prove_selection("a.service", [backend], {name: Variable(value, "/etc/a")}))
    assert [finding.level for finding in found] == ([level] if level else [])


def test_files_of_variables_are_read_as_systemd_does() -> None:
    text = '# comment\n; another\nA=1\n B = "x y" \nC=a\\\nb\nD=\n'
    assert dict(assignments(text)) == {"A": "1", "B": "x y", "C": "ab", "D": ""}


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("a  b ", "a  b"),
        ("the site's", "the site's"),
        ('a"b"', 'a"b"'),
        ('\'a \\b\' "c\\"d\\e" f', 'a \\bc"d\\ef'),
        ("a\\ b", "a b"),
        ("#1", "#1"),
    ],
)
def test_quotes_are_taken_off_as_systemd_does(value: str, read: str) -> None:
    assert dict(assignments(f"A={value}\n")) == {"A": read}


@pytest.mark.parametrize(
    ("line", "remark"),
    [
        ("A=/a  # the model, it's the site's", "# the model, it's the site's"),
        ("A= # nothing", "# nothing"),
        ('A="/a" # quoted', "# quoted"),
        ("A='model #1' 'of # two'", ""),
        ('A="say \\" # \\""', ""),
        ("A=#fff", ""),
        ("A=a#b", ""),
        ("# A=1 # b", ""),
        ("A=model #1", "#1"),
    ],
)
def test_a_comment_behind_a_value_is_seen(line: str, remark: str) -> None:
    assert list(remarks(f"{line}\n")) == ([("A", remark)] if remark else [])


def test_command_lines_are_expanded() -> None:
    given = {"A": Variable("1 2", ""), "B": Variable("x", "")}
    assert expanded(["/bin/p", "$A", "--b=${B}", "$NONE"], given) == ["/bin/p", "1", "2", "--b=x"]


def places(words: str) -> list[UnitPath]:
    return list(unit_paths(UnitSettings("a.service", (), {"X": (words,)}), "X"))


def test_paths_cover_what_is_below_them() -> None:
    assert covers(places("-/dev"), "/dev/kfd")
    assert covers(places("/dev/dri:ro"), "/dev/dri/renderD*")
    assert covers(places("/dev/dri/renderD128"), "/dev/dri/renderD*")
    assert not covers(places("/dev/nvidia0 /de"), "/dev/kfd")


def test_versions_are_targets() -> None:
    assert [target_of(v) for v in ("11.0.2", "9.0.10", "x")] == ["gfx1102", "gfx90a", ""]
