# SPDX-License-Identifier: Apache-2.0
"""The program as its user uses it, on a real `generic`."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from imagebuilder.process import run
from imagebuilder.store.kept_tree import find_trees
from imagebuilder.ui import format_count
from tests.integration.changes import leftovers, linked, refs
from tests.workshop import Workshop

pytestmark = pytest.mark.root

CHANGED = "usr/libexec/llama-cpp/find-gpus"


@dataclass(frozen=True)
class Change:
    """A project with one changed file of its last overlay, and the images before and after."""

    shop: Workshop
    old: str
    new: str
    plan: dict[str, Any]
    explained: str

    def json(self, *words: str) -> Any:  # noqa: ANN401 - JSON
        """What a command says with --json."""
        return json.loads(self.shop(*words, "--json").stdout)


@pytest.fixture(scope="module")
def change(workshop: Workshop, tmp_path_factory: pytest.TempPathFactory) -> Change:
    """Change a file, plan, build."""
    shop = linked(workshop, tmp_path_factory.mktemp("change"))
    old = json.loads(shop("build", "generic", "--locked", "--json").stdout)
    assert not old["new"]
    path = shop.project / "overlays/llama-cpp/files" / CHANGED
    path.write_text(path.read_text() + "# changed\n")
    plan = json.loads(shop("plan", "generic", "--json").stdout)
    explained = shop("plan", "generic", "--explain").stdout
    new = json.loads(shop("build", "generic", "--locked", "--json").stdout)
    assert new["new"]
    return Change(shop, old["image"], new["image"], plan, explained)


def test_nothing_changed_is_a_no_op(workshop: Workshop) -> None:
    before = refs(workshop.state)
    done = workshop("build", "generic", "--locked")
    assert done.stdout.startswith("generic@")
    assert done.stdout.endswith(" is already in the store: nothing changed\n")
    assert done.stderr == ""
    said = json.loads(workshop("build", "generic", "--locked", "--json").stdout)
    assert not said["new"]
    assert "nothing to build" in workshop("plan", "generic").stdout
    assert refs(workshop.state) == before
    assert leftovers(workshop.state) == []


def test_dry_run_shows_the_plan_and_stops(workshop: Workshop) -> None:
    before = refs(workshop.state)
    assert "nothing to build" in workshop("build", "generic", "--dry-run").stdout
    planned = json.loads(workshop("build", "generic", "--dry-run", "--json").stdout)
    assert planned["ready"]
    assert {step["action"] for step in planned["steps"]} == {"REUSE"}
    assert refs(workshop.state) == before


def test_plan_says_which_file_changed(change: Change) -> None:
    built = {step["title"]: step["reason"] for step in change.plan["steps"]
             if step["action"] == "BUILD"}  # fmt: skip
    assert built == {
        "configure llama-cpp": f"files /{CHANGED} changed",
        "finalise": "configure llama-cpp, below it, changed",
    }
    version = change.old.partition("@")[2]
    others = {step["reason"] for step in change.plan["steps"] if step["action"] == "REUSE"}
    assert others == {f"no input changed since {version}"}
    assert f"{change.new}: 2 of {len(change.plan['steps'])} steps to build\n" in change.explained
    assert f"  files /{CHANGED} changed\n" in change.explained
    assert not change.plan["ready"]


def test_both_images_are_listed(change: Change) -> None:
    listed = change.json("images")
    names = [f"{i['profile']}@{i['version']}" for i in listed]
    assert names[-2:] == [change.old, change.new]
    assert len({i["commit"] for i in listed}) == len(listed)
    assert listed[-1]["packages"] == len(change.json("show", "generic")["packages"])
    text = change.shop("images").stdout.splitlines()
    assert text[0].split() == ["image", "built", "root", "kernel", "packages"]
    assert [line.split()[0] for line in text[1:]] == names


def test_show(change: Change) -> None:
    newest = change.json("show", "generic")
    assert newest == change.json("show", change.new)
    assert f"{newest['profile']}@{newest['version']}" == change.new
    older = change.json("show", change.old)
    assert older["root"]["commit"] != newest["root"]["commit"]
    digest = change.old.partition("-")[2]
    assert change.json("show", f"generic@{digest}") == older, "the end of a version is enough"
    text = change.shop("show", change.old).stdout
    for words in (
        change.old,
        older["kernel"]["release"],
        "configure llama-cpp",
        "largest packages",
    ):
        assert words in text


def test_diff(change: Change) -> None:
    found = change.json("diff", change.old, change.new)
    assert found["inputs"] == [f"configure llama-cpp: files /{CHANGED} changed"]
    assert (found["old"], found["new"]) == (change.old, change.new)
    assert found["root-changed"]
    assert found["packages"] == []
    assert not found["same"]
    assert not found["initrd-changed"]
    assert found["root-size"]["new"] - found["root-size"]["old"] == len("# changed\n")
    text = change.shop("diff", change.old, change.new).stdout
    assert text.splitlines()[0] == f"{change.old} -> {change.new}"
    assert f"files /{CHANGED} changed" in text
    assert "are the same" in change.shop("diff", change.new, "generic").stdout
    assert change.json("diff", change.new, "generic")["same"]


def test_shell_sees_the_image_and_throws_changes_away(change: Change) -> None:
    shop = change.shop
    before = refs(shop.state)
    look = f"tail -n 1 /{CHANGED}; echo x > /etc/mine; rm /etc/os-release; cat /etc/mine"
    assert shop("shell", "generic", "-c", look).stdout == "# changed\nx\n"
    look = f"tail -n 1 /{CHANGED}; ls /etc/mine /etc/os-release"
    done = shop("shell", change.old, "-c", look, check=False)
    assert "# changed" not in done.stdout
    assert "/etc/os-release" in done.stdout
    assert "/etc/mine" in done.stderr
    assert shop("shell", "generic", "-c", "exit 42", check=False).status == 42
    look = "echo $TERM; cat /etc/resolv.conf"
    said = shop("shell", "generic", "--network", "-c", look, TERM="a-terminal-nobody-knows").stdout
    assert said == f"xterm\n{Path('/etc/resolv.conf').read_text()}"
    assert refs(shop.state) == before
    assert leftovers(shop.state) == []


def entries(tree: Path) -> dict[str, tuple[object, ...]]:
    """Type, mode, owner, and size or target of everything in a tree."""
    found: dict[str, tuple[object, ...]] = {}
    for path in walk(tree):
        info = path.lstat()
        what = path.readlink() if path.is_symlink() else info.st_size
        what = 0 if stat.S_ISDIR(info.st_mode) else what
        name = os.fspath(path.relative_to(tree))
        found[name] = (info.st_mode, info.st_uid, info.st_gid, what)
    return found


def walk(tree: Path) -> Iterator[Path]:
    """Everything below `tree`, never through a link."""
    for folder, names, files in os.walk(tree):
        yield from (Path(folder, name) for name in (*names, *files))


def test_export(change: Change, tmp_path: Path) -> None:
    tree, packed = tmp_path / "tree", tmp_path / "packed"
    assert change.shop("export", "generic", os.fspath(tree)).stdout == f"{tree}\n"
    change.shop("export", "generic", os.fspath(packed), "--format", "squashfs")
    boot = {"vmlinuz", "early.img", "initrd.img", "cmdline"}
    names = {*boot, "manifest.json", "sbom.spdx.json", "build.json"}
    assert {path.name for path in tree.iterdir()} == {*names, "kernel-version", "root"}
    assert {p.name for p in packed.iterdir()} == {*names, "kernel-version", "root.squashfs"}
    for name in names:
        assert (tree / name).read_bytes() == (packed / name).read_bytes()
    manifest = json.loads((tree / "manifest.json").read_text())
    assert manifest == change.json("show", "generic")
    assert (tree / "cmdline").read_text() == " ".join(manifest["boot"]["cmdline"]) + "\n"
    assert (tree / "root" / CHANGED).read_text().endswith("# changed\n")

    squashfs = packed / "root.squashfs"
    listed = run(["unsquashfs", "-l", squashfs]).stdout
    assert f"squashfs-root/{CHANGED}\n" in listed
    run(["unsquashfs", "-quiet", "-no-progress", "-dest", tmp_path / "unpacked", squashfs])
    assert entries(tmp_path / "unpacked") == entries(tree / "root")
    unpacked = (tmp_path / "unpacked" / CHANGED).read_bytes()
    assert unpacked == (tree / "root" / CHANGED).read_bytes()
    again = change.shop("export", "generic", os.fspath(tree), check=False)
    assert again.status == 2
    assert f"error: {tree}: exists already" in again.stderr
    assert sorted(path.name for path in tmp_path.iterdir()) == ["packed", "tree", "unpacked"]


def test_gc_removes_what_nothing_needs(change: Change, tmp_path: Path) -> None:
    shop = linked(change.shop, tmp_path)
    stranger = shop.state / "debs" / f"{'0' * 64}.deb"
    stranger.write_text("no lock and no image names it")
    before = refs(shop.state)
    would = json.loads(shop("gc", "--keep", "1", "--dry-run", "--json").stdout)
    assert change.old in would["images"]
    assert change.new not in would["images"]
    assert would["layers"] >= 2
    assert would["packages"] >= 1
    assert refs(shop.state) == before
    assert stranger.exists()

    assert list(find_trees(shop.state))
    done = shop("gc", "--keep", "1").stdout
    assert not list(find_trees(shop.state))
    images = format_count(len(would["images"]), "image")
    assert done.startswith(f"removed {images}, {format_count(would['layers'], 'layer')}, ")
    assert not stranger.exists()
    assert [image["version"] for image in json.loads(shop("images", "--json").stdout)] == [
        change.new.partition("@")[2]
    ]
    assert shop("fsck").stdout.startswith("intact: 1 image, ")
    said = json.loads(shop("fsck", "--json").stdout)
    assert (said["ok"], said["images"], said["damage"], said["unknown-layers"]) == (True, 1, [], [])
    assert "nothing changed" in shop("build", "generic", "--locked").stdout
    assert shop("shell", "generic", "-c", "echo works").stdout == "works\n"
    assert "no version of generic fits" in shop("show", change.old, check=False).stderr
    assert "nothing changed" in shop("build", "generic", "--offline").stdout


def test_other_lists(workshop: Workshop) -> None:
    profiles = json.loads(workshop("profiles", "--json").stdout)
    assert {p["name"] for p in profiles} >= {"generic", "minimal", "rx7600xt"}
    assert not any(p["fault"] for p in profiles)
    assert "generic" in workshop("profiles").stdout
    findings = json.loads(workshop("doctor", "--json", check=False).stdout)
    assert {"subject", "level", "what", "mend"} == set(findings[0])
    assert "properties" in workshop("schema").stdout
