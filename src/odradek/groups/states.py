"""The states of a classic group and the table of its transitions.

Kafka has five states. Two more cover the time until a record is committed; clients see them as PreparingRebalance
(while the generation is committed) and CompletingRebalance (while the assignment is committed).
"""

from enum import Enum, auto
from typing import Final


class State(Enum):
    """The state of a classic group."""

    EMPTY = auto()
    PREPARING_REBALANCE = auto()
    COMMITTING_GENERATION = auto()
    COMPLETING_REBALANCE = auto()
    COMMITTING_ASSIGNMENT = auto()
    STABLE = auto()
    DEAD = auto()

    @property
    def shown(self) -> str:
        """Return Kafka's name of the state, as in ListGroups and DescribeGroups."""
        return _SHOWN[self]


_SHOWN: Final[dict[State, str]] = {
    State.EMPTY: "Empty",
    State.PREPARING_REBALANCE: "PreparingRebalance",
    State.COMMITTING_GENERATION: "PreparingRebalance",
    State.COMPLETING_REBALANCE: "CompletingRebalance",
    State.COMMITTING_ASSIGNMENT: "CompletingRebalance",
    State.STABLE: "Stable",
    State.DEAD: "Dead",
}


class Event(Enum):
    """An event that changes a group's state."""

    FIRST_MEMBER_JOINED = "the first member joins"
    JOIN_PHASE_COMPLETE = "all members joined, or the timeout expired"
    LAST_MEMBER_LEFT = "the last member left"
    GENERATION_COMMITTED = "the record with the new generation is committed"
    LEADER_SYNCED = "the leader sent the assignment"
    ASSIGNMENT_COMMITTED = "the record with the assignment is committed"
    MEMBERS_CHANGED = "members joined, left or changed"
    UNLOADED = "this broker no longer coordinates the group"


_UNLOADED = {Event.UNLOADED: State.DEAD}

TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.EMPTY: {Event.FIRST_MEMBER_JOINED: State.PREPARING_REBALANCE} | _UNLOADED,
    State.PREPARING_REBALANCE: {
        Event.JOIN_PHASE_COMPLETE: State.COMMITTING_GENERATION,
        Event.LAST_MEMBER_LEFT: State.EMPTY,
    }
    | _UNLOADED,
    State.COMMITTING_GENERATION: {
        Event.GENERATION_COMMITTED: State.COMPLETING_REBALANCE,
        Event.MEMBERS_CHANGED: State.PREPARING_REBALANCE,
    }
    | _UNLOADED,
    State.COMPLETING_REBALANCE: {
        Event.LEADER_SYNCED: State.COMMITTING_ASSIGNMENT,
        Event.MEMBERS_CHANGED: State.PREPARING_REBALANCE,
    }
    | _UNLOADED,
    State.COMMITTING_ASSIGNMENT: {
        Event.ASSIGNMENT_COMMITTED: State.STABLE,
        Event.MEMBERS_CHANGED: State.PREPARING_REBALANCE,
    }
    | _UNLOADED,
    State.STABLE: {Event.MEMBERS_CHANGED: State.PREPARING_REBALANCE} | _UNLOADED,
    State.DEAD: {},
}

PREPARING: Final = frozenset({State.PREPARING_REBALANCE, State.COMMITTING_GENERATION})
"""States in which joins wait for the next generation."""
COMPLETING: Final = frozenset({State.COMPLETING_REBALANCE, State.COMMITTING_ASSIGNMENT})
"""States in which syncs wait for the assignment."""
