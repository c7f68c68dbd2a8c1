# SPDX-License-Identifier: Apache-2.0
"""Events reach readers in order; who missed some is told to read everything again."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import ExitStack

from starlette.types import Message

from imagebuilder.web.connection import networks_of
from imagebuilder.web.stream import KEPT, WAITING, Broker, EventStream
from tests.integration.started import PATIENCE


def publish(broker: Broker, many: int) -> None:
    for number in range(many):
        broker.publish("node", {"node": f"n{number}"})


def test_a_reader_gets_what_comes_after_it() -> None:
    broker = Broker()
    publish(broker, 3)
    with broker.reading("") as reader:
        publish(broker, 2)
        text = broker.drain(reader)
        assert [line for line in text.splitlines() if line.startswith("data")] == [
            'data: {"node":"n0"}', 'data: {"node":"n1"}',
        ]  # fmt: skip
        assert broker.drain(reader) == ""
    assert broker.readers == []


def test_who_comes_back_gets_what_was_missed() -> None:
    broker = Broker()
    publish(broker, 3)
    with broker.reading(f"{broker.start}-1") as reader:
        assert broker.drain(reader).count("event: node") == 2
    with broker.reading(broker.last_id) as reader:
        assert broker.drain(reader) == ""


def test_who_was_away_for_too_long_reads_everything_again() -> None:
    broker = Broker()
    publish(broker, KEPT + 5)
    for last in (f"{broker.start}-1", "other-7", "<script>"):
        with broker.reading(last) as reader:
            text = broker.drain(reader)
            assert text.count("event:") == 1
            assert "event: resync" in text
            assert last not in text


def test_who_reads_too_slowly_reads_everything_again() -> None:
    broker = Broker()
    with broker.reading("") as reader:
        publish(broker, WAITING + 1)
        assert len(reader.events) <= WAITING
        text = broker.drain(reader)
        assert "event: resync" in text
        assert text.count("event:") == 1
        publish(broker, 1)
        assert broker.drain(reader).count("event: node") == 1


def test_a_value_cannot_end_its_event() -> None:
    broker = Broker()
    with broker.reading("") as reader:
        broker.publish("node", {"words": "a\n\nevent: resync\rdata: {}\u2028"})
        lines = broker.drain(reader).splitlines()
    assert [line.partition(":")[0] for line in lines] == ["id", "event", "data", ""]


def test_a_stream_ends_with_its_reader_and_with_the_server() -> None:
    async def run() -> list[str]:
        broker, sent, gone = Broker(), list[str](), asyncio.Event()

        async def receive() -> Message:
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.body":
                sent.append(message["body"].decode())

        def start() -> asyncio.Task[None]:
            stream = EventStream(broker, "")
            return asyncio.create_task(stream({"type": "http", "method": "GET"}, receive, send))

        async def until(happened: Callable[[], bool]) -> None:
            async with asyncio.timeout(PATIENCE):
                while not happened():
                    await asyncio.sleep(0)

        first = start()
        await until(lambda: len(sent) == 1)
        broker.publish("node", {})
        await until(lambda: len(sent) == 2)
        broker.close()
        await asyncio.wait_for(first, PATIENCE)
        broker.closed = False
        second = start()
        await until(lambda: len(broker.readers) == 1)
        gone.set()
        await asyncio.wait_for(second, PATIENCE)
        assert broker.readers == []
        return sent

    sent = asyncio.run(run())
    assert "event: hello" in sent[0]
    assert "event: node" in sent[1]
    assert sent[2] == ""


def test_streams_of_many_addresses_keep_nobody_out() -> None:
    """One stream each of all addresses of a network: whoever comes gets one, and keeps it."""
    broker, others = Broker(streams=100), networks_of("192.0.2.7")
    with ExitStack() as stack:
        ours = stack.enter_context(broker.reading("", others))
        held = [
            stack.enter_context(broker.reading("", networks_of(f"10.9.{n // 200}.{n % 200}")))
            for n in range(1000)
        ]
        assert not ours.ended
        assert [reader.ended for reader in held].count(False) == 99
        late = stack.enter_context(broker.reading("", networks_of("10.9.0.1")))
        assert not late.ended, "and of their network, the last that came"
        assert len(broker.readers) == 100
    assert broker.readers == []


def test_of_a_network_the_address_with_the_most_streams_loses_one() -> None:
    broker = Broker(streams=4)
    with ExitStack() as stack:
        addresses = ("10.0.0.1", *["10.0.0.2"] * 3)
        one, *three = (
            stack.enter_context(broker.reading("", networks_of(each))) for each in addresses
        )
        stack.enter_context(broker.reading("", networks_of("10.0.0.3")))
        assert not one.ended
        assert [reader.ended for reader in three] == [True, False, False]
