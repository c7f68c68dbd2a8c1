# SPDX-License-Identifier: Apache-2.0
"""Redfish against the emulator of OpenStack's sushy-tools, which takes its time as BMCs do."""

from __future__ import annotations

import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.fleet.power.protocol import Credentials, PowerError
from imagebuilder.fleet.power.redfish import Redfish
from imagebuilder.process import Word
from imagebuilder.program import program
from tests.ports import free_port

PATIENCE = 90.0
CONFIG = """\
SUSHY_EMULATOR_FAKE_DRIVER = True
SUSHY_EMULATOR_STATE_DIR = "{state}"
SUSHY_EMULATOR_FAKE_SYSTEMS = [
    {{"uuid": "27946b59-9e44-4fa7-8e91-f3527a1ef094", "name": "node1", "power_state": "Off",
      "nics": [{{"mac": "52:54:00:77:00:01", "ip": "10.77.0.11"}}]}},
]
"""
ADMIN = Credentials("admin", "not-in-any-message")


@pytest.fixture
def bmc(tmp_path: Path) -> Iterator[Redfish]:
    """A node's BMC; the node is off."""
    port = free_port()
    (tmp_path / "config").write_text(CONFIG.format(state=tmp_path))
    emulator = Path(sys.executable).with_name("sushy-emulator")
    argv: list[Word] = [
        emulator,
        "--fake",
        "--config",
        tmp_path / "config",
        "-i",
        "127.0.0.1",
        "-p",
        str(port),
    ]
    with program("bmc", argv, tmp_path / "bmc.log") as running:
        running.wait_for("Running on", PATIENCE)
        yield Redfish("node1", f"http://127.0.0.1:{port}", ADMIN, verify=True)


def await_power(bmc: Redfish, *, on: bool) -> None:
    deadline = time.monotonic() + PATIENCE
    while bmc.is_on() is not on:
        assert time.monotonic() < deadline, f"the BMC never said {on}"
        time.sleep(1)


def test_a_node_is_switched_on_and_off(bmc: Redfish) -> None:
    assert bmc.is_on() is False
    bmc.on()
    await_power(bmc, on=True)
    bmc.off()
    await_power(bmc, on=False)


def test_a_bmc_that_is_not_there_is_named_without_its_password() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"http://127.0.0.1:{closed.getsockname()[1]}"
        with pytest.raises(PowerError, match=f"node1: the BMC {address}: ") as caught:
            Redfish("node1", address, ADMIN, verify=True).on()
    assert ADMIN.password not in str(caught.value)
