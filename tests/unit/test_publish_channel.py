# SPDX-License-Identifier: Apache-2.0
"""Channels, names, files' checks and the boot script, on releases made by hand."""

from __future__ import annotations

import io
import os
import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.digest import digest_of_file
from imagebuilder.errors import HostError, InputError, WorkError
from imagebuilder.files import exchange, make_folder, point_link
from imagebuilder.image.types import BootFile, ImageBoot, ImageRoot
from imagebuilder.nodes.show import root_word
from imagebuilder.publish.channel.gate import Passage
from imagebuilder.publish.channel.move import Moved, promote, rollback
from imagebuilder.publish.find import find_release, find_releases, open_tree
from imagebuilder.publish.journal import KEEP, UNKEEP, read_tail
from imagebuilder.publish.release.content import (
    DamagedError,
    check_release,
    check_staged,
    read_identities,
    read_sums,
    render_sums,
)
from imagebuilder.publish.release.stage import check_cmdline, render_script
from imagebuilder.publish.removal import keep_release
from imagebuilder.publish.space import space_needed
from imagebuilder.tree import FOLDERS, ReleaseName, Tree, make_tree
from imagebuilder.ui import Ui
from tests.images import IMAGE, put_manifest
from tests.planted_roots import plant_root

BOOTED = replace(IMAGE, version="20260101-aa")


UNTESTED = "the gate is the affair of another test"


def quiet() -> Ui:
    return Ui(io.StringIO())


def force(tree: Tree, name: str) -> Moved:
    """Promote without a boot test."""
    return promote(tree, name, quiet(), untested=UNTESTED)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    """Three releases made by hand."""
    tree = make_tree(tmp_path / "netboot")
    for version in ("20260101-aa", "20260102-ab", "20260103-ba"):
        make_release(tree, version)
    return tree


def make_release(tree: Tree, version: str, profile: str = "demo") -> None:
    """A release with the files every release has."""
    folder = tree.release(ReleaseName(profile, version))
    folder.mkdir(parents=True)
    names = ("vmlinuz", "early.img", "initrd.img", "boot.ipxe", "manifest.json")
    for name in names[:-1]:
        (folder / name).write_text(f"{name} {version}")
    root = ImageRoot(plant_root(tree, profile, version), "", 0)
    put_manifest(folder, replace(IMAGE, profile=profile, version=version, root=root))
    sums = {name: digest_of_file(folder / name) for name in names}
    (folder / "SHA256SUMS").write_text(render_sums(sums))


def test_promote_takes_what_is_named_and_rollback_goes_back(tree: Tree) -> None:
    assert (
        force(tree, "demo@20260101-aa")
        .render()
        .endswith(f"its first release; untested: {UNTESTED}")
    )
    moved = force(tree, "demo@ab")
    assert moved == Moved("demo", "stable", "20260102-ab", "20260101-aa", Passage(reason=UNTESTED))
    assert promote(tree, "demo@ab", quiet()).render() == "demo: stable is already 20260102-ab"
    link = tree.channel("demo", "stable")
    assert os.fspath(link.readlink()) == "../../http/releases/demo/20260102-ab"
    assert (link / "vmlinuz").read_text() == "vmlinuz 20260102-ab"
    assert rollback(tree, "demo", quiet()).version == "20260101-aa"
    assert len(tree.journal.read_text().splitlines()) == 3


WRONG = {
    "demo": "demo has no candidate",
    "demo@2026": "more than one release of demo matches '2026'",
    "demo@zz": "no release of demo matches 'zz'",
    "nope": "profile nope has no release in ",
    "": "profile  has no release in ",
    "../releases/demo@aa": "profile ../releases/demo has no release in ",
    "..": "profile .. has no release in ",
}


@pytest.mark.parametrize(("name", "what"), WRONG.items())
def test_names_that_lead_nowhere(tree: Tree, name: str, what: str) -> None:
    with pytest.raises(InputError, match=re.escape(what)) as caught:
        promote(tree, name, quiet())
    assert caught.value.faults[0].hint
    assert sorted(p.name for p in (tree.path / "locks").iterdir()) in ([], ["channel-demo", "gc"])


def test_a_rollback_without_a_past(tree: Tree) -> None:
    with pytest.raises(InputError, match="the profile has no stable release"):
        rollback(tree, "demo", quiet())
    force(tree, "demo@ab")
    with pytest.raises(InputError, match="no release that was stable before 20260102-ab"):
        rollback(tree, "demo", quiet())
    with pytest.raises(InputError, match="is a version, not a profile"):
        rollback(tree, "demo@ab", quiet())


def test_what_a_killed_command_left_is_in_nobodys_way(tree: Tree) -> None:
    link = tree.channel("demo", "stable")
    link.parent.mkdir(parents=True)
    (link.parent / ".stable.new").symlink_to("nowhere")
    force(tree, "demo@ab")
    assert [path.name for path in link.parent.iterdir()] == ["stable"]


def test_folders_that_begin_with_a_dot_are_no_releases(tree: Tree) -> None:
    tree.release(ReleaseName("demo", ".hidden")).mkdir()
    assert len(find_releases(tree)) == 3


def test_a_tree_that_is_none(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="the netboot tree does not exist"):
        open_tree(tmp_path / "nope")


def test_a_tree_that_was_cut_off_while_made_is_none_until_it_is_completed(tmp_path: Path) -> None:
    for name in FOLDERS[:-1]:
        make_folder(tmp_path / name)
        with pytest.raises(InputError, match="the netboot tree does not exist"):
            open_tree(tmp_path)
    assert open_tree(make_tree(tmp_path).path).path == tmp_path
    assert all((tmp_path / name).is_dir() for name in FOLDERS)


def test_an_exact_version_wins(tree: Tree) -> None:
    make_release(tree, "20260101-aa1")
    assert find_release(tree, "demo@20260101-aa").version == "20260101-aa"


def test_files_are_read_again_only_when_they_changed(tree: Tree) -> None:
    check_release(tree, ReleaseName("demo", "20260101-aa"))
    known = read_identities(tree, ReleaseName("demo", "20260101-aa"))
    assert set(known) == {"vmlinuz", "early.img", "initrd.img", "manifest.json", "boot.ipxe"}
    path = tree.release(ReleaseName("demo", "20260101-aa")) / "vmlinuz"
    content, info = path.read_text(), path.stat()
    path.write_text("x" * len(content))
    os.utime(path, ns=(info.st_atime_ns, info.st_mtime_ns))  # the change time tells all the same
    with pytest.raises(DamagedError, match=f"{path}: does not match its line in SHA256SUMS"):
        check_release(tree, ReleaseName("demo", "20260101-aa"))


@pytest.mark.parametrize("record", ["{", "[]", "7", '{"vmlinuz": "x"}'])
def test_a_damaged_record_is_no_obstacle(tree: Tree, record: str) -> None:
    check_release(tree, ReleaseName("demo", "20260101-aa"))
    tree.verified(ReleaseName("demo", "20260101-aa")).write_text(record)
    check_release(tree, ReleaseName("demo", "20260101-aa"))


def test_every_damaged_file_is_named(tree: Tree) -> None:
    folder = tree.release(ReleaseName("demo", "20260101-aa"))
    (folder / "vmlinuz").unlink()
    (folder / "initrd.img").write_text("x")
    with pytest.raises(DamagedError) as caught:
        check_release(tree, ReleaseName("demo", "20260101-aa"))
    assert [Path(f.where).name for f in caught.value.faults] == ["initrd.img", "vmlinuz"]


def test_a_release_without_its_root_is_damaged(tree: Tree) -> None:
    tree.root(ReleaseName("demo", "20260101-aa")).rmdir()
    with pytest.raises(DamagedError, match="roots/demo/20260101-aa: is missing"):
        promote(tree, "demo@aa", quiet())


def test_what_reads_back_differently_is_told(tree: Tree) -> None:
    folder = tree.release(ReleaseName("demo", "20260101-aa"))
    check_staged(folder, read_sums(folder))
    (folder / "initrd.img").write_text("x")
    with pytest.raises(WorkError, match=r"initrd\.img: differs from the image when read back"):
        check_staged(folder, read_sums(folder))


def test_exchange_swaps_and_says_why_not(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for folder in (one, other):
        folder.mkdir()
        (folder / folder.name).touch()
    exchange(one, other)
    assert (one / "other").exists()
    with pytest.raises(FileNotFoundError, match="nope"):
        exchange(one, tmp_path / "nope")


def test_a_link_is_replaced_in_one_step(tmp_path: Path) -> None:
    for target in ("a", "b"):
        point_link(tmp_path / "link", target)
    assert [(p.name, os.fspath(p.readlink())) for p in tmp_path.iterdir()] == [("link", "b")]


def test_a_full_disk_is_the_hosts_fault(tmp_path: Path) -> None:
    with pytest.raises(HostError, match="disk is full") as caught, space_needed(tmp_path):
        Path("/dev/full").write_text("x")
    assert "gc --releases" in caught.value.faults[0].hint
    with pytest.raises(FileNotFoundError), space_needed(tmp_path):
        (tmp_path / "nope").read_text()


def test_a_script_names_its_version_and_no_channel() -> None:
    text = render_script(BOOTED)
    assert text.startswith("#!ipxe\n")
    assert text.count("20260101-aa") >= 4
    assert "channels" not in text
    assert "stable" not in text
    assert "{{" not in text
    (plain, with_files) = (line for line in text.splitlines() if line.startswith("kernel "))
    assert " ip=dhcp quiet ${root-word} ${report-word} ${node-args} initrd=initrd.img " in plain
    assert " initrd=initrd.img initrd=node.img " in with_files


def test_the_first_part_of_the_initrd_comes_first() -> None:
    kernel = replace(BOOTED.kernel, early=BootFile("e1", 1))
    lines = render_script(replace(BOOTED, kernel=kernel)).splitlines()
    (plain, with_files) = (number for number, line in enumerate(lines) if line.startswith("kernel"))
    assert " ${node-args} initrd=early.img initrd=initrd.img ||" in lines[plain]
    assert " initrd=early.img initrd=initrd.img initrd=node.img ||" in lines[with_files]
    fetched = [line.split()[2] for line in lines if line.startswith("initrd --name ")]
    assert fetched == ["early.img", "initrd.img", "early.img", "initrd.img", "node.img"]


def root_word_of(script: str, kind: str) -> str:
    """The root= that iPXE comes to with this kind of root: it follows the script's jumps."""
    lines = [line for line in script.splitlines() if line and not line.startswith("#")]
    at, word = 0, ""
    while lines[at] != ":report":
        jump = re.fullmatch(r"iseq \$\{root-kind\} (\S+) && goto (\w+) \|\|", lines[at])
        plain = re.fullmatch(r"goto (\w+)", lines[at])
        if lines[at].startswith("set root-word "):
            word = lines[at].removeprefix("set root-word ")
        if plain or (jump and jump[1] == kind):
            at = lines.index(f":{plain[1] if plain else jump[2] if jump else ''}")
        else:
            at += 1
    return word


@pytest.mark.parametrize(
    ("kind", "word"),
    [
        ("nfs", "root=nfs4:${server}:${roots}/demo/20260101-aa"),
        ("nfs-squashfs", "root=nfs4:${server}:${roots}/demo/20260101-aa.squashfs"),
        ("http", "root=${http}/releases/demo/20260101-aa/root.squashfs"),
        ("http-erofs", "root=${http}/releases/demo/20260101-aa/root.erofs"),
    ],
)
def test_the_script_and_what_is_shown_of_a_node_name_the_same_root(kind: str, word: str) -> None:
    found = root_word_of(render_script(BOOTED), kind)
    for name, value in (
        ("release-url", "${http}/releases/${release-path}"), ("release-path", "demo/20260101-aa")
    ):  # fmt: skip
        found = found.replace(f"${{{name}}}", value)
    assert found == word
    tree = Tree(Path("/tree"))
    shown = root_word(tree, "demo/20260101-aa", kind)
    assert f"root={shown}".replace("/tree/roots", "${roots}") == word


def test_every_label_of_the_script_exists() -> None:
    text = render_script(BOOTED)
    labels = set(re.findall(r"^:(\w+)$", text, re.MULTILINE))
    assert set(re.findall(r"goto (\w+)", text)) == labels


@pytest.mark.parametrize("word", ["a=${net0/mac}", "&&", "||", ";", "#", "#debug"])
def test_words_that_ipxe_would_change_are_refused(word: str) -> None:
    with pytest.raises(InputError, match="iPXE would change the word"):
        check_cmdline(replace(IMAGE, boot=ImageBoot("nfs", (word,))))


def test_many_who_keep_one_release_and_take_that_back_do_so_in_turn(tree: Tree) -> None:
    def keep(off: bool) -> None:  # noqa: FBT001 - what the pool passes
        keep_release(tree, "demo@20260101-aa", quiet(), off=off)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(keep, [False, True] * 40))
    events = [event.event for event in read_tail(tree.journal)]
    assert events == ([KEEP, UNKEEP] * len(events))[: len(events)]
    assert tree.kept(ReleaseName("demo", "20260101-aa")).exists() is (events[-1] == KEEP)
