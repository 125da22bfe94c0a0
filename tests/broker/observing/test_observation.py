"""A broker's metrics: everything is counted that should be, and metrics that are off cost nothing."""

import asyncio
import errno
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from msgspec.structs import replace

from odradek import __version__
from odradek.broker.counters import Histogram
from odradek.broker.interfaces import Phase
from odradek.broker.lifecycle import Broker
from odradek.broker.observing import catalog, observation
from odradek.broker.observing.catalog import Metric
from odradek.broker.observing.monitor import Monitor
from odradek.broker.observing.observation import observe
from odradek.config.broker import BrokerConfig
from odradek.model import ErrorCode, StorageError
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from odradek.stores import MemoryStore
from tests.world.scenes import played


class Numbers:
    """An observation, by metric and labels."""

    def __init__(self, broker: Broker) -> None:
        self.families = {family.metric: dict(family.samples) for family in observe(broker)}

    def __call__(self, metric: Metric, *labels: str) -> Any:
        return self.families[metric][labels]


async def measured(world: World, **config: Any) -> Broker:
    """A broker whose requests are measured."""
    settings = {"listeners": ("PLAINTEXT://broker:9092",), "log_dirs": ("/data",), **config}
    broker = Broker(BrokerConfig(**settings), world.runtime, MemoryStore(world.tree))
    broker.server.measure_requests()
    await broker.start()
    return broker


@played
async def test_every_metric_of_the_catalogue_is_observed_once(world: World) -> None:
    broker = await measured(world)
    await world.client()
    metrics = [family.metric for family in observe(broker)]
    assert sorted(metric.name for metric in metrics) == sorted(metric.name for metric in catalog.ALL)
    for family in observe(broker):
        assert all(len(labels) == len(family.metric.labels) for labels, _ in family.samples)


@played
async def test_a_broker_that_has_not_started_or_has_stopped_can_be_observed(world: World) -> None:
    settings: Any = {"listeners": ("PLAINTEXT://broker:9092",), "log_dirs": ("/data",)}
    broker = Broker(BrokerConfig(**settings), world.runtime, MemoryStore(world.tree))
    assert Numbers(broker)(catalog.BROKER_STATE) == Phase.STARTING
    await broker.start()
    assert Numbers(broker)(catalog.BROKER_STATE) == Phase.RUNNING
    await broker.stop()
    numbers = Numbers(broker)
    assert numbers(catalog.BROKER_STATE) == Phase.STOPPING
    assert numbers(catalog.LEADER_COUNT) == 0


@played
async def test_a_broker_that_opens_its_logs_answers_meanwhile(world: World) -> None:
    first = await world.start()
    await (await world.client()).create_topic("t")
    await first.stop()
    world.runtime.disk.delay_s = (5.0, 5.0)
    starting = asyncio.ensure_future(world.start())
    await world.pass_time(4)
    assert not starting.done()
    (await world.client()).transport.close()
    world.runtime.disk.delay_s = (0.0, 0.0)
    assert Numbers(await starting)(catalog.LEADER_COUNT) == 1


@played
async def test_records_are_counted_on_their_way_in_and_out(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t", partitions=2)
    batch = world.batch(b"a", b"b", b"c")
    for partition in (0, 0, 1):
        assert (await client.produce("t", batch, partition=partition)).error_code == 0
    await client.fetch("t", 0)
    await client.fetch("t", 0, partition=1)
    numbers = Numbers(broker)
    assert numbers(catalog.MESSAGES_IN, "t") == 9
    assert numbers(catalog.BYTES_IN, "t") == 3 * len(batch)
    assert numbers(catalog.BYTES_OUT, "t") == 3 * len(batch)
    assert numbers(catalog.LOG_END_OFFSET, "t", "0") == 6
    assert numbers(catalog.LOG_START_OFFSET, "t", "1") == 0
    assert numbers(catalog.LOG_SIZE, "t", "0") == 2 * len(batch)
    assert numbers(catalog.LOG_SEGMENTS, "t", "1") == 1
    assert (numbers(catalog.PARTITION_COUNT), numbers(catalog.LEADER_COUNT)) == (2, 2)
    assert (numbers(catalog.TOTAL_PRODUCES, "t"), numbers(catalog.TOTAL_FETCHES, "t")) == (3, 2)


@played
async def test_a_fetch_that_waits_is_counted_while_it_waits_and_once_when_it_is_answered(world: World) -> None:
    broker = await world.start()
    producer, consumer = await world.client(), await world.client()
    await producer.create_topic("t")
    batch = world.batch(b"a")
    consumer.send_fetch([("t", 0, 0)], max_wait_ms=500, min_bytes=1, session=(0, 0))
    await world.pass_time(0.1)
    assert Numbers(broker)(catalog.PURGATORY_SIZE) == 1
    await producer.produce("t", batch)
    await consumer.fetch_response()
    numbers = Numbers(broker)
    assert numbers(catalog.PURGATORY_SIZE) == 0
    assert numbers(catalog.BYTES_OUT, "t") == len(batch)
    assert (numbers(catalog.FETCH_SESSIONS), numbers(catalog.FETCH_SESSION_PARTITIONS)) == (1, 1)


@played
async def test_a_session_that_makes_room_for_another_is_counted(world: World) -> None:
    broker = await world.start(max_incremental_fetch_session_cache_slots=1)
    client = await world.client()
    await client.create_topic("t")
    for _ in range(2):
        client.send_fetch([("t", 0, 0)], session=(0, 0))
        await client.fetch_response()
        await world.pass_time(200)
    assert Numbers(broker)(catalog.FETCH_SESSION_EVICTIONS) == 1


@played
async def test_a_topic_that_is_deleted_takes_its_numbers_along(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.create_topic("t")
    await client.produce("t", world.batch(b"a"))
    await client.ask(ApiKey.DELETE_TOPICS, {"topic_names": ["t"], "timeout": 1000}, 5)
    numbers = Numbers(broker)
    assert numbers.families[catalog.MESSAGES_IN] == {}
    assert numbers.families[catalog.LOG_SIZE] == {}


@played
async def test_failed_requests_are_counted_on_the_fast_path_and_beside_it(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    created = await client.create_topic("t")
    assert (await client.produce("nope", world.batch(b"a"))).error_code
    assert (await client.produce("t", world.batch(b"a"))).error_code == 0
    world.runtime.disk.fail_next("append", errno.EIO, path_end="t-0/00000000000000000000.log")
    assert (await client.produce("t", world.batch(b"a"))).error_code
    client.send_fetch([("nope", 0, 0)])
    await client.fetch_response()
    assert (await client.fetch(created.topic_id, 9, version=13)).error_code == ErrorCode.kafka_storage_error
    numbers = Numbers(broker)
    assert (numbers(catalog.FAILED_PRODUCES, "t"), numbers(catalog.FAILED_FETCHES, "t")) == (1, 1)
    assert (numbers(catalog.TOTAL_PRODUCES, "t"), numbers(catalog.TOTAL_FETCHES, "t")) == (2, 1)
    assert (numbers(catalog.FAILED_PRODUCES, ""), numbers(catalog.FAILED_FETCHES, "")) == (1, 1)
    assert numbers(catalog.OFFLINE_REPLICAS) == 1


@played
async def test_the_space_of_each_usable_data_directory_is_shown(world: World) -> None:
    world.runtime.disk.capacity_bytes = 1 << 30
    broker = await world.start(log_dirs=("/data", "/more"))
    numbers = Numbers(broker)
    assert numbers(catalog.TOTAL_BYTES, "/more") == 1 << 30
    assert 0 < numbers(catalog.FREE_BYTES, "/data") < 1 << 30
    broker.logs.directories.offline["/more"] = StorageError("gone")
    assert Numbers(broker).families[catalog.FREE_BYTES].keys() == {("/data",)}


@played
async def test_partitions_that_their_preferred_replica_does_not_lead_are_counted(world: World) -> None:
    broker = await world.start()
    await (await world.client()).create_topic("t", partitions=2)
    assert Numbers(broker)(catalog.PREFERRED_IMBALANCE) == 0
    topic = broker.image.topics["t"]
    moved = {**topic.partitions, 1: replace(topic.partitions[1], replicas=(7, 0))}
    broker.metadata.image = replace(broker.image, topics={"t": replace(topic, partitions=moved)})
    assert Numbers(broker)(catalog.PREFERRED_IMBALANCE) == 1


@played
async def test_committed_offsets_of_groups_with_members_are_shown_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M1: clients can commit for any number of groups; those are shown that something reads with."""
    monkeypatch.setattr(observation, "_LOGS_AT_ONCE", 1)
    monkeypatch.setattr(observation, "_OFFSETS_SHOWN", 2)

    async def commit(client: WireClient, group: str, offset: int) -> None:
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}]
        topics = [{"name": "t", "partitions": partitions}]
        body = {"group_id": group, "generation_id_or_member_epoch": -1, "member_id": "", "topics": topics}
        await client.ask(ApiKey.OFFSET_COMMIT, body, 5)

    broker = await world.start(offsets_topic_num_partitions=1)
    client = await world.client()
    await client.create_topic("t")
    await client.ask(ApiKey.FIND_COORDINATOR, {"key": "g", "key_type": 0}, 3)
    await world.pass_time(1)
    for group in ("idle", "idle2", "read"):
        await commit(client, group, len(group))
    member = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    join = {"group_id": "read", "session_timeout": 10000, "rebalance_timeout": 10000, "member_id": "", **member}
    await client.ask(ApiKey.JOIN_GROUP, join, 2)
    shown = Numbers(broker).families[catalog.COMMITTED_OFFSET]
    assert shown == {("read", "t", "0"): 4, ("idle", "t", "0"): 4}


@played
async def test_clients_are_counted_by_listener(world: World) -> None:
    broker = await world.start(max_connections=2)
    clients = [await world.client() for _ in range(2)]
    with suppress(ConnectionResetError):
        await world.client()
    await world.pass_time(1)
    numbers = Numbers(broker)
    assert numbers(catalog.CONNECTIONS, "PLAINTEXT") == 2
    assert numbers(catalog.CONNECTIONS_CREATED, "PLAINTEXT") == 2
    assert numbers(catalog.CONNECTIONS_REJECTED, "PLAINTEXT") == 1
    clients[0].transport.close()
    await world.pass_time(1)
    assert Numbers(broker)(catalog.CONNECTIONS, "PLAINTEXT") == 1


@played
async def test_requests_are_counted_by_api_and_version_and_timed(world: World) -> None:
    broker = await measured(world)
    client = await world.client()
    await client.create_topic("t")
    for _ in range(3):
        await client.produce("t", world.batch(b"a"))
    client.send_fetch([("t", 0, 3)], max_wait_ms=400)
    await client.fetch_response()
    numbers = Numbers(broker)
    assert numbers(catalog.REQUESTS, "CreateTopics", "7") == 1
    assert numbers(catalog.REQUESTS, "Produce", "11") == 3
    assert numbers(catalog.REQUESTS, "Fetch", "12") == 1
    times: Histogram = numbers(catalog.TOTAL_TIME, "Fetch")
    assert 399 < times.total < 410
    assert sum(numbers(catalog.REQUEST_QUEUE_TIME, "Produce").counts) == 3
    assert numbers(catalog.REQUEST_BYTES, "Produce") > numbers(catalog.RESPONSE_BYTES, "Produce") > 0


@played
async def test_a_request_that_waits_for_its_turn_spent_that_time_in_the_queue(world: World) -> None:
    broker = await measured(world)
    client = await world.client()
    await client.create_topic("t")
    client.send_fetch([("t", 0, 0)], max_wait_ms=300)
    client.send(ApiKey.API_VERSIONS, b"", 0)
    await client.fetch_response()
    await client.answer()
    waited: Histogram = Numbers(broker)(catalog.REQUEST_QUEUE_TIME, "ApiVersions")
    assert (sum(waited.counts), 299 < waited.total < 310) == (1, True)


@played
async def test_unknown_requests_are_counted_under_one_name(world: World) -> None:
    broker = await measured(world)
    for payload in (b"\x7f\xff\0\1\0\0\0\1\xff\xff", b"\0\0\x7f\xff\0\0\0\1\xff\xff", b"\0", b""):
        client = await world.client()
        client.send_bytes(payload)
        await world.pass_time(1)
    assert Numbers(broker).families[catalog.REQUESTS] == {("Unknown", ""): 4}


@played
async def test_requests_of_features_that_are_off_are_counted_by_name(world: World) -> None:
    broker = await measured(world)
    client = await world.client()
    message = {"group_ids": ["g"], "include_authorized_operations": False}
    await client.ask(ApiKey.SHARE_GROUP_DESCRIBE, message, 1)
    assert Numbers(broker).families[catalog.REQUESTS] == {("ShareGroupDescribe", "1"): 1}


@played
async def test_without_a_monitor_no_request_is_measured(world: World) -> None:
    broker = await world.start()
    client = await world.client()
    await client.ask(ApiKey.API_VERSIONS, {}, 0)
    assert broker.server.meter is None
    assert catalog.REQUESTS not in Numbers(broker).families


@played
async def test_operations_on_the_tree_are_counted(world: World) -> None:
    broker = await world.start()
    counts = broker.tree.counts
    before = dict(counts)
    client = await world.client()
    await client.create_topic("t", partitions=3)
    made = Counter(counts)
    made.subtract(before)
    # The topic with its configuration and partitions: /brokers/topics/t, …/partitions, and 3 × (/N, /N/state).
    assert made["Create"] >= 8
    assert 1 <= made["Multi"] <= 4
    numbers = Numbers(broker)
    assert all(numbers(catalog.TREE_OPERATIONS, name) == count for name, count in counts.items())


@played
async def test_metrics_show_the_controller_the_cluster_and_the_states_of_groups(world: World) -> None:
    broker = await world.start(offsets_topic_num_partitions=1, group_initial_rebalance_delay_ms=100)
    client = await world.client()
    await client.create_topic("t", partitions=3)
    await client.ask(ApiKey.FIND_COORDINATOR, {"key": "g", "key_type": 0}, 3)
    await world.pass_time(1)
    member = {"protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b""}]}
    join = {"group_id": "g", "session_timeout": 10000, "rebalance_timeout": 10000, "member_id": "", **member}
    await client.ask(ApiKey.JOIN_GROUP, join, 2)
    numbers = Numbers(broker)
    assert (numbers(catalog.ACTIVE_CONTROLLER), numbers(catalog.ACTIVE_BROKERS)) == (1, 1)
    assert (numbers(catalog.GLOBAL_TOPICS), numbers(catalog.GLOBAL_PARTITIONS)) == (2, 4)
    assert (numbers(catalog.OFFLINE_PARTITIONS), numbers(catalog.UNDER_REPLICATED)) == (0, 0)
    assert numbers(catalog.GROUPS) == 1
    states = {state: numbers(metric) for state, metric in catalog.GROUPS_BY_STATE.items()}
    assert {state for state, count in states.items() if count} == {"CompletingRebalance"}
    info = numbers.families[catalog.INFO]
    assert info == {(__version__, "0", broker.image.cluster_id): 1}


class Page(asyncio.Protocol):
    """A response of the monitor."""

    def __init__(self) -> None:
        self.received = b""

    def data_received(self, data: bytes) -> None:
        self.received += data


@played
async def test_probes_are_answered_before_during_and_after_the_brokers_life(world: World) -> None:
    settings: Any = {"listeners": ("PLAINTEXT://broker:9092",), "log_dirs": ("/data",)}
    store = MemoryStore(world.tree)
    broker = Broker(BrokerConfig(**settings), world.runtime, store)
    monitor = Monitor(broker)
    await monitor.open("broker", 9404)

    async def probe(path: str) -> tuple[int, str]:
        transport, page = await world.simulation.runtime("client").network.connect(Page, "broker", monitor.port)
        transport.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
        await world.pass_time(1)
        head, _, body = page.received.decode().partition("\r\n\r\n")
        return int(head.split()[1]), body

    assert await probe("/readyz") == (503, "the broker is starting\n")
    assert await probe("/healthz") == (200, "ok\n")
    await broker.start()
    assert await probe("/readyz") == (200, "ready\n")
    assert (await probe("/nope"))[0] == 404
    image, broker.metadata.image = broker.image, type(broker.image)()
    assert (await probe("/readyz"))[0] == 503
    broker.metadata.image = image
    store.disconnect()
    await world.pass_time(20)
    assert await probe("/readyz") == (503, "the broker leads nothing: its session with the metadata may be over\n")
    assert [Numbers(broker)(metric) for metric in (catalog.FENCED, catalog.FENCINGS)] == [1, 1]
    store.reconnect()
    await world.pass_time(1)
    assert await probe("/readyz") == (200, "ready\n")
    assert [Numbers(broker)(metric) for metric in (catalog.FENCED, catalog.FENCINGS)] == [0, 1]
    await broker.stop()
    assert await probe("/readyz") == (503, "the broker is stopping\n")
    monitor.close()
