# SPDX-License-Identifier: Apache-2.0
"""Draining: work ends first, and only what we drained is resumed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.errors import HostError, InputError, WorkError
from imagebuilder.fleet.drain import (
    KubernetesDrain,
    ProgramDrain,
    SlurmDrain,
    choose_drainer,
    read_slurm,
)

REASON = "imagebuilder rollout gpu@2"
# What Debian's Slurm prints (tests/integration/test_slurm.py), shortened.
SCONTROL = """\
cat << END
NodeName=idle Arch=x86_64 NodeHostName=vm OS=Linux 6.18.44 #1 SMP @0  State=IDLE ThreadsPerCore=1
NodeName=mixed NodeHostName=vm State=MIXED+DRAIN Reason={reason} [root@2026-11-23T17:45:40]
NodeName=done State=IDLE+COMPLETING+DRAIN TmpDisk=0 Reason={reason} [root@2026-11-23T17:45:40]
NodeName=old State=IDLE*+DRAIN TmpDisk=0 Reason=fan [1] is a|b [ada@2026-11-23T17:45:40] Comment=x
NodeName=down State=DOWN+NOT_RESPONDING TmpDisk=0 Reason=bad disk [1001@2026-11-23T17:45:40]
NodeName=failing State=ALLOCATED+FAIL TmpDisk=0 Reason={reason} [1001@2026-11-23T17:45:40]
NodeName=inval State=UNKNOWN+DRAIN+INVALID_REG Reason=Low RealMemory (a < b) [slurm@2026-11-23]
END
"""
KUBECTL = """\
cd {top}/nodes
echo "$*" >> ../calls
case $1 in
get) case $5 in
    *metadata.name*) [ -e $3 ] || {{ echo "nodes $3 not found" >&2; exit 1; }} ;;
    *unschedulable*) cat $3.closed 2> /dev/null || : ;;
    *annotations*) cat $3.note 2> /dev/null || : ;;
    esac ;;
annotate) if [ "$2" = --overwrite ]; then echo "${{5#*=}}" > $4.note; else rm $3.note; fi ;;
cordon) echo true > $2.closed ;;
uncordon) rm $2.closed ;;
drain) [ ! -e $2.job ] || {{ rm $2.job; echo "global timeout reached: 20s" >&2; exit 1; }} ;;
esac
"""


@pytest.fixture
def top(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with programs before all others, and nodes/ for them."""
    for name, text in {"scontrol": SCONTROL, "kubectl": KUBECTL}.items():
        place = tmp_path / "path" / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("#!/bin/sh\n" + text.format(top=tmp_path, reason=REASON))
        place.chmod(0o755)
    (tmp_path / "nodes").mkdir()
    (tmp_path / "calls").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}/path:{os.environ['PATH']}")
    return tmp_path


def test_slurm_says_of_each_node_whether_jobs_begin_and_run_on_it(top: Path) -> None:
    del top
    nodes = read_slurm()
    assert [name for name, node in nodes.items() if not node.closed] == ["idle"]
    assert {name: node.work for name, node in nodes.items() if node.work} == {
        "idle": "Slurm says idle",
        "mixed": f"Slurm says drain+mixed ({REASON})",
        "done": f"Slurm says completing+drain+idle ({REASON})",
        "failing": f"Slurm says allocated+fail ({REASON})",
    }
    assert [name for name, node in nodes.items() if node.is_ours(REASON)] == ["mixed", "done"]
    assert nodes["old"].reason == "fan [1] is a|b"
    assert nodes["inval"].reason == "Low RealMemory (a < b)"


def test_schedulers_have_to_know_the_nodes(top: Path) -> None:
    SlurmDrain().check(["idle", "down"])
    with pytest.raises(InputError, match=r"^Slurm does not know n\[1-2\]"):
        SlurmDrain().check(["idle", "n2", "n1"])
    (top / "nodes/n1").touch()
    KubernetesDrain().check(["n1"])
    with pytest.raises(WorkError, match=r"^n2: kubectl failed: nodes n2 not found"):
        KubernetesDrain().check(["n1", "n2"])


def test_kubernetes_cordons_evicts_and_uncordons_only_ours(top: Path) -> None:
    (top / "nodes/n1.job").touch()
    (top / "nodes/n2.closed").write_text("true\n")
    kubernetes = KubernetesDrain()
    first = kubernetes.drain(["n1", "n2"], REASON)
    assert first["n2"] == ""
    assert "global timeout reached" in first["n1"]
    assert kubernetes.drain(["n1", "n2"], REASON) == {"n1": "", "n2": ""}
    kubernetes.resume(["n1", "n2"], REASON)
    assert not (top / "nodes/n1.closed").exists()
    assert (top / "nodes/n2.closed").exists()
    assert (top / "calls").read_text().count("uncordon") == 1


def test_a_program_of_the_site_says_what_still_runs(top: Path) -> None:
    program = top / "mine"
    program.write_text('#!/bin/sh\n[ "$1" = resume ] || { echo "$2 is busy: $3" >&2; exit 1; }\n')
    program.chmod(0o755)
    drainer = choose_drainer(os.fspath(program))
    assert isinstance(drainer, ProgramDrain)
    assert drainer.drain(["n1"], REASON) == {"n1": f"{program} failed: n1 is busy: {REASON}"}
    drainer.resume(["n1"], REASON)
    program.write_text("#!/bin/sh\nexit 1\n")
    with pytest.raises(WorkError):
        drainer.resume(["n1"], REASON)
    with pytest.raises(HostError, match="not installed"):
        choose_drainer("no-such-scheduler")
