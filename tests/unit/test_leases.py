# SPDX-License-Identifier: Apache-2.0
"""The leases of dnsmasq, which empties its file before it writes it again."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace

import pytest

from imagebuilder.nodes.evidence import tickets
from imagebuilder.nodes.evidence.tickets import PAUSES, read_leases

MAC1, MAC2 = "52:54:00:77:00:01", "52:54:00:77:00:02"
WHOLE = f"0 {MAC1} 192.0.2.5 * *\n0 {MAC2} 192.0.2.60 * *\n"
HALF = WHOLE.partition("0 * *")[0]  # its last word is the address of another machine
KNOWN = {"192.0.2.5": MAC1, "192.0.2.60": MAC2}


def pauses(monkeypatch: pytest.MonkeyPatch, leases: Path, *texts: str) -> list[float]:
    """Let dnsmasq write these, one in each pause between two readings; the pauses so far."""
    found: list[float] = []
    waiting = iter(texts)

    def sleep(seconds: float) -> None:
        found.append(seconds)
        if seconds and (text := next(waiting, None)) is not None:
            leases.write_text(text)

    # Threads that other tests left may sleep too.
    monkeypatch.setattr(tickets, "time", SimpleNamespace(sleep=sleep))
    return found


@pytest.mark.parametrize("first", ["", HALF])
def test_a_file_that_is_being_written_is_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str
) -> None:
    leases = tmp_path / "leases"
    leases.write_text(first)
    found = pauses(monkeypatch, leases, HALF, WHOLE)
    assert read_leases(leases) == KNOWN
    assert len(found) == 3


def test_one_that_stays_so_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    leases = tmp_path / "leases"
    found = pauses(monkeypatch, leases)
    assert read_leases(leases) == {}
    assert len(found) == 1, "there is no file"
    leases.write_text("")
    assert read_leases(leases) == {}
    leases.write_text(HALF)
    assert read_leases(leases) == {"192.0.2.5": MAC1}
    assert tuple(found[1:]) == PAUSES * 2
