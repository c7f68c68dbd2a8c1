# SPDX-License-Identifier: Apache-2.0
"""Settings of systemd's daemons that their tables do not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.proof.system.units.ignored import prove_keys
from tests.unit.proof.trees import Content, Program, make_tree, subject

NETWORKD = "/usr/lib/systemd/systemd-networkd"
JOURNALD = "/usr/lib/systemd/systemd-journald"
# As a linker leaves them: the first text has anything before it, and one text is the end of
# another.
TABLE = "\x01Network.Address\0Network.DHCP\0Link.MTUBytes\0QuickFairQueueing.Parent\0"
MORE = "FairQueueing.Quantum\0Match.Name\0SR-IOV.VLANId\0"
FILES: dict[str, Content] = {
    NETWORKD: Program(TABLE + MORE),
    JOURNALD: Program("Journal.SystemMaxUse\0Journal.Storage\0Journal.Seal\0Journal.LineMax\0"),
}
NETWORK = "/etc/systemd/network/10-lan.network"


def found(folder: Path, files: dict[str, Content]) -> list[tuple[str, str]]:
    about = subject(make_tree(folder, {**FILES, **files}))
    about.__dict__["shipped"] = {}
    return [(each.what, each.hint) for each in prove_keys(about)]


@pytest.mark.parametrize(
    ("text", "what", "hint"),
    [
        (
            "[Network]\nAdress=10.0.0.5/24\n",
            f"Adress=10.0.0.5/24 of {NETWORK} has no effect: systemd-networkd knows no Adress= in "
            "[Network]",
            "write Address",
        ),
        (
            "[Link]\nDHCP=yes\n",
            f"DHCP=yes of {NETWORK} has no effect: systemd-networkd knows no DHCP= in [Link]",
            "put it below [Network]",
        ),
        (
            "[Netwrk]\nDHCP=yes\nAddress=1\n",
            f"DHCP=yes of {NETWORK} has no effect: systemd-networkd knows no section [Netwrk]",
            "write Network",
        ),
        (
            "[Network]\nColour=red\n",
            f"Colour=red of {NETWORK} has no effect: systemd-networkd knows no Colour= in "
            "[Network]",
            "write a name of the manual page: this version has no Colour",
        ),
    ],
)
def test_a_setting_that_the_daemon_does_not_know_is_told(
    tmp_path: Path, text: str, what: str, hint: str
) -> None:
    assert found(tmp_path, {NETWORK: text}) == [(what, hint)]


@pytest.mark.parametrize(
    "text",
    [
        "[Match]\nName=lan0\n[Network]\nAddress=10.0.0.5/24\nDHCP=no\n",
        "[FairQueueing]\nParent=root\nQuantum=1\n",
        "[SR-IOV]\nVLANId=5\n",
        "[X-Site]\nRack=7\n[Network]\nX-Rack=7\n",
        "# Adress=1\n; Adress=2\n",
    ],
)
def test_what_it_knows_and_what_is_for_others_is_not(tmp_path: Path, text: str) -> None:
    assert found(tmp_path, {NETWORK: text}) == []


def test_a_drop_in_of_another_daemon_is_read_too(tmp_path: Path) -> None:
    path = "/etc/systemd/journald.conf.d/site.conf"
    ((what, hint),) = found(tmp_path, {path: "[Journal]\nSystemMaxUsage=200M\n"})
    assert "systemd-journald knows no SystemMaxUsage= in [Journal]" in what
    assert hint == "write SystemMaxUse"


@pytest.mark.parametrize("program", [None, "no table\0Network.Address\0"])
def test_without_a_table_nothing_is_known(tmp_path: Path, program: str | None) -> None:
    root = make_tree(tmp_path, {NETWORK: "[Network]\nAdress=1\n"})
    if program is not None:
        root = make_tree(tmp_path, {NETWORKD: Program(program)})
    about = subject(root)
    about.__dict__["shipped"] = {}
    assert not [*prove_keys(about)]
