# SPDX-License-Identifier: Apache-2.0
"""Settings of systemd's own daemons that harm a node, on answers of cat-config."""

from __future__ import annotations

from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding, Level
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup, read_config
from imagebuilder.proof.reading.texts import processors
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.network.nic import prove_stub, prove_tls
from imagebuilder.proof.system.units.manager import (
    isolated_by,
    prove_journal,
    prove_manager,
    prove_processors,
    prove_sleep,
)
from imagebuilder.recipe.expectations import Device, Expectations, ExpectedEngine
from tests.unit.proof.trees import Content, Link, Program, Sandbox, make_tree, running, subject

UNIT = "/etc/systemd/system/llama-server.service"
ENGINE = ExpectedEngine("llama-cpp", ("vulkan",), unit="llama-server.service")
JOBS = ("llama-server.service", "systemd-logind.service", "systemd-resolved.service")
DRM = Device("/dev/dri/renderD128", "render")


def asking(
    path: Path,
    conf: dict[str, str],
    cmdline: tuple[str, ...] = (),
    expected: Expectations | None = None,
) -> Subject:
    """A subject whose daemons have these lines in a drop-in each, by name and after a section."""
    shown = {
        f"systemd-analyze cat-config systemd/{name}.conf": f"# /etc/systemd/{name}.conf\n"
        f"#Key=default\n\n# /etc/systemd/{name}.conf.d/10-site.conf\n# why\n{lines}\n"
        for name, lines in conf.items()
    }
    expected = expected or Expectations(engines=(ENGINE,), devices=(DRM,))
    return subject(path, run=Sandbox(shown), cmdline=cmdline, expectations=expected)


def starting(*units: LoadedUnit, **values: str) -> Startup:
    """A boot with the engine, which has these values, and with other units."""
    given = {name: (value,) for name, value in values.items()}
    engine = LoadedUnit(ENGINE.unit, (UNIT,), {"Unit Load State": ("loaded",), **given})
    names = {unit.name: unit for unit in (engine, *units)}
    return Startup(frozenset((*JOBS, *names)), {}, names, ())


def told(found: list[Finding]) -> list[tuple[Level, str]]:
    assert all(each.hint for each in found)
    return [(each.level, each.what) for each in found]


def test_lines_of_a_daemon_with_the_files_that_have_them(tmp_path: Path) -> None:
    text = "[Manager]\nA=1 \\\n  2\n; no\n# /etc/x is no file\n[Other]\nB = x=y"
    (first, second) = read_config(asking(tmp_path, {"system": text}), "systemd/system.conf")
    assert (first.section, first.key, first.value.split()) == ("Manager", "A", ["1", "2"])
    assert (second.section, second.key, second.value) == ("Other", "B", "x=y")
    assert second.path == "/etc/systemd/system.conf.d/10-site.conf"


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("", ""),
        ("RuntimeWatchdogSec=2min\nDefaultTimeoutStartSec=90s\nDefaultTasksMax=80%", ""),
        ("CapabilityBoundingSet=~CAP_SYS_PTRACE CAP_SYS_RAWIO", ""),
        ("CapabilityBoundingSet=~", ""),
        ("CapabilityBoundingSet=~CAP_SYS_MODULE\nCapabilityBoundingSet=cap_sys_module", ""),
        ("CapabilityBoundingSet=~CAP_SYS_MODULE\nCapabilityBoundingSet=~", ""),
        ("CapabilityBoundingSet=~CAP_SYS_MODULE CAP_SYS_RAWIO",
         "CapabilityBoundingSet= takes CAP_SYS_MODULE from systemd and all services"),
        ("CapabilityBoundingSet=CAP_SYS_ADMIN CAP_NET_ADMIN", "it also takes CAP_SETUID"),
        ("CapabilityBoundingSet=", "it also takes CAP_SYS_ADMIN"),
        ("CapabilityBoundingSet=~CAP_CHOWN\nCapabilityBoundingSet=~CAP_SETUID", "takes CAP_SETUID"),
        ("SystemCallArchitectures=native", ""),
        ("SystemCallArchitectures=x86", "SystemCallArchitectures=x86 for all services"),
        ("NoNewPrivileges=yes", "NoNewPrivileges=yes for all services: sudo works for nobody"),
        ("NoNewPrivileges=yes\nNoNewPrivileges=no", ""),
        ("DefaultTimeoutStartSec=2", "DefaultTimeoutStartSec=2 for all services"),
        ("DefaultTimeoutStartSec=500ms", "DefaultTimeoutStartSec=500ms for all services"),
        ("DefaultTimeoutStartSec=4min", ""),
        ("DefaultLimitNOFILE=1024:524288\nDefaultLimitCORE=0\nDefaultLimitAS=infinity", ""),
        ("DefaultLimitNOFILE=16:524288",
         "llama-server.service is limited by DefaultLimitNOFILE=16:524288 of all services"),
        ("DefaultLimitAS=8G", "limited by DefaultLimitAS=8G of all services: a driver reserves"),
        ("DefaultTasksMax=10", "limited by DefaultTasksMax=10"),
        ("DefaultLimitCPU=600", "DefaultLimitCPU=600 of all services: it is killed after"),
        ("DefaultLimitCPU=infinity", ""),
    ],
)  # fmt: skip
def test_settings_of_the_service_manager(tmp_path: Path, lines: str, said: str) -> None:
    make_tree(tmp_path, {"/usr/bin/sudo": Program(), UNIT: "[Service]\n"})
    found = told(
        list(
            prove_manager(running(asking(tmp_path, {"system": f"[Manager]\n{lines}"}), starting()))
        )
    )
    assert [level for level, _ in found] == ([Level.FAULT] if said else [])
    assert all(said in what for _, what in found)


@pytest.mark.parametrize(
    ("files", "lines"),
    [
        ({UNIT: "[Service]\nLimitAS=infinity\n"}, "DefaultLimitAS=8G"),
        ({UNIT: "[Service]\nTasksMax=infinity\n"}, "DefaultTasksMax=10"),
        ({UNIT: "[Service]\n"}, "NoNewPrivileges=yes"),
    ],
)
def test_settings_that_the_engine_overrides_or_nobody_needs(
    tmp_path: Path, files: dict[str, Content], lines: str
) -> None:
    make_tree(tmp_path, files)
    asked = asking(tmp_path, {"system": f"[Manager]\n{lines}"})
    assert list(prove_manager(running(asked, starting()))) == []


@pytest.mark.parametrize(
    ("word", "values", "lines", "level"),
    [
        ("isolcpus=2-N", {}, "", Level.FAULT),
        ("isolcpus=domain,managed_irq,2-63", {}, "", Level.FAULT),
        ("isolcpus=2-N", {"CPUAffinity": "0-1"}, "", Level.FAULT),
        ("isolcpus=2-N", {"CPUAffinity": "2-63"}, "", None),
        ("isolcpus=2-3,8", {"CPUAffinity": "8 10"}, "", None),
        ("isolcpus=2-N", {"CPUAffinityFromNUMA": "yes"}, "", None),
        ("isolcpus=2-N", {"Environment": "GOMP_CPU_AFFINITY=2-31"}, "", None),
        ("isolcpus=2-N", {}, "CPUAffinity=0-63", None),
        ("isolcpus=nohz,2-63", {}, "", None),
        ("isolcpus=managed_irq,2-63", {}, "", None),
        ("nohz_full=2-N", {}, "", None),
        ("rcu_nocbs=2-N", {}, "", None),
        ("ro", {}, "CPUAffinity=0-3", None),
        ("ro", {}, "CPUAffinity=0", Level.FAULT),
        ("ro", {}, "CPUAffinity=0\nCPUAffinity=\nCPUAffinity=0 1", Level.WARNING),
        ("ro", {"CPUAffinity": "2-63"}, "CPUAffinity=0 1", None),
        ("ro", {"CPUAffinity": "2-63"}, "CPUAffinity=0", None),
    ],
)
def test_processors_that_stay_idle(
    tmp_path: Path,
    word: str,
    values: dict[str, str],
    lines: str,
    level: Level | None,
) -> None:
    asked = asking(tmp_path, {"system": f"[Manager]\n{lines}"}, cmdline=(word,))
    levels = [each.level for each in prove_processors(running(asked, starting(**values)))]
    assert levels == ([level] if level else [])


def test_another_service_or_a_user_may_use_them(tmp_path: Path) -> None:
    asked = asking(tmp_path, {}, cmdline=("isolcpus=2-N",))
    lines = {"ExecStart": (("/usr/bin/taskset", "-c", "2-31", "/usr/bin/packets"),)}
    packets = LoadedUnit("packets.service", (), {"Unit Load State": ("loaded",)}, lines)
    assert list(prove_processors(running(asked, starting(packets)))) == []
    asked = asking(tmp_path, {}, cmdline=("isolcpus=2-N",), expected=Expectations())
    (found,) = prove_processors(running(asked, starting()))
    assert found.level is Level.WARNING


def test_lists_of_processors() -> None:
    assert processors("0, 2-4 9") == {0, 2, 3, 4, 9}
    assert processors("2-N") & {1, 2, 500} == {2, 500}
    assert 63 in processors("all")
    assert isolated_by("nohz,domain,1") == {1}
    assert isolated_by("nohz,1") == isolated_by("") == frozenset()


@pytest.mark.parametrize(
    ("lines", "sleep", "files", "found"),
    [
        ("IdleAction=suspend\nIdleActionSec=30min", "", {}, True),
        ("IdleAction=poweroff", "", {}, True),
        ("IdleAction=ignore", "", {}, False),
        ("IdleAction=lock", "", {}, False),
        ("IdleAction=suspend\nIdleAction=ignore", "", {}, False),
        ("IdleAction=suspend\nIdleActionSec=0", "", {}, False),
        ("IdleAction=suspend\nIdleActionSec=infinity", "", {}, False),
        ("IdleAction=suspend", "AllowSuspend=no", {}, False),
        ("IdleAction=suspend", "", {"/etc/systemd/system/sleep.target": Link("/dev/null")}, False),
        ("HandleLidSwitch=suspend\nHandlePowerKey=poweroff\nStopIdleSessionSec=1h", "", {}, False),
        ("", "", {}, False),
    ],
)
def test_a_node_that_sleeps_while_nobody_is_logged_in(
    tmp_path: Path,
    lines: str,
    sleep: str,
    files: dict[str, Content],
    found: bool,  # noqa: FBT001
) -> None:
    make_tree(tmp_path, files)
    conf = {"logind": f"[Login]\n{lines}", "sleep": f"[Sleep]\n{sleep}"}
    levels = [each.level for each in prove_sleep(running(asking(tmp_path, conf), starting()))]
    assert levels == ([Level.FAULT] if found else [])


@pytest.mark.parametrize(
    ("unit", "command", "found"),
    [
        ("", "/usr/bin/systemctl --no-block suspend", True),
        ("Unit=suspend.target", "/bin/true", True),
        ("", "/usr/bin/systemctl reboot", False),
        ("", "/usr/bin/systemctl restart suspend", False),
        ("", "/usr/bin/backup suspend", False),
        ("Unit=other.service", "/usr/bin/systemctl suspend", False),
    ],
)
def test_timers_that_send_a_node_to_sleep(
    tmp_path: Path,
    unit: str,
    command: str,
    found: bool,  # noqa: FBT001
) -> None:
    folder = "/usr/lib/systemd/system"
    files: dict[str, Content] = {
        f"{folder}/night.timer": f"[Timer]\nOnCalendar=23:00\n{unit}\n",
        f"{folder}/night.service": f"[Service]\nExecStart={command}\n",
    }
    make_tree(tmp_path, files)
    timer = LoadedUnit("night.timer")
    got = told(list(prove_sleep(running(asking(tmp_path, {}), starting(timer)))))
    sleeps = (
        Level.WARNING,
        "night.timer sends the node to sleep (suspend), even while it computes",
    )
    assert got == ([sleeps] if found else [])


DROP_IN = "/etc/systemd/network/71-default.network.d/dns.conf"


@pytest.mark.parametrize(
    ("lines", "files", "level"),
    [
        ("DNSOverTLS=yes\nDNSSEC=yes", {}, Level.FAULT),
        ("DNSOverTLS=yes\nFallbackDNS=9.9.9.9", {}, Level.FAULT),
        ("DNSOverTLS=yes\nDNS=10.0.0.1#ns.example.org\nDNS=", {}, Level.FAULT),
        ("DNSOverTLS=yes\nDNS=10.0.0.1", {}, Level.WARNING),
        ("DNSOverTLS=yes\nDNS=10.0.0.1:853#ns.example.org", {}, None),
        ("DNSOverTLS=yes\nDNS=10.0.0.1 9.9.9.9", {}, None),
        ("DNSOverTLS=yes\nDNS=[2620:fe::fe]:853", {}, None),
        ("DNSOverTLS=opportunistic", {}, None),
        ("DNSOverTLS=yes\nDNSOverTLS=no", {}, None),
        ("DNSOverTLS=yes", {DROP_IN: "[Network]\nDNSOverTLS=opportunistic\n"}, None),
        ("DNSOverTLS=yes", {DROP_IN: "[Network]\nDNS=10.0.0.1#ns.example.org\n"}, None),
        ("LLMNR=no", {}, None),
    ],
)
def test_names_over_tls(
    tmp_path: Path, lines: str, files: dict[str, Content], level: Level | None
) -> None:
    make_tree(tmp_path, files)
    asked = asking(tmp_path, {"resolved": f"[Resolve]\n{lines}"})
    levels = [each.level for each in prove_tls(running(asked, starting()))]
    assert levels == ([level] if level else [])


@pytest.mark.parametrize(
    ("line", "link", "told"),
    [
        ("DNSStubListener=no", "../run/systemd/resolve/stub-resolv.conf", 1),
        ("DNSStubListener=no", "../run/systemd/resolve/resolv.conf", 0),
        ("DNSStubListener=udp", "../run/systemd/resolve/stub-resolv.conf", 0),
        ("DNSStubListener=no\nDNSStubListener=yes", "/run/systemd/resolve/stub-resolv.conf", 0),
        ("LLMNR=no", "../run/systemd/resolve/stub-resolv.conf", 0),
    ],
)
def test_a_stub_that_does_not_listen(tmp_path: Path, line: str, link: str, told: int) -> None:
    make_tree(tmp_path, {"/etc/resolv.conf": Link(link)})
    asked = asking(tmp_path, {"resolved": f"[Resolve]\n{line}"})
    assert len(list(prove_stub(running(asked, starting())))) == told


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("Storage=persistent\nSystemMaxUse=16G", "may take 16G there"),
        ("Storage=persistent", "may take a tenth of it"),
        ("Storage=persistent\nSystemMaxUse=200M", ""),
        ("Storage=volatile\nSystemMaxUse=16G", ""),
        ("SystemMaxUse=16G", ""),
    ],
)
def test_journals_in_memory(tmp_path: Path, lines: str, said: str) -> None:
    found = list(prove_journal(asking(tmp_path, {"journald": f"[Journal]\n{lines}"})))
    assert [said in each.what for each in found] == ([True] if said else [])
