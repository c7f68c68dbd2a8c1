# SPDX-License-Identifier: Apache-2.0
"""What the web server has for nodes: its own files, made once and the same ever after."""

from __future__ import annotations

import io
import json
import os
import stat
from pathlib import Path

import pytest

from imagebuilder.cpio import Entry, render_cpio
from imagebuilder.errors import HostError, InputError
from imagebuilder.nodes import files
from imagebuilder.nodes.files import (
    Access,
    find_access,
    make_entry,
    read_offers,
    update_menu,
    update_nodes,
)
from imagebuilder.process import run
from imagebuilder.publish.find import changing
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui
from tests.unit.nodes_world import MAC1, MAC2, Packed, move_channel, node_tree, unpack

ETC = "imagebuilder/node/etc"
KEY = f"{ETC}/ssh/ssh_host_ed25519_key"
FILE = f"""\
nodes:
  node1: {{macs: ['{MAC1}', '{MAC2}'], profile: generic, vars: {{b: [x], a: 1}}}}
"""
TWO = FILE + "  node2: {macs: ['52:54:00:77:00:03'], profile: rx, version: v1}\n"


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    tree = node_tree(tmp_path)
    tree.nodes_file.write_text(FILE)
    return tree


def image(tree: Tree, mac: str = MAC1) -> dict[str, Packed]:
    """The files of a node as its kernel unpacks them."""
    return dict(unpack((tree.served_node(mac) / "node.img").read_bytes()))


def served(tree: Tree) -> dict[str, tuple[bytes, int]]:
    """Everything that is served to nodes, with when it was written."""
    folder = tree.http / "nodes"
    return {
        os.fspath(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_a_node_gets_its_name_its_id_its_key_and_its_vars(tree: Tree) -> None:
    update_nodes(tree)
    packed = image(tree)
    files = {path: each for path, each in packed.items() if stat.S_ISREG(each.mode)}
    assert {path: oct(stat.S_IMODE(each.mode)) for path, each in files.items()} == {
        f"{ETC}/hostname": "0o644",
        f"{ETC}/imagebuilder/vars.json": "0o644",
        f"{ETC}/machine-id": "0o444",
        KEY: "0o600",
        f"{KEY}.pub": "0o644",
    }
    assert {(each.owner, each.group) for each in packed.values()} == {(0, 0)}
    assert files[f"{ETC}/hostname"].content == b"node1\n"
    assert json.loads(files[f"{ETC}/imagebuilder/vars.json"].content) == {"a": 1, "b": ["x"]}
    kept = tree.kept_node("node1")
    assert files[KEY].content == (kept / "ssh_host_ed25519_key").read_bytes()
    machine_id = files[f"{ETC}/machine-id"].content.decode()
    assert len(machine_id) == 33
    for mac in (MAC1, MAC2):
        script = (tree.served_node(mac) / "boot.ipxe").read_text()
        assert f" systemd.machine_id={machine_id.strip()} " in f"{script} ".replace("\n", " ")
    assert image(tree, MAC2) == packed


def test_the_private_key_fits_the_public_one(tree: Tree, tmp_path: Path) -> None:
    update_nodes(tree)
    packed = image(tree)
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_bytes(packed[KEY].content)
    public = run(["ssh-keygen", "-y", "-f", key]).stdout
    assert public.encode() == packed[f"{KEY}.pub"].content


def test_a_second_run_writes_nothing(tree: Tree) -> None:
    update_nodes(tree)
    before = served(tree)
    update_nodes(tree)
    assert served(tree) == before


def test_two_nodes_share_nothing_and_keep_what_they_have(tree: Tree) -> None:
    update_nodes(tree)
    first = image(tree)
    tree.nodes_file.write_text(TWO)
    update_nodes(tree)
    other = image(tree, "52:54:00:77:00:03")
    assert image(tree) == first
    assert not {each.content for each in first.values() if each.content} & {
        other[path].content for path in (KEY, f"{KEY}.pub", f"{ETC}/machine-id", f"{ETC}/hostname")
    }


def test_what_a_removed_node_had_goes_and_its_key_stays(tree: Tree) -> None:
    tree.nodes_file.write_text(TWO)
    update_nodes(tree)
    (tree.http / "nodes/README").touch()
    tree.nodes_file.write_text(FILE.replace(f", '{MAC2}'", ""))
    update_nodes(tree)
    names = sorted(path.name for path in (tree.http / "nodes").iterdir())
    assert names == [MAC1.replace(":", "-"), "README"]
    assert (tree.kept_node("node2") / "ssh_host_ed25519_key").is_file()


def test_fixed_addresses_are_in_hosts_and_in_known_hosts(tree: Tree) -> None:
    tree.nodes_file.write_text(TWO.replace("profile: rx", "profile: rx, address: 10.0.0.2"))
    update_nodes(tree)
    hosts = image(tree)[f"{ETC}/hosts"].content.decode()
    # The image's lines, which this replaces, and the nodes.
    overlay = Path(__file__).parents[2] / "overlays/compute-node/files/etc/hosts"
    assert hosts == overlay.read_text() + "10.0.0.2\tnode2\n"
    known = [line.split() for line in (tree.serve / "known_hosts").read_text().splitlines()]
    assert [line[:2] for line in known] == [
        ["node1", "ssh-ed25519"], ["node2,10.0.0.2", "ssh-ed25519"],
    ]  # fmt: skip
    found = run(["ssh-keygen", "-F", "10.0.0.2", "-f", tree.serve / "known_hosts"]).stdout
    assert known[1][2] in found


def test_more_files_of_a_node_keep_their_modes_and_win(tree: Tree) -> None:
    own = tree.path / "own/node1"
    (own / "etc/slurm").mkdir(parents=True)
    (own / "etc/slurm").chmod(0o750)
    for name, mode in (("etc/slurm/key", 0o400), ("etc/hostname", 0o640)):
        (own / name).write_text(name)
        (own / name).chmod(mode)
    (own / "etc/link").symlink_to("../x")
    tree.nodes_file.write_text(FILE.replace("vars", "files: own/node1, vars"))
    update_nodes(tree)
    packed = image(tree)
    assert packed[f"{ETC}/slurm"].mode == stat.S_IFDIR | 0o750
    assert packed[f"{ETC}/slurm/key"] == Packed(
        stat.S_IFREG | 0o400, os.getuid(), os.getgid(), b"etc/slurm/key"
    )
    assert packed[f"{ETC}/hostname"].content == b"etc/hostname"
    assert packed[f"{ETC}/link"].content == b"../x"
    assert stat.S_ISLNK(packed[f"{ETC}/link"].mode)


@pytest.mark.parametrize("name", ["run/x", "tmp/x", "fifo"])
def test_files_a_node_cannot_take_are_refused_and_nothing_changes(tree: Tree, name: str) -> None:
    update_nodes(tree)
    before = served(tree)
    own = tree.path / "own/node1"
    (own / name).parent.mkdir(parents=True)
    (os.mkfifo if name == "fifo" else Path.touch)(own / name)
    tree.nodes_file.write_text(FILE.replace("vars", "files: own/node1, vars"))
    with pytest.raises(InputError, match=r"own/node1"):
        update_nodes(tree)
    assert served(tree) == before


def test_a_folder_that_is_not_there_is_named(tree: Tree) -> None:
    tree.nodes_file.write_text(FILE.replace("vars", "files: own/x, vars"))
    with pytest.raises(InputError, match=r"own/x: cannot be read: No such file"):
        update_nodes(tree)


def test_private_keys_are_for_root_and_the_web_server(
    tree: Tree, monkeypatch: pytest.MonkeyPatch
) -> None:
    update_nodes(tree)
    kept = tree.kept_node("node1")
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in kept.iterdir()}
    assert modes == {
        "ssh_host_ed25519_key": 0o600, "ssh_host_ed25519_key.pub": 0o644, "machine-id": 0o444,
    }  # fmt: skip
    assert {stat.S_IMODE(path.stat().st_mode) for path in (kept, kept.parent)} == {0o700}

    # With a group of the web server, and without one.
    for access in (Access(0o750, 0o640, os.getgid()), Access(0o755, 0o644)):
        monkeypatch.setattr("imagebuilder.nodes.files.find_access", lambda given=access: given)
        update_nodes(tree)
        folder = tree.served_node(MAC1)
        assert stat.S_IMODE((folder / "node.img").stat().st_mode) == access.secret
        assert stat.S_IMODE(folder.stat().st_mode) == access.folder


def test_without_a_group_of_the_web_server_all_may_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "WEB_GROUPS", ("nobody-has-this-group",))
    assert find_access() == Access(0o755, 0o644, -1)


@pytest.mark.parametrize("name", ["ssh_host_ed25519_key", "machine-id"])
def test_a_damaged_identity_is_not_given_to_a_node(tree: Tree, name: str) -> None:
    update_nodes(tree)
    before = served(tree)
    kept = tree.kept_node("node1") / name
    kept.chmod(0o600)
    kept.write_text("")
    with pytest.raises(HostError, match=f"{name}: damaged"):
        update_nodes(tree)
    assert served(tree) == before


def test_what_is_missing_of_an_identity_is_made_and_no_more(tree: Tree) -> None:
    update_nodes(tree)
    before = served(tree)
    kept = tree.kept_node("node1")
    (kept / "ssh_host_ed25519_key.pub").unlink()
    (kept / ".new").mkdir()  # what a killed command leaves
    (kept / ".machine-id.new").touch()
    update_nodes(tree)
    assert {name: each[0] for name, each in served(tree).items()} == {
        name: each[0] for name, each in before.items()
    }


def test_a_wrong_nodes_file_leaves_everything(tree: Tree) -> None:
    update_nodes(tree)
    before = served(tree)
    tree.nodes_file.write_text(FILE + "x: 1\n")
    with pytest.raises(InputError):
        update_nodes(tree)
    assert served(tree) == before


def test_the_menu_follows_the_channels(tree: Tree) -> None:
    update_nodes(tree)
    menu = tree.http / "menu.ipxe"
    assert "profile-generic generic (stable)" in menu.read_text()
    assert "profile-rx" not in menu.read_text()
    move_channel(tree, "rx", "candidate", "v1")
    tree.channel("generic", "stable").unlink()
    update_menu(tree)
    assert "profile-rx rx (candidate)" in menu.read_text()
    assert "profile-generic generic (candidate)" in menu.read_text()
    assert "live-ubuntu" in menu.read_text()
    assert read_offers(tree) == (("generic", "candidate"), ("rx", "candidate"))


def test_a_menu_that_a_killed_command_left_behind_follows_with_the_next(tree: Tree) -> None:
    assert read_offers(tree) == ()
    update_nodes(tree)
    menu = tree.http / "menu.ipxe"
    move_channel(tree, "rx", "candidate", "v1")  # and then it was killed
    with changing(tree, Ui(io.StringIO())):
        assert "profile-rx" not in menu.read_text()
    assert "profile-rx rx (candidate)" in menu.read_text()


def test_a_key_in_the_making_that_a_killed_command_left_is_removed(tree: Tree) -> None:
    update_nodes(tree)
    left = tree.kept_node("node1") / ".new"
    left.mkdir()
    (left / "ssh_host_ed25519_key").write_text("private")
    update_nodes(tree)
    assert not left.exists()


def test_the_entry_names_the_server(tree: Tree) -> None:
    make_entry(tree, "10.0.0.1", 8080)
    lines = (tree.http / "boot.ipxe").read_text().splitlines()
    assert {
        "set server 10.0.0.1", "set http http://10.0.0.1:8080", f"set roots {tree.roots}",
        "set report ${http}/report",
    } <= set(lines)  # fmt: skip


def test_an_archive_has_every_folder_before_what_is_in_it() -> None:
    entries = [
        Entry("b/c/d", b"x"),
        Entry("a", link="b"),
        Entry("b", kind=stat.S_IFDIR, mode=0o700),
    ]
    packed = dict(unpack(render_cpio(entries)))
    assert list(packed) == ["b", "b/c", "b/c/d", "a"]
    assert packed["b"].mode == stat.S_IFDIR | 0o700
