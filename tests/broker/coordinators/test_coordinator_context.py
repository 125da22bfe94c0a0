"""The context of a coordinator with counters as its machine: replies, commits, failures, loading again (M6)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, cast

import pytest

from odradek.broker.coordinators.coordinator_context import CoordinatorContext, CoordinatorState, SharedTurn
from odradek.broker.coordinators.machine import CoordinatorResult, Producer
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.record_batch import assign_offset
from odradek.protocol.batches.records import encode_batch
from odradek.runtime.rate_limited_log import RateLimitedLog
from odradek.testing import Simulation
from tests.broker.coordinators.counter_machine import (
    Add,
    Await,
    ControlledPartition,
    Counters,
    Get,
    MemoryLog,
    Request,
    Total,
    TotalCodec,
)
from tests.world.scenes import played_by

COMMIT_TIMEOUT_MS = 5_000
Context = CoordinatorContext[Request, object]


class Scene:
    """A partition and its context, in virtual time."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.partition = ControlledPartition()
        self.image = ClusterImage()
        self.turn = SharedTurn()
        self.context = self.new_context()

    def new_context(self, on_event: Callable[[object], None] = lambda _: None) -> Context:
        return CoordinatorContext(
            cast("Any", self.partition),
            new_machine=Counters,
            codec=TotalCodec(),
            clock=self.simulation.clock,
            commit_timeout_ms=COMMIT_TIMEOUT_MS,
            image=lambda: self.image,
            shared_turn=self.turn,
            refusal_log=RateLimitedLog(logging.getLogger("odradek.coordinators")),
            on_event=on_event,
        )

    async def start(self) -> None:
        self.context.start()
        await self.until_active()

    async def until_active(self) -> None:
        async with asyncio.timeout(200):
            while self.context.state is not CoordinatorState.ACTIVE:
                await asyncio.sleep(0.1)

    async def elect(self, log: MemoryLog) -> None:
        """Another broker is elected, with this log."""
        self.partition.resign()
        self.context.unload()
        self.partition = ControlledPartition(log)
        self.context = self.new_context()
        await self.start()

    @property
    def machine(self) -> Counters:
        machine = self.context.machine
        assert isinstance(machine, Counters)
        return machine

    async def total(self, key: str = "a") -> object:
        return await self.context.submit(key, Get())

    async def add(self, number: int, producer: Producer | None = None) -> object:
        """Add to the counter `a`, commit all, and return the reply."""
        added = self.context.submit("a", Add(number, producer))
        self.partition.commit()
        return await added


def play(scene: Callable[[Scene], Awaitable[None]]) -> None:
    simulation = Simulation(1)

    async def main() -> None:
        async with asyncio.timeout(3600):
            await scene(Scene(simulation))

    simulation.run(main())


async def code_of(future: "asyncio.Future[object]") -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        await future
    return caught.value.code


@played_by(play)
async def test_a_reply_waits_for_the_commit_of_its_records_which_later_requests_read_at_once(at: Scene) -> None:
    await at.start()
    added, seen, again = (
        at.context.submit("a", Add(2)),
        at.context.submit("a", Get()),
        at.context.submit("a", Add(3)),
    )
    at.partition.write()
    await asyncio.sleep(1)
    assert not added.done()
    assert not seen.done()
    at.partition.commit(1)
    assert (await added, await seen) == (2, 2)
    assert not again.done()
    at.partition.commit()
    assert await again == 5
    assert await at.total() == 5


@played_by(play)
async def test_a_record_that_cannot_be_appended_changes_nothing_and_resets_its_key(at: Scene) -> None:
    await at.start()
    waiting, other = at.context.submit("a", Await(10_000)), at.context.submit("b", Await(10_000))
    at.partition.surprise = KafkaError(ErrorCode.message_too_large)
    assert await code_of(at.context.submit("a", Add(1))) is ErrorCode.unknown_server_error
    assert await code_of(waiting) is ErrorCode.unknown_server_error
    assert await at.total() == 0
    assert at.partition.log.batches == []
    added = at.context.submit("b", Add(7))
    at.partition.commit()
    assert (await other, await added) == (7, 7)


@pytest.mark.parametrize("code", [ErrorCode.not_enough_replicas, ErrorCode.kafka_storage_error])
@played_by(play)
async def test_while_the_partition_refuses_records_requests_fail_and_deadlines_stand_still(
    at: Scene, *, code: ErrorCode
) -> None:
    await at.start()
    waiting = at.context.submit("a", Await(10_000))
    await asyncio.sleep(4)
    at.partition.refusal = KafkaError(code)
    expected = {ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available}
    for _ in range(3):
        assert await code_of(at.context.submit("a", Add(1))) is expected.get(code, ErrorCode.not_coordinator)
        if code is ErrorCode.not_enough_replicas:
            assert await at.context.submit("a", Get()) == 0, "it needs no record"
        else:
            assert await code_of(at.context.submit("a", Get())) is ErrorCode.not_coordinator
        await asyncio.sleep(10)
    assert not waiting.done()
    at.partition.refusal = None
    assert await at.total() == 0
    await asyncio.sleep(5.9)
    assert not waiting.done()
    await asyncio.sleep(1)
    assert await waiting is None


def test_requests_that_are_refused_for_lack_of_in_sync_replicas_are_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scene(at: Scene) -> None:
        await at.start()
        at.partition.refusal = KafkaError(ErrorCode.not_enough_replicas, "__toys-0 has 1 in-sync replicas and needs 2")
        for _ in range(5):
            assert await code_of(at.context.submit("a", Add(1))) is ErrorCode.coordinator_not_available
        at.partition.refusal = None
        late = at.context.submit("a", Add(1))
        assert await code_of(late) is ErrorCode.coordinator_not_available
        await asyncio.sleep(60)

    play(scene)
    refused, late, more = caplog.messages
    assert refused.startswith("Refused a request for 'a': __toys-0 has 1 in-sync replicas and needs 2. ")
    assert late == "Failed requests whose records were appended to __toys-0: the records are not committed in time"
    assert more == f"4 more lines like this one in the last 60 s: {refused}"


@played_by(play)
async def test_a_deadline_that_comes_while_records_are_refused_is_met_when_they_are_taken_again(at: Scene) -> None:
    await at.start()
    waiting = at.context.submit("a", Await(1_000))
    at.partition.refusal = KafkaError(ErrorCode.not_enough_replicas)
    await asyncio.sleep(60)
    assert not waiting.done()
    at.partition.refusal = None
    async with asyncio.timeout(3):
        assert await waiting is None


@played_by(play)
async def test_records_that_are_lost_before_they_are_written_make_the_shard_load_again(at: Scene) -> None:
    await at.start()
    assert await at.add(1) == 1
    lost, seen = at.context.submit("a", Add(5)), at.context.submit("a", Get())
    waiting = at.context.submit("b", Await(1_000_000))
    at.partition.lose()
    for future in (lost, seen, waiting):
        assert await code_of(future) is ErrorCode.not_coordinator
    assert await code_of(at.context.submit("a", Get())) is ErrorCode.coordinator_load_in_progress
    await at.until_active()
    assert await at.total() == 1
    assert at.machine.waiting == {}


@played_by(play)
async def test_lost_records_without_a_reply_make_the_shard_load_again_too(at: Scene) -> None:
    await at.start()
    assert await at.add(1) == 1
    topic = ClusterImage(topics={"a": None})  # type: ignore[dict-item]
    at.context.on_image(topic)
    assert at.machine.totals == {}
    at.partition.lose()
    await at.until_active()
    assert at.machine.totals == {"a": 1}


@pytest.mark.parametrize("end", ["", "lost", "newer image"])
def test_the_results_of_an_image_are_taken_in_turns(end: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests are handled between them; a load begins them anew; a newer image waits."""
    spend = SharedTurn.spend
    monkeypatch.setattr(SharedTurn, "spend", lambda turn, _: spend(turn, 1))

    async def scene(at: Scene) -> None:
        await at.start()
        for key in ("a", "b", "c", "d"):
            at.context.submit(key, Add(1))
        at.partition.commit()
        topics, some = (ClusterImage(topics=dict.fromkeys(names)) for names in ("abcd", "d"))  # type: ignore[arg-type]
        at.image = some
        at.context.on_image(topics)
        assert len(at.machine.totals) == 3
        at.context.on_image(topics)
        assert len(at.machine.totals) == 3, "the turn is over, for other coordinators too"
        await asyncio.sleep(0)
        added = at.context.submit("d", Add(1))
        assert at.machine.totals["d"] == 2
        if end == "lost":
            at.partition.lose()
            assert at.machine.totals == {}
            await at.until_active()
        elif end == "newer image":
            at.image = ClusterImage()
            at.context.on_image(some)
            assert len(at.machine.totals) == 2
        await asyncio.sleep(0.1)
        assert at.machine.totals == {"": {"d": 2}, "lost": {"d": 1}, "newer image": {}}[end]
        at.partition.commit()
        assert await (code_of(added) if end == "lost" else added) == (ErrorCode.not_coordinator if end == "lost" else 2)

    play(scene)


def test_the_parts_of_one_key_s_deletion_are_taken_in_turns_too(monkeypatch: pytest.MonkeyPatch) -> None:
    spend, taken = SharedTurn.spend, list[int]()
    monkeypatch.setattr(SharedTurn, "spend", lambda turn, _: spend(turn, 1))

    def parts(*_: object) -> Iterator[CoordinatorResult[Total]]:
        for part in range(5):
            taken.append(part)
            yield CoordinatorResult(key="a", is_continued=part < 4)

    async def scene(at: Scene) -> None:
        await at.start()
        at.context.on_image(ClusterImage(topics={"a": None}))  # type: ignore[dict-item]
        assert taken == [0]
        await asyncio.sleep(0.1)
        assert taken == [0, 1, 2, 3, 4]

    monkeypatch.setattr(Counters, "on_image", parts)
    play(scene)


def test_a_key_that_an_image_deleted_and_a_client_wrote_again_outlives_a_load(monkeypatch: pytest.MonkeyPatch) -> None:
    """A topic of the same name may have been created at once."""
    spend = SharedTurn.spend
    monkeypatch.setattr(SharedTurn, "spend", lambda turn, _: spend(turn, 1))

    async def scene(at: Scene) -> None:
        await at.start()
        for key in "abc":
            at.context.submit(key, Add(1))
        at.partition.commit()
        topics = ClusterImage(topics=dict.fromkeys("abc"))  # type: ignore[arg-type]
        at.context.on_image(topics)
        (gone,) = set("abc") - at.machine.totals.keys()
        again = at.context.submit(gone, Add(5))
        at.partition.commit()
        assert await again == 5
        lost = at.context.submit("d", Add(1))
        at.partition.lose()
        assert await code_of(lost) is ErrorCode.not_coordinator
        await at.until_active()
        await asyncio.sleep(0.1)
        assert at.machine.totals == {gone: 5}

    play(scene)


def test_the_deadlines_of_all_coordinators_share_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    spend = SharedTurn.spend
    monkeypatch.setattr(SharedTurn, "spend", lambda turn, _: spend(turn, 1))

    async def scene(at: Scene) -> None:
        await at.start()
        contexts, at.partition = [at.context], ControlledPartition()
        at.context = at.new_context()
        await at.start()
        contexts.append(at.context)
        times: list[float] = []
        for waiting in [each.submit(key, Await(1000)) for each in contexts for key in "abc"]:
            waiting.add_done_callback(lambda _: times.append(at.simulation.clock.monotonic()))
        await asyncio.sleep(2)
        assert len(set(times)) == len(times) == 6

    play(scene)


@played_by(play)
async def test_a_record_that_is_not_committed_in_time_fails_its_request_and_counts_all_the_same(at: Scene) -> None:
    await at.start()
    added = at.context.submit("a", Add(1))
    at.partition.write()
    assert await code_of(added) is ErrorCode.coordinator_not_available
    assert at.context.state is CoordinatorState.ACTIVE
    seen = at.context.submit("a", Get())
    await asyncio.sleep(1)
    assert not seen.done(), "what it saw may yet be lost"
    at.partition.commit()
    assert await seen == 1


@played_by(play)
async def test_a_record_is_still_awaited_after_its_replicas_fell_out_of_sync(at: Scene) -> None:
    await at.start()
    added = at.context.submit("a", Add(1))
    at.partition.shrink()
    assert await code_of(added) is ErrorCode.coordinator_not_available
    seen = at.context.submit("a", Get())
    await asyncio.sleep(1)
    assert not seen.done()
    at.partition.lose()
    assert await code_of(seen) is ErrorCode.not_coordinator
    await at.until_active()
    assert await at.total() == 0


@pytest.mark.parametrize("is_committed", [False, True])
@played_by(play)
async def test_a_new_coordinator_has_what_is_in_its_log(at: Scene, *, is_committed: bool) -> None:
    await at.start()
    added, waiting = at.context.submit("a", Add(1)), at.context.submit("b", Await(1_000_000))
    at.partition.write()
    if is_committed:
        at.partition.commit()
        assert await added == 1
    await at.elect(at.partition.log)
    assert await code_of(waiting) is ErrorCode.not_coordinator
    if not is_committed:
        assert await code_of(added) is ErrorCode.not_coordinator
    assert await at.total() == 1
    assert at.machine.elected_at_ms >= 0


@played_by(play)
async def test_loaded_records_are_not_read_until_they_are_committed(at: Scene) -> None:
    await at.start()
    at.context.submit("a", Add(1))
    at.partition.write()
    log = at.partition.log
    at.context.kill()
    at.partition = ControlledPartition(log)
    at.partition.high_watermark = 0
    at.context = at.new_context()
    await at.start()
    seen = at.context.submit("a", Get())
    await asyncio.sleep(1)
    assert not seen.done()
    at.partition.commit()
    assert await seen == 1


@played_by(play)
async def test_unloading_while_loading_leaves_nothing_behind(at: Scene) -> None:
    at.partition.log.log_end_offset = 1  # appended, and never written
    at.context.start()
    await asyncio.sleep(0.1)
    assert at.context.state is CoordinatorState.LOADING
    at.context.unload()
    await asyncio.sleep(100)
    assert at.context.state is CoordinatorState.CLOSED
    assert await code_of(at.context.submit("a", Get())) is ErrorCode.not_coordinator


def test_loading_is_tried_again_with_back_off_until_it_succeeds(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(at: Scene) -> None:
        read, failures = at.partition.log.read, [KafkaError(ErrorCode.kafka_storage_error, "bad disk")] * 3
        at.partition.log.log_end_offset = 1
        at.partition.log.batches = [bytes(encode_batch([(0, b"a", (9).to_bytes(8, "big"), ())]))]
        at.partition.commit()

        def read_some(offset: int, max_bytes: int, *, up_to_offset: int) -> bytes:
            if failures:
                raise failures.pop()
            return read(offset, max_bytes, up_to_offset=up_to_offset)

        at.partition.log.read = read_some  # type: ignore[method-assign]
        await at.start()
        assert at.simulation.clock.elapsed_s == pytest.approx(7, abs=0.5), "after 1, 2 and 4 seconds"
        assert await at.total() == 9

    play(scene)
    assert caplog.text.count("Failed to load __toys-0: bad disk") == 3


def test_malformed_and_unknown_records_are_skipped_counted_and_named(caplog: pytest.LogCaptureFixture) -> None:
    async def scene(at: Scene) -> None:
        log = at.partition.log
        records = [(0, b"a", b"short", ()), (0, None, b"", ()), (0, b"a", (4).to_bytes(8, "big"), ())]
        batch = encode_batch(records)
        assign_offset(memoryview(batch), 0, 0, 0)
        log.batches, log.log_end_offset = [bytes(batch)], 3
        at.partition.commit()
        await at.start()
        assert await at.total() == 4

    play(scene)
    assert "Record 0 of __toys-0 is malformed: a total has 8 bytes, not 5" in caplog.text
    assert "Skipped 1 malformed records, and 1 of unknown types, of __toys-0" in caplog.text


@pytest.mark.parametrize("committed", [False, True])
@pytest.mark.parametrize("is_live", [False, True])
@played_by(play)
async def test_records_of_a_transaction_count_from_its_marker_on(at: Scene, *, committed: bool, is_live: bool) -> None:
    await at.start()
    assert await at.add(3, Producer(producer_id=7, epoch=0)) == 3
    assert await at.total() == 0
    if is_live:
        at.context.marker_appended(7, 1, committed=committed)
    else:
        await at.elect(at.partition.log)
        at.context.marker_appended(7, 1, committed=committed)
    assert await at.total() == (3 if committed else 0)


@pytest.mark.parametrize("committed", [False, True])
@played_by(play)
async def test_a_marker_that_is_appended_while_the_end_of_a_replay_is_not_committed_is_applied_once(
    at: Scene, *, committed: bool
) -> None:
    await at.start()
    at.context.submit("a", Add(3, Producer(producer_id=7, epoch=0)))
    at.partition.write()
    log = at.partition.log
    at.context.kill()
    at.partition = ControlledPartition(log)
    at.partition.high_watermark = 0
    at.context = at.new_context()
    at.context.start()
    await asyncio.sleep(1)
    assert at.context.state is CoordinatorState.LOADING
    at.context.marker_appended(7, at.partition.append_marker(7, committed=committed), committed=committed)
    at.partition.commit()
    await at.until_active()
    assert await at.total() == (3 if committed else 0)
    assert at.machine.pending == {}


@played_by(play)
async def test_a_killed_shard_answers_no_request(at: Scene) -> None:
    await at.start()
    added, waiting = at.context.submit("a", Add(1)), at.context.submit("a", Await(10))
    at.context.kill()
    at.partition.commit()
    await asyncio.sleep(100)
    assert not added.done()
    assert not waiting.done()
