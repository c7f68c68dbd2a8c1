# SPDX-License-Identifier: Apache-2.0
"""Which configuration files count, and what they assign."""

from __future__ import annotations

from pathlib import Path

from imagebuilder.proof.reading.config import (
    assignments,
    config_files,
    config_folders,
    is_false,
    is_true,
)
from imagebuilder.proof.reading.systemd import ConfigLine, read_config
from imagebuilder.proof.reading.units import default_memlock
from tests.unit.proof.trees import Sandbox, make_tree, subject


def test_the_words_of_systemd_for_yes_and_no() -> None:
    assert all(map(is_true, ("1", "Yes", "y", "TRUE", "t", "on")))
    assert all(map(is_false, ("0", "No", "n", "FALSE", "f", "off")))
    assert not is_true("") and not is_false("") and not is_true("force")  # noqa: PT018


def test_assignments_with_sections_comments_and_continued_lines() -> None:
    text = "a=1\n[S]\n; b=2\n# c=3\nd = 4 \\\n# inside\n  5\nnothing\n[T]\ne=\n"
    assert list(assignments(text)) == [("", "a", "1"), ("S", "d", "4    5"), ("T", "e", "")]


def test_a_file_overrides_its_namesakes_in_later_folders(tmp_path: Path) -> None:
    names = ("/etc/x.d/2.conf", "/usr/lib/x.d/1.conf", "/usr/lib/x.d/2.conf", "/etc/x.d/3")
    tree = make_tree(tmp_path, dict.fromkeys(names, ""))
    found = config_files(tree, config_folders("x.d"), ".conf")
    assert found == ["/usr/lib/x.d/1.conf", "/etc/x.d/2.conf"]


def test_a_setting_of_the_service_manager(tmp_path: Path) -> None:
    folder, key = "systemd/system.conf.d", "DefaultLimitMEMLOCK"
    files = {
        "/etc/systemd/system.conf": f"[Manager]\n{key}=1\n",
        f"/usr/lib/{folder}/9.conf": f"[Manager]\n{key}=2\n",
        f"/etc/{folder}/1.conf": f"[Manager]\n{key}=3\n",
    }
    assert default_memlock(make_tree(tmp_path, files)) == "2"
    assert default_memlock(make_tree(tmp_path / "none", {"/etc/x": ""})) == ""


def test_the_files_that_systemd_prints(tmp_path: Path) -> None:
    said = "# /etc/a.conf\n[A]\n#b=0\nb=1\n\n# /etc/a.conf.d/c.conf\nb=2\n"
    run = Sandbox({"systemd-analyze cat-config a.conf": said})
    found = list(read_config(subject(make_tree(tmp_path, {"/x": ""}), run=run), "a.conf"))
    assert found == [
        ConfigLine("A", "b", "1", "/etc/a.conf"),
        ConfigLine("", "b", "2", "/etc/a.conf.d/c.conf"),
    ]
