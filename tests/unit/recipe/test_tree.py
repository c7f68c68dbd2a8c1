# SPDX-License-Identifier: Apache-2.0
"""What git cannot hold: odd kinds of files, modes and names below files/."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest

from imagebuilder.recipe.tree import link_problem
from tests.unit.recipe.conftest import House

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
def test_kinds_that_are_refused(house: House, make: Callable[[Path], None], what: str) -> None:
    house.write({**ONE, "overlays/a/files/etc/fine": ""})
    make(house.root / "overlays/a/files/etc/odd")
    assert house.faults().startswith(f"overlays/a/files/etc/odd: {what}")


@pytest.mark.parametrize(
    ("name", "shown"), [(b"a\nb", "a\\nb"), (b"\xff", "\\udcff"), (b"\x1b[2J", "\\x1b[2J")]
)
def test_names_that_are_refused(house: House, name: bytes, shown: str) -> None:
    house.write({**ONE, "overlays/a/files/etc/fine": ""})
    Path(os.fsdecode(os.fsencode(house.root / "overlays/a/files/etc") + b"/" + name)).write_text("")
    assert house.faults() == (
        f"overlays/a/files/etc/{shown}: the name has control characters or is not UTF-8"
    )


def test_the_folder_must_be_one(house: House, tmp_path: Path) -> None:
    house.write(ONE)
    (tmp_path / "elsewhere").mkdir()
    (house.root / "overlays/a/files").symlink_to(tmp_path / "elsewhere")
    assert house.faults() == "overlays/a/files: must be a folder, not a symlink"


def test_a_loop_of_symlinks_is_no_script(house: House) -> None:
    overlay = f"{ONE['overlays/a/overlay.yaml']}scripts: [{{run: loop}}]\n"
    house.write({**ONE, "overlays/a/overlay.yaml": overlay})
    (house.root / "overlays/a/loop").symlink_to("loop")
    assert "scripts[0].run: no file overlays/a/loop" in house.faults()


def test_symlinked_folders_are_links(house: House) -> None:
    house.write({**ONE, "overlays/a/files/usr/share/x": "x"})
    (house.root / "overlays/a/files/usr/doc").symlink_to("share")
    files = house.load().overlays[0].files
    assert [(file.target, file.link) for file in files] == [
        ("/usr/doc", "share"),
        ("/usr/share/x", None),
    ]


def test_digests_follow_content_and_nothing_else(house: House) -> None:
    house.write({**ONE, "overlays/a/files/etc/x": "x"})
    before = house.load()
    os.utime(house.root / "overlays/a/files/etc/x", (0, 0))
    (house.root / "overlays/a/files/etc/x").chmod(0o600)
    assert house.load() == before
    house.write({"overlays/a/files/etc/x": "y"})
    assert house.load().overlays[0].files[0].digest != before.overlays[0].files[0].digest


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
