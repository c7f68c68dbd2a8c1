# SPDX-License-Identifier: Apache-2.0
"""Files and folders that get their names whole."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import threading
from pathlib import Path

import pytest

from imagebuilder import files
from imagebuilder.errors import Fault, FullError
from imagebuilder.files import (
    TOGETHER,
    Content,
    filling,
    keep_files,
    link_in,
    make_folder,
    move_away,
    move_in,
    place_file,
    place_files,
    point_link,
    scratch,
    sync_filesystem,
    write_file,
    write_files,
)
from imagebuilder.folders import matching, paths_below


def names(folder: Path) -> list[str]:
    """What is in a folder."""
    return sorted(path.name for path in folder.iterdir())


@pytest.mark.parametrize(
    ("error", "what"),
    [
        (OSError(errno.ENOSPC, "x", "/source", None, "/target"), "full"),
        (FullError("cp failed\n    No space left"), "full: cp failed"),
    ],
)
def test_a_full_disk_is_that_of_the_folder_that_is_filled(error: Exception, what: str) -> None:
    with pytest.raises(FullError) as caught, filling(Path("/folder"), "make room", "full"):
        raise error
    assert caught.value.faults == (Fault("/folder", what, "make room"),)


@pytest.mark.parametrize("error", [FullError("full", where="/x"), PermissionError(13, "no")])
def test_other_errors_pass_a_folder_that_is_filled(error: Exception) -> None:
    with pytest.raises(type(error)) as caught, filling(Path("/folder"), "make room"):
        raise error
    assert caught.value is error


def test_a_file_is_replaced_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "file"
    assert place_file(path, b"one", 0o640)
    assert not place_file(path, b"one", 0o640)
    assert place_file(path, b"one", 0o644)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    (tmp_path / ".file.new").write_text("left by a killed command, and longer than the other")
    assert place_file(path, b"two")
    with pytest.raises(TypeError):
        place_file(path, "not bytes")  # type: ignore[arg-type]
    assert path.read_bytes() == b"two"
    assert names(tmp_path) == ["file"]


@pytest.mark.parametrize("kind", ["symlink", "hard link", "fifo"])
def test_what_has_the_name_of_an_unfinished_file_is_not_written_through(
    tmp_path: Path, kind: str
) -> None:
    other, staged = tmp_path / "other", tmp_path / ".file.new"
    other.write_text("somebody's")
    if kind == "symlink":
        staged.symlink_to(other)
    elif kind == "hard link":
        staged.hardlink_to(other)
    else:
        os.mkfifo(staged)
    write_file(tmp_path / "file", b"new")
    assert other.read_text() == "somebody's"
    assert names(tmp_path) == ["file", "other"]
    assert (tmp_path / "file").read_bytes() == b"new"
    assert not (tmp_path / "file").is_symlink()


def test_many_who_write_one_file_leave_one_of_theirs(tmp_path: Path) -> None:
    path = tmp_path / "file"
    contents = [bytes([number]) * 5000 for number in range(8)]
    seen: set[bytes] = set()

    def write(content: bytes) -> None:
        for _ in range(20):
            write_file(path, content)
            seen.add(path.read_bytes())

    threads = [threading.Thread(target=write, args=(content,)) for content in contents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen <= set(contents)
    assert names(tmp_path) == ["file"]


def test_many_files_at_once_are_those_that_differ(tmp_path: Path) -> None:
    wanted = [Content(tmp_path / f"{n}", b"%d" % n) for n in range(2 * TOGETHER + 3)]
    (tmp_path / "1").write_bytes(b"1")
    (tmp_path / "1").chmod(0o644)
    assert place_files(wanted) == [file.path for file in wanted if file.path.name != "1"]
    assert all(file.path.read_bytes() == file.content for file in wanted)
    assert len(names(tmp_path)) == len(wanted)
    assert place_files(wanted) == []


def test_one_file_named_twice_has_the_last_content(tmp_path: Path) -> None:
    write_files([Content(tmp_path / "file", b"one"), Content(tmp_path / "file", b"two")])
    assert (tmp_path / "file").read_bytes() == b"two"


def test_what_cannot_be_written_leaves_nothing(tmp_path: Path) -> None:
    write_file(tmp_path / "file", b"old")
    (tmp_path / "folder").mkdir()
    with pytest.raises(IsADirectoryError):
        write_files([Content(tmp_path / "file", b"new"), Content(tmp_path / "folder", b"x")])
    assert names(tmp_path) == ["file", "folder"]
    assert (tmp_path / "file").read_bytes() == b"new"  # in this order


def test_moves_and_links(tmp_path: Path) -> None:
    make_folder(tmp_path / "a/b/c")
    assert stat.S_IMODE((tmp_path / "a/b").stat().st_mode) == 0o755
    (tmp_path / "staged").mkdir()
    move_in(tmp_path / "staged", tmp_path / "a/b/c/place")
    move_away(tmp_path / "a/b/c/place", tmp_path / "gone")
    assert names(tmp_path / "a/b/c") == []
    (tmp_path / "one").write_text("one")
    link_in(tmp_path / "one", tmp_path / "a/one", tmp_path / "staged")
    (tmp_path / "two").write_text("two")
    link_in(tmp_path / "two", tmp_path / "a/one", tmp_path / "staged")
    assert (tmp_path / "a/one").samefile(tmp_path / "two")
    keep_files([(tmp_path / "two", tmp_path / "a/one")])  # one file: rename(2) does nothing
    (tmp_path / ".link.new").write_text("left")
    for target in ("one", "a"):
        point_link(tmp_path / "link", target)
        assert (tmp_path / "link").readlink() == Path(target)
    sync_filesystem(tmp_path)
    with pytest.raises(FileNotFoundError, match="absent"):
        sync_filesystem(tmp_path / "absent")


def test_an_error_of_the_c_library_names_the_path(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"Bad file descriptor: '.*file'"):
        files.call("syncfs", tmp_path / "file", -1)


def test_scratch_folders_of_killed_processes_go_and_no_other(tmp_path: Path) -> None:
    (tmp_path / "trial-left/below").mkdir(parents=True)
    (tmp_path / "trial-file").touch()
    (tmp_path / "other-left").mkdir()
    with scratch(tmp_path, "trial-") as one:
        assert names(tmp_path) == sorted([one.name, "other-left", "trial-file"])
        with scratch(tmp_path, "trial-") as two:
            (two / "file").touch()
            assert one.is_dir()
    assert names(tmp_path) == ["other-left", "trial-file"]


def test_a_scratch_folder_that_cannot_be_made_is_reported_as_its_parent(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught, scratch(tmp_path / "absent", "trial-"):
        pass
    assert caught.value.filename == os.fspath(tmp_path / "absent")


def test_folders_that_go_while_they_are_listed_are_left_out(tmp_path: Path) -> None:
    for find in (paths_below, lambda top: matching(top, "*/*")):
        for name in ("a", "b"):
            (tmp_path / name).mkdir(exist_ok=True)
            (tmp_path / name / "file").touch()
        found = find(tmp_path)
        first = next(found)
        there = first if first.is_dir() else first.parent
        other = tmp_path / ("b" if there.name == "a" else "a")
        shutil.rmtree(other)
        assert other / "file" not in [first, *found]
    assert list(paths_below(tmp_path / "absent")) == []
    assert list(matching(tmp_path / "absent", "*/*")) == []
