# SPDX-License-Identifier: Apache-2.0
"""Every way to become root is found, and told by who answers for it."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from imagebuilder.image.proof import Finding, Level
from imagebuilder.process import Completed
from imagebuilder.proof.privileges.files import find_devices, find_files, starters
from imagebuilder.proof.privileges.login import find_ways_in
from imagebuilder.proof.privileges.prove import preloaded, prove_privileges, with_parents
from imagebuilder.proof.privileges.searched import (
    find_open_folders,
    find_programs,
    find_search_folders,
)
from imagebuilder.proof.privileges.sudo import find_rules
from imagebuilder.proof.privileges.types import Opening, Privilege
from imagebuilder.proof.reading.mounts import with_tmpfiles
from imagebuilder.proof.reading.provenance import Provenance, Trace, TraceKind
from imagebuilder.recipe.types import Grants
from imagebuilder.root import Root
from tests.unit.proof.trees import Content, Program, Sandbox, at, make_tree, subject

ME = os.getuid()
ANY, FREE = "may run any command as root", " without a password"
UNGRANTED = "which no overlay grants"
UNSIGNED = "packages are installed without a valid signature"
POLKIT = "if (subject.isInGroup('ops')) return polkit.Result.YES"
AUTOLOGIN = "[Service]\nExecStart=-/sbin/agetty -a me %I\n"
CONSOLE = "[Service]\nStandardInput=tty-force\nExecStart=/bin/bash\n"
PASSWD = (
    "root:x:0:0::/root:/bin/bash\nme:x:1000:1000::/home/me:/bin/sh\nnone:x:2:2::/:/sbin/nologin\n"
)
GROUP = "root:x:0:\ndisk:x:6:\nme:x:1000:\nshadow:x:42:\n"
ACCOUNTS: Mapping[str, Content] = {"/etc/passwd": PASSWD, "/etc/group": GROUP}
SUDO: Mapping[str, Content] = {**ACCOUNTS, "/usr/bin/sudo": Program()}


def rules(tmp_path: Path, files: Mapping[str, Content]) -> list[Privilege]:
    return list(find_rules(make_tree(tmp_path, {**SUDO, **files})))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("me ALL=(ALL:ALL) NOPASSWD: ALL", [f"me {ANY}{FREE}"]),
        ("%ops ALL=(ALL) ALL", ["%ops may run any command as root"]),
        ("me ALL = NOPASSWD: /usr/bin/a, ALL", [f"me {ANY}{FREE}"]),
        ("me ALL=(root) NOPASSWD: /usr/bin/a", [f"me may run some commands as root{FREE}"]),
        ("me ALL=(postgres) NOPASSWD: ALL", []),
        ("root ALL=(ALL:ALL) ALL", []),
        ("me, root ,%ops ALL=ALL", [f"me {ANY}", f"%ops {ANY}"]),
        ("User_Alias A = me, you\nA ALL = ALL", [f"me {ANY}", f"you {ANY}"]),
        ("#1001 ALL=(ALL) ALL", ["#1001 may run any command as root"]),
        ("me ALL=\\\n  NOPASSWD: ALL # why", [f"me {ANY}{FREE}"]),
        (
            "Defaults env_reset\nDefaults !authenticate",
            ["sudo asks nobody for a password"],
        ),
        ("Defaults:me !authenticate", ["sudo does not ask me for a password"]),
        ("# me ALL=ALL\nCmnd_Alias X = /bin/a\nRunas_Alias Y = root", []),
    ],
)
def test_rules_of_sudo(text: str, told: list[str], tmp_path: Path) -> None:
    assert [one.gains for one in rules(tmp_path, {"/etc/sudoers": f"{text}\n"})] == told


def test_included_rules_have_their_file_and_line(tmp_path: Path) -> None:
    files = {
        "/etc/sudoers": "@includedir /etc/sudoers.d\n#include /etc/more\n",
        "/etc/sudoers.d/ops": "# comment\n\nme ALL=NOPASSWD: ALL\n",
        "/etc/sudoers.d/ops.bak": "you ALL=ALL\n",
        "/etc/sudoers.d/ops~": "you ALL=ALL\n",
        "/etc/more": "they ALL=ALL\n@include /etc/sudoers\n",
    }
    found = rules(tmp_path, files)
    assert [(one.where, one.name, one.minor) for one in found] == [
        ("/etc/sudoers.d/ops:3", "me", False),
        ("/etc/more:1", "they", True),
    ]


def test_without_sudo_its_rules_are_nobodys(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    root = make_tree(tmp_path, {**ACCOUNTS, "/etc/sudoers": "me ALL=NOPASSWD: ALL\n"})
    assert list(find_rules(root)) == []


@pytest.mark.parametrize(
    ("files", "told"),
    [
        (
            {"/usr/bin/doas": Program(), "/etc/doas.conf": "permit nopass keepenv me as root\n"},
            "doas lets me act as root without a password",
        ),
        (
            {"/etc/polkit-1/rules.d/a.rules": POLKIT},
            "polkit lets %ops act as root without a password",
        ),
        (
            {"/etc/pam.d/su": "# c\nauth sufficient pam_permit.so\n"},
            "pam_permit.so lets anyone in without a password",
        ),
        (
            {"/etc/pam.d/su": "auth [success=done default=ignore] pam_wheel.so trust\n"},
            "pam_wheel.so lets anyone in without a password",
        ),
    ],
)
def test_other_rules(files: Mapping[str, Content], told: str, tmp_path: Path) -> None:
    assert [one.gains for one in rules(tmp_path, files)] == [told]


def test_pam_as_it_should_be(tmp_path: Path) -> None:
    own = "auth sufficient pam_rootok.so\nauth required pam_unix.so\nauth required pam_permit.so\n"
    debian = "auth [success=1 default=ignore] pam_unix.so nullok\nauth requisite pam_deny.so\n"
    debian += "auth required pam_permit.so\n"
    runuser = "auth sufficient pam_rootok.so\nauth required pam_permit.so\n"
    files = {"/etc/pam.d/su": own, "/etc/pam.d/common-auth": debian, "/etc/pam.d/runuser": runuser}
    assert rules(tmp_path, files) == []


@pytest.mark.parametrize(
    "text",
    [
        "auth [success=1 default=ignore] pam_unix.so\nauth requisite pam_permit.so\n",
        "auth required pam_permit.so\nauth sufficient pam_unix.so\n",
        "auth [success=2 default=1] pam_unix.so\nauth requisite pam_deny.so\n"
        "auth required pam_permit.so\n",
    ],
)
def test_a_stack_that_takes_any_password(text: str, tmp_path: Path) -> None:
    (found,) = rules(tmp_path, {"/etc/pam.d/common-auth": text})
    assert "accepts any password" in found.gains


def test_a_pager_is_as_good_as_a_shell(tmp_path: Path) -> None:
    text = "w ALL=(root) NOPASSWD: /usr/bin/less /var/log/*\nv ALL=NOPASSWD: /usr/bin/uptime\n"
    found = rules(tmp_path, {"/etc/sudoers": text})
    assert [(one.name, one.minor) for one in found] == [("w", False), ("v", True)]


@pytest.mark.parametrize(
    "path", ["libjemalloc.so.2", "//usr/lib/x.so", "/", "", "a/../b", "/a" * 100_000]
)
def test_folders_above_any_path_come_to_an_end(path: str) -> None:
    found = with_parents([path])
    assert found <= {"/usr/lib/x.so", "/usr/lib", "/usr", "/"}
    assert with_parents(["/usr//lib/x.so"]) == {"/usr/lib/x.so", "/usr/lib", "/usr"}


def test_what_every_program_loads(tmp_path: Path) -> None:
    root = make_tree(tmp_path, {"/etc/ld.so.preload": "/home/me/lib/a.so /usr/lib/b.so\n"})
    assert {"/home/me/lib/a.so", "/home/me", "/usr/lib"} <= with_parents(preloaded(root))


def folder(mode: int, uid: int = 0, gid: int = 0) -> os.stat_result:
    return os.stat_result((stat.S_IFDIR | mode, 0, 0, 2, uid, gid, 0, 0, 0, 0))


SEARCHED = "where sudo searches for programs (/etc/sudoers:1)"


@pytest.mark.parametrize(
    ("entries", "tmpfiles", "who"),
    [
        ({"/srv": folder(0o755), "/srv/bin": folder(0o755)}, "", ""),
        ({"/srv": folder(0o755), "/srv/bin": folder(0o1777)}, "", "everybody"),
        ({"/srv": folder(0o1777), "/srv/bin": folder(0o755)}, "", ""),
        ({"/srv": folder(0o1777)}, "", "everybody"),
        ({"/srv": folder(0o777), "/srv/bin": folder(0o755)}, "", "everybody"),
        ({"/srv": folder(0o755), "/srv/bin": folder(0o775, gid=50)}, "", "the group 50"),
        ({"/srv": folder(0o755), "/srv/bin": folder(0o755, uid=7)}, "", "its owner (uid 7)"),
        ({"/srv": folder(0o755)}, "", ""),
        ({"/srv": folder(0o755)}, "d /srv/bin 1777 root root -", "everybody"),
        ({"/srv": folder(0o755)}, "d /srv/bin 0755 me - -", "its owner (uid 1000)"),
        ({"/srv": folder(0o755), "/srv/bin": folder(0o777)}, "z /srv/bin 0755", ""),
        ({"/srv": folder(0o755)}, "#d /srv/bin 1777\nr! /srv/bin\nd", ""),
    ],
)
def test_folders_in_which_root_searches(
    entries: dict[str, os.stat_result], tmpfiles: str, who: str, tmp_path: Path
) -> None:
    files: dict[str, Content] = {
        **SUDO,
        "/etc/sudoers": 'Defaults secure_path="/srv/bin:/usr/bin"\n',
        "/etc/tmpfiles.d/a.conf": f"{tmpfiles}\n",
    }
    root = make_tree(tmp_path, files)
    usr = {"/usr": folder(0o755), "/usr/bin": folder(0o755)}
    after = with_tmpfiles(subject(root), {**usr, **entries})
    found = [one.gains for one in find_open_folders(find_search_folders(root), after)]
    assert found == ([f"{who} may put files into /srv/bin, {SEARCHED}"] if who else [])


def test_who_searches_where(tmp_path: Path) -> None:
    files: dict[str, Content] = {
        **SUDO,
        "/etc/sudoers": "Defaults!SUDOEDIT secure_path=/a\nDefaults env_reset\n",
        "/etc/crontab": "# c\nPATH=/b:/c\n17 * * * * root cd /\n",
        "/etc/environment": 'PATH="/d"\n',
        "/etc/login.defs": "ENV_SUPATH\tPATH=/e:/f/\nENV_PATH PATH=/g\n",
        "/etc/ld.so.conf": "include ld.so.conf.d/*.conf\n",
        "/etc/ld.so.conf.d/x.conf": "# libc\n/h/lib\n",
        "/etc/ld.so.conf.d/x.old": "/i/lib\n",
    }
    found = [one.path for one in find_search_folders(make_tree(tmp_path, files))]
    assert sorted(found) == ["/a", "/b", "/c", "/d", "/e", "/f", "/h/lib"]


def test_programs_that_root_runs_without_a_unit(tmp_path: Path) -> None:
    names = "core", "rule", "asks", "cron", "spool", "install", "missing", "data", "mine"
    files: dict[str, Content] = {
        **{f"/srv/{name}": Program() for name in names if name != "missing"},
        "/etc/udev/rules.d/1.rules": 'RUN+="/srv/rule %k", PROGRAM=="/srv/asks"\n',
        "/etc/cron.d/x": "5 * * * * root /srv/cron > /srv/missing\n@daily me /srv/mine\n",
        "/var/spool/cron/crontabs/root": "@daily /srv/spool\n",
        "/etc/modprobe.d/x.conf": "install x /srv/install --now\noptions y path=/srv/data\n",
    }
    settings = "# /etc/sysctl.d/1.conf\nkernel.core_pattern = |/srv/core %p\nvm.x = /srv/data\n"
    sandbox = Sandbox({"systemd-analyze cat-config sysctl.d": settings})
    found = find_programs(subject(make_tree(tmp_path, files), run=sandbox))
    wanted = ("core", "rule", "asks", "cron", "spool", "install")
    assert found == {f"/srv/{name}" for name in wanted}


def test_why_sshd_reports_nothing(tmp_path: Path) -> None:
    root = make_tree(tmp_path, {**ACCOUNTS, "/usr/sbin/sshd": Program()})
    run = Sandbox({"sh -c": Completed(1, "account me\n", "debug\nX set without Y\n")})
    (found,) = find_ways_in(subject(root, run=run), {})
    assert found.gains.endswith("for me, root: who may log in is unknown (X set without Y)")


SSHD = """\
account me
authorizedkeysfile /etc/ssh/keys .ssh/authorized_keys
passwordauthentication no
kbdinteractiveauthentication no
account root
authorizedkeysfile /etc/ssh/keys %h/.ssh/authorized_keys
permitrootlogin without-password
passwordauthentication yes
"""
KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIJt6Tr9NVdSbpOyNCbLStsmOHO3rBIAZTTIPpDFoXy0x a@b\n"


def ways_in(
    tmp_path: Path,
    said: str,
    files: Mapping[str, Content],
    entries: Mapping[str, os.stat_result] | None = None,
) -> list[Privilege]:
    root = make_tree(tmp_path, {**ACCOUNTS, "/usr/sbin/sshd": Program(), **files})
    silent = (name for name in ("me", "root") if f"account {name}\n" not in said)
    said += "".join(f"account {name}\npasswordauthentication no\n" for name in silent)
    run = Sandbox({"sh -c": Completed(0, said, "")})
    return list(find_ways_in(subject(root, run=run), entries or {}))


def test_keys_are_those_that_sshd_reads(tmp_path: Path) -> None:
    files = {
        "/etc/ssh/keys": KEY,
        "/root/.ssh/authorized_keys": f'command="x",no-pty {KEY}',
        "/home/me/.ssh/authorized_keys": f"# {KEY}",
    }
    assert [(one.path, one.gains) for one in ways_in(tmp_path, SSHD, files)] == [
        ("/etc/ssh/keys", "keys in /etc/ssh/keys may log in as me, root"),
        ("/root/.ssh/authorized_keys", "keys in /root/.ssh/authorized_keys may log in as root"),
    ]


def test_passwords_are_told_with_the_line_that_lets_them_in(tmp_path: Path) -> None:
    said = SSHD.replace("passwordauthentication no", "passwordauthentication yes", 1)
    text = "# c\nMatch User me\n  PasswordAuthentication yes\n"
    found = ways_in(tmp_path, said, {"/etc/ssh/sshd_config.d/a.conf": text})
    assert [(one.opening, one.name, one.where) for one in found] == [
        (Opening.PASSWORDS, "me", "/etc/ssh/sshd_config.d/a.conf:3")
    ]


def test_a_rule_for_an_address_is_asked_from_there(tmp_path: Path) -> None:
    files: Mapping[str, Content] = {
        "/usr/sbin/sshd": Program(),
        "/etc/ssh/sshd_config": "Match Address 10.1.2.0/24,::1\n",
    }
    root = make_tree(tmp_path, {**ACCOUNTS, **files})
    sandbox = Sandbox({"sh -c": Completed(0, "", "")})
    list(find_ways_in(subject(root, run=sandbox), {}))
    asked = ("203.0.113.1", "me", "203.0.113.1", "root", "10.1.2.0", "me", "10.1.2.0", "root")
    assert sandbox.asked[0][4:] == asked


PASSWD_LINE = "{0}:x:{1}:{1}::/home/{1}:/bin/sh\n"


def answer_for_each(argv: Sequence[str], *, seconds: int = 60) -> Completed:
    assert seconds
    words = argv[5::2]
    return Completed(
        0, "".join(f"account {name}\npasswordauthentication yes\n" for name in words), ""
    )


def test_accounts_are_asked_for_in_commands_that_the_kernel_takes(tmp_path: Path) -> None:
    names = [f"user{number:06}" for number in range(950)]
    passwd = "".join(PASSWD_LINE.format(name, 1000) for name in names)
    root = make_tree(tmp_path, {"/etc/passwd": passwd, "/usr/sbin/sshd": Program()})
    asked: list[Sequence[str]] = []

    def answer(argv: Sequence[str], *, seconds: int = 60) -> Completed:
        asked.append(argv)
        return answer_for_each(argv, seconds=seconds)

    found = list(find_ways_in(subject(root, run=answer), {}))
    assert [one.name for one in found if one.opening is Opening.PASSWORDS] == names
    assert len(asked) > 1
    assert max(map(len, asked)) < 1000


@pytest.mark.parametrize(("accounts", "addresses"), [(20_000, 0), (1, 12_000)])
def test_accounts_that_sshd_is_not_asked_for_are_named(
    tmp_path: Path, accounts: int, addresses: int
) -> None:
    passwd = "".join(PASSWD_LINE.format(f"user{n:06}", n) for n in range(accounts))
    rules = "".join(f"Match Address 10.{n // 250}.{n % 250}.0/24\n" for n in range(addresses))
    files: Mapping[str, Content] = {
        "/etc/passwd": passwd,
        "/usr/sbin/sshd": Program(),
        "/etc/ssh/sshd_config": rules,
    }
    found = list(find_ways_in(subject(make_tree(tmp_path, files), run=answer_for_each), {}))
    (unknown,) = (one for one in found if one.opening is Opening.NEVER)
    assert ("and 18997 more" if accounts > 1 else "for user000000") in unknown.gains
    assert re.search(r"who may log in is unknown \(only \d{3,4} combinations of", unknown.gains)


def test_an_account_with_a_blank_in_its_name(tmp_path: Path) -> None:
    passwd = PASSWD_LINE.format("a b", 1000)
    root = make_tree(tmp_path, {"/etc/passwd": passwd, "/usr/sbin/sshd": Program()})
    (found,) = find_ways_in(subject(root, run=answer_for_each), {})
    assert found.gains == "a b may log in over ssh with a password"


@pytest.mark.parametrize(
    ("done", "why"),
    [
        (Completed(126, "", "sh: Argument list too long"), "sh: Argument list too long"),
        (Completed(124, "account me\n", "", late=True), "it did not end in time"),
    ],
)
def test_sshd_without_an_answer(tmp_path: Path, done: Completed, why: str) -> None:
    root = make_tree(tmp_path, {**ACCOUNTS, "/usr/sbin/sshd": Program()})
    (found,) = find_ways_in(subject(root, run=Sandbox({"sh -c": done})), {})
    assert found.gains.endswith(f"for me, root: who may log in is unknown ({why})")


def owned(mode: int, owner: int = 0) -> os.stat_result:
    return os.stat_result((mode, 1, 1, 1, owner, 0, 0, 0, 0, 0))


@pytest.mark.parametrize(
    ("strict", "mode", "owner", "said"),
    [
        ("no", 0o1777, 0, "everybody may put keys for root into /srv/keys, and sshd accepts them"),
        ("no", 0o755, 7, "its owner (uid 7) may put keys for root into /srv/keys"),
        ("no", 0o755, 0, ""),
        # sshd does not take these.
        ("yes", 0o1777, 0, ""),
    ],
)
def test_folders_where_others_put_keys(
    tmp_path: Path, strict: str, mode: int, owner: int, said: str
) -> None:
    settings = "authorizedkeysfile /srv/keys/%u\npasswordauthentication no\n"
    answer = f"account root\n{settings}strictmodes {strict}\n"
    entries = {"/srv": owned(stat.S_IFDIR | 0o755), "/srv/keys": owned(stat.S_IFDIR | mode, owner)}
    found = ways_in(tmp_path, answer, {}, entries)
    assert [said in one.gains for one in found] == ([True] if said else [])


def test_a_file_of_keys_that_everybody_may_write(tmp_path: Path) -> None:
    answer = "account me\nauthorizedkeysfile .ssh/authorized_keys\npasswordauthentication no\n"
    home = {f"/home/me{name}": owned(stat.S_IFDIR | 0o755, 1000) for name in ("", "/.ssh")}
    entries = {"/home": owned(stat.S_IFDIR | 0o755), **home}
    keys = "/home/me/.ssh/authorized_keys"
    for mode, many in ((0o600, 0), (0o666, 1)):
        entries[keys] = owned(stat.S_IFREG | mode, 1000)
        assert len(ways_in(tmp_path, f"{answer}strictmodes no\n", {}, entries)) == many


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "auth sufficient pam_succeed_if.so use_uid user = www-data",
            "pam_succeed_if.so (use_uid user = www-data) lets users in without a password",
        ),
        (
            "auth [success=done default=ignore] pam_listfile.so item=user file=/etc/them",
            "pam_listfile.so (item=user file=/etc/them) lets users in",
        ),
        ("auth sufficient pam_localuser.so", "pam_localuser.so (whom it names) lets users in"),
        ("auth sufficient pam_succeed_if.so uid = 0 use_uid quiet", ""),
        ("auth sufficient pam_succeed_if.so user = root", ""),
        ("auth required pam_succeed_if.so user ingroup admins", ""),
        ("auth [success=1 default=ignore] pam_succeed_if.so service in sudo", ""),
        ("account sufficient pam_localuser.so", ""),
    ],
)
def test_modules_that_ask_for_no_secret(tmp_path: Path, line: str, said: str) -> None:
    root = make_tree(tmp_path, {"/etc/pam.d/su": f"{line}\nauth required pam_unix.so\n"})
    found = [one.gains for one in find_rules(root)]
    assert [said in gains for gains in found] == ([True] if said else [])


def test_a_host_that_is_trusted(tmp_path: Path) -> None:
    assert [one.path for one in ways_in(tmp_path, "", {"/root/.rhosts": "+ +\n"})] == [
        "/root/.rhosts"
    ]


def proved(
    tmp_path: Path,
    files: Mapping[str, Content],
    *,
    grants: Grants | None = None,
    users: Mapping[str, frozenset[str]] | None = None,
    packaged: tuple[str, ...] = (),
    cmdline: tuple[str, ...] = (),
) -> list[Finding]:
    """What the question says; everything else in the root is nobody's."""
    root = make_tree(tmp_path, {**ACCOUNTS, **files})
    there = [f"/{path.relative_to(tmp_path)}" for path in tmp_path.rglob("*") if path.is_dir()]
    traces = {
        path: Trace(path, TraceKind.PACKAGE, ("base",), "tool 2.0") for path in (*packaged, *there)
    }
    given = subject(
        root,
        trace=lambda: Provenance(traces),
        grants={"site": grants} if grants else {},
        users=users or {},
        cmdline=cmdline,
    )
    return [each for each in prove_privileges(given) if "may change" not in each.what or ME == 0]


def test_a_root_without_accounts_is_not_asked(tmp_path: Path) -> None:
    assert list(prove_privileges(subject(Root(tmp_path)))) == []


def test_what_nobody_grants_is_a_fault_that_says_who_did_it(tmp_path: Path) -> None:
    (tmp_path / "usr/bin").mkdir(parents=True)
    make_tree(tmp_path, {"/usr/bin/tool": Program()})
    (tmp_path / "usr/bin/tool").chmod(0o4755)
    fault = at(proved(tmp_path, {}), Level.FAULT)[-1]
    assert "/usr/bin/tool runs as" in fault.what
    assert fault.what.endswith("(mode 4755), which no overlay grants")
    assert fault.evidence[0].said == "origin unknown"
    assert "`grants: {setuid: ['/usr/bin/tool']}`" in fault.hint


@pytest.mark.parametrize(
    ("mode", "group", "who"),
    [(0o4755, 0, "any user"), (0o4750, 7, "any member of admins"), (0o4110, 0, "")],
)
def test_who_may_start_a_setuid_program(mode: int, group: int, who: str) -> None:
    info = os.stat_result((stat.S_IFREG | mode, 1, 1, 1, 0, group, 0, 0, 0, 0))
    assert starters(info, {0: "root", 7: "admins"}) == who


def test_a_setuid_program_that_a_package_ships(tmp_path: Path) -> None:
    make_tree(tmp_path, {"/usr/bin/tool": Program()})
    (tmp_path / "usr/bin/tool").chmod(0o4755)
    facts = proved(tmp_path, {}, packaged=("/usr/bin/tool",))
    assert {fact.level for fact in facts} == {Level.FACT}
    assert "all of them from packages" in facts[-1].what


def test_what_an_overlay_grants(tmp_path: Path) -> None:
    files: Mapping[str, Content] = {**SUDO, "/etc/sudoers": "me ALL=NOPASSWD: ALL\n"}
    packaged = ("/usr/bin/sudo", "/etc/sudoers2")
    facts = proved(tmp_path, files, grants=Grants(sudo=("me",)), packaged=packaged)
    said = "me may run any command as root without a password: granted by the overlay site"
    assert said in [fact.what for fact in facts]
    assert "me may run" not in "".join(fact.what for fact in at(facts, Level.FAULT))


def test_some_commands_are_a_warning(tmp_path: Path) -> None:
    files: Mapping[str, Content] = {**SUDO, "/etc/sudoers": "me ALL=/usr/bin/a\n"}
    found = proved(tmp_path, files)
    assert [one.what for one in at(found, Level.WARNING)] == [
        "me may run some commands as root, which no overlay grants"
    ]


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({"/etc/passwd": PASSWD + "toor:x:0:0::/:/bin/sh\n"}, f"toor has uid 0, {UNGRANTED}"),
        ({"/etc/passwd": PASSWD + "open::5:5::/:/bin/sh\n"}, "open logs in without a password"),
        ({"/etc/shadow": "me::1::::::\n"}, "me logs in without a password"),
        (
            {"/etc/group": GROUP.replace("disk:x:6:", "disk:x:6:me")},
            "me is in the group disk, whose members can become root, which no overlay grants",
        ),
        (
            {"/etc/systemd/system/getty@.service.d/a.conf": AUTOLOGIN},
            "/etc/systemd/system/getty@.service.d/a.conf logs a user in on a console "
            "without a password, which no overlay grants",
        ),
        (
            {"/etc/systemd/system/x.service": CONSOLE},
            "/etc/systemd/system/x.service is a root shell on a console without a password, "
            "which no overlay grants",
        ),
        (
            {"/etc/systemd/system/a.target.wants/debug-shell.service": ""},
            f"debug-shell.service is a root shell on tty9 without a password, {UNGRANTED}",
        ),
        (
            {"/etc/apt/sources.list.d/a.sources": "Types: deb\nTrusted: yes\n"},
            f"Trusted: yes: {UNSIGNED}, {UNGRANTED}",
        ),
        (
            {"/etc/apt/apt.conf.d/a": 'APT::Get::AllowUnauthenticated "true";\n'},
            f'AllowUnauthenticated "true: {UNSIGNED}, {UNGRANTED}',
        ),
    ],
)
def test_each_way_is_found(files: Mapping[str, Content], what: str, tmp_path: Path) -> None:
    assert what in [fault.what for fault in at(proved(tmp_path, files), Level.FAULT)]


def test_a_group_that_an_overlay_puts_its_user_in(tmp_path: Path) -> None:
    files: Mapping[str, Content] = {"/etc/group": GROUP.replace("disk:x:6:", "disk:x:6:me")}
    found = proved(tmp_path, files, users={"me": frozenset(("disk",))})
    assert "group disk" not in "".join(one.what for one in found)


def test_a_shell_on_the_command_line(tmp_path: Path) -> None:
    for word in ("systemd.debug_shell", "systemd.debug-shell=1", "rd.systemd.debug_shell"):
        faults = at(proved(tmp_path, {}, cmdline=("quiet", word)), Level.FAULT)
        assert any(word in fault.what for fault in faults)
    assert not any(
        "debug" in f.what for f in proved(tmp_path, {}, cmdline=("systemd.debug_shell=0",))
    )


@pytest.mark.root
@pytest.mark.parametrize(
    ("path", "mode", "uid", "what"),
    [
        (
            "/usr/sbin/sshd",
            0o755,
            1000,
            "its owner (uid 1000) may change /usr/sbin/sshd, which root",
        ),
        ("/etc/profile.d/a.sh", 0o666, 0, "everybody may change /etc/profile.d/a.sh, which root"),
        ("/etc/cron.d/a", 0o664, 0, ""),
        (
            "/etc/shadow",
            0o644,
            0,
            "users other than root can read password hashes in /etc/shadow",
        ),
        ("/etc/app.conf", 0o666, 1000, ""),
    ],
)
def test_what_others_may_change(path: str, mode: int, uid: int, what: str, tmp_path: Path) -> None:
    make_tree(tmp_path, {path: ""})
    os.chown(tmp_path / path[1:], uid, 0)
    (tmp_path / path[1:]).chmod(mode)
    faults = [fault.what for fault in at(proved(tmp_path, {}), Level.FAULT)]
    assert any(fault.startswith(what) for fault in faults) if what else faults == []


@pytest.mark.root
@pytest.mark.parametrize("folder", ["/etc/profile.d", "/etc/pam.d", "/etc/systemd", "/etc/cron.d"])
@pytest.mark.parametrize(("mode", "opens"), [(0o777, True), (0o1777, False), (0o755, False)])
def test_a_folder_that_others_may_change(
    folder: str,
    mode: int,
    opens: bool,  # noqa: FBT001
    tmp_path: Path,
) -> None:
    """Whoever may add a file to it needs none of those that it has."""
    root = make_tree(tmp_path, {f"{folder}/": ""})
    (tmp_path / folder[1:]).chmod(mode)
    entries = {folder: (tmp_path / folder[1:]).lstat()}
    assert [one.path for one in find_files(root, entries, {}, frozenset())] == [folder] * opens


@pytest.mark.parametrize(
    ("rule", "opens"),
    [
        ('SUBSYSTEM=="block", KERNEL=="sd*|nvme*", MODE="0666"', True),
        ('KERNEL=="mem", MODE="0644"', True),
        ('SUBSYSTEM=="block", ENV{ID_VENDOR}=="X", MODE="0777"', True),
        ('SUBSYSTEM=="block", KERNEL=="sr*", MODE="0666"', False),
        ('SUBSYSTEM=="block", MODE="0660"', False),
        ('KERNEL=="renderD*", MODE="0666"', False),
        ('ATTR{idVendor}=="18d1", MODE="0666"', False),
    ],
)
def test_rules_that_open_disks_and_memory(rule: str, opens: bool, tmp_path: Path) -> None:  # noqa: FBT001
    root = make_tree(tmp_path, {"/etc/udev/rules.d/99-a.rules": f"{rule}\n"})
    assert bool(list(find_devices(subject(root)))) == opens
