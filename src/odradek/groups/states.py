"""The states of a classic group, and the one table of what leads from one to another.

Kafka shows five states; here two more stand where a record is on its way to being committed. To a client a group that
is committing its generation still prepares the rebalance, and one that is committing an assignment still completes it.
"""

from enum import Enum
from typing import Final


class State(Enum):
    """Where a group is; the value is the name that ListGroups and DescribeGroups show."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMMITTING_GENERATION = "PreparingRebalance "
    COMPLETING_REBALANCE = "CompletingRebalance"
    COMMITTING_ASSIGNMENT = "CompletingRebalance "
    STABLE = "Stable"
    DEAD = "Dead"

    @property
    def shown(self) -> str:
        """Kafka's name of the state; a trailing space keeps the two inner states apart from those that they show."""
        return self.value.rstrip()


class Event(Enum):
    """What moves a group on."""

    FIRST_MEMBER = "the first member joins"
    ALL_JOINED = "everybody joined, or time is up"
    NOBODY_LEFT = "the last member left"
    GENERATION_COMMITTED = "the record with the new generation is committed"
    LEADER_SYNCED = "the leader sent the assignment"
    ASSIGNMENT_COMMITTED = "the record with the assignment is committed"
    MEMBERS_CHANGED = "a member came, left or wants something else"
    UNLOADED = "this broker no longer coordinates the group"


_UNLOADED = {Event.UNLOADED: State.DEAD}

TRANSITIONS: Final[dict[State, dict[Event, State]]] = {
    State.EMPTY: {Event.FIRST_MEMBER: State.PREPARING_REBALANCE} | _UNLOADED,
    State.PREPARING_REBALANCE: {
        Event.ALL_JOINED: State.COMMITTING_GENERATION,
        Event.NOBODY_LEFT: State.EMPTY,
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

GATHERING: Final = frozenset({State.PREPARING_REBALANCE, State.COMMITTING_GENERATION})
"""Joins are parked until a generation is committed."""
ASSIGNING: Final = frozenset({State.COMPLETING_REBALANCE, State.COMMITTING_ASSIGNMENT})
"""Syncs are parked until an assignment is committed."""
