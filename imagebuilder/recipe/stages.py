# SPDX-License-Identifier: Apache-2.0
"""Builds, playbooks, slimming and known targets of an overlay, resolved."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from imagebuilder.digest import Json, digest_of_file
from imagebuilder.phrases import listing, quote
from imagebuilder.plain import is_special
from imagebuilder.recipe.model_stages import (
    AnsibleModel,
    BuildModel,
    RefusalModel,
    TargetsModel,
)
from imagebuilder.recipe.names import PackageNames
from imagebuilder.recipe.part import Part, check_requirements, check_runs, find_inside
from imagebuilder.recipe.playbook import read_playbook
from imagebuilder.recipe.positions import KeyPath
from imagebuilder.recipe.project import digests_of_project, find_problem_of, project_of
from imagebuilder.recipe.render import Scope
from imagebuilder.recipe.rules import ANSIBLE_GROUP, LINE, PACKAGE, TARGET
from imagebuilder.recipe.types import Build, Playbook, PythonEnv, Script

# Where the wheels of a build lie in its tree.
BUILD_WHEELS = "/opt/imagebuilder/wheels"


def check_targets(models: Sequence[TargetsModel], scope: Scope) -> None:
    """A fault for a target that the overlay's software has no code for."""
    for path, model in scope.counted("targets", models):
        for one in scope.each(path, model.each):
            target = one.text((*path, "target"), model.target, TARGET)
            if target and target not in model.supported:
                has = listing(model.supported)
                what = f"{model.source} has no code for {target}, only for {has}"
                one.refuse((*path, "target"), what, model.instead, template=model.target)


def check_refusals(name: str, models: Sequence[RefusalModel], scope: Scope) -> None:
    """A fault for each reason why the overlay cannot be used on this base or with these vars."""
    for path, model in scope.counted("refuses", models):
        because = scope.text((*path, "because"), model.because, LINE)
        instead = scope.text((*path, "instead"), model.instead, LINE)
        if because is not None and instead is not None:
            suite = str(scope.renderer.names["suite"])
            base = suite if suite.isalpha() else f"{scope.renderer.names['distribution']} {suite}"
            scope.refuse(path, f"{quote(name)} cannot be used on {base}: {because}", instead)


def render_builds(part: Part, scope: Scope, names: PackageNames) -> Iterator[Build]:
    for path, model in scope.counted("builds", part.file.builds):
        found = find_inside(part, scope, (*path, "run"), model.run)
        if not found or not check_runs(scope, (*path, "run"), model.run, found):
            continue
        yield Build(
            name=model.name,
            script=Script(model.run, digest_of_file(found), found),
            packages=names.of(scope.entries((*path, "packages"), model.packages, PACKAGE)),
            source_packages=scope.entries(
                (*path, "source-packages"), model.source_packages, PACKAGE
            ),
            python=build_python(part, scope, path, model),
            env=build_env(scope, (*path, "env"), model),
        )


def build_env(scope: Scope, path: KeyPath, model: BuildModel) -> tuple[tuple[str, str], ...]:
    """The environment of a build's program; it cannot override what the build itself sets."""
    for name in sorted({"KERNEL", "DESTDIR"} & model.env.keys()):
        scope.fault((*path, name), f"the build itself sets {name}", "choose another name")
    texts = ((name, scope.text((*path, name), text, LINE)) for name, text in model.env.items())
    return tuple((name, text) for name, text in texts if text is not None)


def build_python(part: Part, scope: Scope, path: KeyPath, model: BuildModel) -> PythonEnv | None:
    """The wheels of a build; None without requirements."""
    if not model.requirements:
        return None
    found = find_inside(part, scope, (*path, "requirements"), model.requirements)
    if not found:
        return None
    check_requirements(part, scope, model.requirements, found)
    return PythonEnv(BUILD_WHEELS, found, digest_of_file(found))


def render_playbooks(part: Part, scope: Scope) -> Iterator[Playbook]:
    names: set[str] = set()
    for path, model in scope.counted("ansible", part.file.ansible):
        found = find_playbook(part, scope, (*path, "playbook"), model)
        playbook = found and read_found(part, scope, path, model, found)
        if playbook and playbook.name in names:
            what = f"another playbook of the overlay is also named {quote(playbook.name)}"
            scope.fault((*path, "playbook"), what, "rename one of them")
        elif playbook:
            names.add(playbook.name)
            yield playbook


def read_found(
    part: Part, scope: Scope, path: KeyPath, model: AnsibleModel, found: Path
) -> Playbook | None:
    project = project_of(found)
    if problem := find_problem_of(project):
        scope.fault((*path, "playbook"), *problem)
        return None
    groups = scope.text((*path, "groups"), model.groups, LINE if model.groups else None) or ""
    named = tuple(sorted({name.strip() for name in groups.split(",") if name.strip()}))
    for name in named:
        if not ANSIBLE_GROUP.pattern.fullmatch(name):
            scope.fault((*path, "groups"), f"{quote(name)} is not {ANSIBLE_GROUP.what}")
    inside = project.is_relative_to(part.folder)
    shown = f"{part.shown}/{project.relative_to(part.folder)}" if inside else os.fspath(project)
    host = str(scope.renderer.names["profile"])
    in_groups, faults = read_playbook(found, project, shown.removesuffix("/."), host, named)
    scope.faults.extend(faults)
    return Playbook(
        name=os.fspath(found.relative_to(project)),
        project=project,
        files=digests_of_project(project),
        vars=render_values(scope, (*path, "vars"), model),
        groups=in_groups,
        limited=bool(named),
        network=model.network,
    )


def find_playbook(part: Part, scope: Scope, path: KeyPath, model: AnsibleModel) -> Path | None:
    """The playbook's file; None, with a fault, if it does not exist."""
    written = scope.text(path, model.playbook, LINE)
    if not written:
        if written == "":
            scope.fault(path, "names no playbook", "set it, or remove the overlay")
        return None
    if not written.startswith(("/", "~/")):
        return find_inside(part, scope, path, written)
    found = Path(written).expanduser()
    if not found.is_file():
        name = quote(written)
        what = f"{name} is not a file" if is_special(found) else f"no file {name}"
        scope.fault(path, what, "an absolute path refers to this builder")
        return None
    return found


def render_values(scope: Scope, path: KeyPath, model: AnsibleModel) -> Mapping[str, Json]:
    rendered: dict[str, Json] = {}
    for name, value in model.vars.items():
        rendered[name] = value
        if isinstance(value, str):
            text = scope.text((*path, name), value)
            rendered[name] = text if text is not None else ""
    return rendered
