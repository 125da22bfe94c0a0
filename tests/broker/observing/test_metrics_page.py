"""The page of metrics after traffic of all kinds: every row of the catalogue is on it, and no row that is not in it."""

import asyncio
import errno
import re
import struct
from pathlib import Path
from typing import Any

import pytest

from odradek.broker.lifecycle import Broker
from odradek.broker.observing import catalog, observation
from odradek.broker.observing.catalog import ALL, Kind, Metric, prometheus_name
from odradek.broker.observing.monitor import Monitor
from odradek.config.broker import BrokerConfig
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.compression import Codec
from odradek.security.quotas import IP_KEYS, USER_KEYS
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from odradek.stores import MemoryStore
from tests.broker.security.quotas.test_client_quotas import alter
from tests.world.scenes import played

SUFFIXES = {Kind.HISTOGRAM: ("_bucket", "_sum", "_count"), Kind.COUNTER: ("",), Kind.GAUGE: ("",)}


@pytest.fixture(autouse=True)
def _no_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    """There are none in virtual time: the page becomes text where it is asked for."""

    async def here(function: Any, *arguments: Any) -> Any:
        return function(*arguments)

    monkeypatch.setattr(asyncio, "to_thread", here)


class Scraper:
    """A broker with a monitor, and what is on its page."""

    def __init__(self, world: World, **config: Any) -> None:
        settings: Any = {"listeners": ("PLAINTEXT://broker:9092",), "log_dirs": ("/data",), **config}
        self.world = world
        self.broker = Broker(BrokerConfig(**settings), world.runtime, MemoryStore(world.tree))
        self.monitor = Monitor(self.broker)

    async def start(self) -> None:
        await self.monitor.open("broker", 9404)
        await self.broker.start()

    async def get(self, path: str) -> tuple[int, str]:
        transport, page = await self.world.simulation.runtime("client").network.connect(
            _Page, "broker", self.monitor.port
        )
        transport.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        head, _, body = (await page.closed).decode().partition("\r\n\r\n")
        return int(head.split()[1]), body

    async def samples(self) -> dict[str, float]:
        """Every sample by its name with labels."""
        _, page = await self.get("/metrics")
        return {
            name: float(value)
            for line in page.splitlines()
            if not line.startswith("#")
            for name, _, value in [line.rpartition(" ")]
        }


class _Page(asyncio.Protocol):
    def __init__(self) -> None:
        self._received = b""
        self.closed: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    def data_received(self, data: bytes) -> None:
        self._received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed.set_result(self._received)


def sample_names(metric: Metric) -> set[str]:
    return {metric.exposed_name + suffix for suffix in SUFFIXES[metric.kind]}


def of(metric: Metric, **labels: str) -> str:
    inside = ",".join(f'{key}="{labels[key]}"' for key in metric.labels)
    return f"{metric.exposed_name}{{{inside}}}" if inside else metric.exposed_name


async def traffic(world: World, client: WireClient) -> None:
    """Something of everything that is counted."""
    await client.create_topic("t")
    await client.create_topic("c", config={"cleanup.policy": "compact"})
    await client.ask(ApiKey.FIND_COORDINATOR, {"key": "g", "key_type": 0}, 3)
    for version in (11, 12):
        await client.produce("t", world.batch(b"a"), version=version)
    await client.fetch("t", 0)
    client.send_fetch([("t", 0, 2)], max_wait_ms=100)
    await client.fetch_response()
    committed = {"partition_index": 0, "committed_offset": 1, "committed_metadata": ""}
    commit = {
        "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "",
        "topics": [{"name": "t", "partitions": [committed]}],
    }  # fmt: skip
    await client.ask(ApiKey.OFFSET_COMMIT, commit, 5)
    await client.ask(ApiKey.HEARTBEAT, {"group_id": "g", "generation_id": 1, "member_id": "m"}, 3)
    joining = {
        "group_id": "modern", "member_id": "m", "member_epoch": 0, "rebalance_timeout": 1000,
        "subscribed_topic_names": ["t"], "topic_partitions": [],
    }  # fmt: skip
    await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, joining, 0)


@played
async def test_every_row_of_the_catalogue_is_on_the_page_and_no_other(world: World) -> None:
    scraper = Scraper(world, offsets_topic_num_partitions=1)
    await scraper.start()
    admin = await world.client()
    await alter(admin, {"user": None}, **dict.fromkeys(USER_KEYS, 1e9))
    await alter(admin, {"ip": None}, **dict.fromkeys(IP_KEYS, 1e9))
    await traffic(world, await world.client())
    names = {re.sub(r"\{.*", "", name) for name in await scraper.samples()}
    ours = {name for name in names if not name.startswith(("process_", "python_"))}
    expected = {name for metric in catalog.ALL for name in sample_names(metric)}
    assert expected - ours == set(), "rows of the table that nobody exports"
    assert {name for name in ours - expected if not name.endswith("_created")} == set(), "exported, in no table"


@played
async def test_refused_batches_are_counted_by_their_reason(world: World) -> None:
    scraper = Scraper(world)
    await scraper.start()
    client = await world.client()
    await client.create_topic("t", config={"max.message.bytes": "200"})
    await client.create_topic("c", config={"cleanup.policy": "compact"})
    damaged, foreign = world.batch(b"a"), world.batch(b"a")
    damaged[-1] ^= 1
    foreign[16] = 1
    large = world.batch(bytes(500))
    sequence = {"producer_id": 7, "producer_epoch": 0}
    assert (await client.produce("t", world.batch(b"a", base_sequence=0, **sequence))).error_code == 0
    refused = [
        ("t", damaged),
        ("t", foreign),
        ("t", large),
        ("c", world.batch(b"no key")),
        ("t", world.batch(b"a", base_sequence=9, **sequence)),
        ("nope", world.batch(b"a", codec=Codec.GZIP)),
    ]
    for topic, batch in refused:
        assert (await client.produce(topic, batch)).error_code
    found = await scraper.samples()
    for metric in (catalog.INVALID_CRC, catalog.INVALID_MAGIC, catalog.KEYLESS, catalog.INVALID_SEQUENCE):
        assert found[of(metric)] == 1, metric.name
    assert found[of(catalog.BYTES_REJECTED, topic="t")] == len(large)
    assert found[of(catalog.FAILED_PRODUCES, topic="t")] == 4
    assert found[of(catalog.FAILED_PRODUCES, topic="c")] == 1
    assert found[of(catalog.FAILED_PRODUCES, topic="")] == 1
    assert found[of(catalog.ERRORS, request="Produce", error="MESSAGE_TOO_LARGE")] == 1
    assert found[of(catalog.ERRORS, request="Produce", error="UNKNOWN_TOPIC_OR_PARTITION")] == 1


@played
async def test_errors_within_an_answer_are_counted_where_the_schema_has_them(world: World) -> None:
    scraper = Scraper(world)
    await scraper.start()
    client = await world.client()
    await client.create_topic("t")
    topics = [{"name": name, "num_partitions": 1, "replication_factor": 1} for name in ("t", "no/name", "new")]
    topics = [topic | {"assignments": [], "configs": []} for topic in topics]
    await client.ask(ApiKey.CREATE_TOPICS, {"topics": topics, "timeout": 1000}, 7)
    await client.ask(ApiKey.HEARTBEAT, {"group_id": "g", "generation_id": 1, "member_id": "m"}, 3)
    found = {name: value for name, value in (await scraper.samples()).items() if "errors_total" in name}
    assert found[of(catalog.ERRORS, request="CreateTopics", error="TOPIC_ALREADY_EXISTS")] == 1
    assert found[of(catalog.ERRORS, request="CreateTopics", error="INVALID_TOPIC_EXCEPTION")] == 1
    assert [name for name in found if "Heartbeat" in name]
    assert not [name for name in found if "NONE" in name]


@played
async def test_errors_of_fetch_sessions_metadata_and_unknown_versions_are_counted(world: World) -> None:
    broker, client = await world.start(), await world.client()
    client.send_fetch([], session=(5, 1))
    assert (await client.fetch_response()).error_code == ErrorCode.fetch_session_id_not_found
    wanted = [{"name": name, "topic_id": None} for name in ("no/name", "nothing", "nowhere")]
    message = {"topics": wanted, "allow_auto_topic_creation": False, "include_topic_authorized_operations": False}
    for _ in range(2):  # the second response is cached
        assert len((await client.ask(ApiKey.METADATA, message, 13)).topics) == 3
    client.send_bytes(struct.pack(">hhih", ApiKey.API_VERSIONS, 99, 5, -1))
    await client.receive()
    assert broker.counters.errors == {
        (ApiKey.FETCH, ErrorCode.fetch_session_id_not_found): 1,
        (ApiKey.METADATA, ErrorCode.invalid_topic_exception): 2,
        (ApiKey.METADATA, ErrorCode.unknown_topic_or_partition): 4,
        (ApiKey.API_VERSIONS, ErrorCode.unsupported_version): 1,
    }


@played
async def test_the_time_of_a_request_is_split_where_it_was_spent(world: World) -> None:
    scraper = Scraper(world)
    await scraper.start()
    client = await world.client()
    await client.create_topic("t")
    client.send_fetch([("t", 0, 0)], max_wait_ms=400)
    client.send_fetch([("t", 0, 0)], max_wait_ms=100)
    await client.fetch_response()
    await client.fetch_response()
    found = await scraper.samples()

    def total(metric: Metric) -> float:
        return found[f'{metric.name}_sum{{request="Fetch"}}']

    assert 498 < total(catalog.REMOTE_TIME) < 505, "400 and 100 ms"
    assert 298 < total(catalog.RESPONSE_QUEUE_TIME) < 305, "the second waited for the first"
    assert 798 < total(catalog.TOTAL_TIME) < 810
    assert total(catalog.LOCAL_TIME) == 0, "work takes no virtual time"
    assert found[of(catalog.CONNECTIONS_CLOSED, listener="PLAINTEXT")] == 0
    client.transport.close()
    await world.pass_time(1)
    assert (await scraper.samples())[of(catalog.CONNECTIONS_CLOSED, listener="PLAINTEXT")] == 1


@played
async def test_the_rates_and_throttle_times_of_clients_with_a_quota_are_shown(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(observation, "SERIES_SHOWN", 2)

    def quotas(found: dict[str, float]) -> dict[str, float]:
        return {name: value for name, value in found.items() if 'client_id="' in name or 'ip="' in name}

    scraper = Scraper(world)
    await scraper.start()
    admin = await world.client("admin")
    await admin.create_topic("t", config={"retention.ms": "-1"})
    assert quotas(await scraper.samples()) == {}, "no client has a quota"
    await alter(admin, {"client-id": "slow"}, producer_byte_rate=100.0, consumer_byte_rate=10.0)
    await alter(admin, {"user": None}, controller_mutation_rate=1.0, request_percentage=50.0)
    await alter(admin, {"client-id": None}, producer_byte_rate=1e6)
    await alter(admin, {"ip": None}, connection_creation_rate=100.0)
    for name in ("slow", "b", "c"):
        client = await world.client(name)
        assert (await client.produce("t", world.batch(bytes(2000)))).error_code == 0
    consumer = await world.client("slow")
    consumer.send_fetch([("t", 0, 0)])
    throttle_ms = (await consumer.fetch_response()).throttle_time_ms
    await admin.create_topic("u", partitions=5)
    found = await scraper.samples()

    slow = {"user": "", "client_id": "slow"}
    rate, throttle = catalog.PRODUCE_QUOTA
    assert 190 < found[of(rate, **slow)] < 230
    assert 5_000 < found[of(throttle, **slow)] < 15_000
    assert 0 < found[of(catalog.FETCH_QUOTA[1], **slow)] <= throttle_ms, "the bytes of a throttled fetch are not sent"
    everyone = {"user": "ANONYMOUS", "client_id": ""}
    assert found[of(catalog.MUTATION_QUOTA[0], **everyone)] == pytest.approx(0.5, rel=0.1)
    assert of(catalog.REQUEST_QUOTA[0], **everyone) in found
    assert [value for name, value in found.items() if name.startswith(catalog.IP_CONNECTION_RATE.name) and value > 0]
    assert len([name for name in found if name.startswith(rate.name)]) == 2
    assert found[of(catalog.QUOTA_SERIES_LEFT_OUT, type="Produce")] == 1, "slow, b and c produced"
    for entity in ({"client-id": "slow"}, {"user": None}, {"client-id": None}, {"ip": None}):
        await alter(admin, entity, **dict.fromkeys(IP_KEYS if "ip" in entity else USER_KEYS))
    assert quotas(await scraper.samples()) == {}


@played
async def test_syncs_are_timed(world: World) -> None:
    scraper = Scraper(world, log_flush_mode="group")
    await scraper.start()
    client = await world.client()
    await client.create_topic("t")
    for _ in range(3):
        await client.produce("t", world.batch(b"a"))
    assert (await scraper.samples())[f"{catalog.LOG_FLUSH_TIME.name}_count"] >= 3


@played
async def test_a_full_disk_leaves_a_broker_ready_since_it_is_read_from(world: World) -> None:
    scraper = Scraper(world)
    await scraper.start()
    client = await world.client()
    await client.create_topic("t")
    world.runtime.disk.fail_next("append", errno.ENOSPC, path_end=".log")
    assert (await client.produce("t", world.batch(b"a"))).error_code == 56
    assert await scraper.get("/readyz") == (200, "ready\n")
    assert await scraper.get("/healthz") == (200, "ok\n/data had no room for a write 0 s ago\n")
    found = await scraper.samples()
    assert found[of(catalog.ERRORS, request="Produce", error="KAFKA_STORAGE_ERROR")] == 1
    assert found[of(catalog.FAILED_PRODUCES, topic="t")] == 1


@played
async def test_while_a_page_is_read_others_are_served(world: World) -> None:
    scraper = Scraper(world)
    await scraper.start()
    turns: list[int] = []

    async def others() -> None:
        while len(turns) < 20:
            turns.append(1)
            await asyncio.sleep(0)

    scraping = asyncio.ensure_future(scraper.samples())
    await asyncio.gather(others(), scraping)
    assert len(turns) == 20


# ---- The catalogue ---------------------------------------------------------------------------------------------------

DOCS = Path(__file__).parents[3] / "docs" / "metrics.md"


@pytest.mark.parametrize(
    ("mbean", "name"),
    [
        ("kafka.server:type=BrokerTopicMetrics,name=BytesInPerSec", "kafka_server_brokertopicmetrics_bytesin"),
        ("kafka.log:type=Log,name=Size", "kafka_log_log_size"),
        ("kafka.network:type=RequestMetrics,name=TotalTimeMs", "kafka_network_requestmetrics_totaltimems"),
        (
            "kafka.server:type=socket-server-metrics,name=connection-creation-total",
            "kafka_server_socket_server_metrics_connection_creation",
        ),
        (
            "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
        ),
    ],
)
def test_a_name_is_what_jmx_exporters_make_of_kafkas(mbean: str, name: str) -> None:
    assert prometheus_name(mbean) == name


def test_no_name_is_there_twice_and_counters_end_in_total() -> None:
    names = [metric.exposed_name for metric in ALL]
    assert len(set(names)) == len(names)
    assert all(metric.exposed_name.endswith("_total") == (metric.kind is Kind.COUNTER) for metric in ALL)
    assert all(metric.help.endswith(".") for metric in ALL)


def test_the_table_in_the_docs_is_the_catalogue() -> None:
    expected = [
        f"| {f'`{metric.mbean}`' if metric.mbean else '–'} | `{metric.exposed_name}` | "
        f"{', '.join(metric.labels) or '–'} | {metric.kind.value} | {metric.help} |"
        for metric in ALL
    ]
    found = [line for line in DOCS.read_text(encoding="utf-8").splitlines() if line.startswith(("| `kafka", "| – | `"))]
    assert found == expected
