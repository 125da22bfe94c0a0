"""Retries of requests that failed with a retriable error, within a time limit."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Final, TypeVar

from odradek.clients.backoff import Backoff
from odradek.clients.cluster import Cluster
from odradek.model import ErrorCode, KafkaError, UnavailableError
from odradek.wire.client_connection import WAITING_LOG_S, waiting_log

K = TypeVar("K")
T = TypeVar("T")

INVALID_METADATA_ERRORS: Final = {
    ErrorCode.not_leader_or_follower,
    ErrorCode.leader_not_available,
    ErrorCode.unknown_topic_or_partition,
    ErrorCode.unknown_topic_id,
    ErrorCode.inconsistent_topic_id,
    ErrorCode.fenced_leader_epoch,
    ErrorCode.unknown_leader_epoch,
    ErrorCode.replica_not_available,
    ErrorCode.kafka_storage_error,
    ErrorCode.broker_not_available,
    ErrorCode.not_controller,
    ErrorCode.listener_not_found,
}
"""Errors after which the client must refresh its metadata."""


async def retrying(
    cluster: Cluster,
    attempt: Callable[[], Awaitable[T]],
    *,
    timeout_ms: int | None = None,
    backoff: Backoff | None = None,
) -> T:
    """Return the result of `attempt`, retrying after retriable errors with backoff, and a metadata refresh if needed.

    Raises the last error if it is not retriable, or after `timeout_ms` (the `default.api.timeout.ms` of `cluster`).
    """
    clock = cluster.runtime.clock
    started, is_logged = clock.monotonic(), False
    deadline = started + (cluster.timeout_ms if timeout_ms is None else timeout_ms) / 1000
    backoff = backoff or cluster.backoff()
    while True:
        try:
            return await attempt()
        except (KafkaError, UnavailableError) as error:
            pause = backoff.failed()
            if not error.retriable or clock.monotonic() + pause >= deadline:
                raise
            if not is_logged and clock.monotonic() >= started + WAITING_LOG_S:
                is_logged = True
                waiting_log.info("%s; trying again for %.0f s", error, deadline - clock.monotonic())
            await asyncio.sleep(pause)
            if isinstance(error, UnavailableError) or error.code in INVALID_METADATA_ERRORS:
                # If no broker responds, the next attempt raises that error.
                with contextlib.suppress(UnavailableError):
                    await cluster.refresh()


async def ask_each(
    cluster: Cluster,
    keys: Iterable[K],
    ask: Callable[[list[K]], Awaitable[Mapping[K, T | KafkaError]]],
    *,
    timeout_ms: int | None = None,
) -> dict[K, T | KafkaError]:
    """Return the results of `ask` by key; for `timeout_ms`, call it again with the keys whose errors are retriable.

    A key without a result gets UNKNOWN_SERVER_ERROR. Raises the errors that `ask` raises.
    """
    wanted = list(dict.fromkeys(keys))
    found: dict[K, T | KafkaError] = {}

    async def attempt() -> None:
        missing = [key for key in wanted if key not in found or _is_retriable(found[key])]
        answers = await ask(missing)
        for key in missing:
            omitted = KafkaError(ErrorCode.unknown_server_error, f"the broker's response says nothing about {key!r}")
            found[key] = answers.get(key, omitted)
        for key in missing:
            answer = found[key]
            if isinstance(answer, KafkaError) and answer.retriable:
                raise answer

    if wanted:
        try:
            await retrying(cluster, attempt, timeout_ms=timeout_ms)
        except KafkaError as error:
            if not any(error is each for each in found.values()):
                raise
    return found


def _is_retriable(answer: object) -> bool:
    return isinstance(answer, KafkaError) and answer.retriable
