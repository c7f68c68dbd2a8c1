# SPDX-License-Identifier: Apache-2.0
"""What says that it is done is on the disk: read from the trace of system calls."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.process import run
from imagebuilder.store.repository import make_store
from tests.integration.published import PROFILE, UNTESTED, make_image, memory_folder
from tests.integration.traced import MARK, command, find_unsynced, read_calls

pytestmark = pytest.mark.root
V1, V2, V3 = (f"{PROFILE}@2026010{number}000000-{number:08x}" for number in (1, 2, 3))
NODE = ("nodes", "add", "n1", "--mac", "52:54:00:77:00:01", "--profile", PROFILE)
STEPS = {
    "publish": ("publish", V1),
    "publish another": ("publish", V2, "--format", "squashfs"),
    "pack": ("publish", V1, "--format", "squashfs"),
    "promote": ("promote", V1, "--untested", UNTESTED),
    "promote another": ("promote", V2, "--untested", UNTESTED),
    "rollback": ("rollback", PROFILE),
    "keep": ("keep", V1),
    "nodes add": NODE,
    "nodes remove": ("nodes", "remove", "n1", "--forget"),
    "publish a third": ("publish", V3),
    "keep off": ("keep", V1, "--off"),
    "gc": ("gc", "--releases", "--keep", "1"),
    "publish again": ("publish", V3),
}
RUN = f"""
import json, os, sys
from imagebuilder.cli import program
for name, words in json.loads(sys.argv[1]).items():
    sys.argv = ["imagebuilder", *words]
    status = program.run()
    assert status == 0, (name, status)
    try:
        os.rmdir({MARK!r} + name)
    except FileNotFoundError:
        pass
"""
# Each leaves something in memory alone; the last one nothing.
PLANTED = {
    "file.write_text('x'); file.rename(top / 'new')": "rename to .*/new: .*/file is not synced",
    "file.write_text('x'); files.sync(file); file.rename(top / 'new')": "step: new in ",
    "(top / 'd').mkdir(); (top / 'd/f').write_text('x'); files.move_in(top / 'd', top / 'e')":
        "rename to .*/e: .*/e?d/f is not synced",
    "file.write_text('x'); os.link(file, top / 'b'); files.sync(top)": "link to .*/b: .*/file ",
    "(top / 'link').symlink_to('file')": "step: link in .* is not synced",
    "(top / 'd').mkdir()": "step: d in .* is not synced",
    "files.write_file(top / 'new', b'x')": "",
}  # fmt: skip
PLANT = f"""
import os, sys
from pathlib import Path
from imagebuilder import files
top = Path(sys.argv[1]) / "lasts"
file = top / "file"
exec(sys.argv[2])
try:
    os.rmdir({MARK!r} + "step")
except FileNotFoundError:
    pass
"""


@pytest.fixture
def top() -> Iterator[Path]:
    with memory_folder() as folder:
        yield folder


def trace(top: Path, *words: str) -> str:
    """The calls of a Python program."""
    env = {"IMAGEBUILDER_STATE": f"{top}/state", "IMAGEBUILDER_TREE": f"{top}/netboot"}
    run(command(top / "trace", [sys.executable, *words]), env=env)
    return (top / "trace").read_text()


def test_all_that_gets_a_name_is_on_the_disk(top: Path) -> None:
    store = make_store(top / "state/store")
    for number in (1, 2, 3):
        make_image(store, top, number)
    text = trace(top, "-c", RUN, json.dumps(STEPS))
    ended = [call.places[0] for call in read_calls(text) if call.name == "rmdir"]
    assert [place for place in ended if place.startswith(MARK)] == [MARK + name for name in STEPS]
    passing = [top / tree / name for tree in ("netboot", "state") for name in ("work", "locks")]
    passing += [top / repo / "tmp" for repo in ("netboot/repo", "state/store")]
    assert find_unsynced(text, top, passing) == []


@pytest.mark.parametrize(("script", "fault"), PLANTED.items())
def test_what_is_in_memory_alone_is_found(top: Path, script: str, fault: str) -> None:
    (top / "lasts").mkdir()
    text = trace(top, "-c", PLANT, os.fspath(top), script)
    found = find_unsynced(text, top / "lasts", [])
    assert bool(found) == bool(fault), found
    assert not fault or re.match(fault, found[0]), found
