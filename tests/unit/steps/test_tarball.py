# SPDX-License-Identifier: Apache-2.0
"""Files of overlays as an archive: names, modes, owners, links, and nothing of the builder."""

from __future__ import annotations

import tarfile
from pathlib import Path

from imagebuilder.recipe.types import Modules, Overlay, TreeFile
from imagebuilder.steps.generated import files_input, generated_files, is_boot_file
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


def test_declared_modules_and_sysctl_are_files() -> None:
    overlay = Overlay(
        "gpu",
        Path("overlays/gpu"),
        modules=Modules(("amdgpu",), ("nouveau",), (("amdgpu", "gttsize=1"),)),
        sysctl=(("vm.swappiness", "1"),),
    )
    found = {f.target: (f.content or b"").decode() for f in generated_files(overlay)}
    assert found == {
        "/etc/modules-load.d/gpu.conf": "# overlay gpu\namdgpu\n",
        "/etc/modprobe.d/gpu.conf": (
            "# overlay gpu\nblacklist nouveau\noptions amdgpu gttsize=1\n"
        ),
        "/etc/sysctl.d/60-gpu.conf": "# overlay gpu\nvm.swappiness = 1\n",
    }
    assert all(map(is_boot_file, found))
    assert not is_boot_file("/etc/default/llama-server")


def test_mode_owner_link_and_content_are_inputs() -> None:
    plain = TreeFile("/etc/a", "d", 0o644)
    others = (
        TreeFile("/etc/a", "e", 0o644),
        TreeFile("/etc/a", "d", 0o600),
        TreeFile("/etc/a", "d", 0o644, owner="x"),
        TreeFile("/etc/a", "d", 0o644, group="x"),
        TreeFile("/etc/a", "d", 0o644, link="d"),
        TreeFile("/etc/b", "d", 0o644),
    )
    assert all(files_input([plain]) != files_input([other]) for other in others)
