# SPDX-License-Identifier: Apache-2.0
"""scripts/smoke, with a false imagebuilder: what it calls, and that it leaves nothing."""

from __future__ import annotations

import os
import shutil
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from imagebuilder.process import run
from tests.integration.started import wait_until
from tests.unit.test_scripts import Checkout

# Says what it is told; `test` waits for a file `go`, and ends with 7.
SMOKED = """\
#!/bin/sh
echo "$*" >>"$LOG"
case $1 in
publish) mkdir "$4"; exit "${PUBLISH_FAILS:-0}" ;;
test) trap 'echo stopped >>"$LOG"; exit 130' TERM
    while [ ! -e "$BIN/go" ]; do sleep 0.01; done
    exit 7 ;;
esac
"""


class Smoke:
    """The checkout with a false imagebuilder and a state; left() is what is in it."""

    def __init__(self, checkout: Checkout) -> None:
        self.checkout = checkout
        self.state = checkout.root.parent / "state"
        self.state.mkdir()
        for tool in ("chmod", "flock", "sleep"):
            (checkout.bin / tool).symlink_to(shutil.which(tool) or tool)
        program = checkout.root / ".venv/bin/imagebuilder"
        program.parent.mkdir(parents=True)
        program.write_text(SMOKED)
        program.chmod(0o755)

    def env(self, **more: str) -> dict[str, str]:
        return {"IMAGEBUILDER_STATE": os.fspath(self.state), **more}

    def go(self) -> None:
        """Let tests end."""
        (self.checkout.bin / "go").touch()

    def left(self) -> list[Path]:
        return list(self.state.iterdir())


@pytest.fixture
def smoke(tmp_path: Path) -> Smoke:
    return Smoke(Checkout(tmp_path))


def test_smoke_publishes_tests_throws_away_and_ends_as_the_test(smoke: Smoke) -> None:
    smoke.go()
    done = smoke.checkout.run("smoke", "generic", "--html", "a b", env=smoke.env())
    assert done.status == 7, done.stderr
    publish, test = smoke.checkout.said()
    tree = publish.split()[3]
    assert tree.startswith(os.fspath(smoke.state / "smoke."))
    assert (publish, test) == (
        f"publish generic --tree {tree}", f"test generic --tree {tree} --html a b",
    )  # fmt: skip
    assert smoke.left() == []


@pytest.mark.parametrize(
    ("words", "packed"),
    [
        (["--root", "http"], " --format squashfs"),
        (["--root=both"], " --format squashfs"),
        (["-k", "x", "--root=nfs-squashfs"], " --format squashfs"),
        (["--root", "http-erofs", "--json"], "/tree --format erofs"),
        (["--root=all"], " --format squashfs --format erofs"),
        (["--root", "nfs"], "/tree"),
    ],
)
def test_smoke_packs_the_root_that_is_wanted(smoke: Smoke, words: list[str], packed: str) -> None:
    smoke.go()
    smoke.checkout.run("smoke", "generic", *words, env=smoke.env())
    assert smoke.checkout.said()[0].endswith(packed)


def test_smoke_ends_with_what_could_not_be_published(smoke: Smoke) -> None:
    done = smoke.checkout.run("smoke", "generic", env=smoke.env(PUBLISH_FAILS="3"))
    assert (done.status, len(smoke.checkout.said())) == (3, 1)
    assert smoke.left() == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_smoke_leaves_nothing_when_it_is_interrupted(smoke: Smoke, number: signal.Signals) -> None:
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(smoke.checkout.run, "smoke", "generic", env=smoke.env())
        os.kill(find_smoke(smoke, "generic"), number)
        assert running.result(10).status == 130
    assert smoke.checkout.said()[-1] == "stopped"
    assert smoke.left() == []


def test_smoke_removes_what_kill_left_and_nobody_elses(smoke: Smoke) -> None:
    with ThreadPoolExecutor(2) as pool:
        killed = pool.submit(smoke.checkout.run, "smoke", "killed", env=smoke.env())
        os.kill(find_smoke(smoke, "killed"), signal.SIGKILL)
        (left,) = smoke.left()
        # 1. What it started still runs, and has the lock.
        other = pool.submit(smoke.checkout.run, "smoke", "other", env=smoke.env())
        find_smoke(smoke, "other")
        assert len(smoke.left()) == 2
        smoke.go()
        assert other.result(10).status == 7
        assert killed.result(10).status != 0
    # 2. Now it has ended.
    assert smoke.left() == [left]
    smoke.checkout.run("smoke", "generic", env=smoke.env())
    assert smoke.left() == []


def find_smoke(smoke: Smoke, profile: str) -> int:
    """The process of the script that has just begun its test of a profile."""
    begun = f"test {profile} "
    wait_until(lambda: any(line.startswith(begun) for line in smoke.checkout.said()), "no test")
    script = os.fspath(smoke.checkout.root / "scripts/smoke")
    listed = run(["pgrep", "--full", "--", f"^/bin/sh {script} {profile}$"]).stdout.split()
    return int(listed[0])
