# SPDX-License-Identifier: Apache-2.0
"""What git cannot hold: odd kinds of files, modes and names below files/."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from imagebuilder.recipe.tree import link_problem
from tests.unit.recipe.conftest import Project

ONE = {
    "recipes/p.yaml": "base: debian-trixie\noverlays: [a]\n",
    "overlays/a/overlay.yaml": "description: An overlay of the tests\n",
}


def make_socket(path: Path) -> None:
    """A socket that was bound and left there; its path may be longer than bind(2) takes."""
    here = Path.cwd()
    os.chdir(path.parent)
    try:
        with socket.socket(socket.AF_UNIX) as bound:
            bound.bind(path.name)
    finally:
        os.chdir(here)


def make_setuid(path: Path) -> None:
    """A setuid file."""
    path.write_text("")
    path.chmod(0o4755)


def make_setgid(path: Path) -> None:
    """A setgid file."""
    path.write_text("")
    path.chmod(0o2755)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (os.mkfifo, "is a FIFO"),
        (make_socket, "is a socket"),
        (make_setuid, "is setuid or setgid"),
        (make_setgid, "is setuid or setgid"),
    ],
)
def test_kinds_that_are_refused(project: Project, make: Callable[[Path], None], what: str) -> None:
    project.write({**ONE, "overlays/a/files/etc/fine": ""})
    make(project.root / "overlays/a/files/etc/odd")
    assert project.faults().startswith(f"overlays/a/files/etc/odd: {what}")


@pytest.mark.parametrize(
    ("name", "shown"), [(b"a\nb", "a\\nb"), (b"\xff", "\\udcff"), (b"\x1b[2J", "\\x1b[2J")]
)
def test_names_that_are_refused(project: Project, name: bytes, shown: str) -> None:
    project.write({**ONE, "overlays/a/files/etc/fine": ""})
    Path(os.fsdecode(os.fsencode(project.root / "overlays/a/files/etc") + b"/" + name)).write_text(
        ""
    )
    assert project.faults() == (
        f"overlays/a/files/etc/{shown}: the name has control characters or is not UTF-8"
    )


def test_the_folder_must_be_one(project: Project, tmp_path: Path) -> None:
    project.write(ONE)
    (tmp_path / "elsewhere").mkdir()
    (project.root / "overlays/a/files").symlink_to(tmp_path / "elsewhere")
    assert project.faults() == "overlays/a/files: must be a folder, not a symlink"


def test_a_loop_of_symlinks_is_no_script(project: Project) -> None:
    overlay = f"{ONE['overlays/a/overlay.yaml']}scripts: [{{run: loop}}]\n"
    project.write({**ONE, "overlays/a/overlay.yaml": overlay})
    (project.root / "overlays/a/loop").symlink_to("loop")
    assert "scripts[0].run: no file overlays/a/loop" in project.faults()


def test_symlinked_folders_are_links(project: Project) -> None:
    project.write({**ONE, "overlays/a/files/usr/share/x": "x"})
    (project.root / "overlays/a/files/usr/doc").symlink_to("share")
    files = project.load().overlays[0].files
    assert [(file.target, file.link) for file in files] == [
        ("/usr/doc", "share"),
        ("/usr/share/x", None),
    ]


def test_digests_follow_content_and_nothing_else(project: Project) -> None:
    project.write({**ONE, "overlays/a/files/etc/x": "x"})
    before = project.load()
    os.utime(project.root / "overlays/a/files/etc/x", (0, 0))
    (project.root / "overlays/a/files/etc/x").chmod(0o600)
    assert project.load() == before
    project.write({"overlays/a/files/etc/x": "y"})
    assert project.load().overlays[0].files[0].digest != before.overlays[0].files[0].digest


@pytest.mark.parametrize(
    ("target", "link", "leaves"),
    [
        ("/x", "etc/passwd", False),
        ("/x", "../etc/passwd", True),
        ("/etc/x", "../usr/lib/x", False),
        ("/etc/x", "..", False),
        ("/etc/x", "../..", True),
        ("/etc/x", "y/../../../etc", True),
        ("/etc/x", "/etc/y", True),
        ("/etc/x", "y\nz", True),
    ],
)
def test_links_that_leave(target: str, link: str, leaves: bool) -> None:  # noqa: FBT001 - a case
    assert bool(link_problem(target, link)) is leaves


@pytest.mark.parametrize(
    ("name", "size", "said"),
    [
        ("files/etc/big.j2", 5 << 20, "cannot be read: It has more than 4 MiB"),
        ("files/etc/big", 1 << 40, "cannot be read: It has 1024 GiB, but the limit is 256 GiB"),
        ("checks/test_big.py", 2 << 20, "cannot be read: It has more than 1 MiB"),
        ("python/requirements.txt", 17 << 20, "cannot be read: It has more than 16 MiB"),
    ],
)
def test_files_of_nothing_that_are_large(project: Project, name: str, size: int, said: str) -> None:
    overlay = ONE["overlays/a/overlay.yaml"]
    if name.startswith("python"):
        overlay += "python:\n  - path: /opt/a\n    requirements: python/requirements.txt\n"
    project.write({**ONE, "overlays/a/overlay.yaml": overlay, f"overlays/a/{name}": ""})
    os.truncate(project.root / "overlays/a" / name, size)
    assert project.faults().startswith(f"overlays/a/{name}: {said}")


def test_many_files_are_compared_once(project: Project) -> None:
    """Each file was searched among all of the overlay: 30,000 took a minute."""
    project.write({f"overlays/a/files/opt/{n:05}": "" for n in range(3000)})
    project.write(ONE)
    started = time.process_time()
    project.load("p")
    few = time.process_time() - started
    project.write({f"overlays/a/files/opt/{n:05}": "" for n in range(12000)})
    started = time.process_time()
    project.load("p")
    assert time.process_time() - started < 8 * few
