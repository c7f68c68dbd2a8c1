# SPDX-License-Identifier: Apache-2.0
"""Two boots by value: what a reboot changes, in words, and what nobody can know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType

from imagebuilder.drift.compare import compare_boots, differences
from imagebuilder.drift.show import render_drift
from imagebuilder.drift.types import PARTS, BootContent, DriftState, NodeBoot, NodeDrift, Reboot
from imagebuilder.image.types import BootFile, ImageBoot, ImageKernel
from imagebuilder.nodes.config import NodeConfig
from imagebuilder.rootkind import RootKind
from imagebuilder.tree import ReleaseName
from tests.images import IMAGE, packages_of

ONE, TWO = ReleaseName("demo", "1"), ReleaseName("demo", "2")
CONTENT = BootContent(replace(IMAGE, packages=packages_of({"libc6": "2.43"})), "r1")


def content(
    root: str = "r1",
    *,
    pair: tuple[str, str] = ("k1", "i1"),
    kernel: str = "6.12.1",
    kind: RootKind = "nfs",
    words: tuple[str, ...] = ("ip=dhcp", "quiet"),
    packages: Mapping[str, str] = MappingProxyType({"libc6": "2.43"}),
) -> BootContent:
    """CONTENT with other parts."""
    vmlinuz, initrd = (BootFile(sha256, 1) for sha256 in pair)
    image = replace(
        IMAGE,
        kernel=ImageKernel(kernel, vmlinuz, initrd),
        boot=ImageBoot(kind, words),
        packages=packages_of(packages),
    )
    return BootContent(image, root)


CONFIG = NodeConfig(("console=tty0", "debug"), "", {"/etc/hostname": "-0644 0:0 aa"})
OLD = NodeBoot(ONE, CONTENT, CONFIG)
NEW = NodeBoot(TWO, CONTENT, CONFIG)


def why(old: NodeBoot, new: NodeBoot) -> dict[str, tuple[str, ...]]:
    """The reasons of every part that is not the same."""
    parts = compare_boots(old, new)
    return {name: parts[name].why for name in PARTS if parts[name].state != DriftState.SAME}


def test_another_name_of_the_same_content_is_no_change() -> None:
    assert why(OLD, NEW) == {}


def test_each_part_changes_by_itself() -> None:
    kernel = content(pair=("k2", "i1"), kernel="6.12.2")
    assert why(OLD, replace(NEW, content=kernel)) == {"kernel": ("kernel 6.12.1 -> 6.12.2",)}
    rebuilt = content(pair=("k2", "i2"))
    assert why(OLD, replace(NEW, content=rebuilt)) == {
        "kernel": ("a different vmlinuz", "a different initrd.img")
    }
    first = replace(CONTENT.image.kernel, early=BootFile("e1", 1))
    early = BootContent(replace(CONTENT.image, kernel=first), CONTENT.root)
    assert why(OLD, replace(NEW, content=early)) == {"kernel": ("a different early.img",)}
    root = content("r2")
    assert why(OLD, replace(NEW, content=root)) == {
        "root": ("root: the same packages, but different files",)
    }
    words = content(words=("quiet", "ip=dhcp"))
    assert why(OLD, replace(NEW, content=words)) == {
        "cmdline": ("in another order: quiet ip=dhcp",)
    }
    config = replace(CONFIG, words=("console=tty0", "panic=5"))
    assert why(OLD, replace(NEW, config=config)) == {"cmdline": ("without debug", "with panic=5")}
    assert why(OLD, replace(NEW, config=replace(CONFIG, root="http"))) == {
        "cmdline": ("root over nfs -> http",)
    }
    assert why(OLD, replace(NEW, config=replace(CONFIG, root="nfs"))) == {}


def test_packages_tell_how_a_root_differs() -> None:
    more = {"libc6:amd64": "2.44", "a:all": "1", "b:all": "1", "c:all": "1"}
    other = content("r2", packages=more)
    told = "root: 4 packages: a:all - -> 1, b:all - -> 1, c:all - -> 1 and 1 more"
    assert why(OLD, replace(NEW, content=other)) == {"root": (told,)}


def test_files_are_told_by_path_and_kind_of_change() -> None:
    lines = {
        "/a": ("-0644 0:0 aa", "-0644 0:0 bb"),
        "/b": ("-0644 0:0 aa", "-0600 0:0 aa"),
        "/c": ("-0644 0:0 aa", "-0644 1000:0 aa"),
        "/d": ("-0644 0:0 aa", "d0755 0:0"),
        "/e": ("l0777 0:0 a b", "l0777 0:0 a c"),
        "/g": ("d0755 0:0", "d0700 1:1"),
    }
    old = {path: line for path, (line, _) in lines.items()} | {"/gone": "d0755 0:0"}
    new = {path: line for path, (_, line) in lines.items()} | {"/come": "d0755 0:0"}
    parts = why(
        replace(OLD, config=replace(CONFIG, files=old)),
        replace(NEW, config=replace(CONFIG, files=new)),
    )
    assert parts == {
        "files": (
            "/a changed", "/b mode 0644 -> 0600", "/c owner 0:0 -> 1000:0", "/come added",
            "/d changed", "/e changed", "/g mode 0755 -> 0700, owner 0:0 -> 1:1", "/gone removed",
        )
    }  # fmt: skip


def test_what_a_node_never_told_is_unknown_and_never_the_same() -> None:
    old = replace(OLD, config=None, no_config="booted before")
    assert why(old, NEW) == {"cmdline": ("booted before",), "files": ("booted before",)}
    # The release's part of the command line is known all the same.
    other = replace(NEW, content=content(words=()))
    parts = compare_boots(old, other)
    assert (parts["cmdline"].state, parts["files"].state) == (
        DriftState.CHANGES,
        DriftState.UNKNOWN,
    )


def test_a_release_that_is_gone_is_unknown_unless_it_is_the_same() -> None:
    gone = replace(OLD, content=None)
    parts = compare_boots(gone, NEW)
    states = [parts[name].state for name in PARTS]
    assert states == [DriftState.UNKNOWN, DriftState.UNKNOWN, DriftState.UNKNOWN, DriftState.SAME]
    assert why(gone, replace(gone, config=CONFIG)) == {}


def drift(old: NodeBoot, new: NodeBoot) -> NodeDrift:
    """The answer for a node of that name."""
    return NodeDrift("n1", old.release, "", new.release, compare_boots(old, new))


def test_one_change_is_enough_and_one_doubt_leaves_no_no() -> None:
    assert drift(OLD, NEW).reboot is Reboot.NO
    doubt = replace(OLD, config=None)
    assert drift(doubt, NEW).reboot is Reboot.UNKNOWN
    assert drift(doubt, replace(NEW, content=content("r2"))).reboot is Reboot.YES


def test_a_person_sees_a_line_and_then_why() -> None:
    changed = replace(NEW, content=content(pair=("k2", "i1"), kernel="6.12.2"))
    said = render_drift([drift(OLD, changed), drift(OLD, OLD)], []).splitlines()
    assert said[0].split() == ["node", "running", "would", "boot", *PARTS, "reboot"]
    assert said[1].split() == ["n1", "demo@1", "demo@2", "changes", "same", "same", "same", "yes"]
    assert said[2].split()[:4] == ["n1", "demo@1", "the", "same"]
    assert said[3:] == ["", "n1:", "  kernel: kernel 6.12.1 -> 6.12.2"]


def test_releases_differ_in_words() -> None:
    assert differences(CONTENT, CONTENT) == ()
    assert differences(CONTENT, content(kind="http", words=("ip=dhcp",))) == (
        "command line without quiet", "root over nfs -> http",
    )  # fmt: skip
