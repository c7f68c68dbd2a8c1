# SPDX-License-Identifier: Apache-2.0
"""A run that cannot start, for example because the state is read-only, is reported, and once."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
from pathlib import Path

import pytest

from imagebuilder.errors import Fault, FullError, HostError, ImagebuilderError, RootError
from imagebuilder.nightly.exclusive import RunningError
from imagebuilder.nightly.message import render_not_started
from imagebuilder.nightly.notify import AGAIN, telling_run
from imagebuilder.nightly.types import NightlyOptions
from imagebuilder.notify.receivers import find_receivers
from imagebuilder.notify.send import notifying
from imagebuilder.process import run
from tests.unit.nightly.samples import night, unchanged
from tests.unit.nightly.test_notify import program
from tests.workshop import CHECKOUT

READ_ONLY = OSError(errno.EROFS, "Read-only file system", "/state/locks/nightly")


def end(folder: Path, error: BaseException | None, *, told: bool = False) -> list[str]:
    """The texts that a receiver got so far, after a run that ended with `error`."""
    receivers = find_receivers(program(folder, "nightly-failed", "nightly-unchanged"), {})
    options = NightlyOptions(("minimal", "web"), folder / "report")
    expected = (type(error),) if error else ()
    with (
        notifying(receivers, pytest.fail) as notifier,
        contextlib.suppress(*expected),
        telling_run(options, notifier, folder / "sent") as tell,
    ):
        if told:
            tell(night(unchanged()), after_kill=False)
        if error:
            raise error
    got = folder / "got"
    return (
        [json.loads(line)["text"] for line in got.read_text().splitlines()] if got.exists() else []
    )


def test_a_run_that_cannot_start_is_reported_once_in_twelve_hours(tmp_path: Path) -> None:
    text = (
        "imagebuilder: the nightly run could not start: /state/locks/nightly: Read-only file system"
    )
    assert end(tmp_path, READ_ONLY) == [text]
    assert end(tmp_path, READ_ONLY) == [text]
    (line,) = (tmp_path / "got").read_text().splitlines()
    body = json.loads(line)["nightly"]
    assert (body["failed"], body["finished"], body["report"]) == (True, False, "")
    assert body["warnings"][1] == "nothing was recorded"
    # Another error is news.
    assert len(end(tmp_path, FullError("no space left"))) == 2
    sent = json.loads((tmp_path / "sent").read_text())
    for at, count in ((sent["at"] - AGAIN + 60, 2), (sent["at"] - AGAIN, 3), (sent["at"] + 900, 4)):
        (tmp_path / "sent").write_text(json.dumps({**sent, "at": at}))
        assert len(end(tmp_path, FullError("no space left"))) == count


def test_the_mail_says_what_to_do_and_that_nothing_was_recorded() -> None:
    fault = Fault("/state", "is on a read-only file system", "mount it writable")
    text = render_not_started(night(planned=2), fault)
    assert "/state: is on a read-only file system" in text
    assert "mount it writable" in text
    assert "minimal: not done" in text
    assert "Nothing was recorded" in text


def test_where_even_that_cannot_be_written_down_it_is_sent(tmp_path: Path) -> None:
    (tmp_path / "sent").mkdir()
    assert len(end(tmp_path, READ_ONLY)) == 1
    assert len(end(tmp_path, READ_ONLY)) == 2


@pytest.mark.parametrize(
    "error", [RunningError("another nightly run"), RootError("needs root"), KeyboardInterrupt()]
)
def test_what_others_report_is_not_sent(tmp_path: Path, error: BaseException) -> None:
    assert end(tmp_path, error) == []


@pytest.mark.parametrize("error", [None, READ_ONLY, HostError("too late"), ImagebuilderError("x")])
def test_a_run_that_was_reported_is_not_reported_again(
    tmp_path: Path, error: Exception | None
) -> None:
    assert end(tmp_path, error, told=True) == ["imagebuilder: 1 profile unchanged"]


RUN = """\
set -eu
mount -t tmpfs none /run
mount --bind "$1/state" "$1/state"
mount -o remount,bind,ro "$1/state"
for n in 1 2; do
    "$2" -m imagebuilder.cli.main nightly --tree "$1/$3" && exit 9 || test $? = 3
done
"""


@pytest.mark.root
@pytest.mark.parametrize("tree", ["tree", "state/tree"])
def test_a_read_only_state_is_reported(tmp_path: Path, tree: str) -> None:
    for name in ("project/recipes", "state"):
        (tmp_path / name).mkdir(parents=True)
    (tmp_path / "project/recipes/minimal.yaml").write_text("")
    got = tmp_path / "got"
    (tmp_path / "site.yaml").write_text(
        json.dumps({"notify": {"to": {"me": {"exec": ["sh", "-c", f"cat >> {got}"]}}}})
    )
    names = {"PROJECT": "project", "STATE": "state", "CACHE": "cache", "SITE": "site.yaml"}
    env = {f"IMAGEBUILDER_{name}": os.fspath(tmp_path / place) for name, place in names.items()}
    run(
        ["unshare", "--mount", "sh", "-c", RUN, "sh", tmp_path, sys.executable, tree],
        env={**env, "PYTHONPATH": os.fspath(CHECKOUT)},
    )
    (line,) = got.read_text().splitlines()
    body = json.loads(line)
    assert body["kinds"] == ["nightly-failed"]
    assert "the nightly run could not start" in body["text"]
    assert "ead-only file system" in body["text"]
