# SPDX-License-Identifier: Apache-2.0
"""Where a benchmark happens: a copy of the project, a filled pool and states, all below one folder.

TOP/project            recipes and overlays of this checkout, locks resolved anew
TOP/site.yaml key*     a site file with a key of its own, and the mirrors of the person's
TOP/pool/{debs,wheels} every package of every lock, each state's own by hard links
TOP/cache              apt's indexes
TOP/wider              the project again, with one package more in an overlay in the middle
TOP/states/NAME        IMAGEBUILDER_STATE of one use, NAME.project a project of its own
TOP/logs/              what the other tools said
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic

from ruamel.yaml import YAML

from imagebuilder.digest import Json
from imagebuilder.errors import HostError
from imagebuilder.families.apt.deb import control
from imagebuilder.families.apt.mirrors import find_mirrors
from imagebuilder.families.registry import family_of
from imagebuilder.lock.file import load_lock
from imagebuilder.lock.types import Lock, LockedPackage
from imagebuilder.pipeline import settled_lock
from imagebuilder.process import Completed, Word, run
from imagebuilder.recipe.load import load_recipe
from imagebuilder.recipe.read import load_site
from imagebuilder.recipe.types import Recipe
from imagebuilder.settings import Settings, find_home, load_settings
from imagebuilder.store.repository import Store
from imagebuilder.store.workplace import remove_tree
from imagebuilder.supplies import fetch
from imagebuilder.ui import PoolProgress, Ui, format_size
from scripts.benchmark.compare import Stored

CHECKOUT = Path(__file__).resolve().parents[2]
# A package of no dependencies that no overlay names.
ADDED = "tree"
POOLS = ("debs", "wheels")


@dataclass(frozen=True)
class Place:
    """A project and a state, and the program on them."""

    top: Path
    project: Path
    state: Path

    @property
    def settings(self) -> Settings:
        """As the program would resolve them."""
        return Settings(self.project, self.state, self.top / "cache", self.top / "site.yaml")

    @property
    def store(self) -> Store:
        """The store of this state."""
        return Store(self.state / "store")

    def env(self) -> dict[str, str]:
        """The environment in which the program finds this place, and leaves none in the checkout.

        Bytecode goes below the top: it is there from the second run on, as for a user.
        """
        return {
            "IMAGEBUILDER_PROJECT": os.fspath(self.project),
            "IMAGEBUILDER_STATE": os.fspath(self.state),
            "IMAGEBUILDER_SITE": os.fspath(self.top / "site.yaml"),
            "IMAGEBUILDER_CACHE": os.fspath(self.top / "cache"),
            "PYTHONPYCACHEPREFIX": os.fspath(self.top / "bytecode"),
            "PYTHONDONTWRITEBYTECODE": "",  # which run() hands on from scripts/bench
            "PYTHONPATH": os.fspath(CHECKOUT),
        }

    def argv(self, *words: str) -> list[Word]:
        """The program's command line."""
        return [sys.executable, "-m", "imagebuilder.cli.main", *words]

    def __call__(self, *words: str) -> Completed:
        """Run `imagebuilder WORDS`.  Raises WorkError when it fails."""
        return self.run(self.argv(*words))

    def run(self, argv: Sequence[Word], **more: str) -> Completed:
        """Run a command line of the program."""
        return run(argv, env={**self.env(), **more}, cwd=self.project)

    def seconds(self, *words: str) -> float:
        """How long `imagebuilder WORDS` takes, the whole process."""
        start = monotonic()
        self(*words)
        return monotonic() - start

    def ask(self, *words: str) -> dict[str, Json]:
        """What `imagebuilder WORDS --json` says."""
        value: dict[str, Json] = json.loads(self(*words, "--json").stdout)
        return value

    def recipe(self, profile: str) -> Recipe:
        """A profile of this project."""
        return load_recipe(profile, self.settings)

    def lock(self, profile: str) -> Lock:
        """Its lock."""
        return load_lock(self.settings.lock_file(profile))

    def image(self, profile: str) -> Stored:
        """The newest image of a profile in this state."""
        return Stored(self.store, self.ask("show", profile))

    def drop(self) -> None:
        """Remove the state."""
        remove_tree(self.state)


@dataclass(frozen=True)
class Asked:
    """What to measure: how often, and of which profiles."""

    runs: int
    profiles: tuple[str, ...]

    @property
    def small(self) -> str:
        """The profile of everything else."""
        return self.profiles[0]

    @property
    def largest(self) -> str:
        """The profile on which a small change must still be quick."""
        return self.profiles[-1]


@dataclass(frozen=True)
class First:
    """A profile built once, cold; `program` and `sandboxes` are peaks of memory in bytes."""

    place: Place
    program: int
    sandboxes: int


@dataclass(frozen=True)
class Wider:
    """A project whose profile has one package more, and what differs from the first."""

    project: Path
    overlay: str
    lock: str
    added: tuple[LockedPackage, ...]


class Bed:
    """The places of one run; first builds are made when first asked for."""

    def __init__(self, top: Path, ui: Ui) -> None:
        self.top = top
        self.ui = ui
        self._firsts: dict[str, First] = {}
        self._wider: dict[str, Wider] = {}

    def prepare(self, profiles: Sequence[str], pool: Path | None) -> None:
        """Copy the project, resolve the locks of `profiles`, fill the pool (first from `pool`)."""
        for name in ("project", "states", "work"):
            remove_tree(self.top / name)
        for name in ("recipes", "overlays"):
            shutil.copytree(CHECKOUT / name, self.top / "project" / name, symlinks=True)
        for path in (self.top / "project/recipes/locks").glob("*.lock"):
            path.unlink()
        make_site(self.top)
        for name in POOLS:
            (self.top / "pool" / name).mkdir(parents=True, exist_ok=True)
            if pool and (pool / name).is_dir():
                link_tree(pool / name, self.top / "pool" / name)
        main = self.fresh("main")
        for profile in profiles:
            with self.ui.step(f"lock {profile}"):
                main("lock", profile)
            fill(main, profile, self.top / "pool", PoolProgress(self.ui))

    def fresh(self, name: str, *, own_project: bool = False) -> Place:
        """A state without a store, with the whole pool; with a project of its own if asked for."""
        state, project = self.top / "states" / name, self.top / "project"
        remove_tree(state)
        for pool in POOLS:
            (state / pool).mkdir(parents=True)
            link_tree(self.top / "pool" / pool, state / pool)
        if own_project:
            project = self.top / "states" / f"{name}.project"
            remove_tree(project)
            shutil.copytree(self.top / "project", project, symlinks=True)
        return Place(self.top, project, state)

    def wider(self, profile: str) -> Wider:
        """The project in which `profile` has one package more, locked and in the pool."""
        if profile not in self._wider:
            self._wider[profile] = self._make_wider(profile)
        return self._wider[profile]

    def _make_wider(self, profile: str) -> Wider:
        place = replace(self.fresh("wider"), project=self.top / "wider")
        remove_tree(place.project)
        shutil.copytree(self.top / "project", place.project, symlinks=True)
        before = place.lock(profile)
        overlays = place.recipe(profile).overlays
        path = overlays[len(overlays) // 2].path / "overlay.yaml"
        add_package(path, ADDED)
        with self.ui.step(f"lock {profile} with {ADDED} in {path.parent.name}"):
            settled_lock(place.recipe(profile), place.settings, self.ui, refresh=True)
        fill(place, profile, self.top / "pool", PoolProgress(self.ui))
        known = {package.nevra for package in before.packages}
        added = [p for p in place.lock(profile).packages if p.nevra not in known]
        place.drop()
        return Wider(
            project=place.project,
            overlay=os.fspath(path.relative_to(place.project)),
            lock=os.fspath(place.settings.lock_file(profile).relative_to(place.project)),
            added=tuple(sorted(added, key=lambda package: package.name != ADDED)),
        )

    def copy(self, place: Place, name: str) -> Place:
        """A copy of a state, by hard links, and of its project, to be changed at will."""
        state, project = self.top / "states" / name, self.top / "states" / f"{name}.project"
        for folder in (state, project):
            remove_tree(folder)
        link_tree(place.state, state)
        shutil.copytree(place.project, project, symlinks=True)
        return replace(place, project=project, state=state)

    def first(self, profile: str) -> First:
        """The first build of a profile, in a state that nothing else changes."""
        if profile not in self._firsts:
            place = self.fresh(f"first-{profile}")
            out = self.top / f"peak-{profile}.json"
            peak = CHECKOUT / "scripts/benchmark/peak.py"
            with self.ui.step(f"first build of {profile}"):
                place.run([sys.executable, peak, out, "build", profile, "--locked"])
            said: Mapping[str, int] = json.loads(out.read_text())
            self._firsts[profile] = First(place, said["program"], said["sandboxes"])
        return self._firsts[profile]

    def facts(self, profiles: Sequence[str]) -> dict[str, str]:
        """What is built, by profile."""
        main = Place(self.top, self.top / "project", self.top / "states/main")
        found = {name: main.settings.lock_file(name) for name in profiles}
        return {name: lock_facts(load_lock(path)) for name, path in found.items() if path.exists()}


def add_package(path: Path, name: str) -> None:
    """Add a package to an overlay.yaml."""
    yaml = YAML()
    overlay = yaml.load(path.read_text())
    overlay.setdefault("packages", []).append(name)
    with path.open("w") as stream:
        yaml.dump(overlay, stream)


def lock_facts(lock: Lock) -> str:
    """A lock in a few words."""
    size = sum(package.size for package in lock.packages)
    return f"{lock.base}, {len(lock.packages)} packages, {format_size(size)} to fetch"


def make_site(top: Path) -> None:
    """A site file that lets nobody in whom we know, and finds packages where the person's does."""
    key = top / "key"
    if not key.exists():
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "benchmark", "-f", key])
    settings = load_settings(os.environ, project=CHECKOUT)
    site = load_site(settings, find_home(os.environ), []).file
    mirrors = dict(find_mirrors(site.mirrors, os.environ))
    # JSON is YAML.
    (top / "site.yaml").write_text(
        json.dumps({"ssh-keys": [f"{key}.pub"], "mirrors": mirrors}) + "\n"
    )


def fill(place: Place, profile: str, pool: Path, progress: PoolProgress) -> None:
    """Fetch what the pool lacks of a profile, and read each package's control record.

    Those records stay in a pool: the second build that uses it finds them, as every one here does.
    """
    settings, lock = place.settings, place.lock(profile)
    site = load_site(settings, find_home(os.environ), []).file
    recipe = place.recipe(profile)
    fetch(
        lock,
        family_of(recipe.base),
        find_mirrors(site.mirrors, os.environ),
        recipe.sources,
        pool / "debs",
        pool / "wheels",
        settings.cache,
        offline=False,
        progress=progress,
    )
    for package in lock.packages:
        control(pool / "debs", package)


def link_tree(source: Path, target: Path) -> None:
    """Everything of `source` in `target`, by hard links where one file system allows."""
    if not os.path.lexists(target):
        target.mkdir(parents=True)
    same = source.stat().st_dev == target.stat().st_dev
    how = "--link" if same else "--reflink=auto"
    run(["cp", "--archive", "--force", how, f"{source}/.", target])


def check_space(top: Path, wanted: int) -> None:
    """Refuse to begin what cannot end.  Raises HostError."""
    free = shutil.disk_usage(top).free
    if free < wanted:
        raise HostError(
            f"{format_size(free)} free, {format_size(wanted)} needed",
            where=os.fspath(top),
            hint="--work names another place, --small leaves the large profile out",
        )
