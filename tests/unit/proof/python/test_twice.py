# SPDX-License-Identifier: Apache-2.0
"""Distributions that are there twice, and files that two of them bring."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from imagebuilder.proof.python.installed import prove_twice
from tests.unit.proof.trees import Content, make_tree, warnings

SITE = "/opt/a/lib/python3.13/site-packages"
ONNX = "onnxruntime/__init__.py,,\nonnxruntime/capi/state.so,{},9\n"


def told(tree: Path, records: Mapping[str, str]) -> list[str]:
    files: dict[str, Content] = {}
    for each, record in records.items():
        name, _, version = each.rpartition("-")
        info = f"{SITE}/{each}.dist-info"
        files[f"{info}/METADATA"] = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
        files[f"{info}/RECORD"] = record
    return warnings(prove_twice(make_tree(tree, files)))


def test_two_versions_of_one_distribution(tmp_path: Path) -> None:
    (found,) = told(tmp_path, {"vllm-0.19.1": "", "vllm-0.19.1+cpu": "", "torch-2.10.0": ""})
    assert found.startswith(f"{SITE} has metadata of vllm 0.19.1+cpu and 0.19.1: ")


def test_a_folder_that_pip_left_is_no_distribution(tmp_path: Path) -> None:
    make_tree(tmp_path, {f"{SITE}/vllm-0.19.0.dist-info/INSTALLER": "uv\n"})
    assert told(tmp_path, {"vllm-0.19.1": ""}) == []


@pytest.mark.parametrize(
    ("one", "other", "said"),
    [
        (ONNX.format(""), ONNX.format(""), "such as onnxruntime/capi/state.so"),
        (ONNX.format("sha256=a"), ONNX.format("sha256=b"), "such as onnxruntime/capi/state.so"),
        (ONNX.format("sha256=a"), ONNX.format("sha256=a"), ""),
        ("jwt/__init__.py,sha256=a,1\njwt/a.py,sha256=a,1\njwt/b.py,sha256=a,1\n",
         "jwt/__init__.py,sha256=b,1\njwt/a.py,sha256=b,1\njwt/b.py,sha256=b,1\n",
         "such as jwt/__init__.py"),
        ("nvidia/lib/libcudnn.so.9,sha256=a,1\n", "nvidia/lib/libcudnn.so.9,sha256=b,1\n",
         "such as nvidia/lib/libcudnn.so.9"),
        # A namespace, programs, compiled modules, licences and what was not meant to be installed.
        ("google/__init__.py,sha256=a,1\n", "google/__init__.py,sha256=b,1\n", ""),
        ("../../../bin/serve,sha256=a,1\n", "../../../bin/serve,sha256=b,1\n", ""),
        ("a/__pycache__/b.cpython-313.pyc,,\n", "a/__pycache__/b.cpython-313.pyc,,\n", ""),
        ("LICENSE,sha256=a,1\n", "LICENSE,sha256=b,1\n", ""),
        ("tests/__init__.py,,\ntests/a.py,,\ntests/b.py,,\n",
         "tests/__init__.py,,\ntests/a.py,,\ntests/b.py,,\n", ""),
        ("a/x.so,sha256=a,1\n", "b/x.so,sha256=b,1\n", ""),
        ("no record", ",,", ""),
    ],
)  # fmt: skip
def test_files_of_two_distributions(one: str, other: str, said: str, tmp_path: Path) -> None:
    found = told(tmp_path, {"first-1.0": one, "second-2.0": other})
    assert [said in what for what in found] == ([True] if said else [])
