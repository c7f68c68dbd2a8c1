# SPDX-License-Identifier: Apache-2.0
"""Nodes are asked for ssh with one connection each, however long they take to greet."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from imagebuilder.serve.ssh_probe import PATIENCE, PAUSE, REFUSED, SshProbes

HERE = "127.0.0.1"


class Clock:
    """Seconds that pass when told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def server() -> Iterator[socket.socket]:
    """A listening socket."""
    with socket.create_server((HERE, 0)) as listening:
        listening.settimeout(5)
        yield listening


def soon(holds: Callable[[], object]) -> bool:
    """Whether it holds within five seconds."""
    end = time.monotonic() + 5
    while time.monotonic() < end:
        if holds():
            return True
        time.sleep(0.01)
    return False


def is_waiting(server: socket.socket) -> bool:
    """Whether somebody has connected; they are hung up on."""
    server.settimeout(0.2)
    try:
        server.accept()[0].close()
    except TimeoutError:
        return False
    return True


def test_a_slow_server_is_waited_for_with_one_connection(
    clock: Clock, server: socket.socket
) -> None:
    probes = SshProbes(clock, server.getsockname()[1])
    assert probes.find_open([HERE]) == []
    with server.accept()[0] as node:
        clock.now = PATIENCE - 1
        assert probes.find_open([HERE]) == []
        node.sendall(b"SSH-2.0-test\r\n")
        assert soon(lambda: probes.find_open([HERE]) == [HERE])
    assert not is_waiting(server)


def test_who_greeted_is_asked_again_soon(clock: Clock, server: socket.socket) -> None:
    """A node that boots once more at once is not unknown for as long as a greeting may take."""
    probes = SshProbes(clock, server.getsockname()[1])
    for now in (0.0, REFUSED):
        clock.now = now
        assert probes.find_open([HERE]) == []
        with server.accept()[0] as node:
            node.sendall(b"SSH-2.0-test\r\n")
            assert soon(lambda: probes.find_open([HERE]) == [HERE])
    probes.find_open([])


def test_a_refused_connection_is_tried_again_soon(clock: Clock, server: socket.socket) -> None:
    port = server.getsockname()[1]
    server.close()
    probes = SshProbes(clock, port)
    assert soon(lambda: not probes.find_open([HERE]) and probes.probes[HERE].line is None)
    with socket.create_server((HERE, port)) as opened:
        probes.find_open([HERE])
        assert not is_waiting(opened)
        clock.now = REFUSED
        probes.find_open([HERE])
        assert is_waiting(opened)
    probes.find_open([])


def test_who_hangs_up_is_asked_again_after_a_pause(clock: Clock, server: socket.socket) -> None:
    probes = SshProbes(clock, server.getsockname()[1])
    probes.find_open([HERE])
    assert is_waiting(server)
    assert soon(lambda: not probes.find_open([HERE]) and probes.probes[HERE].line is None)
    clock.now = REFUSED
    probes.find_open([HERE])
    assert not is_waiting(server)
    clock.now = PAUSE
    probes.find_open([HERE])
    assert is_waiting(server)
    probes.find_open([])


def test_who_never_greets_is_given_up_and_who_is_not_asked_for_forgotten(
    clock: Clock, server: socket.socket
) -> None:
    probes = SshProbes(clock, server.getsockname()[1])
    probes.find_open([HERE])
    with server.accept()[0] as node:
        clock.now = PATIENCE
        assert probes.find_open([HERE]) == []
        node.settimeout(5)
        assert node.recv(1) == b""
    assert probes.find_open([]) == []
    assert probes.probes == {}


def test_something_else_than_ssh_is_not_ssh(clock: Clock, server: socket.socket) -> None:
    probes = SshProbes(clock, server.getsockname()[1])
    probes.find_open([HERE])
    with server.accept()[0] as node:
        node.sendall(b"220 mail\r\n")
        assert soon(lambda: not probes.find_open([HERE]) and probes.probes[HERE].line is None)


def test_what_is_no_address_is_no_door(clock: Clock) -> None:
    probes = SshProbes(clock)
    assert probes.find_open(["1..2", "no address\x00", "999.1.1.1"]) == []
    clock.now = PAUSE + 1
    assert probes.find_open(["1..2"]) == []
