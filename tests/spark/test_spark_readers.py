"""The driver's side of reads: boundaries, triggers, restarts, topics that come and go (M11)."""

import json
import pickle
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from odradek.model import ConfigurationError, TopicPartition, UnavailableError
from odradek.simulation.virtual.clock import VirtualClock
from odradek.spark.options import Assign, Strategy, Subscribe, parse_read_options
from odradek.spark.reading.batch_reader import BatchReader
from odradek.spark.reading.planning import DataLossError
from odradek.spark.reading.stream_reader import COMMIT_AGAIN_S, FIRST_POLLS, StreamReader
from odradek.spark.schema import source_schema

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
SCHEMA = source_schema(include_headers=False)


@dataclass
class FakeLookup:
    """A cluster in a dict: the first and the next offset of each partition; offset n has the timestamp 10 * n."""

    logs: dict[TopicPartition, tuple[int, int]]
    closed: int = 0
    ids: dict[str, UUID] = field(default_factory=dict)
    committed: list[tuple[str, dict[TopicPartition, int]]] = field(default_factory=list)
    later: list[tuple[int, int]] = field(default_factory=list)
    """The log of `A0` after each wait."""
    waits: int = 0
    metadata_requests: int = 0

    def partitions(self, strategy: Strategy) -> list[TopicPartition]:
        self.metadata_requests += 1
        if isinstance(strategy, Subscribe):
            return sorted(each for each in self.logs if each.topic in strategy.topics)
        if isinstance(strategy, Assign):
            return sorted(each for each in self.logs if each in strategy.partitions)
        return sorted(each for each in self.logs if strategy.matches(each.topic))

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {partition: self._offset(*self.logs[partition], at) for partition, at in wanted.items()}

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        if group_id == "refused":
            raise UnavailableError("no coordinator")
        self.committed.append((group_id, dict(offsets)))

    def topic_ids(self) -> dict[str, UUID]:
        return self.ids

    def brokers(self) -> tuple[str, ...]:
        return ("h:1", "h:2")

    def wait(self) -> None:
        self.waits += 1
        if self.later:
            self.logs[A0] = self.later.pop(0)

    def close(self) -> None:
        self.closed += 1

    @staticmethod
    def _offset(first: int, end: int, at: int) -> int:
        if at < 0:
            return first if at == -2 else end
        found = max(first, -(-at // 10))
        return found if found < end else -1


def options(*, streaming: bool, **more: str) -> Any:
    given = {"kafka.bootstrap.servers": "h:1", "subscribe": "a"} | more
    return parse_read_options({key: value for key, value in given.items() if value != "-"}, streaming=streaming)


def batch(lookup: FakeLookup, **more: str) -> list[tuple[TopicPartition, int, int]]:
    """The ranges of a batch read, of all tasks."""
    partitions = BatchReader(options(streaming=False, **more), SCHEMA, lambda: lookup).partitions()
    return [(each.partition, each.start, each.end) for task in partitions for each in task.value.ranges]


def stream(lookup: FakeLookup, **more: str) -> StreamReader:
    return StreamReader(options(streaming=True, **more), SCHEMA, lambda: lookup)


def ranges(reader: StreamReader, start: dict[str, Any], end: dict[str, Any]) -> list[tuple[TopicPartition, int, int]]:
    tasks = reader.partitions(start, end)
    return [(each.partition, each.start, each.end) for task in tasks for each in task.value.ranges]


# Batches


def test_a_batch_reads_everything_and_closes_its_connections() -> None:
    lookup = FakeLookup({A0: (2, 9), A1: (0, 0), B0: (0, 5)})
    assert batch(lookup) == [(A0, 2, 9)]
    assert lookup.closed == 1


def test_tasks_know_every_broker_that_the_driver_knows() -> None:
    lookup = FakeLookup({A0: (2, 9)})
    (task,) = BatchReader(options(streaming=False), SCHEMA, lambda: lookup).partitions()
    assert task.value.brokers == ("h:1", "h:2")


def test_a_batch_reads_between_two_timestamps() -> None:
    lookup = FakeLookup({A0: (0, 9), A1: (0, 4)})
    found = batch(lookup, startingTimestamp="25", endingTimestamp="55")
    assert found == [(A0, 3, 6), (A1, 3, 4)]


def test_a_timestamp_after_the_last_record_is_refused_or_means_the_end() -> None:
    lookup = FakeLookup({A0: (0, 9), A1: (0, 4)})
    with pytest.raises(ConfigurationError, match="a-1 has no record at or after the starting timestamp"):
        batch(lookup, startingTimestamp="45")
    assert batch(lookup, startingTimestamp="45", startingOffsetsByTimestampStrategy="latest") == [(A0, 5, 9)]


def test_offsets_and_timestamps_must_name_every_partition() -> None:
    lookup = FakeLookup({A0: (0, 9), A1: (0, 4)})
    with pytest.raises(ConfigurationError, match="startingOffsets: every partition needs an entry, and a-1 has none"):
        batch(lookup, startingOffsets='{"a":{"0":3}}')
    with pytest.raises(ConfigurationError, match="endingOffsetsByTimestamp: b-0 is not among the partitions"):
        batch(lookup, endingOffsetsByTimestamp='{"a":{"0":30,"1":30},"b":{"0":1}}')
    found = batch(lookup, startingOffsetsByTimestamp='{"a":{"0":30,"1":10}}')
    assert found == [(A0, 3, 9), (A1, 1, 4)]


def test_a_named_topic_or_partition_must_exist() -> None:
    lookup = FakeLookup({A0: (0, 9)})
    with pytest.raises(ConfigurationError, match="there is no topic 'x' and no topic 'y'"):
        batch(lookup, subscribe="a,x,y")
    with pytest.raises(ConfigurationError, match="there is no partition a-7"):
        batch(lookup, subscribe="-", assign='{"a":[0,7]}')
    assert batch(lookup, subscribe="-", subscribePattern="x.*") == []


def test_a_task_has_all_it_needs_in_its_partition() -> None:
    reader = BatchReader(options(streaming=False), SCHEMA, lambda: FakeLookup({A0: (0, 9)}))
    (partition,) = reader.partitions()
    copy = pickle.loads(pickle.dumps(partition))
    assert copy.value == partition.value
    assert copy.value.columns == ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


def test_a_partition_without_a_value_reads_nothing() -> None:
    """Spark makes one when a reader plans none."""
    from pyspark.sql.datasource import InputPartition

    reader = BatchReader(options(streaming=False), SCHEMA, lambda: FakeLookup({}))
    assert list(reader.read(InputPartition(None))) == []


# Streams


OLD, NEW = UUID(int=2**63 - 2), UUID(int=7)


@pytest.mark.parametrize("end", [3, 5, 9])
def test_a_topic_that_was_created_again_is_a_loss_with_fewer_as_many_and_more_records(end: int) -> None:
    lookup = FakeLookup({A0: (0, 5), A1: (0, 0)}, ids={"a": OLD})
    reader = stream(lookup, startingOffsets="earliest")
    first = json.loads(json.dumps(reader.latestOffset(reader.initialOffset(), ReadAllAvailable())))
    assert first["a"] == {"00": OLD.int, "0": 5, "1": 0}
    lookup.logs[A0], lookup.ids = (0, end), {"a": NEW}
    again = stream(lookup)
    with pytest.raises(DataLossError, match="topic a was deleted and created again"):
        again.latestOffset(first, ReadAllAvailable())
    # A batch that the checkpoint has and that is repeated.
    with pytest.raises(DataLossError, match="topic a was deleted and created again"):
        again.partitions(again.initialOffset(), first)


@pytest.mark.parametrize("end", [0, 3, 5, 9])
@pytest.mark.parametrize("limit", [ReadAllAvailable(), ReadMaxRows(20)])
def test_without_fail_on_data_loss_a_topic_that_was_created_again_is_read_from_its_beginning(
    caplog: pytest.LogCaptureFixture, end: int, limit: Any
) -> None:
    lookup = FakeLookup({A0: (0, 5), B0: (0, 2)}, ids={"a": OLD, "b": OLD})
    reader = stream(lookup, subscribe="a,b", startingOffsets="earliest", failOnDataLoss="false")
    first = reader.latestOffset(reader.initialOffset(), limit)
    lookup.logs, lookup.ids = {A0: (0, end), B0: (0, 4)}, {"a": NEW, "b": OLD}
    second = reader.latestOffset(first, limit)
    assert ranges(reader, first, second) == [(A0, 0, end), (B0, 2, 4)][not end :]
    assert caplog.text.count("Lost records: topic a was deleted and created again") == 1
    assert "the new one is read from its beginning" in caplog.text
    caplog.clear()
    lookup.logs[A0] = (0, 11)
    assert ranges(reader, second, reader.latestOffset(second, limit)) == [(A0, end, 11)]
    assert not caplog.text


def test_a_planned_batch_of_a_topic_that_was_created_again_is_left_out_and_the_next_reads_the_new_topic() -> None:
    lookup = FakeLookup({A0: (0, 5)}, ids={"a": OLD})
    reader = stream(lookup, startingOffsets="earliest", failOnDataLoss="false")
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    lookup.logs[A0] = (0, 7)
    second = reader.latestOffset(first, ReadAllAvailable())
    lookup.logs[A0], lookup.ids = (0, 9), {"a": NEW}
    again = stream(lookup, failOnDataLoss="false")
    assert ranges(again, again.initialOffset(), first) == []
    assert ranges(again, first, second) == []
    third = again.latestOffset(second, ReadAllAvailable())
    assert ranges(again, second, third) == [(A0, 0, 9)]


def test_a_limit_is_shared_by_the_records_of_the_new_topic() -> None:
    lookup = FakeLookup({A0: (0, 5)}, ids={"a": OLD})
    reader = stream(lookup, startingOffsets="earliest", failOnDataLoss="false", maxOffsetsPerTrigger="4")
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    lookup.logs[A0], lookup.ids = (0, 7), {"a": NEW}
    second = reader.latestOffset(first, ReadMaxRows(4))
    assert ranges(reader, first, second) == [(A0, 0, 4)]
    assert ranges(reader, second, reader.latestOffset(second, ReadMaxRows(4))) == [(A0, 4, 7)]


def test_tasks_know_the_ids_of_their_topics() -> None:
    lookup = FakeLookup({A0: (0, 5)}, ids={"a": OLD, "z": NEW})
    (task,) = BatchReader(options(streaming=False), SCHEMA, lambda: lookup).partitions()
    assert task.value.topic_ids == {"a": OLD}


@pytest.mark.parametrize("before", [{"a": {"0": 5}}, {"@": "anchor", "a": {"0": 5}}])
def test_a_checkpoint_without_topic_ids_is_continued(before: dict[str, Any]) -> None:
    lookup = FakeLookup({A0: (0, 9)}, ids={"a": NEW})
    reader = stream(lookup)
    end = reader.latestOffset(before, ReadAllAvailable())
    assert ranges(reader, before, end) == [(A0, 5, 9)]
    assert end == {"a": {"00": NEW.int, "0": 9}}


def test_the_first_batch_reads_all_existing_records() -> None:
    reader = stream(FakeLookup({A0: (2, 9), A1: (0, 4)}), startingOffsets="earliest")
    initial = reader.initialOffset()
    assert ranges(reader, initial, reader.latestOffset(initial, ReadAllAvailable())) == [(A0, 2, 9), (A1, 0, 4)]
    assert ranges(reader, initial, reader.latestOffset(initial, ReadMaxRows(5))) == [(A0, 2, 5), (A1, 0, 1)]


def test_a_repeated_first_batch_keeps_its_start() -> None:
    lookup = FakeLookup({A0: (0, 5)})
    reader = stream(lookup)
    initial = reader.initialOffset()
    lookup.logs[A0] = (0, 8)
    end = reader.latestOffset(initial, ReadAllAvailable())
    lookup.logs[A0] = (0, 12)
    restarted = stream(lookup)
    again = restarted.initialOffset()
    assert again != initial, "latest has moved meanwhile"
    assert ranges(restarted, again, end) == [(A0, 5, 8)]
    following = restarted.latestOffset(end, ReadAllAvailable())
    assert ranges(restarted, end, following) == [(A0, 8, 12)]


def test_an_empty_first_batch_stores_the_start() -> None:
    lookup = FakeLookup({A0: (0, 5)})
    reader = stream(lookup)
    initial = reader.initialOffset()
    end = reader.latestOffset(initial, ReadAllAvailable())
    assert end != initial, "Spark makes a batch of it"
    lookup.logs[A0] = (0, 8)
    assert ranges(reader, reader.initialOffset(), end) == []
    assert ranges(reader, end, reader.latestOffset(end, ReadAllAvailable())) == [(A0, 5, 8)]


def test_the_first_batch_has_the_records_that_arrive_soon() -> None:
    lookup = FakeLookup({A0: (0, 5), A1: (0, 1)}, later=[(0, 5), (0, 7), (0, 9)])
    reader = stream(lookup)
    initial = reader.initialOffset()
    assert ranges(reader, initial, reader.latestOffset(initial, ReadAllAvailable())) == [(A0, 5, 7)]
    idle = FakeLookup({A0: (0, 5)})
    reader = stream(idle)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert ranges(reader, initial, end) == []
    assert reader.latestOffset(end, ReadAllAvailable()) is end
    assert (lookup.waits, idle.waits) == (2, FIRST_POLLS)


def test_a_batch_is_planned_with_the_metadata_that_its_end_was_found_with() -> None:
    lookup = FakeLookup({A0: (0, 5)})
    reader = stream(lookup, startingOffsets="earliest")
    initial = reader.initialOffset()
    assert reader.initialOffset() == initial
    end = reader.latestOffset(initial, ReadAllAvailable())
    assert ranges(reader, initial, end) == [(A0, 0, 5)]
    assert lookup.metadata_requests == 2
    assert ranges(stream(lookup), initial, end) == [(A0, 0, 5)], "a repeated batch"
    assert lookup.metadata_requests == 3


def test_records_between_the_target_and_the_start_are_not_a_loss() -> None:
    lookup = FakeLookup({A0: (0, 5)})
    reader = stream(lookup)
    reader.prepareForTriggerAvailableNow()
    lookup.logs.update({A0: (0, 7), A1: (0, 2)})
    initial = reader.initialOffset()
    end = reader.latestOffset(initial, ReadAllAvailable())
    assert ranges(reader, initial, end) == []
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_without_new_records_latest_offset_returns_its_argument() -> None:
    """Spark compares texts, and this one may have been written by another version."""
    reader = stream(FakeLookup({A0: (0, 5), A1: (0, 5)}))
    start = json.loads('{"a": {"1": 5, "0": 5}}')
    assert reader.latestOffset(start, ReadAllAvailable()) is start


def test_a_limit_is_shared_among_old_and_new_partitions() -> None:
    reader = stream(FakeLookup({A0: (0, 40), A1: (30, 60)}), maxOffsetsPerTrigger="10")
    limit = reader.getDefaultReadLimit()
    assert limit == ReadMaxRows(10)
    end = reader.latestOffset({"a": {"0": 10}}, limit)
    assert end == {"a": {"0": 15, "1": 35}}
    assert reader.latestOffset({"a": {"0": 10}}, ReadAllAvailable()) == {"a": {"0": 40, "1": 60}}
    assert isinstance(stream(FakeLookup({})).getDefaultReadLimit(), ReadAllAvailable)


def test_available_now_ends_at_the_log_end_of_its_start() -> None:
    lookup = FakeLookup({A0: (0, 5)})
    reader = stream(lookup)
    reader.prepareForTriggerAvailableNow()
    lookup.logs.update({A0: (0, 9), A1: (0, 3)})
    end = reader.latestOffset({"a": {"0": 2}}, ReadAllAvailable())
    assert end == {"a": {"0": 5}}
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_stream_reads_a_new_partition_from_its_beginning() -> None:
    lookup = FakeLookup({A0: (0, 5)})
    reader = stream(lookup)
    lookup.logs[A1] = (0, 2)
    end = reader.latestOffset({"a": {"0": 5}}, ReadAllAvailable())
    assert ranges(reader, {"a": {"0": 5}}, end) == [(A1, 0, 2)]


def test_a_deleted_topic_ends_the_query_unless_losses_are_allowed() -> None:
    lookup = FakeLookup({A0: (0, 5)})
    start = {"a": {"0": 5}, "b": {"0": 3}}
    end = stream(lookup, subscribe="a,b").latestOffset(start, ReadAllAvailable())
    with pytest.raises(DataLossError, match=r"b-0 is gone.*set failOnDataLoss=false to read the rest"):
        stream(lookup, subscribe="a,b").partitions(start, end)
    assert ranges(stream(lookup, subscribe="a,b", failOnDataLoss="false"), start, end) == []


def test_a_topic_deleted_before_a_batch_is_repeated_is_a_loss() -> None:
    lookup = FakeLookup({A0: (0, 5)})
    start, end = {"a": {"0": 5}, "b": {"0": 3}}, {"a": {"0": 5}, "b": {"0": 9}}
    with pytest.raises(DataLossError, match="b-0 was deleted before offsets up to 9 were read"):
        stream(lookup, subscribe="a,b").partitions(start, end)


def test_retention_that_is_faster_than_the_query_is_a_loss() -> None:
    lookup = FakeLookup({A0: (4, 9)})
    with pytest.raises(DataLossError, match="offsets 2 to 3 of a-0 were deleted"):
        stream(lookup).partitions({"a": {"0": 2}}, {"a": {"0": 9}})
    lossy = stream(lookup, failOnDataLoss="false")
    assert ranges(lossy, {"a": {"0": 2}}, {"a": {"0": 9}}) == [(A0, 4, 9)]


def test_the_progress_report_has_the_log_end_offsets() -> None:
    reader = stream(FakeLookup({A0: (0, 5), A1: (0, 7)}))
    assert reader.reportLatestOffset() is None
    reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))
    assert reader.reportLatestOffset() == {"a": {"0": 5, "1": 7}}


def test_a_reader_connects_when_first_used_and_is_pickled_without_its_connection() -> None:
    opened: list[FakeLookup] = []

    def open_lookup() -> FakeLookup:
        opened.append(FakeLookup({A0: (0, 5)}))
        return opened[-1]

    reader = StreamReader(options(streaming=True), SCHEMA, open_lookup)
    assert opened == []
    reader.stop()
    reader.initialOffset()
    reader.stop()
    assert [lookup.closed for lookup in opened] == [1]
    travelling = StreamReader(options(streaming=True), SCHEMA, partial(FakeLookup, {A0: (0, 5)}))
    assert pickle.loads(pickle.dumps(travelling)).initialOffset() == {"@": "initial", "a": {"0": 5}}


# Parity with the JVM connector


def test_min_offsets_per_trigger_waits_for_more_until_the_delay_is_over() -> None:
    lookup, clock = FakeLookup({A0: (0, 3)}), VirtualClock()
    given = options(streaming=True, startingOffsets="earliest", minOffsetsPerTrigger="5", maxTriggerDelay="60s")
    reader = StreamReader(given, SCHEMA, lambda: lookup, clock)
    first = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    assert first["a"] == {"0": 3}, "the first batch is at once"
    lookup.logs[A0] = (0, 7)
    assert reader.latestOffset(first, ReadAllAvailable()) is first
    lookup.logs[A0] = (0, 8)
    second = reader.latestOffset(first, ReadAllAvailable())
    assert second == {"a": {"0": 8}}
    lookup.logs[A0] = (0, 9)
    assert reader.latestOffset(second, ReadAllAvailable()) is second
    clock.advance_to(clock.monotonic() + 60)
    assert reader.latestOffset(second, ReadAllAvailable()) == {"a": {"0": 9}}


def test_an_available_now_query_reads_all_whatever_the_minimum() -> None:
    reader = stream(FakeLookup({A0: (0, 3)}), startingOffsets="earliest", minOffsetsPerTrigger="5")
    reader.prepareForTriggerAvailableNow()
    end = reader.latestOffset(reader.initialOffset(), ReadMaxRows(2))
    assert reader.latestOffset(end, ReadMaxRows(2)) == {"a": {"0": 3}}


def test_the_progress_of_each_batch_is_committed_once_to_the_group_id() -> None:
    lookup = FakeLookup({A0: (0, 3)})
    reader = stream(lookup, startingOffsets="earliest", **{"kafka.group.id": "readers"})
    reader.prepareForTriggerAvailableNow()
    start = reader.initialOffset()
    while (end := reader.latestOffset(start, ReadMaxRows(2))) != start:
        start = end
    reader.latestOffset(end, ReadAllAvailable())
    stream(lookup).latestOffset({"a": {"0": 2}}, ReadAllAvailable())
    assert lookup.committed == [("readers", {A0: 2}), ("readers", {A0: 3})]


def test_a_commit_that_fails_is_logged_and_leaves_the_query_alone(caplog: pytest.LogCaptureFixture) -> None:
    clock = VirtualClock()
    given = options(streaming=True, **{"kafka.group.id": "refused"})
    reader = StreamReader(given, SCHEMA, lambda: FakeLookup({A0: (0, 3)}), clock)
    for _ in range(2):
        assert reader.latestOffset({"a": {"0": 2}}, ReadAllAvailable()) == {"a": {"0": 3}}
    assert caplog.text.count("Progress is not committed to the group 'refused'") == 1
    clock.advance_to(clock.monotonic() + COMMIT_AGAIN_S)
    reader.latestOffset({"a": {"0": 2}}, ReadAllAvailable())
    assert caplog.text.count("no coordinator") == 2


def test_a_reader_in_a_call_for_lost_brokers_ends_with_its_parent() -> None:
    """As after Ctrl-C in a terminal, which ends Spark's JVM and the brokers at once."""
    child = (
        "from odradek.spark.source import OdradekDataSource\n"
        "source = OdradekDataSource({'subscribe': 'a', 'kafka.bootstrap.servers': '127.0.0.1:1'})\n"
        "reader = source.streamReader(source.schema())\n"
        "print('calls', flush=True)\n"
        "reader.initialOffset()\n"
    )
    command = ["sh", "-c", '"$0" -c "$1"; wait', sys.executable, child]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as parent:
        assert parent.stdout is not None
        assert parent.stdout.readline() == "calls\n"
        parent.kill()
        # The reader holds the pipe until it ends.
        parent.communicate(timeout=30)
