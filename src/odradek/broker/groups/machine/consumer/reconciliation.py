"""How one member moves towards its target assignment (KIP-848, "Member Assignment Reconciliation").

| state | when | next |
|---|---|---|
| STABLE | the target has a later epoch | revoke partitions outside the target; if none, add free ones of the target |
| UNREVOKED_PARTITIONS | the member no longer reports partitions to revoke | epoch + 1, then as STABLE |
| UNRELEASED_PARTITIONS | at each heartbeat | add partitions that became free |
| STABLE, UNREVOKED_PARTITIONS | its subscription lost topics | revoke their partitions at once, in the same epoch |

A partition is free if no member has it or is revoking it. So it never has two owners, and only partitions that move
stop.
"""

import uuid
from collections.abc import Callable, Set

from msgspec import Struct
from msgspec.structs import replace

from odradek.broker.groups.machine.consumer.member import NO_PARTITIONS, Assignment, ConsumerGroupMember, MemberState
from odradek.model import ErrorCode, KafkaError
from odradek.model.probes import transition


class Target(Struct, frozen=True, kw_only=True):
    """The target assignment of a member."""

    epoch: int
    """The group's epoch for which the target was computed."""
    partitions: Assignment
    subscribed: Set[uuid.UUID]
    """The ids of the topics that the member subscribes to now; the target may have others."""
    subscription_changed: bool = False


def reconcile(
    member: ConsumerGroupMember,
    target: Target,
    owned: Assignment | None,
    is_free: Callable[[uuid.UUID, int], bool],
) -> ConsumerGroupMember:
    """Return the member after its next step towards its target.

    `owned` are the partitions that the member reports to own; None if not reported. `is_free` returns whether no other
    member has or is revoking a partition. Raises `KafkaError` FENCED_MEMBER_EPOCH if the member's state is UNKNOWN,
    unless the member reports that it owns no partition.
    """
    if member.state is MemberState.STABLE:
        if target.epoch > member.epoch:
            return _advance(member, member.epoch, target, owned, is_free)
        return _drop_unsubscribed(member, target, owned) if target.subscription_changed else member
    if member.state is MemberState.UNREVOKED_PARTITIONS:
        if _owns_any(owned, member.revoking):
            return _drop_unsubscribed(member, target, owned) if target.subscription_changed else member
        return _advance(member, min(member.epoch + 1, target.epoch), target, owned, is_free)
    if member.state is MemberState.UNRELEASED_PARTITIONS:
        return _advance(member, member.epoch, target, owned, is_free)
    if owned is None or owned:
        raise KafkaError(
            ErrorCode.fenced_member_epoch,
            f"member {member.member_id} has a state of another release; it must give up its partitions and rejoin",
        )
    return _advance(member, target.epoch, target, owned, is_free)


def _advance(
    member: ConsumerGroupMember,
    epoch: int,
    target: Target,
    owned: Assignment | None,
    is_free: Callable[[uuid.UUID, int], bool],
) -> ConsumerGroupMember:
    assigned: dict[uuid.UUID, frozenset[int]] = {}
    revoking: dict[uuid.UUID, frozenset[int]] = {}
    added: dict[uuid.UUID, frozenset[int]] = {}
    waits = False
    for topic_id in {**target.partitions, **member.assigned}:
        wanted = target.partitions.get(topic_id, frozenset()) if topic_id in target.subscribed else frozenset()
        current = member.assigned.get(topic_id, frozenset())
        kept, missing = current & wanted, wanted - current
        free = frozenset(number for number in missing if is_free(topic_id, number))
        waits = waits or len(free) < len(missing)
        for found, into in ((kept, assigned), (current - kept, revoking), (free, added)):
            if found:
                into[topic_id] = found
    if _owns_any(owned, revoking):
        return _moved(member, epoch, MemberState.UNREVOKED_PARTITIONS, assigned, revoking)
    for topic_id, numbers in added.items():
        assigned[topic_id] = assigned.get(topic_id, frozenset()) | numbers
    state = MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE
    return _moved(member, target.epoch, state, assigned, NO_PARTITIONS)


def _drop_unsubscribed(member: ConsumerGroupMember, target: Target, owned: Assignment | None) -> ConsumerGroupMember:
    """Make the member revoke the partitions of topics that it no longer subscribes to."""
    kept = {topic_id: numbers for topic_id, numbers in member.assigned.items() if topic_id in target.subscribed}
    if len(kept) == len(member.assigned):
        return member
    revoking = dict(member.revoking)
    for topic_id in sorted(member.assigned.keys() - kept.keys()):
        revoking[topic_id] = revoking.get(topic_id, frozenset()) | member.assigned[topic_id]
    if _owns_any(owned, revoking):
        return _moved(member, member.epoch, MemberState.UNREVOKED_PARTITIONS, kept, revoking)
    return replace(member, assigned=kept)


def _moved(
    member: ConsumerGroupMember, epoch: int, state: MemberState, assigned: Assignment, revoking: Assignment
) -> ConsumerGroupMember:
    transition("consumer group member", member.state.name, state.name)
    previous = member.previous_epoch if epoch == member.epoch else member.epoch
    return replace(member, epoch=epoch, previous_epoch=previous, state=state, assigned=assigned, revoking=revoking)


def _owns_any(owned: Assignment | None, partitions: Assignment) -> bool:
    """Return whether the member may still own any of `partitions`; True if it does not report what it owns."""
    if not partitions:
        return False
    if owned is None:
        return True
    return any(numbers & owned.get(topic_id, frozenset()) for topic_id, numbers in partitions.items())
