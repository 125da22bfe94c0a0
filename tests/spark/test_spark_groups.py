"""Queries that are members of a consumer group: `consumeMode=group` (M11)."""

import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from odradek.clients.blocking import Admin
from odradek.model import ConfigurationError, TopicPartition
from odradek.runtime import Clock
from odradek.simulation.virtual.clock import VirtualClock
from odradek.spark.options import Strategy, parse_read_options
from odradek.spark.reading.group_reader import GroupStreamReader, exit_once
from odradek.spark.reading.planning import DataLossError
from odradek.spark.schema import source_schema
from odradek.spark.settings import member_keywords
from odradek.testing.conditions import eventually

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
GROUP = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", "consumeMode": "group", "kafka.group.id": "g"}


class Log:
    """The ends of the partitions' logs, which begin at 0."""

    def __init__(self) -> None:
        self.ends = {A0: 5, A1: 7}
        self.ids: dict[str, UUID] = {}

    def partitions(self, strategy: Strategy) -> list[TopicPartition]:
        return sorted(self.ends)

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {each: 0 if at == -2 else self.ends[each] for each, at in wanted.items()}

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        raise AssertionError("the member commits")

    def topic_ids(self) -> dict[str, UUID]:
        return self.ids

    def brokers(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass


class Member:
    """The only member of a group."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self.offsets: dict[TopicPartition, int] = {}
        self.has_left = False

    async def poll(self, topics: Collection[str], wait_ms: int = 0) -> tuple[set[TopicPartition], set[TopicPartition]]:
        assert topics == {"a"}
        return set(self.log.ends), set()

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict(self.offsets)

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets |= offsets

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self.log.ends[each] for each in partitions}

    async def close(self) -> None:
        self.has_left = True


def reader(member: Member, clock: Clock | None = None, **more: str) -> GroupStreamReader:
    given = parse_read_options({"startingOffsets": "earliest", **GROUP, **more}, streaming=True)

    async def join() -> Member:
        return member

    return GroupStreamReader(given, source_schema(include_headers=False), lambda: member.log, join, clock)


def ranges(query: GroupStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    tasks = query.partitions(start, end)
    return [(each.partition.partition, each.start, each.end) for task in tasks for each in task.value.ranges]


def test_the_checkpoint_has_the_start_of_each_batch_and_a_batch_is_repeated_from_there() -> None:
    member = Member(Log())
    query = reader(member)
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    assert end == {"@": {"start": {"a": {"0": 0, "1": 0}}}, "a": {"0": 5, "1": 7}}
    assert member.offsets == {A0: 0, A1: 0}, "where it began"
    assert ranges(query, query.initialOffset(), end) == [(0, 0, 5), (1, 0, 7)]
    member.log.ends = {A0: 8, A1: 7}
    again = reader(member)
    following = again.latestOffset(end, ReadMaxRows(2))
    assert member.offsets == {A0: 5, A1: 7}
    assert ranges(again, end, following) == [(0, 5, 7)]
    assert again.reportLatestOffset() == {"a": {"0": 8, "1": 7}}


def test_a_member_refuses_a_topic_that_was_created_again_and_commits_nothing() -> None:
    member = Member(Log())
    member.log.ids = {"a": UUID(int=3)}
    query = reader(member)
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    member.log.ids, member.offsets = {"a": UUID(int=4)}, {}
    for ends in (5, 9):
        member.log.ends = dict.fromkeys((A0, A1), ends)
        with pytest.raises(DataLossError, match="topic a was deleted and created again"):
            reader(member).latestOffset(end, ReadAllAvailable())
    assert member.offsets == {}


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("starting", ["earliest", "latest"])
def test_without_fail_on_data_loss_a_member_reads_a_topic_that_was_created_again_from_its_beginning(
    caplog: pytest.LogCaptureFixture, starting: str, is_restarted: bool
) -> None:
    member = Member(Log())
    member.log.ids = {"a": UUID(int=3)}
    given = {"failOnDataLoss": "false", "startingOffsets": starting}
    query = reader(member, **given)
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    # The coordinator deletes the offsets of a deleted topic.
    member.log.ids, member.log.ends, member.offsets = {"a": UUID(int=4)}, {A0: 9, A1: 0}, {}
    query = reader(member, **given) if is_restarted else query
    following = query.latestOffset(end, ReadAllAvailable())
    assert member.has_left is not is_restarted
    assert ranges(query, end, following) == [(0, 0, 9)]
    assert member.offsets == {A0: 0, A1: 0}
    assert caplog.text.count("Lost records: topic a was deleted and created again") == 1
    caplog.clear()
    member.has_left = False
    member.log.ends = {A0: 9, A1: 2}
    assert ranges(query, following, query.latestOffset(following, ReadAllAvailable())) == [(1, 0, 2)]
    assert (member.offsets, member.has_left, caplog.text) == ({A0: 9, A1: 0}, False, "")


def test_nothing_new_starts_no_batch_and_the_end_of_a_query_leaves_the_group() -> None:
    member = Member(Log())
    query = reader(member)
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    assert query.latestOffset(end, ReadAllAvailable()) is end
    query.stop()
    assert member.has_left


def test_less_than_the_least_batch_waits_for_more() -> None:
    member = Member(Log())
    query = reader(member, VirtualClock(), minOffsetsPerTrigger="3")
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    member.log.ends = {A0: 7, A1: 7}
    assert query.latestOffset(end, ReadAllAvailable()) is end
    member.log.ends = {A0: 7, A1: 8}
    assert ranges(query, end, query.latestOffset(end, ReadAllAvailable())) == [(0, 5, 7), (1, 7, 8)]


def test_available_now_ends_at_the_log_end_of_its_start() -> None:
    member = Member(Log())
    query = reader(member)
    query.prepareForTriggerAvailableNow()
    member.log.ends = {A0: 6, A1: 9}
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    assert ranges(query, query.initialOffset(), end) == [(0, 0, 5), (1, 0, 7)]
    assert query.latestOffset(end, ReadAllAvailable()) is end


def test_available_now_waits_for_other_members_as_long_as_the_option_says(caplog: pytest.LogCaptureFixture) -> None:
    member, clock = Member(Log()), VirtualClock()
    query = reader(member, clock, **{"kafka.max.poll.interval.ms": "60000"})
    query.prepareForTriggerAvailableNow()

    async def own_one(topics: Collection[str], wait_ms: int = 0) -> tuple[set[TopicPartition], set[TopicPartition]]:
        clock.advance_to(clock.monotonic() + 50)
        return {A0}, set()

    member.poll = own_one  # type: ignore[method-assign]
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    before_s = clock.monotonic()
    assert query.latestOffset(end, ReadAllAvailable()) is end
    assert "do not read on" in caplog.text
    assert clock.monotonic() - before_s == 150, "one poll before the wait, and two in it"


def test_only_the_first_sigterm_ends_a_reader_so_that_it_leaves_its_group() -> None:
    former = signal.signal(signal.SIGTERM, exit_once)
    try:
        with pytest.raises(SystemExit):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, former)


def test_a_query_of_committed_records_plans_batches_up_to_the_last_stable_offset() -> None:
    given = parse_read_options({**GROUP, "kafka.isolation.level": "read_committed"}, streaming=True)
    assert given.group is not None
    assert member_keywords("h:1", given.client, given.group)["isolation_level"] == "read_committed"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"consumeMode": "grouped"}, "consumeMode is direct or group, not 'grouped'"),
        ({"kafka.group.id": ""}, "consumeMode=group needs the group's name: set kafka.group.id"),
        ({"subscribe": "-", "assign": '{"a":[0]}'}, "lets the group assign partitions: subscribe to topics instead"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], message: str) -> None:
    options = {key: value for key, value in {**GROUP, **given}.items() if value != "-"}
    with pytest.raises(ConfigurationError, match=message):
        parse_read_options(options, streaming=True)


def test_a_batch_read_has_no_group() -> None:
    with pytest.raises(ConfigurationError, match="consumeMode=group is for streams"):
        parse_read_options(GROUP, streaming=False)


# With Spark and a broker


class Query:
    """A query whose batches are the numbers that it read."""

    def __init__(self, spark: Any, bootstrap: str, topic: str, folder: Path, **more: str) -> None:
        self.numbers: list[int] = []
        stream = spark.readStream.format("odradek").option("kafka.bootstrap.servers", bootstrap)
        given = {"subscribe": topic, "startingOffsets": "earliest", "consumeMode": "group", **more}
        rows = stream.options(**given, **{"kafka.group.id": f"g-{topic}"}).load()
        writer = rows.selectExpr("CAST(value AS STRING) AS value").writeStream
        java = spark.sparkContext._gateway.proc.pid
        before = runners(java)
        self.query = writer.foreachBatch(self._read).option("checkpointLocation", str(folder)).start()
        eventually(lambda: runners(java) - before, within_s=60, what="the process of the query's reader")
        (self.runner,) = runners(java) - before

    def has(self, count: int) -> bool:
        """Return whether it has read so many records; raise its error if it ended."""
        assert self.query.exception() is None, self.query.exception()
        return len(self.numbers) >= count

    def _read(self, rows: Any, number: int) -> None:
        del number
        self.numbers += [int(row.value) for row in rows.collect()]


def runners(java: int) -> set[int]:
    """The processes in which a Spark keeps the readers of streams."""
    found = set()
    for each in Path("/proc").glob("[0-9]*"):
        try:
            is_runner = b"python_streaming_source_runner" in (each / "cmdline").read_bytes()
            if is_runner and f"PPid:\t{java}\n" in (each / "status").read_text():
                found.add(int(each.name))
        except OSError:
            continue
    return found


@pytest.fixture
def queries() -> Iterator[list[Query]]:
    started: list[Query] = []
    yield started
    for each in started:
        each.query.stop()


@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "more", [{"kafka.session.timeout.ms": "6000"}, {"kafka.group.protocol": "consumer"}], ids=["classic", "consumer"]
)
def test_queries_share_partitions_and_those_of_a_dead_one_move_to_the_living(
    spark: Any,
    bootstrap: str,
    topic: str,
    produce: Callable[..., None],
    tmp_path: Path,
    queries: list[Query],
    more: dict[str, str],
) -> None:
    """Of the consumer protocol only the sharing and the leaving: its shortest session has 45 s."""
    made = 0

    def publish(count: int) -> None:
        nonlocal made
        produce(topic, [(number % 4, None, b"%d" % number) for number in range(made, made + count)])
        made += count

    def numbers() -> list[int]:
        return sorted(number for query in queries for number in query.numbers)

    publish(40)
    queries.append(Query(spark, bootstrap, topic, tmp_path / "one", **more))
    eventually(lambda: queries[0].has(40), within_s=90, what="all records in one query")
    queries.append(Query(spark, bootstrap, topic, tmp_path / "two", **more))

    def both_read() -> bool:
        publish(4)
        return queries[1].has(1)

    eventually(both_read, within_s=90, what="records in the other query")
    eventually(lambda: numbers() == list(range(made)), within_s=90, what="every record once in one of them")
    if "kafka.group.protocol" in more:
        queries[1].query.stop()
        with Admin(bootstrap_servers=bootstrap) as admin:
            eventually(lambda: len(admin.describe_group(f"g-{topic}").members) == 1, within_s=20, what="one member")
        return
    os.kill(queries[1].runner, signal.SIGKILL)
    eventually(lambda: not queries[1].query.isActive, within_s=60, what="the end of the killed query")
    publish(40)
    eventually(lambda: set(numbers()) == set(range(made)), within_s=600, what="every record in the living query")
