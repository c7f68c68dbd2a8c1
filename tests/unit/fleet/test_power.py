# SPDX-License-Identifier: Apache-2.0
"""Power drivers: what is missing is said first, secrets stay secret, and programs have a limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.errors import InputError, WorkError
from imagebuilder.fleet import limited
from imagebuilder.fleet.limited import try_each
from imagebuilder.fleet.power.choose import choose_drivers, load_credentials
from imagebuilder.fleet.power.programs import CommandPower, Ipmi, Powerman
from imagebuilder.fleet.power.protocol import Credentials, PowerError
from imagebuilder.fleet.power.redfish import Redfish
from imagebuilder.fleet.power.wol import WakeOnLan, find_interface, magic_packet
from imagebuilder.nodes.types import Node, Power

MAC = "52:54:00:77:00:01"
SECRET = "hunter2-not-in-any-message"


def node(name: str, **power: object) -> Node:
    return Node(name, (MAC,), "gpu", power=Power(**power))  # type: ignore[arg-type]


def program(folder: Path, name: str, text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put a program of this name before all others."""
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


def credentials(folder: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    """A home with the credentials `bmc`; the environment that leads to it."""
    place = folder / "imagebuilder/credentials"
    place.mkdir(parents=True)
    (place / "bmc").write_text(text)
    (place / "bmc").chmod(mode)
    return {"XDG_CONFIG_HOME": os.fspath(folder)}


SSH = "the power driver ssh, the default, cannot switch a node "


def faults(
    nodes: list[Node], needs: list[str], addresses: dict[str, str], folder: Path
) -> list[tuple[str, str]]:
    with pytest.raises(InputError) as caught:
        choose_drivers(nodes, addresses, {"XDG_CONFIG_HOME": os.fspath(folder)}, needs)
    return [(fault.where, fault.what) for fault in caught.value.faults]


def test_everything_that_is_missing_is_said_before_anything_is_touched(tmp_path: Path) -> None:
    nodes = [
        node("n1"),
        node("n8"),
        node("n2", driver="ipmi"),
        node("n3", driver="redfish", address="b3"),
        node("n4", driver="exec", off=("plug",)),
        node("n5", driver="wol"),
        node("n6", driver="wol"),
        node("n7", driver="wol", interface="eth0"),
    ]
    assert faults(nodes, ["on"], {"n6": "10.0.0.6"}, tmp_path) == [
        (
            "n[1,8]",
            SSH + "on",
        ),
        ("n2", "`power: address` is not set, which ipmi needs"),
        ("n2", "`power: credentials` is not set, which ipmi needs"),
        ("n3", "`power: credentials` is not set, which redfish needs"),
        ("n4", "`power: on` is not set, so the driver exec has no program to run"),
        ("n5", "the driver wol needs `power: interface`, or `address` of the node"),
    ]


def test_what_cannot_be_switched_off_is_told_before_it_is_forced(tmp_path: Path) -> None:
    nodes = [
        node("n1"),
        node("n2", driver="wol", interface="eth0"),
        node("n3", driver="exec", on=("plug",)),
    ]
    assert faults(nodes, ["off", "on"], {}, tmp_path) == [
        ("n2", "the power driver wol cannot switch a node off"),
        (
            "n1",
            SSH + "off and on",
        ),
        ("n3", "`power: off` is not set, so the driver exec has no program to run"),
    ]
    with pytest.raises(InputError) as caught:
        choose_drivers(nodes[:1], {}, {}, ["on"])
    hint = "set `power: {driver: ...}` in nodes.yaml to one of wol, ipmi, redfish, powerman, exec"
    assert caught.value.faults[0].hint == hint


def test_a_shutdown_over_ssh_needs_no_power_driver() -> None:
    nodes = [node("n1"), node("n2", driver="wol"), node("n3", driver="exec")]
    assert [driver.is_on() for driver in choose_drivers(nodes, {}, {}).values()] == [None] * 3


@pytest.mark.parametrize(
    ("text", "mode", "message"),
    [
        (f"user: admin\npassword: {SECRET}\n", 0o640, "may be read by others"),
        (f"user: admin\nsecret: {SECRET}\n", 0o600, "is not a credentials file"),
        (f"{SECRET}\n", 0o600, "is not a credentials file"),
        (f"user: [{SECRET}\n", 0o600, "is not a credentials file"),
    ],
)
def test_unfit_credentials_are_refused_without_their_content(
    tmp_path: Path, text: str, mode: int, message: str
) -> None:
    env = credentials(tmp_path, text, mode)
    with pytest.raises(InputError, match=message) as caught:
        load_credentials("bmc", env)
    assert SECRET not in str(caught.value)


def test_credentials_of_systemd_go_before_those_of_a_person(tmp_path: Path) -> None:
    env = credentials(tmp_path / "home", "user: person\npassword: p\n")
    assert load_credentials("bmc", env).user == "person"
    place = tmp_path / "systemd"
    place.mkdir()
    (place / "bmc").write_text("user: unit\npassword: p\n")
    (place / "bmc").chmod(0o400)
    assert (
        load_credentials("bmc", {**env, "CREDENTIALS_DIRECTORY": os.fspath(place)}).user == "unit"
    )


def test_a_password_is_in_no_argument_and_in_no_message(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = tmp_path / "told"
    program(
        tmp_path / "bin", "ipmitool",
        f'echo "$@" >> {told}; test "$IPMI_PASSWORD" = {SECRET} && echo "Chassis Power is on" && '
        'exit 0; echo "Error: Unable to establish IPMI v2 / RMCP+ session" >&2; exit 1',
        monkeypatch,
    )  # fmt: skip
    bmc = Ipmi("n1", "10.0.0.9:6230", Credentials("admin", SECRET))
    assert bmc.is_on() is True
    assert "-H 10.0.0.9 -p 6230 -U admin -E power status" in told.read_text()
    assert SECRET not in told.read_text() + repr(bmc)
    with pytest.raises(WorkError, match="n1: ipmitool failed: Error: Unable to") as caught:
        Ipmi("n1", "10.0.0.9", Credentials("admin", f"{SECRET}-wrong")).on()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize(
    ("address", "host", "port", "url"),
    [
        ("bmc1", "bmc1", "623", "https://bmc1"),
        ("10.0.0.9:6230", "10.0.0.9", "6230", "https://10.0.0.9:6230"),
        ("fd00::9", "fd00::9", "623", "https://[fd00::9]"),
        ("[fd00::9]", "fd00::9", "623", "https://[fd00::9]"),
        ("[fd00::9]:6230", "fd00::9", "6230", "https://[fd00::9]:6230"),
        ("fe80::9%eth0", "fe80::9%eth0", "623", "https://[fe80::9%eth0]"),
    ],
)
def test_a_bmc_has_an_address_of_either_kind(address: str, host: str, port: str, url: str) -> None:
    argv, _ = Ipmi("n1", address, Credentials("admin", "x")).command("power", "on")
    assert argv[argv.index("-H") + 1 : argv.index("-U")] == [host, "-p", port]
    assert Redfish("n1", address, Credentials("admin", "x"), verify=True).url == url


def test_what_a_bmc_says_moves_no_cursor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path / "bin", "ipmitool", "printf 'a\\033[2Jb\\rc'; exit 1", monkeypatch)
    with pytest.raises(WorkError) as caught:
        Ipmi("n1", "10.0.0.9", Credentials("admin", "x")).on()
    assert caught.value.faults[0].what == "ipmitool failed: ab / c"


def test_a_program_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limited, "SECONDS", 0.2)
    program(tmp_path / "bin", "powerman", "exec sleep 60", monkeypatch)
    with pytest.raises(WorkError, match=r"n1: powerman did not end within 0\.2 s"):
        Powerman("n1", "").on()


@pytest.mark.parametrize(
    ("said", "state"),
    [("on: node[2-3]\noff: n1\nunknown: ", False), ("on: n1\noff: ", True), ("unknown: n1", None)],
)
def test_powerman_tells_the_state_of_a_plug(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, *, state: bool | None
) -> None:
    program(tmp_path / "bin", "powerman", f"printf '%s\\n' '{said}'", monkeypatch)
    assert Powerman("n1", "plugs:10101").is_on() is state


def test_a_program_of_ones_own_gets_the_name(tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = ("sh", "-c", f'echo "$0 $1" >> {told}; echo on', "plug", "{node}")
    plug = CommandPower("n1", script, script, script)
    plug.on()
    assert plug.is_on() is True
    assert told.read_text() == "plug n1\nplug n1\n"
    with pytest.raises(PowerError, match="n1: cannot be switched: `power: off` is not set"):
        CommandPower("n1", script, (), ()).off()


def test_a_magic_packet_is_what_cards_wait_for() -> None:
    packet = magic_packet(MAC)
    assert len(packet) == 102
    assert packet == bytes.fromhex("ff" * 6 + "525400770001" * 16)


def test_waking_needs_to_know_where_from() -> None:
    with pytest.raises(PowerError, match="n1: cannot be woken: the interface to it is not known"):
        WakeOnLan("n1", (MAC,), "", "").on()


@pytest.mark.parametrize(
    ("said", "interface"),
    [
        ('[{"dst": "10.0.0.9", "dev": "eno1", "flags": []}]', "eno1"),
        ('[{"dst": "10.0.0.9", "gateway": "10.0.0.1", "dev": "eno1"}]', ""),
        ('[{"dst": "10.0.0.9"}]', ""),
        ('[{"dst": "10.0.0.9", "dev": 1}]', ""),
        ('["eno1"]', ""),
        ('{"dev": "eno1"}', ""),
        ("eno1", ""),
        ("", ""),
    ],
)
def test_the_interface_to_a_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: str, interface: str
) -> None:
    program(tmp_path / "bin", "ip", f"echo '{said}'", monkeypatch)
    assert find_interface("10.0.0.9") == interface


def test_one_that_fails_delays_and_stops_nobody() -> None:
    good = CommandPower("a", ("true",), (), ())
    bad = CommandPower("b", ("false",), (), ())
    found = try_each({"b": bad, "a": good}, lambda driver: driver.on())
    assert found["a"] is None
    assert isinstance(found["b"], WorkError)
