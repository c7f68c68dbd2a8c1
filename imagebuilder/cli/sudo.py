# SPDX-License-Identifier: Apache-2.0
"""Run a command that needs root again through sudo."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

from imagebuilder.errors import ImagebuilderError, RootError
from imagebuilder.process import exec_program, paste, run
from imagebuilder.share import SHARE
from imagebuilder.untrusted import presentable

CHOICE, NEVER, TRIED = "IMAGEBUILDER_SUDO", "never", "tried"
AS_ROOT = SHARE / "scripts/as-root"
MODULE = "imagebuilder.cli.main"


def run_as_root(error: RootError) -> ImagebuilderError:
    """Replace this process with the same command as root.

    Returns the error to report if that is not possible: its hint is the command to type.
    """
    if os.geteuid() == 0:
        return error
    (fault,), words = error.faults, program_words()
    reason = find_obstacle(os.environ)
    if not reason:
        said = f"{fault.what}: running it with sudo"
        print(presentable(said), file=sys.stderr)
        exec_program(["sh", AS_ROOT, *words], env={CHOICE: TRIED})
    return RootError(fault.what, hint=f"{reason}: {as_typed(words, os.environ)}")


def find_obstacle(env: Mapping[str, str]) -> str:
    """Why sudo is not run, as the start of a hint; "" if it can be run."""
    if shutil.which("sudo", path=env.get("PATH")) is None:
        return "sudo is not installed, so become root and run"
    if env.get(CHOICE) == NEVER:
        return f"{CHOICE} is {NEVER}, so run it yourself"
    if env.get(CHOICE) == TRIED:
        return "sudo did not make this process root, so become root and run"
    if not has_terminal() and run(["sudo", "-n", "true"], check=False).status != 0:
        return "sudo needs a password, so run it in a terminal"
    return ""


def has_terminal() -> bool:
    """Whether sudo has a terminal for a password: it does not use the standard streams."""
    try:
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_CLOEXEC))
    except OSError:
        return False
    return True


def program_words() -> list[str]:
    """This command line, in a form that starts the same installation from any folder.

    Does not search the working directory for modules, which may belong to another user.
    """
    started = Path(sys.argv[0]).absolute()
    if started.name == "imagebuilder" and os.access(started, os.X_OK) and started.is_file():
        return [os.fspath(started), *sys.argv[1:]]
    return [sys.executable, "-P", "-m", MODULE, *sys.argv[1:]]


def as_typed(words: list[str], env: Mapping[str, str]) -> str:
    """The command for a person to type: with sudo if available, and variables to keep."""
    if shutil.which("sudo", path=env.get("PATH")) is None:
        return paste(words)
    names = run(["sh", AS_ROOT, "--names"], env=env).stdout.strip().split(",")
    kept = [name for name in names if name not in (CHOICE, "TERM")]
    return paste(["sudo", *([f"--preserve-env={','.join(kept)}"] if kept else []), *words])
