"""Makes the group of a setting, and the steps (changes with a rebalance) of a failure."""

from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from msgspec import Struct, field
from msgspec.structs import replace

from odradek.lab.case import Case, LabError, Member
from odradek.lab.sweep.settings import Setting

GROWTH: Final = 2
"""The factor by which a growing topic's partition count increases."""


class Step(Struct, frozen=True, kw_only=True):
    """A change that ends in a rebalance."""

    leaves: tuple[str, ...] = ()
    joins: Mapping[str, Member] = field(default_factory=dict)
    topics: Mapping[str, int] = field(default_factory=dict)
    """New partition counts; the racks of old partitions repeat for the new ones."""
    lost_rack: str | None = None

    def apply(self, case: Case) -> Case:
        """Return the case after the step. Raises `LabError` if no member is left."""
        members = {name: member for name, member in case.members.items() if name not in set(self.leaves)}
        members |= self.joins
        if not members:
            raise LabError("no member is left")
        racks = dict(case.replica_racks)
        for topic, count in self.topics.items():
            if some := racks.get(topic):
                racks[topic] = tuple(some[number % len(some)] for number in range(count))
        if self.lost_rack is not None:
            racks = {topic: tuple(each - {self.lost_rack} for each in some) for topic, some in racks.items()}
        return Case(topics={**case.topics, **self.topics}, members=members, replica_racks=racks)


def make_case(setting: Setting, random: Random) -> Case:
    """Return the group of a setting.

    Topics are t0, t1, …; t0 has the most partitions. Members have random ids, as in real groups, and are on racks r0,
    r1, … in turn. The replicas of a partition are on neighbouring racks, as brokers place them.
    """
    counts = shares(_whole(setting, "partitions"), _whole(setting, "topics"), float(setting["skew"]))
    topics = {f"t{number}": count for number, count in enumerate(counts)}
    racks = _whole(setting, "racks")
    members: dict[str, Member] = {}
    every = tuple(sorted(topics))
    wanted = max(1, round(float(setting["subscribed"]) * len(every)))
    while len(members) < _whole(setting, "members"):
        some = every
        if wanted < len(every):
            some = tuple(sorted(sorted(every, key=lambda _: random.random())[:wanted]))
        rack = f"r{len(members) % racks}" if racks else None
        members.setdefault(_member_id(random), Member(topics=some, rack=rack))
    replicas = min(_whole(setting, "replicas"), racks)
    replica_racks = {
        topic: tuple(
            frozenset(f"r{(first + number + place) % racks}" for place in range(replicas)) for number in range(count)
        )
        for first, (topic, count) in enumerate(topics.items() if racks else ())
    }
    return Case(topics=topics, members=members, replica_racks=replica_racks)


def shares(partitions: int, topics: int, skew: float) -> list[int]:
    """Return each topic's partition count, at least 1: Zipf with exponent `skew`; the sum is `partitions`."""
    weights = [(rank + 1) ** -skew for rank in range(topics)]
    scale = (partitions - topics) / sum(weights)
    exact = [weight * scale for weight in weights]
    counts = [1 + int(each) for each in exact]
    by_rest = sorted(range(topics), key=lambda topic: (int(exact[topic]) - exact[topic], topic))
    for topic in by_rest[: partitions - sum(counts)]:
        counts[topic] += 1
    return counts


def steps_of(failure: str, case: Case, random: Random) -> tuple[Step, ...]:
    """Return the steps of a failure. Raises `LabError` for a failure that this group cannot have."""
    return FAILURES[failure](case, random)


def _none(case: Case, random: Random) -> tuple[Step, ...]:
    del case, random
    return ()


def _member_leaves(case: Case, random: Random) -> tuple[Step, ...]:
    return (Step(leaves=(_one(case.members, random),)),)


def _member_joins(case: Case, random: Random) -> tuple[Step, ...]:
    like = case.members[_one(case.members, random)]
    return (Step(joins=_joining(like, case, random)),)


def _member_restarts(case: Case, random: Random) -> tuple[Step, ...]:
    name = _one(case.members, random)
    return (Step(leaves=(name,)), Step(joins=_joining(case.members[name], case, random)))


def _rack_fails(case: Case, random: Random) -> tuple[Step, ...]:
    racks = sorted({member.rack for member in case.members.values() if member.rack})
    if not racks:
        raise LabError("no member is on a rack that could fail")
    lost = racks[int(random.random() * len(racks))]
    return (Step(leaves=tuple(name for name, each in case.members.items() if each.rack == lost), lost_rack=lost),)


def _topic_grows(case: Case, random: Random) -> tuple[Step, ...]:
    topic = _one(case.topics, random)
    return (Step(topics={topic: case.topics[topic] * GROWTH}),)


FAILURES: Final[Mapping[str, Callable[[Case, Random], tuple[Step, ...]]]] = {
    "none": _none,
    "member-leaves": _member_leaves,
    "member-joins": _member_joins,
    "member-restarts": _member_restarts,
    "rack-fails": _rack_fails,
    "topic-grows": _topic_grows,
}
"""Functions by name. A restarting member exceeds its session timeout: it leaves, and joins with a new id."""


def _one(names: Mapping[str, object], random: Random) -> str:
    # `Random.random` is the method whose numbers are the same in every version of Python.
    return sorted(names)[int(random.random() * len(names))]


def _joining(like: Member, case: Case, random: Random) -> dict[str, Member]:
    name = _member_id(random)
    while name in case.members:
        name = _member_id(random)
    return {name: replace(like, owned=(), generation=0)}


def _member_id(random: Random) -> str:
    return f"member-{int(random.random() * 2**48):012x}"


def _whole(setting: Setting, axis: str) -> int:
    return int(setting[axis])
