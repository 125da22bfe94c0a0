"""The cluster behind its addresses: which broker is asked, what is remembered, how failure is paced."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from odradek.clients import Admin, Consumer, Producer
from odradek.clients.backoff import Backoff
from odradek.clients.cluster import Cluster, ConnectionPurpose, NoBrokerError, open_cluster
from odradek.clients.offsets import LATEST, list_offsets
from odradek.clients.settings import ClientSettings, make_settings, settings_of_properties
from odradek.model import ConfigurationError, ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.testing import Simulation
from tests.world.scenes import in_simulation

T0 = TopicPartition("t", 0)


@in_simulation
async def test_one_reachable_bootstrap_server_suffices(simulation: Simulation, broker: Any) -> None:
    async def scene(cluster: Cluster) -> None:
        assert cluster.metadata.cluster_id == "scripted"
        assert list(cluster.metadata.nodes) == [0]

    await broker.start()
    async with open_cluster("nowhere:1,broker:9092,nowhere:2", runtime=simulation.runtime("client")) as cluster:
        await scene(cluster)


def test_the_error_names_every_address_if_none_answers(simulation: Simulation) -> None:
    async def main() -> None:
        async with open_cluster(["nowhere:1", "nowhere:2"], runtime=simulation.runtime("client")):
            pytest.fail("there is no broker")

    with pytest.raises(NoBrokerError, match=r"(?=.*nowhere:1: connection refused)(?=.*nowhere:2: connection refused)"):
        simulation.run(main())


@pytest.mark.parametrize("kind", ["cluster", "admin", "consumer", "producer"])
@in_simulation
async def test_a_client_that_starts_before_its_cluster_waits_for_it(
    simulation: Simulation, broker: Any, kind: str
) -> None:
    starting = asyncio.ensure_future(start(simulation, kind))
    await asyncio.sleep(50)
    assert not starting.done()
    await broker.start()
    await (await starting).close()
    # A pause is at most 1.2 s.
    assert simulation.clock.elapsed_s < 52


@pytest.mark.parametrize(
    ("kind", "timeouts"),
    [
        ("cluster", {"default_api_timeout_ms": 7_000}),
        ("admin", {"default_api_timeout_ms": 7_000}),
        ("admin", {"timeout_ms": 7_000}),
        ("consumer", {"default_api_timeout_ms": 7_000}),
        ("producer", {"max_block_ms": 7_000}),
    ],
)
def test_a_client_without_a_cluster_fails_after_its_timeout(
    simulation: Simulation, caplog: pytest.LogCaptureFixture, kind: str, timeouts: dict[str, int]
) -> None:
    with pytest.raises(NoBrokerError, match="no broker answers: broker broker:9092: connection refused"):
        simulation.run(start(simulation, kind, **timeouts))
    # The last attempt begins in time, and may wait for its reconnection back-off (at most 1.2 s) and the network.
    assert 5.5 < simulation.clock.elapsed_s <= 8.21
    # One line says at the first attempt what is wrong, and for how long there will be others.
    assert [line for line in caplog.messages if "no broker answers" in line] == [
        "no broker answers: broker broker:9092: connection refused; trying again for 7 s"
    ]


async def start(simulation: Simulation, kind: str, **settings: object) -> Cluster | Admin | Consumer | Producer:
    """A started client of that kind."""
    runtime = simulation.runtime("client")
    if kind == "cluster":
        cluster = Cluster(make_settings(ClientSettings, settings | {"bootstrap_servers": "broker:9092"}), runtime)
        await cluster.start()
        return cluster
    clients: dict[str, Callable[..., Admin | Consumer | Producer]]
    clients = {"admin": Admin, "consumer": Consumer, "producer": Producer}
    return await clients[kind](bootstrap_servers="broker:9092", runtime=runtime, **settings).start()


@in_simulation
async def test_an_error_that_is_not_retriable_fails_a_start_at_once(simulation: Simulation, broker: Any) -> None:
    broker.versions[ApiKey.METADATA] = (99, 99)
    await broker.start()
    with pytest.raises(KafkaError):
        await start(simulation, "admin")
    assert simulation.clock.elapsed_s < 1


@in_simulation
async def test_metadata_of_a_topic_is_requested_until_a_broker_answers(simulation: Simulation, broker: Any) -> None:
    await broker.start()
    broker.topics["t"] = {0: 0}
    async with open_cluster("broker:9092", runtime=simulation.runtime("client")) as cluster:
        broker.stop()
        asking = asyncio.ensure_future(cluster.topic("t", timeout_ms=30_000))
        await asyncio.sleep(20)
        await broker.start()
        assert (await asking).numbers == (0,)
        assert simulation.clock.elapsed_s < 23


@in_simulation
async def test_the_bootstrap_connection_becomes_that_of_its_broker(simulation: Simulation, broker: Any) -> None:
    async def scene(cluster: Cluster) -> None:
        await cluster.connections.to_broker(0)
        assert len(broker.connections) == 1
        await cluster.connections.to_broker(0, ConnectionPurpose.COORDINATOR)
        assert len(broker.connections) == 2

    await broker.start()
    async with open_cluster("broker:9092", runtime=simulation.runtime("client")) as cluster:
        await scene(cluster)


@in_simulation
async def test_concurrent_callers_share_a_new_connection(simulation: Simulation, broker: Any) -> None:
    await broker.start()
    async with open_cluster("broker:9092", runtime=simulation.runtime("client")) as cluster:
        first, second = await asyncio.gather(
            cluster.connections.to_broker(0, ConnectionPurpose.FETCH),
            cluster.connections.to_broker(0, ConnectionPurpose.FETCH),
        )
        assert first is second


@in_simulation
async def test_metadata_of_a_topic_is_requested_until_it_has_partitions(simulation: Simulation, broker: Any) -> None:
    await broker.start()
    broker.topic_errors["t"] = ErrorCode.leader_not_available

    async def create() -> None:
        await asyncio.sleep(1)
        broker.topics["t"] = {0: 0}
        broker.topic_errors.clear()

    async with open_cluster("broker:9092", runtime=simulation.runtime("client")) as cluster:
        creating = asyncio.ensure_future(create())
        assert (await cluster.topic("t", timeout_ms=5_000)).numbers == (0,)
        await creating
        with pytest.raises(KafkaError, match="there is no topic 'u'"):
            await cluster.topic("u", timeout_ms=500)
        # What does not exist is not asked for ever after.
        await cluster.refresh()
        assert [topic.name for topic in broker.asked(ApiKey.METADATA)[-1].message.topics] == ["t"]


@in_simulation
async def test_an_error_that_is_not_retriable_is_raised_at_once(simulation: Simulation, broker: Any) -> None:
    await broker.start()
    broker.topics["t"] = {}
    broker.topic_errors["t"] = ErrorCode.topic_authorization_failed
    async with open_cluster("broker:9092", runtime=simulation.runtime("client")) as cluster:
        with pytest.raises(KafkaError, match="topic 't': TOPIC_AUTHORIZATION_FAILED"):
            await cluster.topic("t", timeout_ms=60_000)
        assert simulation.clock.elapsed_s < 1


@in_simulation
async def test_metadata_with_an_older_leader_epoch_does_not_replace_the_leader(
    simulation: Simulation, broker: Any
) -> None:
    """KIP-320: brokers learn of a new leader at different times."""
    await broker.start()
    broker.nodes.append(type(broker)(simulation, node_id=1, host="other"))
    broker.topics["t"], broker.leader_epoch = {0: 1}, 5
    async with open_cluster("broker:9092", runtime=simulation.runtime("client")) as cluster:
        await cluster.topic("t", timeout_ms=1_000)
        broker.topics["t"], broker.leader_epoch = {0: 0}, 4
        await cluster.refresh()
        assert cluster.metadata.leader(T0) == 1
        broker.leader_epoch = 6
        await cluster.refresh()
        assert cluster.metadata.leader(T0) == 0


@in_simulation
async def test_a_broker_that_moved_is_connected_to_at_its_new_address(simulation: Simulation, broker: Any) -> None:
    await broker.start()
    async with open_cluster("broker:9092", runtime=simulation.runtime("client")) as cluster:
        old = await cluster.connections.to_broker(0)
        moved = type(broker)(simulation, node_id=0, host="elsewhere")
        await moved.start()
        broker.nodes = [moved]
        await cluster.refresh()
        assert old.closed
        assert (await cluster.connections.to_broker(0)).address == "elsewhere:9092"


@in_simulation
async def test_a_refused_connection_is_retried_after_a_backoff(simulation: Simulation, broker: Any) -> None:
    """The pauses double, up to a second, each a fifth shorter or longer by chance."""
    await broker.start()
    async with open_cluster("broker:9092", runtime=simulation.runtime("client")) as cluster:
        broker.stop()
        await asyncio.sleep(1)
        started = simulation.clock.elapsed_s
        for _ in range(10):
            with pytest.raises(UnavailableError):
                await cluster.connections.to_broker(0)
        waited = simulation.clock.elapsed_s - started
        # 50, 100, 200, 400, 800 and four times 1,000 ms.
        assert 5.55 * 0.8 <= waited <= 5.55 * 1.25


@in_simulation
async def test_a_cluster_that_is_available_again_is_found_in_the_background(
    simulation: Simulation, broker: Any
) -> None:
    await broker.start()
    broker.topics["t"] = {0: 0}
    async with open_cluster("broker:9092", runtime=simulation.runtime("client")) as cluster:
        broker.stop()
        cluster.request_refresh()
        await asyncio.sleep(30)
        cluster.set_topics(["t"])
        await broker.start()
        await asyncio.sleep(3)
        assert cluster.metadata.leader(T0) == 0


@in_simulation
async def test_a_cluster_is_found_again_after_another_server_had_its_address(
    simulation: Simulation, broker: Any
) -> None:
    """A server of another protocol is an error that is not retriable, until that server is gone."""
    await broker.start()
    broker.topics["t"] = {0: 0}
    async with open_cluster("broker:9092", runtime=simulation.runtime("client")) as cluster:
        broker.stop()
        known, broker.versions[ApiKey.METADATA] = broker.versions[ApiKey.METADATA], (99, 99)
        await broker.start()
        cluster.request_refresh()
        await asyncio.sleep(30)
        broker.stop()
        broker.versions[ApiKey.METADATA] = known
        await broker.start()
        cluster.set_topics(["t"])
        cluster.request_refresh()
        await asyncio.sleep(3)
        assert cluster.metadata.leader(T0) == 0


@in_simulation
async def test_a_request_is_retried_while_the_cluster_is_unavailable(simulation: Simulation, broker: Any) -> None:
    await broker.start()
    broker.topics["t"] = {0: 0}
    answer = {"topics": [{"name": "t", "partitions": [{"partition_index": 0, "offset": 7, "timestamp": -1}]}]}
    broker.answers[ApiKey.LIST_OFFSETS] = lambda _: answer
    async with open_cluster("broker:9092", runtime=simulation.runtime("client")) as cluster:
        await cluster.topic("t", timeout_ms=1_000)
        broker.stop()
        asking = asyncio.ensure_future(list_offsets(cluster, {T0: LATEST}, timeout_ms=30_000))
        await asyncio.sleep(10)
        await broker.start()
        assert (await asking)[T0].offset == 7
        broker.stop()
        started = simulation.clock.elapsed_s
        with pytest.raises(UnavailableError):
            await list_offsets(cluster, {T0: LATEST}, timeout_ms=5_000)
        assert simulation.clock.elapsed_s - started == pytest.approx(5.0, abs=3.0)


def test_backoff_never_exceeds_its_maximum(simulation: Simulation) -> None:
    backoff = Backoff(100, 1_000, simulation.entropy("backoff"))
    pauses = [backoff.failed() for _ in range(2_000)]
    assert all(0.08 <= pause <= 1.2 for pause in pauses)
    assert max(pauses[:1]) <= 0.12
    backoff.succeeded()
    assert backoff.failed() <= 0.12


def test_settings_may_be_values_or_strings() -> None:
    keywords = make_settings(ClientSettings, {"bootstrap_servers": ["a:1", "b:2"], "request_timeout_ms": 5})
    texts = make_settings(ClientSettings, {"bootstrap_servers": "a:1, b:2", "request_timeout_ms": "5"})
    assert keywords == texts


@pytest.mark.parametrize(
    ("values", "sentence"),
    [
        ({"bootstrap_server": "a:1"}, "did you mean bootstrap_servers"),
        ({"request_timeout_ms": 0}, "at least 1"),
        ({"request_timeout_ms": True}, "can't be True"),
        ({"request_timeout_ms": "soon"}, "Not a number of type INT"),
        ({"security_protocol": "TLS"}, "security.protocol: String must be one of: PLAINTEXT"),
        ({"bootstrap_servers": "a"}, "HOST:PORT"),
    ],
)
def test_invalid_settings_are_refused(values: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        make_settings(ClientSettings, values)


def test_a_properties_file_may_serve_several_clients_but_unknown_keys_are_refused() -> None:
    from odradek.clients.producer.settings import ProducerSettings

    properties = {"bootstrap.servers": "a:1", "linger.ms": "7"}
    assert settings_of_properties(properties, ClientSettings, ProducerSettings) == {"bootstrap_servers": "a:1"}
    with pytest.raises(ConfigurationError, match=r"did you mean linger\.ms"):
        settings_of_properties({"linger.m": "7"}, ClientSettings, ProducerSettings)
