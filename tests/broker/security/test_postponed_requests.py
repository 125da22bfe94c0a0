"""Asynchronous checks hold raw and decoded requests."""

import asyncio
from collections.abc import Coroutine
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from conformance.interop.test_versions import TOPIC, requests
from odradek.broker.apis import APIS
from odradek.broker.security.admission import Admission
from odradek.broker.security.context import RequestContext
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.api import ApiKey, schema_versions
from odradek.security import ALLOW_ALL, AclOperation, ResourceType
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from tests.broker.security.test_admission import BOB, Setting, codes
from tests.world.scenes import played


async def ask(client: WireClient, api: ApiKey, version: int, request: dict[str, Any]) -> Any:
    client.send(api, request, version)
    if api == ApiKey.PRODUCE:
        return await client.produce_response()
    return await (client.fetch_response() if api == ApiKey.FETCH else client.answer())


class Verifier:
    """A check of one API's requests that ends when a test sets its result."""

    def __init__(self, api: ApiKey = ApiKey.PRODUCE) -> None:
        self.apis = {api}
        self.begun: list[asyncio.Future[None]] = []

    def verify(self, context: RequestContext, frame: memoryview) -> Coroutine[Any, Any, None]:
        del frame
        assert context.api_key in self.apis
        self.begun.append(asyncio.get_running_loop().create_future())
        return _result(self.begun[-1])


async def _result(future: asyncio.Future[None]) -> None:
    await future


@played
async def test_a_request_waits_for_its_asynchronous_check_and_is_refused_with_its_error(world: World) -> None:
    verifier = Verifier()
    await world.start(admission=Admission(ALLOW_ALL, verifier=verifier))
    client = await world.client()
    await client.create_topic(TOPIC)
    for outcome in (None, None, KafkaError(ErrorCode.invalid_txn_state), None):
        client.send_produce(TOPIC, world.batch(b"a"), version=5)  # no version of the fast path
        answer = asyncio.ensure_future(client.produce_response())
        await asyncio.sleep(5)
        assert not answer.done()
        if outcome is None:
            verifier.begun[-1].set_result(None)
        else:
            verifier.begun[-1].set_exception(outcome)
        code = (await answer).topics[0].partitions[0].error_code
        assert code == (0 if outcome is None else outcome.code)
    assert len(verifier.begun) == 4


@pytest.mark.parametrize(
    ("api", "version"),
    [
        *((ApiKey.METADATA, version) for version in APIS[ApiKey.METADATA].served),
        *((ApiKey.API_VERSIONS, version) for version in schema_versions(ApiKey.API_VERSIONS)),
        *((ApiKey.FETCH, version) for version in APIS[ApiKey.FETCH].served),
        (ApiKey.LIST_OFFSETS, APIS[ApiKey.LIST_OFFSETS].served[-1]),
    ],
    ids=lambda each: each.name if isinstance(each, ApiKey) else str(each),
)
@played
async def test_a_refused_request_gets_the_error_on_its_connection_although_an_answer_was_cached(
    world: World, api: ApiKey, version: int
) -> None:
    verifier = Verifier(api)
    await world.start(admission=Admission(ALLOW_ALL, verifier=verifier))
    client = await world.client()
    topic_id = (await client.create_topic(TOPIC)).topic_id
    request = requests(topic_id)[api]
    if api == ApiKey.METADATA:
        by_name, by_id = {"topic_id": UUID(int=0), "name": TOPIC}, {"topic_id": topic_id, "name": None}
        request = {
            **request,
            "topics": [by_name] if version < 10 else [by_id] if version > 11 else [by_name, by_id],
        }
    for error in (None, KafkaError(ErrorCode.invalid_txn_state), None):
        answer = asyncio.ensure_future(ask(client, api, version, request))
        await asyncio.sleep(5)
        verifier.begun[-1].set_result(None) if error is None else verifier.begun[-1].set_exception(error)
        found = set(codes(await answer))
        assert (ErrorCode.invalid_txn_state in found) == (error is not None)


@played
async def test_a_refused_fetch_leaves_its_session_as_it_was(world: World) -> None:
    verifier = Verifier(ApiKey.FETCH)
    broker = await world.start(admission=Admission(ALLOW_ALL, verifier=verifier))
    client = await world.client()
    topic_id = (await client.create_topic(TOPIC)).topic_id
    version = APIS[ApiKey.FETCH].served[-1]
    request = {**requests(topic_id)[ApiKey.FETCH], "session_id": 0, "session_epoch": 0}
    for error in (KafkaError(ErrorCode.invalid_txn_state), None):
        answer = asyncio.ensure_future(ask(client, ApiKey.FETCH, version, request))
        await asyncio.sleep(5)
        verifier.begun[-1].set_result(None) if error is None else verifier.begun[-1].set_exception(error)
        session_id = (await answer).session_id
        assert (session_id != 0) == (error is None)
        assert len(broker.fetch_sessions) == (0 if error else 1)


@pytest.mark.asyncio
async def test_a_broker_may_stop_in_the_turn_in_which_a_check_begins() -> None:
    connection = SimpleNamespace(hold=lambda: None, release=lambda: None)
    session = SimpleNamespace(postponed=None, refusal=None, connection=connection)
    admission = Admission(ALLOW_ALL, verifier=Verifier())
    context: Any = SimpleNamespace(session=session, api_key=ApiKey.PRODUCE)
    assert not admission.is_due(context, memoryview(b""))
    admission.stop()
    await asyncio.wait([session.postponed])  # type: ignore[list-item]
    assert session.postponed.cancelled()  # type: ignore[attr-defined]


@played
async def test_requests_that_wait_for_a_check_end_with_their_connection_and_with_the_broker(world: World) -> None:
    verifier = Verifier()
    broker = await world.start(admission=Admission(ALLOW_ALL, verifier=verifier))
    client, other = await world.client(), await world.client()
    await client.create_topic(TOPIC)
    for each in (client, other):
        each.send_produce(TOPIC, world.batch(b"a"))
        await asyncio.sleep(1)
    client.transport.abort()
    await asyncio.sleep(1)
    verifier.begun[0].set_result(None)
    await asyncio.sleep(1)
    await broker.stop()
    assert await other.receive() is None


# ---- Remembered permissions ------------------------------------------------------------------------------------------


@played
async def test_a_session_remembers_what_it_may_read_until_the_rules_change_and_no_refusal(world: World) -> None:
    setting = await Setting(world).begin()
    client, asked = setting.client, setting.rules.asked
    assert (await client.fetch(TOPIC, 0)).error_code == 0
    count = len(asked)
    client.send_fetch([(TOPIC, 0, 0), ("public", 0, 0)])
    assert not any(codes(await client.fetch_response()))
    assert {each.resource_pattern.name for each in asked[count:]} == {TOPIC, "public"}, "one name is new"
    count = len(asked)
    for topic in (TOPIC, "public"):
        assert (await client.fetch(topic, 0)).error_code == 0
    assert len(asked) == count
    setting.rules.deny(AclOperation.READ, ResourceType.TOPIC, TOPIC)
    for _ in range(2):
        assert (await client.fetch(TOPIC, 0)).error_code == ErrorCode.topic_authorization_failed
        assert (await client.fetch("public", 0)).error_code == 0
    assert [each.resource_pattern.name for each in asked[count:]] == [TOPIC, "public", TOPIC]
    setting.rules.allow_all()
    assert (await client.fetch(TOPIC, 0)).error_code == 0


@played
async def test_a_session_remembers_a_limited_number_of_names_of_one_principal_operation_and_api(world: World) -> None:
    setting = await Setting(world).begin()
    client = setting.client
    for start in range(0, 3000, 100):
        client.send_fetch([(f"t{number}", 0, 0) for number in range(start, start + 100)])
        await client.fetch_response()
    ((_, session),) = setting.broker.server._connections.items()
    assert len(session.allowed[ApiKey.FETCH, AclOperation.READ, ResourceType.TOPIC]) == 1000
    assert (await client.fetch(TOPIC, 0)).error_code == 0
    setting.rules._denied.append((BOB, AclOperation.READ, ResourceType.TOPIC, "t1"))
    setting.be(BOB)
    assert (await client.fetch("t1", 0)).error_code == ErrorCode.topic_authorization_failed
