"""Explains `sticky`, `cooperative-sticky` and `uniform`, which place partitions in the same way.

The number of partitions of each member is taken from the strategy's result, because a search over all members finds it.
From these numbers follow the partitions: a member keeps its first ones, the others are assigned in turn.
"""

from collections.abc import Mapping, Sequence
from itertools import chain
from typing import Final

from odradek.assignors import GroupSubscription, assign, sorted_members
from odradek.assignors.interface import subscribers_by_topic
from odradek.lab.case import Case
from odradek.lab.explain.explanation import Explanation, counts, names, partitions
from odradek.lab.notation import partitions_text
from odradek.lab.runs import Run, subscriptions
from odradek.model import TopicPartition

_STEPS_OF_RULE: Final = 3
"""Steps of every explanation: the group, the balance, and the claims."""


def explain_sticky(case: Case, run: Run, partition: TopicPartition) -> Explanation:
    """Explain the claims of ownership, the balance, and why the partition moves or stays."""
    member, steps = _Placement(case, partition).steps()
    return Explanation(partition=partition, strategy=run.strategy, member=member, steps=tuple(steps))


def explain_cooperative_sticky(case: Case, run: Run, partition: TopicPartition) -> Explanation:
    """Explain claims, balance and placement, and in which generation the member gets the partition (KIP-429)."""
    made = explain_sticky(case, run, partition)
    steps, wanted = list(made.steps), made.member
    for generation in range(1, run.generations):
        given = assign(run.strategy, case.topics, subscriptions(case.members), racks=case.replica_racks)
        if partition in given[str(made.member)] and partition in run.settled[str(made.member)]:
            break
        steps.append(
            f"A member still claims {partition}, so it has no owner in this generation: the member revokes it and "
            "joins again, which begins the next generation."
        )
        case = case.with_owned({member: tuple(given[member]) for member in case.members}, generation)
        made = explain_sticky(case, run, partition)
        if made.member == wanted:
            steps.append(f"Then {wanted} gets {partition}.")
        else:
            steps += ["There, members own what they have got so far, and the rule begins anew.", *made.steps]
    return Explanation(partition=partition, strategy=run.strategy, member=made.member, steps=tuple(steps))


def evened_out(made: Explanation, member: str) -> Explanation:
    """Return the explanation of a partition that `member` has because each topic is kept even over the members."""
    step = (
        f"Members that give partitions up choose topics of which the others have least, so that no member has all "
        f"partitions of one topic: {made.partition} is {member}'s."
    )
    return Explanation(
        partition=made.partition, strategy=made.strategy, member=member, steps=(*made.steps[:_STEPS_OF_RULE], step)
    )


class _Placement:
    """The placement of `partition` and its interchangeable partitions, which have its subscribers and replica racks."""

    def __init__(self, case: Case, partition: TopicPartition) -> None:
        self._case = case
        self._partition = partition
        members = subscriptions(case.members)
        self._members = sorted_members(members)
        group = GroupSubscription(partitions=case.topics, members=members)
        self._by_topic = subscribers_by_topic(group)
        self._target = assign("uniform", case.topics, members, racks=case.replica_racks)
        self._subscribers = self._by_topic[partition.topic]
        self._topics = [topic for topic, some in self._by_topic.items() if some == self._subscribers]
        self._rack_sets = _rack_sets(case)
        self._alike = {
            TopicPartition(topic, number)
            for topic in self._topics
            for number in range(case.topics[topic])
            if self._racks_of(TopicPartition(topic, number)) == self._racks_of(partition)
        }

    def steps(self) -> tuple[str, list[str]]:
        """Return the partition's member and the steps of the explanation."""
        shares = {member: sum(each in self._alike for each in self._target[member]) for member in self._subscribers}
        kept = self._kept()
        steps = [self._group_step(), self._balance_step(shares), self._claim_step()]
        owner = next((member for member, some in kept.items() if self._partition in some), None)
        if owner is not None:
            position, share = kept[owner].index(self._partition), shares[owner]
            had = f"{owner} had {partitions(len(kept[owner]))} of these and may have {share:,}"
            if position < share:
                why = "so it keeps them all" if len(kept[owner]) <= share else f"so it keeps the first {share:,}"
                steps.append(f"{had}, {why}: {self._partition} is number {position + 1:,} of them and stays.")
                return owner, steps
            steps.append(
                f"{had}, so it keeps the first {share:,} and gives up the others: {self._partition} is number "
                f"{position + 1:,} of them and moves."
            )
        return self._dealt(shares, kept, steps)

    def _dealt(
        self, shares: Mapping[str, int], kept: Mapping[str, Sequence[TopicPartition]], steps: list[str]
    ) -> tuple[str, list[str]]:
        stay = set(chain.from_iterable(some[: shares[member]] for member, some in kept.items()))
        free = sorted(self._alike - stay)
        lacking = {member: shares[member] - min(shares[member], len(kept[member])) for member in self._subscribers}
        takers = [
            member
            for turn in range(max(lacking.values()))
            for member in self._subscribers
            if lacking[member] > turn
        ]  # fmt: skip
        number = free.index(self._partition)
        steps += [
            (
                f"Without an owner are {partitions(len(free))} of these: {partitions_text(free)}. They are "
                f"dealt out in "
                f"this order, in turn, to the members that lack some: "
                f"{counts((member, lack) for member, lack in lacking.items() if lack)}."
            ),
            f"{self._partition} is number {number + 1:,} in this order, and turn {number + 1:,} is {takers[number]}'s.",
        ]
        return takers[number], steps

    def _group_step(self) -> str:
        topics = f"{self._partition.topic} has {len(self._subscribers):,} subscribers: {names(self._subscribers)}."
        if len(self._topics) > 1:
            topics += f" The topics {names(self._topics)} have the same ones."
        if self._rack_sets is None:
            return f"{topics} In all, these have {partitions(len(self._alike))}."
        racks = sorted(self._racks_of(self._partition))
        where = f"on rack {' and '.join(racks)}" if racks else "on no member's rack"
        return f"{topics} {partitions(len(self._alike))} of these, with {self._partition}, have replicas {where}."

    def _balance_step(self, shares: Mapping[str, int]) -> str:
        total = sum(self._case.topics[topic] for topic in self._by_topic)
        if len(self._alike) == total and len(self._subscribers) == len(self._members):
            share, more = divmod(total, len(self._members))
            text = f"Balance comes first: {total:,} partitions over {len(self._members):,} members are {share:,} each"
            if more:
                text += f", and one more for {more:,} of them, first for those that have more already"
            return f"{text}: {counts(shares.items())}."
        loads = counts((member, len(self._target[member])) for member in self._subscribers)
        rule = "the least sum of the squares of the members' counts" + (
            ", then the fewest away from their rack" if self._rack_sets else ""
        )
        return (
            f"Balance comes first, over all topics together: {rule}, then the fewest moves. It gives these members in "
            f"all {loads}; of these partitions, {counts(shares.items())}."
        )

    def _claim_step(self) -> str:
        claims = self._claims().get(self._partition, {})
        if not claims:
            return f"No member claims to have owned {self._partition}."
        newest = max(claims.values())
        winners = [member for member, generation in claims.items() if generation == newest]
        if len(winners) > 1:
            return (
                f"{names(winners)} all claim {self._partition} in generation {newest}, so none of these claims counts."
            )
        losers = [member for member in claims if member not in winners]
        text = f"{winners[0]} owned {self._partition} in generation {newest}"
        if losers:
            text += f"; older claims do not count: {names(losers)}"
        if winners[0] not in self._subscribers:
            text += f", and does not subscribe to {self._partition.topic} any longer"
        return text + "."

    def _claims(self) -> dict[TopicPartition, dict[str, int]]:
        found: dict[TopicPartition, dict[str, int]] = {}
        for member in self._members:
            for partition in self._case.members[member].owned:
                if partition in self._alike:
                    found.setdefault(partition, {})[member] = self._case.members[member].generation
        return found

    def _kept(self) -> dict[str, list[TopicPartition]]:
        """Return, by subscriber, the sorted interchangeable partitions that only this member claims most recently."""
        kept: dict[str, list[TopicPartition]] = {member: [] for member in self._subscribers}
        for partition, claims in sorted(self._claims().items()):
            newest = max(claims.values())
            winners = [member for member, generation in claims.items() if generation == newest]
            if len(winners) == 1 and winners[0] in kept:
                kept[winners[0]].append(partition)
        return kept

    def _racks_of(self, partition: TopicPartition) -> frozenset[str]:
        return frozenset() if self._rack_sets is None else self._rack_sets[partition]


def _rack_sets(case: Case) -> dict[TopicPartition, frozenset[str]] | None:
    """Return for each partition the racks that have both a member and a replica; None if racks do not matter."""
    used = {member.rack for member in case.members.values() if member.rack}
    if not used or not case.replica_racks:
        return None
    found = {}
    for topic, count in case.topics.items():
        racks = case.replica_racks.get(topic, ())
        for number in range(count):
            here = racks[number] if number < len(racks) else frozenset[str]()
            found[TopicPartition(topic, number)] = here & used
    return None if all(here == used for here in found.values()) else found
