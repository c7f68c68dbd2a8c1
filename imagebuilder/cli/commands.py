# SPDX-License-Identifier: Apache-2.0
"""The commands by panel of `--help`, each imported when it is used."""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.main import get_command, get_group

from imagebuilder.cli.context import Project, State, Verbose
from imagebuilder.cli.usage import reported_alike

# MODULE.FUNCTION or MODULE.APP of this package.  To import all of them and to read their options
# took a sixth of a build that has nothing to do.
PANELS: Mapping[str, tuple[str, ...]] = {
    "Build": (
        "host.profiles", "work.plan", "work.lock", "work.build", "nightly.nightly",
        "hardware.hardware_app",
    ),
    "Images": (
        "images.images", "images.show", "images.sbom", "images.diff", "images.export",
        "images.shell", "images.gc", "images.fsck",
    ),
    "Proof": ("prove.prove", "check.check", "prove.why", "test.test", "report.report"),
    "Releases": (
        "releases.publish", "releases.promote", "releases.rollback", "releases.releases",
        "releases.keep", "releases.unpublish",
    ),
    "Nodes": (
        "fleet.status", "configure.explain", "console.console", "fleet.up", "fleet.down",
        "fleet.restart", "configure.configure", "configure.inventory", "adopt.discover",
        "adopt.adopt", "drift.drift", "serve.serve", "web.web", "fleet.run_on_nodes",
        "nodes.nodes_app", "rollout.rollout_app", "live.live_app", "token.token_app",
    ),
    "Host": ("host.setup", "host.init", "host.doctor", "host.schema"),
    # Run by publish --to on the other machine, and by the web page or its systemd units.
    "": ("receive.receive", "token.act", "token.read"),
}  # fmt: skip


def name_of(place: str) -> str:
    """The name of a command, by where it is."""
    return place.partition(".")[2].removesuffix("_app").removesuffix("_on_nodes")


COMMANDS = {name_of(place): (panel, place) for panel, places in PANELS.items() for place in places}


HELP = ["-h", "--help"]
# What `--help` calls the value of an option, by its type.
TAKEN = {"str": "TEXT", "list[str]": "TEXT", "Path": "PATH", "int": "NUMBER", "float": "NUMBER"}


@functools.cache
def load_command(name: str) -> TyperCommand | TyperGroup:
    """Import a command."""
    panel, place = COMMANDS[name]
    module, _, attribute = place.partition(".")
    found = getattr(importlib.import_module(f"imagebuilder.cli.{module}"), attribute)
    app = typer.Typer(rich_markup_mode="markdown")
    if isinstance(found, typer.Typer):
        app.add_typer(found, rich_help_panel=panel)
    else:
        app.command(name, rich_help_panel=panel, hidden=not panel)(found)
    command = get_group(app).commands[name]
    assert isinstance(command, (TyperCommand, TyperGroup))
    add_global(command)
    return command


def add_global(command: TyperCommand | TyperGroup) -> None:
    """Let a command, or every command of a group, take the global options as well.

    Not from environment variables, which would then replace an option before the command.
    """
    # Typer keeps the option --help that it makes here.
    show_type(command.get_help_option(typer.Context(command, help_option_names=HELP)))
    if isinstance(command, TyperGroup):
        for below in command.commands.values():
            assert isinstance(below, (TyperCommand, TyperGroup))
            add_global(below)
        return
    app = typer.Typer(add_completion=False)
    app.command()(take_global)
    for option in get_command(app).params:
        option.envvar = None
        command.params.append(option)
    for param in command.params:
        show_type(param)


def show_type(param: object) -> None:
    """Show in `--help` what an option takes in capitals, and nothing if it takes no value; and an
    argument by its name in capitals alone.

    Newer versions of Typer show Python's names by themselves: `<bool>`, `<list[str]>`.
    """
    if isinstance(param, TyperArgument):
        param.metavar = param.metavar or (param.name or "").upper()
        param.display_type_rich = no_type  # type: ignore[method-assign]
        pieces = functools.partial(usage_pieces, param)
        param.get_usage_pieces = pieces  # type: ignore[method-assign]
    if isinstance(param, TyperOption) and param.metavar is None:
        name = param.bare_type() if hasattr(param, "bare_type") else ""
        param.metavar = "" if param.is_flag else TAKEN.get(name)


def no_type(ctx: object) -> None:
    """For an argument, whose description says what it takes."""
    del ctx


def usage_pieces(param: TyperArgument, ctx: object) -> list[str]:
    """An argument in the line of usage: in brackets if it may be left out, with dots if repeated.

    Newer versions of Typer add braces.
    """
    del ctx
    name = (param.metavar or "").removesuffix("...")
    if not param.required and not name.startswith("["):
        name = f"[{name}]"
    return [name if param.nargs == 1 else f"{name.removesuffix('...')}..."]


def take_global(state: State = None, project: Project = None, verbose: Verbose = False) -> None:
    del state, project, verbose  # their callbacks keep them


class Commands(TyperGroup):
    """All commands, made when they are asked for."""

    def get_params(self, ctx: typer.Context) -> list[Any]:  # type: ignore[override]
        """The global options, as `--help` shows them."""
        params = super().get_params(ctx)
        for param in params:
            show_type(param)
        return params

    def make_context(self, *args: Any, **extra: Any) -> Any:  # noqa: ANN401
        with reported_alike():
            return super().make_context(*args, **extra)

    def invoke(self, ctx: typer.Context) -> Any:  # type: ignore[override]  # noqa: ANN401
        with reported_alike(ctx):
            return super().invoke(ctx)

    def list_commands(self, ctx: typer.Context) -> list[str]:  # type: ignore[override]  # noqa: ARG002
        """Their names, in the order of `--help`."""
        return list(COMMANDS)

    def get_command(self, ctx: typer.Context, cmd_name: str) -> TyperCommand | TyperGroup | None:  # type: ignore[override]  # noqa: ARG002
        """A command; None if there is none of this name."""
        if cmd_name in COMMANDS:
            return load_command(cmd_name)
        # What Typer suggests instead of a name with a typo is one of `commands`.
        self.commands.update({name: load_command(name) for name in COMMANDS})
        return None
