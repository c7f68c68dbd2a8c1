# SPDX-License-Identifier: Apache-2.0
"""The program: global options, the list of commands, and error handling."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from types import FrameType
from typing import Annotated, NoReturn

import typer

from imagebuilder import __version__
from imagebuilder.cli.alike import fold_faults
from imagebuilder.cli.commands import HELP, Commands
from imagebuilder.cli.context import Project, State, Verbose, option
from imagebuilder.cli.main import STOPPED, STOPPING
from imagebuilder.cli.sudo import run_as_root
from imagebuilder.errors import Fault, HostError, ImagebuilderError, RootError
from imagebuilder.space import FREE_SPACE
from imagebuilder.untrusted import fit, presentable

# How tempfile says that each of its folders is full, or may not be written.
NO_FOLDER = "No usable temporary directory found"
NAME_FOLDER = "see with df -h which disk is full, or set TMPDIR to a folder with space"
NOT_YOURS = "choose a folder that you own, or run the command as root (sudo)"
# Errors of the system when the host is not fit, and what to do.
UNFIT = {
    errno.ENOSPC: FREE_SPACE,
    errno.EDQUOT: FREE_SPACE,
    errno.EACCES: NOT_YOURS,
    errno.EPERM: NOT_YOURS,
    errno.EROFS: "it is mounted read-only: see findmnt --target PATH, and mount it writable",
    **dict.fromkeys(
        (errno.ENOTDIR, errno.EISDIR, errno.EEXIST, errno.ELOOP, errno.ENXIO),
        "something else exists at this path: check with ls -ld, and move it away",
    ),
}

app = typer.Typer(
    name="imagebuilder",
    cls=Commands,
    help="Build, prove, publish and boot-test root filesystems for GPU and NPU nodes.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="markdown",
    context_settings={"help_option_names": HELP},
)


def show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"imagebuilder {__version__}")
        raise typer.Exit


@app.callback()
def options(
    state: State = None,
    project: Project = None,
    verbose: Verbose = False,
    version: Annotated[
        bool, option("Print the version.", "--version", callback=show_version, is_eager=True)
    ] = False,
) -> None:
    """Options of the program; the first three may also come after the command."""
    del state, project, verbose, version  # their callbacks keep them


def run() -> int:
    """Run a command and turn errors into an exit code and a message on stderr.

    Returns 0 done, 1 failed, 2 wrong input, 3 unfit host, 130 stopped.
    """
    open_streams()
    stop_on_signals()
    try:
        return call()
    except RootError as error:
        return tell(run_as_root(error))
    except ImagebuilderError as error:
        return tell(error)
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return STOPPED
    except BrokenPipeError:
        # stderr is closed: nothing can be printed, and the work is not done.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stderr.fileno())
        return 1
    except OSError as error:
        hint = UNFIT.get(error.errno or 0, "")
        # Of two files, the second was written.
        where = fit(str(error.filename2 or error.filename or "system"))
        if (error.strerror or "").startswith(NO_FOLDER):
            where, hint = "temporary files", NAME_FOLDER
        fault = Fault(where, error.strerror or str(error), hint)
        print(presentable(f"error: {fault}"), file=sys.stderr)
        return HostError.exit_code if hint else 1


def tell(error: ImagebuilderError) -> int:
    """Print every fault, once for all nodes that share it; returns the exit code."""
    for fault in fold_faults(error.faults):
        print(presentable(f"error: {fault}"), file=sys.stderr)
    return error.exit_code


def call() -> int:
    """Run the command; Typer turns an interrupt into an exit, which is turned back here."""
    try:
        app(prog_name="imagebuilder")
    except SystemExit as done:
        if interrupt := find_interrupt(done):
            raise interrupt from None
        return done.code if isinstance(done.code, int) else 1
    return 0


def find_interrupt(error: BaseException | None) -> KeyboardInterrupt | None:
    while error is not None and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error


def open_streams() -> None:
    """Open standard streams that the caller closed, so that no other file gets their numbers.

    Escapes what a stream's encoding lacks, so that a name cannot end a command.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            # The lowest free descriptor is the missing one.
            setattr(sys, name, os.fdopen(os.open(os.devnull, os.O_RDWR), mode))
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def stop_on_signals() -> None:
    """Raise KeyboardInterrupt on Ctrl-C, SIGHUP and SIGTERM, unless they are ignored."""

    def stop(number: int, frame: FrameType | None) -> NoReturn:
        del number, frame
        raise KeyboardInterrupt

    for number in STOPPING:
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, stop)
