"""Queries that are members of a consumer group: `consumeMode=group` (M11)."""

import os
import signal
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from odradek.clients.blocking import Admin
from odradek.model import ConfigurationError, TopicPartition, UnavailableError
from odradek.runtime import Clock
from odradek.spark.options import Strategy, parse_read_options
from odradek.spark.reading.group_reader import GroupStreamReader, exit_once
from odradek.spark.schema import source_schema
from odradek.testing.conditions import eventually
from odradek.testing.simulation.clock import VirtualClock

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
GROUP = {"kafka.bootstrap.servers": "h:1", "subscribe": "a", "consumeMode": "group", "kafka.group.id": "g"}


class Cluster:
    """The ends of the partitions' logs, which begin at 0, and the offsets of a group."""

    def __init__(self, **ends: int) -> None:
        self.ends = {A0: ends["a0"], A1: ends["a1"]}
        self.committed: dict[TopicPartition, int] = {}

    def partitions(self, strategy: Strategy) -> list[TopicPartition]:
        return sorted(self.ends)

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {each: 0 if at == -2 else self.ends[each] for each, at in wanted.items()}

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        raise AssertionError("the member commits")

    def brokers(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        pass


class Member:
    """A member whose partitions a test decides."""

    def __init__(self, cluster: Cluster, *owned: TopicPartition) -> None:
        self.cluster = cluster
        self.owned, self.given = set(owned), set(owned)
        self.is_fenced = False
        self.while_waiting: Callable[[], object] = lambda: None

    def poll(self, topics: Collection[str], wait_ms: int = 0) -> tuple[set[TopicPartition], set[TopicPartition]]:
        assert topics == {"a"}
        if wait_ms:
            self.while_waiting()
        given, self.given = self.given, set()
        return set(self.owned), given

    def take(self, *owned: TopicPartition) -> None:
        """Have these from the next poll on, all of them given again, as an eager group does."""
        self.owned, self.given = set(owned), set(owned)

    def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: at for each, at in self.cluster.committed.items() if each in partitions}

    def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.is_fenced:
            raise UnavailableError("fenced")
        self.cluster.committed |= offsets

    def close(self) -> None:
        self.owned.clear()


def reader(cluster: Cluster, member: Member, clock: Clock | None = None, **more: str) -> GroupStreamReader:
    given = parse_read_options({"startingOffsets": "earliest", **GROUP, **more}, streaming=True)
    return GroupStreamReader(given, source_schema(include_headers=False), lambda: cluster, lambda: member, clock)


def ranges(query: GroupStreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[int, int, int]]:
    tasks = query.partitions(start, end)
    return [(each.partition.partition, each.start, each.end) for task in tasks for each in task.value.ranges]


def test_a_query_reads_its_partitions_and_commits_a_batch_when_the_next_is_planned() -> None:
    cluster = Cluster(a0=5, a1=7)
    query = reader(cluster, Member(cluster, A0))
    start = query.initialOffset()
    end = query.latestOffset(start, ReadAllAvailable())
    assert ranges(query, start, end) == [(0, 0, 5)]
    assert cluster.committed == {A0: 0}, "where it began"
    cluster.ends[A0] = 8
    following = query.latestOffset(end, ReadMaxRows(2))
    assert cluster.committed == {A0: 5}
    assert ranges(query, end, following) == [(0, 5, 7)]


def test_nothing_new_in_its_own_partitions_starts_no_batch() -> None:
    cluster = Cluster(a0=5, a1=7)
    query = reader(cluster, Member(cluster, A0))
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    cluster.ends[A1] = 9
    assert query.latestOffset(end, ReadAllAvailable()) is end


def test_a_partition_moves_between_batches_and_is_read_once() -> None:
    cluster = Cluster(a0=5, a1=7)
    one, two = Member(cluster, A0, A1), Member(cluster)
    first, second = reader(cluster, one), reader(cluster, two)
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    assert ranges(first, first.initialOffset(), end) == [(0, 0, 5), (1, 0, 7)]
    begin = second.latestOffset(second.initialOffset(), ReadAllAvailable())
    assert ranges(second, second.initialOffset(), begin) == []
    cluster.ends |= {A0: 6, A1: 9}
    one.take(A0)
    following = first.latestOffset(end, ReadAllAvailable())
    assert ranges(first, end, following) == [(0, 5, 6)]
    two.take(A1)
    assert ranges(second, begin, second.latestOffset(begin, ReadAllAvailable())) == [(1, 7, 9)]


def test_a_partition_that_comes_back_is_read_where_the_group_is_and_not_where_the_checkpoint_was() -> None:
    cluster = Cluster(a0=5, a1=7)
    member = Member(cluster, A0, A1)
    query = reader(cluster, member)
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    member.take(A0)
    assert query.latestOffset(end, ReadAllAvailable()) is end
    cluster.ends[A1] = cluster.committed[A1] = 20
    cluster.ends[A1] = 21
    member.take(A0, A1)
    assert ranges(query, end, query.latestOffset(end, ReadAllAvailable())) == [(1, 20, 21)]


def test_a_restart_goes_on_behind_the_last_batch_unless_another_query_has_moved_the_group() -> None:
    cluster = Cluster(a0=5, a1=7)
    first = reader(cluster, Member(cluster, A0, A1))
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    assert cluster.committed == {A0: 0, A1: 0}, "the batch is in the checkpoint, and not in the group"
    cluster.ends |= {A0: 6, A1: 9}
    cluster.committed[A1] = 3
    again = reader(cluster, Member(cluster, A0, A1))
    assert ranges(again, first.initialOffset(), end) == [(0, 0, 5), (1, 0, 7)], "a batch that is repeated"
    assert ranges(again, end, again.latestOffset(end, ReadAllAvailable())) == [(0, 5, 6), (1, 3, 9)]


def test_a_commit_that_fails_is_logged_and_made_again(caplog: pytest.LogCaptureFixture) -> None:
    cluster = Cluster(a0=5, a1=7)
    member = Member(cluster, A0)
    query = reader(cluster, member)
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    member.is_fenced = True
    assert query.latestOffset(end, ReadAllAvailable()) is end
    assert "Failed to commit progress, other queries may read these records again: fenced" in caplog.text
    member.is_fenced = False
    assert query.latestOffset(end, ReadAllAvailable()) is end
    assert cluster.committed == {A0: 5}


def test_available_now_ends_at_the_log_end_of_its_start() -> None:
    cluster = Cluster(a0=5, a1=7)
    query = reader(cluster, Member(cluster, A0, A1))
    query.prepareForTriggerAvailableNow()
    cluster.ends |= {A0: 6, A1: 9}
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    assert ranges(query, query.initialOffset(), end) == [(0, 0, 5), (1, 0, 7)]
    assert query.latestOffset(end, ReadAllAvailable()) is end


def test_available_now_waits_for_the_partitions_of_a_dead_member() -> None:
    cluster = Cluster(a0=5, a1=7)
    member = Member(cluster, A0)
    query = reader(cluster, member)
    query.prepareForTriggerAvailableNow()
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())
    assert ranges(query, query.initialOffset(), end) == [(0, 0, 5)]
    member.while_waiting = lambda: member.take(A0, A1)
    following = query.latestOffset(end, ReadAllAvailable())
    assert ranges(query, end, following) == [(1, 0, 7)]
    assert query.latestOffset(following, ReadAllAvailable()) is following


def test_available_now_waits_while_another_member_reads_on(caplog: pytest.LogCaptureFixture) -> None:
    cluster, clock = Cluster(a0=5, a1=7), VirtualClock()
    member = Member(cluster, A0)
    query = reader(cluster, member, clock, **{"kafka.max.poll.interval.ms": "60000"})
    query.prepareForTriggerAvailableNow()
    end = query.latestOffset(query.initialOffset(), ReadAllAvailable())

    def read_on() -> None:
        clock.advance_to(clock.monotonic() + 50)
        cluster.committed[A1] = min(cluster.committed.get(A1, 0) + 1, stops_at)

    member.while_waiting, stops_at = read_on, 7
    assert query.latestOffset(end, ReadAllAvailable()) is end
    assert cluster.committed[A1] == 7
    assert "do not read on" not in caplog.text
    cluster.committed[A1] = stops_at = 3
    assert query.latestOffset(end, ReadAllAvailable()) is end
    assert "do not read on" in caplog.text


def test_a_partition_that_comes_back_after_other_batches_of_a_restart_goes_on_behind_its_last_one() -> None:
    cluster = Cluster(a0=5, a1=7)
    first = reader(cluster, Member(cluster, A0, A1))
    end = first.latestOffset(first.initialOffset(), ReadAllAvailable())
    cluster.ends |= {A0: 6, A1: 9}
    member = Member(cluster, A0)
    again = reader(cluster, member)
    following = again.latestOffset(end, ReadAllAvailable())
    assert ranges(again, end, following) == [(0, 5, 6)]
    member.take(A0, A1)
    assert ranges(again, following, again.latestOffset(following, ReadAllAvailable())) == [(1, 7, 9)]


def test_only_the_first_sigterm_ends_a_reader_so_that_it_leaves_its_group() -> None:
    former = signal.signal(signal.SIGTERM, exit_once)
    try:
        with pytest.raises(SystemExit):
            os.kill(os.getpid(), signal.SIGTERM)
        os.kill(os.getpid(), signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, former)


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
    eventually(lambda: set(numbers()) == set(range(made)), within_s=120, what="every record in the living query")
