# SPDX-License-Identifier: Apache-2.0
"""Work on files whose author is not trusted, in a process of its own with a limit on its time.

    run_apart(name, work, on_news) -> what work returned

A regular expression or a parser in C that does not come to an end keeps the interpreter, so that
nothing in the same process can stop it, not even Ctrl-C; one that fails takes the process with it.
"""

from __future__ import annotations

import ctypes
import os
import resource
import signal
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, TypeVar, cast

from imagebuilder.errors import ImagebuilderError, WorkError

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

News = TypeVar("News")
Result = TypeVar("Result")

GIB = 1 << 30
# Of one process, at least; the proof of rx7600xt takes 0.3 GiB.
LEAST_MEMORY = 4 * GIB
CPU_SECONDS = 30 * 60  # of all threads together; proofs take seconds, of large images minutes
END_SECONDS = 3
MADE = "a file of the image was probably made to hold it up"
PR_SET_PDEATHSIG = 1  # prctl(2)


def run_apart(
    name: str,
    work: Callable[[Callable[[News], None]], Result],
    on_news: Callable[[News], None] = lambda _: None,
    *,
    cpu_seconds: int = CPU_SECONDS,
    memory: int = 0,
) -> Result:
    """Do `work` in a forked process, and return what it returned; what else it changes is lost.

    `work` is given a function that passes news to `on_news`, here.  `name` is for errors.  The
    process ends with this thread, however that ends.  Raises the ImagebuilderError or OSError that
    `work` raises, and WorkError if the process takes more than `cpu_seconds` of processor time or
    `memory` bytes (0: half of the machine's), or ends in another way: what Python says of that is
    on stderr.
    """
    import multiprocessing  # takes 20 ms of every command that needs none of it

    context = multiprocessing.get_context("fork")
    reading, writing = context.Pipe(duplex=False)
    us = os.getpid()
    process = context.Process(
        target=carry_out,
        args=(name, work, writing, us, cpu_seconds, memory or most_memory()),
        daemon=True,
    )
    with reading:
        process.start()
        writing.close()
        try:
            while True:
                said = reading.recv()
                if isinstance(said, BaseException):
                    raise said
                news, last = said
                if last:
                    return cast("Result", news)
                on_news(news)
        except EOFError:
            process.join()
            raise ended(name, process.exitcode or 0, cpu_seconds) from None
        finally:
            process.terminate()
            process.join(END_SECONDS)
            process.kill()
            process.join()


def most_memory() -> int:
    """Half of the machine's memory, in bytes, but at least what any image needs."""
    return max(LEAST_MEMORY, os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2)


def ended(name: str, status: int, cpu_seconds: int) -> WorkError:
    """The error of a process that ended without a result."""
    if status == -signal.SIGXCPU:
        what = f"{name} took more than {cpu_seconds} s of processor time, and was stopped"
        return WorkError(what, hint=MADE)
    how = signal.strsignal(-status) if status < 0 else f"exit status {status}"
    hint = "if there was enough memory, please report it, with what it printed and the recipe"
    return WorkError(f"{name} ended unexpectedly: {how}", hint=hint)


def carry_out(
    name: str,
    work: Callable[[Callable[[News], None]], Result],
    writing: Connection,
    us: int,
    cpu_seconds: int,
    memory: int,
) -> None:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != us:
        return
    # Ctrl-C reaches this process too, and then who waits ends it: two exceptions at once would say
    # so with a traceback.  The programs of the work end with it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    _, hardest = resource.getrlimit(resource.RLIMIT_CPU)
    soft = cpu_seconds if hardest == resource.RLIM_INFINITY else min(cpu_seconds, hardest)
    resource.setrlimit(resource.RLIMIT_CPU, (soft, hardest))
    # What a process writes to; files that it maps do not count (setrlimit(2)).
    _, most = resource.getrlimit(resource.RLIMIT_DATA)
    soft = memory if most == resource.RLIM_INFINITY else min(memory, most)
    resource.setrlimit(resource.RLIMIT_DATA, (soft, most))
    # Whoever waits may be gone.
    with suppress(BrokenPipeError):
        try:
            result = work(lambda news: writing.send((news, False)))
            writing.send((result, True))
        except BrokenPipeError:
            raise
        except (ImagebuilderError, OSError) as error:
            writing.send(error)
        except MemoryError:
            what = f"{name} took more than {soft >> 20} MiB of memory, and was stopped"
            writing.send(WorkError(what, hint=MADE))
