# SPDX-License-Identifier: Apache-2.0
"""status, run, up, down and restart, on nodes that are an sshd and a switch each.

A node's machine waits for its switch, then runs sshd with a boot id of its own; node3's switch is a
BMC, which ipmi_sim plays.  Commands over ssh reach nothing of this host: a script answers them.
"""

from __future__ import annotations

import json
import os
import shlex
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from imagebuilder.boot.lab import Lab, lab
from imagebuilder.process import Completed, run
from imagebuilder.tree import Tree, make_tree
from tests.bmc import make_bmc
from tests.integration.started import PATIENCE, wait_until
from tests.workshop import CHECKOUT

pytestmark = pytest.mark.root

NAMES = ("node1", "node2", "node3")
PASSWORD = "not-in-any-output"
MACHINE = """\
cd "$1"
mkdir -p /run/sshd  # sshd(8), FILES
trap 'kill $pid; exit' TERM
while :; do
    while [ ! -e on ]; do sleep 0.1; done
    cat /proc/sys/kernel/random/uuid > boot_id
    # Who is answered may switch it off at once.
    sh -c 'echo $$ > pid; exec /usr/sbin/sshd -D -e -f sshd_config' & pid=$!
    wait $pid
done
"""
# What an ssh login gets instead of a shell.
ANSWER = """\
#!/bin/sh
cd {folder}
case $SSH_ORIGINAL_COMMAND in
"cat /proc/sys/kernel/random/boot_id") cat boot_id ;;
"sudo -n systemctl poweroff")
    [ ! -e stubborn ] || exit 0
    [ ! -e forbidden ] || {{ echo "sudo: a password is required"; exit 1; }}
    rm -f on; (sleep 0.2; kill $(cat pid)) & ;;
"cat /proc/sys/kernel/random/boot_id /proc/uptime "*)
    verdict="ok"; words="3 checks passed"
    [ ! -e ill ] || {{ verdict="missing device"; words="no PCI device 1002:7480"; }}
    cat boot_id /proc/uptime
    echo '{{"schema":1,"verdict":"'$verdict'","words":"'$words'","release":"minimal@1",'
    echo '"boot-id":"'$(cat boot_id)'","uptime":1e9,"checks":[]}}' ;;
"sudo -n systemctl reboot") (sleep 0.2; kill $(cat pid)) & ;;
*) exec sh -c "$SSH_ORIGINAL_COMMAND" ;;
esac
"""
SSHD = """\
ListenAddress {address}
HostKey {folder}/host
AuthorizedKeysFile {top}/key.pub
StrictModes no
PidFile none
UsePAM no
ForceCommand {folder}/answer
"""
SWITCH = """\
#!/bin/sh
cd {folder}
case $1 in
on) touch on ;;
off) rm -f on; kill $(cat pid) 2> /dev/null || : ;;
state) [ -e on ] && echo on || echo off ;;
esac
"""
# ipmi_sim calls it for what is asked of the chassis (ipmi_lan(5)).
CHASSIS = """\
#!/bin/sh
cd {folder}
case $1 in
check) exit 0 ;;
get) [ -e on ] && echo power:1 || echo power:0 ;;
set) if [ "$3" = 1 ]; then ./switch on; else ./switch off; fi ;;
esac
"""
NODES = """\
defaults:
  login: root
  vars: {{ansible_ssh_private_key_file: {top}/key}}
  power:
    driver: exec
    on: [{top}/switch, "{{node}}", "on"]
    off: [{top}/switch, "{{node}}", "off"]
    state: [{top}/switch, "{{node}}", state]
groups:
  left: {{profile: minimal}}
nodes:
  node1: {{macs: ["52:54:00:77:00:01"], address: 10.77.0.11, group: left, labels: [rack1]}}
  node2: {{macs: ["52:54:00:77:00:02"], address: 10.77.0.12, group: left}}
  node3:
    macs: ["52:54:00:77:00:03"]
    address: 10.77.0.13
    profile: minimal
    power: {{driver: ipmi, address: "127.0.0.1:9623", credentials: bmc}}
"""


@dataclass(frozen=True)
class Fleet:
    """Three nodes in a network of their own, switched off, and who types there."""

    room: Lab
    top: Path

    def type(self, *words: str, extra: str = "") -> Completed:
        """Type a command of imagebuilder."""
        home = self.top / "home"
        command = [sys.executable, "-m", "imagebuilder.cli.main", *words]
        tree = f"IMAGEBUILDER_TREE={self.top}/tree"
        env = [
            "env",
            f"--chdir={CHECKOUT}",
            tree,
            f"HOME={home}",
            f"XDG_CONFIG_HOME={home}/.config",
        ]
        if extra:
            return self.room.run([*env, "sh", "-c", f"{shlex.join(command)} {extra}"], check=False)
        return self.room.run([*env, *command], check=False)

    def conditions(self) -> dict[str, str]:
        return {
            s["node"]: s["condition"]
            for s in json.loads(self.type("status", "--no-health", "--json").stdout)
        }

    def switch(self, name: str, state: str) -> None:
        run([self.top / "switch", name, state])


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    top = tmp_path_factory.mktemp("fleet")
    tree = Tree(top / "tree")
    make_tree(tree.path)
    tree.nodes_file.write_text(NODES.format(top=top))
    make_person(top)
    known = [make_node(top, name, f"10.77.0.1{n}") for n, name in enumerate(NAMES, 1)]
    tree.serve.mkdir(parents=True, exist_ok=True)
    (tree.serve / "known_hosts").write_text("".join(known))
    with lab(top, []) as room, ExitStack() as stack:
        room.run(["ip", "link", "set", "lo", "up"])
        for number, name in enumerate(NAMES, 1):
            room.run(["ip", "addr", "add", f"10.77.0.1{number}/32", "dev", "lo"])
            stack.enter_context(
                room.program(name, ["sh", top / "machine", top / name], dies_by="TERM")
            )
        folder = top / "node3"
        controls = f'chassis_control "{folder}/chassis"'
        bmc = make_bmc(folder, "node3", PASSWORD, controls)
        stack.enter_context(room.program("bmc", bmc))
        yield Fleet(room, top)
        for name in NAMES:
            run([top / "switch", name, "off"], check=False)


def make_person(top: Path) -> None:
    """A home with an ssh key and the credentials of the BMC; the script that nodes run."""
    ssh = top / "home/.ssh"
    ssh.mkdir(parents=True, mode=0o700)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", top / "key"])
    (ssh / "config").write_text(f"IdentityFile {top}/key\n")
    place = top / "home/.config/imagebuilder/credentials"
    place.mkdir(parents=True)
    (place / "bmc").write_text(f"user: admin\npassword: {PASSWORD}\n")
    (place / "bmc").chmod(0o600)
    (top / "machine").write_text(MACHINE)
    (top / "switch").write_text(f'#!/bin/sh\nexec {top}/"$1"/switch "$2"\n')
    (top / "switch").chmod(0o755)


def make_node(top: Path, name: str, address: str) -> str:
    """A node's folder; its line in known_hosts."""
    folder = top / name
    folder.mkdir()
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "host"])
    values = {"folder": folder, "top": top, "address": address}
    for file, text in {
        "sshd_config": SSHD, "answer": ANSWER, "switch": SWITCH, "chassis": CHASSIS,
    }.items():  # fmt: skip
        (folder / file).write_text(text.format(**values))
        (folder / file).chmod(0o755)
    return f"{name},{address} {' '.join((folder / 'host.pub').read_text().split()[:2])}\n"


@pytest.fixture
def running(fleet: Fleet) -> Fleet:
    """The fleet with every node up."""
    for name in NAMES:
        fleet.switch(name, "on")
    deadline = time.monotonic() + PATIENCE
    while set(fleet.conditions().values()) != {"ready"}:
        assert time.monotonic() < deadline, fleet.type("status").stdout
    return fleet


def test_up_switches_on_by_program_and_by_bmc_and_waits(fleet: Fleet) -> None:
    for name in NAMES:
        fleet.switch(name, "off")
    assert set(fleet.conditions().values()) == {"unknown"}
    assert fleet.type("status").status == 1
    done = fleet.type("up", "@all", "--timeout", "60")
    assert done.status == 0, done.stderr
    assert all(f"{name}  done" in done.stdout for name in NAMES)
    assert fleet.type("status", "--no-health").status == 0
    again = fleet.type("up", "@all")
    assert again.stdout.count("is up already") == 3


def test_run_gathers_equal_output_and_fails_with_who_failed(running: Fleet) -> None:
    done = running.type("run", "node[1-3]", "--", "echo", "two  words; $HOME")
    assert done.status == 0, done.stderr
    assert done.stdout == f"{'-' * 15}\nnode[1-3] (3)\n{'-' * 15}\ntwo  words; $HOME\n"
    (running.top / "node2/only").touch()
    some = running.type("run", "@all", "--", "ls", "only")
    assert some.status == 1
    assert "node2 (1)\n" in some.stdout
    assert "node[1,3] (2, exit status 2)" in some.stdout
    late = json.loads(
        running.type("run", "node1", "--timeout", "1", "--json", "--", "sleep", "30").stdout
    )
    assert late == [{"node": "node1", "status": None, "output": ""}]


def test_a_node_with_another_host_key_is_not_logged_in_to(running: Fleet) -> None:
    known = running.top / "tree/serve/known_hosts"
    before = known.read_text()
    lines = before.splitlines()
    other = lines[1].split()[1:]
    known.write_text("\n".join([" ".join([lines[0].split()[0], *other]), *lines[1:]]) + "\n")
    try:
        done = running.type("run", "node[1-2]", "--", "true")
    finally:
        known.write_text(before)
    assert done.status == 1
    assert "node1 (1, exit status 255)" in done.stdout
    assert "Host key verification failed" in done.stdout
    assert "node2 (1)" in done.stdout


def test_restart_ends_when_another_boot_answers(running: Fleet) -> None:
    before = {name: (running.top / name / "boot_id").read_text() for name in NAMES}
    done = running.type("restart", "@left")
    assert done.status == 0, done.stderr
    after = {name: (running.top / name / "boot_id").read_text() for name in NAMES}
    assert {name for name in NAMES if before[name] != after[name]} == {"node1", "node2"}
    running.switch("node2", "off")
    dead = running.type("restart", "node2", "--timeout", "5")
    assert dead.status == 1
    assert "does not answer to ssh, so it was not touched" in dead.stdout
    forced = running.type("restart", "node2", "--force")
    assert forced.status == 0, forced.stdout


def test_down_asks_first_and_says_who_is_still_on(running: Fleet) -> None:
    asked = running.type("down", "@all", extra="< /dev/null")
    assert asked.status == 2
    assert (
        "not confirmed: shut down 3 nodes of 2 groups (left, no group): node[1-3]?" in asked.stderr
    )
    assert set(running.conditions().values()) == {"ready"}
    (running.top / "node1/stubborn").touch()
    (running.top / "node2/forbidden").touch()
    try:
        done = running.type("down", "@all", "--yes", "--timeout", "20")
    finally:
        for name in ("node1/stubborn", "node2/forbidden"):
            (running.top / name).unlink()
    assert done.status == 1
    rows = {line.split()[0]: line for line in done.stdout.splitlines()[1:]}
    assert "FAILED" in rows["node1"]
    assert "did not take the command: sudo: a password is required" in rows["node2"]
    assert "done" in rows["node3"]
    assert "is off" in rows["node3"]
    forced = running.type("down", "@all", "--yes", "--force", "--timeout", "60")
    assert forced.status == 0, forced.stdout
    assert not any((running.top / name / "on").exists() for name in NAMES)


# A scheduler of one's own: `drain` fails the first time it is asked about a node.
SCHEDULER = """\
#!/bin/sh
cd {top}
echo "$1 $2: $3" >> scheduled
[ "$1" = resume ] || [ -e "$2/idle" ] || {{ touch "$2/idle"; echo "a job" >&2; exit 1; }}
"""


def test_work_ends_before_a_node_goes_and_begins_when_it_is_back(running: Fleet) -> None:
    program = running.top / "scheduler"
    program.write_text(SCHEDULER.format(top=running.top))
    program.chmod(0o755)
    drain = ("--drain", os.fspath(program))
    before = (running.top / "node2/boot_id").read_text()
    restarted = running.type("restart", "node2", *drain)
    assert restarted.status == 0, restarted.stderr
    waits = f"node2: waiting for its work to end: {program} failed: a job"
    assert waits in restarted.stderr
    assert (running.top / "node2/boot_id").read_text() != before
    for verb in ("down", "up"):
        done = running.type(verb, "node2", *drain)
        assert done.status == 0, done.stderr
    why = "node2: imagebuilder down or restart"
    verbs = ("drain", "drain", "resume", "drain", "resume")
    scheduled = (running.top / "scheduled").read_text()
    assert scheduled == "".join(f"{verb} {why}\n" for verb in verbs)


def test_a_wrong_password_and_a_dead_bmc_delay_nobody_and_are_not_shown(fleet: Fleet) -> None:
    place = fleet.top / "home/.config/imagebuilder/credentials/bmc"
    before = place.read_text()
    fleet.switch("node1", "off")
    fleet.switch("node3", "off")
    place.write_text(before.replace(PASSWORD, f"{PASSWORD}-wrong"))
    try:
        done = fleet.type("up", "node[1,3]", "--timeout", "60")
    finally:
        place.write_text(before)
    assert done.status == 1
    assert "node1  done" in done.stdout
    assert "node3  FAILED   ipmitool failed" in done.stdout
    assert PASSWORD not in done.stdout + done.stderr


def test_what_is_missing_is_said_before_anything_is_touched(fleet: Fleet) -> None:
    place = fleet.top / "home/.config/imagebuilder/credentials/bmc"
    place.chmod(0o644)
    fleet.switch("node1", "off")
    try:
        done = fleet.type("up", "@all")
    finally:
        place.chmod(0o600)
    assert done.status == 2
    assert "may be read by others" in done.stderr
    assert not (fleet.top / "node1/on").exists()
    assert os.fspath(place) in done.stderr


def test_status_asks_how_nodes_are_and_fails_unless_all_are_well(running: Fleet) -> None:
    assert running.type("status", "--ask").status == 0
    silent = running.type("status")  # they never reported
    assert silent.status == 1
    assert silent.stdout.count("sent no report of its health in this boot; --ask asks it") == 3
    (running.top / "node2/ill").touch()
    try:
        done = running.type("status", "--ask", "--json")
        assert done.status == 1
        said = {each["node"]: each["health"] for each in json.loads(done.stdout)}
        assert said["node2"]["verdict"] == "missing device"
        assert said["node2"]["boot-id"] == (running.top / "node2/boot_id").read_text().strip()
        assert (said["node1"]["verdict"], said["node1"]["release"]) == ("ok", "minimal@1")
        assert running.type("status", "--no-health").status == 0
        told = running.type("explain", "node2")
        assert told.status == 1
        assert "health: missing device: no PCI device 1002:7480" in told.stdout
        refused = running.type("configure", "@all", os.fspath(running.top / "switch"))
        assert refused.status == 1
        assert "not ready and healthy: node2; nothing was changed" in refused.stderr
    finally:
        (running.top / "node2/ill").unlink()


def test_a_node_that_is_off_is_explained(running: Fleet) -> None:
    running.switch("node1", "off")
    wait_until(lambda: running.conditions()["node1"] == "unknown", "node1 still answers")
    told = json.loads(running.type("explain", "node1", "--json").stdout)
    assert told["condition"] == "unknown"
    assert told["what"] == "nothing is published in minimal/stable, so it has nothing to boot"


def test_ansible_reads_the_inventory_and_configures_nodes_that_are_up(running: Fleet) -> None:
    listed = json.loads(running.type("inventory", "--list").stdout)
    assert listed["left"] == {"hosts": ["node1", "node2"]}
    assert listed["profile_minimal"] == {"hosts": list(NAMES)}
    one = json.loads(running.type("inventory", "--host", "node1").stdout)
    assert one == listed["_meta"]["hostvars"]["node1"]
    assert one["ansible_host"] == "10.77.0.11"
    playbook = running.top / "site.yml"
    playbook.write_text(
        "- hosts: left\n  gather_facts: false\n  tasks:\n"
        f"    - raw: touch {running.top}/configured-{{{{ inventory_hostname }}}}\n"
    )
    done = running.type("configure", "node[1,3]", os.fspath(playbook))
    assert done.status == 0, done.stdout + done.stderr
    assert (running.top / "configured-node1").exists()
    assert not (running.top / "configured-node2").exists()
    playbook.write_text("- hosts: all\n  gather_facts: false\n  tasks: [{raw: exit 3}]\n")
    assert running.type("configure", "node1", os.fspath(playbook)).status == 1


def test_the_web_page_switches_a_node_on(fleet: Fleet) -> None:
    """A token, the API, act, up, the driver, and the node's own answer."""
    fleet.switch("node1", "off")
    tokens = f"IMAGEBUILDER_TOKENS={fleet.top}/tokens.json"
    program = [sys.executable, "-m", "imagebuilder.cli.main"]
    home = f"HOME={fleet.top}/home"
    env = ["env", f"--chdir={CHECKOUT}", tokens, home, f"IMAGEBUILDER_TREE={fleet.top}/tree"]
    added = fleet.room.run([*env, *program, "token", "add", "ada", "--role", "power"])
    secret, address = added.stdout.strip(), "http://127.0.0.1:8470/api/v1"
    order = json.dumps({"verb": "up", "nodes": ["node1"]})
    with fleet.room.program("web", [*env, *program, "web", "--ask", "0"], dies_by="TERM") as web:
        web.wait_for("listening on", PATIENCE)
        sent = fleet.room.run(
            ["curl", "-sS", "--fail-with-body", "-H", f"Authorization: Bearer {secret}", "--json",
             order, f"{address}/actions"],
        )  # fmt: skip
        place = f"{address}/actions/{json.loads(sent.stdout)['id']}"
        deadline = time.monotonic() + PATIENCE
        while (shown := json.loads(fleet.room.run(["curl", "-sS", place]).stdout))["state"] == (
            "running"
        ):
            assert time.monotonic() < deadline, shown
            time.sleep(0.2)
    assert (shown["state"], shown["by"]) == ("done", "ada"), shown
    assert any("node1: is up" in line for line in shown["lines"]), shown
    assert (fleet.top / "node1/on").exists()
    assert fleet.conditions()["node1"] == "ready"
