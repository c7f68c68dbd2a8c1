# SPDX-License-Identifier: Apache-2.0
"""What a root may do without its lock, what it keeps, and how it is finished."""

from __future__ import annotations

import re
import shlex
import shutil
import sqlite3
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from imagebuilder.families.protocol import Unsigned
from imagebuilder.families.rpm.settings import (
    ANSIBLE,
    FINALISE,
    LEFTOVERS,
    SECRETS,
    find_unsigned,
    find_upgrading,
    is_upgrade,
)
from imagebuilder.process import Completed, run
from imagebuilder.root import Root
from tests.fixtures.rpm_repository import Rpm
from tests.unit.families.rpm.packages import FOREIGN, add_to_database, ask_rpm, make_rpms


@pytest.mark.parametrize(
    "command",
    [
        "dnf upgrade", "dnf -y update", "/usr/bin/dnf --assumeyes upgrade kernel", "yum update",
        "dnf --setopt install_weak_deps=0 -y up", "dnf -c /etc/x.conf --repo a upgrade-minimal",
        "dnf --setopt=a=b distro-sync", "dnf5 distrosync", "microdnf -y upgrade", "dnf dsync",
        "dnf system-upgrade reboot", "dnf group upgrade base", "dnf offline-upgrade reboot",
        "dnf module update nodejs", "yum localupdate x.rpm", "dnf-3 groupupdate core",
        "rpm -Uvh x.rpm", "rpm --upgrade x.rpm", "rpm -F x.rpm", "rpm --root /x -ivhU x.rpm",
        "dnf-automatic /etc/dnf/automatic.conf --timer --installupdates", "pkcon -y update",
    ],
)  # fmt: skip
def test_a_command_that_upgrades(command: str) -> None:
    assert is_upgrade(command.split())


@pytest.mark.parametrize(
    "command",
    [
        "", "dnf", "dnf install update-motd", "dnf install upgrade", "dnf list --upgrades",
        "dnf check-update", "dnf check-upgrade", "dnf updateinfo list", "dnf repoquery update",
        "dnf --comment upgrade list", "dnf upgrade --assumeno", "dnf upgrade --downloadonly",
        "dnf search update", "dnf -x update install a", "dnf makecache", "dnf --help upgrade",
        "rpm -qa", "rpm -i x.rpm", "rpm -V x", "rpm --query update", "rpm --import FILE",
        "dnf-automatic /etc/dnf/automatic.conf --timer", "pkcon refresh", "echo dnf upgrade",
    ],
)  # fmt: skip
def test_a_command_that_does_not(command: str) -> None:
    assert not is_upgrade(command.split())


def root_of(tmp_path: Path, files: Mapping[str, str]) -> Root:
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return Root(tmp_path)


def enable(root: Path, name: str, *, shipped: bool = True) -> None:
    """Enable a timer as systemctl does."""
    units = root / "usr/lib/systemd/system"
    units.mkdir(parents=True, exist_ok=True)
    if shipped:
        (units / name).touch()
    wants = root / "etc/systemd/system/timers.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / name).symlink_to(f"/usr/lib/systemd/system/{name}")


CONF = "etc/dnf/automatic.conf"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("[commands]\napply_updates = yes\n", f"/{CONF}"),
        ("[commands]\napply_updates = no\napply_updates=True\n", f"/{CONF}"),
        ("[commands]\napply_updates = yes\napply_updates = no\n", ""),
        ("[commands]\n# apply_updates = yes\n", ""),
        ("[emitters]\napply_updates = yes\n", ""),
        ("", ""),
    ],
)
def test_automatic_upgrades_are_a_setting_of_a_timer(tmp_path: Path, text: str, found: str) -> None:
    root = root_of(tmp_path, {CONF: text})
    assert find_upgrading(root) == ""
    enable(tmp_path, "dnf-automatic.timer")
    assert find_upgrading(root) == found


def test_a_timer_that_installs_needs_no_setting(tmp_path: Path) -> None:
    root = root_of(tmp_path, {CONF: "[commands]\napply_updates = no\n"})
    enable(tmp_path, "dnf-automatic-download.timer")
    assert find_upgrading(root) == ""
    enable(tmp_path, "dnf-automatic-install.timer")
    wants = "/etc/systemd/system/timers.target.wants/dnf-automatic-install.timer"
    assert find_upgrading(root) == wants


def test_a_timer_that_is_not_installed_does_nothing(tmp_path: Path) -> None:
    root = root_of(tmp_path, {CONF: "[commands]\napply_updates = yes\n"})
    for name in ("dnf-automatic.timer", "dnf-automatic-install.timer"):
        enable(tmp_path, name, shipped=False)
    assert find_upgrading(root) == ""


REPO, MAIN = "etc/yum.repos.d/x.repo", "etc/dnf/dnf.conf"
CHECKED = "[main]\ngpgcheck=1\n"


@pytest.mark.parametrize(
    ("main", "repository", "found"),
    [
        (CHECKED, "[x]\nbaseurl=https://x\n", []),
        (CHECKED, "[x]\ngpgcheck=1\n", []),
        (CHECKED, "# [x]\n[x]\nname=X\ngpgcheck = 0\n", [(REPO, 4, "gpgcheck=0")]),
        (CHECKED, "[x]\ngpgcheck=no\n[y]\ngpgcheck=False\n",
         [(REPO, 2, "gpgcheck=no"), (REPO, 4, "gpgcheck=False")]),
        (CHECKED, "[x]\nenabled=0\ngpgcheck=0\n", []),
        (CHECKED, "[x]\nenabled=1\ngpgcheck=0\n", [(REPO, 3, "gpgcheck=0")]),
        (CHECKED, "[x]\nrepo_gpgcheck=0\nsslverify=0\n#gpgcheck=0\n;gpgcheck=0\n", []),
        (CHECKED, "[x]\ngpgcheck=0\ngpgcheck=1\n", []),
        ("[main]\n", "[x]\nname=X\n", [(REPO, 1, "[x] without gpgcheck=1")]),
        ("", "[x]\nname=X\ngpgcheck=1\n", []),
        ("[main]\ngpgcheck=0\n", "[x]\nname=X\n[y]\ngpgcheck=1\n", [(MAIN, 2, "gpgcheck=0")]),
        (f"{CHECKED}[z]\ngpgcheck=off\n", "", [(MAIN, 4, "gpgcheck=off")]),
        (CHECKED, "gpgcheck=0\n", []),
    ],
)  # fmt: skip
def test_repositories_whose_packages_are_not_verified(
    tmp_path: Path, main: str, repository: str, found: list[tuple[str, int, str]]
) -> None:
    root = root_of(tmp_path, {MAIN: main, REPO: repository, "etc/yum.repos.d/x.bak": "[b]\n"})
    expected = tuple(Unsigned(f"/{path}", line, what) for path, line, what in found)
    assert find_unsigned(root) == expected


@pytest.mark.parametrize("folder", ["etc/yum/repos.d", "etc/distro.repos.d"])
def test_repositories_are_in_several_folders(tmp_path: Path, folder: str) -> None:
    root = root_of(tmp_path, {MAIN: CHECKED, f"{folder}/x.repo": "[x]\ngpgcheck=0\n"})
    assert [each.path for each in find_unsigned(root)] == [f"/{folder}/x.repo"]


def test_a_root_without_dnf_has_no_repository(tmp_path: Path) -> None:
    assert find_unsigned(Root(tmp_path)) == ()
    assert find_upgrading(Root(tmp_path)) == ""


@pytest.mark.parametrize(
    ("path", "content", "secret"),
    [
        ("/etc/yum.repos.d/x.repo", "[x]\nusername=u\npassword = p\n", True),
        ("/etc/yum.repos.d/x.repo", "[x]\nbaseurl=https://u:p@example.org/\n", True),
        ("/etc/yum.repos.d/x.repo", "[x]\nbaseurl=https://example.org/\n#password=\n", False),
        ("/etc/yum.repos.d/x.repo", "[x]\npassword=\nname=x\n", False),
        ("/etc/dnf/dnf.conf", "[main]\nproxy_password=p\n", True),
        ("/etc/dnf/dnf.conf", "[main]\nproxy=http://u:p@proxy:3128\n", True),
        ("/etc/yum.conf", "[main]\nproxy_password=p\n", True),
        ("/etc/rhsm/rhsm.conf", "[server]\nproxy_password =\nproxy_user = u\n", False),
        ("/etc/rhsm/rhsm.conf", "[server]\nproxy_password = p\n", True),
        ("/etc/other.conf", "password=p\n", False),
    ],
)
def test_passwords_of_repositories_and_proxies_are_found(
    path: str,
    content: str,
    secret: bool,  # noqa: FBT001 - a column
) -> None:
    kinds = [each for each in SECRETS if re.fullmatch(each.path, path)]
    assert any(re.search(each.holds, content.encode()) for each in kinds) is secret


def finish(root: Path, rpm: str = "rpm") -> Completed:
    """Run the script that finishes a root, with its paths in `root` and the host's rpm."""
    script = FINALISE.replace("/etc/", f"{root}/etc/").replace(" /var/", f" {root}/var/")
    script = script.replace(" /usr/", f" {root}/usr/")
    # The database has the paths of the root.
    define = f"""\
rpm() {{
    count=$#
    while [ "$count" -gt 0 ]; do
        word=$1
        shift
        set -- "$@" "${{word#{shlex.quote(str(root))}}}"
        count=$((count - 1))
    done
    command {rpm} --dbpath {shlex.quote(str(root))}/var/lib/rpm "$@"
}}
"""
    return run(["sh", "-c", f"set -eu\n{define}{script}"], env=FOREIGN, check=False)


@pytest.fixture
def installed(tmp_path: Path) -> Path:
    """A root with a repository of a package, and one that a package does not have."""
    (path,) = make_rpms(tmp_path, Rpm("repos", files={f"/{REPO}": "[x]\n"}))
    root_of(tmp_path / "root", {REPO: "[x]\ngpgcheck=0\n", "etc/yum.repos.d/own.repo": "[own]\n"})
    add_to_database(tmp_path / "root", path)
    return tmp_path / "root"


def test_a_finished_root_has_only_repositories_that_are_meant(installed: Path) -> None:
    assert finish(installed).status == 0
    assert (installed / REPO).read_text().startswith("# This root is immutable")
    assert (installed / "etc/yum.repos.d/own.repo").read_text() == "[own]\n"


def test_a_finished_database_needs_nothing_beside_it(installed: Path) -> None:
    database = installed / "var/lib/rpm/rpmdb.sqlite"
    assert database.read_bytes()[18:20] == b"\2\2"
    for _ in range(2):
        assert finish(installed).status == 0
        assert database.read_bytes()[18:20] == b"\1\1"
        for lock in database.parent.glob(".*.lock"):
            lock.unlink()
        assert ask_rpm("--dbpath", database.parent, "-qa") == "repos-1.0-1.el9.noarch\n"
        assert [path.name for path in database.parent.iterdir()] == ["rpmdb.sqlite"]
    with closing(sqlite3.connect(database)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


def kill_rpm(database: Path) -> None:
    """Leave the database as a program does that is killed while it changes it."""
    killed = database.with_name("killed")
    with closing(sqlite3.connect(database, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_autocheckpoint = 0")
        connection.execute("UPDATE Packages SET hnum = 7")
        shutil.copy(database, killed)
        shutil.copy(f"{database}-wal", f"{killed}-wal")
    database.with_name("rpmdb.sqlite-shm").unlink(missing_ok=True)
    killed.replace(database)
    killed.with_name("killed-wal").replace(f"{database}-wal")


def test_what_a_killed_rpm_had_not_written_is_not_lost(installed: Path) -> None:
    database = installed / "var/lib/rpm/rpmdb.sqlite"
    kill_rpm(database)
    assert database.with_name("rpmdb.sqlite-wal").stat().st_size
    done = finish(installed)
    assert (done.status, done.stderr.count("error")) == (0, 0)
    with closing(sqlite3.connect(f"file:{database}?immutable=1", uri=True)) as connection:
        assert connection.execute("SELECT hnum FROM Packages").fetchall() == [(7,)]


def test_a_database_that_cannot_be_finished_is_an_error(installed: Path) -> None:
    database = installed / "var/lib/rpm/rpmdb.sqlite"
    kill_rpm(database)
    done = finish(installed, rpm="true")
    assert done.status == 1
    assert f"rpm did not finish, {database}-wal has changes" in done.stderr
    assert finish(installed, rpm="false").status == 1
    assert database.read_bytes()[18:20] == b"\2\2"


def test_a_root_without_either_is_finished(tmp_path: Path) -> None:
    assert finish(tmp_path).status == 0
    assert not list(tmp_path.iterdir())


def test_no_leftover_is_what_a_database_lacks() -> None:
    assert not any("wal" in glob for glob in LEFTOVERS)


def test_a_playbook_finds_no_repository(tmp_path: Path) -> None:
    ((path, name),) = ANSIBLE.covers.items()
    assert path == f"/{MAIN}"
    root = root_of(tmp_path, {MAIN: ANSIBLE.files[name]})
    assert find_unsigned(root) == ()
    assert "reposdir=/dev/null\n" in ANSIBLE.files[name]
