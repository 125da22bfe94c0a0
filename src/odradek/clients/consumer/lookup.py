"""Where to start: the committed offset, else what `auto.offset.reset` says, looked up at the partition's leader."""

import asyncio
from collections.abc import Iterable

from odradek.clients.cluster import Cluster
from odradek.clients.consumer.group import Group
from odradek.clients.consumer.positions import PartitionState
from odradek.clients.consumer.settings import RESETS, ConsumerSettings
from odradek.clients.offsets import by_topic, list_offsets
from odradek.model import ErrorCode, KafkaError, TopicPartition

_PATIENCE_MS = 5_000
"""How long one try takes at most; the next poll tries again."""


async def find_positions(
    cluster: Cluster, settings: ConsumerSettings, group: Group | None, states: Iterable[PartitionState]
) -> None:
    """Give every state without a position one, or an error. A seek meanwhile wins.

    Raises `KafkaError` or `UnavailableError` when brokers could not be asked.
    """
    missing = [state for state in states if state.position is None and state.error is None]
    fresh = [state for state in missing if state.reset is None]
    if fresh:
        await _start(settings, group, fresh)
    lookups = {
        state.partition: (state, state.version, state.reset)
        for state in missing
        if state.reset is not None and state.position is None
    }
    # By topic, so that one that was deleted does not keep the others from starting.
    results = await asyncio.gather(
        *(
            _look_up(cluster, {partition: lookups[partition] for partition in some}, settings.isolation_level)
            for _, some in by_topic(lookups)
        ),
        return_exceptions=True,
    )
    for result in results:
        if isinstance(result, BaseException):
            raise result


async def _start(settings: ConsumerSettings, group: Group | None, fresh: list[PartitionState]) -> None:
    """Go to the committed offset; have the others looked up."""
    versions = {state.partition: state.version for state in fresh}
    committed = {}
    if group is not None:
        committed = await group.committed(versions, timeout_ms=settings.default_api_timeout_ms)
    for state in fresh:
        if state.version != versions[state.partition] or state.position is not None or state.reset is not None:
            continue
        commit = committed.get(state.partition)
        timestamp = RESETS[settings.auto_offset_reset]
        if commit is not None:
            state.seek(commit.offset, commit.leader_epoch)
        elif timestamp is not None:
            state.look_up(timestamp)
        else:
            state.error = KafkaError(
                ErrorCode.offset_out_of_range,
                f"partition {state.partition} has no committed offset, and auto_offset_reset is none",
            )


async def _look_up(
    cluster: Cluster, lookups: dict[TopicPartition, tuple[PartitionState, int, int]], isolation_level: str
) -> None:
    wanted = {partition: timestamp for partition, (_, _, timestamp) in lookups.items()}
    found = await list_offsets(cluster, wanted, isolation_level=isolation_level, timeout_ms=_PATIENCE_MS)
    for partition, (state, version, _) in lookups.items():
        if state.version == version:
            state.seek(found[partition].offset, found[partition].leader_epoch)
