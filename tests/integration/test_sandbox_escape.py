# SPDX-License-Identifier: Apache-2.0
"""Ways out of the sandbox (escapes.py), tried as its root and, where harmless, as the builder."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from imagebuilder.process import Word, run
from imagebuilder.sandbox.lasting import staying
from imagebuilder.sandbox.sandbox import Sandbox
from tests.integration.escapes import HARMLESS, OF_NETWORK, WAYS, call

pytestmark = pytest.mark.root

SCRIPT = Path(__file__).with_name("escapes.py")


@pytest.fixture
def key() -> Iterator[int]:
    """A key of the host's root, readable for its owner, in the session keyring (-3)."""
    number = call("add_key", 248, 217, b"user", b"imagebuilder-test", b"secret", 6, -3)
    call("keyctl", 250, 219, 5, number, 0x3F3F0000)  # KEYCTL_SETPERM
    yield number
    call("keyctl", 250, 219, 9, number, -3)  # KEYCTL_UNLINK


def tried(work: Path, names: Sequence[str], key: int, sandbox: Sandbox | None) -> dict[str, str]:
    """What became of each way."""
    program = work / "escapes.py"
    program.write_bytes(SCRIPT.read_bytes())
    disk = Path("/").stat().st_dev
    told = {
        "names": list(names), "disk": (os.major(disk), os.minor(disk)), "key": key,
        "host": os.getpid(),
    }  # fmt: skip
    argv: list[Word] = [
        "env",
        f"--chdir={work}",
        sys.executable,
        "-I",
        "-S",
        program,
        json.dumps(told),
    ]
    # The builder's own attempts mount things, which no test leaves behind.
    words: list[Word] = argv if sandbox else ["unshare", "--mount", "--", *argv]
    found: dict[str, str] = json.loads(run(words, sandbox=sandbox).stdout)
    assert set(found) == set(names)
    return found


@pytest.mark.parametrize("network", [False, True])
def test_every_way_out_is_refused(tmp_path: Path, key: int, *, network: bool) -> None:
    names = [name for name in WAYS if network or name not in OF_NETWORK]
    sandbox = Sandbox(tmp_path, ("empty",), "u", 0, enter=False, network=network)
    found = tried(tmp_path, names, key, sandbox)
    assert {n: said for n, said in found.items() if not said.startswith("refused: ")} == {}


def test_harmless_ways_are_open_to_the_builder(tmp_path: Path, key: int) -> None:
    """The attempts are real: without a sandbox the same calls succeed."""
    names = [way.__name__ for way in HARMLESS]
    found = tried(tmp_path, names, key, None)
    assert {name: said for name, said in found.items() if said != "open"} == {}


def test_root_inside_is_nobody_outside(busybox: Path, tmp_path: Path) -> None:
    """Files of a layer have the true ids, whatever the sandbox's are, and capabilities count."""
    sandbox = Sandbox(busybox, ("c",), "u", 0)
    run(["sh", "-c", "touch /f; chown 123456:65534 /f; chmod 6755 /f; touch /r"], sandbox=sandbox)
    assert ((busybox / "u/f").stat().st_uid, (busybox / "u/f").stat().st_gid) == (123456, 65534)
    assert (busybox / "u/f").stat().st_mode & 0o7777 == 0o6755
    assert (busybox / "u/r").stat().st_uid == 0
    with staying(sandbox, tmp_path / "log") as inside:
        for words in (run(["cat", "/proc/self/uid_map"], sandbox=inside).stdout,
                      Path(f"/proc/{inside.pid}/uid_map").read_text()):  # fmt: skip
            assert words.split() == ["0", "2147483648", "2147483646"]
        said = run(["sh", "-c", "id -u; echo told > /dev/stdout"], sandbox=inside).stdout
        assert said == "0\ntold\n"


def test_a_kernel_that_gives_no_user_namespace_is_told(tmp_path: Path) -> None:
    """Said with what to do, before a build; there is no weaker sandbox to fall back to."""
    code = (
        "from pathlib import Path\nfrom imagebuilder.sandbox.sandbox import check_sandbox\n"
        f"check_sandbox(Path({os.fspath(tmp_path)!r}))"
    )
    script = 'echo 0 > /proc/sys/user/max_user_namespaces; exec "$@"'
    namespaces = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", script, "sh"]
    done = run(
        [*namespaces, sys.executable, "-c", code], check=False, cwd=Path(__file__).parents[2]
    )
    assert "cannot start a sandbox here: sandbox: [Errno 0] cannot make a user name" in done.stderr
    assert "sysctl user.max_user_namespaces" in done.stderr
    assert list(tmp_path.iterdir()) == []
