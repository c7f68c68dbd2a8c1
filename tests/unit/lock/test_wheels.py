# SPDX-License-Identifier: Apache-2.0
"""Wheels for a Python that is not ours, from a folder of tiny ones, by the real pip."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import requests

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import HostError, InputError, WorkError
from imagebuilder.families.apt.family import APT
from imagebuilder.lock import patience, pip, wheels
from imagebuilder.lock.file import make_lock_file
from imagebuilder.lock.patience import PATIENCE, Patience
from imagebuilder.lock.pip import errors_of
from imagebuilder.lock.pool import SHARE_BYTES, UNFINISHED, shares_of
from imagebuilder.lock.types import Lock, LockedPython, LockedWheel
from imagebuilder.lock.wheels import Item, Python, find_size, lock_python, python_of
from imagebuilder.process import Completed
from imagebuilder.recipe.types import PythonEnv, Recipe
from imagebuilder.supplies import fetch
from tests.fixtures.aptrepo import ArchiveServer, Plant, served
from tests.unit.lock.world import Shown, World, hello_recipe, overlay

pytestmark = pytest.mark.slow

PYTHON = Python("3.13.5", 41, "amd64")


def make_wheel(folder: Path, name: str, tag: str, text: str = "") -> str:
    """A tiny wheel of version 1.0; its sha256."""
    path = folder / f"{name}-1.0-{tag}.whl"
    info = f"{name}-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        files = {
            f"{name}.py": f"text = {text!r}\n",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
            f"{info}/WHEEL": f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {tag}\n",
            f"{info}/RECORD": "",
        }
        for target, content in files.items():
            archive.writestr(zipfile.ZipInfo(target), content)
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Index:
    """A folder of wheels and the requirements that ask for them."""

    folder: Path
    requirements: Path

    def env(self, *lines: str) -> PythonEnv:
        """An environment of these requirements."""
        self.requirements.write_text("".join(f"{line}\n" for line in lines))
        return PythonEnv("/opt/v", self.requirements, digest_of_file(self.requirements))

    def lock(self, *lines: str) -> LockedPython:
        """The wheels for these requirements and PYTHON."""
        return lock_python(self.env(*lines), PYTHON, self.folder.parent / "cache", lambda _: None)


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return Index(folder, tmp_path / "requirements.txt")


def fill(
    world: World,
    recipe: Recipe,
    lock: Lock,
    *,
    offline: bool = False,
    patience: Patience = PATIENCE,
) -> Shown:
    """Fetch into the pool; what the progress bar was told."""
    shown = Shown()
    fetch(
        lock, APT, world.mirrors, recipe.sources, world.debs, world.wheels, world.cache,
        offline=offline, progress=shown, patience=patience,
    )  # fmt: skip
    return shown


# Arguments: lock, packages, wheels, cache.
KILLED = """
import sys
from pathlib import Path
from imagebuilder.lock.file import load_lock
from imagebuilder.families.apt.family import APT
from imagebuilder.supplies import fetch
from tests.unit.lock.world import Shown
lock, debs, wheels, cache = map(Path, sys.argv[1:])
fetch(load_lock(lock), APT, {}, (), debs, wheels, cache, offline=False, progress=Shown())
"""


def kill_while_fetching(world: World, lock: Lock, until: int) -> None:
    """Kill a process that fetches the wheels of `lock` when so many bytes are there."""
    path = world.cache.parent / "tested.lock"
    make_lock_file(lock, path)
    words = map(str, (path, world.debs, world.wheels, world.cache))
    fetching = subprocess.Popen([sys.executable, "-c", KILLED, *words], stderr=subprocess.DEVNULL)
    for _ in range(600):
        sizes = (file.stat().st_size for file in world.wheels.rglob("*.whl"))
        if fetching.poll() is not None or sum(sizes) >= until:
            break
        time.sleep(0.1)
    fetching.kill()
    fetching.wait()


def test_wheels_are_chosen_for_the_python_of_the_root(world: World, index: Index) -> None:
    make_wheel(index.folder, "fast", "cp311-cp311-manylinux_2_17_x86_64")
    make_wheel(index.folder, "fast", "cp313-cp313-manylinux_2_99_x86_64")
    right = make_wheel(index.folder, "fast", "cp313-cp313-manylinux_2_28_x86_64")
    pure = make_wheel(index.folder, "pure", "py3-none-any")
    old = make_wheel(index.folder, "old", "py3-none-any")
    env = index.env(
        f"fast==1.0 --hash=sha256:{right}",
        "# a comment",
        f"pure==1.0 ; python_version >= '3.12' \\\n    --hash=sha256:{pure}",
        f"old==1.0 ; python_version < '3.12' --hash=sha256:{old}",
    )
    recipe = world.recipe(replace(overlay("v", "python3"), python=(env,)))
    lock = world.lock(recipe)
    locked = lock.layer("v").python[0]
    assert (locked.python, locked.path, locked.requirements) == ("3.13", "/opt/v", env.digest)
    assert [(wheel.filename, wheel.sha256) for wheel in locked.wheels] == [
        ("fast-1.0-cp313-cp313-manylinux_2_28_x86_64.whl", right),
        ("pure-1.0-py3-none-any.whl", pure),
    ]
    fill(world, recipe, lock)
    for wheel in locked.wheels:
        path = world.wheels / wheel.sha256 / wheel.filename
        assert path.stat().st_size == wheel.size
        assert hashlib.sha256(path.read_bytes()).hexdigest() == wheel.sha256
    assert {path.name for path in world.wheels.glob("[!.]*")} == {right, pure}
    fill(world, recipe, lock, offline=True)


def test_a_wheel_for_another_python(index: Index) -> None:
    digest = make_wheel(index.folder, "fast", "cp311-cp311-manylinux_2_17_x86_64")
    words = r"no wheel of fast==1\.0 for Python 3\.13 on x86_64 with glibc 2\.41"
    with pytest.raises(InputError, match=words) as caught:
        index.lock(f"fast==1.0 --hash=sha256:{digest}")
    assert "python environment /opt/v" in str(caught.value)
    assert "there is one for Python 3.11: " in str(caught.value)
    assert "--python-version 3.13" in str(caught.value)


def test_requirements_that_change_meanwhile_are_an_error(index: Index) -> None:
    digest = make_wheel(index.folder, "pure", "py3-none-any")
    env = index.env(f"pure==1.0 --hash=sha256:{digest}", "# as the recipe was read")
    index.env(f"pure==1.0 --hash=sha256:{digest}")
    with pytest.raises(InputError, match="has changed since the recipe was read"):
        lock_python(env, PYTHON, index.folder.parent / "cache", lambda _: None)


def test_an_index_with_another_file(index: Index) -> None:
    make_wheel(index.folder, "pure", "py3-none-any")
    with pytest.raises(InputError, match="an index has a different file than the requirements"):
        index.lock(f"pure==1.0 --hash=sha256:{'0' * 64}")


def test_an_index_that_changed_after_the_lock(world: World, index: Index, hello_lock: Lock) -> None:
    digest = make_wheel(index.folder, "pure", "py3-none-any")
    layer = replace(
        hello_lock.layers[0], packages=(), python=(index.lock(f"pure==1.0 --hash=sha256:{digest}"),)
    )
    lock = replace(hello_lock, layers=(hello_lock.layers[0], layer))
    recipe = hello_recipe(world)
    make_wheel(index.folder, "pure", "py3-none-any", "something else")
    with pytest.raises(WorkError, match="pip could not fetch the locked wheels"):
        fill(world, recipe, lock)
    assert list(world.wheels.glob("[!.]*")) == []


def test_an_index_that_holds_a_connection_open_is_given_up_and_what_came_stays(
    world: World, index: Index, hello_lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("first", "second")
    digests = {name: make_wheel(index.folder, name, "py3-none-any") for name in names}
    begun = time.monotonic()
    first, second = (index.lock(f"{n}==1.0 --hash=sha256:{digests[n]}") for n in names)
    # Only a server's silence may end the fetch: pip itself says nothing until it has started, which
    # takes a second here, and 8 s on a machine with much else to do.
    patient = Patience(seconds=max(8, round(4 * (time.monotonic() - begun))))
    layer = replace(hello_lock.layers[0], packages=(), python=(first, replace(second, path="/w")))
    lock = replace(hello_lock, layers=(hello_lock.layers[0], layer))
    links = [f'<a href="{name}-1.0-py3-none-any.whl">{name}</a>' for name in names]
    (index.folder / "index.html").write_text(f"<html><body>{''.join(links)}</body></html>")
    with served(index.folder) as server:
        monkeypatch.setenv("PIP_FIND_LINKS", f"{server.uri}/index.html")
        server.plant("second-1.0-py3-none-any.whl", Plant.STALLED)
        said = rf"index sent {patient}: gave up on 1 wheel, such as second-1\.0"
        with pytest.raises(HostError, match=said):
            fill(world, hello_recipe(world), lock, patience=patient)
        assert (world.wheels / digests["first"] / "first-1.0-py3-none-any.whl").is_file()
        server.mend()
        server.asked.clear()
        fill(world, hello_recipe(world), lock)
        assert (world.wheels / digests["second"]).is_dir()
        assert not any(name.startswith("first") for name in server.asked)


def test_a_wheel_without_an_end_does_not_fill_the_disk(
    world: World, index: Index, hello_lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(patience, "SLACK", 4 << 20)
    digest = make_wheel(index.folder, "first", "py3-none-any")
    layer = replace(
        hello_lock.layers[0],
        packages=(),
        python=(index.lock(f"first==1.0 --hash=sha256:{digest}"),),
    )
    lock = replace(hello_lock, layers=(hello_lock.layers[0], layer))
    link = '<a href="first-1.0-py3-none-any.whl">first</a>'
    (index.folder / "index.html").write_text(f"<html><body>{link}</body></html>")
    with served(index.folder) as server:
        monkeypatch.setenv("PIP_FIND_LINKS", f"{server.uri}/index.html")
        server.plant("first-1.0-py3-none-any.whl", Plant.ENDLESS)
        with pytest.raises(HostError, match=r"a server sends more than the .* that may come"):
            fill(world, hello_recipe(world), lock)
        server.mend()
        fill(world, hello_recipe(world), lock)
    assert sum(path.stat().st_size for path in world.wheels.rglob("*")) < 1 << 20


@pytest.mark.parametrize("beginning", ["right", "wrong", "server without ranges"])
def test_a_wheel_that_was_cut_off_by_a_kill_is_continued(
    world: World, index: Index, hello_lock: Lock, monkeypatch: pytest.MonkeyPatch, beginning: str
) -> None:
    name = "big-1.0-py3-none-any.whl"
    digest = make_wheel(index.folder, "big", "py3-none-any", "x" * 4_000_000)
    size = (index.folder / name).stat().st_size
    locked = index.lock(f"big==1.0 --hash=sha256:{digest}")
    fill(world, hello_recipe(world), hello_lock)
    layer = replace(hello_lock.layers[1], packages=(), python=(locked,))
    lock = replace(hello_lock, layers=(hello_lock.layers[0], layer))
    (index.folder / "index.html").write_text(f'<html><body><a href="{name}">b</a></body></html>')
    with served(index.folder) as server:
        monkeypatch.setenv("PIP_FIND_LINKS", f"{server.uri}/index.html")
        server.plant(name, Plant.STALLED)
        kill_while_fetching(world, lock, until=size // 4)
        (left,) = (world.wheels / UNFINISHED).rglob(name)
        have = left.stat().st_size
        if beginning == "wrong":
            left.write_bytes(b"y" * have)
        server.mend()
        server.ranges = beginning != "server without ranges"
        server.sent.clear()
        shown = fill(world, hello_recipe(world), lock)
        sent = server.sent[name]
    wanted = {"right": size - have, "wrong": 2 * size - have, "server without ranges": size}
    assert have > 0
    assert sent >= wanted[beginning]
    assert (sent < size) is (beginning == "right")
    assert digest_of_file(world.wheels / digest / name) == digest
    assert (shown.count, shown.ended) == (shown.total, True)
    assert not (world.wheels / UNFINISHED).exists()


def serve_link(index: Index, monkeypatch: pytest.MonkeyPatch, server: ArchiveServer) -> None:
    link = '<a href="first-1.0-py3-none-any.whl">first</a>'
    (index.folder / "index.html").write_text(f"<html><body>{link}</body></html>")
    monkeypatch.setenv("PIP_FIND_LINKS", f"{server.uri}/index.html")


@pytest.mark.parametrize(
    ("path", "fault", "words"),
    [
        ("index.html", Plant.ENDLESS, r"pip took more than 268 MB of memory for what a package"),
        ("index.html", Plant.STALLED, r"the package index sent less than 0.1 kB/s for 9 s"),
        ("first-1.0-py3-none-any.whl", Plant.ENDLESS, r"package index sent more than 1.0 MB"),
    ],
)
def test_an_index_without_an_end_stops_no_lock(
    index: Index, monkeypatch: pytest.MonkeyPatch, path: str, fault: Plant, words: str
) -> None:
    monkeypatch.setattr(pip, "most_memory", lambda: 256 << 20)
    monkeypatch.setattr(pip, "MOST_CHOSEN", 1 << 20)
    digest = make_wheel(index.folder, "first", "py3-none-any")
    with served(index.folder) as server:
        serve_link(index, monkeypatch, server)
        server.plant(path, fault)
        with monkeypatch.context() as impatient:
            if fault is Plant.STALLED:
                impatient.setattr(pip, "CHOOSING", Patience(rate=100, seconds=9))
            with pytest.raises(HostError, match=words):
                index.lock(f"first==1.0 --hash=sha256:{digest}")
        assert list((index.folder.parent / "cache").iterdir()) == []
        server.mend()
        assert index.lock(f"first==1.0 --hash=sha256:{digest}").wheels


@pytest.mark.parametrize("said", ["", "0", "-1", "1e3", "\u00b2", "9" * 25, "9" * 5000])
def test_a_size_that_no_file_has_is_not_believed(
    monkeypatch: pytest.MonkeyPatch, said: str
) -> None:
    answer = requests.Response()
    answer.status_code = 200
    answer.headers["Content-Length"] = said
    monkeypatch.setattr(requests, "head", lambda *_, **__: answer)
    assert find_size(Item("a", "1", "http://localhost/a.whl", "")) is None
    answer.headers["Content-Length"] = "4096"
    assert find_size(Item("a", "1", "http://localhost/a.whl", "")) == 4096


def test_a_size_that_an_index_misreported_is_refused_and_then_right(
    world: World, index: Index, hello_lock: Lock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The size in a lock is that of the verified bytes, as soon as there are some."""
    digest = make_wheel(index.folder, "first", "py3-none-any")
    name = "first-1.0-py3-none-any.whl"
    size, line = (index.folder / name).stat().st_size, f"first==1.0 --hash=sha256:{digest}"
    recipe = hello_recipe(world)

    def lock_of(python: LockedPython) -> Lock:
        layer = replace(hello_lock.layers[1], packages=(), python=(python,))
        return replace(hello_lock, layers=(hello_lock.layers[0], layer))

    with served(index.folder) as server:
        serve_link(index, monkeypatch, server)
        server.plant(name, Plant.LYING)
        locked = index.lock(line)
        assert locked.wheels[0].size == size + 1
        server.mend()
        with pytest.raises(WorkError, match=f"{name} has {size} bytes, but the lock says") as told:
            fill(world, recipe, lock_of(locked))
        assert "hint: run imagebuilder lock" in str(told.value)
        server.plant(name, Plant.LYING)
        again = lock_python(index.env(line), PYTHON, world.cache, lambda _: None, world.wheels)
        assert again.wheels[0].size == size
        server.mend()
        server.asked.clear()
        fill(world, recipe, lock_of(again))
        assert name not in server.asked


def test_an_error_that_pip_does_not_know_is_told_by_its_last_line() -> None:
    trace = 'ERROR: Exception:\nTraceback (most recent call last):\n  File "x"\nValueError: odd\n'
    assert errors_of(Completed(2, "", trace)) == "ValueError: odd"
    assert errors_of(Completed(1, "", "WARNING: x\nERROR: a\nERROR: b\n")) == (
        "ERROR: a\n    ERROR: b"
    )
    assert errors_of(Completed(1, "", "a\nb\n")) == "a\n    b"


def test_a_run_of_pip_fetches_little_or_one_large_wheel() -> None:
    sizes = [SHARE_BYTES * 8, 5, SHARE_BYTES - 7, 3]
    wheels = [LockedWheel(str(size), "1", "w.whl", "ab", size) for size in sizes]
    assert [[w.size for w in share] for share in shares_of(wheels)] == [
        [3, 5], [SHARE_BYTES - 7], [SHARE_BYTES * 8],
    ]  # fmt: skip


def test_an_index_that_does_not_answer(index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    with served(index.folder) as gone:
        uri = gone.uri
    monkeypatch.setenv("PIP_NO_INDEX", "0")
    monkeypatch.setenv("PIP_INDEX_URL", uri)
    monkeypatch.setenv("PIP_RETRIES", "1")

    def ask_for_others(*_: object) -> None:
        raise AssertionError("other Pythons are not tried: each waits as long")

    monkeypatch.setattr(wheels, "pythons_with", ask_for_others)
    with pytest.raises(HostError, match="package index is not reachable"):
        index.lock(f"pure==1.0 --hash=sha256:{'0' * 64}")


def test_a_root_without_the_interpreter(index: Index, hello_lock: Lock) -> None:
    with pytest.raises(InputError, match="no package contains /usr/bin/python3") as caught:
        python_of("", APT.glibc(hello_lock.packages), "amd64", index.env())
    assert "add python3 to the packages" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("pure>=1.0 --hash=sha256:" + "0" * 64, "pure is not at one exact version"),
        ("pure==1.* --hash=sha256:" + "0" * 64, "pure is not at one exact version"),
        ("pure==1.0", "pure has no --hash=sha256:"),
        ("-e .", "the option -e is not allowed in a locked environment"),
        ("pure @ https://example.org/pure.whl", "pure is not at one exact version"),
        ("pure pure", "not a requirement"),
        ("--index-url http://x -e /evil", "--index-url needs one address without quotes"),
        ("--find-links=/x --editable=/evil", "--find-links needs one address without quotes"),
        ("-f /x\t-r/etc/shadow", "-f needs one address without quotes, and nothing else"),
        ("--trusted-host 'x y'", "--trusted-host needs one address without quotes"),
        ("--index-url", "--index-url needs one address without quotes"),
    ],
)
def test_requirements_that_are_not_locked(index: Index, line: str, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        index.lock("", line)
    assert str(caught.value).startswith(f"{index.requirements}:2: ")


def test_no_line_of_requirements_runs_a_program_here(index: Index) -> None:
    digest = make_wheel(index.folder, "pure", "py3-none-any")
    evil = index.folder.parent / "evil"
    evil.mkdir()
    (evil / "setup.py").write_text(f"open({str(evil / 'ran')!r}, 'w')\n")
    line = f"--find-links {index.folder} --editable {evil}"
    with pytest.raises(InputError, match="needs one address"):
        index.lock(line, f"pure==1.0 --hash=sha256:{digest}")
    assert not (evil / "ran").exists()
    locked = index.lock(f"--find-links {index.folder}", f"pure==1.0 --hash=sha256:{digest}")
    assert locked.options == (f"--find-links {index.folder}",)


def test_pip_is_told_of_every_older_glibc() -> None:
    platforms = [word for word in PYTHON.options if word.endswith("_x86_64")]
    assert platforms[0] == "manylinux_2_41_x86_64"
    assert "manylinux_2_5_x86_64" in platforms
    assert "manylinux2014_x86_64" in platforms
    assert platforms[-1] == "linux_x86_64"
    assert PYTHON.short == "3.13"
