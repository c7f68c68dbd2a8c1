# SPDX-License-Identifier: Apache-2.0
"""What README.md promises on Debian 13, as a newcomer with sudo and Debian's umask finds it."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.files import scratch
from imagebuilder.process import run
from tests.sampling import ALL
from tests.systems.debian13 import make_system
from tests.workshop import CHECKOUT

COPY = "srv/imagebuilder.tar"
# What a clone does not have.
LEFT_OUT = (".git", ".venv", ".hypothesis", ".*_cache", "__pycache__", "*.egg-info", "minimal.lock")
# Style, contract and types say the same on every system, and unit tests nearly so.
CHECK = "make check unit" if ALL else "IMAGEBUILDER_TEST_EVERY=8 make host-dev unit UNIT_WORKERS=1"
SESSION = f"""
mkdir imagebuilder
cd imagebuilder
tar --extract --file /{COPY}
chmod -R g+w . # as git leaves it with that umask
make image PROFILE=minimal
{CHECK}
"""
LINES = 150  # of the log, when it fails


@pytest.mark.root
def test_a_checkout_builds_an_image_and_passes_its_own_check(tmp_path: Path) -> None:
    before = Path("/proc/self/mountinfo").read_text()
    log = tmp_path / "log"
    with scratch(tmp_path, "debian13-") as top:  # gigabytes, which pytest would keep
        system = make_system(top / "root")
        without = [f"--exclude={name}" for name in LEFT_OUT]
        run(["tar", "-cf", top / "root" / COPY, *without, "-C", CHECKOUT, "."])
        done = run(system.as_user(SESSION), log=log, check=False)
    assert Path("/proc/self/mountinfo").read_text() == before
    if done.status != 0:
        end = "\n".join(log.read_text(errors="replace").splitlines()[-LINES:])
        pytest.fail(f"exit status {done.status}; {log} ends with\n{end}", pytrace=False)
