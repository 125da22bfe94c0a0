"""Failures of a machine, of its codec and of appends: they reset a key, or the machine is loaded again (M6).

The context runs on a `VirtualLoop`.
"""

import asyncio
from collections.abc import AsyncIterator, Iterable, Iterator
from itertools import pairwise
from typing import Any

import pytest
from msgspec.structs import replace

from odradek.broker.coordinators import coordinator_context
from odradek.broker.coordinators.coordinator_context import CoordinatorState
from odradek.broker.coordinators.machine import CoordinatorResult, Now, Producer
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError
from tests.broker.coordinators.counter_machine import (
    Add,
    AddUnsafely,
    Await,
    Clear,
    ControlledPartition,
    Counters,
    Get,
    Total,
)
from tests.broker.coordinators.test_coordinator_context import Scene, code_of, play
from tests.world.scenes import played_by


def test_a_request_whose_records_cannot_be_encoded_resets_its_key_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(at: Scene) -> None:
        await at.start()
        waiting, other = at.context.submit("a", Await(10_000)), at.context.submit("b", Await(10_000))
        assert await code_of(at.context.submit("a", AddUnsafely())) is ErrorCode.unknown_server_error
        assert await code_of(waiting) is ErrorCode.unknown_server_error
        assert at.context.state is CoordinatorState.ACTIVE
        added = at.context.submit("b", Add(1))
        at.partition.commit()
        assert (await other, await added) == (1, 1)

    play(scene)
    assert "Failed to encode records for __toys-0" in caplog.text


def test_a_machine_that_fails_at_a_request_resets_its_key_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(at: Scene) -> None:
        await at.start()
        waiting, other = at.context.submit("a", Await(10_000)), at.context.submit("b", Await(10_000))
        handle = at.machine.handle
        at.machine.handle = broken  # type: ignore[method-assign]
        assert await code_of(at.context.submit("a", Add(1))) is ErrorCode.unknown_server_error
        at.machine.handle = handle  # type: ignore[method-assign]
        assert await code_of(waiting) is ErrorCode.unknown_server_error
        added = at.context.submit("b", Add(1))
        at.partition.commit()
        assert (await other, await added) == (1, 1)

    play(scene)
    assert "The coordinator of __toys-0 failed to handle a request for 'a'" in caplog.text


def broken(*_: object) -> Any:
    raise ValueError("a bug")


def test_a_machine_that_fails_to_apply_what_is_in_the_log_is_loaded_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(at: Scene) -> None:
        await at.start()
        at.machine.apply = broken  # type: ignore[method-assign]
        assert await code_of(at.context.submit("b", Add(1))) is ErrorCode.unknown_server_error
        at.partition.commit()
        await at.until_active()
        assert await at.total("b") == 1

    play(scene)
    assert "The coordinator of __toys-0 failed" in caplog.text


@played_by(play)
async def test_a_machine_that_fails_again_and_again_is_loaded_with_back_off(
    at: Scene, *, monkeypatch: pytest.MonkeyPatch
) -> None:
    elected_at_s: list[float] = []

    def fail(*_: object) -> Any:
        elected_at_s.append(at.simulation.clock.elapsed_s)
        raise ValueError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(Counters, "on_elected", fail)
        at.context.start()
        await asyncio.sleep(20)
    pauses = [round(later - earlier) for earlier, later in pairwise(elected_at_s)]
    assert pauses == [1, 2, 4, 8]
    assert await code_of(at.context.submit("a", Get())) is ErrorCode.not_coordinator
    await at.until_active()
    await asyncio.sleep(100)
    at.machine.apply = broken  # type: ignore[method-assign]
    at.context.submit("b", Add(1)).cancel()
    at.partition.commit()
    async with asyncio.timeout(1):
        await at.until_active()


def test_writes_that_are_lost_again_and_again_do_not_keep_the_shard_busy(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(at: Scene) -> None:
        await at.start()
        for _ in range(100):
            at.context.submit("a", Add(1)).add_done_callback(lambda future: future.exception())
            at.partition.lose()
            await asyncio.sleep(0.1)

    play(scene)
    assert caplog.text.count("Loading __toys-0 again") == 4, "at once, and after 1, 3 and 7 seconds"


def test_a_partition_that_another_broker_leads_is_not_loaded_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(at: Scene) -> None:
        await at.start()
        added = at.context.submit("a", Add(1))
        at.partition.resign()
        assert await code_of(added) is ErrorCode.not_coordinator
        assert at.context.state is CoordinatorState.CLOSED
        at.context.unload()

    play(scene)
    assert "Loading" not in caplog.text


@pytest.mark.parametrize("is_atomic", [False, True])
@played_by(play)
async def test_records_that_are_too_large_for_a_batch_are_spread_over_several_if_they_may_be(
    at: Scene, *, is_atomic: bool
) -> None:
    await at.start()
    for number in range(10):
        at.context.submit(str(number), Add(1))
    at.partition.commit()
    at.partition.log.most_bytes = 90
    batches = len(at.partition.log.batches)
    clearing = at.context.submit("all", Clear(is_atomic))
    await asyncio.sleep(1)
    if is_atomic:
        assert await code_of(clearing) is ErrorCode.unknown_server_error
        assert len(at.machine.totals) == 10
        return
    assert at.machine.totals == {}
    assert len(at.partition.log.batches) > batches + 1
    at.partition.commit(at.partition.log.log_end_offset - 1)
    await asyncio.sleep(1)
    assert not clearing.done(), "its last record is not committed"
    at.partition.commit()
    assert await clearing == 10


@played_by(play)
async def test_a_step_of_records_alone_that_cannot_be_appended_leaves_its_key_as_it_is(at: Scene) -> None:
    await at.start()
    waiting = at.context.submit("a", Await(1_000_000))
    added = at.context.submit("b", Add(1))
    at.partition.commit()
    await added
    at.partition.surprise = KafkaError(ErrorCode.message_too_large)
    clearing = at.context.submit("a", Clear(is_atomic=True, is_only_records=True))
    assert await code_of(clearing) is ErrorCode.unknown_server_error
    added = at.context.submit("a", Add(5))
    at.partition.commit()
    assert (await waiting, await added) == (5, 5)


@pytest.mark.parametrize("is_loading", [False, True])
@played_by(play)
async def test_changes_of_topics_wait_until_records_can_be_appended(at: Scene, *, is_loading: bool) -> None:
    await at.start()
    added = at.context.submit("a", Add(1))
    at.partition.commit()
    await added
    if is_loading:
        at.context.kill()
        at.context = at.new_context()
        at.context.start()
    else:
        at.partition.refusal = KafkaError(ErrorCode.not_enough_replicas)
    topics = ClusterImage(topics={"a": None})  # type: ignore[dict-item]
    at.context.on_image(topics)
    at.context.on_image(ClusterImage())
    await at.until_active()
    if not is_loading:
        assert at.machine.totals == {"a": 1}
    at.partition.refusal = None
    await asyncio.sleep(1)
    assert at.machine.totals == {}


@played_by(play)
async def test_the_clock_of_a_shard_stands_still_no_longer_than_its_partition_refuses_records(at: Scene) -> None:
    await at.start()
    waiting = at.context.submit("a", Await(10_000))
    at.partition.refusal = KafkaError(ErrorCode.not_enough_replicas)
    assert await code_of(at.context.submit("a", Add(1))) is ErrorCode.coordinator_not_available
    await asyncio.sleep(2)
    at.partition.refusal = None
    async with asyncio.timeout(11):
        assert await waiting is None


@played_by(play)
async def test_the_clock_of_a_shard_stands_still_in_each_pause(at: Scene) -> None:
    await at.start()
    before_s, before_ms = at.simulation.clock.elapsed_s, at.context.now.ms
    for pause_s in (3, 2):
        at.partition.refusal = KafkaError(ErrorCode.not_enough_replicas)
        assert await code_of(at.context.submit("a", Add(1))) is ErrorCode.coordinator_not_available
        await asyncio.sleep(pause_s)
        at.partition.refusal = None
        at.context.submit("a", Add(1))
    passed_ms = 1000 * (at.simulation.clock.elapsed_s - before_s)
    assert at.context.now.ms - before_ms == pytest.approx(passed_ms - 5_000, abs=2)


@pytest.fixture
def slow_election(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step of a machine that is elected takes 20 seconds; there are three."""

    async def slowly(items: Iterable[Any], _: object) -> AsyncIterator[Any]:
        for item in items:
            yield item
            await asyncio.sleep(20)

    def elected(machine: Counters, _: object, now: Now) -> Iterator[CoordinatorResult[Total]]:
        machine.elected_at_ms = now.ms
        for name in ("x", "y", "z"):
            yield CoordinatorResult(key=name, records=[Total(name, 1)])

    monkeypatch.setattr(coordinator_context, "cooperatively_by_time", slowly)
    monkeypatch.setattr(Counters, "on_elected", elected)


@pytest.mark.usefixtures("slow_election")
@played_by(play)
async def test_the_clock_of_a_machine_stands_still_until_it_is_active(at: Scene) -> None:
    """Sessions would expire while heartbeats cannot be counted."""
    at.partition.commit()
    await at.start()
    assert at.simulation.clock.elapsed_s >= 60
    assert at.context.now.ms - at.machine.elected_at_ms < 1000


@pytest.mark.usefixtures("slow_election")
@pytest.mark.parametrize("committed", [False, True])
@played_by(play)
async def test_a_marker_that_is_appended_during_an_election_is_applied_once(at: Scene, *, committed: bool) -> None:
    await at.start()
    at.context.submit("a", Add(3, Producer(producer_id=7, epoch=0)))
    at.partition.commit()
    log = at.partition.log
    at.context.kill()
    at.partition = ControlledPartition(log)
    at.context = at.new_context()
    at.context.start()
    await asyncio.sleep(30)
    assert at.context.state is CoordinatorState.LOADING
    at.context.marker_appended(7, at.partition.append_marker(7, committed=committed), committed=committed)
    await at.until_active()
    at.partition.commit()
    assert await at.total() == (3 if committed else 0)
    assert (at.machine.pending, await at.total("z")) == ({}, 1)


@pytest.mark.usefixtures("slow_election")
@played_by(play)
async def test_records_that_are_lost_during_an_election_make_the_machine_load_again(at: Scene) -> None:
    at.context.start()
    await asyncio.sleep(30)
    at.partition.lose()
    assert at.context.state is CoordinatorState.LOADING
    assert at.machine.totals == {}
    await at.until_active()
    at.partition.commit()
    assert [await at.total(each) for each in "xyz"] == [1, 1, 1]
    assert at.partition.log.log_end_offset == 3


def test_an_observer_that_fails_does_not_disturb_the_machine(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(at: Scene) -> None:
        at.context = at.new_context(on_event=broken)
        await at.start()
        handle = at.machine.handle
        at.machine.handle = lambda *request: replace(handle(*request), events=("something",))  # type: ignore[method-assign]
        added = at.context.submit("a", Add(1))
        at.partition.commit()
        assert await added == 1

    play(scene)
    assert "Failed to report an event of __toys-0: 'something'" in caplog.text


@played_by(play)
async def test_an_event_of_a_commit_waits_for_it_even_if_the_request_has_failed(at: Scene) -> None:
    told: list[object] = []
    at.context = at.new_context(told.append)
    await at.start()
    handle = at.machine.handle
    at.machine.handle = lambda *each: replace(handle(*each), committed_events=("committed",))  # type: ignore[method-assign]
    assert await code_of(at.context.submit("a", Add(1))) is ErrorCode.coordinator_not_available
    assert told == []
    at.partition.commit()
    await asyncio.sleep(1)
    assert told == ["committed"]
    lost = at.context.submit("a", Add(1))
    at.partition.lose()
    await asyncio.sleep(1)
    assert lost.exception() is not None
    assert told == ["committed"]
