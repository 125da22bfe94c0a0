"""Our source and sink beside Spark's own Kafka connector, on the same topics: the same rows (M11).

Every option that both have is here by its name; docs/spark-options.md says where they differ on purpose.
"""

import uuid
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = [pytest.mark.needs("java", "jvm-connector"), pytest.mark.timeout(240)]

FORMATS: Final = ("odradek", "kafka")
T0: Final = 1_700_000_000_000


class Filled(NamedTuple):
    """Two topics of four partitions; offset n of partition p is written at T0 + 1,000 n + p."""

    bootstrap: str
    first: str
    second: str

    def given(self, options: dict[str, str]) -> dict[str, str]:
        """Return the options of a read, with the topics' names filled in."""
        named = {
            key: value.replace("FIRST", self.first).replace("SECOND", self.second) for key, value in options.items()
        }
        return {"kafka.bootstrap.servers": self.bootstrap, "includeHeaders": "true"} | named


@pytest.fixture(scope="module")
def filled(served: ServedBroker, admin: Any, producer: Any) -> Filled:
    from confluent_kafka.admin import NewTopic

    names = [f"{name}-{uuid.uuid4().hex[:8]}" for name in ("first", "second")]
    for created in admin.create_topics([NewTopic(name, 4) for name in names]).values():
        created.result(30)
    for name in names:
        for partition in range(4):
            for offset in range(10 * partition):
                producer.produce(
                    name,
                    # Tombstones, records without a key, and spark.
                    key=None if offset % 5 == 0 else b"k%d" % offset,
                    value=None if offset % 7 == 0 else b"v%d" % offset,
                    partition=partition,
                    timestamp=T0 + 1_000 * offset + partition,
                    headers=[("h", b"1"), ("h", None), ("", b"")] if offset % 3 == 0 else None,
                )
    assert producer.flush(30) == 0
    return Filled(served.bootstrap_servers, *names)


def same_rows(frames: list[Any]) -> Counter[Any]:
    """Return the rows of the first frame, in which all must agree, with the columns and their types."""
    ours, theirs = frames
    assert ours.dtypes == theirs.dtypes
    found = [Counter(map(str, frame.collect())) for frame in frames]
    assert found[0] == found[1]
    return found[0]


ALL: Final = 120
BATCHES: Final = {
    "subscribe": ({"subscribe": "FIRST,SECOND"}, ALL),
    "subscribePattern": ({"subscribePattern": "(FIRST|SECOND)"}, ALL),
    "assign": ({"assign": '{"FIRST":[1,3]}'}, 40),
    "startingOffsets": ({"subscribe": "FIRST", "startingOffsets": '{"FIRST":{"0":-2,"1":-2,"2":5,"3":29}}'}, 26),
    "endingOffsets": ({"subscribe": "FIRST", "endingOffsets": '{"FIRST":{"0":-1,"1":2,"2":-1,"3":0}}'}, 22),
    "startingTimestamp": ({"assign": '{"FIRST":[2,3]}', "startingTimestamp": str(T0 + 15_003)}, 4 + 15),
    "startingOffsetsByTimestamp": (
        {"assign": '{"FIRST":[2,3]}', "startingOffsetsByTimestamp": f'{{"FIRST":{{"2":{T0 + 15_000},"3":{T0}}}}}'},
        5 + 30,
    ),
    "startingOffsetsByTimestampStrategy": (
        {
            "subscribe": "FIRST",
            "startingTimestamp": str(T0 + 25_000),
            "startingOffsetsByTimestampStrategy": "latest",
        },
        5,
    ),
    "endingTimestamp": ({"subscribe": "FIRST", "endingTimestamp": str(T0 + 12_000)}, 10 + 12 + 12),
    "endingOffsetsByTimestamp": (
        {"assign": '{"FIRST":[2,3]}', "endingOffsetsByTimestamp": f'{{"FIRST":{{"2":{T0 + 9_000},"3":{T0 + 5_000}}}}}'},
        9 + 5,
    ),
    "minPartitions": ({"subscribe": "FIRST", "minPartitions": "9"}, 60),
    "maxRecordsPerPartition": ({"subscribe": "FIRST", "maxRecordsPerPartition": "7"}, 60),
    "includeHeaders": ({"subscribe": "FIRST", "includeHeaders": "false"}, 60),
    "failOnDataLoss": ({"subscribe": "FIRST", "failOnDataLoss": "false"}, 60),
    "maxOffsetsPerTrigger": ({"subscribe": "FIRST", "maxOffsetsPerTrigger": "3"}, 60),
    "kafkaConsumer.pollTimeoutMs": ({"subscribe": "FIRST", "kafkaConsumer.pollTimeoutMs": "30000"}, 60),
    "fetchOffset": ({"subscribe": "FIRST", "fetchOffset.numRetries": "2", "fetchOffset.retryIntervalMs": "10"}, 60),
    "groupIdPrefix": ({"subscribe": "FIRST", "groupIdPrefix": "mine"}, 60),
    "kafka.isolation.level": ({"subscribe": "FIRST", "kafka.isolation.level": "read_committed"}, 60),
    "keys of the JVM's client": (
        {"subscribe": "FIRST", "kafka.fetch.max.bytes": "1000000", "kafka.client.dns.lookup": "use_all_dns_ips"},
        60,
    ),
}
"""The options of a batch by the name of what they try, and how many rows they give."""


@pytest.mark.parametrize("name", BATCHES)
def test_an_option_of_a_batch_gives_the_same_rows(spark: Any, filled: Filled, name: str) -> None:
    options, count = BATCHES[name]
    given = filled.given(options)
    assert same_rows([spark.read.format(each).options(**given).load() for each in FORMATS]).total() == count


@pytest.mark.parametrize(
    "options",
    [
        {"subscribe": "FIRST", "startingOffsets": "latest"},
        {"subscribe": "FIRST", "endingOffsets": "earliest"},
        {"subscribe": "FIRST", "assign": '{"FIRST":[0]}'},
        {"subscribe": "FIRST", "startingOffsets": '{"FIRST":{"0":0}}'},
        {"subscribe": "FIRST", "startingTimestamp": str(T0 + 25_000)},
        {"subscribe": "FIRST", "kafka.auto.offset.reset": "latest"},
        {"subscribe": "FIRST", "kafka.enable.auto.commit": "true"},
        {"subscribe": "FIRST", "minPartitions": "0"},
        {"subscribe": ","},
    ],
    ids=str,
)
def test_both_refuse_the_same_reads(spark: Any, filled: Filled, options: dict[str, str]) -> None:
    for each in FORMATS:
        with pytest.raises(Exception, match=r".+"):
            spark.read.format(each).options(**filled.given(options)).load().collect()


def rows_by_batch(frame: Any, folder: Path, name: str) -> list[Counter[str]]:
    """The rows of each batch of a query that reads all that there is."""
    batches: list[Counter[str]] = []

    def keep(batch: Any, number: int) -> None:
        del number
        batches.append(Counter(map(str, batch.collect())))

    query = frame.writeStream.foreachBatch(keep).option("checkpointLocation", str(folder / name))
    query.trigger(availableNow=True).start().awaitTermination()
    return [batch for batch in batches if batch]


@pytest.mark.parametrize(
    ("options", "sizes"),
    [
        ({"startingOffsets": "earliest"}, [60]),
        ({"startingOffsets": "earliest", "maxOffsetsPerTrigger": "24"}, [24, 24, 12]),
        ({"startingOffsets": "earliest", "minOffsetsPerTrigger": "50", "maxTriggerDelay": "1h"}, [60]),
        ({"startingTimestamp": str(T0 + 5_000)}, [5 + 15 + 25]),
    ],
    ids=str,
)
def test_a_stream_gives_the_same_batches(
    spark: Any, filled: Filled, tmp_path: Path, options: dict[str, str], sizes: list[int]
) -> None:
    given = filled.given({"assign": '{"FIRST":[1,2,3]}'} | options)
    ours, theirs = (
        rows_by_batch(spark.readStream.format(each).options(**given).load(), tmp_path, each) for each in FORMATS
    )
    assert ours == theirs
    assert [batch.total() for batch in ours] == sizes


def test_a_checkpoint_of_the_jvm_s_is_continued(
    spark: Any, bootstrap: str, topic: str, produce: Callable[..., None], tmp_path: Path
) -> None:
    """A job moves by changing its format: each connector reads the other's offsets."""
    given = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    for number, name in enumerate(("kafka", "odradek", "kafka", "odradek", "odradek")):
        produce(topic, [(2, None, b"%d" % number)])
        (batch,) = rows_by_batch(spark.readStream.format(name).options(**given).load(), tmp_path, "shared")
        assert f"value=b'{number}'" in str(batch)


def test_written_rows_are_the_same(spark: Any, bootstrap: str, admin: Any) -> None:
    from confluent_kafka.admin import NewTopic

    headers = """'[{"key":"h","value":"QQ=="},{"key":"h"}]' AS headers"""
    rows = (
        spark.range(40)
        .selectExpr("*", headers)
        .selectExpr(
            "IF(id % 5 = 0, NULL, CONCAT('k', id)) AS key",
            "IF(id % 7 = 0, NULL, CONCAT('v', id)) AS value",
            "IF(id % 5 = 0, CAST(id % 4 AS INT), NULL) AS partition",
            "FROM_JSON(headers, 'ARRAY<STRUCT<key: STRING, value: BINARY>>') AS headers",
            "id AS something_else",
        )
    )
    written = []
    for each in FORMATS:
        topic = f"written-{uuid.uuid4().hex[:8]}"
        admin.create_topics([NewTopic(topic, 4)])[topic].result(30)
        options = {"kafka.bootstrap.servers": bootstrap, "topic": topic, "includeHeaders": "true"}
        rows.write.format(each).mode("append").options(**options).save()
        written.append(
            spark.read.format("kafka")
            .options(**options, subscribe=topic)
            .load()
            .select("key", "value", "partition", "headers")
        )
    assert same_rows(written).total() == 40
