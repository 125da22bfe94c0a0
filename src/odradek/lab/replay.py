"""Builds the timeline of a live group's past from its rebalance journal.

A record has the owners at the end of a rebalance, and the changes of owners during it; undoing the changes gives the
owners before. So a record missing in the journal makes only its own time wrong, not the rest of the timeline.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from odradek.lab.case import LabFailure
from odradek.lab.timeline import Mark, Timeline, TimelineBuilder
from odradek.model import TopicPartition

_LEAST_TAIL_MS: Final = 100
"""The time shown after the last rebalance is a tenth of the history, but at least this."""


def replay(group_id: str, history: Sequence[Mapping[str, Any]]) -> Timeline:
    """Return the timeline of a group. `history` has records of the journal, from `Admin.rebalance_history`.

    Raises `LabFailure` if no record names owners.
    """
    records = [each for each in history if each.get("owned") or each.get("changes")]
    if not records:
        raise LabFailure(_why_nothing(group_id, history))
    builder = TimelineBuilder()
    marks = [_mark(record) for record in records]
    for record, mark in zip(records, marks, strict=True):
        first_ms = min([mark.from_ms, *(mark.from_ms + each["at_ms"] for each in record["changes"])])
        builder.note_all(_owners_before(record), first_ms)
        for change in record["changes"]:
            at_ms = min(mark.from_ms + change["at_ms"], mark.to_ms)
            for partition in _partitions(change.get("gets", {})):
                builder.note(partition, change["member"], at_ms)
            for partition in _partitions(change.get("loses", {})):
                if builder.owner(partition) == change["member"]:
                    builder.note(partition, None, at_ms)
        if record["outcome"] == "empty":
            builder.close(mark.to_ms)
    last_ms = max(mark.to_ms for mark in marks)
    first_ms = min(mark.from_ms for mark in marks)
    end_ms = last_ms + max((last_ms - first_ms) // 10, _LEAST_TAIL_MS)
    builder.close(end_ms, gaps_since_ms=marks[-1].from_ms)
    spans = builder.spans()
    return Timeline(
        title=f"group {group_id}: owners of its partitions",
        start_ms=min([first_ms, *(span.from_ms for span in spans)]),
        end_ms=end_ms,
        spans=spans,
        marks=tuple(marks),
        is_wall_time=True,
        left_out=max(record["owners_left_out"] for record in records),
    )


def _why_nothing(group_id: str, history: Sequence[Mapping[str, Any]]) -> str:
    if not history:
        return (
            f"__rebalances has no rebalance of the group {group_id}: it had none, the brokers have "
            "group.rebalance.journal.enable=false, or it is a group of generation 1, whose consumers share partitions "
            "without a broker; use odradek lab generations --timeline to see such a group"
        )
    if all(each["protocol_type"] != "consumer" for each in history):
        return f"group {group_id} has the protocol type {history[-1]['protocol_type']}: its members share no partitions"
    if any("changes" in each for each in history):
        return f"no member of the group {group_id} had a partition in the rebalances that __rebalances has"
    return (
        f"the rebalances of the group {group_id} in __rebalances name no owners: an older broker has written them; "
        "rebalance the group once, such as by restarting a consumer"
    )


def _mark(record: Mapping[str, Any]) -> Mark:
    outcome = "" if record["outcome"] == "stable" else f" ({record['outcome']})"
    started_ms = record["started_ms"]
    return Mark(from_ms=started_ms, to_ms=started_ms + record["duration_ms"], text=record["reason"] + outcome)


def _owners_before(record: Mapping[str, Any]) -> dict[TopicPartition, str]:
    owners = {partition: member for member, some in record["owned"].items() for partition in _partitions(some)}
    for change in reversed(record["changes"]):
        for partition in _partitions(change.get("gets", {})):
            owners.pop(partition, None)
        for partition in _partitions(change.get("loses", {})):
            owners[partition] = change["member"]
    return owners


def _partitions(by_topic: Mapping[str, Sequence[int]]) -> list[TopicPartition]:
    return [TopicPartition(topic, number) for topic, numbers in by_topic.items() for number in numbers]
