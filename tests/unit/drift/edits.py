# SPDX-License-Identifier: Apache-2.0
"""Random edits of everything a person may touch: nodes.yaml, files of nodes, channels, recipes."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from imagebuilder.errors import InputError
from imagebuilder.nodes.files import make_node_files, update_nodes
from imagebuilder.nodes.types import Nodes
from imagebuilder.publish.channel.move import promote, rollback
from imagebuilder.publish.removal import Caution, unpublish
from imagebuilder.store.repository import ImageRef
from imagebuilder.tree import CHANNELS
from tests.unit.drift.world import RECIPE, World, quiet

WORDS = ("quiet", "debug", "panic=5", "amdgpu.sg_display=0")
CONSOLES = ("tty0", "ttyS0,115200", "ttyS1")
NAMES = ("etc/motd", "etc/app/conf", "opt/tool", "etc/empty")
TEXTS = ("", "one\n", "two\n", "one\n\n", " one\n")
MODES = (0o644, 0o600, 0o755, 0o4755)
Yaml = None | bool | str | list[str] | dict[str, "Yaml"]
REASON = "the gate is the affair of another test"
BOLD = Caution(boot_minutes=0, strangers=True)


@dataclass
class Desk:
    """What a person edits: nodes.yaml as a value, everything else as files."""

    world: World
    dice: random.Random
    images: dict[str, ImageRef]
    spec: dict[str, Any] = field(default_factory=dict)
    nodes: Nodes = field(default_factory=Nodes)

    def __post_init__(self) -> None:
        self.spec = {
            "defaults": {"console": ["tty0"], "vars": {"site": "cellar"}},
            "groups": {
                "gpu": {"profile": "demo", "cmdline": ["quiet"]},
                "cpu": {"profile": "demo"},
            },
            "nodes": {
                "n1": {"macs": ["52:54:00:77:00:01"], "group": "gpu", "files": "own/n1"},
                "n2": {"macs": ["52:54:00:77:00:02", "52:54:00:77:00:12"], "profile": "demo"},
                "n3": {"macs": ["52:54:00:77:00:03"], "group": "cpu", "channel": "candidate"},
            },
        }
        for name in ("n1", "spare"):
            (self.own(name) / "etc").mkdir(parents=True)
            (self.own(name) / "etc").chmod(0o755)
        self.save()

    def own(self, name: str = "n1") -> Path:
        return self.world.tree.path / "own" / name

    def save(self) -> None:
        """Write nodes.yaml in some spelling of it, and serve it, as `serve` does by itself."""
        lines: list[str] = []
        for key, value in self.spec.items():
            self.spell(lines, key, value, "")
        self.world.tree.nodes_file.write_text("\n".join(lines) + "\n")
        self.nodes = update_nodes(self.world.tree)

    def serve(self) -> None:
        """Serve the files of nodes as they are now; nodes.yaml was not touched."""
        make_node_files(self.world.tree, self.nodes)

    def spell(self, lines: list[str], key: str, value: Yaml, indent: str) -> None:
        """One key, with comments and empty lines here and there, lists in either style."""
        if self.dice.random() < 0.2:
            lines.append(self.dice.choice(("", f"{indent}# {self.dice.random()}")))
        end = self.dice.choice(("", "  # as before"))
        if isinstance(value, dict) and value:
            lines.append(f"{indent}{key}:{end}")
            for name, each in value.items():
                self.spell(lines, name, each, indent + "  ")
        elif isinstance(value, list) and value and self.dice.random() < 0.5:
            lines.append(f"{indent}{key}:{end}")
            lines.extend(f"{indent}- '{each}'" for each in value)
        elif isinstance(value, list):
            lines.append(f"{indent}{key}: [" + ", ".join(f'"{each}"' for each in value) + f"]{end}")
        elif isinstance(value, bool):
            lines.append(f"{indent}{key}: {'true' if value else 'false'}{end}")
        else:
            quote = self.dice.choice("'\"")
            lines.append(
                f"{indent}{key}: {quote}{value}{quote}{end}" if value else f"{indent}{key}:"
            )

    def level(self) -> dict[str, Any]:
        """Defaults, a group or a node."""
        levels = [
            self.spec["defaults"],
            *self.spec["groups"].values(),
            *self.spec["nodes"].values(),
        ]
        found: dict[str, Any] = self.dice.choice(levels)
        return found

    def node(self) -> dict[str, Any]:
        found: dict[str, Any] = self.dice.choice([*self.spec["nodes"].values()])
        return found

    def put(self, level: dict[str, Any], key: str, *values: Yaml) -> None:
        """Give a key another value; None takes it out."""
        value = self.dice.choice(values)
        if value is None:
            level.pop(key, None)
        else:
            level[key] = value


def edit_words(desk: Desk) -> None:
    words = desk.level().setdefault("cmdline", [])
    if len(words) > 1 and desk.dice.random() < 0.5:
        words.reverse()
    elif words and desk.dice.random() < 0.4:
        words.pop(desk.dice.randrange(len(words)))
    else:
        words.insert(desk.dice.randint(0, len(words)), desk.dice.choice(WORDS))


def edit_console(desk: Desk) -> None:
    count = desk.dice.randint(1, 2)
    desk.put(desk.level(), "console", None, desk.dice.sample(CONSOLES, count))


def edit_vars(desk: Desk) -> None:
    name, value = desk.dice.choice(("site", "rank")), desk.dice.choice(("cellar", "attic", "7"))
    desk.level().setdefault("vars", {})[name] = value


def edit_address(desk: Desk) -> None:
    name, node = desk.dice.choice([*desk.spec["nodes"].items()])
    free = f"192.0.2.{10 + int(name[1:]) * 3 + desk.dice.randrange(3)}"
    desk.put(node, "address", None, free, free)
    node["static"] = "address" in node and desk.dice.random() < 0.5


def edit_group(desk: Desk) -> None:
    node = desk.node()
    desk.put(node, "group", None, "gpu", "cpu")
    node.setdefault("profile", "demo")
    if "group" in node and desk.dice.random() < 0.7 and "version" not in node:
        node.pop("profile")


def edit_release(desk: Desk) -> None:
    node = desk.node()
    for key in ("version", "channel"):
        node.pop(key, None)
    image = desk.dice.choice([*desk.images.values()])
    kind = desk.dice.randrange(3)
    if kind == 0:
        node |= {"profile": image.profile, "version": image.version}
    elif kind == 1:
        node |= {"channel": desk.dice.choice(("stable", "candidate"))}
    else:
        node |= {"profile": image.profile}


def edit_kind(desk: Desk) -> None:
    desk.put(desk.level(), "root", None, "nfs", "http")


def edit_binary(desk: Desk) -> None:
    desk.put(desk.level(), "ipxe", None, "ipxe.efi", "snponly.efi")


def edit_order(desk: Desk) -> None:
    for key in ("nodes", "groups"):
        items = [*desk.spec[key].items()]
        desk.dice.shuffle(items)
        desk.spec[key] = dict(items)
    node = desk.node()
    items = [*node.items()]
    desk.dice.shuffle(items)
    node.clear()
    node.update(items)


def edit_nics(desk: Desk) -> None:
    regulars = [node for name, node in desk.spec["nodes"].items() if name != "n4"]
    one, other = desk.dice.sample(regulars, 2)
    if desk.dice.random() < 0.3:
        one["macs"], other["macs"] = other["macs"], one["macs"]
    else:
        desk.dice.shuffle(one["macs"])


def edit_guest(desk: Desk) -> None:
    nodes = desk.spec["nodes"]
    if "n4" in nodes:
        del nodes["n4"]
    else:
        nodes["n4"] = {"macs": ["52:54:00:77:00:04"], "profile": "demo", "address": "192.0.2.99"}


def edit_comments(desk: Desk) -> None:
    del desk  # saving spells it anew


def edit_folder(desk: Desk) -> None:
    desk.put(desk.node(), "files", None, "own/n1", "own/spare")


def edit_content(desk: Desk) -> None:
    path = pick(desk)
    path.unlink(missing_ok=True)
    path.write_text(desk.dice.choice(TEXTS))
    path.chmod(desk.dice.choice((0o644, 0o644, 0o600)))


def edit_mode(desk: Desk) -> None:
    path = pick(desk)
    if path.is_symlink() or not path.exists():
        path = path.parent
        path.chmod(desk.dice.choice((0o755, 0o700)))
    else:
        path.chmod(desk.dice.choice(MODES))


def edit_owner(desk: Desk) -> None:
    path = pick(desk)
    if os.geteuid() == 0 and os.path.lexists(path):
        os.chown(path, desk.dice.choice((0, 1000)), 0, follow_symlinks=False)


def edit_link(desk: Desk) -> None:
    path = pick(desk)
    path.unlink(missing_ok=True)
    path.symlink_to(desk.dice.choice(("motd", "../motd")))


def edit_time(desk: Desk) -> None:
    path = pick(desk)
    if path.exists():
        os.utime(path, (desk.dice.randrange(10**9), desk.dice.randrange(10**9)))


def edit_gone(desk: Desk) -> None:
    top = desk.own(desk.dice.choice(("n1", "spare")))
    shutil.rmtree(desk.dice.choice(sorted(top.iterdir()) or [top / "x"]), ignore_errors=True)
    (top / "etc").mkdir(exist_ok=True)


def pick(desk: Desk) -> Path:
    """A file of a node's folder, its folders made."""
    path = desk.own(desk.dice.choice(("n1", "n1", "spare"))) / desk.dice.choice(NAMES)
    path.parent.mkdir(exist_ok=True)
    return path


def edit_channel(desk: Desk) -> None:
    """Publish, promote, roll back, take a release away; what is refused changes nothing."""
    tree, image = desk.world.tree, desk.dice.choice([*desk.images.values()])
    kind = desk.dice.randrange(7)
    with contextlib.suppress(InputError):
        if kind == 0 or not tree.release(image.release).is_dir():
            desk.world.publish(image, desk.dice.choice(CHANNELS))
        elif kind <= 3:
            promote(tree, image.name, quiet(), untested=REASON)
        elif kind <= 5:
            rollback(tree, image.profile, quiet(), to=image.version, untested=REASON)
        else:
            unpublish(tree, image.name, quiet(), BOLD)


def edit_recipe(desk: Desk) -> None:
    """The project: content, mode, order, comments, blanks, times."""
    name = desk.dice.choice([*RECIPE])
    path = desk.world.settings.project / name
    kind = desk.dice.randrange(4)
    if kind == 0:
        os.utime(path, (desk.dice.randrange(10**9), desk.dice.randrange(10**9)))
    elif kind == 1:
        path.chmod(desk.dice.choice((0o644, 0o755)))
    elif path.suffix == ".yaml":
        text = RECIPE[name].replace("hello", desk.dice.choice(("hello", "hullo")))
        text = text.replace("web=1", desk.dice.choice(("web=1", "web=2")))
        path.write_text(f"# {desk.dice.random()}\n\n{text}\n# the end\n")
    else:
        path.write_text(desk.dice.choice((RECIPE[name], RECIPE[name], "another\n")))


def recipe_is_as_built(desk: Desk) -> bool:
    """Whether nothing of the project that gets into an image differs from what was built."""
    project = desk.world.settings.project
    files = [project / name for name in RECIPE]
    kept = [path for path in files if path.suffix != ".yaml"]
    programs = [path for path in kept if path.stat().st_mode & stat.S_IXUSR]
    texts = [
        [line for line in path.read_text().splitlines() if line and not line.startswith("# ")]
        for path in files
    ]
    return programs == [] and texts == [text.splitlines() for text in RECIPE.values()]


Edit = Callable[[Desk], None]
OF_NODES: tuple[Edit, ...] = (
    edit_words, edit_words, edit_words, edit_console, edit_vars, edit_address, edit_address,
    edit_group, edit_release, edit_kind, edit_binary, edit_order, edit_nics, edit_guest,
    edit_comments, edit_folder,
)  # fmt: skip
OF_FILES: tuple[Edit, ...] = (
    edit_content, edit_content, edit_mode, edit_mode, edit_owner, edit_link, edit_time, edit_gone,
)  # fmt: skip


def random_edit(desk: Desk) -> str:
    """Do one edit; returns what it was."""
    kinds = (OF_NODES, OF_FILES, (edit_channel,), (edit_recipe,))
    (kind,) = desk.dice.choices(kinds, (28, 52, 10, 10))
    edit = desk.dice.choice(kind)
    edit(desk)
    if kind is OF_NODES:
        desk.save()
    elif kind is OF_FILES:
        desk.serve()
    return edit.__name__
