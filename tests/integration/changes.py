# SPDX-License-Identifier: Apache-2.0
"""Changes to a copy of a project, and what a build must leave as it was."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ruamel.yaml import YAML

from imagebuilder.digest import Json
from imagebuilder.process import Completed, run

if TYPE_CHECKING:
    from tests.workshop import Workshop

# An initrd that is made in seconds: what is in it matters to no test that uses it.
QUICK_INITRD = 'dracutmodules="dash"\ncompress="cat"\nno_kernel="yes"\nearly_microcode="no"\n'
QUICK_PLACE = "usr/lib/dracut/dracut.conf.d/99-quick.conf"
DROPPABLE = ("image", "layer")


def linked(workshop: Workshop, top: Path) -> Workshop:
    """A workshop of its own in `top`: a copy of the project, and of the state by hard links."""
    top.mkdir(exist_ok=True)
    run(["cp", "--archive", "--link", workshop.state, top / "state"])
    return replace(workshop.with_project(top / "project"), state=top / "state")


def change_yaml(path: Path, changes: Mapping[str, Json]) -> None:
    """Add to the lists and mappings of a YAML file; other values are replaced."""
    yaml = YAML(typ="safe")
    content = yaml.load(path) if path.exists() else {}
    for key, value in changes.items():
        if isinstance(value, list):
            content[key] = [*content.get(key, []), *value]
        elif isinstance(value, Mapping):
            content[key] = {**content.get(key, {}), **value}
        else:
            content[key] = value
    path.parent.mkdir(parents=True, exist_ok=True)
    yaml.dump(content, path)


def change_overlay(project: Path, name: str, **changes: Json) -> Path:
    """Change an overlay, or make one; returns its folder."""
    folder = project / "overlays" / name
    if not folder.exists():
        changes = {"description": "An overlay that tests have made", **changes}
    change_yaml(folder / "overlay.yaml", {k.replace("_", "-"): v for k, v in changes.items()})
    return folder


def add_file(project: Path, overlay: str, target: str, text: str, mode: int = 0o644) -> Path:
    """A file that `overlay` puts at `target`."""
    path = project / "overlays" / overlay / "files" / target
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(mode)
    return path


def add_script(project: Path, overlay: str, text: str, *, network: bool = False) -> str:
    """A shell script that `overlay` runs last; returns its path below the overlay."""
    name = "scripts/90-test"
    folder = change_overlay(project, overlay, scripts=[{"run": name, "network": network}])
    (folder / "scripts").mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\nset -eu\n{text}\n")
    return name


def make_quick(project: Path) -> None:
    """Have the project make small initrds."""
    add_file(project, "netboot", QUICK_PLACE, QUICK_INITRD)


def refs(state: Path) -> dict[str, str]:
    """Every layer and image of a state, with its commit."""
    top = state / "store/refs/heads"
    return {
        os.fspath(path.relative_to(top)): path.read_text().strip()
        for path in top.rglob("*")
        if path.is_file()
    }


def snapshot(tree: Path) -> dict[str, tuple[object, ...]]:
    """Type, mode, owner, content or target, and attributes of everything in a tree."""
    found: dict[str, tuple[object, ...]] = {}
    for folder, names, files in os.walk(tree):
        for name in [*names, *files]:
            path = Path(folder, name)
            info = path.lstat()
            content = (
                path.readlink()
                if path.is_symlink()
                else path.read_bytes()
                if path.is_file()
                else None
            )
            attributes = tuple(
                (key, os.getxattr(path, key, follow_symlinks=False))
                for key in sorted(os.listxattr(path, follow_symlinks=False))
                if not key.startswith("trusted.overlay.")
            )
            name = os.fspath(path.relative_to(tree))
            found[name] = (info.st_mode, info.st_uid, info.st_gid, content, attributes)
    return found


def leftovers(state: Path, *, store: bool = True) -> list[str]:
    """What a build that ended must not leave.

    Without `store`, objects of a commit that was cut short do not count: the next commit takes
    over or drops that staging folder (ostree-repo-commit.c, staging directories).
    """
    places = [state.glob("work/*"), state.glob("layers/*[!n]")]
    if store:
        places.append(state.glob("store/tmp/*/*"))
    return sorted(os.fspath(path) for paths in places for path in paths)


def masked(workshop: Workshop, script: str, *words: str, **env: str) -> Completed:
    """Run the program in a mount namespace of its own, after `script` has changed what it sees."""
    argv = ["unshare", "--mount", "sh", "-euc", f'{script}\nexec "$@"', "sh"]
    return run([*argv, *workshop.argv(*words)], env=workshop.env(**env), check=False)
