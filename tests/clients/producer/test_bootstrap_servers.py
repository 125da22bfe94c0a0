"""Bootstrap servers that are no Kafka brokers, expect TLS, or are slow; and producers that nobody closes properly."""

import asyncio
import gc
from collections.abc import Callable
from typing import Any

import pytest

from odradek.clients import Producer
from odradek.model import UnavailableError
from odradek.protocol.api import ApiKey
from odradek.testing import Cluster, Simulation
from tests.world.scenes import in_simulation


class Foreign(asyncio.Protocol):
    """A server that answers the first bytes with `answer`: bytes, None (nothing), or "close"."""

    def __init__(self, answer: bytes | str | None) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if isinstance(self._answer, bytes):
            self._transport.write(self._answer)
        elif self._answer == "close":
            self._transport.close()


OR_TLS = "is not a Kafka broker, or expects TLS: set security.protocol to SSL or SASL_SSL"


@pytest.mark.parametrize(
    ("answer", "sentence"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "it is not a Kafka broker: it answers in HTTP"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "it is not a Kafka broker: it answers in SSH"),
        (b"\x15\x03\x03\x00\x02\x02\x16", "it expects TLS: set security.protocol to SSL or SASL_SSL"),
        (b"\x16\x03\x01\x00\x05hello", "it expects TLS: set security.protocol"),
        (b"-ERR unknown command\r\n", "it sent a frame of"),
        ("close", f"it closed the connection before it answered ApiVersions: it {OR_TLS}"),
        (None, f"it did not answer ApiVersions within 1000 ms: it is too slow, {OR_TLS}"),
    ],
)
@in_simulation
async def test_a_server_that_is_no_plain_kafka_broker_is_named_with_the_reason(
    simulation: Simulation, answer: bytes | str | None, sentence: str
) -> None:
    listener = await simulation.runtime("web").network.listen(lambda: Foreign(answer), "web", 80)
    producer = Producer(
        "web:80",
        runtime=simulation.runtime("client"),
        max_block_ms=3_000,
        socket_connection_setup_timeout_ms=1_000,
    )
    with pytest.raises(UnavailableError, match=f"no broker answers: broker web:80: {sentence}"):
        await producer.start()
    # Within its time, and what it was goes on after a failed start.
    assert simulation.clock.elapsed_s < 6
    with pytest.raises(UnavailableError, match="the producer is not started"):
        await producer.send("t", b"v")
    await producer.close()
    listener.close()
    await asyncio.sleep(1)
    assert len(asyncio.all_tasks()) == 1


@in_simulation
async def test_a_slow_broker_is_waited_for(simulation: Simulation, broker: Any, new_log: Any) -> None:
    def slowly(answer: Callable[[Any], Any]) -> Any:
        async def respond(request: Any) -> Any:
            await asyncio.sleep(4)
            return answer(request)

        return respond

    broker.topics["t"] = {0: broker.node_id}
    for api in (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.INIT_PRODUCER_ID):
        broker.answers[api] = slowly(broker.answers[api])
    broker.answers[ApiKey.PRODUCE] = slowly(new_log())
    await broker.start()
    async with Producer(broker.address, runtime=simulation.runtime("client")) as producer:
        assert (await (await producer.send("t", b"v"))).offset == 0


@in_simulation
async def test_a_start_that_failed_may_be_repeated(simulation: Simulation, broker: Any, new_log: Any) -> None:
    """The metadata is kept current afterwards: a leader that moves is found."""
    log = new_log()
    producer = Producer(broker.address, runtime=simulation.runtime("client"), max_block_ms=500)
    with pytest.raises(UnavailableError, match="connection refused"):
        await producer.start()
    broker.topics["t"] = {0: -1}
    broker.answers[ApiKey.PRODUCE] = log
    await broker.start()
    async with producer:
        waiting = await producer.send("t", b"v")
        await asyncio.sleep(1)
        broker.topics["t"], broker.leader_epoch = {0: broker.node_id}, 1
        async with asyncio.timeout(5):
            await waiting
    with pytest.raises(UnavailableError, match="the producer is closed: create another one"):
        await producer.start()


def test_a_producer_that_is_started_twice_at_once_sends_each_record_once(
    simulation: Simulation, broker: Any, new_log: Any
) -> None:
    log = new_log()

    async def main() -> None:
        broker.topics["t"] = {0: broker.node_id}
        broker.answers[ApiKey.PRODUCE] = log
        await broker.start()
        producer = Producer(broker.address, runtime=simulation.runtime("client"), batch_size=1)
        await asyncio.gather(producer.start(), producer.start(), producer.start())
        async with producer:
            for _ in range(20):
                await producer.send("t", b"v")
                await producer._cluster.refresh()
        assert len(broker.asked(ApiKey.INIT_PRODUCER_ID)) == 1

    simulation.run(main())
    assert [batch.header.base_sequence for batch in log.seen] == list(range(20))


@pytest.mark.parametrize("stage", ["start", "send", "deliver", "flush", "close"])
@in_simulation
async def test_a_cancelled_producer_leaves_no_task_and_no_connection(
    simulation: Simulation, broker: Any, new_log: Any, stage: str
) -> None:
    async def use() -> None:
        async with Producer(broker.address, runtime=simulation.runtime("client"), buffer_memory=1_000) as producer:
            future = await producer.send("t", b"v" * 900)
            if stage == "send":
                await producer.send("t", b"v" * 900)
            if stage == "deliver":
                await future
            if stage == "flush":
                await producer.flush()

    broker.topics["t"] = {0: broker.node_id}
    if stage == "start":
        del broker.answers[ApiKey.METADATA]
    await broker.start()
    using = asyncio.ensure_future(use())
    await asyncio.sleep(0.5)
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await using
    await asyncio.sleep(0.5)
    assert not broker.connections
    assert asyncio.all_tasks() == {asyncio.current_task()}


def test_calls_after_the_event_loop_was_closed_say_so(kafka: Cluster) -> None:
    """The loop of `asyncio.run` ends with it, and connections end with their loop."""

    async def start() -> Producer:
        producer = await Producer(kafka.bootstrap_servers).start()
        await (await producer.send("closed-loop", b"v"))
        await producer._cluster.close()
        return producer

    producer = asyncio.run(start())
    for call in (producer.send("closed-loop", b"w"), producer.flush(), producer.close()):
        with pytest.raises(UnavailableError, match="event loop is closed: create a producer in the running one"):
            asyncio.run(call)
    del producer
    gc.collect()
