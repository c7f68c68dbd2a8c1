# SPDX-License-Identifier: Apache-2.0
"""`serve --install` below another root, judged by systemd and the daemons; `doctor --serve`."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from imagebuilder.process import run
from tests.integration.started import PATIENCE, wait_until
from tests.integration.wire_room import COMMAND, Room, wire_room
from tests.systemd import verify

pytestmark = pytest.mark.root

UNITS = "etc/systemd/system"
# PMAPPROC_SET of RFC 1833, version 2: a program of rpc(5), its version, its TCP port.
REGISTER = """\
import socket, struct, sys
program, version, port = map(int, sys.argv[1:])
call = struct.pack("!10I", 7, 0, 2, 100000, 2, 1, 0, 0, 0, 0)
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as end:
    end.settimeout(60)
    call += struct.pack("!4I", program, version, socket.IPPROTO_TCP, port)
    end.sendto(call, ("127.0.0.1", 111))
    print("registered" if end.recv(100)[-1] == 1 else "refused")
"""
# With the one capability that reads this checkout, wherever it lies.
NOBODY = (
    "setpriv", "--reuid=65534", "--clear-groups", "--inh-caps=+dac_read_search",
    "--ambient-caps=+dac_read_search",
)  # fmt: skip
# Runs a command on the tree in $1, below /run.
BELOW_RUN = """\
mkdir /run/netboot
mount --bind "$1" /run/netboot
shift
"$@" /run/netboot
"""
# Runs radvd for a moment with a read-only /proc/sys, as its unit does.
READ_ONLY = """\
mount --bind /proc/sys /proc/sys
mount -o remount,bind,ro /proc/sys
timeout 2 radvd --config "$1" --nodaemon --logmethod stderr --pidfile "$2" || true
"""


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


def test_the_web_page_is_a_unit(room: Room, tmp_path: Path) -> None:
    root = tmp_path / "root"
    done = room.try_serve("--install", "--root", root, "--web", "127.0.0.1:8471")
    assert done.status == 0, done.stderr
    templates = {"imagebuilder-act@.service", "imagebuilder-read@.service"}
    sockets = {"imagebuilder-act.socket", "imagebuilder-read.socket"}
    names = {"imagebuilder-web.service", *templates, *sockets}
    units = [unit for unit in (root / UNITS).iterdir() if unit.name in names]
    assert {unit.name for unit in units} == names
    assert verify(units, tmp_path) == ""
    users = root / "etc/sysusers.d/imagebuilder-web.conf"
    checked = run(["systemd-sysusers", "--dry-run", users], check=False)
    assert "Creating user 'imagebuilder-web'" in checked.stdout + checked.stderr
    typed = done.stdout.splitlines()
    assert "    sudo systemd-sysusers" in typed
    enabled = next(line for line in typed if "enable --now" in line)
    assert {*enabled.split()} & names == names - templates
    page = (root / UNITS / "imagebuilder-web.service").read_text()
    assert "--listen 127.0.0.1:8471" in page
    assert "User=imagebuilder-web" in page
    for name in sockets:
        text = (root / UNITS / name).read_text()
        assert "SocketMode=0600" in text
        place = re.search(r"^ListenStream=(.*)$", text, re.MULTILINE)
        assert place
        assert f" {place[1]}" in page
    reads = (root / UNITS / "imagebuilder-read@.service").read_text()
    assert "CapabilityBoundingSet=CAP_DAC_READ_SEARCH\n" in reads
    assert "TOKENS" not in reads
    again = room.try_serve("--install", "--root", root)
    assert f"removed    {users}" in again.stdout
    assert not [unit for unit in (root / UNITS).iterdir() if unit.name in names]


@pytest.mark.parametrize(
    ("web", "said"),
    [("10.77.0.1", "is on the nodes' network"), ("0.0.0.0", "is every address")],
)  # fmt: skip
def test_the_web_page_is_not_for_nodes(room: Room, tmp_path: Path, web: str, said: str) -> None:
    done = room.try_serve("--install", "--root", tmp_path, "--web", web)
    assert (done.status, f"--web {web}: {said}" in done.stderr) == (2, True), done.stderr
    assert not (tmp_path / UNITS).exists()


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
    assert f"removed    {tmp_path / UNITS / 'imagebuilder-dnsmasq.service'}" in done.stdout
    assert done.stdout.splitlines()[-1] == f"kept       releases and nodes in {room.tree.path}"
    assert not (room.tree.serve / "installed").exists()
    assert "no units of imagebuilder" in room.try_serve("--uninstall", "--root", tmp_path).stdout


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
        dnsmasq.wait_for("DHCP, IP range", PATIENCE)
        nginx.wait_for("start worker process", PATIENCE)
        again = room.try_serve("--install", "--root", tmp_path)
        assert again.status == 0, again.stderr  # its own daemons are not in its way
        check_healthy(room)
        room.tree.nodes_file.write_text(
            f"nodes:\n  n1: {{macs: ['{mac}'], profile: generic, address: 10.77.0.77}}\n"
        )
        refreshed = room.try_serve("--refresh")
        assert refreshed.status == 0, refreshed.stderr
        assert "changed: dhcp-hosts, hosts, nginx.conf" in refreshed.stdout
        wait_until(lambda: room.ask(7)[0]["address"] == "10.77.0.77", "not refreshed")
        wait_until(
            lambda: room.fetch("/nodes/52-54-00-77-00-01/node.img").stdout[:13] == "HTTP/1.1 403 ",
            "nginx has its old configuration",
        )
        assert "changed: nothing" in room.try_serve("--refresh").stdout
    room.tree.nodes_file.write_text("nodes: {}\n")


def check_healthy(room: Room) -> None:
    """Beside the installed daemons nobody finds a fault, and a second `serve` does not start."""
    said = room.try_serve("--check")
    assert said.status == 0, said.stderr
    assert "wire0 is served by the units of serve --install" in said.stdout
    other = room.try_serve("--check", "--http-port", "22")
    assert other.status == 0, "only what is taken by others is in the way"
    refused = room.try_serve()
    assert refused.status == 3
    assert "this tree is already served by the units of serve --install" in refused.stderr
    for become in ((), NOBODY):
        found = doctor(room, "--interface", "wire0", become=become)
        assert [f for f in found if f["level"] == "problem"] == []
        (ports,) = (f["what"] for f in found if f["subject"] == "ports")
        assert "used by the units of serve --install, which serves this tree" in ports


@pytest.mark.parametrize("name", ["dnsmasq", "nginx", "radvd", "ganesha"])
def test_a_daemon_starts_when_its_address_is_there(room: Room, tmp_path: Path, name: str) -> None:
    """systemd runs the first command at each try, without a limit to how many."""
    assert room.try_serve("--install", "--root", tmp_path).status == 0
    text = (tmp_path / UNITS / f"imagebuilder-{name}.service").read_text()
    assert text.index("StartLimitIntervalSec=0") < text.index("[Service]")
    found = re.search(r"^ExecStartPre=(.*)$", text, re.MULTILINE)
    assert found
    first = shlex.split(found[1].replace("$$", "$"))
    assert room.at_server(*first).status == 0
    room.at_server("ip", "address", "del", "10.77.0.1/24", "dev", "wire0")
    done = room.at_server(*first)
    room.at_server("ip", "address", "add", "10.77.0.1/24", "dev", "wire0")
    assert (done.status, done.stdout) == (1, "wire0 does not have address 10.77.0.1 yet\n")


def test_the_nfs_server_need_not_run_when_nodes_are_taken_over(room: Room, tmp_path: Path) -> None:
    assert room.try_serve("--check", "--nfs", "kernel").status == 3, "it does not run here"
    assert room.try_serve("--install", "--root", tmp_path).status == 0
    unit = (tmp_path / UNITS / "imagebuilder-nodes.service").read_text()
    assert "--nfs ganesha" in unit, "what was chosen is in the unit"
    done = room.try_serve("--refresh", "--nfs", "kernel")
    assert done.status == 0, done.stderr


def test_radvd_finds_nothing_to_complain_of(room: Room, tmp_path: Path) -> None:
    """Behind ProtectKernelTunables=yes; what it says of forwarding is a warning, see its unit."""
    assert room.try_serve("--install", "--root", tmp_path).status == 0
    unit = (tmp_path / UNITS / "imagebuilder-radvd.service").read_text()
    assert "LogLevelMax=err" in unit
    assert "--logmethod syslog" in unit
    assert "LogLevelMax" not in (tmp_path / UNITS / "imagebuilder-nginx.service").read_text()
    text = (room.tree.serve / "installed/radvd.conf").read_text()
    for config, complains in ((text, False), (text.replace("AdvCurHopLimit 0;", ""), True)):
        (tmp_path / "radvd.conf").write_text(config)
        said = room.at_server(
            "unshare", "--mount", "sh", "-euc", READ_ONLY, "sh", tmp_path / "radvd.conf",
            tmp_path / "radvd.pid",
        ).stderr  # fmt: skip
        assert "version" in said
        assert ("failed to set CurHopLimit" in said) is complains, said


@pytest.mark.parametrize(
    ("right", "wrong", "said"),
    [
        ("", "", None),
        ("Graceless", "Gracious", "Unknown parameter (Gracious)"),
        ("No_Root_Squash", "Some", "Unknown token (Some)"),
        ("EXPORT {", "EXPORT", "syntax error"),
        ("Bind_addr = 10.77.0.1", "Bind_addr = not.here", ":NFS STARTUP :FATAL :"),
    ],
)
def test_ganesha_is_not_started_with_a_file_it_complains_of(
    room: Room, tmp_path: Path, right: str, wrong: str, said: str | None
) -> None:
    """By itself it starts with most such files, and exports nothing."""
    assert room.try_serve("--install", "--root", tmp_path).status == 0
    text = (tmp_path / UNITS / "imagebuilder-ganesha.service").read_text()
    tried = re.findall(r"^ExecStartPre=(.*)$", text, re.MULTILINE)[1]
    file = room.tree.serve / "installed/ganesha.conf"
    whole = file.read_text()
    file.write_text(whole.replace(right, wrong) if right else whole)
    done = room.at_server(*shlex.split(tried.replace("$$", "$")))
    file.write_text(whole)
    assert done.status == (1 if said else 0), done.stdout
    assert said is None or said in done.stdout


def test_ganesha_is_tried_on_a_tree_below_run(room: Room) -> None:
    """Where that of a boot test is."""
    served = ("serve", "--check", "--nfs", "ganesha", "--interface", "wire0", "--tree")
    done = room.at_server(
        "unshare", "--mount", "sh", "-euc", BELOW_RUN, "sh", room.tree.path, *COMMAND, *served
    )
    assert done.status == 0, done.stderr


def doctor(
    room: Room, *options: str | os.PathLike[str], become: Sequence[str] = ()
) -> list[dict[str, str]]:
    """The findings of `doctor --serve`."""
    argv = [*become, *COMMAND, "doctor", "--serve", "--json", "--tree", room.tree.path, *options]
    done = room.at_server(*argv)
    assert "Traceback" not in done.stderr, done.stderr
    found: list[dict[str, str]] = json.loads(done.stdout)
    return found


def test_the_doctor_knows_a_wire_that_can_be_served(room: Room) -> None:
    found = {finding["subject"]: finding for finding in doctor(room, "--interface", "wire0")}
    assert {"dnsmasq", "nginx", "ip", "ipxe", "nfs", "interface", "ports", "dhcp", "tree"} <= set(
        found
    )
    assert [f for f in found.values() if f["level"] == "problem"] == []
    assert found["interface"]["what"] == "wire0 has 10.77.0.1/24"
    what = found["ipxe"]["what"]  # Debian 13 has it for arm64 too
    assert {"BIOS", "UEFI", "UEFI HTTP boot"} <= set(re.split("for |, |; ", what))
    assert "not for 32-bit UEFI" in what
    assert found["dhcp"]["what"] == "no other DHCP server on wire0"


def test_the_doctor_beside_a_running_serve_tells_who_is_reached_from_where(room: Room) -> None:
    with room.serving():
        found = doctor(room, "--interface", "wire0")
    assert [f for f in found if f["level"] == "problem"] == []
    (ports,) = (f["what"] for f in found if f["subject"] == "ports")
    assert ports.endswith(
        "are free, or used by imagebuilder serve, which serves this tree, at 10.77.0.1"
    )
    listening = {f["what"].partition(":")[0]: f for f in found if f["subject"] == "listening"}
    assert {name: f["level"] for name, f in listening.items()} == {
        "tcp port 53, DNS (dnsmasq)": "ok",
        "udp port 53, DNS (dnsmasq)": "ok",
        "udp port 67, DHCP (dnsmasq)": "ok",
        "udp port 69, TFTP (dnsmasq)": "ok",
        "tcp port 80, HTTP (nginx)": "ok",
        "tcp port 111, rpcbind": "warning",
        "udp port 111, rpcbind": "ok",
        "tcp port 2049, NFS (ganesha.nfsd)": "ok",
        "tcp port 20048, NFS version 3 (ganesha.nfsd)": "ok",
    }
    said = listening["tcp port 111, rpcbind"]
    assert "listens on every address: networks other than 10.77.0.0/24 can reach it" in said["what"]
    assert said["mend"] == "let only wire0 reach tcp port 111 in the firewall"


def test_the_doctor_finds_an_nfs_server_that_listens_everywhere(room: Room) -> None:
    wide = "import socket, time; s = socket.create_server(('', 2049)); time.sleep(1000)"
    with room.beside("rpc", room.server, "rpcbind", "-f"):
        wait_until(lambda: "111" in room.at_server("ss", "-Hlnt").stdout, "not listening")
        with (
            room.beside("nfsd", room.server, "python3", "-c", wide),
            room.beside("lockd", room.server, "python3", "-c", wide.replace("2049", "32769")),
        ):
            for port in ("2049", "32769"):
                listens = ("ss", "-Hlnt", f"sport = {port}")
                wait_until(
                    lambda look=listens: room.at_server(*look).stdout != "",  # type: ignore[misc]
                    "not listening",
                )
            told = room.at_server("python3", "-c", REGISTER, "100021", "4", "32769")
            assert told.stdout == "registered\n", told.stderr
            found = doctor(room, "--interface", "wire0")
    said = {f["what"]: f for f in found if f["subject"] == "listening"}
    nfs = "tcp port 2049, NFS (python3): listens on every address: networks other than 10.77.0.0/24"
    lockd = nfs.replace("2049, NFS", "32769, lockd")
    assert {f"{nfs} can reach it", f"{lockd} can reach it"} <= set(said)
    assert {f["level"] for f in said.values()} == {"warning"}
    assert said[f"{nfs} can reach it"]["mend"].startswith("host=10.77.0.1 below [nfsd]")
    assert "vers3=n" in said[f"{lockd} can reach it"]["mend"]


def test_the_doctor_names_what_is_in_the_way(room: Room) -> None:
    listen = "import socket, time; s = socket.create_server(('', 80)); time.sleep(1000)"
    above = room.tree.path.parent
    above.chmod(0o700)
    with room.beside("web", room.server, "python3", "-c", listen):
        wait_until(lambda: "80" in room.at_server("ss", "-Hlnt").stdout, "not listening")
        found = doctor(room, "--interface", "wire0")
    above.chmod(0o755)
    problems = {f["subject"]: f["what"] for f in found if f["level"] == "problem"}
    assert set(problems) == {"ports", "tree"}
    assert "tcp port 80: is in use by python3" in problems["ports"]
    assert f"{above} cannot be entered by user www-data" in problems["tree"]


def test_the_doctor_wants_an_interface_that_exists(room: Room) -> None:
    (wire,) = (f for f in doctor(room, "--interface", "wire9") if f["subject"] == "interface")
    assert wire["level"] == "problem"
    assert "does not exist" in wire["what"]
    (wire,) = (f for f in doctor(room) if f["subject"] == "interface")
    assert wire["level"] == "warning"
