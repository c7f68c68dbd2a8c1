# SPDX-License-Identifier: Apache-2.0
"""`serve --install` below another root, judged by systemd and the daemons; `doctor --serve`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.started import wait_until
from tests.integration.wire_room import COMMAND, Room, wire_room
from tests.systemd import verify

pytestmark = pytest.mark.root

UNITS = "etc/systemd/system"


@pytest.fixture(scope="module")
def room(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Room]:
    """A wire that nobody serves."""
    with wire_room(tmp_path_factory.mktemp("wire")) as made:
        yield made


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--dhcp", "proxy"),
        ("--no-dns", "--http-port", "8080", "--range", "10.77.0.100,10.77.0.110"),
        ("--gateway", "10.77.0.254", "--domain", "cluster.example"),
    ],
    ids=" ".join,
)
def test_systemd_and_the_daemons_take_what_is_written(
    room: Room, tmp_path: Path, options: tuple[str, ...]
) -> None:
    done = room.try_serve("--install", "--root", tmp_path / "root", *options)
    assert done.status == 0, done.stderr
    units = sorted((tmp_path / "root" / UNITS).iterdir())
    assert [unit.name for unit in units] == [
        "imagebuilder-dnsmasq.service", "imagebuilder-ganesha.service",
        "imagebuilder-nginx.service", "imagebuilder-nodes.path",
        "imagebuilder-nodes.service", "imagebuilder-nodes.timer",
        *(() if "proxy" in options else ("imagebuilder-radvd.service",)),
    ]  # fmt: skip
    for unit in units:
        assert f"wrote      {unit}: " in done.stdout
    assert "sudo systemctl enable --now imagebuilder-dnsmasq.service" in done.stdout
    assert verify(units, tmp_path) == ""


def test_a_faulty_unit_would_be_found(room: Room, tmp_path: Path) -> None:
    done = room.try_serve("--install", "--root", tmp_path / "root")
    assert done.status == 0, done.stderr
    unit = tmp_path / "root" / UNITS / "imagebuilder-nginx.service"
    unit.write_text(unit.read_text().replace("ExecStart=/", "ExecStart=/nonexistent/"))
    assert "imagebuilder-nginx.service" in verify([unit], tmp_path)


def test_again_it_changes_nothing_and_other_options_do(room: Room, tmp_path: Path) -> None:
    first = room.try_serve("--install", "--root", tmp_path)
    unit = tmp_path / UNITS / "imagebuilder-nodes.service"
    before = unit.stat()
    again = room.try_serve("--install", "--root", tmp_path)
    assert first.status == again.status == 0
    assert "wrote " not in again.stdout
    assert unit.stat().st_ino == before.st_ino
    (tmp_path / UNITS / "imagebuilder-gone.service").write_text("# Made by imagebuilder serve\n")
    (tmp_path / UNITS / "imagebuilder-mine.service").write_text("# mine\n")
    other = room.try_serve("--install", "--root", tmp_path, "--no-dns")
    assert f"wrote      {unit}: " in other.stdout
    assert "--no-dns" in unit.read_text()
    assert f"removed    {tmp_path / UNITS / 'imagebuilder-gone.service'}" in other.stdout
    assert (tmp_path / UNITS / "imagebuilder-mine.service").is_file()


def test_what_was_installed_can_be_removed(room: Room, tmp_path: Path) -> None:
    room.try_serve("--install", "--root", tmp_path)
    done = room.try_serve("--uninstall", "--root", tmp_path)
    assert done.status == 0, done.stderr
    assert list((tmp_path / UNITS).iterdir()) == []
    assert "sudo systemctl disable --now imagebuilder-dnsmasq.service" in done.stdout
    assert "nothing of ours" in room.try_serve("--uninstall", "--root", tmp_path).stdout


def test_the_installed_daemons_run_and_are_refreshed(room: Room, tmp_path: Path) -> None:
    """As systemd would: the units' own commands, then a change of nodes.yaml."""
    done = room.try_serve("--install", "--root", tmp_path)
    assert done.status == 0, done.stderr

    def command(unit: str) -> list[str]:
        text = (tmp_path / UNITS / f"imagebuilder-{unit}.service").read_text()
        found = re.search(r"^ExecStart=(.*)$", text, re.MULTILINE)
        assert found
        return found[1].split()

    mac = "52:54:00:77:00:01"
    with (
        room.beside("dnsmasq", room.server, *command("dnsmasq")) as dnsmasq,
        room.beside("nginx", room.server, *command("nginx")) as nginx,
    ):
        dnsmasq.wait_for("DHCP, IP range", 10)
        nginx.wait_for("start worker process", 10)
        again = room.try_serve("--install", "--root", tmp_path)
        assert again.status == 0, again.stderr  # its own daemons are not in its way
        room.tree.nodes_file.write_text(
            f"nodes:\n  n1: {{macs: ['{mac}'], profile: generic, address: 10.77.0.77}}\n"
        )
        refreshed = room.try_serve("--refresh")
        assert refreshed.status == 0, refreshed.stderr
        assert "changed: dhcp-hosts, hosts, nginx.conf" in refreshed.stdout
        wait_until(lambda: room.ask(7)[0]["address"] == "10.77.0.77", 20, "not refreshed")
        assert room.fetch("/nodes/52-54-00-77-00-01/node.img").stdout.startswith("HTTP/1.1 403 ")
        assert "changed: nothing" in room.try_serve("--refresh").stdout
    room.tree.nodes_file.unlink()


def doctor(room: Room, *options: str | os.PathLike[str]) -> list[dict[str, str]]:
    """The findings of `doctor --serve`."""
    argv = [*COMMAND, "doctor", "--serve", "--json", "--tree", room.tree.path, *options]
    done = room.at_server(*argv)
    assert "Traceback" not in done.stderr, done.stderr
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def test_the_doctor_knows_a_wire_that_can_be_served(room: Room) -> None:
    found = {finding["subject"]: finding for finding in doctor(room, "--interface", "wire0")}
    assert {"dnsmasq", "nginx", "ip", "ipxe", "nfs", "wire", "ports", "dhcp", "tree"} <= set(found)
    assert [f for f in found.values() if f["level"] == "problem"] == []
    assert found["wire"]["what"] == "wire0 has 10.77.0.1/24"
    assert "BIOS, UEFI, UEFI HTTP boot; not for 32-bit UEFI" in found["ipxe"]["what"]
    assert found["dhcp"]["what"] == "nobody else gives addresses on wire0"


def test_the_doctor_names_what_is_in_the_way(room: Room) -> None:
    listen = "import socket, time; s = socket.create_server(('', 80)); time.sleep(60)"
    above = room.tree.path.parent
    above.chmod(0o700)
    with room.beside("web", room.server, "python3", "-c", listen):
        wait_until(lambda: "80" in room.at_server("ss", "-Hlnt").stdout, 10, "not listening")
        found = doctor(room, "--interface", "wire0")
    above.chmod(0o755)
    problems = {f["subject"]: f["what"] for f in found if f["level"] == "problem"}
    assert set(problems) == {"ports", "tree"}
    assert "tcp port 80: is taken by python3" in problems["ports"]
    assert f"{above} cannot be entered by user www-data" in problems["tree"]


def test_the_doctor_wants_an_interface_that_exists(room: Room) -> None:
    (wire,) = (f for f in doctor(room, "--interface", "wire9") if f["subject"] == "wire")
    assert wire["level"] == "problem"
    assert "no such interface" in wire["what"]
    (wire,) = (f for f in doctor(room) if f["subject"] == "wire")
    assert wire["level"] == "warning"
