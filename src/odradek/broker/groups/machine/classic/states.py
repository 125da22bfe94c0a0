"""The states of a classic group and the table of its transitions."""

from enum import Enum, StrEnum
from typing import Final


class State(StrEnum):
    """The state of a classic group, with Kafka's names, as in ListGroups and DescribeGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    """An event that changes a group's state."""

    FIRST_MEMBER_JOINED = "the first member joins"
    JOIN_PHASE_COMPLETE = "all members joined, or the timeout expired"
    LAST_MEMBER_LEFT = "the last member left"
    LEADER_SYNCED = "the leader sent the assignment"
    MEMBERS_CHANGED = "members joined, left or changed"
    DELETED = "the group is deleted"


TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.EMPTY: {Event.FIRST_MEMBER_JOINED: State.PREPARING_REBALANCE, Event.DELETED: State.DEAD},
    State.PREPARING_REBALANCE: {
        Event.JOIN_PHASE_COMPLETE: State.COMPLETING_REBALANCE,
        Event.LAST_MEMBER_LEFT: State.EMPTY,
    },
    State.COMPLETING_REBALANCE: {
        Event.LEADER_SYNCED: State.STABLE,
        Event.MEMBERS_CHANGED: State.PREPARING_REBALANCE,
    },
    State.STABLE: {Event.MEMBERS_CHANGED: State.PREPARING_REBALANCE},
    State.DEAD: {},
}
