"""The new committed offsets of a group without members: which they are, and why a group cannot have any."""

from collections.abc import Iterable
from typing import Any, Final, NamedTuple

from odradek.clients import Admin
from odradek.clients.admin.descriptions import GroupDescription
from odradek.clients.offsets import EARLIEST, LATEST
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.runtime import system_runtime
from odradek.texts.offset_specs import within

_INACTIVE: Final = ("Empty", "Dead")


class Goal(NamedTuple):
    """The option that chooses the new offsets, such as `to_earliest`, and its value."""

    option: str
    value: Any = None


class PartitionOffsets(NamedTuple):
    """A partition's first and end offsets, and the offset of its first record since the requested time (-1: none)."""

    first: int
    end: int
    at_time: int = -1


def new_offset(goal: Goal, committed: int | None, partition: PartitionOffsets) -> tuple[int, str]:
    """Return `(offset, remark)`: the offset to commit, and why it is not the requested one, or "".

    `to_offset` and `shift_by` are limited to the range from the first to the end offset. `to_current` without a
    committed offset means the end. Raises `ValueError` with the reason if there is no committed offset to shift.
    """
    if goal.option == "to_earliest":
        return partition.first, ""
    if goal.option == "to_latest" or (goal.option == "to_current" and committed is None):
        return partition.end, ""
    if goal.option in ("to_datetime", "by_duration"):
        if partition.at_time < 0:
            return partition.end, "has no record since that time, so its end is used"
        return partition.at_time, ""
    if goal.option == "to_current":
        assert committed is not None
        return committed, ""
    if goal.option == "shift_by" and committed is None:
        raise ValueError("has no committed offset that could be shifted")
    wanted = goal.value + (committed or 0) if goal.option == "shift_by" else goal.value
    return within(wanted, partition.first, partition.end)


async def partition_offsets(
    client: Admin, partitions: Iterable[TopicPartition], goal: Goal
) -> dict[TopicPartition, PartitionOffsets]:
    """Return the first and end offsets of partitions, and if the goal is a time, the offsets since then."""
    wanted = set(partitions)
    first = await client.list_offsets(dict.fromkeys(wanted, EARLIEST))
    ends = await client.list_offsets(dict.fromkeys(wanted, LATEST))
    since_ms = goal.value if goal.option == "to_datetime" else None
    if goal.option == "by_duration":
        since_ms = system_runtime().clock.now_ms() - goal.value
    since = {} if since_ms is None else await client.list_offsets(dict.fromkeys(wanted, max(since_ms, 0)))
    return {
        each: PartitionOffsets(first[each].offset, ends[each].offset, since[each].offset if each in since else -1)
        for each in wanted
    }


def refusal(group_id: str, group: GroupDescription | KafkaError) -> KafkaError | None:
    """Return the error of a group that cannot be reset, or None; a group that does not exist can be reset."""
    if isinstance(group, KafkaError):
        return None if group.code == ErrorCode.group_id_not_found else group
    if group.group_state in _INACTIVE:
        return None
    members = "1 member" if len(group.members) == 1 else f"{len(group.members)} members"
    return KafkaError(
        ErrorCode.non_empty_group,
        f"group {group_id!r} is {group.group_state} with {members}, and only a group without members can be reset; "
        "stop them and try again",
    )
