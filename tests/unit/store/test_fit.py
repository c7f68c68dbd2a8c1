# SPDX-License-Identifier: Apache-2.0
"""Places that cannot be a state, and names that the store does not take."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.doctor import host
from imagebuilder.doctor.host import examine_state
from imagebuilder.errors import HostError, InputError, WorkError
from imagebuilder.rights import check_executable
from imagebuilder.store.state import check_state
from imagebuilder.store.upper import is_utf8, settle


@pytest.mark.parametrize(("kind", "what"), [("file", "is not a folder"), ("link", "to nothing")])
def test_a_state_that_is_no_folder(kind: str, what: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    check_state(state)
    if kind == "file":
        state.touch()
    else:
        state.symlink_to("gone")
    for place in (state, state / "below") if kind == "file" else (state,):
        with pytest.raises(InputError, match=f"^{state}: .*{what}\n  hint: .*--state"):
            check_state(place)


@pytest.mark.parametrize("kind", ["ext4", "tmpfs"])
def test_a_state_whose_programs_do_not_run(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(host, "type_of_mount", lambda *_: kind)
    check_executable(tmp_path / "new")
    found = os.statvfs(tmp_path)
    fields = [*found[:8], found.f_flag | os.ST_NOEXEC, *found[9:]]
    monkeypatch.setattr(os, "statvfs", lambda _: os.statvfs_result(fields))
    with pytest.raises(HostError, match=f"^{tmp_path}/new: .*noexec.*\n  hint: .*findmnt"):
        check_executable(tmp_path / "new")
    _, fitness = examine_state(tmp_path / "new", is_root=False)
    assert not fitness.ok
    assert "noexec" in fitness.what


def test_a_name_that_is_not_utf8_is_told_with_its_path(tmp_path: Path) -> None:
    folder = tmp_path / "srv"
    folder.mkdir()
    (folder / "gr\u00fc\u00df\U0001f600").touch()
    assert is_utf8("gr\u00fc\u00df\U0001f600")
    (folder / os.fsdecode(b"i\xff\n")).touch()
    with pytest.raises(WorkError, match=r"^the step left /srv/i\\xff\\n, whose.*\n  hint: let the"):
        settle(tmp_path, [])
