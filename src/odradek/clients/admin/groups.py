"""Lists, describes and deletes groups, removes members, and changes committed offsets.

Each coordinator gets one request for all its groups. Reads return errors of single groups as results.
"""

import asyncio
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from odradek.clients.admin.descriptions import (
    BrokerDescription,
    GroupDescription,
    GroupListing,
    GroupPartition,
    consumer_group_description,
    group_description,
)
from odradek.clients.admin.results import (
    RefusedGroupsError,
    RefusedMembersError,
    RefusedPartitionsError,
    errors_of,
)
from odradek.clients.admin.topics import current_metadata
from odradek.clients.arguments import Partition, PartitionT, by_partition, names_of, partitions_of
from odradek.clients.cluster import Cluster
from odradek.clients.coordinators import ask_coordinators, find_coordinator
from odradek.clients.group_offsets import (
    NO_MEMBER,
    OffsetAndMetadata,
    commit_each,
    fetch_many,
)
from odradek.clients.offsets import LATEST, by_topic, list_offsets
from odradek.clients.retry import ask_each, retrying
from odradek.model import ErrorCode, KafkaError, TopicPartition, explained
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import optional
from odradek.wire.client_connection import ClientConnection

T = TypeVar("T")

_NO_SUCH_GROUP: Final = "Dead"
"""The state of an unknown group in DescribeGroups responses."""
_LEADER_TIMEOUT_MS: Final = 5_000
"""The time limit of ListOffsets before leaders are looked up again: a partition may have lost its leader."""
_MANY_MEMBERS_FROM: Final = 3
"""First version of LeaveGroup for several members and for static members (KIP-345)."""
_STATES_FROM: Final = 4
_TYPES_FROM: Final = 5
"""First versions of ListGroups with filters by state (KIP-518) and by type (KIP-848)."""
_GROUP_REASONS: Final = {
    ErrorCode.group_id_not_found: "there is no group {0!r}; `odradek groups list` shows the groups, "
    "and `odradek groups tree` those of generation 1, whose consumers use ZooKeeper",
    ErrorCode.non_empty_group: "group {0!r} has members; stop them and try again",
    ErrorCode.unknown_member_id: "group {0!r} has members, which commit its offsets; stop them and try again",
}
_PARTITION_REASONS: Final = {
    ErrorCode.group_subscribed_to_topic: "members of group {0!r} read topic {1.topic!r}; stop them and try again",
    ErrorCode.unknown_topic_or_partition: "there is no partition {1.topic}-{1.partition}",
}


def no_such_group(group_id: str) -> KafkaError:
    return _error(ErrorCode.group_id_not_found, group_id)


# ---- listing and describing -----------------------------------------------------------------------------------------


async def list_groups(
    cluster: Cluster,
    *,
    states: Iterable[str] = (),
    types: Iterable[str] = (),
    broker_ids: Iterable[int] | None = None,
) -> list[GroupListing]:
    """Return the groups of all brokers, or of `broker_ids`, sorted by id.

    Filters by `states` (`Stable`, …) and `types` (`classic`, …).

    Raises `KafkaError` UNSUPPORTED_VERSION if a broker is too old for a filter.
    """
    message = {"states_filter": names_of(states), "types_filter": names_of(types)}
    wanted = None if broker_ids is None else list(broker_ids)

    async def ask(node_id: int) -> list[GroupListing]:
        connection = await cluster.connections.to_broker(node_id)
        version = connection.version(ApiKey.LIST_GROUPS)
        if (message["states_filter"] and version < _STATES_FROM) or (message["types_filter"] and version < _TYPES_FROM):
            reason = f"broker {node_id} is too old to filter groups by state or type; list all of them"
            raise KafkaError(ErrorCode.unsupported_version, reason)
        response = await connection.request(ApiKey.LIST_GROUPS, message)
        if response.error_code != ErrorCode.none:
            raise KafkaError(response.error_code, f"broker {node_id}: {explained(response.error_code)}")
        return [
            GroupListing(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=optional(group, "group_state", ""),
                group_type=optional(group, "group_type", ""),
            )
            for group in response.groups
        ]

    async def attempt() -> list[GroupListing]:
        await cluster.refresh()
        answers = await asyncio.gather(
            *(ask(node_id) for node_id in (cluster.metadata.nodes if wanted is None else wanted))
        )
        # During a coordinator change, two brokers may list a group.
        by_id = {group.group_id: group for groups in answers for group in groups}
        return [group for _, group in sorted(by_id.items())]

    return await retrying(cluster, attempt)


async def describe_groups(cluster: Cluster, group_ids: Iterable[str]) -> dict[str, GroupDescription | KafkaError]:
    """Describe each group: its members, and committed offset, end offset and lag by partition; or return its error.

    A group that its coordinator does not know and that has no offsets gets the error GROUP_ID_NOT_FOUND.
    """

    async def ask(
        connection: ClientConnection, node_id: int, some: list[str]
    ) -> dict[str, GroupDescription | KafkaError]:
        message = {"groups": some, "include_authorized_operations": False}
        response = await connection.request(ApiKey.DESCRIBE_GROUPS, message)
        coordinator = _coordinator(cluster, node_id)
        # A consumer group, or one with offsets only, is not found here: keep it for the next requests.
        found: dict[str, GroupDescription | KafkaError] = {
            group.group_id: group_description(group, coordinator)
            if group.error_code in (ErrorCode.none, ErrorCode.group_id_not_found)
            else _error(group.error_code, group.group_id)
            for group in response.groups
        }
        missing = [group.group_id for group in response.groups if group.group_state == _NO_SUCH_GROUP]
        if missing and connection.supports(ApiKey.CONSUMER_GROUP_DESCRIBE):
            message = {"group_ids": missing, "include_authorized_operations": False}
            response = await connection.request(ApiKey.CONSUMER_GROUP_DESCRIBE, message)
            for group in response.groups:
                if group.error_code is ErrorCode.none:
                    found[group.group_id] = consumer_group_description(group, coordinator)
        return found

    wanted = list(dict.fromkeys(names_of(group_ids)))
    answers = await ask_coordinators(cluster, wanted, ask)
    described = {group_id: answer for group_id, answer in answers.items() if isinstance(answer, GroupDescription)}
    offsets = await list_group_offsets(cluster, described)
    committed = {group_id: each for group_id, each in offsets.items() if not isinstance(each, KafkaError)}
    partitions = {
        group_id: sorted({*committed.get(group_id, ()), *(each for m in group.members for each in m.assignment)})
        for group_id, group in described.items()
    }
    ends = await end_offsets(cluster, (each for some in partitions.values() for each in some))
    found: dict[str, GroupDescription | KafkaError] = {}
    for group_id in wanted:
        answer, own_offsets = answers[group_id], offsets.get(group_id)
        if isinstance(answer, KafkaError):
            found[group_id] = answer
        elif isinstance(own_offsets, KafkaError):
            found[group_id] = own_offsets
        elif answer.group_state == _NO_SUCH_GROUP and not own_offsets:
            found[group_id] = no_such_group(group_id)
        else:
            owners = {partition: member for member in answer.members for partition in member.assignment}
            found[group_id] = answer.with_partitions(
                GroupPartition.of(each, committed[group_id].get(each), ends.get(each), owners.get(each))
                for each in partitions[group_id]
            )
    return found


def _coordinator(cluster: Cluster, node_id: int) -> BrokerDescription | None:
    node = cluster.metadata.nodes.get(node_id)
    if node is None:
        return None
    return BrokerDescription(broker_id=node_id, host=node.host, port=node.port, rack=node.rack)


async def list_group_offsets(
    cluster: Cluster, group_ids: Iterable[str], *, require_stable: bool = False
) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError]:
    """Return each group's committed offsets by partition (empty for an unknown group), or its error.

    With `require_stable`, waits for open transactions that have offsets to commit (KIP-447).
    """

    async def ask(
        connection: ClientConnection, _: int, some: list[str]
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata] | KafkaError]:
        return await fetch_many(connection, some, require_stable=require_stable)

    return await ask_coordinators(cluster, names_of(group_ids), ask)


async def end_offsets(cluster: Cluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the end offsets of `partitions`, without those that do not exist or have no leader."""
    wanted = set(partitions)
    topics = sorted({each.topic for each in wanted})

    async def attempt() -> dict[TopicPartition, int]:
        metadata = await current_metadata(cluster, topics)
        led = sorted(each for each in wanted if metadata.leader(each) is not None)
        # One Metadata request for all topics; `list_offsets` would send one for each unknown topic.
        cluster.set_topics(each.topic for each in led)
        await cluster.refresh(timeout_ms=cluster.timeout_ms)
        limit_ms = min(cluster.timeout_ms, _LEADER_TIMEOUT_MS)
        found = await list_offsets(cluster, dict.fromkeys(led, LATEST), timeout_ms=limit_ms)
        return {partition: each.offset for partition, each in found.items()}

    return await retrying(cluster, attempt)


# ---- changing -------------------------------------------------------------------------------------------------------


async def alter_group_offsets(
    cluster: Cluster, group_id: str, offsets: Mapping[PartitionT, int | OffsetAndMetadata]
) -> None:
    """Commit offsets for a group without members; an unknown group is created.

    Raises `KafkaError` UNKNOWN_MEMBER_ID if the group has members, `RefusedPartitionsError` for refused partitions
    after the others were committed.
    """
    wanted = {
        partition: each if isinstance(each, OffsetAndMetadata) else OffsetAndMetadata(each)
        for partition, each in by_partition(offsets).items()
    }

    async def attempt() -> None:
        connection = await cluster.connections.to_broker(await find_coordinator(cluster, group_id))
        codes = await commit_each(connection, group_id, NO_MEMBER, wanted)
        _raise_refused(group_id, wanted, codes)

    if wanted:
        await retrying(cluster, attempt)


async def delete_groups(cluster: Cluster, group_ids: Iterable[str]) -> None:
    """Delete groups without members, with their offsets.

    Raises `RefusedGroupsError` (NON_EMPTY_GROUP and others) after the other groups were deleted.
    """

    async def ask(connection: ClientConnection, _: int, some: list[str]) -> dict[str, KafkaError | None]:
        response = await connection.request(ApiKey.DELETE_GROUPS, {"groups_names": some})
        return {
            group.group_id: None if group.error_code == ErrorCode.none else _error(group.error_code, group.group_id)
            for group in response.results
        }

    results = await ask_coordinators(cluster, names_of(group_ids), ask)
    if errors := errors_of(results):
        raise RefusedGroupsError(errors)


async def remove_group_members(
    cluster: Cluster,
    group_id: str,
    *,
    member_ids: Iterable[str] = (),
    group_instance_ids: Iterable[str] = (),
    reason: str = "removed by an administrator",
) -> None:
    """Remove members of a group, static members by their `group.instance.id` (KIP-345).

    A running member joins again. Raises `RefusedMembersError` (UNKNOWN_MEMBER_ID and others) after the other
    members were removed.
    """
    wanted: dict[str, dict[str, str | None]] = {
        each: {"member_id": "", "group_instance_id": each, "reason": reason} for each in names_of(group_instance_ids)
    }
    wanted |= {each: {"member_id": each, "group_instance_id": None, "reason": reason} for each in names_of(member_ids)}

    async def ask(some: list[str]) -> dict[str, KafkaError | None]:
        connection = await cluster.connections.to_broker(await find_coordinator(cluster, group_id))
        if connection.version(ApiKey.LEAVE_GROUP) < _MANY_MEMBERS_FROM:
            reason = f"broker {connection.address} is too old to remove members of a group"
            raise KafkaError(ErrorCode.unsupported_version, reason)
        message = {"group_id": group_id, "members": [wanted[each] for each in some]}
        response = await connection.request(ApiKey.LEAVE_GROUP, message)
        if response.error_code != ErrorCode.none:
            raise _error(response.error_code, group_id)
        return {
            each.member_id or each.group_instance_id: _member_error(
                each.error_code, group_id, each.member_id or each.group_instance_id
            )
            for each in response.members
        }

    results = await ask_each(cluster, wanted, ask)
    if errors := errors_of(results):
        raise RefusedMembersError(errors)


def _member_error(code: ErrorCode, group_id: str, member: str) -> KafkaError | None:
    if code == ErrorCode.none:
        return None
    if code == ErrorCode.unknown_member_id:
        return KafkaError(code, f"group {group_id!r} has no member {member!r}; `odradek groups members` shows them")
    return KafkaError(code, f"group {group_id!r}, member {member!r}: {explained(code)}")


async def delete_group_offsets(cluster: Cluster, group_id: str, partitions: Iterable[Partition]) -> None:
    """Delete a group's committed offsets of `partitions`.

    Raises `RefusedPartitionsError` (GROUP_SUBSCRIBED_TO_TOPIC and others) after the other offsets were deleted, or
    the `KafkaError` of the group.
    """
    wanted = partitions_of(partitions)
    topics = [
        {"name": topic, "partitions": [{"partition_index": each.partition} for each in some]}
        for topic, some in by_topic(wanted)
    ]

    async def attempt() -> None:
        connection = await cluster.connections.to_broker(await find_coordinator(cluster, group_id))
        response = await connection.request(ApiKey.OFFSET_DELETE, {"group_id": group_id, "topics": topics})
        if response.error_code != ErrorCode.none:
            raise _error(response.error_code, group_id)
        codes = {
            TopicPartition(topic.name, each.partition_index): each.error_code
            for topic in response.topics
            for each in topic.partitions
        }
        _raise_refused(group_id, wanted, codes)

    await retrying(cluster, attempt)


def _error(code: ErrorCode, group_id: str) -> KafkaError:
    reason = _GROUP_REASONS.get(code, "group {0!r}: " + explained(code))
    return KafkaError(code, reason.format(group_id))


def _raise_refused(group_id: str, wanted: Iterable[TopicPartition], codes: Mapping[TopicPartition, ErrorCode]) -> None:
    """Raise the first error that concerns the group or is retriable, else `RefusedPartitionsError` with all, if any.

    UNKNOWN_TOPIC_OR_PARTITION is not retried. A partition missing in the response gets UNKNOWN_SERVER_ERROR.
    """
    answered = {partition: codes.get(partition, ErrorCode.unknown_server_error) for partition in wanted}
    refused = {partition: code for partition, code in answered.items() if code != ErrorCode.none}
    for code in refused.values():
        # An unknown topic is not retried: no producer is creating it.
        if code in _GROUP_REASONS or (code.retriable and code != ErrorCode.unknown_topic_or_partition):
            raise _error(code, group_id)
    if refused:
        default = "group {0!r}, {1.topic}-{1.partition}: {2}"
        errors = {
            each: KafkaError(code, _PARTITION_REASONS.get(code, default).format(group_id, each, explained(code)))
            for each, code in refused.items()
        }
        raise RefusedPartitionsError(errors)
