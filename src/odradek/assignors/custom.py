"""Validation of custom assignors and of the assignments that they return."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from odradek.assignors.interface import Assignment, Assignor, GroupSubscription, RebalanceProtocol
from odradek.model import OdradekError, TopicPartition

_OPTIONAL: Final = ("supported_protocols", "user_data", "on_assignment")


class InvalidAssignmentError(OdradekError, ValueError):
    """An assignment lacks a partition, gives it to two members or a wrong one, or names an unknown partition."""


class CheckedAssignor(Assignor):
    """Wraps a custom assignor; `assign` raises `InvalidAssignmentError` for an invalid assignment."""

    def __init__(self, custom: Any, origin: str) -> None:
        """Wrap `custom`, which needs `name` and `assign`, and all or none of the attributes in `_OPTIONAL`.

        Raises `ValueError` otherwise; `origin` names the assignor in the message.
        """
        present = [each for each in _OPTIONAL if hasattr(custom, each)]
        is_assignor = callable(getattr(custom, "assign", None)) and isinstance(getattr(custom, "name", None), str)
        if not is_assignor:
            raise ValueError(
                f"{origin} is not an assignor: it needs a name and a method assign(group); "
                "let the class inherit from odradek.assignors.Assignor"
            )
        if present and len(present) < len(_OPTIONAL):
            missing = " and ".join(each for each in _OPTIONAL if each not in present)
            raise ValueError(
                f"{origin} has {' and '.join(present)} but not {missing}: "
                "let the class inherit from odradek.assignors.Assignor"
            )
        self._assign = custom.assign
        self._is_complete = bool(present)
        self._custom: Assignor = custom
        self.name = custom.name
        if present:
            self.supported_protocols = tuple(RebalanceProtocol(each) for each in custom.supported_protocols)

    def user_data(self, topics: Collection[str]) -> bytes | None:
        return self._custom.user_data(topics) if self._is_complete else None

    def assign(self, group: GroupSubscription) -> Assignment:
        assignment = self._assign(group)
        is_cooperative = RebalanceProtocol.COOPERATIVE in self.supported_protocols
        check_assignment(self.name, group, assignment, is_cooperative=is_cooperative)
        return {member: assignment.get(member, ()) for member in group.members}

    def on_assignment(self, assignment: Sequence[TopicPartition], generation: int) -> None:
        if self._is_complete:
            self._custom.on_assignment(assignment, generation)


def check_assignment(
    name: str,
    group: GroupSubscription,
    assignment: Mapping[str, Sequence[tuple[str, int]]],
    *,
    is_cooperative: bool,
) -> None:
    """Raise `InvalidAssignmentError` unless each partition of the subscribed topics has one subscriber as owner.

    A cooperative assignor may leave out a partition that a member owns, but must not assign it to another member yet.
    """
    owners: dict[tuple[str, int], str] = {}
    claims: dict[tuple[str, int], str] = {}
    if is_cooperative:
        claims = {(topic, number): member for member, each in group.members.items() for topic, number in each.owned}
    for member, partitions in assignment.items():
        if member not in group.members:
            raise InvalidAssignmentError(f"assignor {name} assigns partitions to {member}, which is not a member")
        topics = set(group.members[member].topics)
        for topic, number in partitions:
            partition = (topic, number)
            where = f"assignor {name} assigns partition {topic}-{number}"
            if not 0 <= number < group.partitions.get(topic, 0):
                raise InvalidAssignmentError(f"{where}, which does not exist")
            if partition in owners:
                raise InvalidAssignmentError(f"{where} twice, to {owners[partition]} and to {member}")
            if topic not in topics:
                raise InvalidAssignmentError(f"{where} to {member}, which does not subscribe to the topic")
            if claims.get(partition, member) != member:
                raise InvalidAssignmentError(f"{where} to {member} while {claims[partition]} has not revoked it")
            owners[partition] = member
    for topic in sorted({topic for member in group.members.values() for topic in member.topics}):
        for number in range(group.partitions.get(topic, 0)):
            if (topic, number) not in owners and (topic, number) not in claims:
                raise InvalidAssignmentError(f"assignor {name} forgets partition {topic}-{number}: assign every one")
