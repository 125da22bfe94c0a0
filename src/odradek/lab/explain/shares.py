"""Explains the strategies that give consecutive partitions: `range`, `zookeeper-range` and `ceiling-range`."""

from collections.abc import Sequence

from odradek.assignors import GroupSubscription
from odradek.assignors.interface import subscribers_by_topic
from odradek.assignors.range_racks import racks_matter
from odradek.lab.case import Case
from odradek.lab.explain.explanation import Explanation, consecutive, names, partitions
from odradek.lab.runs import Run, subscriptions, thread_subscriptions
from odradek.model import TopicPartition

_ORDER = "static members by instance id first, then the others by member id"
_MOST_REFUSED = 20
"""With more subscribers, those whose rack does not fit are not listed."""


def explain_range(case: Case, run: Run, partition: TopicPartition) -> Explanation:
    """Explain `range`: n = P // C partitions each, the first m = P % C members one more; by rack if racks differ."""
    members = subscriptions(case.members)
    group = GroupSubscription(partitions=case.topics, members=members, replica_racks=case.replica_racks)
    of_topic = subscribers_by_topic(group)
    subscribers = of_topic[partition.topic]
    count = case.topics[partition.topic]
    alike = sorted(topic for topic, some in of_topic.items() if some == subscribers and case.topics[topic] == count)
    is_by_rack = any(racks_matter(group, topic, some) for topic, some in of_topic.items())
    if is_by_rack and (len(alike) > 1 or racks_matter(group, partition.topic, subscribers)):
        return _explain_racks(case, run, partition, subscribers, alike)
    order = (
        f"{partition.topic} has C = {len(subscribers):,} subscribers, in this order ({_ORDER}): {names(subscribers)}."
    )
    member, steps = _share(partition, count, subscribers, ("P", "C", "n", "m"))
    return Explanation(partition=partition, strategy=run.strategy, member=member, steps=(order, *steps))


def explain_zookeeper_range(case: Case, run: Run, partition: TopicPartition) -> Explanation:
    """Explain `zookeeper-range`: as `range`, but over threads sorted as strings (SPEC 4)."""
    threads = _threads(case, partition.topic)
    order = _thread_order(partition.topic, threads)
    thread, steps = _share(partition, case.topics[partition.topic], threads, ("|TP|", "|CG|", "N", "R"))
    return _of_thread(run, partition, thread, [order, *steps])


def explain_ceiling_range(case: Case, run: Run, partition: TopicPartition) -> Explanation:
    """Explain `ceiling-range`: N = ceil(|TP| / |CG|) partitions for each thread, until none are left (SPEC 4)."""
    threads = _threads(case, partition.topic)
    count = case.topics[partition.topic]
    each = -(-count // len(threads))
    position = partition.partition // each
    share = range(position * each, min((position + 1) * each, count))
    idle = len(threads) - -(-count // each)
    steps = [
        _thread_order(partition.topic, threads),
        f"|TP| = {count:,} partitions over |CG| = {len(threads):,} threads: N = ceil({count:,} / {len(threads):,}) = "
        f"{each:,} for each thread, until none are left" + (_idle(idle)),
        (
            f"{threads[position]} is at position i = {position:,}, counted from 0: it takes i*N = {share[0]:,} to "
            f"(i+1)*N - 1 = {position * each + each - 1:,}, as far as they exist: "
            f"{consecutive(partition.topic, share)}."
        ),
    ]
    return _of_thread(run, partition, threads[position], steps)


def _share(
    partition: TopicPartition, count: int, takers: Sequence[str], letters: tuple[str, str, str, str]
) -> tuple[str, list[str]]:
    """Return which of `takers` gets the partition, and the steps; `letters` are the rule's four variable names."""
    all_, many, each, rest = letters
    share, more = divmod(count, len(takers))
    bound = more * (share + 1)
    number = partition.partition
    position = number // (share + 1) if number < bound else more + (number - bound) // share
    start = share * position + min(position, more)
    size = share + (position < more)
    first = f"the first {more:,} get {share + 1:,}, the others {share:,}."
    if more < 2:
        first = f"the first one gets {share + 1:,}, the others {share:,}." if more else f"all get {share:,}."
    return takers[position], [
        (
            f"{all_} = {count:,} and {many} = {len(takers):,}: {each} = {all_} // {many} = {share:,} and "
            f"{rest} = {all_} % {many} = {more:,}, so {first}"
        ),
        (
            f"{takers[position]} is at position i = {position:,}, counted from 0: it starts at {each}*i + "
            f"min(i, {rest}) = "
            f"{share:,}*{position:,} + {min(position, more):,} = {start:,} and takes {size:,}: "
            f"{consecutive(partition.topic, range(start, start + size))}."
        ),
    ]


def _idle(threads: int) -> str:
    if threads < 2:
        return "; the last one gets none." if threads else "."
    return f"; the last {threads:,} get none."


def _threads(case: Case, topic: str) -> list[str]:
    return sorted(thread for thread, topics in thread_subscriptions(case).items() if topic in topics)


def _thread_order(topic: str, threads: Sequence[str]) -> str:
    return f"{topic} has these threads, sorted as strings: {names(threads)}."


def _of_thread(run: Run, partition: TopicPartition, thread: str, steps: Sequence[str]) -> Explanation:
    member = thread.rpartition("-")[0]
    return Explanation(partition=partition, strategy=run.strategy, member=member, thread=thread, steps=tuple(steps))


def _explain_racks(
    case: Case, run: Run, partition: TopicPartition, subscribers: Sequence[str], alike: Sequence[str]
) -> Explanation:
    """Explain the rack-aware `range` (KIP-881): by rack up to each member's quota, then the rest in order."""
    topic, number = partition
    count = case.topics[topic]
    racks = {other: _racks(case, other, number) for other in alike}
    share, more = divmod(count, len(subscribers))
    owner = next(member for member, some in run.settled.items() if partition in some)
    steps = [
        (
            f"Racks decide first, because members are on racks that have replicas of only some partitions (KIP-881). "
            f"The quota of {topic} stays that of P = {count:,}, C = {len(subscribers):,}: n = {share:,} each, "
            f"and one more for m = {more:,} of them."
        ),
        "; ".join(f"{other}-{number} has replicas on {_words(racks[other])}" for other in alike) + ".",
    ]
    if len(alike) > 1:
        steps.append(
            f"{', '.join(alike)} have the same subscribers and as many partitions, so a member gets the same numbers "
            "of all of them, and its rack fits only if it fits for all."
        )
    fits = {member: all(_fits(case, member, racks[other]) for other in alike) for member in subscribers}
    for member in subscribers:
        at = f"rack {case.members[member].rack}" if case.members[member].rack else "no rack, which fits everywhere"
        has = sum(place.topic == topic for place in run.settled[member])
        if member == owner and fits[member]:
            steps.append(f"{member} ({at}) fits and has room: it takes {partition}, one of its {has:,}.")
            break
        if fits[member]:
            steps.append(f"{member} ({at}) fits, and has its {partitions(has)} already.")
        elif member != owner and len(subscribers) <= _MOST_REFUSED:
            steps.append(f"{member} ({at}) does not fit.")
    if not fits[owner]:
        steps.append(
            f"No member on a fitting rack has room for {partition}. What racks leave over goes in order to members "
            f"below their quota: {owner} takes it."
        )
    return Explanation(partition=partition, strategy=run.strategy, member=owner, steps=tuple(steps))


def _racks(case: Case, topic: str, number: int) -> frozenset[str]:
    racks = case.replica_racks.get(topic, ())
    return racks[number] if number < len(racks) else frozenset()


def _fits(case: Case, member: str, racks: frozenset[str]) -> bool:
    rack = case.members[member].rack
    return not rack or rack in racks


def _words(racks: frozenset[str]) -> str:
    return ("racks " if len(racks) > 1 else "rack ") + " and ".join(sorted(racks)) if racks else "no known rack"
