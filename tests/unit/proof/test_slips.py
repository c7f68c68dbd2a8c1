# SPDX-License-Identifier: Apache-2.0
"""Slips of the hand: what looks right, and is read as something else or by nobody."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding, Level
from imagebuilder.proof.clusters.slurm import prove_detection, prove_memory
from imagebuilder.proof.privileges.sudo import prove_patterns
from imagebuilder.proof.reading.environment import Variable, unclosed
from imagebuilder.proof.reading.networkd import NETWORKD
from imagebuilder.proof.reading.scripts import SiteService
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.services.devices import prove_python_path
from imagebuilder.proof.services.selectors import SELECTORS
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.files.mounts import prove_fields
from imagebuilder.proof.system.files.needed import (
    prove_characters,
    prove_huge_pages,
    prove_settings,
    prove_udev_rules,
)
from imagebuilder.proof.system.files.unread import prove_read
from imagebuilder.proof.system.network.firewall import opens_ssh
from imagebuilder.proof.system.network.nic import prove_netdevs
from imagebuilder.proof.system.units.ignored import prove_namesakes, prove_sections
from tests.unit.proof.trees import Content, Program, make_tree, running, subject

UNITS = "/etc/systemd/system"


def about(root: Path, files: dict[str, Content], **more: object) -> Subject:
    asked = subject(make_tree(root, files), **more)  # type: ignore[arg-type]
    asked.__dict__["shipped"] = {}
    return asked


def whats(found: list[Finding]) -> list[str]:
    return [each.what for each in found]


def starts(*names: str) -> Startup:
    units = {n: LoadedUnit(n, (), {"Unit Load State": ("loaded",)}, {}) for n in names}
    return Startup(frozenset(names), {}, units, ())


def slurmd(asked: Subject) -> SiteService:
    unit = LoadedUnit("slurmd.service", (), {}, {})
    return SiteService(asked, unit, ("/usr/sbin/slurmd",))


@pytest.mark.parametrize(
    ("folder", "hint"),
    [
        ("llama_server.service.d", "llama-server.service is meant"),
        ("timer.target.wants", "install the unit"),
        ("gpu@.service.d", "install the unit"),
        ("llama-.timer.d", "install the unit"),
    ],
)
def test_a_folder_for_a_unit_that_is_not_there(folder: str, hint: str, tmp_path: Path) -> None:
    asked = about(tmp_path, {f"{UNITS}/{folder}/a.conf": "", "/usr/lib/systemd/system/a.timer": ""})
    (found,) = prove_namesakes(running(asked, starts("llama-server.service")))
    unit = folder.rpartition(".")[0]
    assert found.what == f"{UNITS}/{folder} has no effect: the image has no unit {unit}"
    assert hint in found.hint


@pytest.mark.parametrize(
    "folder",
    ["llama-server.service.d", "llama-.service.d", "service.d", "getty@tty1.service.d",
     "multi-user.target.wants", "dev-sda.device.d"],
)  # fmt: skip
def test_a_folder_that_is_read(folder: str, tmp_path: Path) -> None:
    files: dict[str, Content] = {
        f"{UNITS}/{folder}/a.conf": "",
        "/usr/lib/systemd/system/getty@.service": "",
        "/usr/lib/systemd/system/multi-user.target": "",
    }
    assert (
        list(prove_namesakes(running(about(tmp_path, files), starts("llama-server.service")))) == []
    )


@pytest.mark.parametrize(
    ("path", "text", "said"),
    [
        ("/etc/default/a", 'ARGS="--eager \u2013max-len 1"\n', '"\u2013" (U+2013) in line 1'),
        ("/etc/default/a", "A=1\nARGS=\u201ca b\u201d\n", '"\u201c" (U+201C) in line 2'),
        ("/etc/a.conf", "key\u00a0value\n", "a no-break space (U+00A0)"),
        ("/etc/a.conf", "\ufeffkey value\n", "a byte order mark (U+FEFF)"),
        ("/etc/a.icd", "libx.so\r\n", "end in CR LF"),
    ],
)
def test_characters_that_look_right(path: str, text: str, said: str, tmp_path: Path) -> None:
    (found,) = prove_characters(about(tmp_path, {path: text}))
    assert found.level is Level.WARNING
    assert said in found.what


@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("/etc/a.conf", "# \u201cquoted\u201d \u2013 a remark\nkey value # \u2013 x\n"),
        ("/etc/motd", "Welcome \u2013 \u201cnodes\u201d\n"),
        ("/etc/motd.d/10-site", "Welcome \u2013 \u201cnodes\u201d\n"),
        ("/etc/ssh/banner", "Welcome \u2013 \u201cnodes\u201d\n"),
        ("/etc/a.ini", "; \u201cquoted\u201d\n// \u2013x\n"),
        ("/etc/a.service", "Description=Models \u2013 for all\n"),
        ("/etc/a.conf", "name=Café-Müller don\u2019t\n"),
        ("/etc/a.json", "{}\r\n"),
        ("/etc/a", b"\x00\r\n"),
        ("/etc/b", b"\xff\r\n"),
        ("/usr/lib/a.conf", "\u2013x\r\n"),
    ],
)
def test_characters_that_are_meant(path: str, text: Content, tmp_path: Path) -> None:
    assert list(prove_characters(about(tmp_path, {path: text}))) == []


@pytest.mark.parametrize(
    ("path", "text", "lost"),
    [
        ("timesyncd.conf.d/a.conf", "[Timesync]\nNTP=a\n", "NTP=a"),
        ("journald.conf", "Storage=none\n", "Storage=none"),
        ("timesyncd.conf.d/a.conf", "[Time]\nNTP=a\n[X-Site]\nA=b\n", ""),
        ("timesyncd.conf.d/a", "[Timesync]\nNTP=a\n", ""),
    ],
)
def test_headings_of_systemd(path: str, text: str, lost: str, tmp_path: Path) -> None:
    found = whats(list(prove_sections(about(tmp_path, {f"/etc/systemd/{path}": text}))))
    assert [what.partition(" of ")[0] for what in found] == ([lost] if lost else [])


@pytest.mark.parametrize(
    ("network", "is_made"),
    [("[Network]\nVLAN=fast storage\n", True), ("[Network]\nVLAN=fast\n", False),
     ("[Match]\nVLAN=storage\n", False)],
)  # fmt: skip
def test_a_vlan_that_a_nic_carries(network: str, is_made: bool, tmp_path: Path) -> None:  # noqa: FBT001
    files: dict[str, Content] = {
        "/etc/systemd/network/a.netdev": "[NetDev]\nName=storage\nKind=vlan\n[VLAN]\nId=1\n",
        "/etc/systemd/network/b.network": network,
    }
    found = whats(list(prove_netdevs(running(about(tmp_path, files), starts(NETWORKD)))))
    said = "networkd never makes storage: no .network file has VLAN=storage"
    assert found == ([] if is_made else [said])


@pytest.mark.parametrize(
    ("line", "number"),
    [
        ("LABEL=a /a ext4 rw, nofail 0 2", "nofail"),
        ("LABEL=a /a ext4 rw 0 2 3", None),
        ("LABEL=a /my models ext4 rw 0 2", ""),
        ("LABEL=a /a ext4 rw,nofail 0 2", None),
        ("LABEL=a /a ext4 rw", None),
        ("LABEL=a /a ext4 rw 0 0 # text", None),
        ("# a /a ext4 rw, nofail 0 2", None),
    ],
)
def test_fields_of_fstab(line: str, number: str | None, tmp_path: Path) -> None:
    found = whats(list(prove_fields(about(tmp_path, {"/etc/fstab": f"{line}\n"}))))
    assert len(found) == (0 if number is None else 1)
    assert all((number or "") in what for what in found)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("hugepages=32 hugepagesz=1G", True),
        ("hugepagesz=1G hugepages=4", False),
        ("hugepages=512 hugepagesz=1G hugepages=4", False),
        ("default_hugepagesz=1G hugepages=4", False),
        ("hugepagesz=1G", False),
    ],
)
def test_huge_pages_of_a_size(words: str, said: bool, tmp_path: Path) -> None:  # noqa: FBT001
    found = whats(list(prove_huge_pages(about(tmp_path, {}, cmdline=tuple(words.split())))))
    assert ["reserves no pages" in what for what in found] == [True] * said


def test_a_reserve_in_bytes(tmp_path: Path) -> None:
    for value, many in (("1073741824", 1), ("1048576", 0)):
        asked = about(tmp_path, {}, cmdline=(f"sysctl.vm.min_free_kbytes={value}",))
        assert len(list(prove_settings(asked))) == many


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ('A="/models/a b\nB=1\n', ["A"]),
        ('A="/models/a b\nB="1"\n', ["A"]),
        ("A='x\n", ["A"]),
        ('A="one\ntwo"\nB=1\n', []),
        ('A="one"\nB=2"\n', []),
        ("A=it's\n", []),
        ('#A="x\n', []),
        ('A="a\\"b"\n', []),
    ],
)
def test_quotation_marks_that_nothing_closes(text: str, names: list[str]) -> None:
    assert list(unclosed(text)) == names


@pytest.mark.parametrize(
    ("detect", "pci", "said"),
    [("nvml", "1002:744c", True), ("rsmi", "1002:744c", False), ("nvml", "10de:2b85", False),
     ("off", "1002:744c", False), ("nvml", "1e60:2864", False)],
)  # fmt: skip
def test_cards_of_another_maker(detect: str, pci: str, said: bool, tmp_path: Path) -> None:  # noqa: FBT001
    files: dict[str, Content] = {"/etc/slurm/gres.conf": f"AutoDetect={detect}\n"}
    asked = about(tmp_path, files, hardware=[(pci, "card", "")])
    assert len(list(prove_detection(asked, slurmd(asked)))) == said


@pytest.mark.parametrize(("memory", "said"), [("256", True), ("62000", False), ("1", False)])
def test_memory_of_nodes_in_gibibytes(memory: str, said: bool, tmp_path: Path) -> None:  # noqa: FBT001
    files: dict[str, Content] = {"/etc/slurm/slurm.conf": f"NodeName=n RealMemory={memory}\n"}
    asked = about(tmp_path, files)
    assert len(list(prove_memory(asked.root, slurmd(asked)))) == said


def test_a_home_without_python(tmp_path: Path) -> None:
    asked = about(tmp_path, {"/opt/python/lib/python3.13/os.py": "", "/opt/plugins/a.py": ""})
    for home, many in (("/opt/python", 0), ("/opt/plugins", 1)):
        environment = {"PYTHONHOME": Variable(home, "/etc/a")}
        assert len(list(prove_python_path(asked, "a.service", (), environment))) == many


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        ('ENV{ID_PART_ENTRY_NAME}="scratch", TAG+="systemd"', True),
        ('ENV{ID_PART_ENTRY_NAME}=="scratch", TAG+="systemd"', False),
        ('ENV{ID_FS_LABEL}="x"', False),
        ('ENV{SYSTEMD_WANTS}="a.service", TAG+="systemd"', False),
    ],
)
def test_a_rule_that_assigns(rule: str, said: bool, tmp_path: Path) -> None:  # noqa: FBT001
    files: dict[str, Content] = {"/etc/udev/rules.d/9-a.rules": f'ACTION=="add", {rule}\n'}
    assert len(list(prove_udev_rules(about(tmp_path, files)))) == said


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("/usr/bin/cat /var/log/*", True),
        ("/usr/bin/systemctl restart gpu-?.service", True),
        ("/usr/bin/systemctl restart gpu.service", False),
        ("/usr/bin/cat ^/var/log/[a-z]+$", False),
        ("/usr/local/sbin/*", False),
        ("/usr/bin/id", False),
    ],
)
def test_wildcards_of_sudo(command: str, said: bool, tmp_path: Path) -> None:  # noqa: FBT001
    files: dict[str, Content] = {
        "/usr/bin/sudo": Program(),
        "/etc/sudoers": f"Defaults env_reset\nwww-data ALL=(root) NOPASSWD: {command}\n",
    }
    assert len(list(prove_patterns(about(tmp_path, files)))) == said


@pytest.mark.parametrize(
    ("rule", "is_open"),
    [
        ("tcp sport 22 accept", False),
        ("tcp dport 2222 accept", False),
        ("tcp dport 22 accept", True),
        ("tcp dport { ssh, http } accept", True),
        ("tcp dport @services accept", True),
        ("-A INPUT -p tcp -m multiport --dports 80,22 -j ACCEPT", True),
        ("tcp dport vmap { 22 : accept }", True),
    ],
)
def test_a_filter_that_lets_ssh_in(rule: str, is_open: bool) -> None:  # noqa: FBT001
    assert opens_ssh(f"{rule}\n", frozenset({"22"})) == is_open


@pytest.mark.parametrize(
    ("value", "hides"),
    [("level_zero:gpu:0", True), ("level_zero:0", False), ("level_zero:gpu", False),
     ("level_zero:0;opencl:gpu", False)],
)  # fmt: skip
def test_a_selector_with_a_colon_too_many(value: str, hides: bool) -> None:  # noqa: FBT001
    (row,) = (each for each in SELECTORS if each.variable == "ONEAPI_DEVICE_SELECTOR")
    assert (re.fullmatch(row.hides, value) is not None) == hides


def test_a_table_of_cron_without_a_last_newline(tmp_path: Path) -> None:
    files: dict[str, Content] = {
        "/usr/sbin/cron": Program(),
        "/etc/cron.d/cut": "0 0 * * * root a\n0 1 * * * root b",
        "/etc/cron.d/whole": "0 0 * * * root a\n",
        "/etc/cron.d/empty": "",
    }
    (what,) = whats(list(prove_read(running(about(tmp_path, files), starts()))))
    assert what == "cron ignores /etc/cron.d/cut: its last line does not end in a newline"
