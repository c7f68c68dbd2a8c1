# SPDX-License-Identifier: Apache-2.0
"""Builds, playbooks, slimming and known targets of an overlay, resolved."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from imagebuilder.digest import Json, digest_of, digest_of_file
from imagebuilder.recipe.model_stages import AnsibleModel, BuildModel, SlimModel, TargetsModel
from imagebuilder.recipe.part import Part, check_runs, find_inside, requirement_faults
from imagebuilder.recipe.positions import KeyPath
from imagebuilder.recipe.render import Scope
from imagebuilder.recipe.rules import BELOW, GLOB, LINE, PACKAGE, TARGET
from imagebuilder.recipe.types import Build, Playbook, PythonEnv, Script, Slim
from imagebuilder.recipe.validate import listing, quote

# Where the wheels of a build lie in its tree.
BUILD_WHEELS = "/opt/imagebuilder/wheels"


def check_targets(models: Sequence[TargetsModel], scope: Scope) -> None:
    """A fault for a target that what the overlay installs has no code for."""
    for number, model in enumerate(models):
        path = ("targets", number)
        if not scope.holds((*path, "when"), model.when):
            continue
        target = scope.text((*path, "target"), model.target, TARGET)
        if target and target not in model.supported:
            what = f"{model.source} has no code for {target}, but for {listing(model.supported)}"
            scope.fault((*path, "target"), what, model.instead)


def render_builds(part: Part, scope: Scope) -> Iterator[Build]:
    """The builds that apply."""
    for number, model in enumerate(part.file.builds):
        path: KeyPath = ("builds", number)
        if not scope.holds((*path, "when"), model.when):
            continue
        found = find_inside(part, scope, (*path, "run"), model.run)
        if not found or not check_runs(scope, (*path, "run"), model.run, found):
            continue
        yield Build(
            name=model.name,
            script=Script(model.run, digest_of_file(found), found),
            packages=scope.entries((*path, "packages"), model.packages, PACKAGE),
            source_packages=scope.entries(
                (*path, "source-packages"), model.source_packages, PACKAGE
            ),
            python=build_python(part, scope, path, model),
        )


def build_python(part: Part, scope: Scope, path: KeyPath, model: BuildModel) -> PythonEnv | None:
    """The wheels of a build; None where it wants none."""
    if not model.requirements:
        return None
    found = find_inside(part, scope, (*path, "requirements"), model.requirements)
    if not found:
        return None
    scope.faults.extend(requirement_faults(found, f"{part.shown}/{model.requirements}"))
    return PythonEnv(BUILD_WHEELS, found, digest_of_file(found))


def render_slim(model: SlimModel, scope: Scope) -> Slim:
    """What is slimmed."""
    return Slim(
        code=scope.entries(("slim", "code"), model.code, TARGET),
        code_in=scope.entries(("slim", "code-in"), model.code_in, GLOB),
        firmware=scope.entries(("slim", "firmware"), model.firmware, BELOW),
        modules=scope.entries(("slim", "modules"), model.modules, BELOW),
        unlinked=scope.entries(("slim", "unlinked"), model.unlinked, GLOB),
    )


def render_playbooks(part: Part, scope: Scope) -> Iterator[Playbook]:
    """The playbooks that apply, each with the digest of the folder it lies in."""
    for number, model in enumerate(part.file.ansible):
        path: KeyPath = ("ansible", number)
        if not scope.holds((*path, "when"), model.when):
            continue
        found = find_playbook(part, scope, (*path, "playbook"), model)
        if found:
            values = render_values(scope, (*path, "vars"), model)
            yield Playbook(found.name, found, digest_of_folder(found.parent), values, model.network)


def find_playbook(part: Part, scope: Scope, path: KeyPath, model: AnsibleModel) -> Path | None:
    """The playbook's file; None, with a fault, when there is none."""
    written = scope.text(path, model.playbook, LINE)
    if not written:
        if written == "":
            scope.fault(path, "names no playbook", "set it, or leave the overlay out")
        return None
    if not written.startswith(("/", "~/")):
        return find_inside(part, scope, path, written)
    found = Path(written).expanduser()
    if not found.is_file():
        scope.fault(path, f"no file {quote(written)}", "an absolute path is one of this builder")
        return None
    return found


def render_values(scope: Scope, path: KeyPath, model: AnsibleModel) -> Mapping[str, Json]:
    """The extra vars, texts rendered."""
    rendered: dict[str, Json] = {}
    for name, value in model.vars.items():
        rendered[name] = value
        if isinstance(value, str):
            text = scope.text((*path, name), value)
            rendered[name] = text if text is not None else ""
    return rendered


def digest_of_folder(folder: Path) -> str:
    """The digest of every file below `folder`: name, mode and content; but for `.git`."""
    found: dict[str, Json] = {}
    for path in sorted(folder.rglob("*")):
        name = os.fspath(path.relative_to(folder))
        if name.partition("/")[0] == ".git":
            continue
        if path.is_symlink():
            found[name] = f"-> {path.readlink()}"
        elif path.is_file():
            found[name] = f"{path.stat().st_mode & 0o111:o} {digest_of_file(path)}"
    return digest_of(found)
