"""Shows why a rebalance waits: each member's epoch, the partitions that it must revoke, and those that it waits for.

ConsumerGroupDescribe returns epochs, assignments and target assignments. Pending revocations with their times, and
rebalance timeouts, are only in the group's records, which need permission to read `__consumer_offsets`. In a classic
group, neither source shows which members have joined again.
"""

import uuid
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from odradek.clients.admin.descriptions import GroupDescription, MemberDescription
from odradek.clients.admin.group_records import GroupRecordReader
from odradek.clients.admin.groups import describe_groups
from odradek.clients.admin.topics import current_metadata
from odradek.clients.cluster import Cluster
from odradek.model import KafkaError, OdradekError, TopicPartition
from odradek.protocol.internal_records.group_records import (
    ConsumerGroupCurrentMemberAssignmentKey,
    ConsumerGroupMemberMetadataKey,
    ConsumerGroupTargetAssignmentMetadataKey,
    GroupMetadataKey,
)


class PartitionWait(Struct, frozen=True, kw_only=True):
    """A partition that a member must revoke, or waits for. Times are in ms since 1970, None if unknown."""

    partition: TopicPartition
    held_by: str | None
    """The id of the member that still has the partition; None if it is free: the next heartbeat response assigns it."""
    since_ms: int | None = None
    """When the coordinator requested the revocation, or if it has not yet, when it computed the target assignment."""
    times_out_ms: int | None = None
    """The earliest time at which the holder is removed; a coordinator change restarts the timeout."""


class MemberWaits(Struct, frozen=True, kw_only=True):
    """A member, the partitions that it must revoke, and those that it waits for."""

    member_id: str
    client_id: str
    epoch: int | None
    """The member's epoch, or a classic group's generation; None if unknown."""
    assigned: tuple[TopicPartition, ...]
    revokes: tuple[PartitionWait, ...]
    waits_for: tuple[PartitionWait, ...]


class GroupWaits(Struct, frozen=True, kw_only=True):
    """A group with the waits of its members; in a classic group, `epoch` is the generation."""

    group_id: str
    group_type: str
    group_state: str
    epoch: int | None
    assignment_epoch: int | None
    """The epoch of the target assignment, which members have to reach; None for a classic group."""
    members: tuple[MemberWaits, ...]
    unreadable: str = ""
    """The error of reading the group's records, empty without one; then times and pending revocations are unknown."""


async def group_waits(cluster: Cluster, group_id: str) -> GroupWaits:
    """Return each member's epoch, the partitions that it must revoke, and those that it waits for.

    Of a classic group, only its members, their assignments and its generation are known. Raises `KafkaError`
    GROUP_ID_NOT_FOUND and others.
    """
    group = (await describe_groups(cluster, [group_id]))[group_id]
    if isinstance(group, KafkaError):
        raise group
    records, unreadable = _Records({}), ""
    try:
        read = await GroupRecordReader(cluster, group_id).read()
        records = _Records({key: (at_ms, value) for at_ms, key, value in read})
        records.names = await _names(cluster, records)
    except OdradekError as error:
        unreadable = str(error)
    is_classic = group.assignment_epoch is None
    return GroupWaits(
        group_id=group_id,
        group_type="classic" if is_classic else "consumer",
        group_state=group.group_state,
        epoch=records.generation(group_id) if is_classic else group.epoch,
        assignment_epoch=group.assignment_epoch,
        members=_classic(group, records.generation(group_id)) if is_classic else _members(group, records),
        unreadable=unreadable,
    )


class _Records:
    """The last record of each key of the group, with its timestamp, and the names of topics by id."""

    def __init__(self, last: Mapping[Any, tuple[int, Any]]) -> None:
        self.last = last
        self.names: Mapping[uuid.UUID, str] = {}

    def generation(self, group_id: str) -> int | None:
        _, value = self.last.get(GroupMetadataKey(group=group_id), (0, None))
        return None if value is None else int(value.generation)

    def pending(self) -> list[tuple[str, int, Any]]:
        """Return `(member_id, record timestamp in ms, record value)` of each member with pending revocations."""
        return [
            (key.member_id, at_ms, value)
            for key, (at_ms, value) in self.last.items()
            if isinstance(key, ConsumerGroupCurrentMemberAssignmentKey) and value is not None
            if value.partitions_pending_revocation
        ]

    def timeout_ms(self, group_id: str, member_id: str) -> int | None:
        key = ConsumerGroupMemberMetadataKey(group_id=group_id, member_id=member_id)
        _, value = self.last.get(key, (0, None))
        return None if value is None else int(value.rebalance_timeout_ms)


async def _names(cluster: Cluster, records: _Records) -> Mapping[uuid.UUID, str]:
    """Return the names of topics by id, empty if no member has pending revocations."""
    if not records.pending():
        return {}
    metadata = await current_metadata(cluster, None)
    return {topic.topic_id: name for name, topic in metadata.topics.items() if topic.topic_id is not None}


def _classic(group: GroupDescription, generation: int | None) -> tuple[MemberWaits, ...]:
    return tuple(
        MemberWaits(
            member_id=member.member_id,
            client_id=member.client_id,
            epoch=generation,
            assigned=member.assignment,
            revokes=(),
            waits_for=(),
        )
        for member in group.members
    )


def _members(group: GroupDescription, records: _Records) -> tuple[MemberWaits, ...]:
    told = _told(group, records)
    computed_ms, _ = records.last.get(ConsumerGroupTargetAssignmentMetadataKey(group_id=group.group_id), (None, None))
    holders = {
        each: PartitionWait(partition=each, held_by=member.member_id, since_ms=computed_ms)
        for member in group.members
        for each in member.assignment
    } | {each.partition: each for waits in told.values() for each in waits}

    def waits(member: MemberDescription) -> MemberWaits:
        has, wanted = set(member.assignment), set(member.target)
        free = [PartitionWait(partition=each, held_by=None, since_ms=computed_ms) for each in wanted - has]
        return MemberWaits(
            member_id=member.member_id,
            client_id=member.client_id,
            epoch=member.epoch,
            assigned=member.assignment,
            revokes=_sorted([*told.get(member.member_id, ()), *(holders[each] for each in has - wanted)]),
            waits_for=_sorted([holders.get(each.partition, each) for each in free]),
        )

    return tuple(map(waits, group.members))


def _told(group: GroupDescription, records: _Records) -> dict[str, list[PartitionWait]]:
    """Return the pending revocations by member id: requested by the coordinator, and not reported as revoked."""
    epochs = {member.member_id: member.epoch for member in group.members}
    found: dict[str, list[PartitionWait]] = {}
    for member_id, since_ms, value in records.pending():
        if epochs.get(member_id) != value.member_epoch:
            continue  # the record and the description are of different times
        timeout_ms = records.timeout_ms(group.group_id, member_id)
        found[member_id] = [
            PartitionWait(
                partition=TopicPartition(records.names.get(topic.topic_id, str(topic.topic_id)), number),
                held_by=member_id,
                since_ms=since_ms,
                times_out_ms=None if timeout_ms is None else since_ms + timeout_ms,
            )
            for topic in value.partitions_pending_revocation
            for number in topic.partitions
        ]
    return found


def _sorted(waits: Sequence[PartitionWait]) -> tuple[PartitionWait, ...]:
    return tuple(sorted(waits, key=lambda each: each.partition))
