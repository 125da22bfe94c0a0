"""Reads the metrics of consumer-protocol groups (KIP-848): epochs, states, and pending revocations."""

from collections import Counter
from collections.abc import Iterator
from heapq import nsmallest
from typing import Final

from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup
from odradek.broker.groups.machine.consumer.member import MemberState
from odradek.broker.groups.machine.group_coordinator_machine import GroupCoordinatorMachine
from odradek.broker.interfaces import BrokerParts
from odradek.broker.observing import catalog
from odradek.broker.observing.catalog import Family, Sample

_MEMBERS_AT_ONCE: Final = 5_000
"""Limit of members counted in one iteration of the event loop."""
GROUPS_WITH_EPOCHS: Final = 100
"""Limit of groups whose epochs are shown, those with the most members: clients can create any number of groups."""
_STATES: Final = ("Empty", "Assigning", "Reconciling", "Stable", "Dead")


class _Totals:
    """The sums over all groups of this broker."""

    def __init__(self) -> None:
        self.groups: Counter[str] = Counter()
        self.members: Counter[MemberState] = Counter()
        self.pending_partitions = 0
        self.longest_ms = 0
        self.largest: list[tuple[int, str, ConsumerGroup]] = []

    def add(self, group: ConsumerGroup) -> None:
        self.groups[group.state] += 1
        self.members.update(member.state for member in group.members.values())
        if group.members:
            self.largest.append((-len(group.members), group.group_id, group))
            if len(self.largest) > 2 * GROUPS_WITH_EPOCHS:
                self.largest = self._shown()

    def revoking(self, partitions: int, age_ms: int) -> None:
        """Add the number of partitions that a member has had to revoke for `age_ms`."""
        self.pending_partitions += partitions
        self.longest_ms = max(self.longest_ms, age_ms)

    def _shown(self) -> list[tuple[int, str, ConsumerGroup]]:
        return nsmallest(GROUPS_WITH_EPOCHS, self.largest, key=lambda each: each[:2])

    def families(self) -> Iterator[Family]:
        yield Family(catalog.CONSUMER_GROUPS, [((state.lower(),), self.groups[state]) for state in _STATES])
        yield Family(
            catalog.CONSUMER_GROUP_MEMBERS, [((state.name.lower(),), self.members[state]) for state in MemberState]
        )
        yield Family(catalog.PENDING_REVOCATIONS, [((), self.pending_partitions)])
        yield Family(catalog.LONGEST_REVOCATION, [((), self.longest_ms / 1000)])
        shown = [group for _, _, group in self._shown()]
        yield Family(catalog.GROUP_EPOCH, [((group.group_id,), group.epoch) for group in shown])
        yield Family(catalog.ASSIGNMENT_EPOCH, [((group.group_id,), group.assignment_epoch) for group in shown])
        yield Family(catalog.LOWEST_MEMBER_EPOCH, [_lowest(group) for group in shown])


def _lowest(group: ConsumerGroup) -> Sample:
    """Return the lowest epoch of a group's members that have not left, or the assignment epoch if there are none."""
    epochs = [member.epoch for member in group.members.values() if not member.has_left_temporarily]
    return (group.group_id,), min(epochs, default=group.assignment_epoch)


def consumer_groups(broker: BrokerParts) -> Iterator[Family | None]:
    """Yield the metrics of all consumer-protocol groups here; yield None where other tasks may run."""
    totals, counted = _Totals(), 0
    for context in broker.groups.contexts(only_active=True):
        machine = context.machine
        assert isinstance(machine, GroupCoordinatorMachine)
        for group in machine.groups.of_type(ConsumerGroup):
            totals.add(group)
            for member in group.members.values():
                if member.state is MemberState.UNREVOKED_PARTITIONS:
                    age_ms = machine.consumer.revoking_ms(group.group_id, member, context.now)
                    totals.revoking(sum(map(len, member.revoking.values())), age_ms)
            counted += len(group.members) + 1
            if counted > _MEMBERS_AT_ONCE:
                counted = 0
                yield None
    yield from totals.families()
