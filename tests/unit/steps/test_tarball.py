# SPDX-License-Identifier: Apache-2.0
"""Files of overlays as an archive: names, modes, owners, links, and nothing of the builder."""

from __future__ import annotations

import tarfile
from pathlib import Path

import pytest

from imagebuilder.digest import digest_of_bytes
from imagebuilder.errors import WorkError
from imagebuilder.recipe.types import Script, TreeFile
from imagebuilder.steps.placed import PlannedFile, copy_program, make_archive


def test_members(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"plain")
    files = (
        TreeFile("/usr/bin/tool", digest_of_bytes(b"plain"), 0o755, source=source),
        TreeFile("/etc/motd", "d2", 0o640, owner="compute", group="video", content=b"hello"),
        TreeFile("/etc/link", "d3", 0o777, link="../usr/bin/tool"),
    )
    make_archive(files, tmp_path / "tar")
    with tarfile.open(tmp_path / "tar") as tar:
        members = tar.getmembers()
        assert [m.name for m in members] == ["etc/link", "etc/motd", "usr/bin/tool"]
        assert [m.mtime for m in members] == [0, 0, 0]
        link, motd, tool = members
        assert (link.issym(), link.linkname) == (True, "../usr/bin/tool")
        assert (motd.mode, motd.uname, motd.gname) == (0o640, "compute", "video")
        assert (tool.mode, tool.uid, tool.uname) == (0o755, 0, "root")
        content = tar.extractfile(tool)
        assert content is not None
        assert content.read() == b"plain"


def test_archive_is_a_function_of_the_files(tmp_path: Path) -> None:
    one = TreeFile("/etc/a", "d", 0o644, content=b"x")
    other = TreeFile("/etc/b", "d", 0o644, content=b"y")
    make_archive((one, other), tmp_path / "1")
    make_archive((other, one), tmp_path / "2")
    assert (tmp_path / "1").read_bytes() == (tmp_path / "2").read_bytes()


@pytest.mark.parametrize("content", [b"other", b"short"[:3], b"plain and more", b""])
def test_a_file_that_changed_since_the_plan_is_an_error(tmp_path: Path, content: bytes) -> None:
    """Else its layer would be reused for the content that the plan read."""
    source = tmp_path / "source"
    source.write_bytes(content)
    file = TreeFile("/usr/bin/tool", digest_of_bytes(b"plain"), 0o755, source=source)
    with pytest.raises(WorkError, match=r"source: has changed since this build read it"):
        make_archive((file,), tmp_path / "tar")
    source.write_bytes(b"plain")
    make_archive((file,), tmp_path / "tar")


def test_a_file_that_becomes_shorter_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"plain")
    with source.open("rb") as stream:
        planned = PlannedFile(source, stream)
        assert planned.read(3) == b"pla"
        with pytest.raises(WorkError, match="has changed since"):
            planned.read(3)


def test_a_program_that_changed_since_the_plan_is_an_error(tmp_path: Path) -> None:
    source, copy = tmp_path / "source", tmp_path / "copy"
    source.write_bytes(b"#!/bin/sh\n")
    script = Script("scripts/source", digest_of_bytes(b"#!/bin/sh\n"), source)
    copy_program(script, copy)
    assert copy.stat().st_mode & 0o777 == 0o755
    source.write_bytes(b"#!/bin/sh\nrm -rf /\n")
    with pytest.raises(WorkError, match=r"source: has changed since this build read it"):
        copy_program(script, copy)
