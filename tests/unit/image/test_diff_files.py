# SPDX-License-Identifier: Apache-2.0
"""Files of two roots: a difference of each kind is planted, and told as what it is."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from imagebuilder.errors import WorkError
from imagebuilder.families.apt.family import APT
from imagebuilder.image.changes import diff_files, files_json, render_files
from imagebuilder.image.files import CommittedRoot, parse_listing, read_root
from imagebuilder.store.repository import Store, make_store
from tests.integration.published import memory_folder

INFO = "var/lib/dpkg/info"
FILES = {
    "etc/motd": "one\ntwo\n",
    "etc/app.conf": "x=1\n",
    "usr/lib/app/code.py": "print(1)\n",
    "usr/lib/app/__pycache__/code.cpython-313.pyc": "\0bytecode 1",
    "usr/lib/libfoo.so": "\0library 1",
    f"{INFO}/app.list": "/etc\n/etc/app.conf\n/usr/lib/app\n/usr/lib/app/code.py\n",
    f"{INFO}/libfoo:amd64.list": "/lib/libfoo.so\n",
}


@pytest.fixture(scope="module")
def store() -> Iterator[Store]:
    with memory_folder() as top:
        yield make_store(top / "store")


@pytest.fixture(scope="module")
def base(store: Store) -> CommittedRoot:
    """The root with FILES as they are."""
    return commit(store, lambda _: None)


def commit(store: Store, change: Callable[[Path], object]) -> CommittedRoot:
    """A root with FILES and a change."""
    top = store.path.parent / "root"
    for name, text in FILES.items():
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).parent.chmod(0o755)
        (top / name).write_text(text)
        (top / name).chmod(0o644)
    (top / "lib").symlink_to("usr/lib")
    (top / "etc/alias").symlink_to("motd")
    change(top)
    return read_root(store, store.commit(top, epoch=1), APT)


def to_folder(path: Path) -> None:
    path.unlink()
    path.mkdir(mode=0o755)
    path.chmod(0o755)


def relink(path: Path) -> None:
    path.unlink()
    path.symlink_to("app.conf")


PLANTED: tuple[tuple[str, Callable[[Path], object], str], ...] = (
    ("/etc/motd", lambda top: (top / "etc/motd").chmod(0o4755), "mode 0644 -> 4755"),
    ("/etc/motd", lambda top: (top / "etc/motd").write_text("one\n2\n3\n"), "text, +2 -1 lines"),
    ("/etc/motd", lambda top: (top / "etc/motd").write_text("one\ntwo"), "text, +1 -1 lines"),
    ("/etc/motd", lambda top: (top / "etc/motd").write_bytes(b"\0" * 2000),
     "content, 8 B -> 2.0 kB"),
    ("/etc/motd", lambda top: (top / "etc/motd").write_bytes(b"\0" * 8), "content, 8 B"),
    ("/etc/motd", lambda top: to_folder(top / "etc/motd"),
     "file, 8 B, mode 0644 -> folder, mode 0755"),
    ("/etc/alias", lambda top: relink(top / "etc/alias"), "-> app.conf, was motd"),
    ("/etc", lambda top: (top / "etc").chmod(0o700), "mode 0755 -> 0700"),
    ("/etc/motd", lambda top: (top / "etc/motd").unlink(), "file, 8 B, mode 0644"),
    ("/etc/new", lambda top: (top / "etc/new").symlink_to("motd"), "link -> motd"),
)  # fmt: skip


@pytest.mark.parametrize(("path", "change", "told"), PLANTED, ids=[told for *_, told in PLANTED])
def test_a_difference_is_told(
    store: Store, base: CommittedRoot, path: str, change: Callable[[Path], object], told: str
) -> None:
    found = diff_files(base, commit(store, change), ())
    mine = f", owner {os.getuid()}:{os.getgid()}"  # said unless it is root's
    said = [(change.path, told.replace(mine, "")) for change, told in found.singles]
    assert said == [(path, told)]
    assert found.groups == ()


@pytest.mark.root
def test_an_owner_and_an_attribute_are_told(
    store: Store, base: CommittedRoot, tmp_path: Path
) -> None:
    try:
        os.setxattr(tmp_path, "trusted.test", b"x")
    except OSError:
        pytest.skip("this file system takes no such attribute")

    def change(top: Path) -> None:
        os.chown(top / "etc/motd", 7, 8)
        os.setxattr(top / "etc/app.conf", "trusted.test", b"x")

    found = diff_files(base, commit(store, change), ())
    assert [(change.path, told) for change, told in found.singles] == [
        ("/etc/app.conf", "attributes changed"), ("/etc/motd", "owner 0:0 -> 7:8"),
    ]  # fmt: skip


def test_equal_roots_are_the_same(base: CommittedRoot) -> None:
    found = diff_files(base, base, ())
    assert render_files(found) == "files: the same"


def upgrade(top: Path) -> None:
    """Another version of app and libfoo, and a file of nobody."""
    (top / "usr/lib/app/code.py").write_text("print(2)\n")
    (top / "usr/lib/app/__pycache__/code.cpython-313.pyc").write_text("\0bytecode 22")
    (top / "usr/lib/libfoo.so").write_text("\0library 2")
    (top / "usr/lib/app/more.py").write_text("")
    with (top / INFO / "app.list").open("a") as stream:
        stream.write("/usr/lib/app/more.py\n")
    (top / "etc/motd").write_text("one\n")


def test_files_of_a_changed_package_are_one_line(store: Store, base: CommittedRoot) -> None:
    found = diff_files(base, commit(store, upgrade), ("app:all", "libfoo:amd64"))
    groups = [(g.package, g.added, g.changed, g.growth) for g in found.groups]
    assert groups == [("app", 1, 3, 22), ("libfoo", 0, 1, 0)]
    assert [change.path for change, _ in found.singles] == ["/etc/motd"]
    assert (found.total.added, found.total.changed) == (1, 5)
    said = render_files(found).splitlines()
    assert said[0] == "files: 5 changed, 1 added (+18 B)"
    assert said[2].split() == ["app", "3", "changed,", "1", "added", "+22", "B"]
    assert said[-1] == "changed  /etc/motd  text, +0 -1 lines"


def test_a_file_that_differs_although_its_package_is_the_same_is_told(
    store: Store, base: CommittedRoot
) -> None:
    found = diff_files(base, commit(store, upgrade), ("app:all",))
    told = {change.path: change.package for change, _ in found.singles}
    assert told == {"/etc/motd": "", "/usr/lib/libfoo.so": "libfoo"}
    assert "/usr/lib/libfoo.so (of libfoo)" in render_files(found)


def test_a_glob_tells_every_file_of_it(store: Store, base: CommittedRoot) -> None:
    found = diff_files(base, commit(store, upgrade), ("app:all",), glob="/usr/lib/app/*")
    assert [change.path for change, _ in found.singles] == [
        "/usr/lib/app/__pycache__/code.cpython-313.pyc",
        "/usr/lib/app/code.py",
        "/usr/lib/app/more.py",
    ]
    assert found.groups == ()


def test_programs_get_both_sides(store: Store, base: CommittedRoot) -> None:
    value = files_json(diff_files(base, commit(store, upgrade), ("app", "libfoo:amd64")))
    assert isinstance(value["files"], list)
    (motd,) = value["files"]
    assert (motd["path"], motd["how"], motd["package"]) == ("/etc/motd", "changed", None)
    assert (motd["old"]["size"], motd["new"]["size"]) == (8, 4)


def test_a_name_may_hold_an_arrow_or_the_end_of_a_line() -> None:
    zero = "0" * 64
    listing = (
        f"-00644 0 0 1 {zero} /a -> b\nl00777 0 0 0 {zero} /c -> d -> e\n-00644 0 0 1 {zero} /x\ny"
    )
    assert {path: file.target for path, file in parse_listing(listing)} == {
        "/a -> b": "", "/c": "d -> e", "/x": "",
    }  # fmt: skip


@pytest.mark.parametrize("kind", ["link", "file"])
def test_a_name_that_looks_like_another_line_hides_no_change(store: Store, kind: str) -> None:
    row = f"x\n-00644 0 0      5 {'a' * 64} "

    def imitate(top: Path) -> None:
        if kind == "link":
            (top / "usr/lib/link").symlink_to(f"{row}/etc/motd")
        else:
            (top / f"usr/lib/{row}/etc").mkdir(parents=True)
            (top / f"usr/lib/{row}/etc/motd").write_text("")

    with pytest.raises(WorkError, match=r": cannot be compared.*\n  hint: .*find"):
        commit(store, imitate)
