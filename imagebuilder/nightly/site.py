# SPDX-License-Identifier: Apache-2.0
"""What the site file says of nights: its `nightly`, and the paths in it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from imagebuilder.errors import Fault, InputError
from imagebuilder.recipe.model_nightly import NightlyModel
from imagebuilder.recipe.read import load_site
from imagebuilder.settings import Settings, find_home

REPORT = "nightly"  # below the state, where nobody says


def load_nightly(settings: Settings, env: Mapping[str, str]) -> NightlyModel:
    """The `nightly` of the site file, its defaults without one.  Raises InputError."""
    faults: list[Fault] = []
    site = load_site(settings, find_home(env), faults)
    if faults:
        raise InputError.of(faults)
    return site.file.nightly


def find_report_folder(site: NightlyModel, settings: Settings, env: Mapping[str, str]) -> Path:
    """Where the report and the history are when no option says."""
    return in_home(site.report, env) if site.report else settings.state / REPORT


def find_webhook_file(site: NightlyModel, env: Mapping[str, str]) -> Path | None:
    return in_home(site.webhook_file, env) if site.webhook_file else None


def in_home(path: str, env: Mapping[str, str]) -> Path:
    """A path of the site file; `~` is the person's home, also under sudo."""
    home = find_home(env)
    return home / path.removeprefix("~/") if path.startswith("~/") else Path(path).absolute()
