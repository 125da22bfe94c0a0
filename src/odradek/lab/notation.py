"""Parses the short texts that describe a case, and formats partitions as text.

```
t=12                 topic t has 12 partitions           c0=t,u    member c0 subscribes to t and u; c0 alone: to all
c0=t:0-3,7,u:1       c0 owns t-0 to t-3, t-7 and u-1      c0=a      member c0 is on rack a
a,b                  members are on racks a, b, a, b, …   t=a+b,c   replicas of t-0 on racks a and b, of t-1 on c,
                                                                    of t-2 on a and b, …: the list is repeated
```
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import groupby, islice
from typing import Final

from msgspec.structs import replace

from odradek.lab.case import MAX_MEMBERS, MAX_PARTITIONS, Case, LabError, Member
from odradek.model import TopicPartition

_NUMBER: Final = re.compile(r"[0-9]{1,9}")
_LIKE_A_NUMBER: Final = re.compile(r"[-+]?[\d.,_ ]+")
_NUMBERS: Final = re.compile(r"([0-9]{1,9})(?:-([0-9]{1,9}))?")


def case_of_texts(
    *,
    topics: Sequence[str],
    members: Sequence[str],
    owned: Sequence[str] = (),
    racks: Sequence[str] = (),
    replica_racks: Sequence[str] = (),
    instances: Sequence[str] = (),
    threads: Sequence[str] = (),
    base: Case | None = None,
) -> Case:
    """Return the case that the texts describe, added to `base`. Raises `LabError` or `InvalidTopicError`.

    A number N among `members` stands for N members c0, c1, …; texts of `racks` and `threads` without `=` are for all
    members.
    """
    named: dict[str, int] = {}
    for topic, count in map(topic_and_count, topics):
        if named.setdefault(topic, count) != count:
            raise LabError(f"topic {topic} has {named[topic]} partitions and {count}: name it once")
    counts = dict(base.topics if base else {}) | named
    every = tuple(sorted(counts))
    made = dict(base.members if base else {})
    for text in members:
        made |= _members(text, every)
    changes: dict[str, dict[str, object]] = {}
    for text in owned:
        name, partitions = _pair(text, "owned partitions", "MEMBER=TOPIC:0-3,7")
        changes.setdefault(name, {})
        before = changes[name].get("owned", ())
        assert isinstance(before, tuple)
        changes[name]["owned"] = (*before, *partitions_of_text(partitions))
    for text in instances:
        name, instance = _pair(text, "an instance id", "MEMBER=ID")
        changes.setdefault(name, {})["instance_id"] = instance
    for name, rack in member_racks(racks, made).items():
        changes.setdefault(name, {})["rack"] = rack
    for name, count in _threads(threads, made).items():
        changes.setdefault(name, {})["threads"] = count
    for name, change in changes.items():
        made[name] = _changed(_existing(made, name), change)
    spread = dict(base.replica_racks if base else {}) | dict(_replica_racks(text, counts) for text in replica_racks)
    return Case(topics=counts, members=made, replica_racks=spread).checked()


def topic_and_count(text: str) -> tuple[str, int]:
    topic, count = _pair(text, "a topic", "TOPIC=PARTITIONS, such as t=12")
    if not _NUMBER.fullmatch(count):
        raise LabError(f"{count!r} is not a number of partitions: write TOPIC=PARTITIONS, such as t=12")
    return topic, int(count)


def partitions_of_text(text: str) -> tuple[TopicPartition, ...]:
    """Parse `t:0-3,7,u:1`; a number without a topic belongs to the topic before it. Raises `LabError`."""
    found: list[TopicPartition] = []
    topic = ""
    for part in filter(None, (each.strip() for each in text.split(","))):
        named, colon, numbers = part.rpartition(":")
        topic = named if colon else topic
        match = _NUMBERS.fullmatch(numbers)
        if match is None or not topic:
            raise LabError(f"{text!r} is not a list of partitions: write TOPIC:0-3,7, and for several topics t:0-3,u:1")
        first = int(match[1])
        last = int(match[2] or first)
        if last < first or last - first >= MAX_PARTITIONS:
            raise LabError(f"{part!r} is not a range of partitions: write the lower number first, such as 0-3")
        found += [TopicPartition(topic, number) for number in range(first, last + 1)]
    return tuple(found)


def partition_of_text(text: str) -> TopicPartition:
    """Parse `TOPIC-PARTITION`. Raises `LabError`."""
    topic, dash, number = text.rpartition("-")
    if not (dash and topic and _NUMBER.fullmatch(number)):
        raise LabError(f"{text!r} names no partition: write TOPIC-PARTITION, such as t-3")
    return TopicPartition(topic, int(number))


def partitions_text(partitions: Iterable[tuple[str, int]], most: int = 12) -> str:
    """Return partitions as `t:0-3,7 u:1`: at most `most` ranges, then `and N more` partitions."""
    ranges = _ranges(sorted(partitions))
    shown = list(islice(ranges, most))
    left = sum(last - first + 1 for _, first, last in ranges)
    parts = [
        topic + ":" + ",".join(str(first) if first == last else f"{first}-{last}" for _, first, last in some)
        for topic, some in groupby(shown, key=lambda each: each[0])
    ]
    return " ".join([*parts, f"and {left:,} more"] if left else parts)


def member_racks(texts: Sequence[str], members: Iterable[str]) -> dict[str, str]:
    """Parse `c0=a`, or `a,b`: racks for all members in turn. Return racks by member. Raises `LabError`."""
    found: dict[str, str] = {}
    for text in texts:
        if "=" in text:
            name, rack = _pair(text, "a rack", "MEMBER=RACK")
            found[name] = rack
            continue
        racks = _words(text, "racks", "a,b,c")
        found |= {name: racks[turn % len(racks)] for turn, name in enumerate(members)}
    return found


def member_of_text(text: str, every: tuple[str, ...]) -> tuple[str, Member]:
    """Parse `c0=t,u`, or `c0`, which subscribes to `every` topic. Raises `LabError`."""
    name, equals, topics = text.partition("=")
    if not name.strip():
        raise LabError(f"{text!r} is not a member: write MEMBER=TOPIC,TOPIC, or MEMBER alone for all topics")
    words = _words(topics, "topics", "MEMBER=TOPIC,TOPIC") if equals and topics.strip() else ()
    return name.strip(), Member(topics=tuple(words) if equals else every)


def _members(text: str, every: tuple[str, ...]) -> dict[str, Member]:
    if not _LIKE_A_NUMBER.fullmatch(text.strip()):
        return dict([member_of_text(text, every)])
    if not _NUMBER.fullmatch(text) or not 1 <= int(text) <= MAX_MEMBERS:
        raise LabError(f"{text} is not a number of members: use from 1 to {MAX_MEMBERS:,}")
    member = Member(topics=every)
    return {f"c{number}": member for number in range(int(text))}


def _threads(texts: Sequence[str], members: Iterable[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    for text in texts:
        name, equals, count = text.rpartition("=")
        if not _NUMBER.fullmatch(count):
            raise LabError(f"{text!r} is not a number of threads: write N for all members, or MEMBER=N")
        found |= {name: int(count)} if equals else dict.fromkeys(members, int(count))
    return found


def _replica_racks(text: str, counts: Mapping[str, int]) -> tuple[str, tuple[frozenset[str], ...]]:
    topic, racks = _pair(text, "racks of replicas", "TOPIC=a+b,c: racks a and b for partition 0, c for 1, and so on")
    sets = [frozenset(filter(None, each.split("+"))) for each in _words(racks, "racks", "a+b,c")]
    if not all(sets):
        raise LabError(f"{text!r} has an empty place among its racks: write TOPIC=a+b,c")
    return topic, tuple(sets[number % len(sets)] for number in range(min(counts.get(topic, 0), MAX_PARTITIONS)))


def _pair(text: str, noun: str, form: str) -> tuple[str, str]:
    left, equals, right = (part.strip() for part in text.partition("="))
    if not (equals and left and right):
        raise LabError(f"{text!r} is not {noun}: write {form}")
    return left, right


def _words(text: str, noun: str, form: str) -> list[str]:
    words = [word.strip() for word in text.split(",")]
    if not all(words):
        raise LabError(f"{text!r} has an empty place among its {noun}: write {form}")
    return words


def _existing(members: Mapping[str, Member], name: str) -> Member:
    if name not in members:
        raise LabError(f"there is no member {name}: name it with --member {name}")
    return members[name]


def _changed(member: Member, change: Mapping[str, object]) -> Member:
    return replace(member, **change)


def _ranges(partitions: Sequence[tuple[str, int]]) -> Iterator[tuple[str, int, int]]:
    """Yield `(topic, first, last)` of each run of consecutive numbers in sorted `partitions`."""
    start = 0
    for index in range(1, len(partitions) + 1):
        topic, number = partitions[index - 1]
        if index == len(partitions) or partitions[index] != (topic, number + 1):
            yield topic, partitions[start][1], number
            start = index


__all__ = [
    "case_of_texts",
    "member_of_text",
    "member_racks",
    "partition_of_text",
    "partitions_of_text",
    "partitions_text",
    "topic_and_count",
]
