"""Arrow rows as records: where they go, in which order, and which are refused (M2)."""

import asyncio
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from odradek.clients import Producer
from odradek.model import ConfigurationError, ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.partitioners import ClusterView
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import decode_records
from odradek.protocol.messages.produce import PartitionResponse, TopicResponse, encode_produce_response
from odradek.simulation.world import World
from odradek.testing import Simulation
from tests.world.scenes import in_world


def numbered(count: int, **more: Any) -> pa.Table:
    """Rows whose value is their number in 20 digits."""
    return pa.table({"value": [b"%020d" % number for number in range(count)], **more})


async def all_offsets(sent: list[Any]) -> dict[int, tuple[int, int]]:
    """The partition and offset of each row."""
    found: dict[int, tuple[int, int]] = {}
    for each in sent:
        for row, offset in zip(each.rows.tolist(), (await each.offsets).tolist(), strict=True):
            assert row not in found
            found[row] = each.partition.partition, offset
    return found


@in_world()
async def test_rows_arrive_as_they_are_where_send_would_put_them(world: World) -> None:
    """M2: keys, headers, times and nulls; the offsets are those of the log."""
    rows = [
        (b"k%d" % (number % 7), None if number % 5 == 0 else b"v%d" % number, 1_000 + number, [("h", b"%d" % number)])
        for number in range(500)
    ]
    table = pa.table(
        {
            "key": pa.array([row[0].decode() for row in rows]),
            "value": pa.array([row[1] for row in rows], pa.binary()),
            "timestamp": pa.array([row[2] * 1000 for row in rows], pa.timestamp("us")),
            "headers": pa.array(
                [[{"key": name, "value": content} for name, content in row[3]] for row in rows],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    await world.create_topic("t", 5)
    async with world.producer("client", max_request_size=4_000, compression_type="lz4") as producer:
        sent = await producer.send_arrow(table, "t")
        offsets = await all_offsets(sent)
        expected = [(await (await producer.send("t", b"x", row[0]))).partition for row in rows[:7]]
    records = await world.read_records("t", 5)
    assert sorted(offsets) == list(range(500))
    for number, (partition, offset) in offsets.items():
        record = records[partition][offset]
        key, value, timestamp, headers = rows[number]
        assert partition == expected[number % 7]
        assert (record.key, record.value, record.timestamp) == (key, value, timestamp)
        assert record.headers == tuple(headers)


@in_world()
async def test_the_rows_of_a_partition_keep_their_order(world: World) -> None:
    table = numbered(3_000, partition=pa.array([number % 3 for number in range(3_000)], pa.int16()))
    await world.create_topic("t", 3)
    async with world.producer("client", max_request_size=2_000, buffer_memory=10_000) as producer:
        await producer.send_arrow(table, "t")
        await producer.send_arrow(table, "t")
    for number, values in (await world.read("t", 3)).items():
        assert list(map(int, values)) == list(range(number, 3_000, 3)) * 2


class Streamed:
    """An object with Arrow's PyCapsule interface, as Polars' data frames have it."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


@pytest.mark.parametrize("kind", ["table", "batch", "chunks", "stream", "dictionary", "large", "view", "slice"])
def test_rows_of_any_shape_are_taken(play: Any, values: Any, new_log: Any, kind: str) -> None:
    table, log = numbered(10), new_log()
    shapes = {
        "table": table,
        "batch": table.to_batches()[0],
        "chunks": pa.concat_tables([table.slice(0, 3), table.slice(3, 0), table.slice(3)]),
        "stream": Streamed(table),
        "dictionary": pa.table({"value": table["value"].dictionary_encode()}),
        "large": table.cast(pa.schema([("value", pa.large_binary())])),
        "view": pa.table({"value": table["value"].cast(pa.string()).cast(pa.string_view())}),
        "slice": pa.concat_tables([numbered(5), table]).combine_chunks().slice(5),
    }

    async def scene(producer: Producer) -> None:
        (sent,) = await producer.send_arrow(shapes[kind], "t", partition=1)
        assert sent.partition == TopicPartition("t", 1)
        assert sent.rows.tolist() == (await sent.offsets).tolist() == list(range(10))

    play(log, scene)
    assert values(log, 1) == [b"%020d" % number for number in range(10)]


def test_no_rows_are_no_batches(play: Any, new_log: Any) -> None:
    async def scene(producer: Producer) -> None:
        assert await producer.send_arrow(numbered(0), "t") == []
        assert await producer.send_arrow(numbered(0).to_batches() or pa.record_batch({"value": []}), "t") == []

    play(new_log(), scene)


@pytest.mark.parametrize("partitioner", ["round_robin", "sticky", "uniform_sticky"])
def test_rows_without_keys_go_to_the_next_partition_when_they_fill_a_batch(
    play: Any, values: Any, new_log: Any, partitioner: str
) -> None:
    """M2: a row of 20 bytes counts as 56, so that 1,000 bytes are 17 rows."""
    log = new_log()

    async def scene(producer: Producer) -> None:
        await producer.send_arrow(numbered(100), "t")

    play(log, scene, partitioner=partitioner, max_request_size=1_000)
    numbers = [list(map(int, values(log, partition))) for partition in (0, 1)]
    first = numbers.index(min(numbers))
    turns = [list(range(17)), list(range(17, 35)), list(range(35, 53)), list(range(53, 71)), list(range(71, 89))]
    assert numbers[first] == turns[0] + turns[2] + turns[4]
    assert numbers[1 - first] == turns[1] + turns[3] + list(range(89, 100))


def test_rows_with_and_without_keys_keep_their_order_in_a_partition(play: Any, values: Any, new_log: Any) -> None:
    log = new_log()
    keys = [None if number % 3 else b"%d" % number for number in range(60)]

    async def scene(producer: Producer) -> None:
        await producer.send_arrow(numbered(60, key=keys), "t")

    play(log, scene)
    for partition in (0, 1):
        placed = list(map(int, values(log, partition)))
        assert placed == sorted(placed)
        assert placed


@pytest.mark.parametrize(
    ("settings", "ignores"),
    [
        ({"partitioner": "adaptive"}, False),
        ({"partitioner": "classic"}, False),
        ({"partitioner": "sticky"}, False),
        ({"partitioner": "adaptive", "partitioner_ignore_keys": True}, True),
        ({"partitioner": "round_robin"}, True),
        ({"partitioner": "uniform_sticky"}, True),
    ],
)
def test_keys_place_rows_unless_the_partitioner_ignores_them(
    play: Any, new_log: Any, settings: dict[str, Any], *, ignores: bool
) -> None:
    """M2."""

    async def scene(producer: Producer) -> None:
        sent = await producer.send_arrow(numbered(100, key=[b"%d" % number for number in range(100)]), "t")
        assert len(sent) == (1 if ignores else 2)

    play(new_log(), scene, **settings)


class ByValue:
    """A user's partitioner: odd and even last digits; it raises for a 7 at the end."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        assert value is not None
        if value.endswith(b"7"):
            raise ValueError("no sevens")
        return value[-1] % 2


def test_a_partitioner_of_a_users_own_is_called_for_each_row(play: Any, values: Any, new_log: Any) -> None:
    """M2: if it raises, nothing of the call is sent."""
    log = new_log()

    async def scene(producer: Producer) -> None:
        with pytest.raises(
            KafkaError, match="partitioner ByValue failed for a record of topic 't': ValueError: no sev"
        ):
            await producer.send_arrow(numbered(9), "t")
        await producer.send_arrow(numbered(7), "t")

    play(log, scene, partitioner=ByValue())
    assert [int(value) for value in values(log, 0)] == [0, 2, 4, 6]
    assert [int(value) for value in values(log, 1)] == [1, 3, 5]


class Even:
    """A user's partitioner that need not be asked for each row."""

    key_rule = "ignored"

    def __init__(self) -> None:
        self.asked = 0

    def partition(self, topic: str, key: bytes | None, value: bytes | None, cluster: ClusterView) -> int:
        self.asked += 1
        return 0


def test_a_partitioner_with_a_key_rule_is_called_for_many_rows_together(play: Any, new_log: Any) -> None:
    partitioner = Even()

    async def scene(producer: Producer) -> None:
        (sent,) = await producer.send_arrow(numbered(100, key=[b"%d" % number for number in range(100)]), "t")
        assert len(sent.rows) == 100

    play(new_log(), scene, partitioner=partitioner)
    assert partitioner.asked == 1


def test_a_key_rule_that_does_not_exist_is_refused() -> None:
    partitioner = Even()
    partitioner.key_rule = "sha1"
    with pytest.raises(ConfigurationError, match="key_rule of partitioner Even is murmur2 or ignored, not 'sha1'"):
        Producer(partitioner=partitioner)


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


@pytest.mark.parametrize("value_type", [pa.null(), pa.binary()])
@in_world()
async def test_the_fields_of_headers_may_have_any_order(world: World, value_type: pa.DataType) -> None:
    headers = pa.list_(pa.struct([("value", value_type), ("key", pa.string())]))
    table = pa.table({"value": [b"a"], "headers": pa.array([[{"value": None, "key": "k"}]], headers)})
    await world.create_topic("t", 1)
    async with world.producer("client") as producer:
        await all_offsets(await producer.send_arrow(table, "t"))
    [record] = (await world.read_records("t", 1))[0]
    assert record.headers == (("k", None),)


@pytest.mark.parametrize(
    ("columns", "sentence"),
    [
        ({"value": [1, 2, 3]}, "column 'value' is of type int64, not binary or string"),
        ({"value": [b"a"] * 3, "offset": [1, 2, 3]}, "no column 'offset' of rows to produce: drop it; columns are key"),
        ({"headers": pa.array([None] * 3, HEADERS)}, "need a column key or value"),
        ({"value": [b"a"] * 3, "headers": [["a"]] * 3}, "column 'headers' is of type list.*, not list<"),
        ({"value": [b"a"] * 3, "timestamp": ["now"] * 3}, "column 'timestamp' is of type string, not timestamp, or"),
        ({"value": [b"a"] * 3, "timestamp": [1, 2, -3]}, "row 2 has a timestamp before 1970"),
        (
            {"value": [b"a"] * 3, "timestamp": pa.array([1, 1 << 60, None], pa.timestamp("s"))},
            "row 1 has a timestamp before 1970 or after",
        ),
        ({"value": [b"a"] * 3, "partition": [0, None, 1]}, "row 1 has no partition: leave the column out"),
        ({"value": [b"a"] * 3, "partition": [None] * 3}, "row 0 has no partition"),
        ({"value": [b"a"] * 3, "partition": [0.0] * 3}, "column 'partition' is of type double, not int32"),
        ({"value": [b"a"] * 3, "partition": [0, 1, 2]}, "row 2 names partition 2 of topic 't', which has 2"),
        ({"value": [b"a"] * 3, "partition": [0, -1, 2]}, "row 1 names partition -1"),
        ({"value": [b"a", b"b" * 2_000_000, b"c"]}, "row 1 is a record of 2,000,036 bytes, over max_request_size"),
        (
            {"value": [b"a"] * 3, "headers": pa.array([None, [], [{"key": None, "value": b""}]], HEADERS)},
            "row 2 has a header without a key",
        ),
        (
            {"value": [b"a"] * 3, "headers": pa.array([[{"key": "k", "value": b"x" * (1 << 20)}], None, []], HEADERS)},
            "row 0 is a record of 1,048,6[0-9]{2} bytes",
        ),
    ],
)
def test_a_wrong_column_or_row_is_named_and_nothing_is_sent(
    play: Any, new_log: Any, columns: dict[str, Any], sentence: str
) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        free = producer.metrics()["buffer_available_bytes"]
        with pytest.raises(KafkaError, match=sentence):
            await producer.send_arrow(pa.table(columns), "t")
        await producer.flush()
        assert producer.metrics()["buffer_available_bytes"] == free

    play(log, scene)
    assert log.seen == []


def test_rows_are_counted_across_chunks(play: Any, new_log: Any) -> None:
    async def scene(producer: Producer) -> None:
        chunks = pa.concat_tables([numbered(4, partition=[0] * 4), numbered(2, partition=[1, 9])])
        with pytest.raises(KafkaError, match="row 5 names partition 9"):
            await producer.send_arrow(chunks, "t")

    play(new_log(), scene)


def test_other_wrong_arguments_are_refused(play: Any, new_log: Any) -> None:
    twice = pa.Table.from_arrays([pa.array([b"a"]), pa.array([b"b"])], names=["value", "value"])

    async def scene(producer: Producer) -> None:
        with pytest.raises(TypeError, match="an Arrow table or record batch, not list"):
            await producer.send_arrow([b"a"], "t")
        with pytest.raises(KafkaError, match="there are 2 columns 'value'"):
            await producer.send_arrow(twice, "t")
        with pytest.raises(KafkaError, match="leave one of them out"):
            await producer.send_arrow(numbered(1, partition=[0]), "t", partition=0)
        with pytest.raises(KafkaError, match="row 0 names partition 5"):
            await producer.send_arrow(numbered(1), "t", partition=5)
        with pytest.raises(TypeError):
            await producer.send_arrow(numbered(1), "t", partition=0.5)  # type: ignore[arg-type]
        with pytest.raises(KafkaError, match="timestamp_ms is milliseconds"):
            await producer.send_arrow(numbered(1), "t", timestamp_ms=-5)
        with pytest.raises(ValueError, match="max_batch_bytes is at least 1"):
            await producer.send_arrow(numbered(1), "t", max_batch_bytes=0)
        with pytest.raises(KafkaError, match="there is no topic 'nope'"):
            await producer.send_arrow(numbered(1), "nope")

    play(new_log(), scene, max_block_ms=1_000)


def test_a_partition_that_was_added_is_found(play: Any, broker: Any, values: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        await producer.send_arrow(numbered(1), "t", partition=0)
        broker.topics["t"][2] = broker.node_id
        await producer.send_arrow(numbered(3, partition=[0, 2, 2]), "t")

    play(log, scene)
    assert len(values(log, 2)) == 2


def test_the_time_of_rows_without_one_is_given_or_now(simulation: Simulation, play: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        await producer.send_arrow(numbered(2, timestamp=[7, None]), "t", partition=0, timestamp_ms=5)
        await producer.send_arrow(numbered(1), "t", partition=0)

    play(log, scene)
    times = [record.timestamp for batch in log.taken for record in decode_records(batch.records)]
    assert times[:2] == [7, 5]
    assert times[2] > 1_000_000


@pytest.mark.parametrize("code", [ErrorCode.not_leader_or_follower, ErrorCode.not_enough_replicas])
def test_batches_of_rows_are_retried_in_order(play: Any, values: Any, new_log: Any, code: ErrorCode) -> None:
    log = new_log(ErrorCode.none, code, ErrorCode.out_of_order_sequence_number, code)

    async def scene(producer: Producer) -> None:
        sent = await producer.send_arrow(numbered(200), "t", partition=0)
        assert [offset for _, offset in sorted((await all_offsets(sent)).values())] == list(range(200))

    play(log, scene, max_request_size=1_000)
    assert list(map(int, values(log))) == list(range(200))
    starts = [(batch.header.base_sequence, batch.header.record_count) for batch in log.taken]
    assert [start for start, _ in starts] == [sum(count for _, count in starts[:i]) for i in range(len(starts))]


def test_records_and_rows_of_one_partition_keep_their_order(play: Any, values: Any, new_log: Any) -> None:
    """A record after the rows opens a batch of its own, though the rows' batch has room."""
    log = new_log()

    async def scene(producer: Producer) -> None:
        await producer.send("t", b"100", partition=0)
        await producer.send_arrow(pa.table({"value": ["200", "201"]}), "t", partition=0)
        await producer.send("t", b"300", partition=0)
        await producer.send_arrow(pa.table({"value": ["400"]}), "t", partition=0)

    play(log, scene, linger_ms=1_000)
    assert values(log) == [b"100", b"200", b"201", b"300", b"400"]


def test_rows_that_are_too_large_for_the_broker_are_split_and_their_offsets_found(
    play: Any, values: Any, new_log: Any
) -> None:
    log = new_log()

    def refusing(request: Any) -> Any:
        (topic,) = request.message.topics
        ((number, records),) = topic.partitions
        if len(records) <= 300:
            return log(request)
        refused = PartitionResponse(number, ErrorCode.message_too_large.value)
        return encode_produce_response(request.version, [TopicResponse(topic.name, topic.topic_id, [refused])])

    async def scene(producer: Producer) -> None:
        sent = await producer.send_arrow(numbered(100), "t", partition=0)
        assert len(sent) == 1
        await producer.flush()
        assert sent[0].offsets.done()
        assert (await sent[0].offsets).tolist() == list(range(100))

    play(refusing, scene)
    assert list(map(int, values(log))) == list(range(100))


def test_rows_that_fail_raise_the_brokers_error(play: Any, new_log: Any) -> None:
    async def scene(producer: Producer) -> None:
        lost, sent = await producer.send_arrow(numbered(60), "t", partition=0)
        with pytest.raises(KafkaError, match="t-0: INVALID_RECORD"):
            await lost.offsets
        assert (await sent.offsets)[0] == 0
        assert producer.metrics()["record_error_total"] == len(lost.rows)

    play(new_log(ErrorCode.invalid_record), scene, max_request_size=1_000)


def test_offsets_are_unknown_with_acks_0(play: Any, new_log: Any) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        (sent,) = await producer.send_arrow(numbered(3), "t", partition=0)
        assert np.array_equal(await sent.offsets, [-1, -1, -1])
        await asyncio.sleep(1)

    play(lambda request: log(request) and None, scene, acks=0)
    assert len(log.taken) == 1


def test_rows_wait_for_memory_and_never_take_more(play: Any, values: Any, new_log: Any) -> None:
    log, used = new_log(), []

    async def slowly(request: Any) -> Any:
        await asyncio.sleep(0.1)
        return log(request)

    async def scene(producer: Producer) -> None:
        async def watch() -> None:
            while True:
                used.append(4_000 - producer.metrics()["buffer_available_bytes"])
                await asyncio.sleep(0.01)

        watching = asyncio.ensure_future(watch())
        sent = await producer.send_arrow(numbered(1_000), "t", partition=0)
        watching.cancel()
        assert len(sent) >= 25
        await producer.flush()
        assert producer.metrics()["buffer_available_bytes"] == 4_000

    play(slowly, scene, max_request_size=1_000, buffer_memory=4_000)
    assert list(map(int, values(log))) == list(range(1_000))
    assert 2_000 < max(used) <= 4_000


def test_rows_without_memory_in_time_and_cancelled_calls_leave_no_memory_in_use(
    simulation: Simulation, play: Any, broker: Any, new_log: Any
) -> None:
    log = new_log()

    async def scene(producer: Producer) -> None:
        with pytest.raises(UnavailableError, match="no room for a record within 500 ms"):
            await producer.send_arrow(numbered(1_000), "t", partition=0)
        call = asyncio.ensure_future(producer.send_arrow(numbered(1_000), "t", partition=0))
        await asyncio.sleep(0.1)
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        broker.answers[ApiKey.PRODUCE] = log
        broker.disconnect()
        await producer.flush()
        assert producer.metrics()["buffer_available_bytes"] == 4_000

    play(lambda _: None, scene, max_request_size=1_000, buffer_memory=4_000, max_block_ms=500)
    assert log.taken


def test_close_ends_a_call_that_waits_for_memory(play: Any, new_log: Any) -> None:
    async def scene(producer: Producer) -> None:
        call = asyncio.ensure_future(producer.send_arrow(numbered(1_000), "t", partition=0))
        await asyncio.sleep(0.1)
        await producer.close(timeout_ms=0)
        with pytest.raises(UnavailableError, match="closed"):
            await call

    play(lambda _: None, scene, max_request_size=1_000, buffer_memory=4_000)
