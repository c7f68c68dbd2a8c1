# SPDX-License-Identifier: Apache-2.0
"""The one gate to the outside: every program is started by `run()`."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Protocol

from imagebuilder.errors import FullError, HostError, ImagebuilderError, WorkError

Word = str | os.PathLike[str]

# What a program may see of the caller's environment: where to find programs and how to reach
# mirrors.  Locale, time zone and umask are fixed, because outputs depend on them.
PASSED_ON = (
    "PATH", "HOME", "TERM", "TMPDIR",
    "http_proxy", "https_proxy", "ftp_proxy", "no_proxy",
    "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE",
)  # fmt: skip
FIXED = {"LC_ALL": "C.UTF-8", "TZ": "UTC"}
SBIN = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
TAIL_LINES = 12
# What the C library, GNU tar and ostree say when nothing more can be written.
FULL = re.compile(r"No space left on device|Wrote only \d+ of \d+ bytes|min-free-space-")
MOST = 400  # characters of a line or command in a message


class Wrapper(Protocol):
    """Something that turns a command into one that runs elsewhere, such as a sandbox."""

    def words(self, argv: Sequence[Word]) -> list[Word]:
        """The whole command that runs `argv` there."""
        ...

    @property
    def environment(self) -> Mapping[str, str] | None:
        """The complete environment inside, or None to pass the host's allow-list on."""
        ...


@dataclass(frozen=True)
class Completed:
    """What a finished program left: exit status and its output as text."""

    status: int
    stdout: str
    stderr: str


def base_environment() -> dict[str, str]:
    """The allow-listed environment of a program on the host."""
    env = {name: os.environ[name] for name in PASSED_ON if name in os.environ}
    env["PATH"] = f"{env['PATH']}:{SBIN}" if env.get("PATH") else SBIN
    return env | FIXED


def run(
    argv: Sequence[Word],
    *,
    sandbox: Wrapper | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes | IO[bytes] | None = None,
    log: Path | None = None,
    on_line: Callable[[str], None] | None = None,
    check: bool = True,
) -> Completed:
    """Run a program to its end.

    With `log`, stdout and stderr go there together (appended, the command first) and `on_line`
    sees each line; without, both are captured.  `env` is added to the allow-listed environment.
    The program dies with us, even when we are killed.  Raises HostError when the program is not
    installed and, with `check`, WorkError when it fails: the error shows the command to paste, the
    last lines it said and where the whole log is.
    """
    words = [os.fspath(word) for word in (sandbox.words(argv) if sandbox else argv)]
    inside = sandbox.environment if sandbox else None
    environment = {**(base_environment() if inside is None else inside), **(env or {})}
    command = [*dies_with_us(), *words]
    check_tools(command[0], words[0])
    with ExitStack() as stack:
        source = None if isinstance(stdin, bytes) else stdin
        if isinstance(stdin, bytes):
            source = stack.enter_context(TemporaryFile())
            source.write(stdin)
            source.seek(0)
        if log is None:
            done = capture(command, environment, cwd, source)
        else:
            done = follow(command, environment, cwd, source, log, argv, on_line)
    if check and done.status != 0:
        raise failure(argv, done, log)
    return done


def dies_with_us() -> list[str]:
    """The words that make the kernel kill the program when this thread ends (setpriv(1))."""
    return ["setpriv", "--pdeathsig", "KILL", "--"]


def capture(
    command: list[str],
    env: Mapping[str, str],
    cwd: Path | None,
    stdin: IO[bytes] | None,
) -> Completed:
    """Run with both streams captured."""
    with subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=stdin or subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        umask=0o022,
    ) as process:
        try:
            stdout, stderr = process.communicate()
        except BaseException:
            process.kill()
            raise
    return Completed(
        process.returncode, stdout.decode(errors="replace"), stderr.decode(errors="replace")
    )


def follow(
    command: list[str],
    env: Mapping[str, str],
    cwd: Path | None,
    stdin: IO[bytes] | None,
    log: Path,
    shown: Sequence[Word],
    on_line: Callable[[str], None] | None,
) -> Completed:
    """Run with both streams appended to `log`, line by line; stdout of the result is their tail."""
    log.parent.mkdir(parents=True, exist_ok=True)
    tail: list[str] = []
    with log.open("ab", buffering=0) as sink:
        sink.write(f"$ {paste(shown)}\n".encode())
        process = subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            stdin=stdin or subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            umask=0o022,
        )
        try:
            assert process.stdout is not None
            for raw in process.stdout:
                sink.write(raw)
                line = raw.decode(errors="replace").rstrip("\n")
                tail = [*tail[1 - TAIL_LINES :], line]
                if on_line:
                    on_line(line)
            status = process.wait()
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout:
                process.stdout.close()
    return Completed(status, "\n".join(tail), "")


def end_children() -> None:
    """Kill every program this process has running, whichever thread started it."""
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            with contextlib.suppress(ProcessLookupError):
                os.kill(int(child), signal.SIGKILL)


def paste(argv: Sequence[Word]) -> str:
    """The command as one can paste it into a shell."""
    return shlex.join(os.fspath(word) for word in argv)


def failure(argv: Sequence[Word], done: Completed, log: Path | None) -> ImagebuilderError:
    """The error for a program that ended badly: the host's when its disk is full."""
    said = [line[:MOST] for line in (done.stderr or done.stdout).splitlines() if line.strip()]
    how = f"killed by signal {-done.status}" if done.status < 0 else f"exit status {done.status}"
    lines = "".join(f"\n    {line}" for line in said[-TAIL_LINES:])
    command = paste(argv)
    if log and len(command) > MOST:
        command = f"{command[:MOST]}… (all of it is in the log)"
    full = any(FULL.search(line) for line in said)
    if full:
        lines += "\n    the disk is full: imagebuilder gc frees what no image needs,"
        lines += "\n    imagebuilder gc --releases what no channel and no node needs"
    kind = FullError if full else WorkError
    return kind(
        f"{Path(os.fspath(argv[0])).name} failed ({how}){lines}",
        hint=f"the command was: {command}" + (f"\n        whole log: {log}" if log else ""),
    )


def check_tools(*names: str) -> None:
    """Raise HostError that names every one of these programs which is not on this host."""
    path = base_environment()["PATH"]
    missing = [name for name in dict.fromkeys(names) if shutil.which(name, path=path) is None]
    if missing:
        raise HostError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed",
            hint="scripts/host-setup installs what a build needs, with --serve and --boot more; "
            "imagebuilder doctor lists it",
        )


def become(argv: Sequence[Word], *, sandbox: Wrapper) -> int:
    """Run a program with the terminal, for a person; returns its exit status.

    It dies with us too.  Raises HostError when it is not installed.
    """
    words = [os.fspath(word) for word in sandbox.words(argv)]
    command = [*dies_with_us(), *words]
    check_tools(command[0], words[0])
    env = sandbox.environment or base_environment()
    sys.stdout.flush()
    return subprocess.run(command, env=env, umask=0o022, check=False).returncode
