"""Quotas in force: clients above them are slowed to them, others are not, and no request is lost (KIP-219)."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from conformance.interop.test_versions import TOPIC, requests
from odradek.broker.apis import APIS
from odradek.broker.lifecycle import Broker
from odradek.broker.observing import catalog
from odradek.broker.observing.observation import observe
from odradek.broker.security.admission import Admission
from odradek.broker.serving.responses import throttle_time_offset
from odradek.broker.turns import TURN
from odradek.metadata import paths
from odradek.metadata.nodes import ConfigNode
from odradek.model import ErrorCode
from odradek.protocol.api import BETWEEN_BROKERS, ApiKey
from odradek.security import AllowAllAuthorizer
from odradek.security.quotas import QuotaEntity
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from tests.world.scenes import in_world, played

FAST, SLOW = "fast", "slow"
PRODUCE, FETCH, REQUEST = "producer_byte_rate", "consumer_byte_rate", "request_percentage"
SECONDS = 60


async def alter(client: WireClient, entity: Mapping[str, str | None], **quotas: float | None) -> Any:
    """Set quotas, or remove those that are None, and return the entry of the response."""
    answer = await client.ask(
        ApiKey.ALTER_CLIENT_QUOTAS,
        {
            "entries": [
                {
                    "entity": [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()],
                    "ops": [
                        {"key": key, "value": value or 0.0, "remove": value is None} for key, value in quotas.items()
                    ],
                }
            ],
            "validate_only": False,
        },
        1,
    )
    return answer.entries[0]


async def describe(client: WireClient, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    """Return the quotas by entity, or the error's code."""
    answer = await client.ask(
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        {
            "components": [
                {"entity_type": kind, "match_type": match_type, "match": match}
                for kind, match_type, match in components
            ],
            "strict": strict,
        },
        1,
    )
    if answer.error_code:
        return answer.error_code
    return {
        tuple(sorted((each.entity_type, each.entity_name) for each in entry.entity)): {
            each.key: each.value for each in entry.values
        }
        for entry in answer.entries
    }


def muted_connections(broker: Broker) -> float:
    return next(each.samples[0][1] for each in observe(broker) if each.metric is catalog.CONNECTIONS_THROTTLED)


def now() -> float:
    return asyncio.get_running_loop().time()


async def rate_of_produce(client: WireClient, world: World, size: int, seconds: float = SECONDS) -> float:
    """Produce as fast as the broker answers, and return the bytes of records per second."""
    began, sent, batch = now(), 0, world.batch(bytes(size))
    while now() - began < seconds:
        await client.produce(TOPIC, batch)
        sent += len(batch)
        await asyncio.sleep(0.1)
    return sent / (now() - began)


# ---- produce --------------------------------------------------------------------------------------------------------


@played
async def test_a_producer_above_its_quota_is_slowed_to_it_and_another_is_not(world: World) -> None:
    await world.start()
    slow, fast = await world.client(SLOW), await world.client(FAST)
    await slow.create_topic(TOPIC)
    assert (await alter(fast, {"client-id": SLOW}, producer_byte_rate=2_000)).error_code == 0
    await rate_of_produce(slow, world, 1000, 30)  # the burst of an empty window
    limited, free = await asyncio.gather(
        rate_of_produce(slow, world, 1000, 100), rate_of_produce(fast, world, 1000, 100)
    )
    assert limited == pytest.approx(2_000, rel=0.1)
    assert free > 6_000


@pytest.mark.parametrize("acks", [0, 1, -1])
@played
async def test_requests_of_a_muted_connection_are_served_later_and_in_order(world: World, acks: int) -> None:
    broker = await world.start()
    client = await world.client(SLOW)
    # Some seeds take longer than retention waits to look at records, which are old.
    await client.create_topic(TOPIC, config={"retention.ms": "-1"})
    await alter(client, {"client-id": None}, producer_byte_rate=100)
    values = [bytes([number]) * 2000 for number in range(20)]
    log = broker.partitions.leader(TOPIC, 0).log
    client.send_produce(TOPIC, world.batch(values[0]), acks=acks)
    await asyncio.sleep(1)
    for value in values[1:]:
        client.send_produce(TOPIC, world.batch(value), acks=acks)
    await asyncio.sleep(8)
    assert log.log_end_offset == 1
    if acks:
        answers = [await client.produce_response() for _ in values]
        assert [answer.topics[0].partitions[0].base_offset for answer in answers] == list(range(20))
        assert 8_000 < answers[0].throttle_time_ms < 15_000
    await alter(await world.client("admin"), {"client-id": None}, producer_byte_rate=None)
    await asyncio.sleep(5)
    assert log.log_end_offset == 20
    assert (await world.read(TOPIC, 1))[0] == values


@played
async def test_the_fast_path_of_produce_throttles_by_the_quotas_of_the_moment(world: World) -> None:
    broker = await world.start()
    admin, slow, fast = [await world.client(name) for name in ("admin", SLOW, FAST)]
    await admin.create_topic(TOPIC, config={"retention.ms": "-1"})
    for client in (slow, fast):
        assert (await client.produce(TOPIC, world.batch(b"first"))).error_code == 0
    handlers, full_path = broker.dispatcher._handlers, []
    for key in [each for each in handlers if each[0] == ApiKey.PRODUCE]:
        handlers[key] = full_path.append  # called with three arguments: an error that closes the connection

    async def throttled(client: WireClient) -> bool:
        client.send_produce(TOPIC, world.batch(bytes(1000)))
        return (await client.produce_response()).throttle_time_ms > 0

    for quota in (None, 1.0, None, 1.0):
        await alter(admin, {"client-id": SLOW}, producer_byte_rate=quota)
        assert await throttled(slow) == (quota is not None)
        assert not await throttled(fast)


@played
async def test_a_quota_that_is_removed_restores_a_muted_connection_at_once_and_a_new_one_counts_at_once(
    world: World,
) -> None:
    broker = await world.start()
    client, other = await world.client(SLOW), await world.client("admin")
    await client.create_topic(TOPIC)
    await alter(other, {"client-id": SLOW}, producer_byte_rate=1)
    assert (await client.produce(TOPIC, world.batch(bytes(1000)))).error_code == 0
    client.send_produce(TOPIC, world.batch(b"later"))
    answer = asyncio.ensure_future(client.produce_response())
    await asyncio.sleep(100)
    assert not answer.done()
    await alter(other, {"client-id": SLOW}, producer_byte_rate=None)
    assert not broker.quotas.are_set
    assert (await asyncio.wait_for(answer, 1)).throttle_time_ms == 0
    await alter(other, {"user": None, "client-id": SLOW}, producer_byte_rate=1)
    client.send_produce(TOPIC, world.batch(bytes(1000)))
    assert (await client.produce_response()).throttle_time_ms > 100_000


@played
async def test_a_client_that_disconnects_while_it_is_muted_leaves_nothing_behind(world: World) -> None:
    broker = await world.start()
    client = await world.client(SLOW)
    await client.create_topic(TOPIC)
    await alter(client, {"client-id": SLOW}, producer_byte_rate=1)
    await client.produce(TOPIC, world.batch(bytes(1000)))
    assert muted_connections(broker) == 1
    client.close()
    await asyncio.sleep(1)
    assert muted_connections(broker) == 0


# ---- fetch ----------------------------------------------------------------------------------------------------------


@played
async def test_a_consumer_above_its_quota_is_slowed_to_it_and_gets_every_record(world: World) -> None:
    await world.start(log_retention_ms=-1)  # the records of `World.batch` are old
    client = await world.client("admin")
    await client.create_topic(TOPIC)
    values = [bytes([number % 256]) * 4000 for number in range(250)]
    for value in values:
        await client.produce(TOPIC, world.batch(value))
    await alter(client, {"client-id": SLOW}, consumer_byte_rate=8_000)
    rates, reads = {}, {}

    async def read(name: str) -> None:
        began = now()
        async with world.consumer(name, TOPIC, client_id=name, max_partition_fetch_bytes=4_000) as consumer:
            found: list[bytes | None] = []
            while len(found) < len(values):
                found += [record.value for record in await consumer.poll(1000)]
        reads[name] = found
        rates[name] = sum(map(len, values)) / (now() - began)

    await asyncio.gather(read(SLOW), read(FAST))
    assert reads[SLOW] == reads[FAST] == values
    assert rates[SLOW] == pytest.approx(8_000, rel=0.1)
    assert rates[FAST] > 60_000


@pytest.mark.parametrize("session", [(0, -1), (0, 0)], ids=["no session", "new session"])
@played
async def test_a_throttled_fetch_returns_no_records_and_no_session(world: World, session: tuple[int, int]) -> None:
    broker = await world.start()
    client = await world.client(SLOW)
    await client.create_topic(TOPIC)
    await client.produce(TOPIC, world.batch(bytes(1000)))
    await alter(client, {"client-id": SLOW}, consumer_byte_rate=10)
    client.send_fetch([(TOPIC, 0, 0)], session=session)
    answer = await client.fetch_response()
    assert answer.throttle_time_ms > 10_000
    assert (answer.topics, answer.session_id, len(broker.fetch_sessions)) == ([], 0, 0)
    began = now()
    client.send_fetch([(TOPIC, 0, 0)], session=session)
    await client.fetch_response()
    assert now() - began == pytest.approx(answer.throttle_time_ms / 1000, abs=1)


@in_world(brokers=2, started=False)
async def test_followers_are_not_throttled(world: World) -> None:
    for number in range(2):
        await world.start(number)
    client = await world.client("admin")
    for key in (PRODUCE, FETCH, REQUEST):
        await alter(client, {"user": None}, **{key: 1.0 if key == FETCH else 1e9})
    await world.create_topic(TOPIC, replication_factor=2)
    leader = world.running[0].image.topics[TOPIC].partitions[0].leader
    producer = await world.client(FAST, broker=leader)
    for _ in range(20):
        began = now()
        assert (await producer.produce(TOPIC, world.batch(bytes(10_000)), acks=-1)).error_code == 0
        assert now() - began < 2
    for broker in world.running.values():
        assert not broker.quotas._muted


# ---- request time ---------------------------------------------------------------------------------------------------


class Busy(AllowAllAuthorizer):
    """An authorizer that takes 50 ms of virtual time for each request of consumers."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.version = 1

    def authorize(self, context: Any, actions: Any) -> Any:
        self._world.simulation.clock.advance(0.05)
        self.version += 1  # no decision is remembered
        return super().authorize(context, actions)


@pytest.mark.parametrize("api", [ApiKey.LIST_OFFSETS, ApiKey.FETCH], ids=lambda api: api.name)
@played
async def test_a_client_gets_its_percentage_of_the_brokers_time(world: World, api: ApiKey) -> None:
    admission = Admission(Busy(world))
    admission.allows_all, admission.may_refuse = False, True
    await world.start(admission=admission)
    client, other = await world.client(SLOW), await world.client("admin")
    topic_id = (await client.create_topic(TOPIC)).topic_id
    await alter(other, {"client-id": SLOW}, request_percentage=10)
    request = {**requests(topic_id)[api], "max_wait": 0}
    version = APIS[api].served[-1]
    began, count = now(), 0
    while now() - began < SECONDS:
        client.send(api, request, version)
        await (client.fetch_response() if api is ApiKey.FETCH else client.answer())
        count += 1
    assert count * 0.05 / (SECONDS + 10) == pytest.approx(0.1, rel=0.25)


@played
async def test_the_time_in_which_a_fetch_waits_for_a_turn_is_not_charged(world: World) -> None:
    broker = await world.start()
    client, other = await world.client(SLOW), await world.client("admin")
    await client.create_topic(TOPIC)
    await alter(other, {"client-id": SLOW}, request_percentage=1)
    client.send_fetch([(TOPIC, 0, 0)], max_wait_ms=600_000)
    await world.pass_time(1)
    for _ in range(2):
        broker.purgatory.answer(lambda: world.simulation.clock.advance(2), TURN)
    broker.purgatory.expire_all()
    assert (await client.fetch_response()).throttle_time_ms == 0


# ---- mutations ------------------------------------------------------------------------------------------------------


@played
async def test_topics_beyond_the_mutation_quota_are_refused_until_the_debt_is_paid(world: World) -> None:
    await world.start()
    client = await world.client(SLOW)
    await alter(client, {"user": None}, controller_mutation_rate=2)

    async def create(name: str, partitions: int, version: int = 7, **more: Any) -> Any:
        topic = {"name": name, "num_partitions": partitions, "replication_factor": 1}
        topic |= {"assignments": [], "configs": []}
        message = {"topics": [topic], "timeout": 1000, "validate_only": False, **more}
        return await client.ask(ApiKey.CREATE_TOPICS, message, version)

    first = await create("first", 40)  # within the burst when it begins, and a debt of 18 afterwards
    assert (first.topics[0].error_code, first.throttle_time.total_seconds()) == (0, 0)
    refused = await create("second", 1)
    assert refused.topics[0].error_code == ErrorCode.throttling_quota_exceeded
    assert 8 < refused.throttle_time.total_seconds() <= 9
    began = now()
    assert (await create("second", 1)).topics[0].error_code == 0
    assert now() - began > 8, "the connection was muted"
    assert (await create("third", 10, validate_only=True)).topics[0].error_code == 0
    await asyncio.sleep(1)
    assert (await create("first", 1000)).topics[0].error_code == ErrorCode.topic_already_exists
    await asyncio.sleep(1)
    older = await create("third", 10, 5)
    assert older.topics[0].error_code == 0
    assert older.throttle_time.total_seconds() > 3
    await asyncio.sleep(1)
    grown = await client.ask(
        ApiKey.CREATE_PARTITIONS,
        {"topics": [{"name": "third", "count": 50, "assignments": None}], "timeout": 1, "validate_only": False},
        3,
    )
    assert grown.results[0].error_code == 0
    deleted = await client.ask(
        ApiKey.DELETE_TOPICS, {"topics": [{"name": "third", "topic_id": None}], "timeout": 1000}, 6
    )
    assert deleted.responses[0].error_code == ErrorCode.throttling_quota_exceeded
    assert deleted.throttle_time.total_seconds() == pytest.approx(20, abs=4)


@played
async def test_a_quota_remembers_no_more_than_the_beginning_of_a_client_id(world: World) -> None:
    """With a quota for the default client id, each that a client makes up is remembered for a while."""
    broker = await world.start()
    admin = await world.client("admin")
    assert (await alter(admin, {"client-id": None}, request_percentage=100)).error_code == 0
    await (await world.client("x" * 30_000)).ask(ApiKey.METADATA, b"\0\0\0\0", 1)
    assert (await alter(admin, {"client-id": "y" * 300}, producer_byte_rate=7)).error_code == 0
    await (await world.client("y" * 300)).ask(ApiKey.METADATA, b"\0\0\0\0", 1)
    (limits,) = [each for (_, client_id), each in broker.quotas._clients.items() if client_id[:1] == "y"]
    assert limits is not None
    assert limits.produce is not None, "by the beginning of its name"
    assert max(len(client_id) for _, client_id in broker.quotas._clients) == 256
    assert "x" * 30_000 not in str(broker.quotas._rates.keys())


# ---- connections ----------------------------------------------------------------------------------------------------


@played
async def test_connections_beyond_the_rate_of_their_address_are_closed_after_a_delay(world: World) -> None:
    await world.start()
    admin = await world.client("admin")
    assert (await alter(admin, {"ip": None}, connection_creation_rate=1)).error_code == 0
    clients = [await world.client(SLOW) for _ in range(15)]
    for client in clients:
        client.send(ApiKey.API_VERSIONS, {}, 0)
    answers = [await client.receive() for client in clients]
    assert answers[10:] == [None] * 5
    assert None not in answers[:10]
    await asyncio.sleep(12)
    again = await world.client(SLOW)
    assert await again.ask(ApiKey.API_VERSIONS, {}, 0) is not None


# ---- the APIs -------------------------------------------------------------------------------------------------------


@played
async def test_quotas_are_described_by_exact_default_and_any_names(world: World) -> None:
    await world.start()
    client = await world.client()
    await alter(client, {"user": "a/b <x>", "client-id": None}, producer_byte_rate=1, request_percentage=2.5)
    await alter(client, {"user": "a/b <x>"}, consumer_byte_rate=3)
    await alter(client, {"user": None}, consumer_byte_rate=4)
    await alter(client, {"client-id": "c"}, consumer_byte_rate=5)
    await alter(client, {"ip": "10.0.0.1"}, connection_creation_rate=6)
    both = (("client-id", None), ("user", "a/b <x>"))
    named, default = (("user", "a/b <x>"),), (("user", None),)
    assert await describe(client, ("user", 0, "a/b <x>")) == {both: {PRODUCE: 1, REQUEST: 2.5}, named: {FETCH: 3}}
    assert await describe(client, ("user", 0, "a/b <x>"), strict=True) == {named: {FETCH: 3}}
    assert await describe(client, ("user", 1, None)) == {default: {FETCH: 4}}
    assert (await describe(client, ("user", 2, None))).keys() == {both, named, default}
    assert (await describe(client, ("user", 2, None), ("client-id", 1, None))).keys() == {both}
    assert await describe(client, ("ip", 2, None)) == {(("ip", "10.0.0.1"),): {"connection_creation_rate": 6}}
    assert len(await describe(client)) == 5
    for wrong in (
        [("group", 2, None)],
        [("user", 2, None), ("user", 1, None)],
        [("user", 0, None)],
        [("user", 1, "a")],
        [("user", 3, None)],
        [("user", 2, None), ("ip", 2, None)],
    ):
        assert await describe(client, *wrong) == ErrorCode.invalid_request
    await alter(client, {"client-id": "c"}, consumer_byte_rate=None)
    assert len(await describe(client)) == 4


@played
async def test_invalid_quotas_are_refused_and_those_that_are_only_validated_are_not_written(world: World) -> None:
    await world.start()
    client = await world.client()
    for entity, quotas in (
        ({"user": "a"}, {PRODUCE: -1.0}),
        ({"user": "a"}, {REQUEST: float("nan")}),
        ({"user": "a"}, {PRODUCE: 1.0, "retention.ms": 1.0}),
        ({"user": "a"}, {"SCRAM-SHA-256": None}),
        ({"ip": "localhost"}, {"connection_creation_rate": 1.0}),
    ):
        assert (await alter(client, entity, **quotas)).error_code == ErrorCode.invalid_request
    answer = await client.ask(
        ApiKey.ALTER_CLIENT_QUOTAS,
        requests(None)[ApiKey.ALTER_CLIENT_QUOTAS],
        1,  # type: ignore[arg-type]
    )
    assert answer.entries[0].error_code == 0
    assert await describe(client) == {}


@in_world(brokers=2, started=False)
async def test_quotas_and_credentials_share_a_users_node_and_every_broker_reads_what_tools_write(world: World) -> None:
    for number in range(2):
        await world.start(number)
    client, store = await world.client(), world.store(0)
    path = paths.quota_config(QuotaEntity(user="alice"))
    await store.create(path, ConfigNode(config={"SCRAM-SHA-256": "secret"}).encode())
    await alter(client, {"user": "alice"}, producer_byte_rate=7)
    node = await store.get(path)
    assert node is not None
    assert ConfigNode.decode(path, node.data).config == {"SCRAM-SHA-256": "secret", PRODUCE: "7"}
    await alter(client, {"user": "alice"}, producer_byte_rate=None)
    await store.create(paths.user_clients("alice"))
    await store.create(
        paths.quota_config(QuotaEntity(user="alice", client_id="app")),
        ConfigNode(config={FETCH: "8"}).encode(),
    )
    await asyncio.sleep(1)
    for broker in world.running.values():
        assert broker.image.quota_configs == {QuotaEntity(user="alice", client_id="app"): {FETCH: "8"}}
        assert broker.image.user_configs == {"alice": {"SCRAM-SHA-256": "secret"}}
        assert broker.quotas.are_set


def test_the_throttle_time_has_a_known_place_in_every_response_that_has_one() -> None:
    """Produce and ApiVersions have it behind their lists, where the tests of slow clients find it."""
    for api in APIS.values():
        if api.key not in (ApiKey.PRODUCE, ApiKey.API_VERSIONS) and api.key not in BETWEEN_BROKERS:
            for version in {api.served[0], api.served[-1]}:
                assert throttle_time_offset(api.key, version) in (0, 2, None)


@pytest.mark.parametrize("api", [ApiKey.PRODUCE, ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.OFFSET_DELETE])
@played
async def test_every_version_of_a_response_carries_the_throttle_time_and_nothing_else_changes(
    world: World, api: ApiKey
) -> None:
    broker = await world.start()
    client = await world.client(SLOW)
    topic_id = (await client.create_topic(TOPIC)).topic_id
    message = requests(topic_id)[api]

    async def ask(version: int) -> Any:
        client.send(api, message, version)
        return await (client.produce_response() if api is ApiKey.PRODUCE else client.answer())

    for version in APIS[api].served:
        plain = await ask(version)
        broker.quotas.update({QuotaEntity(client_id=SLOW): {PRODUCE: "0.001", REQUEST: "1e-9"}})
        ((connection, session),) = broker.server._connections.items()
        session.mutation_throttle_s = 7.0
        throttled = await ask(version)
        if api is not ApiKey.PRODUCE and not _throttle_ms(plain, None) == _throttle_ms(throttled, None) == 0:
            assert _throttle_ms(throttled, 0) >= 1
        assert broker.quotas.is_muted(connection)
        broker.quotas.update({})
        assert type(plain) is type(throttled)


def _throttle_ms(answer: Any, default: int | None) -> float:
    found = getattr(answer, "throttle_time_ms", None)
    if found is None:
        span = getattr(answer, "throttle_time", None)
        return (default or 0) if span is None else span.total_seconds() * 1000
    return float(found)
