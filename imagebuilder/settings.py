# SPDX-License-Identifier: Apache-2.0
"""Where things live: resolved once from options and environment, then passed as a value."""

from __future__ import annotations

import os
import pwd
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.errors import InputError

DEFAULT_STATE = Path("/var/lib/imagebuilder")


@dataclass(frozen=True)
class Settings:
    """Paths and switches of one run.

    `house` holds recipes/ and overlays/; `state` is what `build` writes; `cache` is what `lock`
    writes (apt's indexes), the only two places besides the lock file; `site` is the site file,
    which may not exist.
    """

    house: Path
    state: Path
    cache: Path
    site: Path
    verbose: bool = False

    @property
    def recipes(self) -> Path:
        return self.house / "recipes"

    @property
    def overlays(self) -> Path:
        return self.house / "overlays"

    @property
    def locks(self) -> Path:
        return self.recipes / "locks"

    def lock_file(self, profile: str) -> Path:
        """Where the lock of `profile` is or will be."""
        return self.locks / f"{profile}.lock"


def load_settings(
    env: Mapping[str, str],
    *,
    state: Path | None = None,
    house: Path | None = None,
    verbose: bool = False,
) -> Settings:
    """Settings from options first, then IMAGEBUILDER_* of `env`, then defaults.

    Raises InputError when no recipes are found.
    """
    found = (house or find_house(env)).resolve()
    if not (found / "recipes").is_dir():
        raise InputError(
            "has no recipes/",
            where=os.fspath(found),
            hint="--house and IMAGEBUILDER_HOUSE name a checkout of imagebuilder",
        )
    home = find_home(env)
    cache_home = Path(env.get("XDG_CACHE_HOME") or home / ".cache")
    config_home = Path(env.get("XDG_CONFIG_HOME") or home / ".config")
    return Settings(
        house=found,
        state=(state or Path(env.get("IMAGEBUILDER_STATE") or DEFAULT_STATE)).absolute(),
        cache=Path(env.get("IMAGEBUILDER_CACHE") or cache_home / "imagebuilder").absolute(),
        site=Path(
            env.get("IMAGEBUILDER_SITE") or config_home / "imagebuilder" / "site.yaml"
        ).absolute(),
        verbose=verbose,
    )


def find_home(env: Mapping[str, str]) -> Path:
    """The home of the person: under sudo that of who called it, so that root finds their site."""
    if os.geteuid() == 0 and (caller := env.get("SUDO_USER")):
        try:
            return Path(pwd.getpwnam(caller).pw_dir)
        except KeyError:
            pass
    return Path(env.get("HOME") or pwd.getpwuid(os.getuid()).pw_dir)


def find_house(env: Mapping[str, str]) -> Path:
    """The nearest folder upwards that has recipes/ and overlays/, else the checkout we run from."""
    if given := env.get("IMAGEBUILDER_HOUSE"):
        return Path(given)
    here = Path.cwd()
    checkout = Path(__file__).parent.parent
    for folder in (here, *here.parents, checkout):
        if (folder / "recipes").is_dir() and (folder / "overlays").is_dir():
            return folder
    raise InputError(
        "no recipes/ and overlays/ here or in a folder above",
        where=os.fspath(here),
        hint="change into a checkout of imagebuilder, or set IMAGEBUILDER_HOUSE to one",
    )
