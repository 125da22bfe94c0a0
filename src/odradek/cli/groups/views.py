"""Descriptions of groups as rows of a table, with the columns of `kafka-consumer-groups`, and as JSON objects."""

from typing import Any, Final

from odradek.clients.admin.descriptions import GroupDescription
from odradek.texts.group_texts import assignment_text, coordinator_text

OFFSET_COLUMNS: Final = (
    "GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID",
)  # fmt: skip
MEMBER_COLUMNS: Final = ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS")
STATE_COLUMNS: Final = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")


def offset_rows(group: GroupDescription) -> list[tuple[object, ...]]:
    """Return a row for each partition that is assigned or has a committed offset."""
    return [
        (
            group.group_id, each.topic, each.partition, each.committed_offset, each.end_offset, each.lag,
            each.member_id, each.client_host, each.client_id,
        )
        for each in group.partitions
    ]  # fmt: skip


def member_rows(group: GroupDescription, *, verbose: bool) -> list[tuple[object, ...]]:
    """Return a row for each member, with its assignment if `verbose`."""
    return [
        (
            group.group_id, each.member_id, each.group_instance_id, each.client_host, each.client_id,
            len(each.assignment), *([assignment_text(each.assignment)] if verbose else []),
        )
        for each in group.members
    ]  # fmt: skip


def state_row(group: GroupDescription) -> tuple[object, ...]:
    protocol, state = group.protocol or None, group.group_state or None
    return group.group_id, coordinator_text(group), protocol, state, len(group.members)


def described(group: GroupDescription) -> dict[str, Any]:
    return {
        "group_id": group.group_id,
        "group_state": group.group_state,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "coordinator": None if group.coordinator is None else group.coordinator.broker_id,
        "lag": group.lag,
        "members": [
            {
                "member_id": each.member_id,
                "group_instance_id": each.group_instance_id,
                "client_id": each.client_id,
                "client_host": each.client_host,
                "assignment": each.assignment,
            }
            for each in group.members
        ],
        "partitions": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "committed_offset": each.committed_offset,
                "end_offset": each.end_offset,
                "lag": each.lag,
                "member_id": each.member_id,
                "client_id": each.client_id,
                "client_host": each.client_host,
            }
            for each in group.partitions
        ],
    }
