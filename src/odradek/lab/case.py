"""A consumer group as data: topics with partition counts, members with owned partitions, racks of both."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct, field

from odradek.model import ConfigurationError, PreconditionError, TopicPartition, validate_topic_name

MAX_PARTITIONS: Final = 1_000_000
MAX_MEMBERS: Final = 1_000_000
"""Limits by SPEC 3's scale: every strategy takes seconds and less than a gigabyte."""
MAX_THREADS: Final = 1_000


class LabError(ConfigurationError):
    """An invalid case, or a text that cannot be parsed."""


class LabFailure(LabError, PreconditionError):
    """A strategy that failed, or a live group that shows nothing."""


class Member(Struct, frozen=True, kw_only=True):
    """A member of a case. `owned` are its partitions in `generation`."""

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = 0
    rack: str | None = None
    instance_id: str | None = None
    threads: int = 1
    """Threads (streams) of the consumer; only the strategies of generation 1 (ZooKeeper) use them."""


class Case(Struct, frozen=True, kw_only=True):
    """The input of every strategy. The constructor checks nothing: call `checked`."""

    topics: Mapping[str, int]
    members: Mapping[str, Member]
    replica_racks: Mapping[str, tuple[frozenset[str], ...]] = field(default_factory=dict)
    """The racks with a replica of each partition, by topic."""

    def checked(self) -> "Case":
        """Return the case itself. Raises `LabError` for what is invalid, `InvalidTopicError` for a topic's name."""
        if not self.topics:
            raise LabError("the case has no topic: name one with its number of partitions, such as --topic t=12")
        for topic, count in self.topics.items():
            validate_topic_name(topic)
            if count < 1:
                raise LabError(f"topic {topic} has {count} partitions: give it at least 1")
        if self.partition_count > MAX_PARTITIONS:
            raise LabError(f"the topics have {self.partition_count:,} partitions: use at most {MAX_PARTITIONS:,}")
        if len(self.members) > MAX_MEMBERS:
            raise LabError(f"the case has {len(self.members):,} members: use at most {MAX_MEMBERS:,}")
        for topic in self.replica_racks:
            self._check_topic(topic, "racks are given for the replicas of")
        known: set[int] = set()
        for name, member in self.members.items():
            if id(member.topics) not in known:  # most members share one tuple
                for topic in member.topics:
                    self._check_topic(topic, f"member {name} subscribes to")
                known.add(id(member.topics))
            self._check_member(name, member)
        threads = sum(member.threads for member in self.members.values())
        if threads > MAX_MEMBERS:
            raise LabError(f"the members have {threads:,} threads: use at most {MAX_MEMBERS:,}")
        return self

    def _check_topic(self, topic: str, where: str) -> None:
        if topic not in self.topics:
            raise LabError(f"{where} the topic {topic}, which does not exist: the topics are {_some(self.topics)}")

    def _check_member(self, name: str, member: Member) -> None:
        if not 1 <= member.threads <= MAX_THREADS:
            raise LabError(f"member {name} has {member.threads} threads: give it from 1 to {MAX_THREADS:,}")
        for topic, number in member.owned:
            self._check_topic(topic, f"member {name} owns a partition of")
            if not 0 <= number < self.topics[topic]:
                raise LabError(
                    f"member {name} owns {topic}-{number}, which does not exist: {topic} has {self.topics[topic]} "
                    "partitions, counted from 0"
                )

    @property
    def partition_count(self) -> int:
        """Return the number of partitions of all topics."""
        return sum(self.topics.values())

    def owners(self) -> dict[TopicPartition, str]:
        """Return the owner of each partition; if several members claim it, the first one of the newest generation."""
        found: dict[TopicPartition, str] = {}
        for name, member in self.members.items():
            for partition in member.owned:
                rival = found.get(partition)
                if rival is None or self.members[rival].generation < member.generation:
                    found[partition] = name
        return found

    def with_owned(self, owned: Mapping[str, tuple[TopicPartition, ...]], generation: int) -> "Case":
        """Return a copy with these owned partitions, in `generation`; a member missing in `owned` has none."""
        members = {
            name: Member(
                topics=member.topics,
                owned=owned.get(name, ()),
                generation=generation,
                rack=member.rack,
                instance_id=member.instance_id,
                threads=member.threads,
            )
            for name, member in self.members.items()
        }
        return Case(topics=self.topics, members=members, replica_racks=self.replica_racks)


def _some(names: Mapping[str, object], most: int = 10) -> str:
    shown = sorted(names)[:most]
    more = len(names) - len(shown)
    return ", ".join(shown) + (f" and {more:,} more" if more else "")
