"""Trying again: requests that failed for a reason that passes, until one succeeds or the time is up."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from odradek.clients.cluster import Cluster
from odradek.model import ErrorCode, KafkaError, UnavailableError

T = TypeVar("T")

DEFAULT_API_TIMEOUT_MS: Final = 60_000
"""Kafka's `default.api.timeout.ms`."""

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
"""What a broker says when the client's view of the cluster is out of date."""


async def retrying(
    cluster: Cluster, attempt: Callable[[], Awaitable[T]], *, timeout_ms: int = DEFAULT_API_TIMEOUT_MS
) -> T:
    """What `attempt` returns, once it does. Raises its last error when that is final, or after `timeout_ms`.

    Between two tries there is a pause that doubles, and the metadata is asked for again if the error is about it.
    """
    clock = cluster.runtime.clock
    deadline = clock.monotonic() + timeout_ms / 1000
    backoff = cluster.backoff()
    while True:
        try:
            return await attempt()
        except (KafkaError, UnavailableError) as error:
            pause = backoff.failed()
            if not error.retriable or clock.monotonic() + pause >= deadline:
                raise
            await asyncio.sleep(pause)
            if isinstance(error, UnavailableError) or error.code in INVALID_METADATA_ERRORS:
                # Where nobody answers, the next try says so, until the time is up.
                with contextlib.suppress(UnavailableError):
                    await cluster.refresh()
