# SPDX-License-Identifier: Apache-2.0
"""Where things live: resolved once from options and environment, then passed as a value."""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import InputError
from imagebuilder.folders import matching
from imagebuilder.rights import owner_of
from imagebuilder.share import INSTALLED, SHARE
from imagebuilder.trusted import Trusted

# Whence a recipe or overlay is that has the name of one that ships.
REPLACED = "project, replaces shipped"
DEFAULT_STATE = Path("/var/lib/imagebuilder")
# Of options of commands; here, because a command imports what it runs only when it runs.
DEFAULT_CALENDAR = "*-*-* 02:30"
DEFAULT_LISTEN = "127.0.0.1:8470"
ROOT_CACHE = Path("/var/cache/imagebuilder")
HINT_STATE = "with --state or IMAGEBUILDER_STATE, name a folder that only you and root can change"
HINT_CACHE = "with IMAGEBUILDER_CACHE, name a folder that only you and root can change"


@dataclass(frozen=True)
class Settings:
    """Paths and switches of one run.

    `project` holds recipes/ and overlays/; `state` is what `build` writes; `cache` is what `lock`
    writes (indexes of archives), the only two places besides the lock file; `site` is the site
    file, which may not exist.  `shipped` holds the recipes and overlays that come with the
    program: a project finds them by name, and its own replace those of the same name.
    """

    project: Path
    state: Path
    cache: Path
    site: Path
    verbose: bool = False
    shipped: Path | None = None

    @property
    def recipes(self) -> Path:
        return self.project / "recipes"

    def find_recipes(self) -> dict[str, Path]:
        """The file of every profile, by name."""
        return {path.stem: path for path in self._find("recipes/*.yaml")}

    def find_bases(self) -> dict[str, Path]:
        """The file of every base, by name."""
        return {path.stem: path for path in self._find("recipes/bases/*.yaml")}

    def find_overlays(self) -> dict[str, Path]:
        return {path.parent.name: path.parent for path in self._find("overlays/*/overlay.yaml")}

    def find_hardware(self) -> list[Path]:
        """The files that say which cards there are, in order of their names."""
        return self._find("hardware/*.yaml")

    def _find(self, pattern: str) -> list[Path]:
        """What matches, in order; the project's own replaces what ships under the same name."""
        places = (self.shipped, self.project) if self.shipped else (self.project,)
        paths = ((path, place) for place in places for path in matching(place, pattern))
        found = {path.relative_to(place): path for path, place in paths}
        return [found[name] for name in sorted(found, key=lambda path: path.with_suffix(""))]

    def origin(self, path: Path) -> str:
        """Where a file or folder that was found comes from, for people."""
        if self.without_project or not path.is_relative_to(self.project):
            return "shipped"
        return REPLACED if self.find_replaced(path) else "project"

    def find_replaced(self, path: Path) -> Path | None:
        """What ships under the name of a file or folder of the project."""
        if self.shipped in (None, self.project) or not path.is_relative_to(self.project):
            return None
        found = (self.shipped or self.project) / path.relative_to(self.project)
        return found if found.exists() else None

    @property
    def without_project(self) -> bool:
        """Whether only what ships was found; a clone is a project."""
        return INSTALLED and self.project == SHARE

    def check_project(self) -> None:
        """Raise InputError where there is no project: nothing is written beside what ships."""
        if self.without_project:
            raise InputError(
                "no project in this folder or above it, so a lock or recipe cannot be written",
                where=os.fspath(Path.cwd()),
                hint="run imagebuilder init DIR to create one, or name one with --project DIR",
            )

    @property
    def locks(self) -> Path:
        return self.recipes / "locks"

    def lock_file(self, profile: str) -> Path:
        return self.locks / f"{profile}.lock"


def load_settings(
    env: Mapping[str, str],
    *,
    state: Path | None = None,
    project: Path | None = None,
    verbose: bool = False,
) -> Settings:
    """Settings from options first, then IMAGEBUILDER_* of `env`, then defaults.

    Raises InputError when a project is named that is none.
    """
    if "IMAGEBUILDER_HOUSE" in env:
        raise InputError(
            "this variable is now called IMAGEBUILDER_PROJECT",
            where="IMAGEBUILDER_HOUSE",
            hint="set IMAGEBUILDER_PROJECT, or use --project, and unset IMAGEBUILDER_HOUSE",
        )
    found = (project or find_project(env)).resolve()
    if not (found / "recipes").is_dir():
        raise InputError(
            "has no recipes/",
            where=os.fspath(found),
            hint="run imagebuilder init DIR to create a project, or name one with --project DIR",
        )
    home = find_home(env)
    named = state or Path(env.get("IMAGEBUILDER_STATE") or DEFAULT_STATE)
    config_home = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    settings = Settings(
        project=found,
        state=named.absolute(),
        cache=find_cache(env).absolute(),
        site=Path(
            env.get("IMAGEBUILDER_SITE") or config_home / "imagebuilder" / "site.yaml"
        ).absolute(),
        verbose=verbose,
        shipped=SHARE,
    )
    check_written(settings, env)
    return settings


def check_written(settings: Settings, env: Mapping[str, str]) -> None:
    """Raise HostError if another user could lead elsewhere what we write, with links or renames.

    Root, we, who called sudo, and the owner of the project, whose programs we run, could anyway.
    """
    caller = find_caller(env)
    trusted = Trusted.of(
        (0, os.geteuid(), settings.project.stat().st_uid, *([caller[0]] if caller else [])),
        settings.project,
    )
    trusted.check_folders(settings.state, HINT_STATE)
    trusted.check_folders(settings.cache, HINT_CACHE)
    for folder in (settings.locks, *matching(settings.project, "overlays/*")):
        trusted.check_links(settings.project, folder)


def find_cache(env: Mapping[str, str]) -> Path:
    """Where package indexes are kept: of a person in their cache, of root in the system's."""
    if given := env.get("IMAGEBUILDER_CACHE"):
        return Path(given)
    if os.geteuid() == 0:
        return ROOT_CACHE
    return Path(env.get("XDG_CACHE_HOME") or find_home(env) / ".cache") / "imagebuilder"


def find_home(env: Mapping[str, str]) -> Path:
    """The home of the person: under sudo that of who called it, so that root finds their site.

    Raises InputError for a user without a name, as in a container, if HOME is not set.
    """
    if os.geteuid() == 0 and (caller := env.get("SUDO_USER")):
        try:
            return Path(pwd.getpwnam(caller).pw_dir)
        except KeyError:
            pass
    if home := env.get("HOME"):
        return Path(home)
    try:
        return Path(pwd.getpwuid(os.getuid()).pw_dir)
    except KeyError as error:
        what = f"no home folder is known: this host has no user with the number {os.getuid()}"
        raise InputError(what, where="HOME", hint="set HOME to a folder of this user") from error


def find_caller(env: Mapping[str, str]) -> tuple[int, int] | None:
    """The uid and gid of whoever became root with sudo; None for everybody else."""
    ids = env.get("SUDO_UID", ""), env.get("SUDO_GID", "")
    if os.geteuid() != 0 or ids[0] in ("", "0") or not all(each.isdigit() for each in ids):
        return None
    return int(ids[0]), int(ids[1])


def find_project(env: Mapping[str, str]) -> Path:
    """The nearest folder upwards that has recipes/, else what comes with the program.

    Raises InputError if others may write to what is found: checks of overlays are run as root.
    """
    if given := env.get("IMAGEBUILDER_PROJECT"):
        return Path(given)
    here = Path.cwd()
    for place in (here, *here.parents):
        if (place / "recipes").is_dir():
            if place != SHARE:  # whose program runs already
                check_owner(place, env)
            return place
    return SHARE


def check_owner(place: Path, env: Mapping[str, str]) -> None:
    """Raise InputError for a project that nobody named, and that others may write to."""
    found, caller = place.stat(), find_caller(env)
    if found.st_mode & stat.S_IWOTH:
        what = "everybody may put recipes and overlays into this folder, and nobody named it"
    elif found.st_uid not in (0, os.geteuid(), caller[0] if caller else 0):
        what = f"this project belongs to {owner_of(place)}, and nobody named it"
    else:
        return
    raise InputError(
        what,
        where=os.fspath(place),
        hint="its overlays have programs that run as root: if you trust all who may write there, "
        "name it with --project DIR or IMAGEBUILDER_PROJECT",
    )
