# SPDX-License-Identifier: Apache-2.0
"""Lock files: there and back, edited by hand, merged badly, stale."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.errors import InputError
from imagebuilder.lock.difference import digest_of_source
from imagebuilder.lock.file import find_lock, load_lock, lock_differences, make_lock_file
from imagebuilder.lock.types import (
    Lock,
    LockedBuild,
    LockedFile,
    LockedLayer,
    LockedPackage,
    LockedPython,
    LockedSource,
    LockedSourcePackage,
    LockedWheel,
)
from imagebuilder.recipe.types import Base, Boot, Overlay, PythonEnv, Recipe, Source

SOURCE = Source("deb", ("s",), ("main",), Path("/usr/share/keyrings/k.gpg"), mirror="debian")
ENV = PythonEnv("/opt/v", Path("/overlays/v/requirements.txt"), "r1")
V = Overlay("v", Path("/overlays/v"), packages=("python3",), python=(ENV,))
W = Overlay("w", Path("/overlays/w"), packages=("curl",))


def recipe(*overlays: Overlay, source: Source = SOURCE, kernel: str = "linux") -> Recipe:
    base = Base(
        "b", "debian", "s", "amd64", "mmdebstrap", "apt", ("dbus",), kernel, (source,)
    )  # fmt: skip
    return Recipe("p", "", base, overlays, {}, (), Boot("nfs", (), ()))


def package(name: str) -> LockedPackage:
    return LockedPackage(name, "1:2-3", "amd64", "ab" * 32, 9, f"pool/{name}_2-3.deb", "deb")


@pytest.fixture
def lock() -> Lock:
    wheel = LockedWheel("w", "1", "w-1-py3-none-any.whl", "cd" * 32, 5)
    python = LockedPython("/opt/v", "r1", "3.13", (wheel,))
    return Lock(
        "p", "amd64", "b", 7,
        (LockedSource("deb", "s", ("main",), 5, 0, "ef" * 32, "debian", digest_of_source(SOURCE)),),
        (
            LockedLayer("", ("dbus", "linux"), (package("dbus"), package("linux")), (), 5),
            LockedLayer("v", ("python3",), (package("python3"),), (python,), 7),
            LockedLayer("w", ("curl",), (package("curl"),), (), 7),
        ),
    )  # fmt: skip


def test_there_and_back(lock: Lock, tmp_path: Path) -> None:
    path = tmp_path / "locks/p.lock"
    assert find_lock(path) is None
    make_lock_file(lock, path)
    assert find_lock(path) == lock
    assert [each.name for each in path.parent.iterdir()] == ["p.lock"]


def test_a_package_a_line(lock: Lock, tmp_path: Path) -> None:
    path = tmp_path / "p.lock"
    make_lock_file(lock, path)
    lines = path.read_text().splitlines()
    for name in ("dbus", "linux", "python3", "curl"):
        assert sum(f'"name": "{name}"' in line for line in lines) == 1


def test_an_edit_by_hand_is_noticed(lock: Lock, tmp_path: Path) -> None:
    path = tmp_path / "p.lock"
    make_lock_file(lock, path)
    path.write_text(path.read_text().replace('"size": 9', '"size": 10', 1))
    with pytest.raises(InputError, match="edited by hand") as caught:
        load_lock(path)
    assert str(caught.value).startswith(f"{path}:3: ")
    assert "run imagebuilder lock p to write a new one" in str(caught.value)


def test_a_fault_of_shape_has_its_line(lock: Lock, tmp_path: Path) -> None:
    path = tmp_path / "p.lock"
    make_lock_file(lock, path)
    text = path.read_text().replace('"size": 5', '"size": "5"')
    path.write_text(text)
    line = next(n for n, each in enumerate(text.splitlines(), 1) if '"size": "5"' in each)
    with pytest.raises(InputError) as caught:
        load_lock(path)
    assert str(caught.value).startswith(f"{path}:{line}: layers[1].python[0].wheels[0].size: ")


def test_a_fault_of_syntax_has_its_place(lock: Lock, tmp_path: Path) -> None:
    path = tmp_path / "p.lock"
    make_lock_file(lock, path)
    path.write_text(path.read_text().replace('"epoch": 7,', '"epoch" 7,', 1))
    with pytest.raises(InputError, match=rf"{path}:7:\d+: is damaged: not JSON"):
        load_lock(path)


def test_the_marks_of_a_merge_are_named(tmp_path: Path) -> None:
    path = tmp_path / "p.lock"
    path.write_text("<<<<<<< ours\n{}\n=======\n{}\n>>>>>>> theirs\n")
    with pytest.raises(InputError, match="a merge left conflict markers"):
        load_lock(path)


@pytest.mark.parametrize("content", [{"schema": 2}, {}, [], 3])
def test_another_schema(tmp_path: Path, content: object) -> None:
    path = tmp_path / "p.lock"
    path.write_text(json.dumps(content))
    with pytest.raises(InputError, match="this imagebuilder reads 1"):
        load_lock(path)


@pytest.mark.parametrize(
    ("content", "what"), [(b"\xff\xfe", "is not UTF-8 text"), (None, "cannot be read")]
)
def test_a_file_that_cannot_be_read(tmp_path: Path, content: bytes | None, what: str) -> None:
    path = tmp_path / "p.lock"
    if content:
        path.write_bytes(content)
    with pytest.raises(InputError, match=what):
        load_lock(path)


def test_a_fresh_lock_has_no_differences(lock: Lock) -> None:
    assert lock_differences(recipe(V, W), lock) == ()


@pytest.mark.parametrize(
    ("now", "words"),
    [
        (recipe(V), ["overlay w was removed"]),
        (recipe(V, W, Overlay("x", Path())), ["overlay x was added"]),
        (recipe(W, V), ["the overlays are now in the order w, v"]),
        (
            recipe(V, replace(W, packages=("wget",))),
            ["package wget was added to overlay w", "package curl was removed from overlay w"],
        ),
        (
            recipe(V, W, kernel="linux-rt"),
            ["package linux-rt was added to the base", "package linux was removed from the base"],
        ),
        (
            recipe(V, W, source=replace(SOURCE, components=("main", "non-free"))),
            ["source deb changed (address, suites, components, key, pins or snapshot)"],
        ),
        (
            recipe(replace(V, python=(replace(ENV, digest="r2"),)), W),
            ["the requirements of python environment /opt/v in overlay v changed"],
        ),
        (
            recipe(replace(V, python=(replace(ENV, interpreter="/usr/bin/python3.13"),)), W),
            ["the interpreter of python environment /opt/v in overlay v changed"],
        ),
        (
            recipe(replace(V, python=()), W),
            ["python environment /opt/v was removed from overlay v"],
        ),
    ],
)
def test_differences_in_words(lock: Lock, now: Recipe, words: list[str]) -> None:
    assert list(lock_differences(now, lock)) == words


def test_another_suite_of_a_source(lock: Lock) -> None:
    words = lock_differences(recipe(V, W, source=replace(SOURCE, suites=("s", "s-updates"))), lock)
    assert words[0] == "source deb (s-updates) was added"


def test_another_base(lock: Lock) -> None:
    now = recipe(V, W)
    now = replace(now, base=replace(now.base, name="c", architecture="arm64"))
    assert lock_differences(now, lock) == (
        "the base is now c, it was b",
        "the architecture is now arm64, it was amd64",
    )


WHEEL = LockedWheel("w", "1", "w-1-py3-none-any.whl", "cd" * 32, 5)
FILE = LockedFile("w_1.dsc", "cd" * 32, 5, "pool/w_1.dsc")
PYTHON = LockedPython("/opt/v", "r", "3.13", (WHEEL,), options=("--index-url https://x/simple",))
SOURCES = LockedSourcePackage("w", "1", (FILE,), "deb")


def of_wheel(**changed: Any) -> LockedBuild:  # noqa: ANN401 - as many fields as it has
    """A build of one of each, of which something of the wheel was changed by hand."""
    python = replace(PYTHON, wheels=(replace(WHEEL, **changed),))
    return LockedBuild("b", (), (), (package("a"),), (SOURCES,), python)


def of_package(**changed: Any) -> LockedBuild:  # noqa: ANN401
    return replace(of_wheel(), packages=(replace(package("a"), **changed),))


def of_source(**changed: Any) -> LockedBuild:  # noqa: ANN401
    return replace(of_wheel(), source_packages=(replace(SOURCES, **changed),))


def of_file(**changed: Any) -> LockedBuild:  # noqa: ANN401
    return of_source(files=(replace(FILE, **changed),))


def of_options(option: str) -> LockedBuild:
    return replace(of_wheel(), python=replace(PYTHON, options=(option,)))


@pytest.mark.parametrize(
    ("build", "key"),
    [
        (of_wheel(name="w @ file:///evil.tar.gz #"), "name"),
        (of_wheel(name="w\n--editable=/evil"), "name"),
        (of_wheel(version="1 --hash=sha256:0"), "version"),
        (of_wheel(filename="../../etc/x.whl"), "filename"),
        (of_wheel(sha256="../" * 20 + "abcd"), "sha256"),
        (of_wheel(size=-1), "size"),
        (of_wheel(size=10**25), "size"),
        (of_package(name="-oAPT::x=y"), "name"),
        (of_package(version="1 2"), "version"),
        (of_package(sha256="/etc/cron.d/x"), "sha256"),
        (of_package(path="a\nb"), "path"),
        (of_source(name="../../x"), "name"),
        (of_file(name="../../../etc/x"), "name"),
        (of_file(name=".."), "name"),
        (of_options("--editable /evil"), "options"),
        (of_options("-i http://x -e /evil"), "options"),
    ],
)
def test_a_lock_says_nothing_that_leads_elsewhere(
    tmp_path: Path, lock: Lock, build: LockedBuild, key: str
) -> None:
    """It becomes paths and commands on this host; few people read it before they build with it."""
    path = tmp_path / "p.lock"
    for each in (of_wheel(), build):
        layers = (lock.layers[0], LockedLayer("v", (), (), (), 5, (each,)))
        make_lock_file(replace(lock, layers=layers), path)
        if each == build:
            with pytest.raises(InputError, match=rf"p\.lock:\d+: .*{key}.*: \w+"):
                load_lock(path)
        else:
            assert load_lock(path).layers == layers


def of_the_source(lock: Lock, **changed: Any) -> Lock:  # noqa: ANN401
    return replace(lock, sources=(replace(lock.sources[0], **changed),))


def test_a_lock_has_only_times_that_there_are_and_text_for_a_terminal(
    tmp_path: Path, lock: Lock
) -> None:
    """Versions are named by the time, and a terminal shows the texts."""
    path = tmp_path / "p.lock"
    hostile = [replace(lock, epoch=epoch) for epoch in (-1, -(10**11), 10**12, 10**18)]
    hostile += [replace(lock, layers=(replace(lock.layers[0], epoch=10**12),))]
    for key in ("date", "valid_until"):
        hostile += [of_the_source(lock, **{key: time}) for time in (-1, 10**18)]
    for key in ("suite", "origin", "expired_because", "instead", "codename", "release_suite"):
        hostile.append(of_the_source(lock, **{key: "forky\x1b[31m"}))
    for each in hostile:
        make_lock_file(each, path)
        with pytest.raises(InputError, match=r"p\.lock:\d+: \w+"):
            load_lock(path)
    last = of_the_source(lock, valid_until=253_402_300_799, expired_because="two\nlines\n")
    make_lock_file(last, path)
    assert load_lock(path) == last
