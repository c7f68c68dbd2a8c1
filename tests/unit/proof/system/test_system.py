# SPDX-License-Identifier: Apache-2.0
"""What a node needs around its services, on small trees; nothing is said of usual settings."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import JsonValue

from imagebuilder.families.shipped import ShippedFile
from imagebuilder.image.proof import Level
from imagebuilder.image.types import ImageLayer
from imagebuilder.process import Completed
from imagebuilder.proof.reading.systemd import LoadedUnit, Startup
from imagebuilder.proof.subject import Subject
from imagebuilder.proof.system.files.mounts import prove_mounts
from imagebuilder.proof.system.files.needed import prove_huge_pages, prove_log_in, prove_packages
from imagebuilder.proof.system.login.accounts import (
    prove_accounts,
    prove_greetings,
    prove_sudo,
    prove_unit_accounts,
)
from imagebuilder.proof.system.network.firewall import prove_firewall
from imagebuilder.proof.system.network.nic import prove_nic, prove_resolver, prove_switch
from imagebuilder.proof.system.prove import prove_system
from imagebuilder.proof.system.units.start import (
    LISTENS,
    PORT,
    listened_port,
    prove_listeners,
    prove_masked,
    prove_stopped,
    starts_otherwise,
)
from imagebuilder.root import Root
from tests.images import packages_of
from tests.unit.proof.trees import (
    KERNEL,
    Content,
    Link,
    Program,
    Sandbox,
    faults,
    make_tree,
    running,
    subject,
    warnings,
)

NETWORK = "/etc/systemd/network"
RESOLVED = "systemd-resolved.service"


def mounting(root: Path) -> Subject:
    """A subject whose packages ship nothing."""
    found = subject(root)
    found.__dict__["shipped"] = {}
    return found


def startup(*jobs: str, **units: LoadedUnit) -> Startup:
    return Startup(frozenset(jobs), {}, {unit.name: unit for unit in units.values()}, ())


@pytest.mark.parametrize(
    "text",
    [
        "[Match]\nMACAddress=02:00:00:00:00:01\n[Link]\nUnmanaged=yes\n",
        "[Match]\nName=wlan* br0\n[Network]\nAddress=10.0.0.1/24\n",
        "[Match]\nType=bridge\n[Link]\nUnmanaged=yes\n",
        "[Match]\nName=en*\n[Network]\nDHCP=yes\nKeepConfiguration=yes\n"
        "[DHCPv4]\nClientIdentifier=mac\n",
        "[Match]\nDriver=thunderbolt-net\n[Network]\nBridge=br0\n",
    ],
)
def test_networks_of_other_nics_are_nobodys_business(tmp_path: Path, text: str) -> None:
    make_tree(tmp_path, {f"{NETWORK}/10-own.network": text})
    assert list(prove_nic(Root(tmp_path))) == []


def test_a_network_after_that_of_the_boot_is_never_read(tmp_path: Path) -> None:
    text = "[Match]\nName=en*\n[Link]\nUnmanaged=yes\n"
    make_tree(tmp_path, {f"{NETWORK}/80-late.network": text})
    assert list(prove_nic(Root(tmp_path))) == []


def test_the_resolver_is_what_somebody_writes(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/etc/resolv.conf": Link("../run/systemd/resolve/stub-resolv.conf")})
    root = Root(tmp_path)
    assert list(prove_resolver(root, startup(RESOLVED))) == []
    (found,) = prove_resolver(root, startup())
    assert f"which nothing writes: {RESOLVED} does not start" in found.what


def test_a_fixed_server_is_enough(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/etc/resolv.conf": "# site\nnameserver 10.0.0.1\n"})
    assert list(prove_resolver(Root(tmp_path), startup())) == []


def test_a_fixed_server_beside_resolved(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/etc/resolv.conf": "nameserver 10.0.2.3\n"})
    (found,) = prove_resolver(Root(tmp_path), startup(RESOLVED))
    assert "servers that systemd-resolved.service learns by DHCP are not used" in found.what


@pytest.mark.parametrize(
    ("kind", "options", "refused"),
    [
        ("", "nofail,uid=1000,gid=1000", True),
        ("Type=ext4", "umask=022", True),
        ("Type=vfat", "uid=1000", False),
        ("", "nofail,noatime", False),
    ],
)
def test_options_of_another_file_system(
    kind: str,
    options: str,
    refused: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    unit = "/etc/systemd/system/models.mount"
    files = {
        unit: f"[Mount]\nWhere=/models\n{kind}\n",
        f"{unit}.d/a.conf": f"[Mount]\nOptions={options}\n",
    }
    make_tree(tmp_path, files)
    assert bool(list(prove_mounts(mounting(tmp_path)))) == refused


PASSWD = "root:x:0:0::/root:/bin/bash\nme:x:1000:1000::/home/me:{}\nother:x:1:1::/:/bin/gone\n"
SHADOW = "root:*:20000:0:99999:7:::\nme:!:{}:\n"
AGE = "20000:0:99999:7::"


@pytest.mark.parametrize(
    ("shell", "age", "usepam", "said"),
    [
        ("/bin/bash", f"{AGE}", "yes", ""),
        ("/bin/fish", f"{AGE}", "yes", "the login shell /bin/fish is not in the image"),
        ("/bin/bash", "0:0:99999:7::", "yes", "must be changed at the next login"),
        ("/bin/bash", "20000:0:99999:7::1", "yes", "it has expired"),
        ("/bin/bash", f"{AGE}", "no", "sshd refuses me: without PAM"),
    ],
)
def test_who_cannot_log_in(shell: str, age: str, usepam: str, said: str, tmp_path: Path) -> None:
    files: dict[str, Content] = {
        "/etc/passwd": PASSWD.format(shell),
        "/etc/shadow": SHADOW.format(age),
        "/bin/bash": Program(),
        "/usr/sbin/sshd": Program(),
    }
    answer = "".join(f"account {name}\nusepam {usepam}\n" for name in ("me", "root"))
    sandbox = Sandbox({"sh -c": answer})
    asked = subject(
        make_tree(tmp_path, files), users={"me": []}, run=sandbox, epoch=20_000 * 86_400
    )
    found = faults(prove_accounts(asked))
    assert [said in what for what in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("lists", "refused"),
    [
        ("allowgroups operator\n", True),
        ("allowusers admin\nallowusers me\n", False),
        ("allowgroups staff\nallowgroups crew\n", False),
        ("denyusers root\n", False),
        ("denyusers *\n", True),
        ("allowusers root@10.0.0.*\n", False),
        ("", False),
    ],
)
def test_lists_of_who_may_log_in(lists: str, refused: bool, tmp_path: Path) -> None:  # noqa: FBT001
    files: dict[str, Content] = {
        "/etc/passwd": PASSWD.format("/bin/bash"),
        "/etc/shadow": SHADOW.format(AGE),
        "/etc/group": "root:x:0:\noperator:x:37:\ncrew:x:70:me\n",
        "/bin/bash": Program(),
        "/usr/sbin/sshd": Program(),
    }
    answer = "".join(f"account {name}\nusepam yes\n{lists}" for name in ("me", "root"))
    asked = subject(
        make_tree(tmp_path, files), users={"me": []}, run=Sandbox({"sh -c": answer}), epoch=0
    )
    found = faults(prove_accounts(asked))
    assert ["lets nobody in" in what for what in found] == ([True] if refused else [])


@pytest.mark.parametrize(
    ("keys", "offered", "refused"),
    [
        (("ed25519",), "rsa-sha2-512,rsa-sha2-256", True),
        (("ed25519",), "ssh-ed25519-cert-v01@openssh.com,rsa-sha2-512", True),
        (("ed25519",), "rsa-sha2-512,ssh-ed25519", False),
        (("rsa", "ed25519"), "rsa-sha2-512", False),
        (("rsa",), "ssh-ed25519", True),
        ((), "rsa-sha2-512", False),
        (("ed25519",), "", False),
    ],
)
def test_a_host_key_for_what_sshd_offers(
    keys: tuple[str, ...],
    offered: str,
    refused: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    files: dict[str, Content] = {
        "/etc/passwd": PASSWD.format("/bin/bash"),
        "/etc/shadow": SHADOW.format(AGE),
        "/bin/bash": Program(),
        "/usr/sbin/sshd": Program(),
        "/etc/ssh/sshd_config.d/5.conf": "".join(f"HostKey /etc/ssh/h_{k}_key\n" for k in keys),
    }
    answer = "".join(f"account {n}\nhostkeyalgorithms {offered}\n" for n in ("me", "root"))
    asked = subject(
        make_tree(tmp_path, files), users={"me": []}, run=Sandbox({"sh -c": answer}), epoch=0
    )
    found = faults(prove_accounts(asked))
    assert ["sshd refuses every client" in what for what in found] == ([True] if refused else [])


@pytest.mark.parametrize(
    ("mode", "owner", "group", "rule", "said"),
    [
        (0o4755, 0, 0, "me ALL=(ALL) NOPASSWD: ALL", ""),
        (0o4110, 0, 0, "me ALL=(ALL) NOPASSWD: ALL",
         "me may become root with sudo, but cannot execute /usr/bin/sudo: mode 4110, group root"),
        (0o4110, 0, 0, "%admins ALL=(ALL) ALL", "me may become root with sudo"),
        (0o4110, 0, 7, "%admins ALL=(ALL) ALL", ""),
        (0o4110, 0, 0, "%others ALL=(ALL) ALL", ""),
        (0o4110, 0, 0, "", ""),
        (0o0755, 0, 0, "me ALL=(ALL) ALL", "sudo works for nobody: /usr/bin/sudo must belong to"),
        (0o4755, 5, 0, "me ALL=(ALL) ALL", "sudo works for nobody"),
    ],
)  # fmt: skip
def test_whoever_may_use_sudo_can_execute_it(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    mode: int,
    owner: int,
    group: int,
    rule: str,
    said: str,
) -> None:
    files: dict[str, Content] = {
        "/etc/passwd": PASSWD.format("/bin/bash"),
        "/etc/group": "root:x:0:\nadmins:x:7:me\nothers:x:8:\nme:x:1000:\n",
        "/etc/sudoers": f"root ALL=(ALL) ALL\n{rule}\n",
        "/usr/bin/sudo": Program(),
    }
    info = os.stat_result((stat.S_IFREG | mode, 1, 1, 1, owner, group, 0, 0, 0, 0))
    monkeypatch.setattr(Subject, "entries", {"/usr/bin/sudo": info})
    found = faults(prove_sudo(subject(make_tree(tmp_path, files)), ["me"]))
    assert [said in what for what in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"User": "gone"}, "a.service does not start: its User=gone does not exist"),
        ({"User": "me", "Group": "gone"}, "its Group=gone does not exist"),
        ({"SupplementaryGroups": "admins render"}, "its SupplementaryGroups=render does not"),
        ({"User": "me", "Group": "admins", "SupplementaryGroups": "admins"}, ""),
        ({"User": "1234"}, ""),
        ({"User": "%i"}, ""),
        ({"User": "gone", "DynamicUser": "yes"}, ""),
        ({"User": "gone", "Unit Load State": "masked"}, ""),
        ({}, ""),
    ],
)
def test_accounts_of_services(tmp_path: Path, values: dict[str, str], said: str) -> None:
    files: dict[str, Content] = {
        "/etc/passwd": PASSWD.format("/bin/bash"),
        "/etc/group": "root:x:0:\nadmins:x:7:me\n",
        "/usr/lib/sysusers.d/gone.conf": "u gone -\n",
    }
    asked = subject(make_tree(tmp_path, files))
    states = {"Unit Load State": "loaded", **values}
    unit = LoadedUnit("a.service", ("/a",), {key: (v,) for key, v in states.items()})
    found = faults(prove_unit_accounts(running(asked, startup("a.service", a=unit))))
    assert [said in what for what in found] == ([True] if said else [])
    assert faults(prove_unit_accounts(running(asked, startup(a=unit)))) == []


@pytest.mark.parametrize(
    ("words", "line", "said"),
    [
        ((), "vm.nr_hugepages = 65536", "vm.nr_hugepages=65536 keeps 137 GB of each node"),
        ((), "vm.nr_hugepages = 512", ""),
        (("hugepages=16384",), "", "hugepages=16384 keeps 34 GB"),
        (("hugepagesz=1G", "hugepages=32"), "", "hugepages=32 keeps 34 GB"),
        (("hugepagesz=1G", "hugepages=4"), "", ""),
        (("hugepages=64",), "vm.nr_hugepages = many", ""),
    ],
)
def test_memory_for_huge_pages(
    tmp_path: Path, words: tuple[str, ...], line: str, said: str
) -> None:
    answer = f"# /etc/sysctl.d/a.conf\n{line}\n"
    sandbox = Sandbox({"systemd-analyze cat-config sysctl.d": answer})
    found = warnings(prove_huge_pages(subject(tmp_path, cmdline=words, run=sandbox)))
    assert [said in what for what in found] == ([True] if said else [])


@pytest.mark.parametrize(
    ("answer", "shell", "said"),
    [
        (Completed(0, "Welcome to n1\n", ""), "/bin/bash", "prints 'Welcome to n1' first"),
        (Completed(0, "\n", ""), "/bin/bash", ""),
        (Completed(1, "broken\n", ""), "/bin/bash", ""),
        (Completed(0, "Welcome\n", ""), "/bin/dash", ""),
    ],
)
def test_shells_that_greet_programs(
    tmp_path: Path, answer: Completed, shell: str, said: str
) -> None:
    root = make_tree(tmp_path, {"/etc/passwd": PASSWD.format(shell)})
    asked = subject(root, run=Sandbox({"env -i HOME=/home/me": answer}))
    found = warnings(prove_greetings(asked, ["me"]))
    assert [said in what for what in found] == ([True] if said else [])


ACCEPTS = "ct state { established, related } accept\n"
CHAIN = "table inet f {{ chain i {{ type filter hook input priority 0; policy {}; {}}} }}\n"
V4 = "*filter\n:INPUT DROP [0:0]\n-A INPUT -p tcp --dport 22 -j ACCEPT\n{}COMMIT\n"


@pytest.mark.parametrize(
    ("unit", "files", "refused"),
    [
        ("nftables", {"/etc/n.conf": CHAIN.format("drop", "tcp dport 22 accept\n")}, True),
        ("nftables", {"/etc/n.conf": CHAIN.format("drop", ACCEPTS)}, False),
        ("nftables", {"/etc/n.conf": CHAIN.format("drop", f"# {ACCEPTS}")}, True),
        ("nftables", {"/etc/n.conf": CHAIN.format("accept", "")}, False),
        (
            "nftables",
            {
                "/etc/n.conf": 'include "/etc/n.d/*.nft"\n' + CHAIN.format("drop", "jump base\n"),
                "/etc/n.d/1.nft": f"table inet f {{ chain base {{ {ACCEPTS} }} }}\n",
            },
            False,
        ),
        ("nftables", {"/etc/n.conf": CHAIN.format("drop", 'iif "lo" accept\n')}, True),
        ("nftables", {"/etc/n.conf": CHAIN.format("drop", "iifname eno1 accept\n")}, False),
        ("nftables", {"/etc/n.conf": CHAIN.format("drop", "ip saddr 10.0.0.0/8 accept\n")}, False),
        (
            "nftables",
            {"/etc/n.conf": CHAIN.format("drop", "ct state vmap {\n established : accept\n}\n")},
            False,
        ),
        ("netfilter-persistent", {"/etc/iptables/rules.v4": V4.format("")}, True),
        (
            "netfilter-persistent",
            {"/etc/iptables/rules.v4": V4.format("-A INPUT -s 10.0.0.0/8 -j ACCEPT\n")},
            False,
        ),
        (
            "netfilter-persistent",
            {"/etc/iptables/rules.v4": V4.format("-A INPUT -m state --state ESTABLISHED -j A\n")},
            False,
        ),
    ],
)
def test_a_filter_lets_answers_in(
    unit: str,
    files: dict[str, Content],
    refused: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    name = f"{unit}.service"
    commands = {"ExecStart": (("/usr/sbin/nft", "-f", "/etc/n.conf"),)} if unit[1] == "f" else {}
    started = Startup(frozenset((name,)), {}, {name: LoadedUnit(name, (), {}, commands)}, ())
    asked = subject(make_tree(tmp_path, files))
    found = faults(prove_firewall(running(asked, started)))
    assert ["drops the answers" in what for what in found] == ([True] if refused else [])


@pytest.mark.parametrize(
    ("rules", "program", "is_said"),
    [
        (f"{ACCEPTS} tcp dport 6818 accept\n", "/usr/sbin/slurmd -D", True),
        (f"{ACCEPTS} iif lo accept\n", "/opt/torchrun --nnodes=2 t.py", True),
        (f"{ACCEPTS} ip saddr 10.0.0.0/8 accept\n", "/usr/sbin/slurmd -D", False),
        (f"{ACCEPTS} tcp dport 60000-63000 accept\n", "/usr/sbin/slurmd -D", False),
        (ACCEPTS, "/opt/serve", False),
        (ACCEPTS, "/opt/torchrun --nnodes=1 t.py", False),
    ],
)
def test_a_filter_lets_jobs_through(
    rules: str,
    program: str,
    is_said: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    ssh = "tcp dport { 22, 80 } accept\n"
    asked = subject(make_tree(tmp_path, {"/etc/n.conf": CHAIN.format("drop", rules + ssh)}))
    asked.__dict__["shipped"] = {}
    lines = {"nftables.service": "/usr/sbin/nft -f /etc/n.conf", "job.service": program}
    units = {
        name: LoadedUnit(
            name,
            (f"/etc/{name}",),
            {"Unit Load State": ("loaded",)},
            {"ExecStart": (tuple(each.split()),)},
        )
        for name, each in lines.items()
    }
    found = list(prove_firewall(running(asked, Startup(frozenset(units), {}, units, ()))))
    assert [each.level for each in found] == [Level.WARNING] * is_said


@pytest.mark.parametrize(
    ("states", "said"),
    [
        ("a installed\nb installed\nold config-files\n", ""),
        ("a installed\nb half-configured\n", "b is half-configured"),
        ("a unpacked\nb unpacked\n", "a, b are unpacked"),
        ("a installed\nb config-files\n", "does not have b"),
    ],
)
def test_packages_are_complete(states: str, said: str, tmp_path: Path) -> None:
    sandbox = Sandbox({"dpkg-query": states})
    asked = subject(
        make_tree(tmp_path, {}), packages=packages_of({"a": "1", "b": "2"}), run=sandbox
    )
    found = faults(prove_packages(asked))
    assert [said in what for what in found] == ([True] if said else [])


def test_nologin_in_the_image(tmp_path: Path) -> None:
    files: dict[str, Content] = {
        "/etc/passwd": PASSWD.format("/bin/bash"),
        "/bin/bash": Program(),
        "/etc/nologin": "Maintenance\n",
    }
    (found,) = faults(prove_accounts(subject(make_tree(tmp_path, files), users={"me": []})))
    assert "/etc/nologin is in the image" in found


def unit_of(name: str, **values: str) -> LoadedUnit:
    given = {key.replace("_", " "): (value,) for key, value in values.items()}
    return LoadedUnit(
        name, (f"/etc/systemd/system/{name}",), {"Unit Load State": ("loaded",), **given}
    )


def enabling(path: Path, *units: str) -> Subject:
    """A subject whose overlays enable these units."""
    found = subject(path)
    inputs: dict[str, JsonValue] = {"users": {}, "units": {"enable": [*units]}}
    layer = ImageLayer("configure a", "", inputs, 0, 0)
    return replace(found, image=replace(found.image, layers=(layer,)))


def test_a_unit_that_another_one_stops(tmp_path: Path) -> None:
    asked = enabling(tmp_path, "llama.service")
    llama = unit_of("llama.service", ConflictedBy="burn.service (destination-file)")
    burn = unit_of("burn.service", TriggeredBy="burn.timer (destination-file)")
    assert list(prove_stopped(running(asked, startup("llama.service", a=llama, b=burn)))) == []
    (found,) = prove_stopped(running(asked, startup("burn.timer", a=llama, b=burn)))
    assert found.what == "burn.service, which burn.timer starts, stops llama.service: Conflicts="


def test_ssh_waits_for_no_disk(tmp_path: Path) -> None:
    asked = enabling(tmp_path, "ssh.service", "llama.service")
    waits = {"Requires": "models.mount (origin-mount-file)"}
    ssh, llama = unit_of("ssh.service", **waits), unit_of("llama.service", **waits)
    (found,) = prove_stopped(running(asked, startup(a=ssh, b=llama)))
    assert found.what.startswith("ssh.service does not start on a node without models.mount")
    assert not list(
        prove_stopped(running(asked, startup(a=unit_of("ssh.service", Requires="-.mount (x)"))))
    )


def test_a_unit_of_systemd_that_is_masked(tmp_path: Path) -> None:
    name = "systemd-user-sessions.service"
    make_tree(tmp_path, {f"/usr/lib/systemd/system/{name}": "[Unit]\n"})
    assert list(prove_masked(subject(tmp_path))) == []
    assert len(list(prove_masked(subject(tmp_path, cmdline=(f"systemd.mask={name}",))))) == 1
    make_tree(tmp_path, {f"/etc/systemd/system/{name}": Link("/dev/null")})
    (found,) = prove_masked(subject(tmp_path))
    assert found.what == f"{name} is masked: /run/nologin stays, and nobody but root may log in"


@pytest.mark.parametrize("hosts", ["files dns", "files resolve [!UNAVAIL=return] dns", "dns files"])
def test_usual_orders_of_names(tmp_path: Path, hosts: str) -> None:
    make_tree(tmp_path, {"/etc/nsswitch.conf": f"passwd: files systemd\nhosts: {hosts}\n"})
    assert list(prove_switch(Root(tmp_path))) == []


MODULES = f"/usr/lib/modules/{KERNEL}"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("//nas/a /a cifs nofail 0 0", "mount.cifs is not in the image"),
        ("nas:/a /a nfs4 nofail 0 0", "mount.nfs4 is not in the image"),
        ("me@nas:/a /a fuse.sshfs nofail 0 0", "mount.fuse.sshfs is not in the image"),
        ("LABEL=a /a btrfs nofail 0 0", f"the kernel {KERNEL} has no module btrfs"),
        ("LABEL=a /a ext4 nofail 0 0", ""),
        ("LABEL=a /a xfs nofail 0 0", ""),
        ("LABEL=a /a auto nofail 0 0", ""),
        ("LABEL=a /a xfs,btrfs nofail 0 0", ""),
        ("tmpfs /a tmpfs nofail 0 0", ""),
        ("/b /a none bind,nofail 0 0", ""),
        ("nas:/a /a ceph nofail 0 0", ""),
    ],
)
def test_what_a_mount_needs(line: str, said: str, tmp_path: Path) -> None:
    files: dict[str, Content] = {
        "/etc/fstab": f"{line}\n",
        "/usr/sbin/mount.ceph": Program(),
        f"{MODULES}/modules.dep": "kernel/fs/xfs/xfs.ko.xz:\nkernel/fs/ceph/ceph.ko.xz:\n",
        f"{MODULES}/modules.builtin": "kernel/fs/ext4/ext4.ko\n",
    }
    make_tree(tmp_path, files)
    found = faults(prove_mounts(mounting(tmp_path)))
    assert found == ([f"/a is not mounted: {said}"] if said else [])


def test_a_mount_unit_of_a_package_is_left_to_it(tmp_path: Path) -> None:
    unit = "/usr/lib/systemd/system/a.mount"
    make_tree(tmp_path, {unit: "[Mount]\nWhat=nas:/a\nWhere=/a\nType=nfs\n"})
    asked = mounting(tmp_path)
    assert faults(prove_mounts(asked)) == ["a.mount is not mounted: mount.nfs is not in the image"]
    asked.__dict__["shipped"] = {unit: ShippedFile("a")}
    assert list(prove_mounts(asked)) == []


@pytest.mark.parametrize(
    ("control", "level"),
    [
        ("required", Level.FAULT),
        ("requisite", Level.FAULT),
        ("[success=ok default=bad]", Level.FAULT),
        ("[success=1 module_unknown=die default=ignore]", Level.FAULT),
        ("optional", Level.WARNING),
        ("sufficient", Level.WARNING),
        ("[success=1 default=ignore]", Level.WARNING),
        ("[success=ok module_unknown=ignore default=bad]", Level.WARNING),
    ],
)
def test_what_pam_does_without_a_module(control: str, level: Level, tmp_path: Path) -> None:
    make_tree(tmp_path, {"/etc/pam.d/sshd": f"session {control} pam_lastlog.so silent\n"})
    (found,) = prove_log_in(Root(tmp_path))
    assert found.level is level
    does = "sshd refuses everybody" if level is Level.FAULT else "the line does nothing"
    assert found.what.endswith(does)


@pytest.mark.parametrize(
    ("words", "gone"),
    [
        ("/usr/bin/card-daemon --user card --verbose", True),
        ("/usr/bin/card-daemon --user=card", True),
        ("/usr/bin/card-daemon --user me", False),
        ("/usr/bin/card-daemon --user 970", False),
        ("/usr/bin/curl --user card", False),
        ("/usr/bin/card-daemon --user-data card", False),
    ],
)
def test_the_account_of_an_option(words: str, gone: bool, tmp_path: Path) -> None:  # noqa: FBT001
    make_tree(tmp_path, {"/etc/passwd": "me:x:1000:1000::/:/bin/sh\n"})
    values = {"Unit Load State": ("loaded",)}
    unit = LoadedUnit("a.service", (), values, {"ExecStart": (tuple(words.split()),)})
    found = faults(prove_unit_accounts(running(subject(tmp_path), startup("a.service", a=unit))))
    said = "a.service does not start: its --user card does not exist in the image"
    assert found == ([said] if gone else [])


def test_only_disks_that_are_required_stop_a_node(tmp_path: Path) -> None:
    text = "tmpfs /tmp tmpfs defaults 0 0\nLABEL=a /a ext4 nofail 0 2\nserver:/b /b nfs ro 0 0\n"
    text += "UUID=1 /c xfs defaults 0 2\n/dev/x none swap sw\n"
    make_tree(tmp_path, {"/etc/fstab": text, "/usr/sbin/mount.nfs": Program()})
    (found,) = prove_mounts(mounting(tmp_path))
    assert "UUID=1" in found.what


def test_optional_modules_of_pam_may_be_missing(tmp_path: Path) -> None:
    lines = [
        "-session optional pam_gone.so",
        "auth [success=1 default=ignore] pam_unix.so nullok",
        "@include common",
        "session include common",
        "# auth required pam_none.so",
    ]
    make_tree(
        tmp_path,
        {
            "/etc/pam.d/login": "\n".join(lines),
            "/etc/pam.d/common": "auth required pam_lost.so\n",
            "/usr/lib/x86_64-linux-gnu/security/pam_unix.so": b"",
        },
    )
    (found,) = prove_log_in(Root(tmp_path))
    assert "/etc/pam.d/common needs pam_lost.so" in found.what


@pytest.mark.parametrize(
    ("command", "listens"),
    [
        ("/usr/bin/serve --port 8080", True),
        ("/usr/bin/serve --listen=0.0.0.0:8080", True),
        ("/usr/bin/python3 -m http.server 8080", True),
        ("/usr/bin/proxy --upstream http://127.0.0.1:8080", False),
        ("/usr/bin/curl localhost:8080/health", False),
        ("/usr/bin/serve --port 18080", False),
    ],
)
def test_who_listens_by_its_command_line(command: str, listens: bool) -> None:  # noqa: FBT001
    assert bool(LISTENS.search(f"{command} ".replace("8080", PORT))) == listens


@pytest.mark.parametrize(
    ("command", "port"),
    [
        ("/usr/bin/python3 -m http.server 9000 --directory /var/log", "9000"),
        ("/usr/bin/python3 -m http.server --bind 0.0.0.0 9000", "9000"),
        ("/opt/exporter --web.listen-address=:9100", "9100"),
        ("/opt/exporter --listen 10.0.0.5:9100", "9100"),
        ("/opt/serve --bind=[::]:80", "80"),
        ("/usr/bin/gunicorn -b 0.0.0.0:8000 app", "8000"),
        ("/usr/bin/socat TCP-LISTEN:7000,fork EXEC:cat", ""),
        ("/usr/bin/python3 -m http.server 9000 --bind 127.0.0.1", ""),
        ("/opt/exporter --web.listen-address=localhost:9100", ""),
        ("/opt/exporter --listen [::1]:9100", ""),
        ("/bin/sh -c a;exec /opt/exporter --listen 'localhost:9100';b", ""),
        ("/bin/sh -c exec /opt/exporter --listen 127.0.0.1:9100;b", ""),
        ("/opt/exporter --listen localhost.lab:9100", "9100"),
        ("/usr/bin/ssh -N -p 2222 -R 9000:127.0.0.1:80 gateway", ""),
        ("/usr/bin/psql --host db --port 5432", ""),
        ("/usr/bin/mkdir -p 0755 /srv", ""),
        ("/opt/agent --server http://10.0.0.9:8080/", ""),
    ],
)
def test_the_port_that_only_a_server_names(command: str, port: str) -> None:
    assert listened_port(command.split()) == port


def test_a_service_of_a_site_that_listens(tmp_path: Path) -> None:
    words = {"ExecStart": (("/usr/bin/python3", "-m", "http.server", "9000"),)}
    unit = replace(unit_of("logs.service"), commands=words)
    asked = subject(make_tree(tmp_path, {}), listens=("22/tcp",))
    started = startup("logs.service", a=unit)
    what = "logs.service listens on 9000/tcp, which no overlay declares"
    assert faults(prove_listeners(running(asked, started))) == [what]
    assert faults(prove_listeners(running(asked, startup(a=unit)))) == []
    for listens in (("22/tcp", "9000/tcp"), None):
        asked = subject(Root(tmp_path), listens=listens)
        assert faults(prove_listeners(running(asked, started))) == []


@pytest.mark.parametrize(
    ("values", "otherwise"),
    [
        ({"Unit Load State": ("loaded",), "WantedBy": ("sleep.target (destination-file)",)}, True),
        ({"Unit Load State": ("loaded",), "WantedBy": ("dev-x.device (destination-file)",)}, True),
        ({"Unit Load State": ("loaded",), "WantedBy": ("multi-user.target (file)",)}, False),
        ({"Unit Load State": ("loaded",)}, False),
        ({"Unit Load State": ("masked",), "WantedBy": ("sleep.target (file)",)}, False),
    ],
)
def test_units_that_start_when_something_appears(
    values: dict[str, tuple[str, ...]],
    otherwise: bool,  # noqa: FBT001
) -> None:
    unit = LoadedUnit("a.service", (), values)
    assert starts_otherwise(startup(a=unit), "a.service") == otherwise


def test_a_systemd_that_does_not_answer_is_told(tmp_path: Path) -> None:
    assert list(prove_system(subject(tmp_path))) == []
    make_tree(tmp_path, {"/usr/lib/systemd/systemd": b"\x7fELF"})
    (what,) = warnings(list(prove_system(subject(tmp_path))))
    assert "does not report what starts" in what
