# SPDX-License-Identifier: Apache-2.0
"""Variables of a site that nobody reads."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Level
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.system.programs.options import KNOWN, nearest, prove_variables
from tests.faults.elf import program
from tests.unit.proof.trees import Content, make_tree, running, subject

UNIT, PACKAGES = "/etc/systemd/system/a.service", "/opt/e/lib/python3.13/site-packages"
FILES: Mapping[str, Content] = {
    UNIT: "[Service]\n",
    "/usr/bin/daemon": program() + b"\0CUDA_VISIBLE_DEVICE\0",
    "/usr/bin/other": program(),
    "/usr/bin/script": '#!/bin/sh\necho "$HF_HOMES"\n',
    "/opt/e/bin/python": program(),
    f"{PACKAGES}/transformers/__init__.py": "import os\n",
    f"{PACKAGES}/transformers/hub.py": 'os.getenv("TRANSFORMERS_OFFLINE")\n',
    f"{PACKAGES}/ray/__init__.py": 'os.getenv(f"RAY_{name}")\n',
    f"{PACKAGES}/uvicorn/__init__.py": 'main(auto_envvar_prefix="UVICORN")\n',
}


def told(root: Path, line: str, variable: str, *shipped: str, more: str = "") -> list[str]:
    files = {**FILES, "/etc/environment": f"{more}\n"}
    proved = subject(make_tree(root, files))
    proved.__dict__["shipped"] = {path: ShippedFile("a") for path in shipped}
    values = {"Unit Load State": ("loaded",), "Environment": (variable,)}
    unit = LoadedUnit("a.service", (UNIT,), values, {"ExecStart": (tuple(line.split()),)})
    startup = Startup(frozenset(("a.service",)), {}, {"a.service": unit}, ())
    found = list(prove_variables(running(proved, startup)))
    assert {each.level for each in found} <= {Level.WARNING}
    return [each.what for each in found]


def test_nearly_a_known_name(tmp_path: Path) -> None:
    (what,) = told(tmp_path, "/usr/bin/other", "CUDA_VISBLE_DEVICES=0")
    assert what == (
        "a.service sets CUDA_VISBLE_DEVICES, which its program does not contain: it is nearly "
        "CUDA_VISIBLE_DEVICES"
    )


def test_of_everybody_who_logs_in(tmp_path: Path) -> None:
    (what,) = told(tmp_path, "/usr/bin/other", "A=0", more="export hf_home=/models")
    assert "/etc/environment sets hf_home" in what
    assert "nearly HF_HOME" in what


def test_gone_from_its_package(tmp_path: Path) -> None:
    (what,) = told(tmp_path, "/opt/e/bin/python /opt/e/serve.py", "TRANSFORMERS_CACHE=/models")
    assert what == (
        f"a.service sets TRANSFORMERS_CACHE, which {PACKAGES}/transformers does not contain: it "
        "has no effect"
    )


@pytest.mark.parametrize(
    ("line", "variable", "shipped"),
    [
        ("/usr/bin/daemon", "CUDA_VISIBLE_DEVICE=0", ()),
        ("/usr/bin/script", "HF_HOMES=/models", ()),
        ("/usr/bin/other ${HF_HOMES}", "HF_HOMES=/models", ()),
        ("/usr/bin/other", "CUDA_VISBLE_DEVICES=0", (UNIT,)),
        ("/usr/bin/other", "NCCL_IB_TC=106", ()),
        ("/usr/bin/other", "GGML_VK_DISABLE_COOPMAT3=1", ()),
        ("/opt/e/bin/python", "TRANSFORMERS_OFFLINE=1", ()),
        ("/opt/e/bin/python", "RAY_anything=1", ()),
        ("/opt/e/bin/python", "UVICORN_PORT=1", ()),
        ("/usr/bin/other", "TRANSFORMERS_CACHE=/models", ()),
    ],
)
def test_what_is_right_or_another_name(
    line: str, variable: str, shipped: tuple[str, ...], tmp_path: Path
) -> None:
    assert told(tmp_path, line, variable, *shipped) == []


def test_no_known_name_is_a_slip_of_another() -> None:
    assert [name for name in KNOWN if nearest(name)] == []
