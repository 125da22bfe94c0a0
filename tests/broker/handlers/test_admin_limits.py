"""Administration with every field at its limits and beyond: each request is answered, and the broker goes on.

The messages are made out of the schemas, with values that mean something here or nothing at all; an exception in a
handler closes the connection, which is what these tests look for.
"""

import logging
import random
from dataclasses import fields
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial._introspect import (
    EntityField,
    EntityTupleField,
    classify_field,
    get_schema_field_type,
    is_optional,
)

from conformance.fuzz.fuzz_requests import TOPIC, hostile_request
from odradek.broker.apis import APIS
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.schemas import load_request_schema
from odradek.simulation.world import Play, World
from tests.world.scenes import played

ADMIN_APIS: Final = (
    ApiKey.ALTER_REPLICA_LOG_DIRS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.DELETE_GROUPS,
    ApiKey.DELETE_RECORDS,
    ApiKey.DESCRIBE_CONFIGS,
    ApiKey.DESCRIBE_LOG_DIRS,
    ApiKey.DESCRIBE_PRODUCERS,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.LIST_CONFIG_RESOURCES,
    ApiKey.OFFSET_DELETE,
    ApiKey.OFFSET_FOR_LEADER_EPOCH,
)
ROUNDS: Final = 60
_WIDTHS: Final = {"int8": 7, "int16": 15, "int32": 31, "int64": 63, "timedelta_i32": 31}
_SMALL: Final = (-2, -1, 0, 0, 0, 1, 1, 2, 3, 4, 8, 32)
_TEXTS: Final = (
    *("t", "t", "u", "__consumer_offsets", "g", "0", "", "gone", "a/b", "x" * 5000, "\0", "ä", "\U0001f600"),
    *("retention.ms", "cleanup.policy", "log.retention.ms", "min.insync.replicas", "no.such.key"),
    *("1", "-1", "compact", "delete,compact", "9" * 30, "1e9", "true", " "),
)


def sample(entity_type: Any, chance: random.Random) -> dict[str, Any]:
    """A message, as our encoder takes it."""
    return {field.name: _sample_field(field, chance) for field in fields(entity_type)}


def _sample_field(field: Any, chance: random.Random) -> Any:
    kind = classify_field(field)
    if is_optional(field) and chance.random() < 0.2:
        return None
    if isinstance(kind, EntityField | EntityTupleField):
        if not kind.is_array:
            return sample(kind.type_, chance)
        return [sample(kind.type_, chance) for _ in range(chance.randrange(4))]
    name = get_schema_field_type(field)
    if kind.is_array:
        return [_sample_value(name, chance) for _ in range(chance.randrange(4))]
    return _sample_value(name, chance)


def _sample_value(name: str, chance: random.Random) -> Any:
    if name == "bool":
        return chance.random() < 0.3
    if name == "string":
        return chance.choice(_TEXTS)
    limit = 1 << _WIDTHS[name]
    return chance.choice((*_SMALL, limit - 1, -limit))


@pytest.mark.parametrize("api", ADMIN_APIS, ids=lambda api: api.name)
@played
async def test_a_request_of_any_content_is_answered(world: World, seed: int, api: ApiKey) -> None:
    chance = random.Random(f"{seed}/{api.name}")
    await world.start(offsets_topic_num_partitions=1)
    client = await world.client()
    await client.create_topic("t", 2)
    await client.create_topic("u")
    await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}, 4)
    await client.produce("t", world.batch(b"a", b"b"))
    for _ in range(ROUNDS):
        version = chance.choice(APIS[api].served)
        message = sample(load_request_schema(api, version), chance)
        answer = await client.ask(api, message, version)
        assert answer is not None, f"{api.name} {version} closed the connection: {message}"
        assert not _server_errors(answer), f"{api.name} {version}: {message}"
    assert await client.produce("t", world.batch(b"c")), "whatever it is by these settings"


def _server_errors(answer: Any) -> bool:
    return f"{ErrorCode.unknown_server_error!r}" in repr(answer)


@played
async def test_ten_thousand_of_everything_are_answered(world: World) -> None:
    many = range(10_000)
    names = [f"t{number}" for number in many]
    config = {"name": "retention.ms", "value": "1", "config_operation": 0}
    requests: dict[ApiKey, dict[str, Any]] = {
        ApiKey.INCREMENTAL_ALTER_CONFIGS: {
            "resources": [{"resource_type": 2, "resource_name": name, "configs": [config]} for name in names],
            "validate_only": False,
        },
        ApiKey.CREATE_PARTITIONS: {
            "topics": [{"name": name, "count": 2, "assignments": None} for name in names],
            "timeout": 1000,
            "validate_only": False,
        },
        ApiKey.DELETE_GROUPS: {"groups_names": names},
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: {"topics": [{"name": name} for name in names], "cursor": None},
        ApiKey.ALTER_REPLICA_LOG_DIRS: {
            "dirs": [{"path": "/data", "topics": [{"name": name, "partitions": [0]} for name in names]}]
        },
        ApiKey.DESCRIBE_LOG_DIRS: {"topics": [{"topic": name, "partitions": [0]} for name in names]},
    }
    await world.start()
    client = await world.client()
    for api, message in requests.items():
        answer = await client.ask(api, message, APIS[api].served[-1])
        assert answer is not None, api.name


# ---- Requests that are nearly right ----------------------------------------------------------------------------------

CONNECTIONS: Final = 3


@given(st.lists(st.tuples(st.integers(0, CONNECTIONS - 1), st.integers(0, 1 << 40)), min_size=4, max_size=30))
@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
def test_hostile_requests_cost_their_own_connections_only(
    play: Play, caplog: pytest.LogCaptureFixture, steps: list[tuple[int, int]]
) -> None:
    caplog.clear()

    async def scene(world: World) -> None:
        await world.start(
            offsets_topic_num_partitions=1, auto_create_topics_enable=False, group_initial_rebalance_delay_ms=0
        )
        neighbour = await world.client()
        await neighbour.create_topic(TOPIC, 2)
        await neighbour.create_topic("good", config={"retention.ms": "-1"})
        await neighbour.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [TOPIC]}, 4)
        batch = bytes(world.batch(b"a", b"b"))
        clients: list[Any] = [None] * CONNECTIONS
        for count, (number, seed) in enumerate(steps):
            if clients[number] is None or clients[number].is_closed:
                clients[number] = await world.client()
            clients[number].send_bytes(hostile_request(random.Random(seed), batch))
            await world.pass_time(0.01)
            answer = await neighbour.produce("good", world.batch(b"x"))
            assert (answer.error_code, answer.base_offset) == (0, count)
        await world.pass_time(60)
        fetched = await neighbour.fetch("good", 0, max_bytes=1 << 24, partition_max_bytes=1 << 24)
        assert world.values(fetched.records) == [b"x"] * len(steps)

    with caplog.at_level(logging.WARNING):
        play(scene)
    broken = [record for record in caplog.records if record.exc_info]
    assert not broken, "\n".join(f"{record.getMessage()}\n{record.exc_text}" for record in broken)
