# SPDX-License-Identifier: Apache-2.0
"""Publishing into another machine's tree: a real sshd, real OSTree, small made-up images."""

from __future__ import annotations

import contextlib
import hashlib
import io
import itertools
import json
import os
import shlex
import shutil
import signal
import socket
import subprocess
import sys
import tarfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from imagebuilder import __version__
from imagebuilder.errors import FullError, HostError, ImagebuilderError, InputError, WorkError
from imagebuilder.image.types import ImageBoot, ImageRoot
from imagebuilder.process import run
from imagebuilder.program import program
from imagebuilder.publish.channel.move import promote
from imagebuilder.publish.journal import read_tail
from imagebuilder.publish.listing import list_releases
from imagebuilder.publish.publish import publish
from imagebuilder.publish.transport import stream
from imagebuilder.publish.transport.local import LocalTree
from imagebuilder.publish.transport.protocol import Order, Transport
from imagebuilder.publish.transport.send import Sent, publish_to
from imagebuilder.publish.transport.ssh import Remote
from imagebuilder.publish.transport.stream import unpack_objects
from imagebuilder.report.save import find_reports
from imagebuilder.store.objects import list_objects
from imagebuilder.store.repository import ImageRef, Store, make_store
from imagebuilder.tree import ReleaseName, Tree, make_tree
from imagebuilder.ui import Ui
from tests.images import IMAGE, put_manifest
from tests.integration.started import PATIENCE, command_lines, start, wait_until
from tests.ports import free_port
from tests.unit.planted_reports import NO_ROOT, make_report, plant

pytestmark = pytest.mark.root

CHECKOUT = Path(__file__).parents[2]
UNTESTED = "it's the affair of `another` test; $HOME"
# A file capability as Linux stores it: revision 2, cap_net_raw permitted and effective.
CAPABILITY = bytes.fromhex("0100000200200000000000000000000000000000")
SSHD = """\
Port {port}
ListenAddress 127.0.0.1
HostKey {top}/host
PidFile none
AuthorizedKeysFile {top}/key.pub
StrictModes no
UsePAM no
PermitRootLogin yes
"""
SSH = """\
IdentityFile {top}/key
IdentitiesOnly yes
UserKnownHostsFile {top}/known
GlobalKnownHostsFile /dev/null
StrictHostKeyChecking yes
"""


def script(path: Path, text: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


@dataclass(frozen=True)
class Far:
    """The other machine: an sshd of its own on this one, and a tree."""

    top: Path
    remote: Remote

    @property
    def tree(self) -> Path:
        return Path(self.remote.tree)

    def program(self, text: str) -> Remote:
        """The same machine with another program in place of imagebuilder."""
        there = script(self.top / "programs" / hashlib.sha1(text.encode()).hexdigest(), text)
        return replace(self.remote, command=(os.fspath(there),))

    @property
    def imagebuilder(self) -> str:
        """How a script runs imagebuilder there."""
        return shlex.join(self.remote.command)

    def state(self) -> dict[str, str]:
        """What nodes see: every release, root and channel, with a digest of what is in it."""
        found: dict[str, str] = {}
        for top in ("http/releases", "roots"):
            for release in (self.tree / top).glob("*/*"):
                said = run(["tar", "-C", release, "--sort=name", "--mtime=@0", "-cf", "-", "."])
                found[f"{top}/{release.name}"] = hashlib.sha256(said.stdout.encode()).hexdigest()
        for link in (self.tree / "channels").glob("*/*"):
            found[link.name] = os.fspath(link.readlink())
        return found

    def left(self) -> list[str]:
        """What is in work/ and does not belong to somebody alive."""
        return sorted(p.name for p in (self.tree / "work").iterdir())


@pytest.fixture
def far(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Far]:
    """A machine to publish to; `ssh` on PATH knows its key, and it knows ours."""
    top = tmp_path / "far"
    top.mkdir()
    port = free_port()
    for name in ("host", "key", "stranger"):
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", top / name])
    (top / "sshd_config").write_text(SSHD.format(top=top, port=port))
    (top / "ssh_config").write_text(SSH.format(top=top))
    key = (top / "host.pub").read_text().split()[:2]
    (top / "known").write_text(f"[127.0.0.1]:{port} {' '.join(key)}\n")
    script(tmp_path / "bin" / "ssh", f'exec /usr/bin/ssh -F {top}/ssh_config "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:{os.environ['PATH']}")
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    there = script(
        top / "imagebuilder",
        f'cd {CHECKOUT} && exec {sys.executable} -m imagebuilder.cli.main "$@"',
    )
    Path("/run/sshd").mkdir(exist_ok=True)  # sshd(8), FILES
    argv = ["/usr/sbin/sshd", "-D", "-e", "-f", os.fspath(top / "sshd_config")]
    with program("sshd", argv, top / "sshd.log") as sshd:
        sshd.wait_for("Server listening", PATIENCE)
        remote = Remote("root@127.0.0.1", port, os.fspath(top / "tree"), (os.fspath(there),))
        yield Far(top, remote)


@pytest.fixture
def builder(tmp_path: Path) -> Store:
    """The store of this machine."""
    return make_store(tmp_path / "state" / "store")


def make_root(top: Path) -> Path:
    """A small root with what a stream must carry: owners, modes, capabilities, links, holes."""
    for name in ("usr/bin", "usr/lib", "etc", "var/empty"):
        (top / name).mkdir(parents=True)
    for number in range(300):
        (top / "usr/lib" / f"lib{number}.so").write_bytes(os.urandom(3000))
    (top / "bin").symlink_to("usr/bin")
    ping = top / "usr/bin/ping"
    ping.write_bytes(os.urandom(5000))
    ping.chmod(0o755)
    os.setxattr(ping, "security.capability", CAPABILITY)
    sudo = top / "usr/bin/sudo"
    sudo.write_bytes(os.urandom(5000))
    os.chown(sudo, 0, 7)
    sudo.chmod(0o4750)
    (top / "etc/odd\nname").write_text("x")
    with (top / "usr/lib/pruned.so").open("wb") as stream:
        stream.truncate(40_000_000)
        stream.write(b"start")
    return top


def make_image(store: Store, root: Path, version: str, profile: str = "small") -> ImageRef:
    """An image of a copy of `root`."""
    work = store.path.parent / f"making-{version}"
    work.mkdir()
    run(["cp", "-a", "--sparse=always", root, work / "root"])
    commit = store.commit(work / "root", epoch=1)
    store.bind(f"layer/{version}", commit)
    boot = {"vmlinuz": b"kernel" * 5000, "initrd.img": b"initrd" * 9000}
    image = work / "image"
    image.mkdir()
    for name, content in boot.items():
        (image / name).write_bytes(content)
    made = replace(
        IMAGE,
        profile=profile,
        version=version,
        boot=ImageBoot("nfs", ("console=ttyS0",)),
        root=ImageRoot(commit, "", 1_000_000),
    )
    put_manifest(image, made)
    (image / "cmdline").write_text("console=ttyS0\n")
    (image / "sbom.spdx.json").write_text("{}\n")
    return store.commit_image(profile, version, image, epoch=1)


def send(
    remote: Transport,
    store: Store,
    image: ImageRef,
    channel: str = "candidate",
    *,
    untested: str = "",
    tested: Tree | None = None,
) -> Sent:
    """Publish, with progress nobody reads."""
    ui = Ui(io.StringIO())
    return publish_to(remote, store, image, ui, channel=channel, untested=untested, tested=tested)


def facts(tree: Path) -> dict[str, tuple[object, ...]]:
    """Owner, mode, blocks, capability and content of everything in a tree."""
    found: dict[str, tuple[object, ...]] = {}
    for path in sorted(tree.rglob("*")):
        stat = path.lstat()
        content = b""
        if path.is_symlink():
            content = os.fsencode(path.readlink())
        elif path.is_file():
            content = path.read_bytes()
        attributes = [(n, os.getxattr(path, n, follow_symlinks=False))
                      for n in os.listxattr(path, follow_symlinks=False)]  # fmt: skip
        name = os.fspath(path.relative_to(tree))
        found[name] = (stat.st_uid, stat.st_gid, stat.st_mode, attributes, content)
    return found


@dataclass(frozen=True)
class Two:
    """Two images of which the second has one new file and one changed."""

    old: ImageRef
    new: ImageRef
    root: Path
    changed: int


@pytest.fixture
def two(tmp_path: Path, builder: Store) -> Two:
    """Version 1, and version 2 with 1.5 MB of new content."""
    root = make_root(tmp_path / "root")
    old = make_image(builder, root, "1")
    (root / "usr/lib/lib7.so").write_bytes(os.urandom(1_000_000))
    (root / "usr/lib/new.so").write_bytes(os.urandom(500_000))
    return Two(old, make_image(builder, root, "2"), root, 1_500_000)


@pytest.fixture
def tiny(tmp_path: Path, builder: Store) -> ImageRef:
    """An image with next to nothing in it."""
    (tmp_path / "root/etc").mkdir(parents=True)
    (tmp_path / "root/etc/os-release").write_text("ID=tiny\n")
    return make_image(builder, tmp_path / "root", "1")


def test_everything_arrives_and_then_only_what_changed(far: Far, builder: Store, two: Two) -> None:
    first = send(far.remote, builder, two.old)
    assert first.release.published["made"] is True
    assert far.state().keys() == {"http/releases/1", "roots/1", "candidate"}
    second = send(far.remote, builder, two.new, "stable", untested=UNTESTED)
    assert "small@2: published" in second.render()
    assert "sent " in second.render()
    assert facts(far.tree / "roots/small/2") == facts(two.root)
    assert second.sent <= 1.2 * two.changed, "only what the other side lacks"
    assert 2_000_000 < second.whole < 10_000_000, "holes do not count"
    pruned = (far.tree / "roots/small/2/usr/lib/pruned.so").stat()
    assert pruned.st_blocks * 512 < 1_000_000, "holes stay holes"
    assert far.state()["stable"].endswith("small/2")
    assert far.state()["candidate"].endswith("small/1")
    run(["ostree", "fsck", "--quiet", f"--repo={far.tree / 'repo'}"])
    assert far.left() == []


def test_the_other_trees_boot_tests_decide_what_may_be_stable(
    far: Far, builder: Store, two: Two
) -> None:
    for _ in range(2):
        with pytest.raises(
            WorkError, match="cannot become stable: it has no boot test report"
        ) as caught:
            send(far.remote, builder, two.new, "stable")
        assert caught.value.faults[0].where == "root@127.0.0.1"
        assert "imagebuilder test small" in caught.value.faults[0].hint
        assert "stable" not in far.state()
        assert not (far.tree / "repo").exists(), "refused before anything came"
    with pytest.raises(InputError, match="the reason must have"):
        send(far.remote, builder, two.new, "stable", untested="so what")
    send(far.remote, builder, two.new)
    with pytest.raises(WorkError, match="cannot become stable: it has no boot test report"):
        send(far.remote, builder, two.new, "stable")
    sent = send(far.remote, builder, two.new, "stable", untested=UNTESTED)
    assert sent.release.published["untested"] == UNTESTED
    assert f"; untested: {UNTESTED}" in sent.render()
    assert read_tail(far.tree / "journal.jsonl")[-1].reason == UNTESTED


def test_a_boot_test_of_the_same_bytes_comes_with_the_release(
    far: Far, builder: Store, two: Two, tmp_path: Path
) -> None:
    ui, here = Ui(io.StringIO()), make_tree(tmp_path / "here")
    publish(builder, two.new, here, ui, channel="candidate")
    assert send(far.remote, builder, two.new, tested=here).reports == ()
    there, name = Tree(far.tree), two.new.name
    with pytest.raises(WorkError, match="cannot become stable: it has no boot test report"):
        promote(there, name, ui)
    passed = replace(make_report(here, name, 1), machine="bigbox")
    plant(here, passed)
    evil = {"vmlinuz": "0" * 64}
    plant(here, make_report(here, name, 2, selection="ssh"))
    plant(here, make_report(here, name, 3, other=evil))

    said = io.StringIO()
    again = publish_to(far.remote, builder, two.new, Ui(said), channel="candidate", tested=here)
    assert again.reports == (passed.id,)
    assert f"sent boot test {passed.id}" in again.render()
    assert "rejected boot test '20261121T100003Z': " in said.getvalue()
    assert "vmlinuz differs" in said.getvalue()
    assert find_reports(there, ReleaseName("small", "2")) == (passed,)
    (listed,) = list_releases(there)
    assert listed.tested == "yes, bigbox 2026-11-21 10:00"
    assert promote(there, name, ui).render().endswith(f"boot test {passed.id} has passed on bigbox")
    assert send(far.remote, builder, two.new, tested=here).reports == ()

    # What is found later counts too: a failure, and with it stable is refused again.
    plant(here, make_report(here, name, 4, verdict=NO_ROOT))
    assert send(far.remote, builder, two.new, tested=here).reports == ("20261121T100004Z",)
    assert list_releases(there)[0].tested == "failed"


@pytest.mark.parametrize("there", [True, False], ids=["there", "new there"])
def test_a_release_becomes_stable_by_the_report_that_comes_with_it(
    far: Far, builder: Store, two: Two, tmp_path: Path, *, there: bool
) -> None:
    here = make_tree(tmp_path / "here")
    publish(builder, two.new, here, Ui(io.StringIO()), channel="candidate")
    plant(here, make_report(here, two.new.name, 1))
    if there:
        send(far.remote, builder, two.new)
    sent = send(far.remote, builder, two.new, "stable", tested=here)
    assert sent.release.published["report"] == "20261121T100001Z"
    assert sent.reports == ("20261121T100001Z",)
    assert (sent.sent > 1000) is not there  # an empty stream has 22 bytes
    assert far.state()["stable"].endswith("small/2")


def test_a_new_release_that_failed_here_is_refused_before_anything_comes(
    far: Far, builder: Store, two: Two, tmp_path: Path
) -> None:
    here = make_tree(tmp_path / "here")
    publish(builder, two.new, here, Ui(io.StringIO()), channel="candidate")
    plant(here, make_report(here, two.new.name, 1))
    plant(here, make_report(here, two.new.name, 2, verdict=NO_ROOT))
    with pytest.raises(WorkError, match="cannot become stable: it has no boot test report"):
        send(far.remote, builder, two.new, "stable", tested=here)
    assert not (far.tree / "repo").exists()


def test_the_same_again_sends_nothing(far: Far, builder: Store, two: Two) -> None:
    send(far.remote, builder, two.old)
    before = far.state()
    again = send(far.remote, builder, two.old)
    assert again.release.published["made"] is False
    assert "already published" in again.render()
    assert again.sent < 2000
    assert far.state() == before


def test_objects_count_when_the_store_has_pruned_what_was_published(
    far: Far, builder: Store, two: Two
) -> None:
    send(far.remote, builder, two.old)
    for ref in (two.old.ref, "layer/1"):
        builder.remove(ref)
    builder.prune()
    assert send(far.remote, builder, two.new).sent <= 1.2 * two.changed


def test_what_login_scripts_print_does_not_matter(far: Far, builder: Store, two: Two) -> None:
    chatty = far.program(f'echo "Welcome {{ to this host"; exec {far.imagebuilder} "$@"')
    assert send(chatty, builder, two.old).release.published["version"] == "1"


def test_a_tampered_object_is_refused(far: Far, builder: Store, two: Two) -> None:
    send(far.remote, builder, two.old)
    before = far.state()
    library = run(["ostree", f"--repo={builder.path}", "ls", "-C",
                   builder.refs("layer")["2"], "/usr/lib/new.so"]).stdout.split()[4]  # fmt: skip
    path = builder.path / "objects" / library[:2] / f"{library[2:]}.file"
    with path.open("r+b") as stream:
        stream.write(b"evil")
    with pytest.raises(WorkError, match="was damaged in transit; nothing was published"):
        send(far.remote, builder, two.new)
    assert far.state() == before
    assert far.left() == []


def take(tree: Path, sender: Store, image: ImageRef, objects: Sequence[str]) -> None:
    """What `receive` does with these objects, whatever a sender ought to have seen in them."""
    order = Order("candidate", (), "")
    with LocalTree(Tree(tree)).arrival(image, order, Ui(io.StringIO())) as arrival:
        arrival.send(sender, objects)
        arrival.verify()
        arrival.activate()


class Hostile(NamedTuple):
    """A manifest that is not that of the image it comes in, or a file that is none."""

    change: dict[str, Any]
    link: str
    said: str


@pytest.mark.parametrize(
    "how",
    [
        Hostile({"version": "1"}, "", "small@9: is small@1 according to its manifest"),
        Hostile({"profile": "other"}, "", "small@9: is other@9 according to its manifest"),
        Hostile({"version": "/etc/small"}, "", "is not the name of a profile or a version"),
        Hostile({"profile": ".."}, "", "is not the name of a profile or a version"),
        Hostile({"root": {"commit": "--repo=/x", "layer": "", "size": 1}}, "", "root.commit: "),
        Hostile({}, "/etc/shadow", "its sbom.spdx.json is not a file (a link)"),
        Hostile({}, "/proc/kmsg", "its sbom.spdx.json is not a file (a link)"),
    ],
    ids=lambda how: str([*how.change, how.link]),
)
def test_an_image_that_claims_another_place_changes_nothing(
    far: Far, builder: Store, two: Two, how: Hostile
) -> None:
    send(far.remote, builder, two.old)
    before = far.state()
    work = builder.path.parent / "hostile"
    builder.checkout(two.new.commit, work, links=False)
    manifest = json.loads((work / "manifest.json").read_text())
    (work / "manifest.json").write_text(json.dumps({**manifest, "version": "9", **how.change}))
    if how.link:
        (work / "sbom.spdx.json").unlink()
        (work / "sbom.spdx.json").symlink_to(how.link)
    image = builder.commit_image("small", "9", work, epoch=1)
    objects = list_objects(builder.path, image.commit)
    objects |= list_objects(builder.path, manifest["root"]["commit"])
    with pytest.raises(InputError) as caught:
        take(far.tree, builder, image, sorted(objects))
    assert how.said in str(caught.value)
    assert far.state() == before
    assert far.left() == []


@pytest.mark.parametrize("every", [0.0, 0.1])
def test_a_sender_that_is_silent_or_trickles_is_given_up(
    every: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SLOW_S", 1.0)
    out, into = os.pipe()
    done = threading.Event()

    def trickle() -> None:
        with contextlib.suppress(OSError):
            while every and not done.wait(every):
                os.write(into, b"x")

    sender = threading.Thread(target=trickle)
    sender.start()
    try:
        with (
            os.fdopen(out, "rb") as slow,
            pytest.raises(WorkError, match="has sent less than 1024 KiB in 1 s"),
        ):
            unpack_objects(slow, tmp_path)
    finally:
        done.set()
        sender.join()
        os.close(into)


def test_each_mebibyte_has_its_own_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sent").write_bytes(bytes((3 << 20) + 1))
    clock = itertools.count(step=100.0)
    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    with (tmp_path / "sent").open("rb") as sent:
        incoming = stream.Incoming(sent, -1, tmp_path)
        waited = [(len(incoming.read()), incoming.other.waited) for _ in range(4)]
    assert waited == [(1 << 20, 0.0), (1 << 20, 0.0), (1 << 20, 0.0), (1, 100.0)]


def test_a_sender_that_is_done_is_not_silent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "SLOW_S", -1.0)
    (tmp_path / "sent").write_bytes(b"x")
    out, into = os.pipe()
    with (tmp_path / "sent").open("rb") as sent, os.fdopen(out, "rb") as arrived:
        incoming = stream.Incoming(sent, into, tmp_path)
        incoming.run()
        assert arrived.read() == b"x"
    incoming.check()


def test_an_object_of_holes_is_not_read(tmp_path: Path) -> None:
    made, target = tmp_path / "made", tmp_path / "target"
    for folder in (made / "ab", target):
        folder.mkdir(parents=True)
    for kind, size in (("dirtree", 17 << 20), ("file", 1 << 43)):
        path = made / "ab" / f"{'c' * 62}.{kind}"
        with path.open("wb") as holes:
            holes.truncate(size)
        run(["tar", "--zstd", "--sparse", "-cf", tmp_path / "stream", "-C", made, "ab"])
        with (tmp_path / "stream").open("rb") as sent, pytest.raises(WorkError, match="nothing"):
            unpack_objects(sent, target)
        path.unlink()


def test_names_of_any_length_take_no_memory(tmp_path: Path) -> None:
    with tarfile.open(tmp_path / "s.tar", "w", format=tarfile.PAX_FORMAT) as tar:
        tar.addfile(tarfile.TarInfo("x" * (1 << 30)))
    run(["zstd", "-q", tmp_path / "s.tar", "-o", tmp_path / "stream"])
    (tmp_path / "s.tar").unlink()
    with (tmp_path / "stream").open("rb") as sent, pytest.raises(WorkError, match="memory"):
        unpack_objects(sent, tmp_path)


@pytest.mark.parametrize("name", ["config", "../escaped", "ab/short.file", "objects"])
def test_a_stream_of_anything_but_objects_is_refused(tmp_path: Path, name: str) -> None:
    bad = tmp_path / "bad/sub"
    bad.mkdir(parents=True)
    (bad / name).parent.mkdir(exist_ok=True)
    (bad / name).write_text("x")
    run(["tar", "-P", "--zstd", "-cf", tmp_path / "stream", "-C", bad, name])
    target = tmp_path / "target"
    target.mkdir()
    with (tmp_path / "stream").open("rb") as stream, pytest.raises(WorkError, match="nothing was"):
        unpack_objects(stream, target)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["bad", "stream", "target"]


@pytest.mark.parametrize(
    ("kind", "how"), [("dirtree", "link"), ("file", "pipe"), ("file", "second name")]
)
def test_a_stream_of_objects_of_another_kind_is_refused(
    tmp_path: Path, kind: str, how: str
) -> None:
    made, target = tmp_path / "made", tmp_path / "target"
    (made / "ab").mkdir(parents=True)
    target.mkdir()
    path = made / "ab" / f"{'c' * 62}.{kind}"
    if how == "link":
        path.symlink_to("/etc/hostname")
    elif how == "pipe":
        os.mkfifo(path)
    else:
        path.write_text("x")
        os.link(path, path.with_suffix(".dirmeta"))
    run(["tar", "--zstd", "-cf", tmp_path / "stream", "-C", made, "ab"])
    with (tmp_path / "stream").open("rb") as stream, pytest.raises(WorkError, match="nothing was"):
        unpack_objects(stream, target)


def test_what_no_checksum_covers_is_not_the_senders(tmp_path: Path) -> None:
    made, target = tmp_path / "made", tmp_path / "target"
    (made / "ab").mkdir(parents=True)
    target.mkdir()
    tree, file = (made / "ab" / f"{'c' * 62}.{kind}" for kind in ("dirtree", "file"))
    for path in (tree, file):
        path.write_text("x")
        os.chown(path, 1000, 1000)
        path.chmod(0o666)
        os.setxattr(path, "user.of", b"sender")
    run(["tar", "--zstd", "--xattrs", "-cf", tmp_path / "stream", "-C", made, "ab"])
    with (tmp_path / "stream").open("rb") as stream:
        unpack_objects(stream, target)
    tree, file = (target / "ab" / path.name for path in (tree, file))
    found = [(os.listxattr(path), path.stat()) for path in (tree, file)]
    assert [(x, s.st_uid, s.st_gid, s.st_mode & 0o7777, s.st_mtime) for x, s in found] == [
        ([], 0, 0, 0o644, 0),
        (["user.of"], 1000, 1000, 0o666, 0),
    ]


def test_a_link_in_the_stream_leads_nowhere_out(tmp_path: Path) -> None:
    outside, made = tmp_path / "outside", tmp_path / "made"
    outside.mkdir()
    (made / "ab").mkdir(parents=True)
    evil = f"{'c' * 62}.file"
    (made / "ab" / evil).write_text("evil")
    (made / "link").symlink_to(outside)
    run(["tar", "-cf", tmp_path / "s.tar", "-C", made, "--transform=s,link,ab,", "link"])
    run(["tar", "-rf", tmp_path / "s.tar", "-C", made, f"ab/{evil}"])
    run(["zstd", "-q", tmp_path / "s.tar", "-o", tmp_path / "stream"])
    target = tmp_path / "target"
    target.mkdir()
    with (tmp_path / "stream").open("rb") as stream, contextlib.suppress(WorkError):
        unpack_objects(stream, target)
    assert list(outside.iterdir()) == [], "nothing is written through a link"


@pytest.mark.parametrize("how", ["cut", "killed"])
def test_a_connection_that_breaks(
    far: Far, builder: Store, two: Two, tmp_path: Path, how: str
) -> None:
    send(far.remote, builder, two.old)
    before = far.state()
    real = f"/usr/bin/ssh -F {far.top}/ssh_config"
    broken = {
        "cut": f'head -c 700000 | {real} "$@"',
        "killed": "exec 3<&0; { head -c 700000 <&3; sleep 20; } | "
        f'{real} "$@" & sleep 2; kill -9 $!; exit 255',
    }[how]
    script(tmp_path / "bin" / "ssh",
           f'case "$*" in *--channel*) {broken};; *) exec {real} "$@";; esac')  # fmt: skip
    with pytest.raises(ImagebuilderError) as caught:
        send(far.remote, builder, two.new)
    if how == "cut":
        assert "arrived incomplete; nothing was published" in str(caught.value)
    wait_until_quiet(far)
    assert far.state() == before
    script(tmp_path / "bin" / "ssh", f'exec {real} "$@"')
    assert send(far.remote, builder, two.new).release.published["made"] is True
    assert far.left() == [], "what was left is swept"


def wait_until_quiet(far: Far) -> None:
    """Until no program works in the tree any more."""
    tree = os.fsencode(far.tree)

    def is_quiet() -> bool:
        return not any(b"receive" in line and tree in line for line in command_lines().values())

    wait_until(is_quiet, "the far side does not end")


def test_kill_of_the_sender(far: Far, builder: Store, two: Two, tmp_path: Path) -> None:
    send(far.remote, builder, two.old)
    code = (
        "import io; from pathlib import Path; from imagebuilder.publish.transport.ssh import *;"
        "from imagebuilder.publish.transport.send import publish_to;"
        "from imagebuilder.store.repository import *; from imagebuilder.ui import Ui;"
        f"publish_to({far.remote!r}, Store(Path({os.fspath(builder.path)!r})),"
        f" {two.new!r}, Ui(io.StringIO()), channel='candidate')"
    )
    old = far.state()
    for number, seconds in enumerate((1.0, 2.0, 3.0)):
        sender = start([sys.executable, "-c", code], {"PATH": os.environ["PATH"]},
                       tmp_path / f"sender{number}")  # fmt: skip
        time.sleep(seconds)
        os.kill(sender.pid, 9)
        sender.wait(PATIENCE)
        wait_until_quiet(far)
        state = far.state()
        if state != old:
            assert state["candidate"].endswith("small/2")
            assert facts(far.tree / "roots/small/2") == facts(two.root)
            break
    send(far.remote, builder, two.new)
    assert far.left() == []


def test_a_machine_that_cannot_be_reached(far: Far, builder: Store, tiny: ImageRef) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        nobody = replace(far.remote, port=taken.getsockname()[1])
        with pytest.raises(HostError, match=r"ssh failed: .*Connection refused") as caught:
            send(nobody, builder, tiny)
    assert "check the name, the address and the port" in str(caught.value)


def test_a_key_that_is_not_let_in(far: Far, builder: Store, tiny: ImageRef) -> None:
    (far.top / "key").write_bytes((far.top / "stranger").read_bytes())
    with pytest.raises(HostError, match="Permission denied") as caught:
        send(far.remote, builder, tiny)
    assert "ssh-copy-id" in str(caught.value)


def test_a_host_key_nobody_has_seen(far: Far, builder: Store, tiny: ImageRef) -> None:
    (far.top / "known").write_text("")
    with pytest.raises(HostError, match="Host key verification failed") as caught:
        send(far.remote, builder, tiny)
    assert "connect once by hand" in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("exec /nowhere/imagebuilder", "python3 -m venv --clear /opt/imagebuilder"),
        ("echo \"No such command 'receive'.\" >&2; exit 2", "cannot run"),
        (
            """printf '{\n "protocol": 4, "schema": 1, "version": "0.0.9"}'""",
            "has imagebuilder 0.0.9",
        ),
        (
            f"""printf '{{\n "protocol": 4, "schema": 99, "version": "{__version__}"}}'""",
            "schema 99 and 1",
        ),
        (f"""printf '{{\n "schema": 1, "version": "{__version__}"}}'""", "protocol None and 4"),
        ("echo hello", "did not give an answer of imagebuilder"),
        ("echo 'sudo: a password is required' >&2; exit 1", "sudo: a password is required"),
    ],
)
def test_another_program_there(
    far: Far, builder: Store, tiny: ImageRef, text: str, said: str
) -> None:
    with pytest.raises(ImagebuilderError) as caught:
        send(far.program(text), builder, tiny)
    assert said in str(caught.value)
    assert "127.0.0.1" in str(caught.value)


def test_without_root_there(far: Far, builder: Store, tiny: ImageRef) -> None:
    # With this capability nobody may read the program at all, wherever it lies.
    may_read = "--inh-caps=+dac_override --ambient-caps=+dac_override"
    nobody = far.program(f'exec setpriv --reuid=65534 {may_read} {far.imagebuilder} "$@"')
    with pytest.raises(HostError, match="needs root") as caught:
        send(nobody, builder, tiny)
    assert "become root and run: " in str(caught.value)


@contextmanager
def small_disk(far: Far, size: str, *, told: bool) -> Iterator[Remote]:
    """The machine with a tree on a disk of `size`; not `told`: it says that there is enough."""
    mount = f"mount -t tmpfs -o size={size} tmpfs {far.tree}"
    guard = "" if told else 'case "$*" in *--have*) exec "$0.real" "$@";; esac\n'
    far.tree.mkdir(exist_ok=True)
    remote = far.program(f"{guard}exec unshare -m sh -c '{mount}; exec \"$0\" \"$@\"' "
                         f"{far.imagebuilder} \"$@\"")  # fmt: skip
    script(Path(f"{remote.command[0]}.real"), f'exec {far.imagebuilder} "$@"')
    yield remote


def test_too_small_a_disk_is_seen_before_anything_is_sent(
    far: Far, builder: Store, two: Two
) -> None:
    with (
        small_disk(far, "512k", told=True) as remote,
        pytest.raises(HostError, match="not enough space: "),
    ):
        send(remote, builder, two.old)


def test_a_disk_that_fills_up(far: Far, builder: Store, two: Two) -> None:
    with (
        small_disk(far, "1M", told=False) as remote,
        pytest.raises(HostError, match="the disk is full; nothing was changed"),
    ):
        send(remote, builder, two.old)


def test_a_sender_leaves_some_space_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    header, target = tmp_path / "header", tmp_path / "target"
    endless = tarfile.TarInfo("00/" + 62 * "0" + ".file")
    endless.size = 1 << 40
    header.write_bytes(endless.tobuf())
    (target / "00").mkdir(parents=True)
    free = shutil.disk_usage(tmp_path).free
    monkeypatch.setattr(stream, "LEAST_FREE", free - (16 << 20))
    argv = ["sh", "-c", 'cat "$0" /dev/urandom | zstd -1 --quiet', str(header)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE, process_group=0) as sender:
        assert sender.stdout
        try:
            with pytest.raises(FullError, match="the disk is full; nothing was changed"):
                unpack_objects(sender.stdout, target)
        finally:
            os.killpg(sender.pid, signal.SIGKILL)
    assert shutil.disk_usage(tmp_path).free > free - (1 << 30)


def test_what_is_wrong_is_said_before_anybody_is_asked(
    far: Far, builder: Store, tiny: ImageRef
) -> None:
    nobody = replace(far.remote, port=1)
    with pytest.raises(InputError, match="nonsense"):
        send(nobody, builder, tiny, "nonsense")


def test_an_error_of_the_other_side_keeps_its_kind_and_hint(
    far: Far, builder: Store, tiny: ImageRef
) -> None:
    unfit = far.program("printf 'error: a: is full\\n  hint: make room\\n' >&2; exit 3")
    with pytest.raises(HostError) as caught:
        send(unfit, builder, tiny)
    assert str(caught.value) == "root@127.0.0.1: a: is full\n  hint: make room"
