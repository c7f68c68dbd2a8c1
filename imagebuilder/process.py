# SPDX-License-Identifier: Apache-2.0
"""The one gate to the outside: every program is started by `run()`."""

from __future__ import annotations

import contextlib
import math
import os
import re
import selectors
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, NoReturn, Protocol

from imagebuilder.environment import base_environment
from imagebuilder.errors import FullError, HostError, ImagebuilderError, WorkError
from imagebuilder.log import CutLog
from imagebuilder.untrusted import fit

Word = str | os.PathLike[str]

TAIL_LINES = 12
# What the C library, GNU tar and ostree say when nothing more can be written.
FULL = re.compile(r"No space left on device|Wrote only \d+ of \d+ bytes|min-free-space-")
MOST = 400  # characters of a line or command in a message
# What `sh` does with the program that follows: told to end, it tells all of its process group.  In
# the background a program would have an empty stdin, were it not for 3.
TELL_ALL = 'exec 3<&0; trap "trap - TERM; kill -TERM 0" TERM; "$@" <&3 3<&- & wait $!'
KILLED, SIGNALS = 128, 64  # what is above is the program's own, such as ssh's 255
TIMED_OUT = 124  # as timeout(1) has it
ASK_S = 0.25
END_S = 3.0
MOST_SAID = 256 << 20  # bytes of what is captured of a program
MOST_PIECE = 65536  # bytes of a line that are taken at once: what never ends a line is cut


class Wrapper(Protocol):
    """Something that turns a command into one that runs elsewhere, such as a sandbox."""

    def words(self, argv: Sequence[Word]) -> list[Word]:
        """The whole command that runs `argv` there."""

    @property
    def environment(self) -> Mapping[str, str] | None:
        """The complete environment inside, or None to pass the host's allow-list on."""


class ExcessError(WorkError):
    """A program printed more than it may, and was stopped."""


class Sink(Protocol):
    """Where the lines of a program go."""

    def write(self, raw: bytes, /) -> object:
        """Take a line, or a piece of one that is too long."""


@dataclass(frozen=True)
class Completed:
    """What a program left: exit status and its output as text.

    `late` is whether it was ended because its time had passed; the status is then TIMED_OUT.
    """

    status: int
    stdout: str
    stderr: str
    late: bool = False


def run(
    argv: Sequence[Word],
    *,
    sandbox: Wrapper | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: bytes | IO[bytes] | None = None,
    log: Path | Sink | None = None,
    on_line: Callable[[str], None] | None = None,
    ask: Callable[[], None] | None = None,
    seconds: float | None = None,
    most: int = MOST_SAID,
    check: bool = True,
) -> Completed:
    """Run a program to its end.

    With `log`, stdout and stderr go there together (appended, the command first) and `on_line`
    sees each line; without, both are captured.  A file must take what a CutLog keeps, else the
    program is ended and OSError raised; a Log may lose lines.  `env` is added to the allow-listed
    environment.  The program dies with us, even when we are killed.  `ask`, for captured programs,
    is called over and over and may raise: then the program and its children are told to end, as
    they are when we are killed, and have END_S for it.  After `seconds`, for captured programs,
    they are too, and what holds its streams open is not waited for.  Raises HostError when the
    program is not installed, ExcessError when more than `most` bytes would be captured and, with
    `check`, WorkError when it fails: that shows the command to paste, the last lines it said and
    where the log is.
    """
    words = [os.fspath(word) for word in (sandbox.words(argv) if sandbox else argv)]
    inside = sandbox.environment if sandbox else None
    environment = {**(base_environment() if inside is None else inside), **(env or {})}
    command = [*(ends_with_us() if ask else dies_with_us()), *words]
    check_tools(command[0], words[0])
    with ExitStack() as stack:
        source = None if isinstance(stdin, bytes) else stdin
        if isinstance(stdin, bytes):
            source = stack.enter_context(TemporaryFile())
            source.write(stdin)
            source.seek(0)
        if log is None:
            group = sandbox is None and bool(ask or seconds)  # a sandbox makes its own
            try:
                done = capture(command, environment, cwd, source, ask, seconds, most, group=group)
            except ExcessError:
                what = f"`{fit(paste(argv))}` printed more than {most >> 20} MiB, and was stopped"
                hint = "run it by hand to see what it prints"
                raise ExcessError(what, hint=hint) from None
        else:
            sink: Sink
            if isinstance(log, Path):
                log.parent.mkdir(parents=True, exist_ok=True)
                sink = stack.enter_context(closing(CutLog(log)))
            else:
                sink = log
            sink.write(f"$ {paste(argv)}\n".encode())
            done = follow(command, environment, cwd, source, sink, on_line)
    if check and done.status != 0:
        raise failure(argv, done, log)
    return done


def dies_with_us() -> list[str]:
    """The words that make the kernel kill the program when this thread ends (setpriv(1))."""
    return ["setpriv", "--pdeathsig", "KILL", "--"]


def ends_with_us() -> list[str]:
    """The same for a program and its children, which have a process group: they are told to end.

    Who fetches writes down how far a file has come, and goes on for minutes if nobody tells it.
    """
    return ["setpriv", "--pdeathsig", "TERM", "--", "sh", "-c", TELL_ALL, "sh"]


def capture(
    command: list[str],
    env: Mapping[str, str],
    cwd: Path | None,
    stdin: IO[bytes] | None,
    ask: Callable[[], None] | None = None,
    seconds: float | None = None,
    most: int = MOST_SAID,
    *,
    group: bool = False,
) -> Completed:
    """Run with both streams captured; `group`: in a process group of its own."""
    late = False
    with subprocess.Popen(
        command,
        env=env,
        cwd=cwd,
        stdin=stdin or subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        umask=0o022,
        process_group=0 if group else None,
    ) as process:
        try:
            stdout, stderr = communicate(process, ask, seconds, most)
        except subprocess.TimeoutExpired as said:
            end_program(process)
            stdout, stderr, late = said.stdout or b"", said.stderr or b"", True
        except BaseException:
            end_program(process)
            raise
    status = TIMED_OUT if late else process.returncode
    if ask and KILLED < status <= KILLED + SIGNALS:  # as sh tells of a signal
        status = KILLED - status
    return Completed(status, stdout.decode(errors="replace"), stderr.decode(errors="replace"), late)


def communicate(
    process: subprocess.Popen[bytes],
    ask: Callable[[], None] | None,
    seconds: float | None,
    most: int,
) -> tuple[bytes, bytes]:
    """What the program said until its end.

    Raises what `ask` raises, and TimeoutExpired, which has what it said, after `seconds`;
    ExcessError when it says more than `most`: subprocess's communicate() keeps any amount.
    """
    assert process.stdout is not None
    assert process.stderr is not None
    stdout, stderr = bytearray(), bytearray()
    until = math.inf if seconds is None else time.monotonic() + seconds
    asked = time.monotonic()
    with selectors.DefaultSelector() as selector:
        selector.register(process.stdout, selectors.EVENT_READ, stdout)
        selector.register(process.stderr, selectors.EVENT_READ, stderr)
        while selector.get_map() or process.poll() is None:
            left = min(until - time.monotonic(), ASK_S if ask else math.inf)
            wait_for(process, selector, None if left == math.inf else max(left, 0))
            if len(stdout) + len(stderr) > most:
                raise ExcessError("it printed too much")
            if time.monotonic() >= until:
                raise subprocess.TimeoutExpired(process.args, 0, bytes(stdout), bytes(stderr))
            if ask and time.monotonic() - asked >= ASK_S:
                ask()
                asked = time.monotonic()
    return bytes(stdout), bytes(stderr)


def wait_for(
    process: subprocess.Popen[bytes], selector: selectors.BaseSelector, seconds: float | None
) -> None:
    """Read what the program has said, or wait for its end once it has closed both streams."""
    if not selector.get_map():
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(seconds)
        return
    for key, _ in selector.select(seconds):
        if data := os.read(key.fd, MOST_PIECE):
            key.data.extend(data)
        else:
            selector.unregister(key.fileobj)


def end_program(process: subprocess.Popen[bytes]) -> None:
    """End a program, and its children if it leads a process group."""
    with contextlib.suppress(ProcessLookupError):
        if os.getpgid(process.pid) == process.pid:
            end_group(process)
    process.kill()


def end_group(leader: subprocess.Popen[bytes]) -> None:
    """Tell a process group to end, and kill what is left of it after END_S.

    Nothing of it runs afterwards, but what the kernel does not let go for another END_S.
    """
    with contextlib.suppress(ProcessLookupError):
        for signum in (signal.SIGTERM, signal.SIGKILL):
            os.killpg(leader.pid, signum)
            until = time.monotonic() + END_S
            while time.monotonic() < until:
                leader.poll()  # else it stays in its group
                os.killpg(leader.pid, 0)
                time.sleep(0.02)


def follow(
    command: list[str],
    env: Mapping[str, str],
    cwd: Path | None,
    stdin: IO[bytes] | None,
    sink: Sink,
    on_line: Callable[[str], None] | None,
) -> Completed:
    """Run with both streams going to `sink`, line by line; stdout of the result is their tail."""
    tail: list[str] = []
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
        while raw := process.stdout.readline(MOST_PIECE):
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
                leads = os.getpgid(int(child)) == int(child)  # its children would go on
                (os.killpg if leads else os.kill)(int(child), signal.SIGKILL)


def paste(argv: Sequence[Word]) -> str:
    """The command as one can paste it into a shell."""
    return shlex.join(os.fspath(word) for word in argv)


def failure(argv: Sequence[Word], done: Completed, log: Path | Sink | None) -> ImagebuilderError:
    """The error for a program that ended badly: the host's when its disk is full."""
    lines = (done.stderr or done.stdout).splitlines()
    said = [shorten(line) for line in lines if line.strip()]
    how = f"killed by signal {-done.status}" if done.status < 0 else f"exit status {done.status}"
    shown = "".join(f"\n    {line}" for line in said[-TAIL_LINES:])
    command = paste(argv)
    if log and len(command) > MOST:
        command = f"{command[:MOST]}… (all of it is in the log)"
    full = any(FULL.search(line) for line in lines)
    if full:
        shown += "\n    the disk is full: imagebuilder gc frees what no image needs,"
        shown += "\n    imagebuilder gc --releases what no channel and no node needs"
    kind = FullError if full else WorkError
    return kind(
        f"{Path(os.fspath(argv[0])).name} failed ({how}){shown}",
        hint=f"the command was: {command}" + (f"\n        whole log: {log}" if log else ""),
    )


def shorten(line: str) -> str:
    """A line of at most MOST characters; the middle is cut, because names stand at both ends."""
    half = (MOST - 3) // 2
    return line if len(line) <= MOST else f"{line[:half]} … {line[-half:]}"


def is_installed(name: str) -> bool:
    """Whether this host has a program where run() finds it."""
    return shutil.which(name, path=base_environment()["PATH"]) is not None


def check_tools(*names: str) -> None:
    """Raise HostError that names every one of these programs which is not on this host."""
    missing = [name for name in dict.fromkeys(names) if not is_installed(name)]
    if missing:
        raise HostError(
            f"{', '.join(missing)} {'is' if len(missing) == 1 else 'are'} not installed",
            hint="run imagebuilder setup to install what builds need, or with --rpm, --serve or "
            "--boot what these need; imagebuilder doctor lists it",
        )


def start_apart(argv: Sequence[Word], *, end: int, env: Mapping[str, str]) -> None:
    """Start a program in a session of its own, which goes on when we end or are interrupted.

    `end` becomes its standard input and output; `env` is added to our environment.
    """
    words = [os.fspath(word) for word in argv]
    check_tools(words[0])
    process = subprocess.Popen(
        words, stdin=end, stdout=end, env={**os.environ, **env}, start_new_session=True
    )
    threading.Thread(target=process.wait, daemon=True).start()  # else it stays as a zombie


def exec_program(argv: Sequence[Word], *, env: Mapping[str, str]) -> NoReturn:
    """Replace this process by a program with our environment and `env`; signals are default."""
    words = [os.fspath(word) for word in argv]
    check_tools(words[0])
    sys.stdout.flush()
    sys.stderr.flush()
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    os.execvpe(words[0], words, {**os.environ, **env})


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
