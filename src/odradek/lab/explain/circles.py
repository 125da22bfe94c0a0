"""Explains the round-robin strategies, `roundrobin` and `zookeeper-roundrobin`."""

from odradek.assignors import GroupSubscription, sorted_members
from odradek.assignors.interface import subscribers_by_topic
from odradek.lab.case import Case
from odradek.lab.explain.explanation import Explanation, names
from odradek.lab.runs import Run, subscriptions, thread_subscriptions
from odradek.model import TopicPartition
from odradek.model.java_hash import java_hash


def explain_roundrobin(case: Case, run: Run, partition: TopicPartition) -> Explanation:
    """Explain `roundrobin`: partitions by topic and number go to members in turn, skipping non-subscribers."""
    members = subscriptions(case.members)
    ring = sorted_members(members)
    places = {name: index for index, name in enumerate(ring)}
    of_topic = subscribers_by_topic(GroupSubscription(partitions=case.topics, members=members))
    number, last = 0, ""
    start = place = 0
    passed: list[str] = []
    for topic, some in of_topic.items():
        subscribers = [places[name] for name in some]
        wanted = partition.partition if topic == partition.topic else case.topics[topic] - 1
        at, before = _owner(subscribers, start, wanted)
        number += wanted
        if topic == partition.topic:
            place = at
            entry = start if wanted == 0 else (before + 1) % len(ring)
            last = last if wanted == 0 else ring[before]
            passed = [ring[(entry + step) % len(ring)] for step in range((place - entry) % len(ring))]
            break
        number += 1
        last = ring[at]
        start = (at + 1) % len(ring)
    steps = [
        f"The circle has {len(ring):,} members (static ones by instance id, then others by member id): {names(ring)}.",
        f"All partitions in the order of topic and number: {partition} is number {number:,}, counted from 0.",
        f"The partition before went to {last}, so the circle continues after it." if last else "The circle begins.",
    ]
    if passed:
        steps.append(f"Passed over, because they do not subscribe to {partition.topic}: {names(passed)}.")
    steps.append(f"{ring[place]} is the next in the circle that subscribes to {partition.topic}.")
    return Explanation(partition=partition, strategy=run.strategy, member=ring[place], steps=tuple(steps))


def _owner(subscribers: list[int], start: int, number: int) -> tuple[int, int]:
    """Return the circle positions of the owners of partitions `number` and `number - 1`, dealt out from `start` on."""
    entry = next((index for index, place in enumerate(subscribers) if place >= start), 0)
    return (
        subscribers[(entry + number) % len(subscribers)],
        subscribers[(entry + number - 1) % len(subscribers)],
    )


def explain_zookeeper_roundrobin(case: Case, run: Run, partition: TopicPartition) -> Explanation:
    """Explain `zookeeper-roundrobin`: partitions by Java's hash code of `[topic,partition]` go to threads in turn."""
    threads = sorted(thread for thread, topics in thread_subscriptions(case).items() if partition.topic in topics)
    read = {topic for member in case.members.values() for topic in member.topics}
    code = java_hash(f"[{partition.topic},{partition.partition}]")
    mine = (code, *partition)
    turn = sum(
        (java_hash(f"[{topic},{number}]"), topic, number) < mine
        for topic in read
        for number in range(case.topics[topic])
    )
    count = sum(case.topics[topic] for topic in read)
    thread = threads[turn % len(threads)]
    steps = (
        f"The circle has {len(threads):,} threads, sorted as strings, the same for every topic: {names(threads)}.",
        (
            f"All {count:,} partitions are sorted by Java's hash code of the text [topic,partition]: that of "
            f"[{partition.topic},{partition.partition}] is {code}."
        ),
        f"{turn:,} of them have a lower code, so {partition} is number {turn:,}, counted from 0.",
        f"{turn:,} % {len(threads):,} = {turn % len(threads):,}: the thread at this position is {thread}.",
    )
    return Explanation(
        partition=partition, strategy=run.strategy, member=thread.rpartition("-")[0], thread=thread, steps=steps
    )
