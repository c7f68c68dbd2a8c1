# SPDX-License-Identifier: Apache-2.0
"""A command that needs root runs itself through sudo, or says what to type."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from imagebuilder.cli.sudo import program_words
from imagebuilder.process import Completed, run

pytestmark = pytest.mark.slow

# Makes nobody root: notes what it was asked, and ends with $ENDS or runs the command as we are.
SUDO = """\
#!/bin/sh
for word; do printf '%s\\n' "$word" >>"${0%/*}/../asked"; done
[ "$1" != -n ] || [ ! -e "${0%/*}/../password" ] || exit 1
[ "$1" != -n ] || exit 0
[ -z "$ENDS" ] || exit "$ENDS"
while [ "$1" != -- ]; do shift; done
shift
exec "$@"
"""
PROGRAM = (sys.executable, "-m", "imagebuilder.cli.main")
# As root starts it: a user who is not, and who may read a checkout wherever it lies.
NOBODY = (
    "setpriv", "--reuid=65534", "--regid=65534", "--clear-groups",
    "--inh-caps=-all,+dac_read_search", "--ambient-caps=+dac_read_search", "--",
)  # fmt: skip
PROVE = ("prove", "demo", "--json")
CHECK = ("check", "demo", "-k", "a  b")
NEEDS = "proving an image, in a sandbox, needs root"


class World:
    """A project, and a PATH with a sudo that tells what it was asked."""

    def __init__(self, place: Path) -> None:
        self.bin, self.asked, self.password = (place / n for n in ("bin", "asked", "password"))
        self.bin.mkdir()
        for tool in ("sh", "id", "env", "sed", "setpriv", "setsid", "script"):
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)
        self.sudo = self.bin / "sudo"
        self.sudo.write_text(SUDO)
        self.sudo.chmod(0o755)
        for name in ("recipes", "overlays"):
            (place / "project" / name).mkdir(parents=True)
        self.asked.touch()
        self.asked.chmod(0o666)
        self.env = {
            "PATH": os.fspath(self.bin), "SECRET": "s",
            "HOME": os.fspath(place), "IMAGEBUILDER_PROJECT": os.fspath(place / "project"),
            "IMAGEBUILDER_STATE": os.fspath(place / "state"), "ENDS": "",
        }  # fmt: skip

    def run(self, *words: str, terminal: bool = False, **env: str) -> Completed:
        """Run the program as an ordinary user."""
        argv = [*(NOBODY if os.geteuid() == 0 else ()), *PROGRAM, *words]
        if terminal:
            argv = ["script", "--quiet", "--return", "--command", shlex.join(argv), "/dev/null"]
        named = [f"{name}={value}" for name, value in {**self.env, **env}.items()]
        return run(["env", "-i", *named, "setsid", "--wait", *argv], check=False)


@pytest.fixture
def world() -> Iterator[World]:
    """One in a folder that every user may enter."""
    with tempfile.TemporaryDirectory(prefix="imagebuilder-test-") as name:
        Path(name).chmod(0o755)
        yield World(Path(name))


def test_it_runs_the_same_command_through_sudo(world: World) -> None:
    done = world.run("--verbose", *CHECK, ENDS="7", DESTDIR="/d")
    assert (done.status, done.stdout) == (7, "")
    assert done.stderr == "checking an image, in a sandbox, needs root: running it with sudo\n"
    asked = world.asked.read_text().splitlines()
    assert asked[:2] == ["-n", "true"]
    kept, words = asked[2].removeprefix("--preserve-env="), asked[3:]
    assert sorted(kept.split(",")) == [
        "DESTDIR", "IMAGEBUILDER_PROJECT", "IMAGEBUILDER_STATE", "IMAGEBUILDER_SUDO", "TERM",
    ]  # fmt: skip
    assert words == [
        "--", sys.executable, "-P", "-m", "imagebuilder.cli.main", "--verbose", *CHECK,
    ]  # fmt: skip


def test_a_sudo_that_makes_nobody_root_is_asked_once(world: World) -> None:
    done = world.run(*PROVE)
    assert (done.status, done.stdout) == (3, "")
    assert f"error: {NEEDS}\n  hint: sudo did not make this process root" in done.stderr
    assert world.asked.read_text().count("--preserve-env=") == 1


def never(world: World) -> str:
    world.env["IMAGEBUILDER_SUDO"] = "never"
    return "IMAGEBUILDER_SUDO is never, so run it yourself"


def absent(world: World) -> str:
    world.sudo.unlink()
    return "sudo is not installed, so become root and run"


def locked(world: World) -> str:
    world.password.touch()
    return "sudo needs a password, so run it in a terminal"


@pytest.mark.parametrize("obstacle", [never, absent, locked])
def test_else_it_says_what_to_type(world: World, obstacle: Callable[[World], str]) -> None:
    why = obstacle(world)
    done = world.run(*PROVE)
    assert (done.status, done.stdout) == (3, "")
    first, second = done.stderr.splitlines()
    assert first == f"error: {NEEDS}"
    assert second.startswith(f"  hint: {why}")
    words = shlex.split(second.rpartition(": ")[2])
    kept = ["sudo", "--preserve-env=IMAGEBUILDER_PROJECT,IMAGEBUILDER_STATE"]
    if not world.sudo.exists():
        kept = []
    assert words == [*kept, sys.executable, "-P", "-m", "imagebuilder.cli.main", *PROVE]
    assert "--" not in world.asked.read_text().splitlines()


def test_a_terminal_is_where_sudo_asks_for_the_password(world: World) -> None:
    world.password.touch()
    done = world.run(*PROVE, terminal=True, ENDS="5")
    assert (done.status, done.stdout.strip()) == (5, f"{NEEDS}: running it with sudo")
    assert world.asked.read_text().startswith("--preserve-env=")


def test_the_program_is_that_of_this_installation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = tmp_path / "bin/imagebuilder"
    script.parent.mkdir()
    script.touch(mode=0o755)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["bin/imagebuilder", "images"])
    assert program_words() == [os.fspath(script), "images"]
    script.unlink()
    assert program_words()[:2] == [sys.executable, "-P"]
