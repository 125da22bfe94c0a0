"""No request makes its broker do more than a few entries' work before other tasks of the event loop may run."""

import asyncio
import sys
from collections.abc import Callable
from contextlib import AsyncExitStack
from types import FrameType, SimpleNamespace
from typing import Any, Final, cast

import pytest

from odradek.broker.apis import APIS
from odradek.broker.handlers import describe_producers, list_transactions
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.validation import MessageRules
from odradek.broker.security.context import RequestContext
from odradek.broker.transactions.machine.transaction import TransactionState
from odradek.broker.turns import TURN, TURN_S, Steps
from odradek.metadata import paths
from odradek.metadata.acl_nodes import encode_acls
from odradek.metadata.store import Create
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.message_codec import encode_request
from odradek.protocol.messages.produce import ProduceTopic, encode_produce_request
from odradek.protocol.primitives import Meter
from odradek.security import AclEntry, AclOperation, ResourcePattern, ResourceType
from odradek.simulation.virtual import loop as virtual_loop
from odradek.simulation.virtual.simulation import InlineWorker
from odradek.simulation.wire_client import PRODUCE_VERSION, WireClient, create_topic_message, produce_body
from odradek.simulation.world import BATCH_MS, World
from odradek.wire.reply import NO_REPLY, Buffers
from tests.broker.handlers.widest_requests import TOPIC, wide_requests
from tests.world.scenes import in_world

ENTRIES: Final = 4500
MOST_CALLS: Final = 8 * ENTRIES
"""Function calls of one callback: it may hash all entries, and not handle them, which takes tens of calls for each."""
CONFIG: Final = {
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
}
SECURED: Final = {
    **CONFIG,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:admin",
}
DECODED_AT_ONCE: Final = {ApiKey.PRODUCE}
WITHOUT_ENTRIES: Final = {ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS}
WIDE: Final = [ApiKey(key) for key in APIS if key not in DECODED_AT_ONCE | WITHOUT_ENTRIES]


class Calls:
    """Counts the callbacks of the broker, and the function calls in each, without those of its worker."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = self._now = self.callback = 0
        run, submit = virtual_loop._Handle.run, InlineWorker.submit

        def counted(handle: Any) -> None:
            if handle.host != "broker":
                run(handle)
                return
            self.callback += 1
            self._now = 0
            sys.setprofile(self._count)
            try:
                run(handle)
            finally:
                sys.setprofile(None)
                self.most = max(self.most, self._now)

        def uncounted(worker: InlineWorker, work: Callable[[], Any]) -> Any:
            sys.setprofile(None)
            try:
                return submit(worker, work)
            finally:
                sys.setprofile(self._count)

        monkeypatch.setattr(virtual_loop._Handle, "run", counted)
        monkeypatch.setattr(InlineWorker, "submit", uncounted)

    def _count(self, frame: FrameType, event: str, arg: object) -> None:
        del frame, arg
        self._now += event == "call"


async def _wide_turns(world: World, api: ApiKey, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Send each of the API's widest requests; return those with a callback of too many calls."""
    last = APIS[api].served.stop - 1
    calls, slow = Calls(monkeypatch), {}
    for version in (3, last) if api is ApiKey.ADD_PARTITIONS_TO_TXN else (last,):
        for path, message in wide_requests(api, version, ENTRIES):
            client = await world.client()
            if api is ApiKey.FETCH:
                client.act_as_broker(None)  # a follower's requests wait for no others
            body = encode_request(api, version, message)
            calls.most = 0
            client.send(api, body, version)
            assert await client.receive() is not None, path
            if calls.most > MOST_CALLS:
                slow[f"{version} {path}"] = calls.most
            client.close()
    return slow


def _send_to_partitions(client: WireClient, count: int) -> None:
    """Send one Produce request with a batch for each of the first partitions."""
    batches: list[tuple[int, bytearray | None]] = [(number, World.batch(b"a")) for number in range(count)]
    topics = [ProduceTopic(TOPIC, None, batches)]
    body = b"".join(encode_produce_request(PRODUCE_VERSION, topics, acks=-1, timeout_ms=1))
    client.send(ApiKey.PRODUCE, body, PRODUCE_VERSION)


@pytest.mark.parametrize("api", WIDE)
@in_world(CONFIG)
async def test_the_widest_requests_are_served_in_turns(
    world: World, api: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await world.client()
    await client.create_topic(TOPIC, 3)
    for key_type, key in ((0, "g"), (1, "id")):
        await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": key_type, "coordinator_keys": [key]}, 4)
    await world.pass_time(2)
    assert not await _wide_turns(world, api, monkeypatch)


@pytest.mark.parametrize("api", WIDE)
@in_world(SECURED)
async def test_the_widest_requests_are_refused_in_turns(
    world: World, api: ApiKey, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not await _wide_turns(world, api, monkeypatch)


@in_world(CONFIG)
async def test_a_batch_of_very_many_records_is_checked_beside_the_event_loop(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Records with old timestamps are checked, and a few hundred bytes may have a million of them."""
    client = await world.client()
    await client.create_topic(TOPIC)
    batch = encode_batch([(BATCH_MS, None, b"", ())] * 10 * ENTRIES, codec=Codec.ZSTD)
    calls = Calls(monkeypatch)
    for records in (batch, world.batch(b"a")):  # pipelined
        client.send(ApiKey.PRODUCE, produce_body(TOPIC, records), PRODUCE_VERSION)
    answers = [await client.produce_response() for _ in range(2)]
    assert [answer.topics[0].partitions[0].base_offset for answer in answers] == [0, 10 * ENTRIES]
    assert calls.most < MOST_CALLS


@in_world(CONFIG)
async def test_a_produce_request_to_very_many_partitions_is_answered_in_order(world: World) -> None:
    client = await world.client()
    await client.create_topic(TOPIC)
    _send_to_partitions(client, ENTRIES)
    client.send(ApiKey.PRODUCE, produce_body(TOPIC, world.batch(b"b")), PRODUCE_VERSION)
    (wide,), (after,) = [(await client.produce_response()).topics for _ in range(2)]
    assert [each.partition for each in wide.partitions] == list(range(ENTRIES))
    assert [each.error_code for each in wide.partitions] == [0] + [ErrorCode.unknown_topic_or_partition] * (ENTRIES - 1)
    assert (wide.partitions[0].base_offset, after.partitions[0].base_offset) == (0, 1)


@in_world(CONFIG)
async def test_batches_whose_checks_take_long_are_appended_in_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A small batch may have as many headers as fit, which are walked in Python."""
    writer = await world.client()
    await writer.create_topic(TOPIC, 9)
    admit, times = MessageRules.admit, []

    def slow(rules: MessageRules, *arguments: Any, **options: Any) -> Any:
        world.simulation.clock.advance(TURN_S)
        times.append(calls.callback)
        return admit(rules, *arguments, **options)

    calls = Calls(monkeypatch)
    monkeypatch.setattr(MessageRules, "admit", slow)
    _send_to_partitions(writer, 9)
    response = await writer.produce_response()
    assert [each.base_offset for each in response.topics[0].partitions] == [0] * 9
    assert len(set(times)) == 9, "each takes a turn of its own"


@in_world(SECURED | {"super.users": "User:ANONYMOUS"})
async def test_many_filters_delete_many_acls_of_a_pattern_in_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, count = await world.client(), 500
    acl = {"resource_type": 2, "resource_name": TOPIC, "resource_pattern_type": 3, "host": "*", "operation": 3}
    acls = [{**acl, "principal": f"User:{number}", "permission_type": 3} for number in range(count)]
    await client.ask(ApiKey.CREATE_ACLS, {"creations": acls}, 3)
    await world.pass_time(1)
    every = {"resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1, "host_filter": None}
    every |= {"operation": 1, "permission_type": 1}
    filters = [{**every, "principal_filter": f"User:{number}"} for number in range(-count, count)]
    calls = Calls(monkeypatch)
    answer = await client.ask(ApiKey.DELETE_ACLS, {"filters": [*filters, *filters]}, 3)
    assert [len(each.matching_acls) for each in answer.filter_results] == [0] * count + [1] * count + [0] * 2 * count
    assert calls.most < MOST_CALLS


@pytest.mark.parametrize(("kind", "name", "key"), [(2, TOPIC, "retention.ms"), (4, "", "log.retention.ms")])
@in_world(CONFIG)
async def test_a_configuration_is_applied_to_many_logs_in_turns(
    world: World, kind: int, name: str, key: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await world.client()
    await client.create_topic(TOPIC, 9)
    update, times = Log.update_config, []

    def slow(log: Log, config: LogConfig) -> None:
        world.simulation.clock.advance(TURN_S)
        times.append(calls.callback)
        update(log, config)

    calls = Calls(monkeypatch)
    monkeypatch.setattr(Log, "update_config", slow)
    for retention_ms in (1_000_000, 2_000_000):
        changes = [{"name": key, "config_operation": 0, "value": str(retention_ms)}]
        resources = [{"resource_type": kind, "resource_name": name, "configs": changes}]
        request = {"resources": resources, "validate_only": False}
        await client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, request, 1)
        logs = [world.broker.partitions.log(TOPIC, number) for number in range(9)]
        assert [each.config.retention_ms for each in logs] == [retention_ms] * 9
    assert len(set(times)) == len(times) == 18, "each takes a turn of its own"


@in_world(SECURED)
async def test_the_acls_of_very_many_patterns_are_read_in_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker reads all of them when it misses a notification, or cannot read one."""
    entry = AclEntry(principal="User:ANONYMOUS", operation=AclOperation.DESCRIBE)
    patterns = [ResourcePattern(ResourceType.TOPIC, f"t{number}") for number in range(ENTRIES)]
    nodes = [Create(path=paths.acl(each), data=encode_acls([entry])) for each in patterns]
    await world.store(0).multi(nodes)
    calls = Calls(monkeypatch)
    await world.store(0).create(f"{paths.ACL_CHANGES}/acl_changes_", b"unreadable", sequence=True)
    await world.pass_time(1)
    assert len(world.broker.image.acls or ()) == ENTRIES
    assert calls.most < MOST_CALLS


@in_world(CONFIG)
async def test_wide_fetches_that_wait_are_completed_in_turns(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """An append to one partition completes all fetches that wait for it; each of them reads all its partitions."""
    writer, width = await world.client(), 300
    await writer.create_topic(TOPIC, width)
    readers = [await world.client() for _ in range(20)]
    sessions = []
    for reader in readers:
        reader.send_fetch([(TOPIC, number, 0) for number in range(width)], session=(0, 0))
        sessions.append((await reader.fetch_response()).session_id)
    calls = Calls(monkeypatch)
    for reader, session in zip(readers, sessions, strict=True):
        reader.send_fetch([], session=(session, 1), max_wait_ms=60_000)
    await world.pass_time(1)
    await writer.produce(TOPIC, world.batch(b"a"), partition=7)
    for reader in readers:
        (topic,) = (await reader.fetch_response()).topics
        assert [(each.partition, world.values(each.records)) for each in topic.partitions] == [(7, [b"a"])]
    assert calls.most < MOST_CALLS // 2


@in_world(CONFIG)
async def test_a_wide_fetch_ends_with_its_connection_and_with_the_next_fetch_of_its_session(world: World) -> None:
    width = 300
    reader, other, left, writer = [await world.client() for _ in range(4)]
    await writer.create_topic(TOPIC, width)
    reader.send_fetch([(TOPIC, number, 0) for number in range(width)], session=(0, 0))
    session = (await reader.fetch_response()).session_id
    reader.send_fetch([], session=(session, 1), max_wait_ms=60_000)
    left.send_fetch([(TOPIC, number, 0) for number in range(width)], max_wait_ms=60_000)
    await world.pass_time(1)
    other.send_fetch([], session=(session, 2), max_wait_ms=60_000)
    left.close()
    assert not (await reader.fetch_response()).topics, "it was overtaken"
    await writer.produce(TOPIC, world.batch(b"a"), partition=7)
    (topic,) = (await other.fetch_response()).topics
    assert [each.partition for each in topic.partitions] == [7]


@pytest.mark.parametrize("is_read", [True, False], ids=["while it is read", "while it waits"])
@in_world(CONFIG)
async def test_a_wide_fetch_that_is_overtaken_leaves_its_session_to_the_next_one(
    world: World, *, is_read: bool
) -> None:
    """The second fetch forgets most partitions, so it waits before the first one is over."""
    width, readers, writer = 300, [await world.client() for _ in range(3)], await world.client()
    await writer.create_topic(TOPIC, width)
    readers[0].send_fetch([(TOPIC, number, 0) for number in range(width)], session=(0, 0))
    session = (await readers[0].fetch_response()).session_id
    began_s = world.now_s
    async with AsyncExitStack() as turns:
        while is_read and not world.broker.dispatcher.few_large.locked():
            await turns.enter_async_context(world.broker.dispatcher.few_large)
        readers[0].send_fetch([], session=(session, 1), max_wait_ms=60_000)
        await world.pass_time(1)
        forgotten = [(TOPIC, number) for number in range(8, width)]
        readers[1].send_fetch([], session=(session, 2), forgotten=forgotten, max_wait_ms=60_000)
        await world.pass_time(1)
    await world.pass_time(1)
    readers[2].send_fetch([], session=(session, 3), max_wait_ms=60_000)
    for reader in readers[:2]:
        assert not (await reader.fetch_response()).topics
    assert world.now_s - began_s < 5, "each of them was overtaken"
    await writer.produce(TOPIC, world.batch(b"a"), partition=7)
    (topic,) = (await readers[2].fetch_response()).topics
    assert [each.partition for each in topic.partitions] == [7]


@pytest.mark.parametrize("end", ["abandon", "force_complete"])
@pytest.mark.parametrize(("api", "ends"), [(ApiKey.DESCRIBE_GROUPS, True), (ApiKey.CREATE_TOPICS, False)])
@in_world(CONFIG)
async def test_the_work_for_a_read_ends_with_its_connection(world: World, api: ApiKey, end: str, *, ends: bool) -> None:
    """A change goes on: half of it may be made."""
    has_ended = False

    async def work() -> Buffers:
        nonlocal has_ended
        try:
            await asyncio.sleep(1)
        except asyncio.CancelledError:
            has_ended = True
            raise
        return NO_REPLY

    context = RequestContext(RequestHeader(api, 0, 1, "c", 0), cast("Any", SimpleNamespace(long_response=None)))
    reply = world.broker.dispatcher.answer_later(context, work(), Meter(0))
    await asyncio.sleep(0.5)
    getattr(reply, end)()
    await asyncio.sleep(1)
    assert (has_ended, reply.settled) == (ends, True)


@in_world(CONFIG)
async def test_a_topic_of_very_many_partitions_is_deleted_in_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client = await world.client()
    await client.create_topic(TOPIC, 1500)
    calls = Calls(monkeypatch)
    await client.ask(ApiKey.DELETE_TOPICS, {"topic_names": [TOPIC], "timeout": 60_000}, 5)
    await world.pass_time(5)
    assert calls.most < 3 * MOST_CALLS // 2


@in_world(CONFIG)
async def test_topics_of_very_many_partitions_are_planned_in_turns(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    client, names = await world.client(), [f"t{number}" for number in range(20)]
    for name in names:
        await client.create_topic(name)
    new = [create_topic_message(f"new-{name}", ENTRIES)["topics"][0] for name in names]
    more = [{"name": name, "count": ENTRIES, "assignments": None} for name in names]
    calls = Calls(monkeypatch)
    created = await client.ask(ApiKey.CREATE_TOPICS, {"topics": new, "timeout": 1000, "validate_only": True}, 5)
    grown = await client.ask(ApiKey.CREATE_PARTITIONS, {"topics": more, "timeout": 1000, "validate_only": True}, 2)
    # One request creates at most 10,000 partitions, and those above are planned as well.
    errors = [each.error_code for answer in (created.topics, grown.results) for each in answer]
    assert errors == 2 * ([ErrorCode.none] * 2 + [ErrorCode.policy_violation] * 18)
    assert calls.most < 2 * MOST_CALLS


@in_world(CONFIG)
async def test_the_producers_of_a_partition_are_described_in_turns(world: World) -> None:
    client = await world.client()
    await client.create_topic(TOPIC)
    await client.produce(TOPIC, world.batch(b"a", producer_id=0, producer_epoch=0, base_sequence=0))
    producers = world.broker.partitions.log(TOPIC, 0).producers.entries
    producers.update(dict.fromkeys(range(ENTRIES), producers[0]))
    message = SimpleNamespace(topics=[SimpleNamespace(name=TOPIC, partition_indexes=[0])])

    steps = describe_producers.handle(world.broker, _allowing(), message)
    weights = [next(steps), next(steps)]
    del producers[ENTRIES - 1]  # it expires meanwhile
    weights += steps
    assert weights == [1] * ENTRIES + [2]


@pytest.mark.parametrize(("repeats", "is_refused"), [(100, False), (1000, True)])
def test_a_costly_pattern_is_matched_with_one_long_transactional_id_in_a_turn(
    repeats: int, *, is_refused: bool
) -> None:
    """The match of an id is never interrupted, so a pattern that would take too long for one of them is refused."""
    each = SimpleNamespace(transactional_id="a" * 32_000, producer_id=1, start_ms=0, state=TransactionState.EMPTY)
    broker = SimpleNamespace(
        transactions=SimpleNamespace(transactions=lambda: [each] * 3),
        runtime=SimpleNamespace(clock=SimpleNamespace(now_ms=lambda: 0)),
    )
    message = SimpleNamespace(producer_id_filters=(), state_filters=(), transactional_id_pattern=f"(?:a?){{{repeats}}}")
    steps, weights = list_transactions.handle(cast("Any", broker), _allowing(), message), []
    with pytest.raises(StopIteration) as done:
        while True:
            weights.append(next(steps))
    assert done.value.value.get("error_code", 0) == (ErrorCode.invalid_regular_expression if is_refused else 0)
    assert [weight >= TURN for weight in weights] == ([False] if is_refused else [False, True] * 3 + [False])


def _allowing() -> Any:
    """Return a context whose client may do everything."""

    def denied(*_: Any, **__: Any) -> Steps[frozenset[str]]:
        yield 1
        return frozenset()

    return SimpleNamespace(denied=denied)
