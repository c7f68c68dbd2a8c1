# SPDX-License-Identifier: Apache-2.0
"""Roll-outs that drain Debian's Slurm, and its HealthCheckProgram; the nodes' ssh is simulated."""

from __future__ import annotations

import json
import os
import re
import textwrap
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from imagebuilder.errors import InputError, WorkError
from imagebuilder.fleet.drain import SlurmDrain
from imagebuilder.fleet.rollout.show import render_rollout
from imagebuilder.fleet.rollout.types import LiveRollout, RolloutStatus
from tests.integration.slurm_room import SlurmRoom, slurm_room
from tests.integration.started import wait_until
from tests.unit.fleet.rollout_world import NEW, RolloutWorld, make_world, order
from tests.workshop import CHECKOUT

pytestmark = pytest.mark.root

NAMES = ("n1", "n2", "n3")
REASON = f"imagebuilder rollout demo@{NEW}"
# A job that ends a while after its node was drained.
PATIENT = """\
PATH=/usr/bin:/bin
until scontrol --oneliner show node $SLURMD_NODENAME | grep State=.*DRAIN; do sleep 0.2; done
sleep 3
"""
# Cuts the power of the node's machine, and waits until Slurm has heard of the next boot and a
# resumed node counts as heard of later than that: both are whole seconds, of two processes.
REBOOT = """\
#!/bin/sh
booted() {{ scontrol --oneliner show node "$NODE" | grep -o "BootTime=[^ ]*"; }}
before=$(booted)
case $NODE in
{cases}
esac
while [ "$(booted)" = "$before" ]; do sleep 0.1; done
sleep 2
"""


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlurmRoom]:
    """Slurm with three nodes, whose scontrol is on PATH; n4 lacks memory, n5 has no partition."""
    more = (
        "NodeName=n4 NodeAddr=10.77.0.1 Port=7004 CPUs=2 RealMemory=99999999",
        "NodeName=n5 NodeAddr=10.77.0.1 Port=7005 CPUs=2",
        "PartitionName=hidden Nodes=n4 Hidden=YES",
    )
    path = tmp_path / "sim/path"
    path.mkdir(parents=True)
    with slurm_room(tmp_path / "slurm", NAMES, *more) as room:
        (path / "scontrol").write_text(room.wrapper("scontrol"))
        (path / "scontrol").chmod(0o755)
        monkeypatch.setenv("PATH", f"{path}:{os.environ['PATH']}")
        yield room


def make_nodes(top: Path, slurm: SlurmRoom, names: tuple[str, ...] = NAMES) -> RolloutWorld:
    """Simulated nodes: a reboot ends what Slurm runs on them, too.

    Slurm gives jobs to a resumed node once slurmd has registered again, and calls a boot that began
    after the node was resumed an unexpected reboot.  slurmd -b says that the boot began when slurmd
    did, so a node answers here only after that; a real one does so by itself.
    """
    world = replace(make_world(top, names), drain="slurm")
    boot = world.sim / "boot"
    cases = "\n".join(f"{name}) kill -USR1 {pid} ;;" for name, pid in slurm.pids.items())
    boot.write_text(f"{REBOOT.format(cases=cases)}{boot.read_text()}")
    return world


def test_a_rollout_waits_for_jobs_and_resumes_what_it_drained(
    tmp_path: Path, slurm: SlurmRoom
) -> None:
    world = make_nodes(tmp_path, slurm)
    slurm("scontrol", "update", "NodeName=n3", "State=DRAIN", "Reason=broken fan")
    job = slurm.submit("n2", PATIENT)
    done = world.run().go(world.start(order(canary="n1", batch="100%", timeout=120)))
    assert done.status is RolloutStatus.DONE, render_rollout(LiveRollout(done, runs=False))
    assert {name: world.boots(name) for name in NAMES} == {name: [NEW] for name in NAMES}
    assert slurm.job(job) == "COMPLETED"
    for name in ("n1", "n2"):
        wait_until(lambda name=name: slurm.is_idle(name), f"{name} is not idle")  # type: ignore[misc]
    assert slurm.state("n3") == "DOWN+DRAIN broken fan"  # ReturnToService=1 says so of a reboot
    slurm("scontrol", "update", "NodeName=n3", "State=RESUME")
    wait_until(lambda: slurm.is_idle("n3"), "n3 is not idle")


def test_a_job_that_does_not_end_in_time_goes_on(tmp_path: Path, slurm: SlurmRoom) -> None:
    world = make_nodes(tmp_path, slurm)
    job = slurm.submit("n2", "sleep 1000")
    done = world.run().go(
        world.start(order(canary="n1", batch="100%", timeout=120, drain_timeout=30))
    )
    node = next(node for node in done.nodes if node.name == "n2")
    what = f"Slurm says {{}} ({REASON})"
    words = [what.format(state) for state in ("allocated+drain", "drain+mixed")]
    assert node.why in [f"could not be drained in time: {word}" for word in words]
    assert [node.stage.value for node in done.nodes] == ["done", "left alone", "done"]
    assert world.boots("n2") == []
    assert slurm.job(job) == "RUNNING"
    assert "DRAIN" not in slurm.state("n2")


def test_what_an_admin_says_of_a_node_stays(slurm: SlurmRoom) -> None:
    drain, every = SlurmDrain(), [*NAMES, "n4", "n5"]
    slurm("scontrol", "update", "NodeName=n2", "State=DOWN", "Reason=bad disk")
    slurm("scontrol", "update", "NodeName=n3", "State=FAIL", "Reason=flaky")
    with slurm.machine("n4", "slurmd", "-D"):
        wait_until(lambda: "INVALID_REG" in slurm.state("n4"), "n4 was not refused")
        before = [slurm.state(name) for name in every[1:4]]
        drain.check(every)
        assert drain.drain(every, REASON) == dict.fromkeys(every, "")
        assert [slurm.state(name) for name in every[1:4]] == before
        assert slurm.state("n1") == f"IDLE+DRAIN {REASON}"
        slurm("scontrol", "update", "NodeName=n1", "Reason=n1 | broken\tfan [1]")
        with pytest.raises(WorkError, match=r"^n5: .*Invalid node state specified"):
            drain.resume(every, REASON)  # it has no slurmd
        drain.resume(every, REASON)
        assert slurm.state("n1") == "IDLE+DRAIN n1 | broken\tfan"
        assert [slurm.state(name) for name in every[1:4]] == before


def test_a_slurm_that_does_not_know_a_node_or_is_dead_has_nothing_touched(
    tmp_path: Path, slurm: SlurmRoom
) -> None:
    world = make_nodes(tmp_path, slurm, ("n1", "n8", "n9"))
    before = world.tree.nodes_file.read_text()
    with pytest.raises(InputError, match=re.escape("Slurm does not know n[8-9]")):
        world.start(order())
    drain = SlurmDrain()
    assert drain.drain(["n1", "n9"], REASON) == {"n1": "", "n9": "Slurm does not know this node"}
    slurm.power_off("control")
    wait_until(lambda: not slurm("ss", "-Hltn", "sport = :6817"), "slurmctld runs on")
    dead = r"Unable to contact slurm controller \(connect failure\)"
    with pytest.raises(WorkError, match=f"^slurm: scontrol failed: .*{dead}"):
        world.start(order())
    assert re.search(dead, drain.drain(["n1"], REASON)["n1"])
    with pytest.raises(WorkError, match=dead):
        drain.resume(["n1"], REASON)
    assert world.tree.nodes_file.read_text() == before
    assert not list(world.tree.path.glob("rollouts/*.json"))


def test_the_health_check_program_of_the_docs_drains_and_resumes_only_its_own(
    tmp_path: Path,
) -> None:
    page = (CHECKOUT / "docs/running-nodes.md").read_text()
    found = re.search(r"^    #!/bin/sh\n    node=.*?^    esac$", page, re.DOTALL | re.MULTILINE)
    assert found
    health = "/usr/lib/imagebuilder/health"
    assert health in found[0]
    program, gate, calls = tmp_path / "program", tmp_path / "gate", tmp_path / "calls"
    program.write_text(textwrap.dedent(found[0]).replace(health, os.fspath(gate)) + "\n")
    gate.write_text(
        f"#!/bin/sh\nhostname -s >> {calls}\nexport HEALTH_ROOT={tmp_path}/$(hostname -s)\n"
        f'exec {CHECKOUT}/overlays/compute-node/files{health} "$@"\n'
    )
    for file in (program, gate):
        file.chmod(0o755)
    for name in NAMES:
        find(tmp_path, name, "ok", "3 checks passed")
    more = (f"HealthCheckProgram={program}", "HealthCheckInterval=2", "HealthCheckNodeState=ANY")

    def await_looks() -> None:
        """Wait until each node was looked at twice more: the first may have begun before."""
        seen = {name: calls.read_text().split().count(name) for name in NAMES}
        for name in NAMES:
            wait_until(
                lambda name=name: calls.read_text().split().count(name) > seen[name] + 2,  # type: ignore[misc]
                f"{name} was not looked at",
            )

    with slurm_room(tmp_path / "slurm", NAMES, *more) as slurm:
        for name, reason in (("n2", "broken fan"), ("n3", REASON)):
            slurm("scontrol", "update", f"NodeName={name}", "State=DRAIN", f"Reason={reason}")
        for name in NAMES:
            find(tmp_path, name, "missing device", "0 of 1 card")
        others = ["IDLE+DRAIN broken fan", f"IDLE+DRAIN {REASON}"]
        await_looks()
        await_states(slurm, "IDLE+DRAIN health: missing device: 0 of 1 card", *others)
        for name in NAMES:
            find(tmp_path, name, "ok", "3 checks passed")
        await_looks()
        await_states(slurm, "IDLE", *others)


def await_states(slurm: SlurmRoom, *states: str) -> None:
    """Wait for the states of all nodes: Slurm takes them in after a program has ended."""
    wait_until(lambda: [slurm.state(name) for name in NAMES] == [*states], f"they are not {states}")


def find(top: Path, node: str, verdict: str, words: str) -> None:
    """Write what a node found out about itself, this boot."""
    folder = top / node / "run/imagebuilder/health"
    folder.mkdir(parents=True, exist_ok=True)
    proc = top / node / "proc"
    if not proc.exists():
        proc.symlink_to("/proc")
    told = {
        "verdict": verdict, "words": words,
        "boot-id": (proc / "sys/kernel/random/boot_id").read_text().strip(),
        "uptime": float((proc / "uptime").read_text().split()[0]),
    }  # fmt: skip
    (folder / "new").write_text(json.dumps(told))
    (folder / "new").replace(folder / "verdict.json")
