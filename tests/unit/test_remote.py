# SPDX-License-Identifier: Apache-2.0
"""Publishing over ssh: places, commands, what errors of the other side become."""

from __future__ import annotations

import io
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from imagebuilder.decode import decode_box
from imagebuilder.digest import Json
from imagebuilder.errors import HostError, ImagebuilderError, InputError, WorkError
from imagebuilder.process import Completed
from imagebuilder.publish.transport import ssh, stream
from imagebuilder.publish.transport.local import LocalTree
from imagebuilder.publish.transport.places import parse_place
from imagebuilder.publish.transport.protocol import Activated, PlaceContents
from imagebuilder.publish.transport.reports import KeptReports
from imagebuilder.publish.transport.send import Sent, check_arrived, order_bases, send_reports
from imagebuilder.publish.transport.ssh import (
    Remote,
    SshArrival,
    parse_answer,
    parse_remote,
    remote_failure,
)
from imagebuilder.store.objects import object_path
from imagebuilder.store.repository import ImageRef, Store
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui
from tests.unit.nodes_world import node_tree
from tests.unit.planted_reports import make_report, plant

if TYPE_CHECKING:
    from imagebuilder.publish.transport.protocol import Transport

NUC = Remote("nuc", 0, "/srv/netboot")
A, B = "a" * 64, "b" * 64


@pytest.mark.parametrize(
    ("url", "remote"),
    [
        ("ssh://nuc/srv/netboot", NUC),
        ("ssh://root@nuc:2222/srv/netboot/", Remote("root@nuc", 2222, "/srv/netboot")),
        ("ssh://nuc/srv/net%20boot", Remote("nuc", 0, "/srv/net boot")),
        ("ssh://10.0.0.1/t", Remote("10.0.0.1", 0, "/t")),
        ("ssh://[fe80::1]/t", Remote("fe80::1", 0, "/t")),
    ],
)
def test_places(url: str, remote: Remote) -> None:
    assert parse_remote(url) == remote


@pytest.mark.parametrize(
    "url",
    [
        "", "nuc", "nuc:/srv/netboot", "http://nuc/srv", "ssh:///srv", "ssh://nuc", "ssh://nuc/",
        "ssh://nuc:port/srv", "ssh://u:secret@nuc/srv", "ssh://-oProxyCommand=x/srv",
        "ssh://-l@nuc/srv", "ssh://nuc/srv?x", "ssh://nuc/srv#x", "ssh://a b/srv",
        "ssh://nuc/a%0Ab", "ssh://nuc/a%00b", "ssh://nuc/%1B[2J", "ssh://nuc/%E2%80%AEa",
    ],
)  # fmt: skip
def test_what_is_no_place(url: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_place(url)
    assert "ssh://[user@]host[:port]/srv/netboot" in str(caught.value)


def test_a_path_is_a_tree_on_this_machine() -> None:
    assert parse_place("/mnt/netboot") == LocalTree(Tree(Path("/mnt/netboot")))
    assert parse_place("ssh://nuc/srv/netboot", "sudo imagebuilder") == replace(
        NUC, command=("sudo", "imagebuilder")
    )


def test_the_other_shell_sees_quoted_words() -> None:
    remote = parse_remote("ssh://nuc:22/srv/net%20boot$(x)", "sudo -n imagebuilder")
    *options, dashes, host, there = remote.ssh("--channel", "a;b")
    assert options[-2:] == ["-p", "22"]
    assert "BatchMode=yes" in options
    assert (dashes, host) == ("--", "nuc")
    assert there == ("sudo -n imagebuilder receive --tree '/srv/net boot$(x)' --channel 'a;b'")
    with pytest.raises(InputError, match="is not a command"):
        parse_remote("ssh://nuc/t", "sudo 'imagebuilder")


@pytest.mark.parametrize(
    ("status", "said", "kind", "expected"),
    [
        (255, "root@nuc: Permission denied (publickey).", HostError, "ssh-copy-id"),
        (255, "Host key verification failed.", HostError, "connect once by hand"),
        (255, "ssh: connect to host nuc port 22: No route to host", HostError, "No route to host"),
        (255, "", HostError, "it printed nothing"),
        (
            255,
            "\n \n",
            HostError,
            "the connection broke, or what ran there was killed: publish again",
        ),
        (127, "sh: 1: imagebuilder: not found", HostError, "--remote-command"),
        (2, "No such command 'receive'.", HostError, "/opt/imagebuilder/bin/pip install"),
        (1, "error: a: damaged", WorkError, "nuc: a: damaged"),
        (2, "error: wrong\n  hint: do it", InputError, "nuc: wrong\n  hint: do it"),
        (3, "step: done\nerror: full\nmore\n  hint: gc", HostError, "full\n    more\n  hint: gc"),
        (1, "sudo: a password is required", WorkError, "required\n  hint: sudo cannot ask"),
        (-9, "", WorkError, "killed by signal 9"),
    ],
)
def test_failures_keep_their_kind(
    status: int, said: str, kind: type[ImagebuilderError], expected: str
) -> None:
    error = remote_failure(NUC, Completed(status, "", said))
    assert type(error) is kind
    assert expected in str(error)


def test_every_fault_comes_back() -> None:
    said = "error: one\n  hint: first\nerror: two\n"
    error = remote_failure(NUC, Completed(2, "", said))
    assert [(f.what, f.hint) for f in error.faults] == [("one", "first"), ("two", "")]


def test_an_answer_after_a_greeting() -> None:
    done = Completed(0, 'Welcome {user}\n{\n "version": "1"\n}\n', "")
    assert parse_answer(NUC, done) == {"version": "1"}
    with pytest.raises(HostError, match="did not give an answer of imagebuilder"):
        parse_answer(NUC, Completed(0, "Welcome\n", ""))


def test_what_the_other_side_says_is_a_bounded_text() -> None:
    said = "\x1b[31merror: red\x1b[2J " + "x" * 10_000 + "\nhint: a\x1b]0;b\n" * 50_000
    with pytest.raises(WorkError) as caught:
        parse_answer(NUC, Completed(1, "", said))
    text = str(caught.value)
    assert "\x1b" not in text
    assert len(text) < 20_000
    answer = {"published": {}, "said": f"a\x1b[31mb\n{'x' * 100_000}"}
    told = decode_box(Activated, answer, "nuc")
    assert told.said.startswith("ab\nxxx")
    assert len(told.said) < 20_000
    kept = decode_box(KeptReports, {"kept": ["\x1b[2J\n"], "refused": ["x" * 999]}, "nuc")
    assert kept.kept == ("\\x1b[2J\\n",)
    assert len(kept.refused[0]) == 200


@pytest.mark.parametrize(
    "change", [{"free": -1}, {"free": 10**400}, {"refs": {"image/p/1": "c" * 5000}}]
)
def test_what_a_place_has_is_of_sizes_and_commits(change: dict[str, Json]) -> None:
    good: dict[str, Json] = {"refs": {"image/p/1": "c" * 64}, "free": 1, "reports": None}
    assert decode_box(PlaceContents, good, "nuc").free == 1
    with pytest.raises(InputError):
        decode_box(PlaceContents, good | change, "nuc")


def test_bases_of_the_profile_come_first_and_new_ones_before_old_ones() -> None:
    refs = {"image/a/1": "a1", "root/a/1": "r1", "image/a/2": "a2", "root/a/2": "r2",
            "image/b/3": "b3", "root/b/3": "a1"}  # fmt: skip
    assert order_bases(refs, "a") == ["a2", "r2", "a1", "r1", "b3"]
    assert order_bases(refs, "b")[:2] == ["b3", "a1"]
    assert order_bases({}, "a") == []


def test_object_paths() -> None:
    assert object_path(A, "dirtree") == f"aa/{'a' * 62}.dirtree"


def test_sizes_are_said() -> None:
    sent = Sent(Activated({"version": "1"}, "x@1: published"), 1_300_000, 455_000_000)
    assert sent.render() == "x@1: published\nsent 1.3 MB of 455 MB"
    assert sent.as_json() == {
        "version": "1", "sent": 1_300_000, "whole": 455_000_000, "reports": [],
    }  # fmt: skip


def put_ssh(folder: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    """A program named ssh, which reaches nobody."""
    program = folder / "bin/ssh"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}:{os.environ['PATH']}")


@pytest.mark.parametrize("script", ["exec sleep 60", "while sleep 0.1; do echo '{'; done"])
def test_who_does_not_answer_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str
) -> None:
    put_ssh(tmp_path, monkeypatch, script)
    monkeypatch.setattr(ssh, "ANSWER_S", 1.0)
    with pytest.raises(HostError, match="nuc: did not answer within 1 s"):
        NUC.list(ImageRef("demo", "1", A))


def send_some(folder: Path) -> int:
    """Send 4 MiB."""
    objects = folder / "repo/objects/00"
    objects.mkdir(parents=True)
    (objects / "some").write_bytes(os.urandom(4 << 20))
    arrival = SshArrival(NUC, ["ssh"], Ui(io.StringIO()))
    return arrival.send(Store(folder / "repo"), ["00/some"])


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("exec sleep 60", "took less than 1024 KiB in 1 s"),
        ("while sleep 0.2; do head --bytes=1000 > /dev/null; done", "took less than 1024 KiB in"),
        ("cat > /dev/null; exec sleep 60", "did not end within 1 s after it had everything"),
        ("head --bytes=1000 > /dev/null; echo '{'; echo '}'", "ended without an error when it had"),
    ],
)
def test_who_takes_nothing_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, words: str
) -> None:
    put_ssh(tmp_path, monkeypatch, script)
    monkeypatch.setattr(stream, "SLOW_S", 1.0)
    monkeypatch.setattr(stream, "PUBLISH_S", 1.0)
    with pytest.raises(HostError, match=f"nuc: {words}"):
        send_some(tmp_path)


def test_a_connection_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_ssh(tmp_path, monkeypatch, "echo 'no route' >&2; exit 255")
    with pytest.raises(HostError, match="ssh failed: no route"):
        send_some(tmp_path)


def test_what_the_other_side_says_of_a_release_is_in_its_name() -> None:
    """Printed like our own lines, it could be an error or a warning of ours."""
    arrival = SshArrival(NUC, [], Ui(io.StringIO()))
    arrival.answer = {"published": {}, "said": "x@1: published\nerror: all is well\n" + "a\n" * 900}
    said = arrival.activate().said.splitlines()
    assert said[:2] == ["nuc: x@1: published", "nuc: error: all is well"]
    assert len(said) == ssh.MOST_LINES + 1
    assert said[-1] == f"nuc: … and {902 - ssh.MOST_LINES} more lines"


def test_who_answers_too_much_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_ssh(tmp_path, monkeypatch, "exec yes '{'")
    with pytest.raises(HostError, match=r"nuc: answered more than 64 MiB\n.*see what `ssh "):
        NUC.list(ImageRef("demo", "1", A))


@dataclass(frozen=True)
class Liar:
    """A place that says it kept, and refused, more than it was sent."""

    name: str = "nuc"
    keeps_reports: bool = True

    def add_reports(self, image: ImageRef, lines: bytes, ui: Ui) -> KeptReports:
        del image, lines, ui
        return KeptReports(("fake", "20261121T100001Z", *map(str, range(500))), ("no",) * 500)


def test_of_boot_tests_only_those_that_were_sent_are_believed(tmp_path: Path) -> None:
    tree = node_tree(tmp_path)
    plant(tree, make_report(tree, "generic@v1", 1))
    image, said = ImageRef("generic", "v1", A), io.StringIO()
    there = PlaceContents({}, 1, ())
    kept = send_reports(cast("Transport", Liar()), tree, image, there, Ui(said))
    assert kept == ("20261121T100001Z",)
    assert said.getvalue().count("warning: nuc: no") == 1


@pytest.mark.parametrize("other", [{"version": "2"}, {"profile": "evil", "version": "1"}])
def test_an_answer_about_another_release_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, other: dict[str, Json]
) -> None:
    put_ssh(tmp_path, monkeypatch, "exit 9")
    with pytest.raises(
        HostError, match="nuc:/srv/netboot: answered about another release than d@1"
    ):
        check_arrived(NUC, ImageRef("d", "1", A), Activated({"profile": "d", **other}, ""))
