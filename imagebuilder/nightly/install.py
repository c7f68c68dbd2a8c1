# SPDX-License-Identifier: Apache-2.0
"""`nightly --install`: a systemd timer that starts a run with the options of this command line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from imagebuilder.environment import OWN_MODULE, SBIN
from imagebuilder.errors import InputError
from imagebuilder.nodes.scripts import render_template
from imagebuilder.notify.receivers import Credential
from imagebuilder.process import is_installed, run
from imagebuilder.serve.units import (
    UNITS,
    UnitFile,
    environment_line,
    exec_line,
    find_units,
    is_live,
    place_units,
    remove_units,
    unit_text,
)
from imagebuilder.settings import DEFAULT_CALENDAR, Settings
from imagebuilder.tree import Tree
from imagebuilder.ui import Ui

COMMAND = "nightly"
NAME = "imagebuilder-nightly"
# Variables of the caller that a run needs too.  SUDO_USER says whose home `~` is.
CARRIED = (
    "IMAGEBUILDER_MIRROR", "SUDO_USER",
    "http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
ADDRESSES = ("_mirror", "_proxy")
READ_ONLY = ("/usr", "/boot", "/efi", "/etc")  # under ProtectSystem=full
PRIVATE = ("/tmp", "/var/tmp")  # what PrivateTmp=yes hides


@dataclass(frozen=True)
class TimerOptions:
    """Options of the timer.

    `words` is the command line of each run (profiles and options without `--install`); what only
    the site file says may still change there.  `calendar` is the time of the runs
    (systemd.time(7)), `credentials` are files with secrets that only root may read.
    """

    words: tuple[str, ...] = ()
    calendar: str = DEFAULT_CALENDAR
    credentials: tuple[Credential, ...] = ()


def install_nightly(
    options: TimerOptions, settings: Settings, tree: Tree, root: Path, ui: Ui
) -> str:
    """Write the service and the timer below `root`; returns what was done and what to type.

    Starts nothing, and leaves identical files alone.  Raises InputError for an invalid time,
    WorkError if the files cannot be written.
    """
    check_calendar(options.calendar)
    lines = place_units(root, make_units(options, settings, tree, ui))
    return "\n".join(
        [
            *lines,
            "",
            "To start it now and at every boot:",
            "    sudo systemctl daemon-reload",
            f"    sudo systemctl enable --now {NAME}.timer",
            "To start a run now and read its output:",
            f"    sudo systemctl start --no-block {NAME}.service",
            f"    journalctl -fu {NAME}",
        ]
    )


def check_calendar(calendar: str) -> None:
    """Raise InputError if systemd rejects the time; without systemd it is not checked."""
    if not calendar.isprintable() or not calendar.strip():
        hint = f"for example '{DEFAULT_CALENDAR}'"
        raise InputError("is not a time", where=repr(calendar), hint=hint)
    if not is_installed("systemd-analyze"):
        return
    done = run(["systemd-analyze", "calendar", "--", calendar], check=False)
    if done.status != 0:
        said = done.stderr.strip().splitlines()
        raise InputError(
            f"is not a time for systemd: {said[-1] if said else 'it gave no reason'}",
            where=repr(calendar),
            hint=f"see systemd.time(7); for example '{DEFAULT_CALENDAR}' or 'Mon..Fri 03:00'",
        )


def make_units(
    options: TimerOptions, settings: Settings, tree: Tree, ui: Ui
) -> tuple[UnitFile, UnitFile]:
    command = exec_line([sys.executable, *OWN_MODULE, COMMAND, *options.words])
    written = (settings.project, settings.state, settings.cache, tree.path)
    needed = (*written, settings.site, Path(sys.executable))
    service = render_template(
        "nightly.service.j2",
        command=command,
        environment=[environment_line(*pair) for pair in find_environment(settings, tree, ui)],
        credentials=[credential_line(each) for each in options.credentials],
        protected=not is_below(written, READ_ONLY),
        private=not is_below(needed, PRIVATE),
    )
    timer = render_template("nightly.timer.j2", calendar=options.calendar.replace("%", "%%"))
    return (
        UnitFile(UNITS / f"{NAME}.service", service, "a nightly run", starts=False),
        UnitFile(UNITS / f"{NAME}.timer", timer, f"starts it: {options.calendar}"),
    )


def credential_line(credential: Credential) -> str:
    """A file in the form of LoadCredential= (systemd.exec(5))."""
    return f"{credential.name}:{unit_text(os.fspath(credential.path))}"


def is_below(paths: Sequence[Path], places: Sequence[str]) -> bool:
    return any(path.is_relative_to(place) for path in paths for place in places)


def find_environment(settings: Settings, tree: Tree, ui: Ui) -> Iterator[tuple[str, str]]:
    """Name and value of each variable for the runs, except those with a password."""
    yield "PATH", f"{Path(sys.executable).parent}:{SBIN}"
    yield "IMAGEBUILDER_PROJECT", os.fspath(settings.project)
    yield "IMAGEBUILDER_STATE", os.fspath(settings.state)
    yield "IMAGEBUILDER_CACHE", os.fspath(settings.cache)
    yield "IMAGEBUILDER_SITE", os.fspath(settings.site)
    yield "IMAGEBUILDER_TREE", os.fspath(tree.path)
    yield from find_carried(os.environ, ui)


def find_carried(env: Mapping[str, str], ui: Ui) -> Iterator[tuple[str, str]]:
    for name in CARRIED:
        value = env.get(name, "")
        # Also without a scheme, as proxies may be written.
        if "@" in value and name.lower().endswith(ADDRESSES):
            ui.warn(
                f"{name} contains a user name or password and was not written into the unit, which "
                "every user can read: set it with mirrors: in the site file"
            )
        elif value:
            yield name, value


def uninstall_nightly(root: Path) -> str:
    """Stop and remove the units of install_nightly(); returns a summary."""
    found = find_units(root, COMMAND)
    if not found:
        return "no units of imagebuilder are installed"
    return "\n".join(remove_units(root, found, live=is_live(root)))
