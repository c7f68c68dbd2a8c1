# SPDX-License-Identifier: Apache-2.0
"""Draining: work ends first, and only what we drained is resumed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from imagebuilder.errors import HostError
from imagebuilder.fleet.power.protocol import PowerError
from imagebuilder.fleet.rollout.drain import (
    KubernetesDrain,
    ProgramDrain,
    SlurmDrain,
    choose_drainer,
)

REASON = "imagebuilder rollout gpu@2"
# nodes/NAME has state and reason; a line of jobs/NAME ends at each look.
SINFO = """\
cd {top}
for name in $(echo "$4" | tr , " "); do
    [ -e nodes/$name ] || continue
    IFS="|" read -r state reason < nodes/$name
    if [ "$state" = draining ] && [ ! -s jobs/$name ]; then state=drained; fi
    [ ! -s jobs/$name ] || sed -i 1d jobs/$name
    echo "$name|$state|$reason"
done
"""
SCONTROL = """\
cd {top}
echo "$*" >> calls
for name in $(echo "${{2#NodeName=}}" | tr , " "); do
    case $3 in
    State=DRAIN) echo "draining|${{4#Reason=}}" > nodes/$name ;;
    State=RESUME) echo "idle|none" > nodes/$name ;;
    esac
done
"""
KUBECTL = """\
cd {top}/nodes
echo "$*" >> ../calls
case $1 in
get) case $5 in
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
    """A folder with programs before all others, and nodes/ and jobs/ for them."""
    for name, text in {"sinfo": SINFO, "scontrol": SCONTROL, "kubectl": KUBECTL}.items():
        place = tmp_path / "path" / name
        place.parent.mkdir(exist_ok=True)
        place.write_text("#!/bin/sh\n" + text.format(top=tmp_path))
        place.chmod(0o755)
    for name in ("nodes", "jobs"):
        (tmp_path / name).mkdir()
    (tmp_path / "calls").touch()
    monkeypatch.setenv("PATH", f"{tmp_path}/path:{os.environ['PATH']}")
    return tmp_path


def test_slurm_drains_waits_and_resumes_only_ours(top: Path) -> None:
    (top / "nodes/n1").write_text("allocated|none\n")
    (top / "nodes/n2").write_text("drained|broken fan\n")
    (top / "jobs/n1").write_text("1\n2\n")
    slurm, names = SlurmDrain(), ["n1", "n2", "n3"]
    unknown = "Slurm does not know this node"
    busy = f"Slurm says draining ({REASON})"
    assert slurm.drain(names, REASON) == {"n1": busy, "n2": "", "n3": unknown}
    assert slurm.drain(names, REASON) == {"n1": "", "n2": "", "n3": unknown}
    assert (top / "calls").read_text() == f"update NodeName=n1 State=DRAIN Reason={REASON}\n"
    slurm.resume(names, REASON)
    slurm.resume(names, REASON)
    assert (top / "nodes/n1").read_text() == "idle|none\n"
    assert (top / "nodes/n2").read_text() == "drained|broken fan\n"


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
    with pytest.raises(PowerError):
        drainer.resume(["n1"], REASON)
    with pytest.raises(HostError, match="not installed"):
        choose_drainer("no-such-scheduler")
