"""Workloads of many open transactions, by requests without a client library: open them, and find them again."""

import asyncio
import time
from typing import Any, Final

from bench.clients.workloads import Figures
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.runtime import SystemNetwork
from odradek.simulation.wire_client import WireClient

_CONNECTIONS: Final = 32
_TIMEOUT_MS: Final = 900_000
_INIT_VERSION: Final = 4
_ADD_VERSION: Final = 3
_AT_ONCE: Final = 500
"""Transactions of one DescribeTransactions."""
_PAUSE_S: Final = 0.01
_WITHIN_S: Final = 120.0
_LATER: Final = frozenset(
    {
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.coordinator_not_available,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
        ErrorCode.leader_not_available,
    }
)


def open_transactions(bootstrap_servers: str, *, topic: str, count: int) -> Figures:
    """Begin `count` transactions, each of its own id, with one partition of `topic`; return their rate."""
    return asyncio.run(_open(bootstrap_servers, topic, count))


async def _open(address: str, topic: str, count: int) -> Figures:
    async def work(numbers: range) -> None:
        client = await _connect(address)
        for number in numbers:
            transactional_id = f"bench-{number}"
            who = {"transactional_id": transactional_id, "transaction_timeout": _TIMEOUT_MS}
            producer = await _ask(
                client, ApiKey.INIT_PRODUCER_ID, {**who, "producer_id": -1, "producer_epoch": -1}, _INIT_VERSION
            )
            message = {
                "v3_and_below_transactional_id": transactional_id,
                "v3_and_below_producer_id": producer.producer_id,
                "v3_and_below_producer_epoch": producer.producer_epoch,
                "v3_and_below_topics": [{"name": topic, "partitions": [0]}],
            }
            await _ask(client, ApiKey.ADD_PARTITIONS_TO_TXN, message, _ADD_VERSION)
        client.transport.abort()

    client = await _connect(address)
    key = {"key": "bench-0", "key_type": 1}
    await _ask(client, ApiKey.FIND_COORDINATOR, key, 2)  # creates the topic of transactions
    client.transport.abort()
    began = time.perf_counter()
    await asyncio.gather(*(work(range(at, count, _CONNECTIONS)) for at in range(_CONNECTIONS)))
    return {"per_second": count / (time.perf_counter() - began)}


async def _ask(client: WireClient, api: ApiKey, message: dict[str, Any], version: int) -> Any:
    """Return a response without an error; try again while the coordinator is not ready."""
    until = time.monotonic() + _WITHIN_S
    while True:
        answer = await client.ask(api, message, version)
        errors = {getattr(answer, "error_code", ErrorCode.none)}
        if api is ApiKey.ADD_PARTITIONS_TO_TXN:
            results = answer.results_by_topic_v3_and_below
            errors = {each.partition_error_code for topic in results for each in topic.results_by_partition}
        if errors == {ErrorCode.none}:
            return answer
        assert errors <= _LATER, answer
        assert time.monotonic() < until, answer
        await asyncio.sleep(_PAUSE_S)


def await_transactions(bootstrap_servers: str, *, count: int) -> Figures:
    """Wait until all of `open_transactions` are described as ongoing; return the time, in s since 1970."""
    return asyncio.run(_await(bootstrap_servers, count))


async def _await(address: str, count: int) -> Figures:
    client = await _connect(address)
    missing = {f"bench-{number}" for number in range(count)}
    until = time.monotonic() + _WITHIN_S
    while missing:
        some = sorted(missing)[:_AT_ONCE]
        answer = await client.ask(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": some}, 0)
        found = {each.transactional_id for each in answer.transaction_states if each.transaction_state == "Ongoing"}
        missing -= found
        if not found:
            assert time.monotonic() < until, f"{len(missing)} of {count} transactions are not there"
            await asyncio.sleep(_PAUSE_S)
    return {"at": time.time()}


async def _connect(address: str) -> WireClient:
    host, port = address.rsplit(":", 1)
    return await WireClient.connect(SystemNetwork(), host, int(port), client_id="bench")
