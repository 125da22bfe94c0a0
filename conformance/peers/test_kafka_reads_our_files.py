"""Kafka's DumpLogSegments reads every file that our broker wrote, and prints what our own dump prints (M1)."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from conformance.peers.dumps import SUFFIXES, as_row, as_shown, kafkas_lines, our_lines, our_rows, segment_files
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.needs("kafka")

NOW: Final = 1_790_000_000_000
DEADLINE_S: Final = 30.0
BATCHES: Final = 40
PRODUCER: Final = {"producer_id": 4711, "producer_epoch": 3}

RECORDS: Final = (
    (b"key", b"value", ()),
    (None, b"without a key", ()),
    (b"without a value", None, (("removed", b"1"),)),
    (b"", b"", (("empty", b""), ("null", None))),
    ("schlüssel".encode(), "wert: ein Wörtchen".encode(), (("ä", "ö".encode()),)),
)

TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "codecs": {"segment.bytes": "20000", "index.interval.bytes": "300"},
    "append-time": {"message.timestamp.type": "LogAppendTime", "segment.bytes": "20000", "index.interval.bytes": "300"},
    "idempotent": {"segment.bytes": "20000"},
    "transactions": {"segment.bytes": "20000"},
    "compacted": {"cleanup.policy": "compact", "segment.bytes": "3000", "min.cleanable.dirty.ratio": "0.01"},
    "untouched": {},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Dumps:
    """The output of both tools for each file."""

    kafkas: Mapping[Path, Sequence[str]]
    ours: Mapping[Path, Sequence[str]]
    rows: Mapping[Path, Sequence[Mapping[str, Any]]]


@pytest.fixture(scope="module")
def data_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that our broker wrote and closed."""
    directory = tmp_path_factory.mktemp("ours") / "data"
    options = {
        "log.retention.ms": "-1",
        "offsets.topic.num.partitions": "2",
        "group.initial.rebalance.delay.ms": "0",
        "transaction.partition.verification.enable": "false",
        "log.cleaner.backoff.ms": "100",
        "log.flush.offset.checkpoint.interval.ms": "500",  # only what is synced is compacted
    }
    with ServedBroker(directory, options=options) as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
        wanted = [NewTopic(name, len(Codec), 1, config=dict(config)) for name, config in TOPICS.items()]
        for future in admin.create_topics(wanted).values():
            future.result(DEADLINE_S)
        with BlockingWireClient(broker.bootstrap_servers) as connection:
            write_batches(connection)
            write_transactions(connection)
            write_keys(connection)
            eventually(lambda: is_compacted(directory), what="compaction")
        commit_offsets(broker.bootstrap_servers)
    return directory


def write_batches(connection: BlockingWireClient) -> None:
    """A partition for each codec; some timestamps go back."""
    for codec in Codec:
        for number in range(BATCHES):
            start = NOW + 1000 * (number - 5 * (number % 3))
            records = [
                (start + 10 * (place % 3), key, None if value is None else value * 20, headers)
                for place, (key, value, headers) in enumerate(RECORDS)
            ]
            produce(connection, "codecs", codec, encode_batch(records, codec=codec))
            produce(connection, "append-time", codec, encode_batch(records, codec=codec))
            sequence = number * 3 * len(records)
            batch = encode_batch(records * 3, codec=codec, base_sequence=sequence, **PRODUCER)
            produce(connection, "idempotent", codec, batch)


def write_transactions(connection: BlockingWireClient) -> None:
    """Two producers, whose transactions are committed and aborted in turns; the last one of each stays open."""
    for codec in Codec:
        for number in range(13):
            for producer_id in (5000, 5001):
                producer = {"producer_id": producer_id, "producer_epoch": 2, "base_sequence": 3 * number}
                records = [(NOW + number, b"k", b"%d" % number * 300, ())] * 3
                batch = encode_batch(records, codec=codec, is_transactional=True, **producer)
                produce(connection, "transactions", codec, batch, transactional_id=f"t-{producer_id}")
            if number < 12:
                for producer_id in (5000, 5001):
                    end_transaction(connection, producer_id, int(codec), commit=(number + producer_id) % 3 > 0)


def write_keys(connection: BlockingWireClient) -> None:
    """Few keys, again and again, some of them deleted."""
    for codec in Codec:
        for number in range(60):
            records = [
                (
                    NOW + number,
                    b"key-%d" % (number * place % 17),
                    None if number % 7 == place else b"%d" % number * 200,
                    (),
                )
                for place in range(6)
            ]
            batch = encode_batch(records, codec=codec, base_sequence=6 * number, **PRODUCER)
            produce(connection, "compacted", codec, batch)


def is_compacted(directory: Path) -> bool:
    """Whether every log with keys was gone through: the cleaner has written down how far."""
    checkpoint = directory / "cleaner-offset-checkpoint"
    lines = checkpoint.read_text().splitlines() if checkpoint.exists() else []
    return sum(line.startswith("compacted ") and not line.endswith(" 0") for line in lines) == len(Codec)


def end_transaction(connection: BlockingWireClient, producer_id: int, partition: int, *, commit: bool) -> None:
    marker = {
        "producer_id": producer_id,
        "producer_epoch": 2,
        "transaction_result": commit,
        "topics": [{"name": "transactions", "partition_indexes": [partition]}],
        "coordinator_epoch": 17,
    }
    answer = connection.ask(ApiKey.WRITE_TXN_MARKERS, {"markers": [marker]}, 1)
    assert answer.markers[0].topics[0].partitions[0].error_code == 0, answer


def produce(
    connection: BlockingWireClient, topic: str, partition: int, batch: bytes, *, transactional_id: str | None = None
) -> None:
    message = {
        "transactional_id": transactional_id,
        "acks": -1,
        "timeout": 10_000,
        "topic_data": [{"name": topic, "partition_data": [{"index": int(partition), "records": bytes(batch)}]}],
    }
    answer = connection.ask(ApiKey.PRODUCE, message, 9)
    (result,) = answer.responses[0].partition_responses
    assert result.error_code == 0, result


def commit_offsets(servers: str) -> None:
    """A group with a member, which commits and leaves; its offsets stay."""
    settings = {"bootstrap.servers": servers, "group.id": "readers", "auto.offset.reset": "earliest"}
    consumer = confluent_kafka.Consumer({**settings, "enable.auto.commit": False})
    try:
        consumer.subscribe(["codecs"])
        assert len(consumer.consume(10, timeout=DEADLINE_S)) == 10
        consumer.commit(asynchronous=False)
        place = confluent_kafka.TopicPartition("codecs", 3, 7, metadata="halfway")
        consumer.commit(offsets=[place], asynchronous=False)
    finally:
        consumer.close()


@pytest.fixture(scope="module")
def files(data_directory: Path) -> list[Path]:
    """All files of segments."""
    folders = sorted(path for path in data_directory.iterdir() if path.is_dir() and not path.name.startswith("__"))
    return segment_files(folders)


@pytest.fixture(scope="module")
def dumps(files: list[Path]) -> Dumps:
    """Both dumps."""
    return Dumps(
        kafkas=kafkas_lines(files, "--print-data-log"),
        ours=our_lines(files, "--records"),
        rows=our_rows(files, "--records"),
    )


def of(lines: Mapping[Path, Sequence[Any]], suffix: str) -> dict[Path, Sequence[Any]]:
    found = {path: lines[path] for path in lines if path.suffix == suffix}
    assert found, f"there is no {suffix}"
    return found


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_both_dumps_have_the_same_lines(dumps: Dumps, suffix: str):
    """M1"""
    assert of(dumps.ours, suffix) == of(dumps.kafkas, suffix)


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_our_json_has_every_field_that_kafka_prints(dumps: Dumps, suffix: str):
    """M1"""
    for file, lines in of(dumps.kafkas, suffix).items():
        theirs = [as_row(file, line) for line in lines]
        rows = [as_shown(row) for row in dumps.rows[file]]
        ours = [{name: row[name] for name in their} for row, their in zip(rows, theirs, strict=True)]
        assert ours == theirs, file


def test_the_compared_files_cover_codecs_timestamps_producers_and_markers(dumps: Dumps):
    """The comparison above is about something: segments rolled, all codecs, both timestamps, producers, indexes."""
    batches = [row for rows in of(dumps.rows, ".log").values() for row in rows if row["type"] == "batch"]
    whole = [
        row
        for row in batches
        if not row["is_transactional"] and row["count"] == row["last_offset"] - row["base_offset"] + 1
    ]
    assert len(whole) >= 3 * len(Codec) * BATCHES
    assert len(whole) < len(batches), "nothing was compacted"
    assert {row["compress_codec"] for row in batches} == {"none", "gzip", "snappy", "lz4", "zstd"}
    assert {row["timestamp_type"] for row in batches} == {"CreateTime", "LogAppendTime"}
    assert {row["producer_id"] for row in batches} == {-1, PRODUCER["producer_id"], 5000, 5001}
    markers = [
        row["control_type"] for rows in of(dumps.rows, ".log").values() for row in rows if row.get("control_type")
    ]
    assert {kind: markers.count(kind) for kind in markers} == {"COMMIT": 16 * len(Codec), "ABORT": 8 * len(Codec)}
    assert sum(map(len, of(dumps.rows, ".txnindex").values())) == 8 * len(Codec)
    assert any(
        row["current_txn_first_offset"] is not None for rows in of(dumps.rows, ".snapshot").values() for row in rows
    )
    assert len(of(dumps.rows, ".log")) > len(TOPICS) * len(Codec)
    for suffix in SUFFIXES:
        assert any(of(dumps.rows, suffix).values())


@pytest.mark.parametrize("flag", ["--index-sanity-check", "--verify-index-only"])
def test_kafka_finds_nothing_wrong_with_our_indexes(files: list[Path], flag: str):
    """M1: complaints would come on lines of their own."""
    indexes = [file for file in files if file.suffix in {".index", ".timeindex"}]
    complaints = [line for lines in kafkas_lines(indexes, flag).values() for line in lines]
    passed = [line for line in complaints if re.fullmatch(r".* passed sanity check\.", line)]
    assert complaints == passed
    assert bool(passed) == (flag == "--index-sanity-check")


def test_kafka_reads_our_groups_and_offsets(data_directory: Path):
    """M1: `__consumer_offsets`, record by record."""
    logs = segment_files(sorted(data_directory.glob("__consumer_offsets-*")))
    logs = [file for file in logs if file.suffix == ".log"]
    ours = our_lines(logs, "--records")
    assert ours == kafkas_lines(logs, "--offsets-decoder")
    shown = [line for lines in ours.values() for line in lines]
    assert sum('key: {"type":"1"' in line for line in shown) >= 2, "there are no offsets"
    assert sum('"assignment":{"assignedPartitions":[{"topic":"codecs"' in line for line in shown) >= 1
    assert sum('key: {"type":"2"' in line for line in shown) >= 2, "there are no groups"
