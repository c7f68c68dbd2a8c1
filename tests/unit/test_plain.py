# SPDX-License-Identifier: Apache-2.0
"""What has the place of a file and is none is an error at once; nothing waits for it."""

from __future__ import annotations

import os
import signal
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from imagebuilder.files import read_plain, write_file
from imagebuilder.lock.kept import find_kept
from imagebuilder.locks import file_lock, is_locked
from imagebuilder.log import CutLog, Log, Tail
from imagebuilder.plain import NO_FILE, open_plain, read_most
from imagebuilder.process import run
from imagebuilder.store.records import unfinished
from imagebuilder.store.repository import Store

pytestmark = pytest.mark.slow

KINDS = ("pipe", "socket", pytest.param("device", marks=pytest.mark.root))


@pytest.fixture(autouse=True)
def _alarm() -> Iterator[None]:
    """Ends a test that waits."""
    before = signal.signal(signal.SIGALRM, fail)
    signal.alarm(20)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def fail(*_: object) -> None:
    raise AssertionError("it waits")


def plant(path: Path, kind: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "socket":
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(os.path.relpath(path))
    else:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero, which never ends
    return path


def locked(path: Path) -> None:
    with file_lock(path):
        pass


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "use",
    [
        read_plain,
        locked,
        CutLog,
        lambda path: Log(path).open(),
        lambda path: Tail(path).read(),
        lambda path: open_plain(path, os.O_WRONLY | os.O_CREAT),
    ],
)
def test_it_is_not_opened(tmp_path: Path, kind: str, use: Callable[[Path], object]) -> None:
    with pytest.raises(OSError, match=NO_FILE):
        use(plant(tmp_path / "place", kind))


@pytest.mark.parametrize(
    ("size", "most", "found"), [(0, 10, 0), (9, 10, 9), (10, 10, 10), (11, 10, 11), (5000, 10, 11)]
)
def test_a_file_is_read_up_to_a_limit(tmp_path: Path, size: int, most: int, found: int) -> None:
    content = os.urandom(size)
    path = tmp_path / "f"
    path.write_bytes(content)
    with path.open("rb") as stream:
        assert read_most(stream.fileno(), most) == content[:found]


def test_what_a_file_gains_while_it_is_read_is_read_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "f"
    path.write_bytes(b"x" * 9)
    with path.open("rb") as stream:
        small = os.fstat(stream.fileno())
        path.write_bytes(b"x" * 50)
        monkeypatch.setattr(os, "fstat", lambda _: small)
        assert len(read_most(stream.fileno(), 20)) == 21
        stream.seek(0)
        assert len(read_most(stream.fileno(), 100)) == 50


def test_a_file_without_a_size_is_read_whole() -> None:
    # The kernel does not know how long the texts of /proc will be.
    assert read_plain(Path("/proc/self/status")).startswith(b"Name:")


def test_a_pipe_that_somebody_reads_takes_no_log(tmp_path: Path) -> None:
    path = plant(tmp_path / "place", "pipe")
    reader = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    for use in (CutLog, lambda path: Log(path).open()):
        with pytest.raises(OSError, match=NO_FILE):
            use(path)
    os.close(reader)


@pytest.mark.parametrize("kind", KINDS)
def test_what_replaces_a_file_replaces_it_too(tmp_path: Path, kind: str) -> None:
    path = plant(tmp_path / "place", kind)
    plant(tmp_path / ".place.new", kind)
    write_file(path, b"x")
    assert path.read_bytes() == b"x"


@pytest.mark.parametrize("kind", KINDS)
def test_notes_and_caches(tmp_path: Path, kind: str) -> None:
    assert find_kept(plant(tmp_path / "kept", kind)) is None
    assert not is_locked(plant(tmp_path / "lock", "pipe"))
    note = tmp_path / "unfinished/demo.json"
    block = unfinished(tmp_path, "demo", ())
    block.__enter__()
    note.unlink()
    plant(note, kind)
    with pytest.raises(OSError, match=NO_FILE):
        block.__exit__(None, None, None)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("place", ["config", "refs/heads/image/demo/1"])
def test_a_repository_with_it(tmp_path: Path, kind: str, place: str) -> None:
    (tmp_path / "refs/heads/image").mkdir(parents=True)
    plant(tmp_path / place, kind)
    store = Store(tmp_path)
    uses: tuple[Callable[[], object], ...] = (
        lambda: store.ostree("prune"),
        lambda: store.ostree("refs"),
        *([store.images] if place != "config" else ()),
    )
    for use in uses:
        with pytest.raises(OSError, match=NO_FILE):
            use()


PLACES = {
    "recipes/demo.yaml": "demo.yaml: is not a file",
    "recipes/bases/demo.yaml": "demo.yaml: is not a file",
    "overlays/demo/overlay.yaml": "overlay.yaml: is not a file",
    "overlays/demo/files/etc/demo": "files/etc/demo: is a ",
    "overlays/demo/scripts/10-demo": "scripts/10-demo is not a file",
    "overlays/demo/requirements.txt": "requirements.txt is not a file",
    "overlays/demo/key.asc": "key.asc is not a file",
    "key.pub": "key.pub is not a file",
    "site.yaml": "site.yaml: is not a file",
    "recipes/locks/demo.lock": "demo.lock: cannot be read: Is not a file",
}
OVERLAY = """\
description: An overlay of a test
scripts: [{run: scripts/10-demo}]
python: [{path: /opt/demo, requirements: requirements.txt}]
sources:
  - {name: demo, uri: "https://example.org/", suites: ["/"], key: key.asc, pin-packages: [demo],
     pin-priority: 600, fingerprints: [02182E60104FCDC26EAE1B8597A5D4CB8793F200]}
"""


@pytest.mark.parametrize("kind", ["pipe", pytest.param("device", marks=pytest.mark.root)])
@pytest.mark.parametrize("place", PLACES)
def test_a_project_with_it(tmp_path: Path, place: str, kind: str) -> None:
    files = {
        "recipes/demo.yaml": "description: For a test\nbase: demo\noverlays: [ssh, demo]\n",
        "recipes/bases/demo.yaml": "distribution: debian\n",
        "overlays/demo/overlay.yaml": OVERLAY,
        "overlays/demo/scripts/10-demo": "#!/bin/sh\nset -eu\n",
        "overlays/demo/requirements.txt": "",
        "overlays/demo/key.asc": "",
        "key.pub": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGNvdW50ZXJmZWl0 demo\n",
        "site.yaml": f"ssh-keys: [{tmp_path}/key.pub]\n",
    }
    if place.endswith(".lock"):
        files = {}
        shown = f"imagebuilder.lock.file.find_lock(Path({os.fspath(tmp_path / place)!r}))"
        argv = ["-c", f"import imagebuilder.lock.file; from pathlib import Path; {shown}"]
    else:
        argv = ["-m", "imagebuilder.cli.main", "plan", "demo"]
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    (tmp_path / place).unlink(missing_ok=True)
    plant(tmp_path / place, kind)
    env = {
        "IMAGEBUILDER_PROJECT": os.fspath(tmp_path),
        "IMAGEBUILDER_STATE": os.fspath(tmp_path / "state"),
        "IMAGEBUILDER_SITE": os.fspath(tmp_path / "site.yaml"),
        "PYTHONPATH": os.fspath(Path(__file__).parents[2]),
    }
    done = run([sys.executable, *argv], env=env, check=False, seconds=15)
    assert done.status in (1, 2)
    assert PLACES[place] in done.stderr
