"""`ResultBuilder` collects the result of one request or deadline of a group."""

from collections.abc import Sequence

from odradek.broker.coordinators.machine import CoordinatorResult, Reply
from odradek.broker.groups.machine.records import GroupRecord


class ResultBuilder:
    """The records, replies and events of one result for a group."""

    __slots__ = ("events", "key", "records", "replies")

    def __init__(self, key: str) -> None:
        self.key = key
        self.records: list[GroupRecord] = []
        self.replies: list[Reply] = []
        self.events: list[object] = []

    def reply(self, to: object, value: object) -> None:
        """Reply `value` to `to` after the records are committed."""
        self.replies.append(Reply(to=to, value=value))

    def build(self) -> CoordinatorResult[GroupRecord]:
        return CoordinatorResult(key=self.key, records=self.records, replies=self.replies, events=self.events)


def answer(key: str, to: object, value: object, records: Sequence[GroupRecord] = ()) -> CoordinatorResult[GroupRecord]:
    """Return the result that appends `records` and then replies `value` to one request."""
    return CoordinatorResult(key=key, records=records, replies=(Reply(to=to, value=value),))
