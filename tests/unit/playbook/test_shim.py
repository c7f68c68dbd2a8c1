# SPDX-License-Identifier: Apache-2.0
"""What the programs of a running node answer while a playbook runs."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from imagebuilder.playbook.inside import shim

Call = Callable[..., int]


class Became(Exception):  # noqa: N818 - stands for execv(2), which does not return
    """The program itself was run with these words."""


@pytest.fixture
def call(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Call:
    """The shim on a root with two units, one enabled."""
    units = tmp_path / "units"
    (units / "multi-user.target.wants").mkdir(parents=True)
    for name in ("nginx.service", "ssh.service", "job@.service"):
        (units / name).write_text("[Service]\n")
    (units / "off.service").symlink_to("/dev/null")
    monkeypatch.setattr(shim, "UNIT_PLACES", (units,))
    monkeypatch.setattr(shim, "enabled", lambda name: name == "ssh.service")
    monkeypatch.setattr(shim, "SKIPPED", tmp_path / "skipped")
    monkeypatch.setattr(shim, "BOOT", tmp_path / "boot")
    monkeypatch.setattr(shim, "SETTINGS", tmp_path / "settings")
    (tmp_path / "skipped").touch()
    (tmp_path / "boot").write_text("00000000-0000-4000-8000-000000000000\n")
    (tmp_path / "settings").write_text(json.dumps({"kernel": "7.2.12"}))

    def became(name: str, arguments: list[str]) -> None:
        raise Became(" ".join([name, *arguments]))

    monkeypatch.setattr(shim, "real", became)
    return lambda name, *arguments: shim.main(name, list(arguments))


def skipped() -> list[str]:
    """What was written down, in short."""
    rows = [json.loads(line) for line in shim.SKIPPED.read_text().splitlines()]
    return [f"{row['what']} {row['verb']}".strip() for row in rows]


def test_starts_are_written_down(call: Call) -> None:
    assert call("systemctl", "start", "nginx") == 0
    assert call("systemctl", "--no-block", "restart", "ssh.service") == 0
    assert call("service", "nginx", "reload") == 0
    assert call("systemctl", "start", "job@3.service") == 0
    assert skipped() == ["nginx start", "ssh restart", "nginx reload", "job@3 start"]


def test_a_unit_that_is_not_there_fails_as_on_a_node(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("systemctl", "start", "ngnix") == 5
    assert "ngnix.service" in capsys.readouterr().err
    assert call("systemctl", "restart", "off") == 1
    assert skipped() == []


def test_show_tells_ansible_what_it_asks(call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    call("systemctl", "show", "nginx")
    call("systemctl", "start", "nginx")
    call("systemctl", "show", "nginx", "-p", "ActiveState", "--value")
    call("systemctl", "show", "nosuch", "--property=LoadState")
    said = capsys.readouterr().out.splitlines()
    assert "ActiveState=inactive" in said[:4]
    assert said[4:] == ["active", "LoadState=not-found"]


def test_an_enabled_unit_counts_as_running(call: Call) -> None:
    assert call("systemctl", "is-active", "ssh") == 0
    assert call("systemctl", "is-active", "nginx") == 3
    call("systemctl", "stop", "ssh")
    assert call("systemctl", "is-active", "ssh") == 3


def test_what_a_tree_can_have_is_really_done(call: Call) -> None:
    for words in (("enable", "nginx"), ("mask", "ssh"), ("list-unit-files",), ("is-enabled", "x")):
        with pytest.raises(Became, match=" ".join(("systemctl", *words))):
            call("systemctl", *words)
    assert skipped() == []


def test_enable_now_is_half_done(call: Call) -> None:
    with pytest.raises(Became, match=r"^systemctl enable nginx$"):
        call("systemctl", "enable", "--now", "nginx")
    assert skipped() == ["nginx start"]


def test_daemon_reload_is_nothing(call: Call) -> None:
    assert call("systemctl", "daemon-reload") == 0
    assert skipped() == []


def test_a_reboot_looks_done(call: Call) -> None:
    before = shim.BOOT.read_text()
    assert call("shutdown", "-r", "0", "by Ansible") == 0
    assert call("systemctl", "reboot") == 0
    assert shim.BOOT.read_text() not in ("", before)
    assert skipped() == ["reboot", "reboot"]


def test_the_kernel_is_the_images(call: Call, capsys: pytest.CaptureFixture[str]) -> None:
    call("uname", "-r")
    call("uname", "-sr")
    assert capsys.readouterr().out == "7.2.12\nLinux 7.2.12\n"
    with pytest.raises(Became, match=r"depmod -a 7\.2\.12"):
        call("depmod", "-a")


def test_modules_shares_and_settings_are_the_nodes(call: Call) -> None:
    assert call("modprobe", "nvidia") == 0
    assert call("sysctl", "-p", "/etc/sysctl.d/x.conf") == 0
    assert call("sysctl", "-w", "vm.swappiness=10") == 0
    assert call("udevadm", "control", "--reload-rules") == 0
    assert call("mount", "-t", "nfs", "nas:/x", "/x") == 0
    assert call("mount", "/models") == 0
    assert call("hostnamectl", "set-hostname", "n") == 0
    assert len(skipped()) == 7
    for words in (("sysctl", "-n", "vm.swappiness"), ("modprobe", "-n", "x"), ("modinfo", "x"),
                  ("mount", "--bind", "/a", "/b"), ("udevadm", "hwdb")):  # fmt: skip
        with pytest.raises(Became):
            call(*words)


def test_the_zone_is_a_file_of_the_root(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    zones, localtime = tmp_path / "zoneinfo", tmp_path / "localtime"
    (zones / "Europe").mkdir(parents=True)
    (zones / "Europe/Berlin").touch()
    monkeypatch.setattr(shim, "ZONES", zones)
    monkeypatch.setattr(shim, "LOCALTIME", localtime)
    monkeypatch.setattr(shim, "TIMEZONE", tmp_path / "timezone")
    assert call("timedatectl", "show", "--property=Timezone", "--value") == 0
    assert call("timedatectl", "set-timezone", "Europe/Berlin") == 0
    assert call("timedatectl", "show", "--property=Timezone", "--value") == 0
    assert call("timedatectl", "set-timezone", "Europe/Nowhere") == 1
    assert call("timedatectl", "set-timezone", "../localtime") == 1
    assert capsys.readouterr().out == "UTC\nEurope/Berlin\n"
    assert localtime.readlink() == zones / "Europe/Berlin"
    assert call("timedatectl", "set-time", "2001-01-01") == 0
    assert skipped() == ["timedatectl set-time 2001-01-01"]


def test_a_kernel_setting_is_what_the_node_will_have(
    call: Call, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(shim, "settings_of_kernel", lambda: {"vm.swappiness": "10"})
    assert call("sysctl", "-n", "vm.swappiness") == 0
    assert call("sysctl", "vm/swappiness") == 0
    assert capsys.readouterr().out == "10\nvm/swappiness = 10\n"
    with pytest.raises(Became):
        call("sysctl", "-n", "kernel.pid_max")
    assert skipped() == ["sysctl -n kernel.pid_max"]


def test_tuned_reads_its_profile_when_a_node_boots(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "profiles/balanced").mkdir(parents=True)
    monkeypatch.setattr(shim, "TUNED", tmp_path)
    monkeypatch.setattr(shim, "TUNED_PLACES", (tmp_path / "profiles",))
    assert call("tuned-adm", "profile", "fast") == 1
    assert call("tuned-adm", "active") == 0
    assert call("tuned-adm", "profile", "balanced") == 0
    assert call("tuned-adm", "active") == 0
    assert "Current active profile: balanced\n" in capsys.readouterr().out
    assert (tmp_path / "profile_mode").read_text() == "manual\n"


def test_what_is_made_beside_the_root_is_told(
    call: Call, capsys: pytest.CaptureFixture[str]
) -> None:
    assert call("update-initramfs", "-u") == 0
    assert call("update-grub") == 0
    assert call("grubby", "--update-kernel=ALL") == 0
    assert skipped() == ["update-initramfs -u", "update-grub", "grubby --update-kernel=ALL"]
    assert call("systemctl", "is-system-running") == 0
    assert call("lsmod") == 0
    assert capsys.readouterr().out.splitlines() == [
        "running",
        "Module                  Size  Used by",
    ]
