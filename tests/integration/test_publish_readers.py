# SPDX-License-Identifier: Apache-2.0
"""Promoting and rolling back while nodes fetch: over HTTP from nginx, and through the folders."""

from __future__ import annotations

import http.client
import os
import resource
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from imagebuilder.process import Word
from imagebuilder.program import program
from imagebuilder.publish.channel.move import promote, rollback
from imagebuilder.publish.publish import publish
from imagebuilder.store.repository import make_store
from imagebuilder.tree import ReleaseName, Tree, make_tree
from tests.integration.published import (
    PROFILE,
    UNTESTED,
    channels_of,
    check_files,
    make_image,
    memory_folder,
    named_version,
    quiet,
)
from tests.integration.started import wait_until

pytestmark = pytest.mark.root
CYCLES = int(os.environ.get("IMAGEBUILDER_PUBLISH_CYCLES", "200"))
READERS = 4
LEAST = 5  # boots a reader must have seen, or it proves nothing
MOST = 0.05  # seconds of the processor for a rollback and a promotion; they take 0.01
NGINX = """
daemon off; pid {folder}/pid; error_log stderr; user root; worker_processes 1;
events {{}}
http {{
  access_log off;
  client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy;
  fastcgi_temp_path {folder}/fastcgi; uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
  server {{
    listen unix:{folder}/socket;
    root {tree}/http;
    location /channels/ {{ root {tree}; }}
  }}
}}
"""


class Unix(http.client.HTTPConnection):
    """HTTP over a unix socket: no port that somebody may have."""

    def __init__(self, path: Path) -> None:
        super().__init__("localhost")
        self.path = path

    def connect(self) -> None:
        """Open the socket."""
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(os.fspath(self.path))

    def fetch(self, path: str) -> bytes:
        """The content below `path`, which must be there."""
        self.request("GET", path)
        answer = self.getresponse()
        content = answer.read()
        assert answer.status == 200, f"{path}: {answer.status}"
        return content


@contextmanager
def web_server(tree: Tree, folder: Path) -> Iterator[Path]:
    """The real one, on a socket in `folder`."""
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, tree=tree.path))
    words: list[Word] = ["nginx", "-p", folder, "-c", folder / "nginx.conf", "-e", "stderr"]
    with program("nginx", words, folder / "log"):
        wait_until((folder / "socket").exists, "nginx does not listen")
        yield folder / "socket"


def boot_over_http(address: Path) -> Callable[[], None]:
    """What a node fetches: the channel's script, then the files of the version it names."""
    connection = Unix(address)

    def boot() -> None:
        script = connection.fetch(f"/channels/{PROFILE}/stable/boot.ipxe")
        version = named_version(script)
        check_files(
            lambda name: connection.fetch(f"/releases/{PROFILE}/{version}/{name}"), version, script
        )

    return boot


def boot_from_folders(tree: Tree) -> Callable[[], None]:
    """The same without a server between, and the root."""

    def boot() -> None:
        script = (tree.channel(PROFILE, "stable") / "boot.ipxe").read_bytes()
        version = named_version(script)
        folder = tree.release(ReleaseName(PROFILE, version))
        check_files(lambda name: (folder / name).read_bytes(), version, script)
        assert (tree.root(ReleaseName(PROFILE, version)) / "etc/version").read_text() == version

    return boot


def start_reader(boot: Callable[[], None], stop: Path, count: Path) -> int:
    """A process that boots until `stop` exists and writes down how often it did."""
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        done = 0
        while not stop.exists():
            boot()
            done += 1
        count.write_text(str(done))
        status = 0
    except BaseException as error:  # noqa: BLE001 - the parent tells
        count.write_text(repr(error))
    finally:
        os._exit(status)


def test_no_reader_sees_a_mixed_or_missing_release(tmp_path: Path) -> None:
    with memory_folder() as folder:
        store = make_store(folder / "state/store")
        tree = make_tree(tmp_path / "netboot")
        images = [make_image(store, folder, number) for number in (1, 2)]
        for image in images:
            publish(store, image, tree, quiet(), channel="candidate")
            promote(tree, PROFILE, quiet(), untested=UNTESTED)
        with web_server(tree, folder) as listening:
            boots = [boot_over_http(listening), boot_from_folders(tree)] * (READERS // 2)
            counts = [folder / f"count-{number}" for number in range(READERS)]
            stop = folder / "stop"
            pids = [
                start_reader(*each) for each in zip(boots, [stop] * READERS, counts, strict=True)
            ]
            times = [cycle(tree, images[0].version, images[1].version) for _ in range(CYCLES)]
            stop.touch()
            ends = [os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in pids]
        said = [path.read_text() for path in counts]
        assert ends == [0] * READERS, said
        assert min(map(int, said)) >= LEAST
        middle = sorted(seconds for seconds, _ in times)[len(times) // 2]
        print(f"{CYCLES} cycles, boots {said}, promote and rollback {1000 * middle:.1f} ms")
        # Of the processor, and the quickest: what else runs on the machine delays all of them.
        assert min(busy for _, busy in times) < MOST
    assert len(tree.journal.read_text().splitlines()) == 6 + 2 * CYCLES


def processor() -> float:
    """Seconds of the processor that this process and its children have taken."""
    kinds = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(kind) for kind in kinds]
    return sum(each.ru_utime + each.ru_stime for each in used)


def cycle(tree: Tree, one: str, other: str) -> tuple[float, float]:
    """Roll back to `one` and promote `other`; seconds for both, and those of the processor."""
    start, busy = time.monotonic(), processor()
    assert rollback(tree, PROFILE, quiet()).version == one
    assert promote(tree, PROFILE, quiet(), untested=UNTESTED).version == other
    taken = time.monotonic() - start, processor() - busy
    assert channels_of(tree) == {"candidate": other, "stable": other}
    return taken
