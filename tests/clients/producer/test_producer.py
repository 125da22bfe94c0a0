"""The producer with scripted brokers: ordered retries, limits, close (M2)."""

import asyncio
import logging
from typing import Any

import pytest

from odradek.clients import Producer, RecordMetadata
from odradek.model import ConfigurationError, ErrorCode, InvalidTopicError, KafkaError, UnavailableError
from odradek.partitioners import ClusterView
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import decode_records
from odradek.testing import Simulation


def sequences(log: Any, partition: int = 0) -> list[tuple[int, int]]:
    return [
        (batch.header.producer_epoch, batch.header.base_sequence) for batch in log.taken if batch.partition == partition
    ]


async def send_batches(producer: Producer, count: int) -> list[asyncio.Future[RecordMetadata]]:
    """`count` batches of one record each in partition 0: `batch_size` is 1 byte."""
    return [await producer.send("t", b"%d" % number, partition=0) for number in range(count)]


def test_records_within_linger_ms_are_sent_in_one_batch(play: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        futures = [await producer.send("t", b"%d" % number, key=b"k", partition=1) for number in range(5)]
        delivered = await asyncio.gather(*futures)
        assert [each.offset for each in delivered] == [0, 1, 2, 3, 4]
        assert {each.partition for each in delivered} == {1}

    play(log, scene, linger_ms=20)
    assert [batch.header.record_count for batch in log.taken] == [5]


def test_keys_headers_and_timestamps_arrive_as_they_were_given(play: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        delivered = await producer.send(
            "t", None, b"k", partition=0, timestamp_ms=77, headers={"a": b"1", "nothing": None}
        )
        assert (await delivered).timestamp == 77

    play(log, scene)
    (record,) = decode_records(log.taken[0].records)
    assert (record.key, record.value, record.timestamp) == (b"k", None, 77)
    assert record.headers == (("a", b"1"), ("nothing", None))


def test_a_callback_gets_the_metadata_or_the_error_and_its_own_errors_are_logged(
    play: Any, new_log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    called: list[tuple[RecordMetadata | None, BaseException | None]] = []

    def fail(metadata: RecordMetadata | None, error: BaseException | None) -> None:
        raise ZeroDivisionError

    async def scenario(producer: Producer) -> None:
        await producer.send("t", b"0", callback=fail)
        delivered = await producer.send("t", b"1", callback=lambda *result: called.append(result))
        await producer.flush()
        assert called == [(await delivered, None)], "flush waits for callbacks, too"
        with pytest.raises(TypeError, match="no coroutine function"):
            await producer.send("t", b"2", callback=scenario)
        lost = await producer.send("t", b"3", callback=lambda *result: called.append(result))
        await producer.close(timeout_ms=0)
        await asyncio.sleep(0)
        assert called[1:] == [(None, lost.exception())]

    play(new_log(), scenario)
    assert "Error executing user-provided callback" in caplog.text
    assert "ZeroDivisionError" in caplog.text


def test_the_default_timestamp_is_the_clocks(play: Any, simulation: Simulation, new_log: Any) -> None:
    async def scene(producer: Producer) -> None:
        delivered = await producer.send("t", b"v", partition=0)
        now_ms = simulation.clock.now_ms()
        assert (await delivered).timestamp == now_ms

    play(new_log(), scene)


@pytest.mark.parametrize("code", [ErrorCode.not_leader_or_follower, ErrorCode.not_enough_replicas])
@pytest.mark.parametrize("refused", [1, 3])
def test_batches_with_retriable_errors_are_retried_in_order(
    play: Any, values: Any, broker: Any, new_log: Any, code: ErrorCode, refused: int
) -> None:
    """Five in flight: what comes after a refused one is out of order to the broker, and is sent again after it."""
    log = new_log(*[ErrorCode.none] * refused, code, ErrorCode.out_of_order_sequence_number, code)

    async def scene(producer: Producer) -> None:
        await asyncio.gather(*await send_batches(producer, 12))

    play(log, scene, batch_size=1, linger_ms=0)
    assert values(log) == [b"%d" % number for number in range(12)]
    assert sequences(log) == [(0, number) for number in range(12)]


@pytest.mark.parametrize("refused", [1, 2])
def test_nothing_is_sent_behind_the_first_batch_until_it_is_acknowledged(
    play: Any, values: Any, broker: Any, new_log: Any, refused: int
) -> None:
    """A broker without state of the producer takes any first sequence, so that the first batch would stay behind."""
    log = new_log(*[ErrorCode.not_leader_or_follower] * refused)

    async def scene(producer: Producer) -> None:
        await asyncio.gather(*await send_batches(producer, 12))
        assert producer.metrics()["record_retry_total"] == refused

    play(log, scene, batch_size=1, linger_ms=0)
    assert values(log) == [b"%d" % number for number in range(12)]
    assert sequences(log) == [(0, number) for number in range(12)]


def test_after_unknown_producer_id_the_batch_is_sent_in_a_new_epoch(play: Any, values: Any, new_log: Any) -> None:
    log = new_log(ErrorCode.none, ErrorCode.unknown_producer_id)

    async def scene(producer: Producer) -> None:
        for number in range(3):
            await (await producer.send("t", b"%d" % number, partition=0))

    play(log, scene, linger_ms=0)
    assert values(log) == [b"0", b"1", b"2"]
    assert sequences(log) == [(0, 0), (1, 0), (1, 1)]


def test_after_lost_acknowledged_records_the_rest_is_sent_in_a_new_epoch(play: Any, new_log: Any) -> None:
    log = new_log(ErrorCode.none, ErrorCode.out_of_order_sequence_number)

    async def scene(producer: Producer) -> None:
        for number in range(3):
            await (await producer.send("t", b"%d" % number, partition=0))

    play(log, scene, linger_ms=0)
    assert sequences(log) == [(0, 0), (1, 0), (1, 1)]


def test_a_failed_batch_leaves_no_sequence_gap(play: Any, values: Any, new_log: Any) -> None:
    log = new_log(ErrorCode.none, ErrorCode.invalid_record)

    async def scene(producer: Producer) -> None:
        first, second, third = await send_batches(producer, 3)
        await first
        with pytest.raises(KafkaError, match="t-0: INVALID_RECORD"):
            await second
        await third

    play(log, scene, batch_size=1, linger_ms=0, max_in_flight_requests_per_connection=1)
    assert values(log) == [b"0", b"2"]
    assert sequences(log) == [(0, 0), (1, 0)]


def test_a_duplicate_batch_counts_as_delivered(play: Any, new_log: Any) -> None:
    log = new_log(ErrorCode.duplicate_sequence_number)

    async def scene(producer: Producer) -> None:
        delivered = await (await producer.send("t", b"v", partition=0))
        assert delivered.offset == -1

    play(log, scene)


def test_a_lost_connection_neither_loses_nor_duplicates_records(
    play: Any, values: Any, broker: Any, new_log: Any, close: Any
) -> None:
    """The broker takes the first batch and dies before it says so: the same numbers come again."""
    log = new_log()

    async def scene(producer: Producer) -> None:
        async def take_and_die(request: Any) -> Any:
            log(request)
            broker.answers[ApiKey.PRODUCE] = log
            return close

        broker.answers[ApiKey.PRODUCE] = take_and_die
        await (await producer.send("t", b"v", partition=0))

    play(log, scene)
    assert [batch.header.base_sequence for batch in log.seen] == [0, 0]
    assert values(log) == [b"v"]


def test_records_fail_after_the_delivery_timeout_with_the_last_error(
    play: Any, simulation: Simulation, new_log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    log = new_log(*[ErrorCode.not_enough_replicas] * 1_000)

    async def scene(producer: Producer) -> None:
        started = simulation.clock.elapsed_s
        with (
            caplog.at_level(logging.ERROR, "odradek.clients"),
            pytest.raises(KafkaError, match=r"t-0: not delivered within 3,000 ms: .*NOT_ENOUGH_REPLICAS"),
        ):
            await (await producer.send("t", b"v", partition=0))
        assert simulation.clock.elapsed_s - started == pytest.approx(3.0, abs=0.05)

    play(log, scene, delivery_timeout_ms=3_000, request_timeout_ms=1_000)


def test_batches_after_an_expired_one_are_delivered(play: Any, broker: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda _: None
        lost = await producer.send("t", b"lost", partition=0)
        with pytest.raises(KafkaError, match="not delivered within"):
            await lost
        broker.answers[ApiKey.PRODUCE] = log
        await (await producer.send("t", b"next", partition=0))

    play(log, scene, delivery_timeout_ms=3_000, request_timeout_ms=2_500)
    assert sequences(log) == [(1, 0)]


def test_batches_wait_for_an_unavailable_broker(play: Any, values: Any, broker: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        await (await producer.send("t", b"before", partition=0))
        broker.stop()
        sending = await producer.send("t", b"after", partition=0)
        await asyncio.sleep(20)
        assert not sending.done()
        await broker.start()
        await sending

    play(log, scene)
    assert values(log) == [b"before", b"after"]


def test_a_record_is_sent_soon_after_its_partition_gets_a_leader(
    play: Any, values: Any, broker: Any, new_log: Any
) -> None:
    """Nothing else happens that would let the producer look again: no other record, no answer, no time-out."""
    log = new_log()

    async def scene(producer: Producer) -> None:
        broker.topics["t"], broker.leader_epoch = {0: -1, 1: broker.node_id}, 1
        waiting = await producer.send("t", b"1", partition=0)
        await asyncio.sleep(10)
        assert not waiting.done()
        broker.topics["t"], broker.leader_epoch = {0: broker.node_id, 1: broker.node_id}, 2
        async with asyncio.timeout(2):
            await waiting

    broker.topics["t"], broker.leader_epoch = {0: -1, 1: broker.node_id}, 1
    play(log, scene)
    assert values(log) == [b"1"]


def test_batches_follow_a_leader_change(play: Any, values: Any, broker: Any, other_broker: Any, new_log: Any) -> None:
    log, other_log = new_log(ErrorCode.not_leader_or_follower), new_log()

    async def scene(producer: Producer) -> None:
        await other_broker.start()
        broker.topics["t"] = {0: other_broker.node_id, 1: broker.node_id}
        broker.leader_epoch = 1
        await (await producer.send("t", b"v", partition=0))

    broker.nodes.append(other_broker)
    other_broker.answers[ApiKey.PRODUCE] = other_log
    play(log, scene)
    assert (values(log), values(other_log)) == ([], [b"v"])


def test_send_waits_for_buffer_memory(
    play: Any, values: Any, simulation: Simulation, broker: Any, new_log: Any
) -> None:
    log = new_log()
    blocked: list[float] = []

    async def scene(producer: Producer) -> None:
        async def slowly(request: Any) -> Any:
            await asyncio.sleep(1.0)
            return log(request)

        broker.answers[ApiKey.PRODUCE] = slowly
        for _ in range(10):
            before = simulation.clock.elapsed_s
            await producer.send("t", b"x" * 400, partition=0)
            blocked.append(simulation.clock.elapsed_s - before)

    play(log, scene, buffer_memory=2_000, batch_size=500)
    assert max(blocked) > 0.5
    assert len(values(log)) == 10


def test_send_fails_if_no_buffer_memory_is_freed_in_time(play: Any, broker: Any, new_log: Any) -> None:
    async def scene(producer: Producer) -> None:
        broker.answers[ApiKey.PRODUCE] = lambda _: None
        await producer.send("t", b"x" * 900, partition=0)
        with pytest.raises(UnavailableError, match=r"no room for a record within 500 ms.*buffer_memory"):
            await producer.send("t", b"x" * 900, partition=0)
        await producer.close(timeout_ms=0)

    play(new_log(), scene, buffer_memory=1_000, max_block_ms=500)


def test_with_acks_0_send_does_not_wait_for_a_response(play: Any, values: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        delivered = await (await producer.send("t", b"v", partition=0))
        assert delivered.offset == -1
        await asyncio.sleep(1.0)

    def take(request: Any) -> None:
        log(request)

    play(take, scene, acks=0)
    assert values(log) == [b"v"]
    assert log.taken[0].header.producer_id == -1


def test_flush_waits_for_everything_that_was_sent_so_far(play: Any, simulation: Simulation, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        futures = await send_batches(producer, 3)
        await producer.flush()
        assert all(future.done() for future in futures)
        assert simulation.clock.elapsed_s < 5.0

    play(log, scene, linger_ms=60_000, delivery_timeout_ms=200_000)


def test_after_an_error_in_its_block_a_producer_closes_without_waiting_and_logs_what_is_lost(
    simulation: Simulation, broker: Any, new_log: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        broker.topics["t"] = {0: 0}
        await broker.start()
        async with Producer(broker.address, runtime=simulation.runtime("client")) as producer:
            lost = await producer.send("t", b"v")
            raise ValueError("the application")
        assert lost

    with pytest.raises(ValueError, match="the application"):
        simulation.run(main())
    assert simulation.clock.elapsed_s < 5.0
    assert caplog.messages == ["The producer was closed with undelivered records: 1, of topics t"]


def test_a_producer_that_is_dropped_with_undelivered_records_warns(
    simulation: Simulation, broker: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def main() -> None:
        broker.topics["t"] = {0: 0}
        broker.topics["u"] = {0: 0}
        await broker.start()
        producer = await Producer(broker.address, runtime=simulation.runtime("client")).start()
        for topic in ("u", "t", "t"):
            await producer.send(topic, b"v")
        with pytest.warns(ResourceWarning, match=r"not closed: use it in .* Undelivered records: 3, of topics t, u$"):
            del producer

    simulation.run(main())
    (line,) = caplog.messages
    assert line.endswith("Undelivered records: 3, of topics t, u")


def test_a_topic_that_is_not_created_in_time_is_an_error(play: Any, new_log: Any) -> None:
    async def scene(producer: Producer) -> None:
        with pytest.raises(KafkaError, match="there is no topic 'nope'"):
            await producer.send("nope", b"v")
        with pytest.raises(InvalidTopicError):
            await producer.send("not/a/name", b"v")
        with pytest.raises(KafkaError, match="no partition 9, only 2 of them"):
            await producer.send("t", b"v", partition=9)

    play(new_log(), scene, max_block_ms=1_000)


def test_send_waits_for_a_topic_that_is_being_created(play: Any, values: Any, broker: Any, new_log: Any) -> None:
    """As in auto-creation: LEADER_NOT_AVAILABLE at first."""
    log = new_log()

    async def scene(producer: Producer) -> None:
        async def create_soon() -> None:
            await asyncio.sleep(0.5)
            broker.topics["late"] = {0: 0}
            del broker.topic_errors["late"]

        broker.topic_errors["late"] = ErrorCode.leader_not_available
        creating = asyncio.ensure_future(create_soon())
        await (await producer.send("late", b"v"))
        await creating

    play(log, scene)
    assert values(log) == [b"v"]


def test_a_running_producer_does_not_recreate_a_deleted_topic(play: Any, broker: Any, new_log: Any) -> None:
    """Only sending may create a topic; looking after known ones may not."""

    async def scene(producer: Producer) -> None:
        await (await producer.send("t", b"v", partition=0))
        first, *_ = broker.asked(ApiKey.METADATA)[1:]
        assert first.message.allow_auto_topic_creation
        before = len(broker.asked(ApiKey.METADATA))
        del broker.topics["t"]
        for _ in range(20):
            await asyncio.sleep(1.0)
            await producer.send("u", b"v", partition=0)
        later = broker.asked(ApiKey.METADATA)[before:]
        about_t = [request for request in later if {topic.name for topic in request.message.topics} == {"t", "u"}]
        assert len(about_t) > 3
        assert not any(request.message.allow_auto_topic_creation for request in about_t[2:])

    broker.topics["u"] = {0: 0}
    play(new_log(), scene, metadata_max_age_ms=2_000)


@pytest.mark.parametrize(("value", "error"), [("text", TypeError), (5, TypeError), (b"x" * 2_000_000, KafkaError)])
def test_an_invalid_record_is_refused_at_once(play: Any, new_log: Any, value: Any, error: type[Exception]) -> None:
    async def scene(producer: Producer) -> None:
        with pytest.raises(error):
            await producer.send("t", value)

    play(new_log(), scene)


class Second:
    """A partitioner of a user's own: everything goes to the topic's last partition."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        return cluster.partitions_for_topic(topic)[-1]


@pytest.mark.parametrize("chosen", [Second(), "classic", "sticky", "adaptive", "round_robin", "uniform_sticky"])
def test_any_partitioner_places_records_without_a_partition(play: Any, values: Any, new_log: Any, chosen: Any) -> None:
    """M2: by name, or an object that inherits nothing."""
    log = new_log()

    async def scene(producer: Producer) -> None:
        for number in range(50):
            await producer.send("t", b"%d" % number)

    play(log, scene, partitioner=chosen, batch_size=100)
    assert sorted(map(int, values(log) + values(log, 1))) == list(range(50))
    if isinstance(chosen, Second):
        assert values(log) == []


def test_a_sticky_partitioner_fills_a_batch_before_it_moves_on(play: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        for number in range(40):
            await producer.send("t", b"%04d" % number)

    play(log, scene, partitioner="sticky", batch_size=200, linger_ms=1_000)
    counts = [batch.header.record_count for batch in log.taken]
    assert sum(counts) == 40
    # All but the last one.
    assert sum(count < 10 for count in counts) <= 1


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"enable_idempotence": True, "acks": 1}, "enable_idempotence needs acks=all"),
        ({"enable_idempotence": True, "max_in_flight_requests_per_connection": 6}, "at most 5"),
        ({"delivery_timeout_ms": 10, "linger_ms": 5}, "delivery_timeout_ms is at least"),
        ({"compression_type": "lzma"}, "compression.type: String must be one of: none, gzip"),
        ({"linger_mss": 5}, "did you mean linger_ms"),
        ({"acks": 2}, "configuration acks: String must be one of"),
        ({"bootstrap_servers": "nowhere"}, "HOST:PORT"),
    ],
)
def test_contradictory_settings_are_refused_with_an_explanation(settings: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        Producer(**settings)
