# SPDX-License-Identifier: Apache-2.0
"""Files of overlays as an archive: names, modes, owners, links, and nothing of the builder."""

from __future__ import annotations

import tarfile
from pathlib import Path

from imagebuilder.recipe.types import TreeFile
from imagebuilder.steps.tarball import make_archive


def test_members(tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"plain")
    files = (
        TreeFile("/usr/bin/tool", "d1", 0o755, source=source),
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
