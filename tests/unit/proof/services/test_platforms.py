# SPDX-License-Identifier: Apache-2.0
"""Plugins that put another platform in the place of an engine's own."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.environment import Variable
from imagebuilder.proof.services.programs import prove_platform_plugins
from tests.unit.proof.trees import Content, make_tree, subject

SITE = "/opt/vllm/lib/python3.13/site-packages"
INFO = f"{SITE}/vllm_ascend-0.18.0.dist-info"
POINTS = "[console_scripts]\nx = a:b\n\n[vllm.platform_plugins]\nascend = vllm_ascend:register\n"
METADATA = "Name: vllm-ascend\nVersion: 0.18.0\nRequires-Dist: torch-npu\n"
TORCH_NPU = {
    f"{SITE}/torch_npu-2.9.dist-info/METADATA": "Name: torch-npu\nVersion: 2.9\n",
}


@pytest.mark.parametrize(
    ("points", "more", "plugins", "said"),
    [
        (POINTS, {}, None, "the plugin ascend in /opt/vllm takes the place of those of vllm, and "
         "needs torch-npu, which is not installed"),
        (POINTS, TORCH_NPU, None, "takes the place of those of vllm"),
        (POINTS, {}, "ascend,other", "takes the place"),
        (POINTS, {}, "other", ""),
        (POINTS, {}, "", ""),
        ("[vllm.general_plugins]\nlora = a:b\n", {}, None, ""),
        ("not a file of this kind\n", {}, None, ""),
    ],
)  # fmt: skip
def test_plugins_of_platforms(
    tmp_path: Path, points: str, more: dict[str, Content], plugins: str | None, said: str
) -> None:
    files: dict[str, Content] = {
        f"{INFO}/entry_points.txt": points, f"{INFO}/METADATA": METADATA, **more,
    }  # fmt: skip
    environment = {} if plugins is None else {"VLLM_PLUGINS": Variable(plugins, "/etc/default/a")}
    given = subject(make_tree(tmp_path, files))
    found = list(prove_platform_plugins(given, "a.service", "/opt/vllm", "vllm", environment))
    assert [said in each.what for each in found] == [True] * bool(said)
    assert all(each.level is Level.WARNING for each in found)
