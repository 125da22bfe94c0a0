"""FindCoordinator: the brokers that coordinate groups and transactional ids, and requests to many of them at once."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from enum import IntEnum
from typing import Any, Final, TypeVar

from odradek.clients.cluster import Cluster
from odradek.clients.retry import ask_each
from odradek.model import KafkaError, explained
from odradek.model.errors import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import optional
from odradek.wire.client_connection import ClientConnection

T = TypeVar("T")

_MANY_FROM: Final = 4
"""First version of FindCoordinator for several keys (KIP-699)."""
LAST_END_TXN_OF_VERSION_1: Final = 4


class CoordinatorType(IntEnum):
    """The kinds of coordinators, as key types of FindCoordinator."""

    GROUP = 0
    TRANSACTION = 1


_KEY_NAMES: Final = {CoordinatorType.GROUP: "group", CoordinatorType.TRANSACTION: "transactional id"}


async def find_coordinator(
    cluster: Cluster, key: str, coordinator_type: CoordinatorType = CoordinatorType.GROUP
) -> int:
    """Return the coordinator's broker id. Raises `KafkaError`, such as COORDINATOR_NOT_AVAILABLE if there is none."""
    node_id = (await find_coordinators(cluster, [key], coordinator_type))[key]
    if isinstance(node_id, KafkaError):
        raise node_id
    return node_id


async def find_coordinators(
    cluster: Cluster, keys: Sequence[str], coordinator_type: CoordinatorType = CoordinatorType.GROUP
) -> dict[str, int | KafkaError]:
    """Return each key's coordinator id or error, with a single request if the broker supports it (KIP-699)."""
    connection = await cluster.connections.least_loaded()
    if connection.version(ApiKey.FIND_COORDINATOR) < _MANY_FROM:
        requests = {key: {"key": key, "key_type": coordinator_type} for key in keys}
        answers = {key: await connection.request(ApiKey.FIND_COORDINATOR, each) for key, each in requests.items()}
    else:
        message = {"key_type": coordinator_type, "coordinator_keys": list(keys)}
        response = await connection.request(ApiKey.FIND_COORDINATOR, message)
        answers = {each.key: each for each in response.coordinators}
    name = _KEY_NAMES[coordinator_type]
    found = {key: _coordinator(f"{name} {key!r}", answer) for key, answer in answers.items()}
    if any(isinstance(each, int) and each not in cluster.metadata.nodes for each in found.values()):
        await cluster.refresh()
    return found


def _coordinator(name: str, found: Any) -> int | KafkaError:
    if found.error_code == ErrorCode.none:
        return int(found.node_id)
    reason = optional(found, "error_message", None) or explained(found.error_code)
    return KafkaError(found.error_code, f"{name}: {reason}")


async def ask_coordinators(
    cluster: Cluster,
    keys: Iterable[str],
    ask: Callable[[ClientConnection, int, list[str]], Awaitable[dict[str, T | KafkaError]]],
    coordinator_type: CoordinatorType = CoordinatorType.GROUP,
) -> dict[str, T | KafkaError]:
    """Return the results of `ask`, called for each coordinator with its keys, and again after retriable errors."""

    async def ask_all(missing: list[str]) -> dict[str, T | KafkaError]:
        found: dict[str, T | KafkaError] = {}
        by_node: dict[int, list[str]] = {}
        for key, coordinator in (await find_coordinators(cluster, missing, coordinator_type)).items():
            if isinstance(coordinator, KafkaError):
                found[key] = coordinator
            else:
                by_node.setdefault(coordinator, []).append(key)
        asked = await asyncio.gather(*(ask_one(*each) for each in by_node.items()), return_exceptions=True)
        for answer in asked:
            if isinstance(answer, BaseException):
                raise answer
            found |= answer
        return found

    async def ask_one(node_id: int, some: list[str]) -> dict[str, T | KafkaError]:
        return await ask(await cluster.connections.to_broker(node_id), node_id, some)

    return await ask_each(cluster, keys, ask_all)
