"""Where a consumer fetches from, and how it goes on after a broker's refusals (KIP-227, KIP-320, KIP-392; M12)."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from odradek.clients import Consumer, LogTruncationError, OffsetAndMetadata
from odradek.clients.consumer.fetching.fetcher import FetchBufferLimit
from odradek.clients.consumer.subscription_state import TopicPartitionState
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.messages.fetch import FetchedPartition
from odradek.simulation.world import World
from odradek.testing import Simulation
from tests.clients.scenarios import T0, T1, create, fill, poll_all
from tests.world.scenes import in_world, played_by

MAX_AGE_MS = 60_000
Scene = Callable[[Consumer], Awaitable[None]]


def records(first: int, count: int, *, number: int = 0, leader_epoch: int = 0, **more: Any) -> FetchedPartition:
    batch = encode_batch(
        [(0, None, b"%d" % offset, ()) for offset in range(first, first + count)],
        base_offset=first,
        leader_epoch=leader_epoch,
    )
    return FetchedPartition(number, high_watermark=first + count, records=bytes(batch), **more)


def refusal(code: ErrorCode) -> FetchedPartition:
    return FetchedPartition(0, error_code=code.value)


def play(simulation: Simulation, brokers: list[Any], scene: Scene, **settings: Any) -> None:
    """A consumer that is assigned t-0, which the first of the brokers leads."""

    async def main() -> None:
        for each in brokers:
            await each.start()
            each.nodes = brokers
            each.topics = each.topics or {"t": {0: 0}}
        given = {"auto_offset_reset": "none", "metadata_max_age_ms": MAX_AGE_MS, **settings}
        servers, runtime = brokers[0].address, simulation.runtime("reader")
        async with Consumer(bootstrap_servers=servers, runtime=runtime, **given) as consumer:
            consumer.assign([T0])
            consumer.seek(T0, 0)
            await scene(consumer)

    simulation.run(main())


def script(broker: Any, *answers: Any, answer_fetch: Any = None) -> None:
    """Fetches get these answers in turn; then none, as if no records came.

    With `answer_fetch`, a fetch of a leader epoch that is over is refused.
    """
    left = list(answers)

    def answer(request: Any) -> Any:
        if request.message.session_epoch == -1:
            return None  # the consumer closes its session
        if answer_fetch and request.message.topics[0].partitions[0].current_leader_epoch < broker.leader_epoch:
            return answer_fetch(request, [refusal(ErrorCode.fenced_leader_epoch)])
        made = left.pop(0) if left else None
        return made(request) if callable(made) else made

    broker.answers[ApiKey.FETCH] = answer


def fetches(broker: Any) -> list[Any]:
    return [each.message for each in broker.asked(ApiKey.FETCH) if each.message.session_epoch >= 0]


def offset_of(message: Any) -> int:
    return int(message.topics[0].partitions[0].fetch_offset)


async def offsets(consumer: Consumer, timeout_ms: int = 1_000) -> list[int]:
    return [record.offset for record in await consumer.poll(timeout_ms)]


# ---- sessions


def test_an_incremental_fetch_has_only_the_partition_that_returned_records(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    broker.topics = {"t": dict.fromkeys(range(100), 0)}
    script(
        broker,
        lambda request: answer_fetch(request, [FetchedPartition(each) for each in range(100)], session_id=7),
        lambda request: answer_fetch(request, [records(0, 3, number=42)], session_id=7),
    )

    async def scene(consumer: Consumer) -> None:
        partitions = [TopicPartition("t", number) for number in range(100)]
        consumer.assign(partitions)
        for partition in partitions:
            consumer.seek(partition, 0)
        assert await offsets(consumer) == [0, 1, 2]
        await offsets(consumer)
        first, second, third = fetches(broker)
        assert [len(topic.partitions) for topic in first.topics] == [100]
        assert (second.session_id, second.session_epoch, second.topics) == (7, 1, ())
        assert (third.session_id, third.session_epoch) == (7, 2)
        assert [(each.partition, each.fetch_offset) for each in third.topics[0].partitions] == [(42, 3)]

    play(simulation, [broker], scene)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.fetch_session_id_not_found,
        ErrorCode.invalid_fetch_session_epoch,
        ErrorCode.fetch_session_topic_id_error,
    ],
)
def test_a_refused_session_is_followed_by_a_full_fetch_at_once(
    simulation: Simulation, broker: Any, answer_fetch: Any, code: ErrorCode
) -> None:
    script(
        broker,
        lambda request: answer_fetch(request, [records(0, 1)], session_id=7),
        lambda request: answer_fetch(request, [], error_code=code.value),
        lambda request: answer_fetch(request, [records(1, 1)], session_id=8),
    )

    async def scene(consumer: Consumer) -> None:
        assert await offsets(consumer) == [0]
        started = simulation.clock.elapsed_s
        assert await offsets(consumer) == [1]
        assert simulation.clock.elapsed_s - started < 0.1
        await offsets(consumer)
        assert [(each.session_epoch, len(each.topics)) for each in fetches(broker)] == [(0, 1), (1, 1), (0, 1), (1, 1)]

    play(simulation, [broker], scene)


def test_a_broker_that_refuses_full_fetches_too_gets_no_requests_in_a_busy_loop(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    code = ErrorCode.fetch_session_id_not_found.value
    broker.answers[ApiKey.FETCH] = lambda request: answer_fetch(request, [], error_code=code)

    async def scene(consumer: Consumer) -> None:
        assert await offsets(consumer, 10_000) == []
        assert len(fetches(broker)) <= 110

    play(simulation, [broker], scene)


def test_after_a_lost_connection_the_fetch_is_full(
    simulation: Simulation, broker: Any, answer_fetch: Any, close: Any
) -> None:
    script(
        broker,
        lambda request: answer_fetch(request, [records(0, 1)], session_id=7),
        close,
        lambda request: answer_fetch(request, [records(1, 1)], session_id=8),
    )

    async def scene(consumer: Consumer) -> None:
        assert await offsets(consumer) + await offsets(consumer) == [0, 1]
        assert [(each.session_id, each.session_epoch) for each in fetches(broker)[:3]] == [(0, 0), (7, 1), (7, 0)]

    play(simulation, [broker], scene)


def test_a_closed_consumer_closes_its_sessions(simulation: Simulation, broker: Any, answer_fetch: Any) -> None:
    script(broker, lambda request: answer_fetch(request, [records(0, 1)], session_id=7))

    async def scene(consumer: Consumer) -> None:
        await offsets(consumer)
        await consumer.close()
        await asyncio.sleep(1)
        closing = [each.message for each in broker.asked(ApiKey.FETCH) if each.message.session_epoch == -1]
        assert [each.session_id for each in closing] == [7]

    play(simulation, [broker], scene)


# ---- truncation


def end_of_epoch(epoch: int, end_offset: int, code: ErrorCode = ErrorCode.none) -> Callable[[Any], Any]:
    partition = {"error_code": code.value, "partition": 0, "leader_epoch": epoch, "end_offset": end_offset}
    return lambda _: {"topics": [{"topic": "t", "partitions": [partition]}]}


def truncated(
    simulation: Simulation, broker: Any, answer_fetch: Any, answer: Any, scene: Scene, **settings: Any
) -> None:
    """A consumer has read 10 records of epoch 3 when a leader of epoch 5 is elected."""
    broker.leader_epoch = 3
    broker.answers[ApiKey.OFFSET_FOR_LEADER_EPOCH] = answer

    def first(request: Any) -> bytes:
        broker.leader_epoch = 5
        return bytes(answer_fetch(request, [records(0, 10, leader_epoch=3)]))

    script(
        broker,
        first,
        lambda request: answer_fetch(request, [records(offset_of(request.message), 2, leader_epoch=5)]),
        answer_fetch=answer_fetch,
    )
    play(simulation, [broker], scene, **settings)


def test_a_position_that_the_new_leader_has_is_validated_once(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    async def scene(consumer: Consumer) -> None:
        assert await offsets(consumer) == list(range(10))
        assert await offsets(consumer) == [10, 11]
        await offsets(consumer)
        (asked,) = broker.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        (partition,) = asked.message.topics[0].partitions
        assert (partition.leader_epoch, partition.current_leader_epoch) == (3, 5)
        epochs = [each.topics[0].partitions[0].current_leader_epoch for each in fetches(broker)]
        assert (set(epochs[:-2]), epochs[-2:]) == ({3}, [5, 5])

    truncated(simulation, broker, answer_fetch, end_of_epoch(3, 10), scene)


def test_a_position_of_a_newer_epoch_than_the_known_leaders_waits_for_metadata(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    """A former leader that is cut off would answer that the position is out of range."""
    broker.leader_epoch = 3
    script(broker, lambda request: answer_fetch(request, [records(offset_of(request.message), 2, leader_epoch=5)]))

    async def scene(consumer: Consumer) -> None:
        consumer.seek(T0, OffsetAndMetadata(10, "", 5))
        assert await consumer.poll(3_000) == []
        assert not fetches(broker)
        assert not broker.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        assert len(broker.asked(ApiKey.METADATA)) < 100
        broker.leader_epoch = 5
        assert await offsets(consumer) == [10, 11]

    play(simulation, [broker], scene, auto_offset_reset="earliest")


def test_a_truncated_position_is_reset_to_the_divergence(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    async def scene(consumer: Consumer) -> None:
        assert await offsets(consumer) == list(range(10))
        assert await offsets(consumer) == [7, 8]

    truncated(simulation, broker, answer_fetch, end_of_epoch(3, 7), scene, auto_offset_reset="earliest")


def test_a_truncated_position_without_a_reset_policy_is_an_error_until_a_seek(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    async def scene(consumer: Consumer) -> None:
        assert await offsets(consumer) == list(range(10))
        for _ in range(2):
            with pytest.raises(LogTruncationError, match=r"t-0 was truncated: .* at offset 7 .* offset 10") as caught:
                await offsets(consumer)
        assert (caught.value.partition, caught.value.position) == (T0, 10)
        assert caught.value.divergence == OffsetAndMetadata(7, "", 3)
        assert await consumer.position(T0) == 10
        consumer.seek(T0, 7)
        assert await offsets(consumer) == [7, 8]

    truncated(simulation, broker, answer_fetch, end_of_epoch(3, 7), scene)


def test_a_leader_that_does_not_know_the_epoch_resets_by_policy(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    broker.answers[ApiKey.LIST_OFFSETS] = lambda _: {
        "topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 4, "leader_epoch": 5}]}]
    }

    async def scene(consumer: Consumer) -> None:
        assert await offsets(consumer) == list(range(10))
        assert await offsets(consumer) == [4, 5]

    truncated(simulation, broker, answer_fetch, end_of_epoch(-1, -1), scene, auto_offset_reset="earliest")


def test_records_that_were_fetched_and_not_returned_are_dropped_where_the_logs_diverge(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    """Record 3 is the last that the application has; 7 of the 10 are in the new leader's log."""

    async def scene(consumer: Consumer) -> None:
        assert [record.offset for record in await consumer.poll(1_000, max_records=4)] == [0, 1, 2, 3]
        await asyncio.sleep(5)
        assert await offsets(consumer) == [4, 5]

    truncated(simulation, broker, answer_fetch, end_of_epoch(3, 7), scene)


def test_a_refused_validation_is_repeated_with_new_metadata(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    def answer(request: Any) -> Any:
        apis = [each.api for each in broker.requests]
        is_refreshed = ApiKey.METADATA in apis[apis.index(ApiKey.OFFSET_FOR_LEADER_EPOCH) :]
        found = end_of_epoch(3, 10) if is_refreshed else end_of_epoch(-1, -1, ErrorCode.unknown_leader_epoch)
        return found(request)

    async def scene(consumer: Consumer) -> None:
        assert await offsets(consumer) == list(range(10))
        assert await offsets(consumer, 5_000) == [10, 11]
        assert len(broker.asked(ApiKey.OFFSET_FOR_LEADER_EPOCH)) >= 2

    truncated(simulation, broker, answer_fetch, answer, scene)


def test_a_broker_without_the_api_for_consumers_is_fetched_from_unvalidated(
    simulation: Simulation, broker: Any, answer_fetch: Any
) -> None:
    broker.versions[ApiKey.OFFSET_FOR_LEADER_EPOCH] = (0, 2)

    async def scene(consumer: Consumer) -> None:
        assert await offsets(consumer) == list(range(10))
        assert await offsets(consumer) == [10, 11]

    truncated(simulation, broker, answer_fetch, None, scene)


def test_a_refused_permission_is_raised(simulation: Simulation, broker: Any, answer_fetch: Any) -> None:
    async def scene(consumer: Consumer) -> None:
        assert await offsets(consumer) == list(range(10))
        with pytest.raises(KafkaError, match="t-0: TOPIC_AUTHORIZATION_FAILED"):
            await offsets(consumer)

    answer = end_of_epoch(-1, -1, ErrorCode.topic_authorization_failed)
    truncated(simulation, broker, answer_fetch, answer, scene)


# ---- the replica nearby


def nearby(simulation: Simulation, broker: Any, other_broker: Any, answer_fetch: Any, scene: Scene) -> None:
    """The leader, broker 0, sends the consumer to broker 1, which has records from each offset on."""
    far = FetchedPartition(0, high_watermark=10, preferred_read_replica=1)
    broker.answers[ApiKey.FETCH] = lambda request: answer_fetch(request, [far])
    script(other_broker, *[lambda request: answer_fetch(request, [records(offset_of(request.message), 1)])] * 2)
    play(simulation, [broker, other_broker], scene, client_rack="here")


@played_by(nearby)
async def test_a_consumer_fetches_from_the_replica_that_the_leader_names(
    consumer: Consumer, *, broker: Any, other_broker: Any
) -> None:
    assert await offsets(consumer) + await offsets(consumer) + await offsets(consumer) == [0, 1]
    assert [each.rack_id for each in fetches(broker)] == ["here"]
    assert [offset_of(each) for each in fetches(other_broker)] == [0, 1, 2]


@played_by(nearby)
async def test_a_preferred_replica_expires(consumer: Consumer, *, broker: Any) -> None:
    """After `metadata.max.age.ms` the leader is asked again."""
    assert await offsets(consumer) == [0]
    await asyncio.sleep(MAX_AGE_MS / 1000)
    await offsets(consumer)
    await offsets(consumer)
    assert len(fetches(broker)) == 2


@pytest.mark.parametrize("code", [ErrorCode.offset_out_of_range, ErrorCode.not_leader_or_follower])
def test_a_consumer_returns_to_the_leader_after_a_followers_error(
    simulation: Simulation, broker: Any, other_broker: Any, answer_fetch: Any, code: ErrorCode
) -> None:
    """A follower may be behind: only the leader's OFFSET_OUT_OF_RANGE resets the position."""
    far = FetchedPartition(0, high_watermark=10, preferred_read_replica=1)
    script(broker, lambda request: answer_fetch(request, [far]), lambda request: answer_fetch(request, [records(0, 1)]))
    script(other_broker, lambda request: answer_fetch(request, [refusal(code)]))

    async def scene(consumer: Consumer) -> None:
        assert await offsets(consumer, 5_000) == [0]
        assert len(fetches(other_broker)) == 1

    play(simulation, [broker, other_broker], scene, client_rack="here")


def test_a_consumer_returns_to_the_leader_when_the_follower_is_down(
    simulation: Simulation, broker: Any, other_broker: Any, answer_fetch: Any
) -> None:
    far = FetchedPartition(0, high_watermark=10, preferred_read_replica=1)
    script(broker, lambda request: answer_fetch(request, [far]), lambda request: answer_fetch(request, [records(0, 1)]))

    async def scene(consumer: Consumer) -> None:
        other_broker.stop()
        assert await offsets(consumer, 5_000) == [0]

    play(simulation, [broker, other_broker], scene, client_rack="here")


def test_a_follower_that_left_the_cluster_gets_no_fetches(
    simulation: Simulation, broker: Any, other_broker: Any, answer_fetch: Any
) -> None:
    far = FetchedPartition(0, high_watermark=10, preferred_read_replica=9)
    script(broker, lambda request: answer_fetch(request, [far]), lambda request: answer_fetch(request, [records(0, 1)]))

    async def scene(consumer: Consumer) -> None:
        assert await offsets(consumer, 5_000) == [0]

    play(simulation, [broker, other_broker], scene, client_rack="here")


LIMIT = 1_000


def buffered(size: int, *, is_paused: bool = False) -> TopicPartitionState:
    return TopicPartitionState(
        TopicPartition("t", size), _position=0, fetch_position=9, buffered_bytes=size, is_paused=is_paused
    )


@pytest.mark.parametrize(
    ("idle", "pending", "states", "expected"),
    [
        pytest.param([1], {}, [], {1: 800}, id="one broker: fetch.max.bytes"),
        pytest.param([1, 2], {}, [], {1: 500, 2: 500}, id="two brokers: half of the limit each"),
        pytest.param([1], {2: 500}, [], {1: 500}, id="beside a fetch in flight"),
        pytest.param([1], {2: 500}, [buffered(1)], {}, id="no room beside a fetch in flight"),
        pytest.param([1], {}, [buffered(500)], {1: 500}, id="half of the limit is free"),
        pytest.param([1], {}, [buffered(501)], {}, id="less than half of the limit is free"),
        pytest.param([1, 2], {}, [buffered(100)], {1: 500}, id="a turn for each"),
    ],
)
def test_shares(
    idle: list[int], pending: dict[int, int], states: list[TopicPartitionState], expected: dict[int, int]
) -> None:
    assert FetchBufferLimit(LIMIT, 800).shares(idle, pending, states) == expected


def test_paused_partitions_lose_their_records_if_they_would_stop_all_others() -> None:
    paused = buffered(900, is_paused=True)
    limit = FetchBufferLimit(LIMIT, 800)
    assert limit.shares([1], {}, [paused, buffered(100)]) == {}
    assert paused.buffered_bytes == 900
    assert limit.shares([1], {}, [paused]) == {1: 800}
    assert (paused.buffered_bytes, paused.fetch_position) == (0, 0)


@in_world()
async def test_a_slow_consumer_prefetches_no_more_than_the_limit(world: World) -> None:
    """And gets every record in the end, in turn from all partitions."""
    await create(world, partitions=4)
    await fill(world, 4_000, batch_size=2_000)
    async with world.consumer("reader", "t", queued_max_messages_kbytes=16, max_poll_records=50) as consumer:
        found: list[int] = []
        while len(found) < 4_000:
            await asyncio.sleep(1)
            states = list(consumer._subscriptions)
            assert sum(state.buffered_bytes for state in states) <= (16 << 10) + 2_000
            found += await poll_all(consumer, 1)
        assert sorted(found) == list(range(4_000))


@in_world()
async def test_a_paused_partition_is_not_fetched_again_after_it_resumes(world: World) -> None:
    await create(world, partitions=2)
    await fill(world, 100)
    async with world.consumer("reader", max_poll_records=10) as consumer:
        consumer.assign([T0, T1])
        found = await poll_all(consumer, 1)
        await asyncio.sleep(1)
        consumer.pause(T0, T1)
        assert await consumer.poll(1_000) == []
        (traffic,) = (each for topic, each in world.broker.partitions.traffic.items() if topic == "t")
        before = traffic.bytes_out
        consumer.resume(T0, T1)
        found += await poll_all(consumer, 90)
        assert sorted(found) == list(range(100))
        assert traffic.bytes_out == before
