# SPDX-License-Identifier: Apache-2.0
"""Answers of servers, with a limit on the whole time that they take.

A limit of requests is for each time that it waits, and a single byte ends that: a server that sends
one byte of its headers, or of the length of a chunk, every 20 seconds never exceeds it.  What may
not end is therefore done by a thread, which is left alone when its time is over.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterator
from queue import Empty, Full, Queue, SimpleQueue
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    import requests

T = TypeVar("T")
PIECE = 1 << 16
WAITING = 16  # pieces that arrived and are not taken yet
POLL_S = 0.2


def within(seconds: float, do: Callable[[], T]) -> T:
    """What `do` returns.  Raises TimeoutError if it takes longer, and what `do` raises."""
    done: SimpleQueue[tuple[T] | BaseException] = SimpleQueue()

    def answer() -> None:
        try:
            done.put((do(),))
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            done.put(error)

    threading.Thread(target=answer, daemon=True).start()
    try:
        found = done.get(timeout=seconds)
    except Empty:
        raise TimeoutError(f"no answer within {seconds:g} s") from None
    if isinstance(found, BaseException):
        raise found
    return found[0]


def find_headers(url: str, seconds: float, *, verify: str | bool = True) -> requests.Response:
    """What a server answers to HEAD, all redirects followed.

    Raises TimeoutError after so many seconds altogether, and RequestException.
    """
    import requests  # slow to import, and `build` does not need it

    return within(
        seconds, lambda: requests.head(url, allow_redirects=True, timeout=seconds, verify=verify)
    )


@contextlib.contextmanager
def answered(
    url: str, seconds: float, *, headers: dict[str, str], verify: str | bool = True
) -> Iterator[requests.Response]:
    """What a server answers to GET; its body is for pieces_of().

    Raises TimeoutError if the headers take longer than so many seconds altogether, and
    RequestException.
    """
    import requests

    answer = within(
        seconds,
        lambda: requests.get(url, headers=headers, stream=True, timeout=seconds, verify=verify),
    )
    try:
        yield answer
    finally:
        # A thread may be reading: close() would wait for it, and this ends it.
        with contextlib.suppress(AttributeError, OSError, ValueError):
            answer.raw.shutdown()


def pieces_of(answer: requests.Response, ask: Callable[[], None]) -> Iterator[bytes]:
    """The body as it arrives; `ask` is called all the time, and raises if it arrives too slowly.

    Raises what `ask` raises, and RequestException and HTTPError (of urllib3).
    """
    arrived: Queue[bytes | BaseException] = Queue(WAITING)
    ended = threading.Event()

    def put(what: bytes | BaseException) -> None:
        while not ended.is_set():
            with contextlib.suppress(Full):
                arrived.put(what, timeout=POLL_S)
                return

    def read() -> None:
        try:
            while not ended.is_set() and (piece := answer.raw.read1(PIECE)):
                put(piece)
            put(b"")
        except BaseException as error:  # noqa: BLE001  it is raised where it is waited for
            put(error)
        finally:
            answer.close()

    threading.Thread(target=read, daemon=True).start()
    try:
        while True:
            ask()
            with contextlib.suppress(Empty):
                found = arrived.get(timeout=POLL_S)
                if isinstance(found, BaseException):
                    raise found
                if not found:
                    return
                yield found
    finally:
        ended.set()
