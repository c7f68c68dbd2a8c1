# SPDX-License-Identifier: Apache-2.0
"""Messages that a killed command did not send."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from imagebuilder.locks import file_lock
from imagebuilder.notify import kept
from imagebuilder.notify.kept import KEPT, notifying_kept
from tests.unit.notify.test_send import fail, receiver, send


def test_the_next_command_sends_what_a_killed_one_did_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, warnings = tmp_path / "folder/waiting.json", list[str]()
    with monkeypatch.context() as patch:
        patch.setattr(kept, "LAST_SECONDS", 0.0)
        with notifying_kept(path, [receiver("a", "sleep 60")], warnings.append) as notifier:
            send(notifier, "one")
            left = path.read_bytes()
    assert [one.message.text for one in KEPT.decode(json.loads(left), "x").waiting] == ["one"]
    assert warnings == ["notify a: could not send 'one': time ran out"]
    assert not path.exists(), "what is said to be lost is not sent later"
    path.write_bytes(left)  # as after a kill
    got = tmp_path / "got"
    with notifying_kept(path, [receiver("a", f"cat >> {got}; echo >> {got}")], fail) as notifier:
        send(notifier, "two")
        assert path.stat().st_mode & 0o777 == 0o600
    assert got.read_text().split() == ["one", "two"]
    assert not path.exists()


def test_without_the_file_messages_are_sent(tmp_path: Path) -> None:
    path, warnings, got = tmp_path / "waiting.json", list[str](), tmp_path / "got"
    somebody = [receiver("a", f"cat >> {got}; echo >> {got}")]
    with (
        file_lock(path.with_suffix(".lock")),
        notifying_kept(path, somebody, warnings.append) as notifier,
    ):
        send(notifier, "one")
        assert not path.exists()
    path.write_text("{")
    with notifying_kept(path, somebody, warnings.append) as notifier:
        send(notifier, "two")
    assert got.read_text().split() == ["one", "two"]
    assert "another command is still sending its own" in warnings[0]
    assert "messages of an earlier run are lost" in warnings[1]
    assert len(warnings) == 2
