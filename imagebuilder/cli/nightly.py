# SPDX-License-Identifier: Apache-2.0
"""The nightly run: rebuild, test and release every profile that changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from imagebuilder.cli.context import (
    Call,
    Context,
    argument,
    option,
    print_json,
    print_text,
    wants_colour,
)
from imagebuilder.cli.names import AsJson, TreeOption, complete_profile
from imagebuilder.settings import DEFAULT_CALENDAR
from imagebuilder.tree import DEFAULT_TREE

if TYPE_CHECKING:
    from imagebuilder.nightly.types import NightlyOptions, NightlyRun

PATIENCE_MIN = 60
Profiles = Annotated[
    list[str] | None,
    argument(
        "Profiles. [default: every recipe, and every profile with a lock]",
        metavar="PROFILE",
        autocompletion=complete_profile,
    ),
]
Promote = Annotated[
    bool | None, option("Promote what passed its boot test.", "--promote/--no-promote")
]
RollOut = Annotated[
    bool | None,
    option(
        "Roll out what passed, in the maintenance window of the site file.",
        "--rollout/--no-rollout",
    ),
]
ReportFolder = Annotated[
    Path | None,
    option(
        "Folder for reports. [default: nightly/ in the state folder]",
        envvar="IMAGEBUILDER_REPORT",
        metavar="DIR",
    ),
]
Keep = Annotated[int | None, option("Images and releases to keep per profile. [default: 5]", min=1)]
Commit = Annotated[
    bool | None, option("Commit the locks that passed to git.", "--commit/--no-commit")
]
Patience = Annotated[
    int, option("Time to wait for an unreachable archive.", min=0, metavar="MINUTES")
]


def nightly(
    context: Call,
    profiles: Profiles = None,
    promote: Promote = None,
    rollout: RollOut = None,
    report: ReportFolder = None,
    keep: Keep = None,
    commit: Commit = None,
    patience: Patience = PATIENCE_MIN,
    install: Annotated[
        bool, option("Install a systemd timer with these options.", "--install")
    ] = False,
    uninstall: Annotated[bool, option("Remove the timer.", "--uninstall")] = False,
    calendar: Annotated[
        str, option("With --install: time of runs (systemd.time(7)).", metavar="TIME")
    ] = DEFAULT_CALENDAR,
    root: Annotated[
        Path, option("Root folder for --install; for packagers.", envvar="DESTDIR")
    ] = Path("/"),
    tree: TreeOption = DEFAULT_TREE,
    json: AsJson = False,
) -> None:
    """Refresh locks, rebuild what changed, prove, publish, boot-test and promote it.

    If nothing changed, it says so and does nothing. If a profile fails, its stable release stays,
    and the other profiles continue. Exits with 1 if one failed. `nightly:` in the site file sets
    defaults for the options.

    Example: imagebuilder nightly --promote --commit
    """
    from imagebuilder.nightly import site
    from imagebuilder.nightly.install import uninstall_nightly
    from imagebuilder.nightly.types import NightlyOptions

    if uninstall:
        print_text(uninstall_nightly(root))
        return
    context.obj.settings.check_project()
    usual = site.load_nightly(context.obj.settings, os.environ)
    chosen, left_out = site.choose_profiles(profiles or usual.profiles, context.obj.settings)
    promotes, rolls_out = site.find_rollout_wish(usual, promote=promote, rollout=rollout)
    if install:
        words = (*(profiles or ()), *words_of(promote, rollout, report, keep, commit, patience))
        print_text(install_timer(context.obj, words, calendar, root, tree))
        return
    for fault in left_out:
        context.obj.ui.warn(str(fault))
    options = NightlyOptions(
        chosen,
        (report or site.find_report_folder(usual, context.obj.settings, os.environ)).absolute(),
        promote=promotes,
        rollout=rolls_out,
        keep=keep or usual.keep,
        commit=usual.commit if commit is None else commit,
        patience=60.0 * patience,
    )
    show(run_and_notify(context.obj, options, tree), options.folder, json)


def install_timer(
    common: Context, words: tuple[str, ...], calendar: str, root: Path, tree: Path
) -> str:
    """Write the timer; returns a summary."""
    from imagebuilder.nightly.install import TimerOptions, install_nightly
    from imagebuilder.notify.receivers import find_credentials, load_notify
    from imagebuilder.tree import Tree

    credentials = find_credentials(load_notify(common.settings, os.environ), os.environ)
    timer = TimerOptions(words, calendar, tuple(credentials))
    return install_nightly(timer, common.settings, Tree(tree.absolute()), root, common.ui)


def run_and_notify(common: Context, options: NightlyOptions, tree: Path) -> NightlyRun:
    from imagebuilder.cli.rollout import reported_by_web
    from imagebuilder.fleet.rollout.message import report_interruptions, telling
    from imagebuilder.nightly.notify import messages_file, telling_run
    from imagebuilder.nightly.run import run_nightly
    from imagebuilder.notify.kept import notifying_kept
    from imagebuilder.notify.receivers import find_receivers, load_notify
    from imagebuilder.rights import check_root
    from imagebuilder.tree import make_tree

    check_root("a nightly run")
    receivers = find_receivers(load_notify(common.settings, os.environ), os.environ)
    kept = messages_file(common.settings.state)
    with (
        notifying_kept(kept, receivers, common.ui.warn) as notifier,
        telling_run(options, notifier) as tell,
    ):
        opened = make_tree(tree)
        report_interruptions(opened, telling(notifier), reported_by_web(common, opened))
        return run_nightly(
            options, common.settings, opened, common.ui, told=tell, tell_rollout=telling(notifier)
        )


def words_of(
    promote: bool | None,
    rollout: bool | None,
    report: Path | None,
    keep: int | None,
    commit: bool | None,
    patience: int,
) -> list[str]:
    """The set options as arguments of a command line."""
    words = []
    if promote is not None:
        words.append("--promote" if promote else "--no-promote")
    if rollout is not None:
        words.append("--rollout" if rollout else "--no-rollout")
    if report:
        words += ["--report", os.fspath(report.absolute())]
    if keep is not None:
        words += ["--keep", str(keep)]
    if commit is not None:
        words.append("--commit" if commit else "--no-commit")
    if patience != PATIENCE_MIN:
        words += ["--patience", str(patience)]
    return words


def show(run: NightlyRun, folder: Path, json: bool) -> None:
    """Print a run; exits with 1 if it failed."""
    from imagebuilder.nightly.message import render_lines
    from imagebuilder.nightly.save import INDEX
    from imagebuilder.nightly.types import NIGHTLY_RUN

    if json:
        print_json(NIGHTLY_RUN.encode(run))
    else:
        print_text(render_lines(run, folder / INDEX, colour=wants_colour()))
    if run.failed:
        raise typer.Exit(1)
