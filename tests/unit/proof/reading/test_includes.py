# SPDX-License-Identifier: Apache-2.0
"""Files that include others: in order, each once, without an end or very deep."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from imagebuilder.proof.privileges.sudo import read_sudoers
from imagebuilder.proof.reading.config import MOST_LEVELS, read_including
from imagebuilder.proof.reading.libraries import configured
from imagebuilder.proof.system.login.accounts import asking
from tests.unit.proof.trees import Content, make_tree


def read(files: Mapping[str, str], first: str = "a") -> str:
    """The words of files, in which a capital letter includes the file of its name."""
    lines = read_including(
        first,
        lambda name: files.get(name, "").split(),
        lambda line: [line.lower()] if line.isupper() else None,
    )
    return " ".join(lines)


def test_included_lines_are_in_the_place_of_the_line_that_includes_them() -> None:
    assert read({"a": "1 B 2 C 3", "b": "x C y", "c": "z"}) == "1 x z y 2 3"
    assert read({"a": "1 A 2 B B", "b": "A x B"}) == "1 2 x"
    assert read({"a": "1 GONE 2"}) == "1 2"
    assert read({}) == ""


def test_chains_of_thousands_of_files(tmp_path: Path) -> None:
    files: dict[str, Content] = {"/etc/sudoers": "@include /etc/s/0\n"}
    for number in range(3000):
        files[f"/etc/s/{number}"] = f"u{number} ALL=ALL\n@include /etc/s/{number + 1}\n"
        files[f"/etc/pam.d/{number}"] = (
            f"@include {number + 1}\naccount required pam_access.so {number}\n"
        )
        files[f"/etc/ld/{number}"] = f"include {number + 1}\n/opt/{number}\n"
    root = make_tree(tmp_path, files)
    assert [line.text for line in read_sudoers(root)] == [
        f"u{number} ALL=ALL" for number in range(MOST_LEVELS)
    ]
    assert len(list(asking(root, "0"))) == MOST_LEVELS + 1
    assert list(configured(root, "/etc/ld/0"))[-1][0] == "/opt/0"


def test_folders_of_the_loader_that_include_each_other(tmp_path: Path) -> None:
    again = "include /etc/ld.so.conf\ninclude /etc/ld.so.conf.d/*.conf\n"
    files: dict[str, Content] = {
        "/etc/ld.so.conf": again,
        "/etc/ld.so.conf.d/a.conf": f"{again}/a\n",
        "/etc/ld.so.conf.d/b.conf": f"{again}/b # comment\nhwcap 0 x\n",
    }
    assert [one for one, _ in configured(make_tree(tmp_path, files))] == ["/b", "/a"]
