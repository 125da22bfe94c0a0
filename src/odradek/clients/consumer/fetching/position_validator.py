"""Detects log truncation after a leader change by comparing positions with the new leader's log (KIP-320).

OffsetForLeaderEpoch returns the end offset of the last read record's epoch in the leader's log. If this end offset is
before the position, an unclean election has removed records that were read: the position is reset to the end offset, or
with `auto.offset.reset` none, the application gets a `LogTruncationError`.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from odradek.clients.cluster import Cluster
from odradek.clients.consumer.errors import LogTruncationError
from odradek.clients.consumer.settings import ConsumerSettings
from odradek.clients.consumer.subscription_state import TopicPartitionState
from odradek.clients.group_offsets import OffsetAndMetadata
from odradek.clients.retry import INVALID_METADATA_ERRORS
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError, explained
from odradek.model.probes import probe
from odradek.protocol.api import ApiKey
from odradek.wire.client_connection import ClientConnection

_log = logging.getLogger("odradek.clients")
_FOR_CONSUMERS_FROM: Final = 3
"""The first version of OffsetForLeaderEpoch without a cluster permission; older brokers get no request."""
_UNDEFINED: Final = -1
_RETRY_LATER: Final = INVALID_METADATA_ERRORS | {ErrorCode.offset_not_available}


class _Position(NamedTuple):
    """The position in a request; the response is ignored if a seek or a new leader has changed it."""

    version: int
    offset: int
    epoch: int
    leader_epoch: int


class PositionValidator:
    """Validates positions in the background. `on_validated` is called after each response or failure."""

    def __init__(self, cluster: Cluster, settings: ConsumerSettings, on_validated: Callable[[], None]) -> None:
        self._cluster = cluster
        self._settings = settings
        self._on_validated = on_validated

    def validate(self, leader: int, states: Sequence[TopicPartitionState]) -> None:
        """Start validating positions with `leader`; the partitions are not fetched until that is complete."""
        for state in states:
            state.is_fetching = True
        # Copied before the task starts: a seek may set a position without an epoch, which no broker can validate.
        positions = {state.partition: _position(state) for state in states}
        self._cluster.tasks.spawn(self._validate(leader, states, positions), f"validate positions with broker {leader}")

    async def _validate(
        self, leader: int, states: Sequence[TopicPartitionState], positions: Mapping[TopicPartition, _Position]
    ) -> None:
        answers: dict[TopicPartition, Any] = {}
        try:
            connection = await self._cluster.connections.to_broker(leader)
            if _is_supported(connection):
                answers = await _end_offsets(connection, positions)
            else:
                for state in states:
                    state.is_validated = True
        except (UnavailableError, KafkaError) as error:
            _log.debug("Validating positions with broker %d failed: %s", leader, error)
            self._cluster.request_refresh()
        finally:
            for state in states:
                if state.version == positions[state.partition].version:
                    state.is_fetching = False
        for state in states:
            if _position(state) != positions[state.partition] or state.is_validated:
                continue
            if state.partition in answers:
                self._complete(state, answers[state.partition])
            else:
                state.retry_at = self._retry_at()
        self._on_validated()

    def _complete(self, state: TopicPartitionState, answer: Any) -> None:
        code = answer.error_code
        if code == ErrorCode.none:
            self._compare(state, answer.end_offset, answer.leader_epoch)
        elif code in _RETRY_LATER or code.retriable:
            self._cluster.request_refresh()
            state.retry_at = self._retry_at()
        else:
            state.error = KafkaError(code, f"partition {state.partition}: {explained(code)}")

    def _compare(self, state: TopicPartitionState, end_offset: int, epoch: int) -> None:
        """Mark the position as validated, or handle a truncation.

        A truncation first drops buffered records; the position before them is validated next.
        """
        is_known = end_offset != _UNDEFINED and epoch != _UNDEFINED
        if is_known and end_offset >= state.fetch_position:
            state.is_validated = True
            return
        if state.position != state.fetch_position:
            probe("consumer: buffered records are dropped after a truncation")
            state.drop_buffered()
            return
        timestamp = self._settings.reset_timestamp(self._cluster.runtime.clock.now_ms())
        text = f"Truncation detected for partition {state.partition} at offset {state.position}"
        if timestamp is None:
            probe("consumer: a truncation is detected without a reset policy")
            diverging = OffsetAndMetadata(end_offset, "", epoch) if is_known else None
            state.error = LogTruncationError(state.partition, state.fetch_position, diverging)
        elif is_known:
            probe("consumer: the position is reset to a diverging offset")
            _log.warning("%s, resetting offset to the first offset known to diverge %d", text, end_offset)
            state.seek(end_offset, epoch)
            state.is_validated = True
        else:
            _log.warning("%s, resetting offset to the %s one", text, self._settings.auto_offset_reset)
            state.request_offset_reset(timestamp)

    def _retry_at(self) -> float:
        return self._cluster.runtime.clock.monotonic() + self._settings.retry_backoff_ms / 1000


def _position(state: TopicPartitionState) -> _Position:
    return _Position(state.version, state.fetch_position, state.fetch_epoch, state.current_leader_epoch)


def _is_supported(connection: ClientConnection) -> bool:
    if not connection.supports(ApiKey.OFFSET_FOR_LEADER_EPOCH):
        return False
    return connection.version(ApiKey.OFFSET_FOR_LEADER_EPOCH) >= _FOR_CONSUMERS_FROM


async def _end_offsets(
    connection: ClientConnection, positions: Mapping[TopicPartition, _Position]
) -> dict[TopicPartition, Any]:
    topics: dict[str, list[dict[str, int]]] = {}
    for (topic, number), position in positions.items():
        topics.setdefault(topic, []).append(
            {
                "partition": number,
                "current_leader_epoch": position.leader_epoch,
                "leader_epoch": position.epoch,
            }
        )
    message = {
        "replica_id": -1,
        "topics": [{"topic": topic, "partitions": partitions} for topic, partitions in topics.items()],
    }
    response = await connection.request(ApiKey.OFFSET_FOR_LEADER_EPOCH, message)
    return {TopicPartition(topic.topic, each.partition): each for topic in response.topics for each in topic.partitions}
