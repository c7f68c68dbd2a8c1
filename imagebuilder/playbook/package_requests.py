# SPDX-License-Identifier: Apache-2.0
"""The packages that playbooks request: find them, and report or add what the lock does not have.

They are found without a root and without running a task.

ansible-playbook runs in a sandbox without a network.  Our callback plugin answers each task instead
of a node and records the packages (plugins/callback/imagebuilder_ask.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.errors import ImagebuilderError, InputError, WorkError
from imagebuilder.families.registry import family_of
from imagebuilder.files import scratch
from imagebuilder.lock.types import Lock
from imagebuilder.lock.wheels import MACHINES
from imagebuilder.playbook.controller import controller_sandbox, lay_out
from imagebuilder.playbook.facts import pins_of
from imagebuilder.playbook.rows import ToldRow, read_rows
from imagebuilder.playbook.step import find_ansible
from imagebuilder.process import MOST, Word, run
from imagebuilder.recipe.amend import add_packages
from imagebuilder.recipe.positions import load_document
from imagebuilder.recipe.read import OVERLAY_FILE, shown_path
from imagebuilder.recipe.types import Base, Overlay, Playbook, Recipe
from imagebuilder.sandbox.view import for_anybody
from imagebuilder.settings import Settings
from imagebuilder.ui import Ui, format_count

PREFIX = "ansible_"


@dataclass(frozen=True)
class PackageRequest:
    """A package, and the first task that requests it."""

    package: str
    where: str


@dataclass(frozen=True)
class PackageRequests:
    """The requests of one playbook; `unknown` are tasks that only the build can decide."""

    overlay: Overlay
    playbook: Playbook
    packages: tuple[PackageRequest, ...]
    unknown: tuple[tuple[str, str], ...]

    def missing(self, lock: Lock) -> tuple[PackageRequest, ...]:
        have = {package.name for package in lock.packages}
        have |= {name for layer in lock.layers for name in layer.requested}  # virtual ones
        return tuple(each for each in self.packages if each.package not in have)


def find_package_requests(recipe: Recipe, lock: Lock, cache: Path) -> Iterator[PackageRequests]:
    """The packages that each playbook of `recipe` requests.  Raises HostError, WorkError."""
    for overlay in recipe.overlays:
        for playbook in overlay.playbooks:
            cache.mkdir(parents=True, exist_ok=True)
            with scratch(cache, ".playbook-") as top:
                yield ask_playbook(recipe, lock, overlay, playbook, top)


def ask_playbook(
    recipe: Recipe, lock: Lock, overlay: Overlay, playbook: Playbook, top: Path
) -> PackageRequests:
    """The requests of one playbook; `top` is its own folder.  Raises HostError, WorkError."""
    program = find_ansible()
    facts = facts_of(recipe.base, recipe.profile, lock)
    # The connection has no host, so nothing can run.
    reach: dict[str, Json] = {"host": "", "kernel": "", "epoch": lock.epoch, "facts": facts}
    controller = lay_out(top, playbook, recipe.profile, program, reach, callback="imagebuilder_ask")
    sandbox = controller_sandbox(controller, playbook, lock.epoch, network=False)
    argv: list[Word] = ["env", f"--chdir={playbook.project}", *controller.argv]
    done = run(argv, sandbox=for_anybody(sandbox), check=False)
    rows = read_rows(controller.told, ToldRow)
    if not any(row.event == "stats" for row in rows):
        output = (done.stderr.strip() or done.stdout.strip())[-MOST:]
        raise WorkError(
            f"could not determine which packages {playbook.name} requests\n    {output}",
            where=os.fspath(playbook.project),
            hint="correct the playbook; a build runs it too",
        )
    return PackageRequests(
        overlay,
        playbook,
        packages=tuple(first_of(rows)),
        unknown=tuple(
            dict.fromkeys((row.where, row.why) for row in rows if row.event == "unknown")
        ),
    )


def first_of(rows: Iterable[ToldRow]) -> Iterator[PackageRequest]:
    seen: set[str] = set()
    for row in rows:
        if row.event == "package" and row.package not in seen:
            seen.add(row.package)
            yield PackageRequest(row.package, row.where)


def facts_of(base: Base, host: str, lock: Lock) -> dict[str, Json]:
    """The facts of the image that its recipe and its lock determine."""
    setup = family_of(base).ansible
    kernels = [release for p in lock.packages if (release := setup.kernel(p))]
    version = setup.versions.get(base.suite)
    machine = MACHINES[base.architecture]
    known: dict[str, Json] = {
        "distribution": base.distribution.capitalize(),
        **({"distribution_release": base.suite} if base.suite.isalpha() else {}),
        **setup.facts,
        "system": "Linux",
        "architecture": machine,
        "machine": machine,
        "userspace_bits": "64",
        "user_id": "root",
        "user_uid": 0,
        "user_dir": "/root",
    }
    if version:
        known["distribution_version"] = version
        known["distribution_major_version"] = version.partition(".")[0]
    pins = pins_of(host, kernels[-1] if kernels else "", lock.epoch)
    return {f"{PREFIX}{name}": value for name, value in {**known, **pins}.items()}


def find_requests(
    recipe: Recipe, lock: Lock, settings: Settings, ui: Ui
) -> tuple[PackageRequests, ...]:
    """The packages that the recipe's playbooks request; reports tasks that only a build can decide.

    A playbook that cannot be analysed is reported and left to the build.
    """
    if not any(overlay.playbooks for overlay in recipe.overlays):
        return ()
    with ui.step(f"playbooks of {recipe.profile}") as step:
        try:
            requests = tuple(find_package_requests(recipe, lock, settings.cache))
        except ImagebuilderError as error:
            ui.warn(f"could not determine the packages of the playbooks: {error}")
            return ()
        count = len({each.package for request in requests for each in request.packages})
        step.remark(f"{format_count(count, 'package')} requested")
    for request in requests:
        for where, why in request.unknown:
            ui.note(f"{shown_place(where, settings)}: only the build can decide this task: {why}")
    return requests


def tell_missing(
    recipe: Recipe, lock: Lock, requests: Sequence[PackageRequests], settings: Settings, ui: Ui
) -> None:
    """Report every missing package with its task, and what to do."""
    for request in requests:
        missing = request.missing(lock)
        if not missing:
            continue
        many = format_count(len(missing), "package")
        ui.warn(f"{request.playbook.name} requests {many} that the lock does not have:")
        for each in missing:
            ui.note(f"  {each.package} ({shown_place(each.where, settings)})")
        file = request.overlay.path / OVERLAY_FILE
        if problem := problem_of(request, settings):
            ui.note(f"{problem}: {todo(missing)}")
        else:
            command = f"imagebuilder lock {recipe.profile} --add-packages"
            ui.note(f"run {command} to add them to {shown_path(file, settings)}")


def add_missing(
    lock: Lock, requests: Sequence[PackageRequests], settings: Settings, ui: Ui
) -> bool:
    """Add the missing packages to the overlays; False if none was missing.  Raises InputError."""
    waiting = [(request, missing) for request in requests if (missing := request.missing(lock))]
    for request, missing in waiting:
        if problem := problem_of(request, settings):
            raise InputError(f"could not add packages: {problem}", hint=todo(missing))
    for request, missing in waiting:
        file = request.overlay.path / OVERLAY_FILE
        names = list(dict.fromkeys(each.package for each in missing))
        add_packages(file, shown_path(file, settings), names)
        ui.note(f"added to {shown_path(file, settings)}: {', '.join(names)}")
    return bool(waiting)


def problem_of(request: PackageRequests, settings: Settings) -> str:
    """Why the packages cannot be added to the overlay; "" if they can.

    Other recipes may use an overlay that takes its playbook from a variable.
    """
    file = request.overlay.path / OVERLAY_FILE
    shown = shown_path(file, settings)
    if not file.resolve().is_relative_to(settings.project):
        return f"{shown} is not a file of this project"
    written = list(playbooks_in(file, shown))
    if not any(path.endswith(request.playbook.name) and "{{" not in path for path in written):
        return f"{shown} takes its playbook from a variable, so other recipes may use it"
    return ""


def playbooks_in(file: Path, shown: str) -> Iterator[str]:
    """The playbooks as written in the overlay's file."""
    entries = load_document(file, shown).value.get("ansible")
    for entry in entries if isinstance(entries, list) else ():
        if isinstance(entry, dict):
            yield str(entry.get("playbook"))


def todo(missing: Sequence[PackageRequest]) -> str:
    """The hint for packages that cannot be added automatically."""
    names = ", ".join(dict.fromkeys(each.package for each in missing))
    return f"list them under `packages:` of your own overlay in the recipe: [{names}]"


def shown_place(where: str, settings: Settings) -> str:
    """FILE:LINE for people."""
    path, colon, line = where.rpartition(":")
    return f"{shown_path(Path(path), settings)}{colon}{line}"
