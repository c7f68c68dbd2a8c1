# SPDX-License-Identifier: Apache-2.0
"""Why a node is not up follows from what the daemons noted, its reports and its health."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from imagebuilder.explain import Explanation, explain, explain_node, find_trace, read_log
from imagebuilder.fleet.health import Health, Verdict
from imagebuilder.fleet.overview import NodeView
from imagebuilder.fleet.state import Condition, NodeState, Observation
from imagebuilder.nodes.evidence.seen import Seen
from imagebuilder.nodes.types import Node
from imagebuilder.tree import ReleaseName, Tree, make_tree
from tests.unit.nodes_world import move_channel

MAC, ADDRESS = "52:54:00:77:00:01", "10.77.0.11"
NODE = Node("node1", (MAC,), "gpu")
NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
SILENT = NodeState("node1", Condition.SILENT, "does not answer to ssh", "gpu@1", "gpu@2", ())
ASKS = f"""\
dnsmasq-dhcp[7]: 11 vendor class: PXEClient:Arch:00007:UNDI:003016
dnsmasq-dhcp[7]: 11 DHCPDISCOVER(br0) {MAC}
""".splitlines()
FULL = [*ASKS, f"dnsmasq-dhcp[7]: 11 DHCPDISCOVER(br0) {MAC} no address available"]
LEASE = [*ASKS, f"dnsmasq-dhcp[7]: 11 DHCPACK(br0) {ADDRESS} {MAC} n1"]
FILE = [*LEASE, f"dnsmasq-tftp[7]: sent /srv/netboot/tftp/ipxe.efi to {ADDRESS}"]
ENTRY = [f"{ADDRESS} 200 4000 0.000 /boot.ipxe"]
KERNEL = [*ENTRY, f"{ADDRESS} 200 9000000 0.100 /releases/gpu/2/vmlinuz"]
REPORT = "/report/SHOWN/gpu/2?uptime=9&node=52:54:00:77:00:01&stage="
ROOT = [*KERNEL, f"{ADDRESS} 204 0 0.000 {REPORT}root"]
LEFT = [*ROOT, f"{ADDRESS} 204 0 0.000 {REPORT}switch-root"]
FAILS = [*ROOT, f"{ADDRESS} 204 0 0.000 {REPORT}failed&at=root"]


def seen(stage: str) -> Seen:
    return Seen(MAC, "node1", "gpu", "1", ADDRESS, stage, "nfs", NOW.isoformat(), NOW.isoformat())


def of(
    dnsmasq: list[str], nginx: list[str], report: Seen | None = None, state: NodeState = SILENT
) -> Explanation:
    trace = find_trace(report, dnsmasq, nginx, NODE)
    return explain(NodeView(state, None), trace, NODE)


@pytest.mark.parametrize(
    ("dnsmasq", "nginx", "stage", "what"),
    [
        ([], [], "firmware", "its NIC never requested an address from this boot server"),
        (ASKS, [], "dhcp", "the firmware got no address"),
        (FULL, [], "dhcp", "the DHCP server has no free address"),
        (LEASE, [], "boot-file", "iPXE was not fetched"),
        (FILE, [], "ipxe", "iPXE did not fetch its entry script"),
        (FILE, ENTRY, "release", "iPXE did not fetch the kernel of the release"),
        (FILE, KERNEL, "kernel", "the kernel did not start"),
        (FILE, ROOT, "root", "the root was not mounted"),
        (FILE, FAILS, "root", "the root was not mounted"),
        (FILE, LEFT, "units", "systemd of the root did not start its units"),
        # Only the last boot counts, and only this node.
        ([*FILE, *ASKS], KERNEL, "dhcp", "the firmware got no address"),
        ([line.replace(MAC, "52:54:00:77:00:99") for line in FILE], KERNEL, "firmware", "its NIC"),
    ],
)
def test_the_stage_is_the_one_that_the_last_boot_did_not_pass(
    dnsmasq: list[str], nginx: list[str], stage: str, what: str
) -> None:
    found = of(dnsmasq, nginx)
    assert found.stage == stage
    assert found.what.startswith(what)
    assert found.hint


def test_a_report_counts_where_the_logs_are_silent() -> None:
    assert of([], [], seen("root")).stage == "root"
    assert of([], [], seen("switch-root")).stage == "units"


def test_the_lines_are_those_of_the_node_and_fit_to_print() -> None:
    found = of([*FILE, "dnsmasq-dhcp[7]: 12 DHCPDISCOVER(br0) 52:54:00:77:00:99"], KERNEL)
    assert found.lines[-1] == KERNEL[-1]
    assert not any("00:99" in line for line in found.lines)
    odd = of(LEASE, [f"{ADDRESS} 200 1 0.0 /boot.ipxe?\x1b[2Jx"])
    assert all(line.isprintable() for line in odd.lines)


def test_an_empty_channel_is_told_first() -> None:
    found = of([], [], state=replace(SILENT, next=""))
    assert found.what == "nothing is published in gpu/stable, so it has nothing to boot"


def test_a_node_that_is_up_is_explained_by_its_health() -> None:
    evidence = (Observation("ssh", NOW, "answers to ssh: SSH-2.0-OpenSSH_10.0"),)
    state = replace(SILENT, condition=Condition.READY, words="answers", evidence=evidence)
    health = Health("node1", Verdict.MISSING, "no PCI device 1002:7480", NOW, "gpu@1", "b")
    trace = find_trace(seen("switch-root"), FILE, LEFT, NODE)
    found = explain(NodeView(state, health), trace, NODE)
    text = found.render()
    assert found.stage == ""
    assert "runs gpu@1, and gpu@2 from its next boot on" in text
    assert "health: missing device: no PCI device 1002:7480" in text
    assert "imagebuilder run node1 -- lspci -nnk" in text
    assert "2026-11-23 12:00:00 UTC  ssh: answers" in text
    assert found.as_json()["health"] == health.as_json()


def test_logs_are_read_from_their_end(tmp_path: Path) -> None:
    folder = tmp_path / "serve/logs"
    folder.mkdir(parents=True)
    (folder / "nginx.log").write_text("x\n" * 3_000_000 + "last\n")
    lines = read_log(Tree(tmp_path), "nginx")
    assert lines
    assert lines[-1] == "last"
    assert len(lines) < 2_200_000


def test_what_nobody_saw_is_not_claimed() -> None:
    text = of([], []).render()
    assert "its NIC never requested an address from this boot server" in text
    assert "stopped in stage" not in text
    assert "stopped in stage dhcp" in of(ASKS, []).render()


def test_the_last_lines_of_its_console_are_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    tree = make_tree(tmp_path / "tree")
    assert explain_node(tree, NODE).console == ()
    folder = tree.consoles("node1")
    folder.mkdir(parents=True)
    (folder / "20261122T080000Z.log").write_text("an older boot\n")
    lines = "".join(f"[{n:12.6f}] line {n}\n" for n in range(50))
    (folder / "20261123T080000Z.log").write_text(lines)
    found = explain_node(tree, NODE)
    assert found.as_json()["console"] == [*found.console]
    text = found.render()
    assert text.endswith("line 48\n  [   49.000000] line 49")
    assert "\nlast lines of its console, boot of 2026-11-23 08:00:00 UTC:\n" in text
    assert "line 37" not in text
    assert "older" not in text


def test_logs_that_may_not_be_read_are_no_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program = tmp_path / "journalctl"
    said = "Hint: You are currently not seeing messages from other users and the system."
    program.write_text(f"#!/bin/sh\necho '{said}' >&2\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    tree = make_tree(tmp_path / "tree")
    tree.release(ReleaseName("gpu", "2")).mkdir(parents=True)
    move_channel(tree, "gpu", "stable", "2")
    assert read_log(tree, "dnsmasq") is None
    found = explain_node(tree, NODE)
    text = found.render()
    assert found.unread == ("dnsmasq", "nginx")
    assert "never asked" not in text
    assert "the progress of its boot is unknown" in text
    assert "only root can read the log of dnsmasq" in text
    assert "sudo imagebuilder explain node1" in text
