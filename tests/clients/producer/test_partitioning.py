"""The producer and its partitioner: users' own, those that fail, brokers that take nothing (M2)."""

import asyncio
import logging
from random import Random
from typing import Any

import pytest

from bench.partitioner_requests import count_requests
from odradek.clients import Producer
from odradek.model import KafkaError
from odradek.partitioners import PARTITIONER_NAMES, ClusterView
from odradek.partitioners.adaptive import AdaptivePartitioner
from odradek.protocol.api import ApiKey
from odradek.testing import Simulation


class Scripted:
    """Returns or raises one after the other, then 0."""

    def __init__(self, *results: Any) -> None:
        self.results = list(results)

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> Any:
        result = self.results.pop(0) if self.results else 0
        if isinstance(result, Exception):
            raise result
        return result


@pytest.mark.parametrize(
    ("result", "sentence"),
    [
        (ValueError("no idea"), "partitioner Scripted failed for a record of topic 't': ValueError: no idea"),
        (KeyError(), "failed for a record of topic 't': KeyError"),
        (None, "'NoneType' object cannot be interpreted as an integer"),
        ("1", "'str' object cannot be interpreted"),
        (1.0, "'float' object cannot be interpreted"),
        (2, "returned partition 2 of topic 't', which has partitions 0 to 1"),
        (-1, "returned partition -1"),
    ],
)
def test_a_partitioner_that_fails_fails_its_send_alone(
    play: Any, values: Any, new_log: Any, result: Any, sentence: str
) -> None:
    """M2: nothing else is lost, and no memory."""
    log = new_log()

    async def scene(producer: Producer) -> None:
        free = producer.metrics()["buffer_available_bytes"]
        before = await producer.send("t", b"before", partition=0)
        with pytest.raises(KafkaError, match=sentence):
            await producer.send("t", b"refused")
        await producer.send("t", b"after")
        await producer.flush()
        assert before.done()
        assert producer.metrics()["buffer_available_bytes"] == free

    play(log, scene, partitioner=Scripted(result))
    assert values(log) == [b"before", b"after"]


def test_memory_granted_to_a_record_whose_partitioner_fails_is_for_the_next(
    play: Any, values: Any, new_log: Any
) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        await producer.send("t", b"a" * 800, partition=0)
        async with asyncio.timeout(10):
            results = await asyncio.gather(*(producer.send("t", b"b" * 800) for _ in range(2)), return_exceptions=True)
        assert sorted(isinstance(result, KafkaError) for result in results) == [False, True]

    play(log, scene, partitioner=Scripted(ValueError()), buffer_memory=1_000, linger_ms=0)
    assert values(log) == [b"a" * 800, b"b" * 800]


class FailsLater(Scripted):
    """A load-aware partitioner whose notifications fail."""

    def on_appended(self, *_: Any, **__: Any) -> None:
        raise ValueError("appended")

    def update_load(self, *_: Any, **__: Any) -> None:
        raise ValueError("load")


def test_an_exception_of_a_partitioner_after_the_append_is_logged_once(
    play: Any, values: Any, new_log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        for number in range(3):
            await (await producer.send("t", b"%d" % number))

    with caplog.at_level(logging.ERROR, "odradek.clients"):
        play(log, scene, partitioner=FailsLater())
    assert values(log) == [b"0", b"1", b"2"]
    assert [record.getMessage() for record in caplog.records] == [
        "FailsLater.on_appended failed; it is not notified of loads any more"
    ]


@pytest.mark.parametrize(("timeout_ms", "skips"), [(0, False), (300, True)])
def test_adaptive_skips_a_broker_that_takes_nothing_for_the_availability_timeout(
    simulation: Simulation, broker: Any, other_broker: Any, new_log: Any, timeout_ms: int, *, skips: bool
) -> None:
    """M2, KIP-794: `partitioner.availability.timeout.ms`."""

    async def main() -> None:
        broker.nodes.append(other_broker)
        broker.topics["t"] = {0: broker.node_id, 1: other_broker.node_id}
        broker.answers[ApiKey.PRODUCE] = new_log()
        other_broker.answers[ApiKey.PRODUCE] = lambda _: None
        await broker.start()
        await other_broker.start()
        producer = Producer(
            broker.address,
            runtime=simulation.runtime("client"),
            partitioner_availability_timeout_ms=timeout_ms,
            batch_size=100,
            linger_ms=0,
            acks=1,
        )
        async with producer:
            placed = []
            for _ in range(400):
                future = await producer.send("t", b"x" * 100)
                await asyncio.sleep(0.005)
                placed.append(0 if future.done() else 1)
            # Without the timeout, a queue that grows is chosen rarely, yet again and again.
            assert (1 not in placed[200:]) == skips
            assert 1 in placed
            await producer.close(timeout_ms=0)

    simulation.run(main())


class Notified(AdaptivePartitioner):
    """Of another class than `AdaptivePartitioner`, so that the producer notifies it of each record."""


def test_the_adaptive_partitioner_is_notified_of_sums_and_chooses_as_if_of_each_record(
    simulation: Simulation, broker: Any, new_log: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    notified, on_appended = 0, AdaptivePartitioner.on_appended

    def counted(*arguments: Any, **options: Any) -> None:
        nonlocal notified
        notified += 1
        on_appended(*arguments, **options)

    async def placed(kind: type[AdaptivePartitioner]) -> tuple[list[int], int]:
        nonlocal notified
        notified = 0
        partitioner = kind(entropy=Random(1), batch_size=4000)
        settings = {"partitioner": partitioner, "batch_size": 4000, "linger_ms": 9000}
        async with Producer(broker.address, runtime=simulation.runtime("client"), **settings) as producer:
            futures = []
            for _ in range(1000):
                futures.append(await producer.send("t", b"x" * 100))
                await asyncio.sleep(0.01)  # full batches are sent at once
            await producer.flush()
        return [future.result().partition for future in futures], notified

    async def main() -> None:
        broker.topics["t"] = dict.fromkeys(range(5), broker.node_id)
        broker.answers[ApiKey.PRODUCE] = new_log()
        await broker.start()
        by_record, each = await placed(Notified)
        by_sum, few = await placed(AdaptivePartitioner)
        assert by_sum == by_record
        assert len(set(by_sum)) == 5
        assert each == 1000
        assert few < 200, "a few times for each batch"

    monkeypatch.setattr(AdaptivePartitioner, "on_appended", counted)
    simulation.run(main())


def test_sticky_partitioners_need_fewer_requests() -> None:
    """M2: fewer, fuller batches are what they are for; docs/producer.md has the figures."""
    counts = {name: count_requests(name, records=500, per_second=5_000) for name in PARTITIONER_NAMES}
    one_by_one = min(counts["classic"], counts["round_robin"])
    for name in ("sticky", "uniform_sticky", "adaptive"):
        assert counts[name].requests < one_by_one.requests / 1.5, counts
        assert counts[name].batches < one_by_one.batches / 3, counts
