"""`odradek log`, run in this process: what it prints of files on a real disk, and what it exits with. Row M1."""

import base64
import json
import random
import uuid
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from odradek.broker.log.directories.log_manager import LogManager
from odradek.broker.log.log_config import LogConfig
from odradek.cli import main
from odradek.model import TopicPartition
from odradek.protocol.batches.control_records import ControlType, EndTransactionMarker
from odradek.protocol.batches.record_batch import read_header
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.consumer_protocol import Subscription, encode_subscription
from odradek.protocol.internal_records.group_records import (
    GROUP_RECORDS,
    ConsumerGroupTargetAssignmentMemberKey,
    ConsumerGroupTargetAssignmentMemberValue,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    TopicPartitions,
)
from odradek.protocol.internal_records.transaction_records import (
    TRANSACTION_RECORDS,
    TransactionLogKey,
    TransactionLogValue,
)
from odradek.runtime import SystemDisk

NOW = 1_800_000_000_000
FIRST = f"{0:020d}.log"


def new_manager(directory: Path) -> LogManager:
    config = LogConfig(segment_bytes=400, index_interval_bytes=1)
    manager = LogManager(
        SystemDisk(),
        [str(directory)],
        broker_id=1,
        cluster_id="c",
        entropy=random.Random(3),
        config_for=lambda topic: config,
        note="the test",
    )
    manager.open(NOW)
    return manager


def append(manager: LogManager, topic: str, key: bytes | None, value: bytes | None) -> None:
    log = manager.get_or_create(TopicPartition(topic, 0), topic_id=uuid.UUID(int=9), now_ms=NOW)
    log.append_as_leader(encode_batch([(NOW, key, value, (("h", b"x"),))]), leader_epoch=0, now_ms=NOW)
    log.write()


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data directory that was closed."""
    manager = new_manager(tmp_path / "data")
    for number in range(8):
        append(manager, "t", b"key-%d" % number, b"a\nb" if number else b"plain")
    manager.close()
    return tmp_path / "data"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(main, ["log", *map(str, arguments)])


def objects(result: Result) -> list[Any]:
    return [json.loads(line) for line in result.stdout.rstrip("\n").split("\n")]


def test_a_file_is_dumped_in_the_words_of_kafkas_own_tool(data: Path) -> None:
    shown = run("dump", data / "t-0" / FIRST, "--print-data-log")
    header = read_header((data / "t-0" / FIRST).read_bytes())
    assert shown.exit_code == 0
    first, batch, record, *_ = shown.stdout.splitlines()
    assert first == f"Dumping {data}/t-0/{FIRST}"
    assert batch == (
        "baseOffset: 0 lastOffset: 0 count: 1 baseSequence: -1 lastSequence: -1 producerId: -1 producerEpoch: -1 "
        "partitionLeaderEpoch: 0 isTransactional: false isControl: false deleteHorizonMs: OptionalLong.empty "
        f"position: 0 CreateTime: {NOW} size: {header.size} magic: 2 compresscodec: none crc: {header.crc} "
        "isvalid: true"
    )
    assert record == (
        f"| offset: 0 CreateTime: {NOW} keySize: 5 valueSize: 5 sequence: -1 headerKeys: [h] key: key-0 payload: plain"
    )
    assert "payload: a\\nb" in shown.stdout, "a record is one line"


def test_a_data_directory_is_dumped_as_objects(data: Path) -> None:
    found = objects(run("dump", data, "--json", "--records"))
    assert found[0] == {"file": str(data), "type": "directory", "held_by": None, "clean_shutdown": True}
    types = {each["type"] for each in found}
    assert types == {
        "directory",
        "batch",
        "record",
        "offset_index_entry",
        "time_index_entry",
        "leader_epoch",
        "checkpoint_entry",
        "property",
    }
    record = next(each for each in found if each["type"] == "record")
    assert base64.b64decode(record["key"]) == b"key-0"
    assert record["headers"] == [{"key": "h", "value": base64.b64encode(b"x").decode()}]
    batch = next(each for each in found if each["type"] == "batch")
    assert (batch["base_offset"], batch["compress_codec"], batch["is_valid"]) == (0, "none", True)
    assert {each["file"] for each in found if each["type"] == "checkpoint_entry"} == {
        f"{data}/recovery-point-offset-checkpoint",
        f"{data}/replication-offset-checkpoint",
    }


OFFSET_KEY = OffsetCommitKey(group="g", topic="t", partition=3)
COMMIT = GROUP_RECORDS.encode(OFFSET_KEY, OffsetCommitValue(offset=42, commit_timestamp=NOW))
OFFSETS = "__consumer_offsets-0"


def contents(shown: Result) -> list[str]:
    """Key and value of each record, as text."""
    assert shown.exit_code == 0, shown.output
    return [line.partition(" headerKeys: [h] ")[2] for line in shown.stdout.splitlines() if line.startswith("| ")]


def test_records_of_groups_are_decoded_by_the_name_of_the_topic(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    append(manager, "__consumer_offsets", *COMMIT)
    append(manager, "__consumer_offsets", *GROUP_RECORDS.encode(GroupMetadataKey(group="g\x9b\u2028"), None))
    value = ConsumerGroupTargetAssignmentMemberValue(
        topic_partitions=(TopicPartitions(topic_id=uuid.UUID(int=5), partitions=(0, 7)),)
    )
    key = ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m")
    append(manager, "__consumer_offsets", *GROUP_RECORDS.encode(key, value))
    manager.close()
    assert contents(run("dump", tmp_path / OFFSETS, "--records")) == [
        (
            'key: {"type":"1","data":{"group":"g","topic":"t","partition":3}} '
            f'payload: {{"version":"3","data":{{"offset":42,"leaderEpoch":-1,"metadata":"","commitTimestamp":{NOW}}}}}'
        ),
        'key: {"type":"2","data":{"group":"g\\u009b\\u2028"}} payload: <DELETE>',
        (
            'key: {"type":"7","data":{"groupId":"g","memberId":"m"}} payload: {"version":"0","data":'
            '{"topicPartitions":[{"topicId":"AAAAAAAAAAAAAAAAAAAABQ","partitions":[0,7]}]}}'
        ),
    ]
    rows = [row for row in objects(run("dump", tmp_path, "--records", "--json")) if row["type"] == "record"]
    commit, tombstone, assignment = rows
    assert commit["decoded_key"] == {"group": "g", "topic": "t", "partition": 3}
    assert commit["decoded_value"] == {"offset": 42, "leader_epoch": -1, "metadata": "", "commit_timestamp": NOW}
    assert (commit["record_type"], commit["value_version"], commit["decode_error"]) == (1, 3, None)
    assert base64.b64decode(commit["key"]) == COMMIT[0]
    assert (tombstone["value_version"], tombstone["decoded_value"]) == (None, None)
    assert assignment["decoded_value"] == {
        "topic_partitions": [{"topic_id": "AAAAAAAAAAAAAAAAAAAABQ", "partitions": [0, 7]}]
    }


def test_members_of_consumer_groups_are_decoded_unless_their_bytes_are_something_else(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    subscription = encode_subscription(Subscription(topics=("t",), owned_partitions=(TopicPartition("t", 3),)))
    member: Any = {"client_id": "c", "client_host": "/h", "session_timeout": 5, "rebalance_timeout": 6}
    members = (
        MemberMetadata(member_id="m", subscription=subscription, assignment=b"\0\3\0\0\0\0\xff\xff\xff\xff", **member),
        MemberMetadata(member_id="n", subscription=b"\0\x09later", assignment=b"\0", **member),
    )
    for protocol_type in ("consumer", "connect"):
        value = GroupMetadataValue(
            protocol_type=protocol_type, generation=1, protocol="range", leader="m", members=members
        )
        append(manager, "__consumer_offsets", *GROUP_RECORDS.encode(GroupMetadataKey(group="g"), value))
    manager.close()
    consumers, others = contents(run("dump", tmp_path / OFFSETS, "--records"))
    assert (
        '"subscription":{"topics":["t"],"userData":null,"ownedPartitions":[{"topic":"t","partitions":[3]}],'
        '"generationId":-1,"rackId":null},"assignment":{"assignedPartitions":[],"userData":null}}'
    ) in consumers
    undecoded = f'"subscription":"{base64.b64encode(members[1].subscription).decode()}","assignment":"AA=="}}]'
    assert undecoded in consumers
    assert undecoded in others
    assert "userData" not in others


def test_records_that_cannot_be_decoded_are_shown_as_such_and_do_not_end_the_dump(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    key, value = COMMIT
    assert value is not None
    for record in [
        (b"\0\x63later", b"x"),
        (key[:4], value),
        (key, value[:9]),
        (key, b"\0\5" + value[2:]),
        (None, b"x"),
    ]:
        append(manager, "__consumer_offsets", *record)
    append(manager, "__consumer_offsets", key, value)
    manager.close()
    shown = contents(run("dump", tmp_path / OFFSETS, "--records"))
    offset_key = '{"type":"1","data":{"group":"g","topic":"t","partition":3}}'
    assert shown[:-1] == [
        "key: <unknown record type 99>",
        "key: <malformed message: 1 bytes at 4 where 4 are all>",
        f"key: {offset_key} payload: <malformed value of a record: it ends too early>",
        f"key: {offset_key} payload: <OffsetCommitValue has version 5; this release knows 0 to 4>",
        "key: <the record has no key that names its type>",
    ]
    assert shown[-1].startswith(f'key: {offset_key} payload: {{"version":"3"')
    rows = [row for row in objects(run("dump", tmp_path, "--records", "--json")) if row["type"] == "record"]
    assert [row["record_type"] for row in rows] == [99, 1, 1, 1, None, 1]
    assert [row["decode_error"] is None for row in rows] == [False] * 5 + [True]
    assert [row["decoded_key"] is None for row in rows] == [True, True, False, False, True, False]


def test_transactions_and_their_markers_are_decoded(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=1,
        transaction_timeout_ms=60_000,
        transaction_status=0,
        transaction_partitions=None,
        transaction_last_update_timestamp_ms=5,
        transaction_start_timestamp_ms=4,
    )
    append(manager, "__transaction_state", *TRANSACTION_RECORDS.encode(TransactionLogKey(transactional_id="id"), value))
    log = manager.get_or_create(TopicPartition("__transaction_state", 0), topic_id=uuid.UUID(int=9), now_ms=NOW)
    marker = EndTransactionMarker(ControlType.COMMIT, 4)
    log.append_marker(marker, producer_id=7, producer_epoch=1, transaction_version=1, leader_epoch=0, now_ms=NOW)
    log.write()
    manager.close()
    shown = run("dump", tmp_path / "__transaction_state-0", "--records")
    assert contents(shown)[0] == (
        'key: {"type":"0","data":{"transactionalId":"id"}} payload: {"version":"1","data":{"producerId":7,'
        '"producerEpoch":1,"transactionTimeoutMs":60000,"transactionStatus":0,"transactionPartitions":null,'
        '"transactionLastUpdateTimestampMs":5,"transactionStartTimestampMs":4}}'
    )
    assert " headerKeys: [] endTxnMarker: COMMIT coordinatorEpoch: 4\n" in shown.stdout


def test_a_copied_file_is_decoded_by_option_and_others_never_are(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    append(manager, "copied", *COMMIT)
    append(manager, "__consumer_offsets", *COMMIT)
    manager.close()
    file = tmp_path / "copied-0" / FIRST
    assert not contents(run("dump", file, "--records"))[0].startswith("key: {")
    assert contents(run("dump", file, "--offsets-decoder"))[0].startswith('key: {"type":"1"')
    assert contents(run("dump", file, "--transaction-log-decoder")) == ["key: <unknown record type 1>"]
    assert contents(run("dump", tmp_path / OFFSETS)) == [], "records are printed when asked for"


@pytest.mark.parametrize("suffix", ["", f".{7:032x}-delete", f".{7:032x}-stray"])
def test_the_topic_is_known_by_the_directory_also_when_that_is_put_aside(tmp_path: Path, suffix: str) -> None:
    manager = new_manager(tmp_path)
    append(manager, "__consumer_offsets", *COMMIT)
    manager.close()
    folder = (tmp_path / "__consumer_offsets-0").rename(tmp_path / f"__consumer_offsets-0{suffix}")
    assert contents(run("dump", folder / FIRST, "--records"))[0].startswith('key: {"type":"1"')


def test_a_damaged_file_is_dumped_up_to_the_damage(data: Path) -> None:
    path = data / "t-0" / FIRST
    content = path.read_bytes()
    path.write_bytes(content[:-1])
    shown = run("dump", path)
    assert shown.exit_code == 1
    assert shown.stdout.splitlines()[-1].startswith("damaged at byte ")


def test_a_file_that_cannot_be_read_is_named_and_the_others_are_dumped(data: Path) -> None:
    for path in (data / "t-0" / FIRST, data / "meta.properties"):
        path.unlink()
        path.mkdir()
    result = run("dump", data)
    assert result.exit_code == 1
    assert result.stderr.splitlines() == [
        f"odradek: {data}/meta.properties cannot be read: Is a directory",
        f"odradek: {data}/t-0/{FIRST} cannot be read: Is a directory",
    ]
    assert "baseOffset: 7" in result.stdout


def test_a_path_without_a_log_is_refused_in_one_line(data: Path, tmp_path: Path) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("x")
    (tmp_path / "empty").mkdir()
    for arguments in (["dump", other], ["dump", tmp_path / "empty"], ["verify", tmp_path / "empty"]):
        shown = run(*arguments)
        assert (shown.exit_code, len(shown.stderr.splitlines()), shown.stdout) == (2, 1, "")
    assert "does not exist" in run("dump", data / "t-0" / f"{7:020d}.log").stderr


def test_a_directory_without_damage_is_verified_with_its_totals(data: Path) -> None:
    shown = run("verify", data, "--records")
    assert shown.exit_code == 0
    (line,) = shown.stdout.splitlines()
    assert line.startswith("1 logs, 2 segments, 8 batches, 8 records, ")
    assert line.endswith(" bytes: nothing is damaged")
    (totals,) = objects(run("verify", data / "t-0", "--json"))
    assert (totals["type"], totals["batches"], totals["damaged_files"]) == ("totals", 8, 0)


def test_damage_is_named_at_its_byte_and_exits_with_1(data: Path) -> None:
    path = data / "t-0" / FIRST
    content = bytearray(path.read_bytes())
    second = read_header(content).size
    content[second + 70] ^= 1
    path.write_bytes(content)
    shown = run("verify", data)
    assert shown.exit_code == 1
    first, last = shown.stdout.splitlines()
    assert first == f"{path}: byte {second}: has a batch with a wrong checksum, at offset 1"
    assert last.endswith(": 1 file is damaged")
    finding, totals = objects(run("verify", data / "t-0", "--json"))
    assert (finding["path"], finding["byte"], finding["is_damage"]) == (str(path), second, True)
    assert totals["damaged_files"] == 1


def test_an_incomplete_end_beside_a_running_broker_is_reported_and_no_damage(tmp_path: Path) -> None:
    manager = new_manager(tmp_path)
    append(manager, "t", b"k", b"v")
    append(manager, "t", b"k", b"v")
    path = tmp_path / "t-0" / FIRST
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    shown = run("verify", tmp_path)
    half = len(content) // 2
    assert shown.exit_code == 0
    assert "note: is in use by process" in shown.stdout
    assert f"{path}: byte {half}: note: ends with {half - 5} bytes" in shown.stdout
    dumped = run("dump", path)
    assert (dumped.exit_code, dumped.stdout.splitlines()[-1].startswith(f"damaged at byte {half}")) == (0, True)
    manager.kill()
    assert run("verify", tmp_path).exit_code == 1
    assert run("dump", path).exit_code == 1
