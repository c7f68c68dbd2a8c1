# SPDX-License-Identifier: Apache-2.0
"""Questions and answers of DHCP, byte by byte."""

from __future__ import annotations

import struct
from ipaddress import IPv4Address

from hypothesis import given
from hypothesis import strategies as st

from imagebuilder.serve.discover import Server, checksum, discover, frame, parse_offer, parse_reply

XID = b"\x01\x02\x03\x04"
CLIENT = bytes.fromhex("020000000001")
SERVER_MAC = bytes.fromhex("0200000000fe")


def answer(options: bytes, *, offered: str = "10.0.0.9", xid: bytes = XID) -> bytes:
    """A frame from a DHCP server at 10.0.0.1."""
    message = bytearray(discover(CLIENT, xid))
    message[0] = 2
    message[16:20] = IPv4Address(offered).packed
    sent = bytearray(frame(CLIENT, bytes(message[:240]) + options))
    sent[6:12] = SERVER_MAC
    sent[34:38] = struct.pack("!HH", 67, 68)
    return bytes(sent)


OFFER = b"\x35\x01\x02\x36\x04\x0a\x00\x00\x01\xff"


def test_a_question_is_a_valid_packet() -> None:
    sent = frame(CLIENT, discover(CLIENT, XID, (60, b"PXEClient")))
    assert sent[:14] == b"\xff" * 6 + CLIENT + b"\x08\x00"
    assert checksum(sent[14:34]) == 0
    length, udp_length = struct.unpack("!H", sent[16:18])[0], struct.unpack("!H", sent[38:40])[0]
    assert (length, udp_length) == (len(sent) - 14, len(sent) - 34)
    assert sent[42:46] == b"\x01\x01\x06\x00"
    assert b"\x3c\x09PXEClient" in sent
    assert sent.endswith(b"\xff")


def test_an_offer_names_its_server() -> None:
    expected = Server(IPv4Address("10.0.0.1"), "02:00:00:00:00:fe", IPv4Address("10.0.0.9"))
    assert parse_offer(answer(OFFER), XID) == expected
    assert parse_offer(answer(b"\0\0" + OFFER), XID) == expected


def test_other_answers_are_none() -> None:
    assert parse_offer(answer(OFFER, xid=b"abcd"), XID) is None
    assert parse_offer(answer(OFFER, offered="0.0.0.0"), XID) is None  # a proxy
    assert parse_offer(answer(OFFER.replace(b"\x35\x01\x02", b"\x35\x01\x05")), XID) is None
    assert parse_offer(answer(b"\x35\x01\x02\xff"), XID) is None  # nobody's
    assert parse_offer(frame(CLIENT, discover(CLIENT, XID)), XID) is None  # a question


@given(st.binary(max_size=400), st.integers(0, 330))
def test_garbage_is_no_answer_and_no_error(garbage: bytes, at: int) -> None:
    parse_reply(garbage, XID)
    whole = answer(OFFER)
    parse_offer(whole[:at] + garbage, XID)
