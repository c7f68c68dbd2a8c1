# SPDX-License-Identifier: Apache-2.0
"""The command on a real tree: names, records from before, profiles, JSON, exit status."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator

import pytest

from imagebuilder.cli.program import run as run_program
from imagebuilder.drift.answer import DriftAnswer, answer
from imagebuilder.drift.types import Reboot
from imagebuilder.errors import InputError
from imagebuilder.nodes.config import KEPT
from imagebuilder.nodes.evidence.seen import read_seen
from imagebuilder.nodes.files import update_nodes
from imagebuilder.tree import ReleaseName
from tests.integration.published import memory_folder
from tests.unit.drift.fetch import fetch, report
from tests.unit.drift.world import RECIPE, Made, World, make_world, quiet

MAC = "52:54:00:77:00:01"
NODES = f"nodes:\n  n1: {{macs: ['{MAC}'], profile: demo}}\n"


@pytest.fixture(scope="module")
def built() -> Iterator[World]:
    """A world whose recipe is built, and stable; another release is candidate."""
    with memory_folder() as top:
        world = make_world(top)
        world.publish(world.build(), "stable")
        world.publish(world.build(Made(kernel="k2", initrd="initrd"), version="planned-2"))
        yield world


@pytest.fixture
def world(built: World) -> World:
    """The same without a trace of a boot, and the recipe as it was built."""
    for path in (*built.tree.path.glob("seen/*"), *built.tree.node_configs.glob("*")):
        path.unlink()
    (built.tree.serve / "reports.log").unlink(missing_ok=True)
    built.tree.nodes_file.write_text(NODES)
    built.write(RECIPE)
    update_nodes(built.tree)
    return built


def ask(world: World, *names: str) -> DriftAnswer:
    return answer(world.tree, world.settings, names, quiet())


def boot(world: World, second: int = 1, **more: str) -> None:
    """The node boots and reports."""
    fetched = fetch(world.tree, MAC)
    assert fetched
    report(world.tree, MAC, fetched, second, **more)


def test_a_node_that_never_reported_is_said_to(world: World) -> None:
    (node,) = ask(world, "n1").nodes
    assert (node.running, node.reboot) == (None, Reboot.UNKNOWN)
    assert {part.why for part in node.parts.values()} == {("never reported a boot to this tree",)}


def test_a_boot_from_before_is_unknown_where_nobody_can_know(world: World) -> None:
    boot(world)
    log = world.tree.serve / "reports.log"
    log.write_text(log.read_text().replace(f"/{seen_of(world)}/", "/"))
    (node,) = ask(world, "n1").nodes
    states = {name: str(part.state) for name, part in node.parts.items()}
    assert states == {"kernel": "same", "root": "same", "cmdline": "unknown", "files": "unknown"}
    assert node.reboot is Reboot.UNKNOWN


def seen_of(world: World) -> str:
    """What the node's script reports."""
    text = (world.tree.served_node(MAC) / "boot.ipxe").read_text()
    return next(x.rpartition("/")[2] for x in text.splitlines() if x.startswith("set report "))


def test_a_record_from_before_parses(world: World) -> None:
    boot(world)
    ask(world)
    path = world.tree.seen(MAC)
    value = json.loads(path.read_text())
    assert value.pop("given") == seen_of(world)
    path.write_text(json.dumps(value))
    seen = read_seen(path)
    assert seen
    assert seen.given == ""


@pytest.mark.parametrize("given", ["../../../x", "0123456789ABCDEF", "0123", "f" * 16])
def test_what_the_network_says_is_no_path_and_no_answer(world: World, given: str) -> None:
    boot(world)
    log = world.tree.serve / "reports.log"
    log.write_text(log.read_text().replace(seen_of(world), given))
    (node,) = ask(world, "n1").nodes
    assert node.reboot is Reboot.UNKNOWN


def test_a_record_stays_while_a_node_runs_it_and_a_week_after(world: World) -> None:
    def records() -> set[str]:
        return {path.stem for path in world.tree.node_configs.iterdir()}

    def edit(word: str) -> str:
        world.tree.nodes_file.write_text(NODES.replace("}", f", cmdline: [{word}]}}"))
        for path in world.tree.node_configs.iterdir():
            os.utime(path, (path.stat().st_mtime - KEPT - 60,) * 2)
        update_nodes(world.tree)
        return seen_of(world)

    first = seen_of(world)
    boot(world)
    ask(world)
    second = edit("a")
    third = edit("b")
    assert records() == {first, third}
    assert second not in records()
    assert {path.stat().st_mode & 0o777 for path in world.tree.node_configs.iterdir()} == {0o600}
    assert world.tree.node_configs.stat().st_mode & 0o777 == 0o700
    (node,) = ask(world, "n1").nodes
    assert node.parts["cmdline"].why == ("with b",)


def test_what_is_typed_and_not_served_is_told_and_changes_nothing(world: World) -> None:
    boot(world)
    world.tree.nodes_file.write_text(NODES.replace("}", ", cmdline: [debug]}"))
    (node,) = ask(world, "n1").nodes
    assert node.reboot is Reboot.NO
    assert len(node.notes) == 1
    update_nodes(world.tree)
    (node,) = ask(world, "n1").nodes
    assert (node.reboot, node.notes) == (Reboot.YES, ())


def test_a_packed_root_that_is_not_there_is_told(world: World) -> None:
    boot(world)
    (node,) = ask(world, "n1").nodes
    assert node.next
    release = world.tree.release(ReleaseName("demo", node.next.version))
    shared = world.tree.shared_squashfs(ReleaseName("demo", release.name))
    for kind, place in (
        ("http", release / "root.squashfs"),
        ("http-erofs", release / "root.erofs"),
        ("nfs-squashfs", shared),
    ):
        world.tree.nodes_file.write_text(NODES.replace("}", f", root: {kind}}}"))
        update_nodes(world.tree)
        (node,) = ask(world, "n1").nodes
        assert node.reboot is Reboot.YES
        (note,) = node.notes
        assert note.startswith(f"its next boot would fail: root over {kind} needs root.")
        assert note.endswith(f"imagebuilder publish demo@{release.name} packs it")
        place.touch()
        (node,) = ask(world, "n1").nodes
        assert node.notes == ()
        place.unlink()


def test_a_boot_that_failed_is_told(world: World) -> None:
    boot(world, stage="failed&at=root")
    (node,) = ask(world, "n1").nodes
    assert node.notes == (f"its last boot of {node.running} failed",)


def test_a_profile_stands_for_its_nodes_and_says_what_else_there_is(world: World) -> None:
    boot(world)
    found = ask(world, "demo")
    assert [node.node for node in found.nodes] == ["n1"]
    (profile,) = found.profiles
    assert profile.candidate
    assert profile.candidate.differs == ("kernel kernel -> k2",)
    assert profile.image
    assert (profile.image.name, profile.published) == ("demo@planned-2", True)
    assert (profile.builds, profile.reasons, profile.problem) == (profile.stable, (), "")


def test_an_edit_of_an_overlay_is_told_and_makes_no_reboot(world: World) -> None:
    boot(world)
    world.write({"overlays/web/files/etc/page": "other\n"})
    found = ask(world)
    (profile,) = found.profiles
    assert profile.builds not in ("", profile.stable)
    assert any("/etc/page" in reason for reason in profile.reasons), profile.reasons
    assert [node.reboot for node in found.nodes] == [Reboot.NO]
    assert not found.changes


def test_a_recipe_that_cannot_be_planned_is_told(world: World) -> None:
    world.write({"recipes/demo.yaml": "base: nowhere\n"})
    (profile,) = ask(world, "demo").profiles
    assert "nowhere" in profile.problem


def test_every_unknown_name_is_an_error(world: World) -> None:
    with pytest.raises(InputError) as caught:
        ask(world, "n2", "n1", "dmo")
    assert [fault.what for fault in caught.value.faults] == [
        'no node or profile named "n2"', 'no node or profile named "dmo"',
    ]  # fmt: skip
    assert caught.value.faults[1].hint == 'did you mean "demo"?'


def test_a_stranger_is_named_beside_the_answer(world: World) -> None:
    fetched = fetch(world.tree, MAC)
    assert fetched
    report(world.tree, "52:54:00:77:00:99", fetched, 1)
    assert ask(world).strangers == ("52:54:00:77:00:99",)


def test_the_command_ends_with_one_when_a_reboot_would_change_something(
    world: World, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    boot(world)
    settings = world.settings
    for name, value in (
        ("CHECKOUT", settings.project),
        ("STATE", settings.state),
        ("TREE", world.tree.path),
    ):
        monkeypatch.setenv(f"IMAGEBUILDER_{name}", os.fspath(value))
    monkeypatch.setattr(sys, "argv", ["imagebuilder", "drift", "n1", "--exit-code", "--json"])
    assert run_program() == 0
    assert json.loads(capsys.readouterr().out)["nodes"][0]["reboot"] == "no"
    world.tree.nodes_file.write_text(NODES.replace("}", ", channel: candidate}"))
    update_nodes(world.tree)
    assert run_program() == 1
    value = json.loads(capsys.readouterr().out)
    assert value["changes"] is True
    assert value["nodes"][0]["kernel"] == {"state": "changes", "why": ["kernel kernel -> k2"]}
