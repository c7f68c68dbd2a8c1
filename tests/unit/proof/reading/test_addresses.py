# SPDX-License-Identifier: Apache-2.0
"""Which addresses other machines reach."""

from __future__ import annotations

import pytest

from imagebuilder.proof.reading.texts import host_of, is_local, is_loopback


@pytest.mark.parametrize(
    "text",
    ["127.0.0.1", "127.0.0.1:80", "127.0.0.0/8", "::1", "::1/128", "[::1]:80", "localhost:80",
     "LOCALHOST"],
)  # fmt: skip
def test_addresses_of_the_machine_itself(text: str) -> None:
    assert is_loopback(text)
    assert is_local(text)


@pytest.mark.parametrize(
    "text",
    ["", ":80", "0.0.0.0", "::", "[::]:80", "::10", "127.example.com", "localhost.example.com:80",
     "10.0.0.1:127", "1.2.3.4/8"],
)  # fmt: skip
def test_addresses_that_other_machines_reach(text: str) -> None:
    assert not is_local(text)


@pytest.mark.parametrize("text", ["/run/a", "unix:///run/a", "a.sock"])
def test_sockets_are_local(text: str) -> None:
    assert is_local(text)
    assert not is_loopback(text)


@pytest.mark.parametrize(
    ("text", "host"),
    [("head:29500", "head"), ("[fd00::1]:80", "fd00::1"), ("fd00::1", "fd00::1"), ("a.b", "a.b")],
)
def test_the_host_of_an_address(text: str, host: str) -> None:
    assert host_of(text) == host
