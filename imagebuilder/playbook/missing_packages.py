# SPDX-License-Identifier: Apache-2.0
"""Report or add the packages that playbooks request and the lock does not have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from imagebuilder.errors import ImagebuilderError, InputError
from imagebuilder.lock.types import Lock
from imagebuilder.playbook.package_requests import (
    PackageRequest,
    PackageRequests,
    find_package_requests,
)
from imagebuilder.recipe.amend import add_packages
from imagebuilder.recipe.positions import load_document
from imagebuilder.recipe.read import OVERLAY_FILE, shown_path
from imagebuilder.recipe.types import Recipe
from imagebuilder.settings import Settings
from imagebuilder.ui import Ui, format_count


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
            ui.note(f"{command} adds them to {shown_path(file, settings)}")


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
