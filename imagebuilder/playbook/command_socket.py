# SPDX-License-Identifier: Apache-2.0
"""The only way from Ansible's sandbox into the root's: a socket that takes commands.

Ansible's side has no rights over the other sandbox; it can only run commands in it.  A connection
is one command: a line of JSON (its words), then its stdin; the answer is a JSON object.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

from imagebuilder.errors import ImagebuilderError
from imagebuilder.process import Completed, ExcessError, Word, Wrapper, run
from imagebuilder.untrusted import fit

NAME = "commands"
# Bytes that a command may print: they are kept here, and as JSON, and Ansible keeps its results.
MOST_SAID = 64 << 20
TOO_MUCH = (
    f"the command printed more than {MOST_SAID >> 20} MiB, and was stopped: write its output to a "
    "file, and remove that again"
)
FAILED = 1


@contextmanager
def socket_address(folder: Path) -> Iterator[str]:
    """The address of the socket in `folder`, short enough for unix(7) even for a deep folder."""
    number = os.open(folder, os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{number}/{NAME}"
    finally:
        os.close(number)


@contextmanager
def command_socket(folder: Path, sandbox: Wrapper) -> Iterator[None]:
    """Run the commands that come through the socket in `folder` in `sandbox`, one by one."""
    with closing(socket.socket(socket.AF_UNIX)) as listening, ThreadPoolExecutor(1) as pool:
        with socket_address(folder) as address:
            listening.bind(address)
        listening.listen()
        serving = pool.submit(serve, listening, sandbox)
        try:
            yield
        finally:
            listening.shutdown(socket.SHUT_RDWR)
            serving.result()


def serve(listening: socket.socket, sandbox: Wrapper) -> None:
    """Answer until the socket is shut down."""
    while True:
        try:
            connection, _ = listening.accept()
        except OSError:
            return
        with connection, suppress(OSError, ValueError):  # an invalid command gets no answer
            answer(connection, sandbox)


def answer(connection: socket.socket, sandbox: Wrapper) -> None:
    """Run the command of one connection, and say how it ended, or why it could not run.

    Raises OSError, ValueError if nobody can be told.
    """
    with connection.makefile("rb") as stream, TemporaryFile() as stdin:
        argv = [str(word) for word in json.loads(stream.readline())]
        shutil.copyfileobj(stream, stdin)
        stdin.seek(0)
        try:
            done = run(argv, sandbox=sandbox, stdin=stdin, most=MOST_SAID, check=False)
        except ExcessError:
            done = Completed(FAILED, "", TOO_MUCH)
        except (ImagebuilderError, OSError, ValueError) as error:
            done = Completed(FAILED, "", f"could not run {fit(' '.join(argv))}: {error}")
    connection.sendall(json.dumps(asdict(done)).encode())


def ask(folder: Path, argv: Sequence[Word], stdin: bytes | IO[bytes] | None = None) -> Completed:
    """Run a command on the other side.  Raises OSError."""
    with closing(socket.socket(socket.AF_UNIX)) as connection:
        with socket_address(folder) as address:
            connection.connect(address)
        connection.sendall(json.dumps([os.fspath(word) for word in argv]).encode() + b"\n")
        if isinstance(stdin, bytes):
            connection.sendall(stdin)
        elif stdin is not None:
            connection.sendfile(stdin)
        connection.shutdown(socket.SHUT_WR)
        with connection.makefile("rb") as stream:
            result = stream.read()
    if not result:
        raise OSError("the sandbox of the root has ended")
    return Completed(**json.loads(result))
