"""The consequences of a request or deadline, collected while a group decides."""

from collections.abc import Sequence

from odradek.coordination import Reply, Step
from odradek.groups.records import GroupRecord


class Outcome:
    """The records, replies and events of one decision about a group."""

    __slots__ = ("events", "key", "records", "replies")

    def __init__(self, key: str) -> None:
        self.key = key
        self.records: list[GroupRecord] = []
        self.replies: list[Reply] = []
        self.events: list[object] = []

    def reply(self, to: object, value: object) -> None:
        """Answer a request when everything so far is committed."""
        self.replies.append(Reply(to=to, value=value))

    def step(self) -> Step[GroupRecord]:
        """Return the decision."""
        return Step(key=self.key, records=self.records, replies=self.replies, events=self.events)


def answer(key: str, to: object, value: object, records: Sequence[GroupRecord] = ()) -> Step[GroupRecord]:
    """Return the decision to append `records` and to answer one request."""
    return Step(key=key, records=records, replies=(Reply(to=to, value=value),))
