"""A served broker's memory under attack, by the peak that the kernel remembers, and with very many idle clients."""

import contextlib
import re
import resource
import socket
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.messages.headers import encode_request_header
from odradek.protocol.messages.message_codec import encode_request
from odradek.simulation.wire_client import BlockingWireClient
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

DEADLINE_S: Final = 60.0
"""For an answer, of a broker that is not alone on its machine."""

MIB: Final = 1024 * 1024
QUEUED_BYTES: Final = 16 * MIB
LARGEST_BYTES: Final = 8 * MIB
UNPACKED_BYTES: Final = QUEUED_BYTES
MOST_BYTES: Final = 8 * QUEUED_BYTES + 2 * UNPACKED_BYTES
"""The memory that attacks may add to an idle broker, as in docs/decisions/0006: `queued.max.request.bytes` for lent
buffers, for pooled ones, for requests in flight, for members, for fetch sessions and for response buffers, twice for
unread responses (a buffer may be twice what was read into it); a decompressed batch twice, with
`log.validate.max.bytes` each."""
CROWD: Final = 150
PATIENCE_MS: Final = 60_000
"""The memory that the broker may take for legitimate work."""
IDLE_CLIENTS: Final = 10_000
MOST_KIB_EACH: Final = 8
FLAGS: Final = {
    "allow_auto_topic_creation": False,
    "include_cluster_authorized_operations": False,
    "include_topic_authorized_operations": False,
}


def memory_kib(broker: ServedBroker, what: str) -> int:
    found = re.search(rf"{what}:\s+(\d+) kB", Path(f"/proc/{broker.pid}/status").read_text())
    assert found
    return int(found[1])


def framed(api: int, version: int, message: dict[str, Any], correlation_id: int = 1) -> bytes:
    body = encode_request_header(api, version, correlation_id, "attacker") + encode_request(api, version, message)
    return struct.pack(">i", len(body)) + body


class Crowd(contextlib.ExitStack):
    """Many sockets that send what the broker takes, and read nothing; they are closed when it is left."""

    def __init__(self, servers: str, size: int = CROWD) -> None:
        super().__init__()
        host, _, port = servers.partition(":")
        with contextlib.ExitStack() as opened:
            self.sockets = [
                opened.enter_context(socket.create_connection((host, int(port)), timeout=DEADLINE_S))
                for _ in range(size)
            ]
            self.push(opened.pop_all())
        for each in self.sockets:
            each.setblocking(False)

    def send(self, data: bytes, times: int = 1) -> None:
        """`data` to each of them, in turns, as far as it is taken."""
        left = {each: memoryview(data * times) for each in self.sockets}
        for _ in range(4 * len(data) * times // 65_536 + 4):
            for each, rest in tuple(left.items()):
                with contextlib.suppress(OSError):
                    left[each] = rest[each.send(rest) :]
                if not left[each]:
                    del left[each]


def wide(api: int, version: int, message: Callable[[int], dict[str, Any]]) -> bytes:
    """A frame of about the largest size, of entries as small as they can be."""
    entry = len(encode_request(api, version, message(1001))) - len(encode_request(api, version, message(1)))
    return framed(api, version, message((LARGEST_BYTES - 1000) * 1000 // entry))


def fetch_all() -> bytes:
    partition = {"partition": 0, "current_leader_epoch": -1, "fetch_offset": 0, "log_start_offset": -1}
    message = {
        "replica_id": -1,
        "max_wait": 0,
        "min_bytes": 1,
        "max_bytes": 2**31 - 1,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "forgotten_topics_data": [],
        "rack_id": "",
        "topics": [{"topic": "t", "partitions": [{**partition, "partition_max_bytes": 2**31 - 1}]}],
    }
    return framed(ApiKey.FETCH, 11, message)


def fetch_widely() -> bytes:
    """The largest session that there may be."""
    partitions = [
        {
            "partition": n,
            "current_leader_epoch": -1,
            "fetch_offset": 0,
            "log_start_offset": -1,
            "partition_max_bytes": 1,
        }
        for n in range(9000)
    ]
    message = {
        "replica_id": -1,
        "max_wait": 60_000,
        "min_bytes": 2**31 - 1,
        "max_bytes": 1,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": 0,
        "forgotten_topics_data": [],
        "rack_id": "",
        "topics": [{"topic": "wide", "partitions": partitions}],
    }
    return framed(ApiKey.FETCH, 11, message)


def describe_all() -> bytes:
    configurations = {"resource_type": 2, "resource_name": "t", "configuration_keys": None}
    message = {"resources": [configurations] * 5000, "include_synonyms": True, "include_documentation": True}
    return framed(ApiKey.DESCRIBE_CONFIGS, 4, message)


def join_at_length() -> bytes:
    message = {
        "group_id": "g",
        "session_timeout": 10_000,
        "rebalance_timeout": 10_000,
        "member_id": "",
        "protocol_type": "consumer",
        "protocols": [{"name": "range", "metadata": bytes(900_000)}],
    }
    return framed(ApiKey.JOIN_GROUP, 3, message)


def produce_of(topics: list[dict[str, Any]]) -> dict[str, Any]:
    return {"transactional_id": None, "acks": 1, "timeout": PATIENCE_MS, "topic_data": topics}


def zip_bomb() -> bytes:
    records = bytes(encode_batch([(1, None, bytes(200 * MIB), ())], codec=1))
    return framed(
        ApiKey.PRODUCE, 9, produce_of([{"name": "zstd", "partition_data": [{"index": 0, "records": records}]}])
    )


ATTACKS: Final[dict[str, Callable[[], tuple[bytes, int]]]] = {
    "a claim and silence": lambda: (struct.pack(">i", LARGEST_BYTES), 1),
    "half a request and silence": lambda: (struct.pack(">i", LARGEST_BYTES) + bytes(LARGEST_BYTES - 1), 1),
    "a few bytes and silence": lambda: (struct.pack(">i", 1000) + bytes(500), 1),
    "wide Metadata": lambda: (wide(ApiKey.METADATA, 9, lambda n: {"topics": [{"name": "t"}] * n, **FLAGS}), 1),
    "wide DeleteGroups": lambda: (wide(ApiKey.DELETE_GROUPS, 2, lambda n: {"groups_names": [""] * n}), 1),
    "wide Produce": lambda: (
        wide(ApiKey.PRODUCE, 9, lambda n: produce_of([{"name": "", "partition_data": []}] * n)),
        1,
    ),
    "as wide as may be": lambda: (framed(ApiKey.DELETE_GROUPS, 2, {"groups_names": [*map(str, range(9000))]}), 1),
    "configurations nobody reads": lambda: (describe_all(), 20),
    "records nobody reads": lambda: (fetch_all(), 200),
    "small answers nobody reads": lambda: (framed(ApiKey.METADATA, 9, {"topics": [{"name": "t"}], **FLAGS}), 3000),
    "wide sessions": lambda: (fetch_widely(), 3),
    "members who say much": lambda: (join_at_length(), 1),
    "zip bombs": lambda: (zip_bomb(), 1),
}
"""Name → what each of the crowd sends, and how often."""


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedBroker]:
    """A broker whose limits are small, so that they are soon reached."""
    options = {
        "queued.max.request.bytes": str(QUEUED_BYTES),
        "log.validate.max.bytes": str(UNPACKED_BYTES),
        "socket.request.max.bytes": str(LARGEST_BYTES),
        "group.initial.rebalance.delay.ms": "0",
        "offsets.topic.num.partitions": "1",
        "log.retention.ms": "-1",
    }
    with ServedBroker(tmp_path_factory.mktemp("small") / "data", options=options) as broker:
        with BlockingWireClient(broker.bootstrap_servers) as client:
            for name, configs in (("t", []), ("zstd", [{"name": "compression.type", "value": "zstd"}])):
                topic = {"name": name, "num_partitions": 1, "replication_factor": 1, "assignments": []}
                wanted = {"topics": [{**topic, "configs": configs}], "timeout": PATIENCE_MS, "validate_only": False}
                assert client.ask(ApiKey.CREATE_TOPICS, wanted, 5).topics[0].error_code is ErrorCode.none
            client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}, 4)
            data = bytes(encode_batch([(1, None, bytes(1000), ())] * 900, codec=0))
            for _ in range(10):
                records = [{"name": "t", "partition_data": [{"index": 0, "records": data}]}]
                message = {"transactional_id": None, "acks": -1, "timeout": PATIENCE_MS, "topic_data": records}
                answer = client.ask(ApiKey.PRODUCE, message, 9)
                assert answer.responses[0].partition_responses[0].error_code is ErrorCode.none
        yield broker


@pytest.fixture(scope="module")
def idle_kib(small: ServedBroker) -> int:
    """The memory of the broker before any attack."""
    return memory_kib(small, "VmRSS")


@pytest.mark.parametrize("name", ATTACKS)
def test_no_attack_takes_more_memory_than_the_configuration_allows(
    small: ServedBroker, idle_kib: int, name: str
) -> None:
    data, times = ATTACKS[name]()
    Path(f"/proc/{small.pid}/clear_refs").write_text("5")  # the peak counts from now on
    with BlockingWireClient(small.bootstrap_servers) as neighbour:
        with Crowd(small.bootstrap_servers) as crowd:
            crowd.send(data, times)
            assert neighbour.ask(ApiKey.METADATA, {"topics": [], **FLAGS}, 9).brokers, "others are still served"
        assert neighbour.ask(ApiKey.METADATA, {"topics": [], **FLAGS}, 9).brokers
    peak_kib = memory_kib(small, "VmHWM")
    print(f"{name}: {(peak_kib - idle_kib) // 1024} MiB more than when idle")
    assert peak_kib < idle_kib + MOST_BYTES // 1024
    assert "Traceback" not in small.errors.read_text()


def test_ten_thousand_idle_clients_take_little_memory_and_others_are_served(tmp_path: Path) -> None:
    """As many as the limit for open files has room for, here and in the broker; the figures are printed."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    count = min(IDLE_CLIENTS, hard - 1000)
    question = framed(ApiKey.API_VERSIONS, 0, {})
    try:
        with ServedBroker(tmp_path / "data") as broker, BlockingWireClient(broker.bootstrap_servers) as neighbour:
            assert neighbour.ask(ApiKey.METADATA, {"topics": [], **FLAGS}, 9).brokers
            before_kib = memory_kib(broker, "VmRSS")
            with Crowd(broker.bootstrap_servers, count) as idle:
                idle.send(question)
                for each in idle.sockets:
                    each.settimeout(DEADLINE_S)
                    assert each.recv(4096)
                quiet_kib = memory_kib(broker, "VmRSS") - before_kib
                idle.send(question[:9])
                for _ in range(100):
                    assert neighbour.ask(ApiKey.METADATA, {"topics": [], **FLAGS}, 9).brokers
                half_kib = memory_kib(broker, "VmRSS") - before_kib
            print(f"{count} clients: {quiet_kib / count:.1f} KiB each, with half a request {half_kib / count:.1f}")
            assert quiet_kib / count < MOST_KIB_EACH
            assert half_kib / count < MOST_KIB_EACH
            assert neighbour.ask(ApiKey.METADATA, {"topics": [], **FLAGS}, 9).brokers
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
