"""Transactions through brokers: markers, failover of the coordinator, and what requests are refused (X1)."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

from odradek.broker.replication.partition import Partition
from odradek.broker.transactions import transaction_markers
from odradek.broker.transactions.machine.messages import SendMarkers
from odradek.broker.transactions.transaction_coordinator import TransactionCoordinator
from odradek.broker.transactions.transaction_markers import Marker, Results
from odradek.metadata.new_topic import NewTopic
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.simulation.world import World, until
from tests.broker.transactions.transactional_client import TransactionalClient, stable
from tests.world.scenes import played

Play = Callable[..., None]
T0 = TopicPartition("t", 0)
REPLICATED = {"transaction_state_log_replication_factor": "3", "transaction_state_log_min_isr": "1"}


async def started(world: World, **topics: int) -> TransactionalClient:
    for name, partitions in topics.items():
        controller = world.running[world.broker.image.controller_id]
        (created,) = await controller.create_topics([NewTopic(name=name, num_partitions=partitions)])
        assert created.error is None
    client = TransactionalClient(world)
    assert (await client.init()).error_code == ErrorCode.none
    return client


async def writing(world: World, partitions: int) -> tuple[TransactionalClient, list[tuple[str, int]]]:
    """Begin a transaction in all partitions of a new topic "t"; return its client and these partitions."""
    client = await started(world, t=partitions)
    places = [("t", number) for number in range(partitions)]
    await client.write(*places)
    return client, places


@played
async def test_transactions_on_one_broker_are_committed_and_aborted(world: World) -> None:
    client = await started(world, t=2)
    assert world.broker.image.topics[TRANSACTIONS_TOPIC].partitions[0].replicas == (0,)
    places = [("t", 0), ("t", 1)]
    for is_commit, version, epoch in [(True, 4, 0), (False, 4, 0), (True, 5, 1), (False, 5, 2)]:
        await client.write(*places)
        described = await client.describe()
        assert (described.transaction_state, described.topics[0].partitions) == ("Ongoing", (0, 1))
        assert not stable(world, *places)
        assert await client.end(is_commit=is_commit, version=version) is ErrorCode.none
        await client.until_state("CompleteCommit" if is_commit else "CompleteAbort")
        assert stable(world, *places)
        assert client.epoch == epoch
    async with world.consumer("reader", isolation_level="read_committed") as reader:
        reader.assign([TopicPartition("t", 0), TopicPartition("t", 1)])
        read = []
        while len(read) < 4:
            read += [(record.partition, record.offset) for record in await reader.poll(1000)]
    assert sorted(read) == [(0, 0), (0, 4), (1, 0), (1, 4)]


@played(brokers=3)
async def test_markers_go_to_the_leaders_on_all_brokers(world: World) -> None:
    client, places = await writing(world, 6)
    assert {each.leader for each in world.broker.image.topics["t"].partitions.values()} == {0, 1, 2}
    assert await client.end() is ErrorCode.none
    await client.until_state("CompleteCommit")
    assert stable(world, *places)
    assert not any(broker.transactions.markers.pending for broker in world.running.values())


async def error_of_next(client: TransactionalClient) -> ErrorCode:
    """Begin the next transaction, in partition 0 of "t"; return the error."""
    fields = {**client.fields, "topics": [{"name": "t", "partitions": [0]}]}
    message = {f"v3_and_below_{name}": value for name, value in fields.items()}
    answer = await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, message, 3)
    ((added,),) = (topic.results_by_partition for topic in answer.results_by_topic_v3_and_below)
    return ErrorCode(added.partition_error_code)


@pytest.mark.parametrize(("delay_s", "error"), [(0.09, "none"), (0.5, "concurrent_transactions")])
@played
async def test_the_next_transaction_waits_a_little_for_the_markers_of_the_last_one(
    world: World, monkeypatch: pytest.MonkeyPatch, delay_s: float, error: str
) -> None:
    client = await started(world, t=1)
    await client.write(("t", 0))
    write = transaction_markers.MarkerWriter.write

    async def late(writer: transaction_markers.MarkerWriter, markers: Any) -> transaction_markers.Results:
        await asyncio.sleep(delay_s)
        return await write(writer, markers)

    monkeypatch.setattr(transaction_markers.MarkerWriter, "write", late)
    assert await client.end(version=4) is ErrorCode.none
    began_s = world.now_s
    verification = {**client.fields, "verify_only": True, "topics": [{"name": "t", "partitions": [0]}]}
    answer = await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, {"transactions": [verification]}, 4)
    (result,) = answer.results_by_transaction[0].topic_results[0].results_by_partition
    assert result.partition_error_code == ErrorCode.concurrent_transactions
    assert world.now_s - began_s < 0.02, "a verification does not wait"
    assert await error_of_next(client) == ErrorCode[error]


@played
async def test_the_next_transaction_begins_before_the_completion_of_the_last_one_is_committed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    complete = TransactionCoordinator._complete

    def uncommitted(coordinator: TransactionCoordinator, end: SendMarkers) -> Awaitable[object]:
        complete(coordinator, end)
        return asyncio.get_running_loop().create_future()

    client = await started(world, t=1)
    await client.write(("t", 0))
    monkeypatch.setattr(TransactionCoordinator, "_complete", uncommitted)
    assert await client.end(version=4) is ErrorCode.none
    assert await error_of_next(client) == ErrorCode.none


def coordinator(world: World) -> int:
    image = next(iter(world.running.values())).image.partition(TopicPartition(TRANSACTIONS_TOPIC, 0))
    assert image is not None
    return image.leader


@pytest.mark.parametrize("version", [4, 5])
@played(brokers=3, **REPLICATED)
async def test_a_coordinator_that_dies_before_it_sends_markers_is_replaced(
    world: World, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    client = await started(world, t=6)
    first = coordinator(world)
    places = [("t", number) for number in range(6)]
    places = [each for each in places if world.broker.image.topics["t"].partitions[each[1]].leader != first]
    await client.write(*places)
    send = transaction_markers.TransactionMarkers.send
    monkeypatch.setattr(transaction_markers.TransactionMarkers, "send", lambda *_: None)
    assert await client.end(version=version) is ErrorCode.none
    await world.pass_time(5)
    assert not stable(world, *places)
    monkeypatch.setattr(transaction_markers.TransactionMarkers, "send", send)
    await world.kill(first)
    await until(lambda: coordinator(world) in world.running)
    await client.until_state("CompleteCommit")
    assert stable(world, *places)
    assert (await client.init()).producer_epoch == version - 3
    await world.start(first)


@played(brokers=3, **REPLICATED)
async def test_a_marker_waits_for_its_partitions_leader(world: World) -> None:
    client = await started(world, t=6)
    first = coordinator(world)
    places = [("t", number) for number in range(6)]
    await client.write(*places)
    away = next(number for number in range(3) if number != first)
    await world.kill(away)
    assert await client.end(is_commit=False) is ErrorCode.none
    await world.pass_time(10)
    assert (await client.describe()).transaction_state == "PrepareAbort"
    await world.start(away)
    await client.until_state("CompleteAbort")
    assert stable(world, *places)


@played(brokers=3, **REPLICATED)
async def test_transactions_move_with_a_partition_that_is_reassigned(world: World) -> None:
    """An aborted one stays hidden, and an open one gets its marker from the new leader."""
    client = await started(world, t=1)
    await client.write(("t", 0))
    assert await client.end(is_commit=False) is ErrorCode.none
    await client.until_state("CompleteAbort")
    await client.write(("t", 0))
    (old,) = world.broker.image.topics["t"].partitions[0].replicas
    target = (old + 1) % 3
    async with world.admin() as admin:
        await admin.alter_partition_reassignments({T0: [target]})
    await until(lambda: world.running[target].partitions.leader_or_none(*T0) is not None)
    await until(lambda: old not in world.broker.image.topics["t"].partitions[0].replicas)
    assert not stable(world, T0)
    assert await client.end() is ErrorCode.none
    await client.until_state("CompleteCommit")
    assert stable(world, T0)
    async with world.consumer("reader", isolation_level="read_committed") as reader:
        reader.assign([T0])
        assert [record.offset for record in await reader.poll(5_000)] == [2]


@pytest.mark.parametrize("error", [ErrorCode.unknown_topic_or_partition, ErrorCode.not_leader_or_follower])
@played
async def test_a_marker_that_a_broker_does_not_take_while_it_starts_is_written_later(
    world: World, error: ErrorCode
) -> None:
    client = await started(world, t=1)
    await client.write(("t", 0))
    writer = world.broker.transactions.marker_writer
    write = writer.write

    async def refuse(markers: list[Marker]) -> Results:
        writer.write = write  # type: ignore[method-assign]
        return {each.producer_id: dict.fromkeys(each.partitions, error) for each in markers}

    writer.write = refuse  # type: ignore[method-assign]
    assert await client.end() is ErrorCode.none
    await client.until_state("CompleteCommit")
    assert stable(world, ("t", 0))


@played
async def test_a_marker_that_is_appended_and_not_committed_has_an_error(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await started(world, t=1)
    await client.write(("t", 0))
    code = ErrorCode.not_enough_replicas_after_append
    refuse: Any = lambda self, info, *, acks, waiter: waiter(KafkaError(code))  # noqa: E731
    monkeypatch.setattr(Partition, "when_acknowledged", refuse)
    marker = Marker(
        producer_id=client.producer_id,
        producer_epoch=client.epoch + 1,
        is_commit=True,
        coordinator_epoch=0,
        transaction_version=2,
        partitions=[T0],
    )
    assert await world.broker.transactions.marker_writer.write([marker]) == {client.producer_id: {T0: code}}
    monkeypatch.undo()


@played
async def test_a_topic_that_is_deleted_in_a_transaction_needs_no_marker(world: World) -> None:
    client = await started(world, t=1, gone=1)
    await client.write(("t", 0), ("gone", 0))
    deleted = {"topics": [{"name": "gone", "topic_id": None}], "topic_names": ["gone"], "timeout": 1000}
    await (await world.client()).ask(ApiKey.DELETE_TOPICS, deleted, 5)
    await until(lambda: "gone" not in world.broker.image.topics)
    assert await client.end() is ErrorCode.none
    await client.until_state("CompleteCommit")
    assert stable(world, ("t", 0))


def test_a_transaction_that_is_open_for_too_long_is_aborted(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        client = await started(world, t=1)
        await client.init(timeout_ms=5000)
        await client.write(("t", 0))
        await world.pass_time(4)
        assert not stable(world, ("t", 0))
        await client.until_state("CompleteAbort")
        assert stable(world, ("t", 0))
        assert await client.end(version=1) is ErrorCode.invalid_producer_epoch
        assert await client.end(version=2) is ErrorCode.producer_fenced

    with caplog.at_level(logging.INFO):
        play(scenario)
    assert "Aborted the transaction of 'tx', which was open for longer than 5000 ms" in caplog.text


@played
async def test_a_zombie_is_fenced_by_every_request_with_the_error_of_its_version(world: World) -> None:
    zombie = await started(world, t=1)
    client = TransactionalClient(world, host="other")
    await client.init()
    group = {**zombie.fields, "group_id": "g"}
    recovering = {"producer_id": zombie.producer_id, "producer_epoch": zombie.epoch}
    for version, error in [(1, ErrorCode.invalid_producer_epoch), (2, ErrorCode.producer_fenced)]:
        assert await zombie.add(("t", 0), version=version) == [error]
        assert (await zombie.ask(ApiKey.ADD_OFFSETS_TO_TXN, group, version)).error_code == error
        assert await zombie.end(version=version) is error
        assert (await zombie.init(version=version + 2, **recovering)).error_code == error
    assert await zombie.end(version=5) is ErrorCode.producer_fenced
    await client.write(("t", 0))
    assert await client.end() is ErrorCode.none


@played
async def test_requests_that_make_no_sense_are_refused(world: World) -> None:
    client = await started(world, t=1)
    refused = [ErrorCode.unknown_topic_or_partition, ErrorCode.operation_not_attempted]
    assert await client.add(("none", 0), ("t", 0)) == refused
    assert await client.add(("t", 0), ("t", 9)) == refused[::-1]
    assert await client.add((TRANSACTIONS_TOPIC, 0)) == [ErrorCode.topic_authorization_failed]
    assert (await client.describe()).transaction_state == "Empty"
    assert (await client.init(timeout_ms=900_001)).error_code == ErrorCode.invalid_transaction_timeout
    assert (await client.init(producer_id=5)).error_code == ErrorCode.invalid_request
    assert (await client.init(version=6, enable2_pc=True)).error_code == (
        ErrorCode.transactional_id_authorization_failed
    )
    foreign = TransactionalClient(world)
    foreign.producer_id, foreign.epoch = 123_456, 0
    assert await foreign.add(("t", 0)) == [ErrorCode.invalid_producer_id_mapping]
    assert await foreign.end() is ErrorCode.invalid_producer_id_mapping
    unknown = TransactionalClient(world, "unknown")
    assert (await unknown.describe()).error_code == ErrorCode.transactional_id_not_found
    assert await unknown.end() is ErrorCode.invalid_producer_id_mapping
    empty = TransactionalClient(world, "")
    assert (await empty.init()).error_code == ErrorCode.invalid_request
    assert await empty.add(("t", 0)) == [ErrorCode.invalid_request]
    assert await empty.end() is ErrorCode.invalid_request
    assert (await empty.describe()).error_code == ErrorCode.invalid_request


@played(transaction_two_phase_commit_enable="true")
async def test_a_prepared_transaction_is_kept_and_ended_by_the_next_producer(world: World) -> None:
    client = await started(world, t=1)
    await client.init(version=6, enable2_pc=True, timeout_ms=1)
    await client.write(("t", 0))
    ongoing = client.producer_id, client.epoch
    await world.pass_time(2000)
    answer = await client.init(version=6, enable2_pc=True, keep_prepared_txn=True)
    assert (answer.ongoing_txn_producer_id, answer.ongoing_txn_producer_epoch) == ongoing
    assert not stable(world, ("t", 0))
    assert await client.end() is ErrorCode.none
    await client.until_state("CompleteCommit")
    assert stable(world, ("t", 0))
    await client.write(("t", 0))
    assert await client.end(is_commit=False) is ErrorCode.none


@played
async def test_transactions_are_listed_by_state_producer_duration_and_pattern(world: World) -> None:
    client = await started(world, t=1)
    other = TransactionalClient(world, "other")
    await other.init()
    await other.write(("t", 0))
    await world.pass_time(10)

    async def listed(**filters: Any) -> list[str]:
        message = {"state_filters": [], "producer_id_filters": [], **filters}
        answer = await client.ask(ApiKey.LIST_TRANSACTIONS, message, 2)
        assert answer.error_code == ErrorCode.none
        return sorted(each.transactional_id for each in answer.transaction_states)

    assert await listed() == ["other", "tx"]
    assert await listed(state_filters=["Ongoing"]) == ["other"]
    assert await listed(producer_id_filters=[client.producer_id]) == ["tx"]
    assert await listed(duration_filter=60_000, state_filters=["Ongoing"]) == []
    assert await listed(duration_filter=5_000, state_filters=["Ongoing"]) == ["other"]
    assert await listed(transactional_id_pattern="o.*r") == ["other"]
    assert await listed(transactional_id_pattern="the") == []
    message = {"state_filters": ["Open"], "producer_id_filters": [], "transactional_id_pattern": "("}
    answer = await client.ask(ApiKey.LIST_TRANSACTIONS, message, 2)
    assert answer.error_code == ErrorCode.invalid_regular_expression
    answer = await client.ask(ApiKey.LIST_TRANSACTIONS, message, 1)
    assert (answer.unknown_state_filters, answer.transaction_states) == (("Open",), ())


@played
async def test_offsets_may_be_added_before_there_is_a_group(world: World) -> None:
    client = await started(world)
    assert OFFSETS_TOPIC not in world.broker.image.topics
    answer = await client.ask(ApiKey.ADD_OFFSETS_TO_TXN, {**client.fields, "group_id": "g"})
    assert answer.error_code == ErrorCode.none
    assert (await client.describe()).topics[0].topic == OFFSETS_TOPIC
    assert await client.end() is ErrorCode.none
    await client.until_state("CompleteCommit")


@played
async def test_brokers_verify_and_add_partitions_of_many_transactions(world: World) -> None:
    client = await started(world, t=2)
    await client.add(("t", 0))
    topics = [{"name": "t", "partitions": [0, 1]}]
    transactions = [
        {**client.fields, "verify_only": True, "topics": topics},
        {**client.fields, "transactional_id": "unknown", "verify_only": True, "topics": topics},
    ]

    async def errors(version: int) -> list[list[int]]:
        answer = await client.ask(ApiKey.ADD_PARTITIONS_TO_TXN, {"transactions": transactions}, version)
        return [
            [each.partition_error_code for topic in result.topic_results for each in topic.results_by_partition]
            for result in answer.results_by_transaction
        ]

    unknown = [ErrorCode.invalid_producer_id_mapping] * 2
    assert await errors(4) == [[ErrorCode.none, ErrorCode.transaction_abortable], unknown]
    transactions[0]["verify_only"] = False
    assert await errors(5) == [[ErrorCode.none, ErrorCode.none], unknown]
    assert (await client.describe()).topics[0].partitions == (0, 1)


def test_a_corrupt_record_of_the_coordinator_is_skipped(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(world: World) -> None:
        client = await started(world, t=1)
        await client.write(("t", 0))
        partition = world.broker.partitions.leader(TRANSACTIONS_TOPIC, 0)
        garbage = world.batch(b"\x00\x01not a transaction", b"\x00\x09")
        partition.append_records(memoryview(garbage), acks=-1, now_ms=0, from_client=False)
        await asyncio.sleep(1)
        await world.restart()
        assert (await client.describe()).transaction_state == "Ongoing"
        assert await client.end() is ErrorCode.none
        await client.until_state("CompleteCommit")

    play(scenario)
    assert "Skipped" in caplog.text


@played(brokers=3, **REPLICATED)
async def test_markers_are_written_although_the_coordinators_epoch_changes_meanwhile(world: World) -> None:
    client = await started(world, t=6)
    first = coordinator(world)
    places = [("t", number) for number in range(6)]
    await client.write(*places)
    away = next(number for number in range(3) if number != first)
    await world.kill(away)
    assert await client.end() is ErrorCode.none
    await world.pass_time(2)
    led = world.running[first].partitions.leader(TRANSACTIONS_TOPIC, 0)
    epoch = led.leader_epoch
    led.leader_epoch += 5  # as after an election that it has won again
    assert world.running[first].transactions.markers.pending == 1
    await world.start(away)
    await client.until_state("CompleteCommit")
    assert stable(world, *places)
    led.leader_epoch = epoch


@played
async def test_markers_of_a_former_election_do_not_end_the_next_transaction(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without an epoch per transaction, the leaders cannot tell them apart."""
    client = await started(world, t=1)
    transactions = world.broker.transactions
    await client.write(("t", 0))
    ends: list[SendMarkers] = []
    send = transaction_markers.TransactionMarkers.send
    monkeypatch.setattr(transaction_markers.TransactionMarkers, "send", lambda _, end: ends.append(end))
    assert await client.end(version=4) is ErrorCode.none
    await until(lambda: len(ends) == 1)
    send(transactions.markers, ends[0])
    await client.until_state("CompleteCommit")
    await client.write(("t", 0))

    writer, results = transactions.marker_writer, asyncio.get_running_loop().create_future()
    monkeypatch.setattr(writer, "write", lambda _: results)
    send(transactions.markers, ends[0])  # this broker is slow, another one coordinated the transaction meanwhile
    await world.pass_time(1)
    place = TopicPartition(TRANSACTIONS_TOPIC, 0)
    led = world.broker.partitions.leader(*place)
    for leader in (None, led):
        transactions.runtime._on_leadership(place, leader)
    monkeypatch.undo()
    results.set_result({})
    await world.pass_time(5)
    assert not transactions.markers.pending
    assert not stable(world, ("t", 0))
    assert await client.end(version=4) is ErrorCode.none
    await client.until_state("CompleteCommit")
    assert stable(world, ("t", 0))


@played
async def test_markers_of_many_partitions_are_sent_in_several_requests(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker refuses a request of too many entries, and would refuse it for ever."""
    monkeypatch.setattr(transaction_markers, "_MOST_PARTITIONS", 2)
    client, places = await writing(world, 5)
    writer, sizes = world.broker.transactions.marker_writer, list[int]()
    write = writer.write

    async def counted(markers: Iterable[Marker]) -> Results:
        markers = list(markers)
        sizes.append(sum(len(list(each.partitions)) for each in markers))
        return await write(markers)

    monkeypatch.setattr(writer, "write", counted)
    assert await client.end() is ErrorCode.none
    await client.until_state("CompleteCommit")
    assert sizes == [2, 2, 1]
    assert stable(world, *places)


@played(brokers=3, default_replication_factor="3", **REPLICATED)
async def test_transactions_go_on_with_the_next_coordinator(world: World) -> None:
    """The coordinator dies before the end of a transaction, and after its completion."""
    client, places = await writing(world, 3)
    first = coordinator(world)
    await world.kill(first)
    assert await client.end(is_commit=False) is ErrorCode.none
    await client.until_state("CompleteAbort")
    assert stable(world, *places)
    await world.start(first)
    await world.pass_time(10)
    await world.kill(coordinator(world))
    await until(lambda: coordinator(world) in world.running)
    assert (await client.describe()).transaction_state == "CompleteAbort"
    assert set(await client.add(*places)) == {ErrorCode.none}
    assert await client.end() is ErrorCode.none
    await client.until_state("CompleteCommit")
    assert client.epoch == 2
