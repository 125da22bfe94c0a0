"""Predicts the cost of a change of a group: the partitions that move, the members and partitions that stop.

Before the change, members own the partitions of the case; if it has none, those that the strategy assigns.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from odradek.lab.case import MAX_MEMBERS, Case, LabError, Member
from odradek.lab.notation import member_of_text, member_racks, topic_and_count
from odradek.lab.notebook import html
from odradek.lab.runs import Protocol, Run, run_strategy
from odradek.model import TopicPartition

_CAUSES: Final = {
    "add_members": ("joined",),
    "remove_members": ("left", "session expired"),
    "add_partitions": ("metadata changed", "joined again"),
    "add_topics": ("metadata changed", "joined again"),
    "remove_topics": ("metadata changed", "joined again"),
    "remove_racks": ("left", "session expired"),
    "racks": ("joined",),
    "strategy": ("joined",),
}
"""The causes that the rebalance journal records for each kind of change. In a classic group, the leader joins again if
topics change; a member whose configuration changes is restarted, and joins."""


class Change(Struct, frozen=True, kw_only=True):
    """A change of a group, in the notation of `lab.notation`. With `strategy` None, the strategy does not change."""

    add_members: tuple[str, ...] = ()
    """A number of members, or `NAME` or `NAME=TOPIC,…`."""
    remove_members: tuple[str, ...] = ()
    """Member ids, or prefixes that match one member each."""
    add_partitions: tuple[str, ...] = ()
    """`TOPIC=N`: N more partitions."""
    add_topics: tuple[str, ...] = ()
    """`TOPIC=N`; members that subscribe to all topics subscribe to the new one, too."""
    remove_topics: tuple[str, ...] = ()
    """Topic names; members no longer subscribe to them."""
    racks: tuple[str, ...] = ()
    """`MEMBER=RACK`, or `RACK,RACK,…` for all members in turn."""
    remove_racks: tuple[str, ...] = ()
    """Racks that fail, with their members and replicas."""
    strategy: str | None = None

    def causes(self) -> tuple[str, ...]:
        """Return the causes that the rebalance journal records for such a change."""
        return tuple(dict.fromkeys(cause for key, some in _CAUSES.items() if getattr(self, key) for cause in some))


class Move(NamedTuple):
    """A partition that changes owners. `before` is None if it had no owner, `after` is None if it has none now."""

    partition: TopicPartition
    before: str | None
    after: str | None


class Transition(Struct, frozen=True, kw_only=True):
    """A group before and after a change."""

    before: Mapping[str, Sequence[TopicPartition]]
    run: Run
    """The run after the change."""
    moves: tuple[Move, ...]
    stopping_members: tuple[str, ...]
    """Members that stop reading a partition for a while, without members that leave."""
    stopping_partitions: tuple[TopicPartition, ...]
    protocol: Protocol
    """The protocol of the rebalance; if the strategy changes, that of the two strategies that stops more."""

    @property
    def moved(self) -> tuple[Move, ...]:
        """Return the moves of partitions that had an owner before."""
        return tuple(move for move in self.moves if move.before is not None)

    def _repr_html_(self) -> str:
        return html(self)


def what_if(case: Case, strategy: str, change: Change) -> Transition:
    """Return the group before and after `change`. Raises `LabError` for a change that does not fit the case."""
    first = run_strategy(case, strategy)
    if not case.owners():
        case = case.with_owned({name: tuple(some) for name, some in first.settled.items()}, 0)
    changed = _changed(case, change)
    return _transition(case, changed, run_strategy(changed, change.strategy or strategy), former=first.protocol)


def _transition(case: Case, changed: Case, run: Run, *, former: Protocol) -> Transition:
    """Return the transition from `case`, whose group used the protocol `former`, to `run`, a run on `changed`."""
    before, after = case.owners(), run.owners()
    moves = tuple(
        Move(partition, before.get(partition), after.get(partition))
        for partition in sorted({*before, *after})
        if before.get(partition) != after.get(partition)
    )
    protocol = former if former.stops_all else run.protocol
    stopping = sorted(before) if protocol.stops_all else [move.partition for move in moves if move.before]
    stopped = {before[partition] for partition in stopping}
    return Transition(
        before={name: member.owned for name, member in case.members.items()},
        run=run,
        moves=moves,
        stopping_members=tuple(name for name in changed.members if name in stopped),
        stopping_partitions=tuple(stopping),
        protocol=protocol,
    )


class Pauses(Struct, frozen=True, kw_only=True):
    """Past rebalances of a live group, as medians in ms."""

    count: int
    causes: tuple[str, ...]
    """The causes of these rebalances; empty if no rebalance had the wanted causes, so that all count."""
    duration_ms: float
    longest_unowned_ms: float


def pauses(history: Sequence[Mapping[str, Any]], causes: Sequence[str]) -> Pauses | None:
    """Return the medians of past stable rebalances with one of the causes, else of all; None if there are none.

    `history` has objects of the rebalance journal, as `Admin.rebalance_history` returns them.
    """
    complete = [each for each in history if each["outcome"] == "stable"]
    fitting = [each for each in complete if each["cause"] in causes]
    chosen = fitting or complete
    if not chosen:
        return None
    from statistics import median  # imported here, because its own imports take memory

    return Pauses(
        count=len(chosen),
        causes=tuple(causes) if fitting else (),
        duration_ms=median(each["duration_ms"] for each in chosen),
        longest_unowned_ms=median(each["longest_unowned_ms"] for each in chosen),
    )


def _changed(case: Case, change: Change) -> Case:
    case = _without_racks(_without_topics(case, change.remove_topics), change.remove_racks)
    topics = dict(case.topics)
    for topic, more in map(topic_and_count, change.add_partitions):
        if topic not in topics:
            raise LabError(f"there is no topic {topic} to give partitions to: the topics are {', '.join(topics)}")
        if not more:
            raise LabError(f"{topic}=0 adds no partition: give the number of new ones, such as {topic}=4")
        topics[topic] += more
    members = dict(case.members)
    for topic, count in map(topic_and_count, change.add_topics):
        if topic in topics:
            raise LabError(f"there is a topic {topic} already: give it more partitions with --add-partitions")
        every = set(topics)
        for name, member in members.items():
            if every <= set(member.topics):
                members[name] = replace(member, topics=(*member.topics, topic))
        topics[topic] = count
    for text in change.remove_members:
        del members[_named(members, text)]
    for text in change.add_members:
        members |= _new_members(text, {**case.members, **members}, tuple(sorted(topics)))
    for name, rack in member_racks(change.racks, members).items():
        full = _named(members, name)
        members[full] = replace(members[full], rack=rack)
    if not members:
        raise LabError("no member is left: keep at least one")
    return Case(topics=topics, members=members, replica_racks=case.replica_racks).checked()


def _without_topics(case: Case, names: Sequence[str]) -> Case:
    for name in names:
        if name not in case.topics:
            raise LabError(f"there is no topic {name} to remove: the topics are {', '.join(case.topics)}")
    gone = set(names)
    if gone == set(case.topics):
        raise LabError("no topic is left: keep at least one")
    return Case(
        topics={name: count for name, count in case.topics.items() if name not in gone},
        members={
            name: replace(
                member,
                topics=tuple(topic for topic in member.topics if topic not in gone),
                owned=tuple(place for place in member.owned if place.topic not in gone),
            )
            for name, member in case.members.items()
        },
        replica_racks={name: racks for name, racks in case.replica_racks.items() if name not in gone},
    )


def _without_racks(case: Case, names: Sequence[str]) -> Case:
    """Return the case without the members and replicas on these racks. Raises `LabError` for an unknown rack."""
    gone = set(names)
    known = {member.rack for member in case.members.values() if member.rack}
    known |= {rack for some in case.replica_racks.values() for racks in some for rack in racks}
    for name in names:
        if name not in known:
            raise LabError(f"nothing is on the rack {name}: the racks are {', '.join(sorted(known)) or 'not given'}")
    return Case(
        topics=case.topics,
        members={name: member for name, member in case.members.items() if member.rack not in gone},
        replica_racks={name: tuple(racks - gone for racks in some) for name, some in case.replica_racks.items()},
    )


def _new_members(text: str, members: Mapping[str, Member], every: tuple[str, ...]) -> dict[str, Member]:
    """Return the new members of `text`. `members` has all taken names, also those of members that leave."""
    if text.isdecimal():
        if not (len(text) < 8 and 1 <= int(text) <= MAX_MEMBERS):
            raise LabError(f"{text} is not a number of new members: use from 1 to {MAX_MEMBERS:,}")
        found: dict[str, Member] = {}
        number = 0
        while len(found) < int(text):
            if f"c{number}" not in members:
                found[f"c{number}"] = Member(topics=every)
            number += 1
        return found
    name, member = member_of_text(text, every)
    if name in members:
        raise LabError(f"there is a member {name} already: give the new one another name")
    return {name: member}


def _named(members: Mapping[str, Member], text: str) -> str:
    """Return the member id that equals `text`, else the only one that begins with it. Raises `LabError` without one."""
    if text in members:
        return text
    found = [name for name in members if name.startswith(text)]
    if len(found) != 1:
        what = "there is no member" if not found else f"{len(found):,} members have ids that begin with"
        raise LabError(f"{what} {text}: the members are {', '.join(sorted(members)[:10])}")
    return found[0]
