"""Requests of a hostile or broken client get Kafka's error code, or close that connection and no other (SPEC 12)."""

import random
import re
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import confluent_kafka
import pytest

from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.record_batch import HEADER_SIZE
from odradek.protocol.batches.records import encode_batch
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

NOW_MS: Final = 1_790_000_000_000
METADATA: Final[dict[str, Any]] = {
    "topics": [],
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


@pytest.fixture
def neighbour(servers: str) -> Iterator[BlockingWireClient]:
    """A well-behaved connection, open before and still served after."""
    with BlockingWireClient(servers) as connection:
        assert metadata(connection).cluster_id
        yield connection
        assert metadata(connection).cluster_id


@pytest.fixture
def broken(servers: str, neighbour: BlockingWireClient) -> Iterator[BlockingWireClient]:
    """The connection that misbehaves."""
    assert neighbour
    with BlockingWireClient(servers) as connection:
        yield connection


def metadata(connection: BlockingWireClient, **fields: Any) -> Any:
    return connection.ask(ApiKey.METADATA, METADATA | fields, 9)


def create(servers: str, topic: str) -> None:
    with BlockingWireClient(servers) as connection:
        wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
        answer = connection.ask(
            ApiKey.CREATE_TOPICS, {"topics": [wanted], "timeout": 10_000, "validate_only": False}, 5
        )
        assert answer.topics[0].error_code is ErrorCode.none


def produce_message(topic: str, records: bytes, partition: int = 0) -> dict[str, Any]:
    data = [{"name": topic, "partition_data": [{"index": partition, "records": records}]}]
    return {"transactional_id": None, "acks": -1, "timeout": 10_000, "topic_data": data}


def batch() -> bytearray:
    return encode_batch([(NOW_MS, b"key", b"value", ())], codec=0)


def memory_kb(served: ServedBroker) -> int:
    status = Path(f"/proc/{served.pid}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert found
    return int(found[1])


def test_random_bytes_close_only_their_connection(servers: str, neighbour: BlockingWireClient, seed: int):
    chance = random.Random(seed)
    for _ in range(30):
        body = chance.randbytes(chance.randrange(1, 300))
        if body[:2] == struct.pack(">h", ApiKey.API_VERSIONS):
            continue  # as in Kafka, answered in any version
        with BlockingWireClient(servers) as broken:
            broken.send_raw(struct.pack(">i", len(body)) + body)
            assert broken.receive() is None
    assert metadata(neighbour).brokers


@pytest.mark.parametrize("length", [2**31 - 1, 2_000_000_000, -1, -(2**31), 0])
def test_an_invalid_length_closes_the_connection_and_allocates_nothing(
    served: ServedBroker, broken: BlockingWireClient, length: int
):
    before_kb = memory_kb(served)
    broken.send_raw(struct.pack(">i", length) + bytes(1000))
    assert broken.receive() is None
    assert memory_kb(served) - before_kb < 20_000


def test_a_connection_with_half_a_frame_is_closed_at_the_idle_time_out(tmp_path: Path):
    with (
        ServedBroker(tmp_path / "data", options={"connections.max.idle.ms": "1500"}) as broker,
        BlockingWireClient(broker.bootstrap_servers) as silent,
    ):
        silent.send_raw(silent.frame(ApiKey.API_VERSIONS, {}, 0)[:-3])
        with BlockingWireClient(broker.bootstrap_servers) as other:  # idle itself, if it had waited
            assert metadata(other).brokers
        assert silent.receive() is None


def test_a_frame_may_arrive_one_byte_at_a_time(broken: BlockingWireClient):
    for byte in broken.frame(ApiKey.API_VERSIONS, {}, 0):
        broken.send_raw(bytes([byte]))
    assert broken.receive()


def test_a_body_that_ends_too_early_closes_the_connection(broken: BlockingWireClient):
    frame = broken.frame(ApiKey.METADATA, METADATA, 9)
    body = frame[4:-4]
    broken.send_raw(struct.pack(">i", len(body)) + body)
    assert broken.receive() is None


def test_an_unknown_api_closes_the_connection(broken: BlockingWireClient):
    body = struct.pack(">hhih", 9999, 0, 1, -1)
    broken.send_raw(struct.pack(">i", len(body)) + body)
    assert broken.receive() is None


def test_an_unknown_version_of_api_versions_gets_a_version_0_response(broken: BlockingWireClient):
    body = struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 7, -1)
    broken.send_raw(struct.pack(">i", len(body)) + body)
    frame = broken.receive()
    assert frame is not None
    correlation_id, error_code, count = struct.unpack_from(">ihi", frame)
    assert (correlation_id, error_code) == (7, ErrorCode.unsupported_version.value)
    ranges = {key: (low, high) for key, low, high in struct.iter_unpack(">hhh", frame[10 : 10 + 6 * count])}
    assert ranges[ApiKey.API_VERSIONS][0] == 0


def test_an_unknown_version_of_another_api_closes_the_connection(broken: BlockingWireClient):
    body = struct.pack(">hhih", ApiKey.METADATA, 99, 7, -1)
    broken.send_raw(struct.pack(">i", len(body)) + body)
    assert broken.receive() is None


def flip_crc(data: bytearray) -> bytearray:
    data[HEADER_SIZE + 3] ^= 0x01
    return data


def cut(data: bytearray) -> bytearray:
    return data[:-1]


def lie_about_length(data: bytearray) -> bytearray:
    data[8:12] = struct.pack(">i", 1_000_000)
    return data


def lie_about_count(data: bytearray) -> bytearray:
    from crc32c import crc32c

    data[57:61] = struct.pack(">i", 1_000)
    data[17:21] = struct.pack(">I", crc32c(memoryview(data)[21:]))
    return data


@pytest.mark.parametrize(
    ("harm", "refusal"),
    [
        (flip_crc, ErrorCode.corrupt_message),
        (cut, ErrorCode.invalid_record),  # no whole batch: as Kafka says it
        (lie_about_length, ErrorCode.invalid_record),
    ],
)
def test_a_damaged_batch_is_refused_and_the_connection_stays_open(
    servers: str, broken: BlockingWireClient, topic: str, harm: Callable[[bytearray], bytearray], refusal: ErrorCode
):
    create(servers, topic)
    answer = broken.ask(ApiKey.PRODUCE, produce_message(topic, bytes(harm(batch()))), 9)
    code = answer.responses[0].partition_responses[0].error_code
    assert code is refusal
    answer = broken.ask(ApiKey.PRODUCE, produce_message(topic, bytes(batch())), 9)
    assert answer.responses[0].partition_responses[0].base_offset == 0


def test_a_batch_with_a_wrong_record_count_is_refused(servers: str, broken: BlockingWireClient, topic: str):
    create(servers, topic)
    answer = broken.ask(ApiKey.PRODUCE, produce_message(topic, bytes(lie_about_count(batch()))), 9)
    code = answer.responses[0].partition_responses[0].error_code
    assert code in {ErrorCode.invalid_record, ErrorCode.corrupt_message}


def test_every_api_returns_an_error_code_for_an_unknown_topic(broken: BlockingWireClient, topic: str):
    unknown = ErrorCode.unknown_topic_or_partition
    answer = broken.ask(ApiKey.PRODUCE, produce_message(topic, bytes(batch())), 9)
    assert answer.responses[0].partition_responses[0].error_code is unknown
    assert metadata(broken, topics=[{"name": topic}]).topics[0].error_code is unknown
    wanted = {"name": topic, "partitions": [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]}
    offsets = broken.ask(ApiKey.LIST_OFFSETS, {"replica_id": -1, "isolation_level": 0, "topics": [wanted]}, 5)
    assert offsets.topics[0].partitions[0].error_code is unknown
    position = {"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1000, "current_leader_epoch": -1}
    request = {
        "replica_id": -1,
        "max_wait": 100,
        "min_bytes": 1,
        "max_bytes": 1000,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [{"log_start_offset": -1, **position}]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    fetched = broken.ask(ApiKey.FETCH, request, 11)
    assert fetched.responses[0].partitions[0].error_code is unknown


def test_every_api_returns_an_error_code_for_an_unknown_partition(servers: str, broken: BlockingWireClient, topic: str):
    create(servers, topic)
    answer = broken.ask(ApiKey.PRODUCE, produce_message(topic, bytes(batch()), partition=5), 9)
    code = answer.responses[0].partition_responses[0].error_code
    assert code is ErrorCode.unknown_topic_or_partition


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "a b", "ä", "x" * 250, "../../etc/passwd"])
def test_an_invalid_topic_name_is_refused_and_creates_nothing(
    served: ServedBroker, broken: BlockingWireClient, name: str
):
    before = sorted(path.name for path in served.data_dir.iterdir())
    answer = metadata(broken, topics=[{"name": name}], allow_auto_topic_creation=True)
    assert answer.topics[0].error_code is ErrorCode.invalid_topic_exception
    wanted = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    created = broken.ask(ApiKey.CREATE_TOPICS, {"topics": [wanted], "timeout": 10_000, "validate_only": False}, 5)
    assert created.topics[0].error_code is ErrorCode.invalid_topic_exception
    assert sorted(path.name for path in served.data_dir.iterdir()) == before


def test_requests_with_random_changes_never_crash_the_broker(served: ServedBroker, topic: str, seed: int):
    servers = served.bootstrap_servers
    create(servers, topic)
    chance = random.Random(seed)
    before_kb = memory_kb(served)
    with BlockingWireClient(servers) as shape:
        whole = [
            shape.frame(ApiKey.PRODUCE, produce_message(topic, bytes(batch())), 9),
            shape.frame(ApiKey.METADATA, METADATA | {"topics": [{"name": topic}]}, 9),
            shape.frame(ApiKey.FIND_COORDINATOR, {"key": "fuzzed", "key_type": 0}, 3),
            shape.frame(ApiKey.HEARTBEAT, {"group_id": "fuzzed", "generation_id": 1, "member_id": "m"}, 4),
        ]
    for _ in range(200):
        frame = bytearray(chance.choice(whole))
        for _ in range(chance.randrange(1, 4)):
            frame[chance.randrange(4, len(frame))] = chance.randrange(256)
        with BlockingWireClient(servers) as broken:
            broken.send_raw(bytes(frame))
            broken.send(ApiKey.API_VERSIONS, {}, 0)
            broken.receive()
    assert memory_kb(served) - before_kb < 50_000
    producer = confluent_kafka.Producer({"bootstrap.servers": servers})
    producer.produce(topic, b"still here")
    assert producer.flush(20) == 0
