# SPDX-License-Identifier: Apache-2.0
"""The sandbox, from inside and from the host's point of view."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from imagebuilder.errors import FullError, WorkError
from imagebuilder.process import run
from imagebuilder.sandbox.lasting import staying
from imagebuilder.sandbox.sandbox import Bind, Sandbox, folders_of
from imagebuilder.space import no_space
from imagebuilder.store.workplace import workplace
from tests.integration.started import command_lines, wait_until
from tests.workshop import CHECKOUT

pytestmark = pytest.mark.root

NAP = 30_000_000 + os.getpid()  # seconds that nobody else sleeps


def inside(work: Path, script: str, **options: object) -> str:
    """What `script` says in a sandbox on the tiny root."""
    sandbox = Sandbox(work, ("c",), "u", 1_700_000_000, **options)  # type: ignore[arg-type]
    return run(["sh", "-c", script], sandbox=sandbox).stdout


def test_world_is_fixed(busybox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Tokyo")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    monkeypatch.setenv("SECRET", "x")
    said = inside(busybox, "env; hostname; umask; id -u")
    for line in ("TZ=UTC", "LC_ALL=C.UTF-8", "SOURCE_DATE_EPOCH=1700000000", "imagebuilder"):
        assert line in said.splitlines()
    assert "0022" in said
    assert "SECRET" not in said


def test_writes_go_to_the_upper_only(busybox: Path) -> None:
    inside(busybox, "echo new > /etc/new; rm -r /usr/sbin")
    assert (busybox / "u/etc/new").read_text() == "new\n"
    assert (busybox / "c/usr/sbin").is_dir()
    assert not (busybox / "c/etc/new").exists()


def test_run_and_tmp_and_dev_are_not_the_roots(busybox: Path) -> None:
    inside(busybox, "touch /run/x /tmp/x /dev/x")
    for name in ("run", "tmp", "dev"):
        assert not (busybox / "u" / name / "x").exists()


def test_the_hosts_tree_and_devices_are_gone(busybox: Path) -> None:
    said = inside(busybox, "ls /; ls /dev; ls /proc")
    assert "work" not in said.split("dev")[0]
    assert not any(name.startswith(("sd", "vd", "nvme", "loop")) for name in said.split())
    # pid 1 is ours and the only other processes are its children.
    assert len([word for word in said.split() if word.isdigit()]) <= 3


def test_no_network_unless_declared(busybox: Path) -> None:
    addresses = inside(busybox, "ip -o addr 2>/dev/null; cat /proc/net/dev")
    names = {line.split(":")[0].strip() for line in addresses.splitlines() if ":" in line}
    assert {name for name in names if name.startswith(("eth", "en"))} == set()
    assert "lo" in "".join(names)


def test_kernel_and_clock_are_out_of_reach(busybox: Path) -> None:
    before = Path("/proc/sys/kernel/panic").read_text()
    script = "date -s 2001-01-01; echo 7 > /proc/sys/kernel/panic; mknod /x b 1 1; ls -l /x; true"
    inside(busybox, f"({script}) 2>&1 || true")
    assert time.gmtime().tm_year > 2020
    assert Path("/proc/sys/kernel/panic").read_text() == before


def test_a_root_without_a_program_is_entered(busybox: Path, tmp_path: Path) -> None:
    """A base may come without sleep(1), and what has broken its shell is to be proven, too."""
    for name in ("proc", "sys", "dev", "run", "tmp", "etc"):
        (busybox / "none" / name).mkdir(parents=True)
    with staying(Sandbox(busybox, ("none",), "u", 0), tmp_path / "log") as inside:
        time.sleep(0.2)  # for whatever would end it
        done = run(["sh", "-c", "true"], sandbox=inside, check=False)
        assert done.status == 127
        assert "nsenter: failed to execute sh: No such file" in done.stderr


def test_what_commands_leave_behind_is_reaped(busybox: Path, tmp_path: Path) -> None:
    with staying(Sandbox(busybox, ("c",), "u", 0), tmp_path / "log") as inside:
        left = "sleep 0.1 > /dev/null 2>&1 & echo $!"
        pid = run(["sh", "-c", left], sandbox=inside).stdout.strip()

        def is_reaped() -> bool:
            """One that has ended and is not reaped is still there."""
            there = run(["test", "-e", f"/proc/{pid}/stat"], sandbox=inside, check=False)
            return there.status == 1

        wait_until(is_reaped, "what ended is not reaped")


@pytest.mark.parametrize("script", ["sleep 60", "(sleep 60 & wait)", "sleep 60 & exit 0"])
def test_what_takes_too_long_ends_with_its_children(
    busybox: Path, tmp_path: Path, script: str
) -> None:
    with staying(Sandbox(busybox, ("c",), "u", 0), tmp_path / "log") as inside:
        done = run(["sh", "-c", f"echo begun; {script}"], sandbox=inside, seconds=5, check=False)
        assert (done.late, done.stdout) == (True, "begun\n")
        said = run(["sh", "-c", "cat /proc/[0-9]*/cmdline"], sandbox=inside).stdout
        assert "sleep" not in said


def test_who_hides_in_a_session_of_its_own_is_not_waited_for(busybox: Path, tmp_path: Path) -> None:
    with staying(Sandbox(busybox, ("c",), "u", 0), tmp_path / "log") as inside:
        hidden = ["sh", "-c", "echo begun; setsid sleep 60 & sleep 0.2"]
        done = run(hidden, sandbox=inside, seconds=5, check=False)
        assert (done.late, done.stdout) == (True, "begun\n")
        assert run(["sh", "-c", "echo on"], sandbox=inside).stdout == "on\n"


def test_services_are_not_started_and_no_trace_stays(busybox: Path) -> None:
    said = inside(busybox, "cat /usr/sbin/policy-rc.d; ls -l /usr/sbin/policy-rc.d")
    assert "exit 101" in said
    assert not (busybox / "u/usr/sbin/policy-rc.d").exists()


def test_binds_are_read_only(busybox: Path, tmp_path: Path) -> None:
    given = tmp_path / "given"
    given.mkdir()
    (given / "x").write_text("from the host")
    bind = Bind(given, Path("/run/imagebuilder/given"))
    said = inside(
        busybox,
        "cd /run/imagebuilder/given; cat x; touch y 2>/dev/null || echo refused",
        binds=(bind,),
    )
    assert said == "from the hostrefused\n"
    assert list(given.iterdir()) == [given / "x"]


@pytest.mark.parametrize("link", ["../run/systemd/resolve/stub.conf", "/run/x/y/z.conf"])
def test_resolver_through_a_dangling_symlink(busybox: Path, link: str) -> None:
    (busybox / "c/etc/resolv.conf").symlink_to(link)
    said = inside(busybox, "cat /etc/resolv.conf", network=True)
    assert said == Path("/etc/resolv.conf").read_text()
    assert not (busybox / "u/etc/resolv.conf").exists()


def test_resolver_link_to_the_host_is_not_followed(busybox: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("mine")
    (busybox / "c/etc/resolv.conf").symlink_to(f"/../../../..{victim}")
    inside(busybox, "cat /etc/resolv.conf || true", network=True)
    assert victim.read_text() == "mine"


def test_a_root_without_a_resolver_gets_one_that_does_not_stay(busybox: Path) -> None:
    said = inside(busybox, "cat /etc/resolv.conf; touch /etc/mine", network=True)
    assert said == Path("/etc/resolv.conf").read_text()
    assert [path.name for path in (busybox / "u/etc").iterdir()] == ["mine"]


def test_plain_resolver_is_covered_not_written(busybox: Path) -> None:
    (busybox / "c/etc/resolv.conf").write_text("nameserver 192.0.2.1\n")
    said = inside(busybox, "cat /etc/resolv.conf", network=True)
    assert said == Path("/etc/resolv.conf").read_text()
    assert (busybox / "c/etc/resolv.conf").read_text() == "nameserver 192.0.2.1\n"
    assert not (busybox / "u/etc/resolv.conf").exists()


@pytest.mark.parametrize("name", ["proc", "dev", "sys", "run", "tmp"])
def test_planted_link_in_place_of_a_mount_point_is_refused(
    busybox: Path, tmp_path: Path, name: str
) -> None:
    (busybox / "c" / name).rmdir()
    (busybox / "c" / name).symlink_to(tmp_path)
    with pytest.raises(WorkError, match="is a symlink: refusing to mount over it"):
        inside(busybox, "true")


def test_exit_status_and_orphans(busybox: Path) -> None:
    with pytest.raises(WorkError, match="exit status 7"):
        inside(busybox, "(sleep 1000 &) ; exit 7")
    with pytest.raises(WorkError, match="exit status 137"):
        inside(busybox, "kill -9 $$")


def test_missing_program_inside(busybox: Path) -> None:
    with pytest.raises(WorkError, match="no-such-program: No such file"):
        run(["no-such-program"], sandbox=Sandbox(busybox, ("c",), "u", 0))


def test_engine_view_is_read_only_but_for_its_work(busybox: Path) -> None:
    sandbox = Sandbox(busybox, ("empty",), "u", 0, enter=False)
    script = f"touch {busybox}/u.merged/made; touch /etc/escaped 2>/dev/null || echo refused"
    assert run(["sh", "-c", script], sandbox=sandbox).stdout == "refused\n"
    assert (busybox / "u/made").exists()
    assert not Path("/etc/escaped").exists()


def test_an_engine_changes_neither_layers_nor_packages(busybox: Path) -> None:
    """Their files have other names in the store and in the pool.  A layer may be elsewhere."""
    elsewhere = busybox.with_name(f"{busybox.name}-elsewhere")
    for place in (busybox / "c", elsewhere, busybox / "given", busybox / "own"):
        place.mkdir(exist_ok=True)
        (place / "file").write_text("right\n")
    (busybox / "link").symlink_to(elsewhere)
    sandbox = Sandbox(
        busybox, ("c", "link"), "u", 0, enter=False, writes=("own",), view=(Path("/usr"),)
    )
    places = (busybox / "c", busybox / "u.scratch.1", busybox / "given", busybox)
    script = """
        for place; do
            for file in "$place/file" "$place/new"; do
                (echo wrong >> "$file") 2>/dev/null && echo "$file"
            done
        done
        mount -o remount,bind,rw "$1/.." 2>/dev/null && echo remounted
        touch "$0/own/made" "$0/tmp/made" "$0/u.merged/made"
    """
    assert run(["sh", "-c", script, busybox, *places], sandbox=sandbox).stdout == ""
    for place in places[:1] + places[2:3] + (elsewhere,):
        assert (place / "file").read_text() == "right\n"
    for name in ("own", "tmp", "u"):
        assert (busybox / name / "made").exists()


def test_a_program_in_an_environment_of_its_own_is_seen_with_its_interpreter(
    busybox: Path, tmp_path: Path
) -> None:
    home = tmp_path / "tool"
    run([sys.executable, "-m", "venv", "--without-pip", home])
    tool = home / "bin/tool"
    tool.write_text(f"#!{home}/bin/python\nprint('runs')\n")
    tool.chmod(0o755)
    sandbox = Sandbox(busybox, ("empty",), "u", 0, enter=False, view=folders_of(tool))
    assert run([tool], sandbox=sandbox).stdout == "runs\n"
    hidden = Sandbox(busybox, ("empty",), "u", 0, enter=False)
    assert run([tool], sandbox=hidden, check=False).status == 127


def test_kill_leaves_nothing(busybox: Path) -> None:
    """kill -9 of the builder: no process and no mount of the sandbox is left on the host."""
    code = (
        "from pathlib import Path\n"
        "from imagebuilder.process import run\n"
        "from imagebuilder.sandbox.sandbox import Sandbox\n"
        f"s = Sandbox(Path({os.fspath(busybox)!r}), ('c',), 'u', 0)\n"
        f"run(['sh', '-c', 'touch /started; (sleep {NAP} &); sleep {NAP}'], sandbox=s)\n"
    )
    pid = os.spawnv(os.P_NOWAIT, sys.executable, [sys.executable, "-c", code])
    wait_until((busybox / "u/started").exists, "the sandbox did not start")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_until(lambda: not sleepers(), "processes of the sandbox survived")


def sleepers() -> list[int]:
    """Processes of this test that run on the host."""
    words = f"sleep\0{NAP}".encode()
    return [pid for pid, line in command_lines().items() if line.startswith(words)]


@pytest.mark.parametrize("module", ["init", "view"])
def test_nothing_is_imported_from_the_root_of_a_sandbox(module: str) -> None:
    """A late import would find what a hostile root has where the interpreter looks."""
    late = f"import sys; from imagebuilder.sandbox import {module} as ours; "
    late += "ours.read_table = lambda _: __import__('colorsys'); sys.argv.append(''); ours.start()"
    words = ["env", f"PYTHONPATH={CHECKOUT}", sys.executable, "-S", "-B", "-c", late]
    said = run(words, check=False).stderr
    assert said.splitlines()[-1] == "ModuleNotFoundError: No module named 'colorsys'"


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    """A disk of 8 MB."""
    folder = tmp_path / "small"
    folder.mkdir()
    run(["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", folder])
    try:
        yield folder
    finally:
        run(["umount", folder])


def fill(disk: Path) -> None:
    """Leave no byte."""
    run(["sh", "-c", f"cat /dev/zero > {disk}/filler"], check=False)


def test_a_sandbox_on_a_full_disk_names_the_disk(busybox: Path, small: Path) -> None:
    """With no words of the sandbox, and no log that is gone when somebody reads of it."""
    run(["cp", "-a", busybox / "c", small])
    fill(small)
    with (
        pytest.raises(FullError, match=f"^{small}: no space left: 0 B free\n  hint: see with df"),
        staying(Sandbox(small, ("c",), "u", 0), small / "log"),
    ):
        pass


def test_work_on_a_full_disk_names_the_disk(small: Path) -> None:
    """An error that does not name a file, as of write(2)."""

    def write() -> None:
        with workplace(small, "some") as place, (place / "file").open("wb") as stream:
            fill(small)
            os.write(stream.fileno(), bytes(1 << 20))
            os.write(stream.fileno(), bytes(1 << 20))

    with pytest.raises(FullError, match=f"^{small}: no space left: 0 B free\n  hint: see with df"):
        write()


def test_work_on_a_disk_with_no_more_files_names_what_is_missing(small: Path) -> None:
    run(["mount", "-o", "remount,nr_inodes=20", small])
    run(["sh", "-c", f"for number in $(seq 20); do > {small}/$number; done"], check=False)
    said = str(no_space(small))
    assert said.startswith(f"{small}: no space left: 0 files\n  hint: see with df -i")
