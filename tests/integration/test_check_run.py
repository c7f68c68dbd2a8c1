# SPDX-License-Identifier: Apache-2.0
"""Checks on a tiny root: what they see, what is told of them, and that nothing else happens."""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path

import pytest

from imagebuilder.checks.find import COMMON, CheckFile
from imagebuilder.checks.run import NothingSelectedError, run_boot, run_tree_checks
from imagebuilder.errors import InputError, WorkError
from imagebuilder.report.types import Check, Outcome
from tests.check_room import by_name, make_facts, make_file
from tests.integration.started import (
    PATIENCE,
    find_descendants,
    orphans_are_ours,
    start,
    wait_until,
)

pytestmark = pytest.mark.root

PASSED, FAILED, SKIPPED = Outcome.PASSED, Outcome.FAILED, Outcome.SKIPPED


def check_static(busybox: Path, body: str, selection: str = "") -> tuple[Check, ...]:
    """Run one file of static checks on the tiny root."""
    file = make_file(busybox / "project", body)
    return run_tree_checks(
        busybox / "c", [file], make_facts(), busybox / "work", epoch=1, selection=selection
    )


def test_a_check_cannot_reach_the_host_s_kernel(busybox: Path) -> None:
    found = check_static(
        busybox,
        """
        @pytest.mark.static
        def test_root_of_the_sandbox_alone(host):
            assert host.check_output("id -u") == "0"
            assert host.check_output("cat /proc/self/uid_map").split()[1] == "2147483648"
            assert "not permitted" in host.run("date -s @1").stderr
            for script in ("mknod /x b 7 0", "echo 1 > /proc/sys/kernel/panic"):
                assert host.run(script).rc != 0, script
        """,
    )
    assert by_name(found) == {"test_root_of_the_sandbox_alone": (PASSED, "")}


# What a check is told of, and what is told of it.


def test_outcomes_and_messages(busybox: Path) -> None:
    found = check_static(
        busybox,
        """
        @pytest.mark.static
        def test_good(host):
            print("#check this is captured")
            assert host.file("/usr/bin/busybox").is_file

        @pytest.mark.static
        @pytest.mark.parametrize("number", [1, 2])
        def test_parts(number):
            assert number == 1, "the second is wrong"

        @pytest.mark.static
        def test_command(host):
            host.check_output("echo noise; ls /absent/%s", "it")

        @pytest.mark.static
        def test_error():
            raise ValueError("not a number")

        @pytest.mark.static
        def test_in_words():
            pytest.fail("the disk is gone\\nplug it in")

        @pytest.mark.static
        def test_skipped():
            pytest.skip("no card here")

        @pytest.mark.boot
        def test_later():
            raise AssertionError

        @pytest.mark.static
        @pytest.mark.boot
        def test_in_both_places():
            pass
        """,
    )
    told = by_name(found)
    assert [check.name for check in found] == [
        "test_good", "test_parts[1]", "test_parts[2]", "test_command", "test_error",
        "test_in_words", "test_skipped", "test_in_both_places",
    ]  # fmt: skip
    assert told["test_good"] == (PASSED, "")
    assert told["test_parts[1]"] == (PASSED, "")
    outcome, message = told["test_parts[2]"]
    assert outcome is FAILED
    assert message.splitlines() == ["the second is wrong", "assert 2 == 1", "(test_own.py:12)"]
    outcome, message = told["test_command"]
    assert outcome is FAILED
    assert message.startswith("exit status 1 of: echo noise; ls /absent/it\nls: /absent/it")
    assert "CommandResult" not in message
    assert told["test_error"] == (FAILED, "ValueError: not a number\n(test_own.py:20)")
    assert told["test_in_words"] == (FAILED, "the disk is gone\nplug it in")
    assert told["test_skipped"] == (SKIPPED, "no card here")
    assert {(check.group, check.kind) for check in found} == {("own", "static")}
    assert all(check.seconds >= 0 for check in found)


def make_two_parts(busybox: Path, common: str, own: str) -> list[CheckFile]:
    """A file of common checks and one of an overlay, the latter first."""
    project = busybox / "project"
    return [
        make_file(project, own, "test_own.py", group="own"),
        make_file(project, common, "test_all.py", group=COMMON),
    ]


def test_the_common_checks_run_beside_those_of_overlays(busybox: Path) -> None:
    """Each waits for the other: one after the other they would not end."""
    meet = """
        import time

        @pytest.mark.static
        def test_{name}(host):
            for _ in range(300):
                if host.run("touch /tmp/{name}; test -e /tmp/{other}").rc == 0:
                    break
                time.sleep(0.05)
            else:
                pytest.fail("alone")
        """
    files = make_two_parts(
        busybox, meet.format(name="a", other="b"), meet.format(name="b", other="a")
    )
    found = run_tree_checks(busybox / "c", files, make_facts(), busybox / "work", epoch=1)
    assert [(check.group, check.name, check.outcome) for check in found] == [
        (COMMON, "test_a", PASSED),
        ("own", "test_b", PASSED),
    ]


def test_faults_of_both_parts_are_told(busybox: Path) -> None:
    body = "@pytest.mark.static\ndef test_x(): assert False"
    files = make_two_parts(busybox, body, body)
    found = run_tree_checks(busybox / "c", files, make_facts(), busybox / "work", epoch=1)
    assert [check.outcome for check in found] == [FAILED, FAILED]
    files = make_two_parts(busybox, "import nothing_here", "def test_y(): pass")
    with pytest.raises(InputError) as raised:
        run_tree_checks(busybox / "c", files, make_facts(), busybox / "work", epoch=1)
    assert "cannot be imported" in str(raised.value)
    assert "test_y is marked neither way" in str(raised.value)


def test_a_selection_may_leave_nothing_of_one_part(busybox: Path) -> None:
    files = make_two_parts(
        busybox,
        "@pytest.mark.static\ndef test_x(): pass",
        "@pytest.mark.static\ndef test_y(): pass",
    )
    run = partial(run_tree_checks, busybox / "c", files, make_facts(), busybox / "work", epoch=1)
    assert [check.name for check in run(selection="test_y")] == ["test_y"]
    with pytest.raises(NothingSelectedError):
        run(selection="test_z")


def test_a_check_has_the_facts_and_the_sandbox(
    busybox: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LEAKED", "yes")
    found = check_static(
        busybox,
        """
        import os

        @pytest.mark.static
        def test_facts(facts, tree):
            image = facts.image
            assert (image.profile, image.listens) == ("p", ("22/tcp",))
            assert (tree / "usr/bin/busybox").is_file()

        @pytest.mark.static
        def test_inside(host):
            lines = host.check_output("env").splitlines()
            assert "SOURCE_DATE_EPOCH=1" in lines
            assert not [line for line in lines if "LEAKED" in line]
            assert host.check_output("hostname") == "imagebuilder"
            assert host.check_output("ls /proc/1/comm") == "/proc/1/comm"
            assert host.run("ip route").stdout == ""

        @pytest.mark.static
        def test_outside():
            assert "LEAKED" not in os.environ
        """,
    )
    assert [message for _, message in by_name(found).values()] == [""] * 3


def test_a_selection_is_pytests(busybox: Path) -> None:
    body = """
        @pytest.mark.static
        def test_one(): pass
        @pytest.mark.static
        def test_two(): pass
        """
    assert list(by_name(check_static(busybox, body, "one"))) == ["test_one"]
    assert len(check_static(busybox, body, "own")) == 2
    with pytest.raises(NothingSelectedError, match="-k three selects no static check"):
        check_static(busybox, body, "three")
    with pytest.raises(InputError, match="Wrong expression passed to '-k': one and"):
        check_static(busybox, body, "one and")


# A check file that is wrong.


@pytest.mark.parametrize(
    ("body", "what"),
    [
        ("import no_such_library\n", "cannot be imported: ModuleNotFoundError: No module named"),
        ("def test_x(:\n", "cannot be imported: SyntaxError"),
        ("def helper(): pass\n", "has no checks"),
        ("def test_x(): pass\n", "test_x is marked neither way"),
        ("@pytest.mark.statik\ndef test_x(): pass\n", "'statik' not found in `markers`"),
    ],
)
def test_a_wrong_file_is_named(busybox: Path, body: str, what: str) -> None:
    with pytest.raises(InputError) as caught:
        check_static(busybox, body)
    (fault,) = caught.value.faults
    assert fault.where.endswith("/own/checks/test_own.py")
    assert what in fault.what
    assert fault.hint


def test_nothing_of_the_person_is_loaded(busybox: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    body = "@pytest.mark.static\ndef test_x(): pass\n"
    folder = make_file(busybox / "project", body).path.parent
    for place in (folder, folder.parent):
        (place / "conftest.py").write_text("raise SystemExit('loaded')")
        (place / "pytest.ini").write_text("[pytest]\naddopts = --no-such-option\n")
    monkeypatch.setenv("PYTEST_ADDOPTS", "--no-such-option")
    monkeypatch.setenv("PYTEST_PLUGINS", "no_such_plugin")
    monkeypatch.setenv("PYTHONPATH", "/nonexistent")
    monkeypatch.chdir(folder)
    assert by_name(check_static(busybox, body)) == {"test_x": (PASSED, "")}
    names = {path.name for path in folder.rglob("*")}
    assert names == {"test_own.py", "conftest.py", "pytest.ini"}, "no cache, no bytecode"


# What a run leaves.


def snapshot(tree: Path) -> list[tuple[str, int, int, int]]:
    """Everything in a tree with what changes when it is written to."""
    rows = ((path, path.lstat()) for path in sorted(tree.rglob("*")))
    return [(os.fspath(p), s.st_mode, s.st_mtime_ns, s.st_ino) for p, s in rows]


def test_the_root_is_never_written_to(busybox: Path) -> None:
    before = snapshot(busybox / "c")
    found = check_static(
        busybox,
        """
        @pytest.mark.static
        def test_writes(host):
            host.check_output("echo x > /etc/x; echo x >> /usr/bin/busybox; rm /bin/cat; mkdir /n")
            assert host.file("/etc/x").exists
        """,
    )
    assert by_name(found) == {"test_writes": (PASSED, "")}
    assert snapshot(busybox / "c") == before


def test_nothing_runs_on_afterwards(busybox: Path) -> None:
    with orphans_are_ours():
        check_static(
            busybox,
            """
            @pytest.mark.static
            def test_x(host):
                host.check_output("sleep 1000 > /dev/null 2>&1 & echo started")
            """,
        )
        wait_until(lambda: not find_descendants(), f"run still: {find_descendants()}")


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_a_kill_leaves_nothing(busybox: Path, tmp_path: Path, how: signal.Signals) -> None:
    body = """
        @pytest.mark.static
        def test_x(host):
            host.check_output("sleep 1000")
        """
    file = make_file(busybox / "project", body)
    script = f"""
from pathlib import Path
from imagebuilder.checks.run import run_tree_checks
from imagebuilder.checks.find import CheckFile
from tests.check_room import make_facts
run_tree_checks(Path("{busybox}/c"), [CheckFile("own", Path("{file.path}"), "")], make_facts(),
           Path("{busybox}/work"), epoch=1)
"""
    mounts = Path("/proc/self/mountinfo").read_text()
    with orphans_are_ours():
        words = [sys.executable, "-c", script]
        started = start(words, {"PYTHONPATH": os.fspath(Path(__file__).parents[2])}, tmp_path)

        def sleeps() -> bool:
            return any("sleep 1000" in line for line in find_descendants().values())

        wait_until(sleeps, f"no check runs\n{started.stderr}")
        started.send(how)
        started.wait(PATIENCE)
        wait_until(lambda: not sleeps(), "the sandbox runs still")
        wait_until(lambda: not find_descendants(), f"run still: {find_descendants()}")
    assert Path("/proc/self/mountinfo").read_text() == mounts


# Over ssh.

ANSWERS = """\
#!/bin/sh
# Stands for ssh: the last word is the script for the node.
for script; do :; done
exec env -i PATH="$PATH" sh -c "$script"
"""
HANGS_UP = "#!/bin/sh\necho 'ssh: connect to host node port 22: No route to host' >&2\nexit 255\n"


def make_ssh(folder: Path, text: str) -> list[str]:
    """The words of a login by a fake ssh."""
    (folder / "ssh").write_text(text)
    (folder / "ssh").chmod(0o755)
    return [os.fspath(folder / "ssh"), "-F", "config", "node"]


def test_boot_checks_go_over_ssh(tmp_path: Path) -> None:
    file = make_file(
        tmp_path / "project",
        """
        @pytest.mark.boot
        def test_quoting(host):
            assert host.check_output("echo %s 'a  b'", "it's $HOME") == "it's $HOME a  b"

        @pytest.mark.boot
        def test_status(host):
            assert host.run("exit 7").rc == 7
            assert host.run("echo out; echo err >&2; exit 255").rc == 254
            assert host.run("kill -9 $$").rc == 137

        @pytest.mark.static
        def test_other(): pass
        """,
    )
    login = make_ssh(tmp_path, ANSWERS)
    for _ in range(2):
        found = run_boot([file], make_facts(), login, tmp_path / "work")
        assert by_name(found) == {"test_quoting": (PASSED, ""), "test_status": (PASSED, "")}
    assert {check.kind for check in found} == {"boot"}


def test_a_lost_connection_is_no_failed_check(tmp_path: Path) -> None:
    file = make_file(
        tmp_path / "project",
        """
        @pytest.mark.boot
        def test_first(host):
            host.run("true")
        @pytest.mark.boot
        def test_second(): pass
        """,
    )
    login = make_ssh(tmp_path, HANGS_UP)
    with pytest.raises(WorkError, match="No route to host \\(during test_first\\)"):
        run_boot([file], make_facts(), login, tmp_path / "work")
