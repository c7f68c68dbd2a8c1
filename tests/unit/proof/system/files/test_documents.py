# SPDX-License-Identifier: Apache-2.0
"""Files in YAML that cloud-init cannot read."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.system.files.unread import prove_documents
from tests.unit.proof.trees import Content, Program, make_tree, subject

CLOUD = "/etc/cloud/cloud.cfg.d/9.cfg"
PROGRAM: dict[str, Content] = {"/usr/bin/cloud-init": Program()}


def warnings(root: Path, files: dict[str, Content]) -> list[str]:
    tested = subject(make_tree(root, files))
    tested.__dict__["shipped"] = {}
    return [found.what for found in prove_documents(tested)]


@pytest.mark.parametrize("content", ["users: [\n", "users:\n\t- a\n", b"a: \xff\n"])
def test_text_that_is_no_yaml(content: Content, tmp_path: Path) -> None:
    (found,) = warnings(tmp_path, {CLOUD: content, **PROGRAM})
    assert found.startswith(f"cloud-init ignores {CLOUD}, which ")


@pytest.mark.parametrize("text", ["", "# none\n", "users: [a]\n", "a: 1\na: 2\n"])
def test_text_that_is_yaml(text: str, tmp_path: Path) -> None:
    assert warnings(tmp_path, {CLOUD: text, **PROGRAM}) == []


def test_a_file_that_nobody_reads(tmp_path: Path) -> None:
    assert warnings(tmp_path, {CLOUD: "users: [\n"}) == []
