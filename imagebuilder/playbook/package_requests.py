# SPDX-License-Identifier: Apache-2.0
"""Find the packages that a playbook requests without a root and without running its tasks.

ansible-playbook runs in a sandbox without a network.  Our callback plugin answers each task instead
of a node and records the packages (plugins/callback/imagebuilder_ask.py).
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.digest import Json
from imagebuilder.errors import WorkError
from imagebuilder.families.registry import family_of
from imagebuilder.files import scratch
from imagebuilder.lock.types import Lock
from imagebuilder.lock.wheels import MACHINES
from imagebuilder.playbook.controller import controller_sandbox, lay_out
from imagebuilder.playbook.facts import pins_of
from imagebuilder.playbook.rows import ToldRow, read_rows
from imagebuilder.playbook.step import find_ansible
from imagebuilder.process import MOST, Word, run
from imagebuilder.recipe.types import Base, Overlay, Playbook, Recipe
from imagebuilder.sandbox.view import for_anybody

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
        """The packages that `lock` does not have."""
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
    """Each package with its first request."""
    seen: set[str] = set()
    for row in rows:
        if row.event == "package" and row.package not in seen:
            seen.add(row.package)
            yield PackageRequest(row.package, row.where)


def facts_of(base: Base, host: str, lock: Lock) -> dict[str, Json]:
    """The facts of the image that its recipe and its lock determine."""
    setup = family_of(base).ansible
    kernels = [found[1] for p in lock.packages if (found := setup.kernel.fullmatch(p.name))]
    version = setup.versions.get(base.suite)
    machine = MACHINES[base.architecture]
    known: dict[str, Json] = {
        "distribution": base.distribution.capitalize(),
        "distribution_release": base.suite,
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
