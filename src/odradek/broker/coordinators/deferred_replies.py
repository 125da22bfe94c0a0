"""Replies of a coordinator that wait until the records before them are committed (Kafka's `DeferredEventQueue`)."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from odradek.broker.coordinators.machine import Reply
from odradek.broker.replication.partition import ACKS_ALL, Partition
from odradek.model import ErrorCode, KafkaError
from odradek.runtime.rate_limited_log import RateLimitedLog

_RESPONSE_ERRORS: Final = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}
RESIGNED: Final = (ErrorCode.not_leader_or_follower, ErrorCode.unknown_topic_or_partition)
"""Errors of a partition that this broker no longer leads."""
TOO_LARGE: Final = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)


def response_error(error: KafkaError) -> KafkaError:
    """Return the response error for an append error. NOT_COORDINATOR makes clients look for another coordinator."""
    return KafkaError(_RESPONSE_ERRORS.get(error.code, error.code), str(error))


class _Pending:
    """Replies that wait until the log is committed up to `offset` (exclusive)."""

    __slots__ = ("offset", "replies", "timer")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        self.replies: list[Reply] = []
        self.timer: asyncio.TimerHandle | None = None

    def cancel_timer(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None


class DeferredReplies:
    """The waiting replies of one coordinator, which are passed to `send` when their records are committed.

    After `timeout_ms`, or if the ISR shrinks below `min.insync.replicas`, an error is sent instead, and the records
    stay. If this broker cannot commit the records, `on_failure` is called with the error, and has to call `clear`.
    """

    def __init__(
        self,
        partition: Partition,
        *,
        timeout_ms: int,
        send: Callable[[Sequence[Reply]], None],
        on_failure: Callable[[KafkaError], None],
        refusal_log: RateLimitedLog,
    ) -> None:
        self._refusal_log = refusal_log
        self._partition = partition
        self._timeout_ms = timeout_ms
        self._send = send
        self._on_failure = on_failure
        self._loop = asyncio.get_running_loop()
        self._pending: dict[_Pending, None] = {}

    def appended(self, end_offset: int) -> None:
        """Make all later replies wait until the log is committed up to `end_offset` (exclusive)."""
        pending = _Pending(end_offset)
        self._pending[pending] = None
        self._wait(pending)

    def add(self, replies: Sequence[Reply]) -> None:
        """Send `replies` when all appended records are committed; at once if they already are."""
        if not self._pending:
            self._send(replies)
            return
        last = next(reversed(self._pending))
        last.replies += replies
        if last.timer is None:
            last.timer = self._loop.call_later(self._timeout_ms / 1000, self._time_out, last)

    def clear(self) -> None:
        """Drop all replies without sending them."""
        pending, self._pending = self._pending, {}
        for each in pending:
            each.cancel_timer()

    def _wait(self, pending: _Pending) -> None:
        self._partition.when_reached(pending.offset, acks=ACKS_ALL, waiter=partial(self._committed, pending))

    def _committed(self, pending: _Pending, error: KafkaError | None) -> None:
        """Send the replies of a committed offset, or handle `error`."""
        if pending not in self._pending:
            return
        if error is None:
            del self._pending[pending]
            pending.cancel_timer()
            self._send(pending.replies)
        elif error.code is ErrorCode.not_enough_replicas_after_append:
            self._fail(pending, error)
            self._wait(pending)
        else:
            self._on_failure(error)

    def _time_out(self, pending: _Pending) -> None:
        pending.timer = None
        self._fail(pending, KafkaError(ErrorCode.request_timed_out, "the records are not committed in time"))

    def _fail(self, pending: _Pending, error: KafkaError) -> None:
        pending.cancel_timer()
        replies = [each for each in pending.replies if each.to is not None]
        pending.replies = [each for each in pending.replies if each.to is None]  # events are reported when committed
        if replies:
            text = "Failed requests whose records were appended to %s: %s"
            self._refusal_log.log("late", logging.WARNING, text, self._partition.topic_partition, error)
        self._send([Reply(to=each.to, value=response_error(error)) for each in replies])
