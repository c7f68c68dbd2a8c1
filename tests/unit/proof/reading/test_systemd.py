# SPDX-License-Identifier: Apache-2.0
"""What systemd-analyze prints is read as it is meant: units, jobs, cycles, complaints."""

from __future__ import annotations

from imagebuilder.proof.reading.systemd import (
    Complaint,
    LoadedUnit,
    Startup,
    parse_log,
    parse_units,
)

DUMP = """\
\t→ Unit graphical.target:
\t\tAlias: default.target
\t\tUnit Load State: loaded
\t-> Unit a.service:
\t\tUnit Load State: loaded
\t\tFragment Path: /etc/systemd/system/a.service
\t\tDropIn Path: /usr/lib/systemd/system/service.d/b.conf
\t\tConditionPathExists: |!/dev/nvidia0 untested
\t\tEnvironment: A=1
\t\tEnvironment: B=x y
\t\t→ ExecStartPre:
\t\t\tCommand Line: /usr/bin/look --for "a b"
\t\t→ ExecStart:
\t\t\tCommand Line: /usr/bin/serve "\\${PORT}" "q\\"x"
\t\tMemoryMax: 67108864
"""
LOG = """\
<31>x.service: Installed new job early.service/start as 1
<31>graphical.target: Creating graphical.target/start job
<31>ssh.service: Installed new job ssh.service/start as 1
<31>a.service: Installed new job a.service/start as 2
<28>/etc/systemd/system/a.service:7: Unknown key 'Bogus' in section [Service], ignoring.
<28>/etc/systemd/system/a.service:7: Unknown key 'Bogus' in section [Service], ignoring.
<27>multi-user.target: Found ordering cycle on b.service/start
<27>multi-user.target: Found dependency on ssh.service/start
<28>multi-user.target: Job ssh.service/start deleted to break ordering cycle starting with it
<28>Read-only bind remount failed, ignoring: Operation not supported
<30>/etc/systemd/system/a.service: Support for option CPUShares= has been removed and it is ignored
<31>other.service: Creating other.service/start job
<31>other.service: Installed new job other.service/start as 9
"""


def test_what_a_disk_starts_starts_at_boot() -> None:
    state = {"Unit Load State": ("loaded",)}
    wanted = {"WantedBy": ("models.mount (destination-file)",), **state}
    other = {"WantedBy": ("rescue.target (destination-file)",), **state}
    units = {n: LoadedUnit(n, (), v) for n, v in (("a.service", wanted), ("b.service", other))}
    assert [unit.name for unit in Startup(frozenset(), {}, units, ()).starting()] == ["a.service"]


def test_units_are_read_with_their_drop_ins_and_commands() -> None:
    target, unit = parse_units(DUMP)
    assert (target.name, target.words("Alias")) == ("graphical.target", ("default.target",))
    assert unit.state == "loaded"
    assert unit.paths == (
        "/etc/systemd/system/a.service",
        "/usr/lib/systemd/system/service.d/b.conf",
    )
    assert unit.every("Environment") == ("A=1", "B=x y")
    assert unit.last("ConditionPathExists") == "|!/dev/nvidia0 untested"
    assert unit.commands == {
        "ExecStartPre": (("/usr/bin/look", "--for", "a b"),),
        "ExecStart": (("/usr/bin/serve", "${PORT}", 'q"x'),),
    }
    assert unit.last("MemoryMax") == "67108864"


def test_jobs_are_those_of_the_first_unit_asked_about() -> None:
    jobs, dropped, complaints = parse_log(LOG)
    assert jobs == {"ssh.service", "a.service"}
    assert list(dropped) == ["ssh.service"]
    assert "b.service" in dropped["ssh.service"]
    assert complaints == (
        Complaint(
            "/etc/systemd/system/a.service", "Unknown key 'Bogus' in section [Service], ignoring."
        ),
        Complaint(
            "/etc/systemd/system/a.service",
            "Support for option CPUShares= has been removed and it is ignored",
        ),
    )
