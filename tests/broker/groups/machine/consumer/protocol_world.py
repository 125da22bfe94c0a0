"""Members of the consumer protocol around a coordinator's machine, without a runtime (KIP-848).

A `Member` follows the protocol's rules as a client does: it reports what it owns, gives partitions up some time after
it was told to, takes new ones only then, and starts anew when it is fenced.
"""

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from odradek.assignors import create_assignor
from odradek.broker.coordinators.machine import Reply
from odradek.broker.groups.machine.classic.classic_group import GroupSettings
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup, ConsumerGroupState
from odradek.broker.groups.machine.consumer.member import Assignment
from odradek.broker.groups.machine.consumer.messages import ConsumerGroupHeartbeatReply, ConsumerGroupHeartbeatRequest
from odradek.broker.groups.machine.consumer.target_assignment import ConsumerGroupSettings
from odradek.metadata.image import BrokerImage, ClusterImage, PartitionImage, TopicImage
from odradek.model import ErrorCode, KafkaError
from tests.broker.groups.machine.machine_log import MachineLog

GROUP = "g"
SESSION_MS = 10_000
REBALANCE_MS = 5_000


def topic_id(name: str, version: int = 0) -> UUID:
    """Return the id of a topic; one that was made again has another."""
    return UUID(int=sum(ord(letter) << 8 * place for place, letter in enumerate(name)) + (version << 100))


def image_of(topics: Mapping[str, int], *, version: int = 0, racks: Mapping[int, str] | None = None) -> ClusterImage:
    """Return the image of topics with so many partitions; the replicas are on the brokers that have racks."""
    brokers = {number: BrokerImage(broker_id=number, endpoints=(), rack=rack) for number, rack in (racks or {}).items()}
    replicas = tuple(brokers) or (0,)
    found = {}
    for name, count in topics.items():
        partitions = {
            number: PartitionImage(leader=0, leader_epoch=0, replicas=(replicas[number % len(replicas)],), isr=(0,))
            for number in range(count)
        }
        found[name] = TopicImage(name=name, topic_id=topic_id(name, version), partitions=partitions)
    names = {topic.topic_id: name for name, topic in found.items()}
    return ClusterImage(brokers=brokers, topics=found, topic_names=names)


def settings(*assignors: str, **more: Any) -> ConsumerGroupSettings:
    """Return the broker's settings with these assignors, `range` if none is named."""
    return ConsumerGroupSettings(
        assignors={name: create_assignor(name) for name in assignors or ("range",)},
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=1_000,
        **more,
    )


class Coordinator:
    """A machine over its log, and the replies that left."""

    def __init__(self, topics: Mapping[str, int], *, consumer_settings: ConsumerGroupSettings | None = None) -> None:
        self.now_ms = 0
        self.log = MachineLog(
            GroupSettings(), self._reply, consumer_settings=consumer_settings or settings(), image=image_of(topics)
        )
        self.commits_at_once = True
        self.replies: dict[int, tuple[object, object]] = {}

    def _reply(self, reply: Reply) -> None:
        self.replies[id(reply.to)] = reply.to, reply.value

    @property
    def group(self) -> ConsumerGroup:
        """Return the group as the machine has it."""
        group = self.log.consumer_group(GROUP)
        assert group is not None
        return group

    def ask(self, request: Any) -> Any:
        """Return the reply to a request, an error as `KafkaError`; None if it did not leave."""
        to = object()
        self.send(request, to)
        if self.commits_at_once:
            self.log.commit()
        return self.reply(to)

    def send(self, request: Any, to: object) -> None:
        """Send a request without waiting for its reply."""
        self.log.handle(GROUP, request, to, self.now_ms)

    def reply(self, to: object) -> Any:
        """Return the reply to a request that was sent; None if it did not leave yet."""
        return self.replies.pop(id(to), (to, None))[1]

    def wait(self, ms: int) -> None:
        """Let time pass."""
        self.now_ms += ms
        self.log.expire(self.now_ms)
        if self.commits_at_once:
            self.log.commit()


class Member:
    """A client of the protocol."""

    def __init__(self, name: str, topics: Iterable[str] = (), *, regex: str | None = None, **more: Any) -> None:
        self.name = name
        self.topics: tuple[str, ...] = tuple(topics)
        self.regex = regex
        self.more = more
        self.epoch = 0
        self.owned: dict[UUID, frozenset[int]] = {}
        self.assignment: Assignment = {}
        """The last assignment of the coordinator; the member works towards it."""
        self.errors: list[ErrorCode] = []

    def request(self) -> ConsumerGroupHeartbeatRequest:
        """Return the next heartbeat; it says everything, as after an error."""
        return ConsumerGroupHeartbeatRequest(
            member_id=self.name,
            member_epoch=self.epoch,
            rebalance_timeout_ms=REBALANCE_MS,
            subscribed_topic_names=self.topics,
            subscribed_topic_regex=self.regex,
            owned=dict(self.owned),
            **self.more,
        )

    def heartbeat(self, coordinator: Coordinator) -> Any:
        """Send a heartbeat and follow its reply."""
        return self.follow(coordinator.ask(self.request()))

    def follow(self, reply: object) -> object:
        """Do as a reply says: keep what it has, or give everything up and join again."""
        if isinstance(reply, KafkaError | ErrorCode):
            code = reply.code if isinstance(reply, KafkaError) else reply
            self.errors.append(code)
            if code in (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id, ErrorCode.group_id_not_found):
                self.epoch, self.owned, self.assignment = 0, {}, {}
        elif isinstance(reply, ConsumerGroupHeartbeatReply):
            self.epoch = reply.member_epoch
            if reply.assignment is not None:
                self.assignment = reply.assignment
            self.take()
        return reply

    def take(self) -> None:
        """Take new partitions, unless others must be given up first."""
        if not self.lost:
            self.owned = dict(self.assignment)

    @property
    def lost(self) -> bool:
        """Return whether it owns partitions that it must give up."""
        return any(numbers - self.assignment.get(topic, frozenset()) for topic, numbers in self.owned.items())

    def revoke(self) -> None:
        """Give up what is not assigned any more, and take the rest."""
        self.owned = {
            topic: kept
            for topic, numbers in self.owned.items()
            if (kept := numbers & self.assignment.get(topic, frozenset()))
        }
        self.take()

    def leave(self, coordinator: Coordinator, epoch: int = -1) -> Any:
        """Leave the group."""
        request = ConsumerGroupHeartbeatRequest(member_id=self.name, member_epoch=epoch, **self.more)
        reply = coordinator.ask(request)
        self.epoch, self.owned, self.assignment = 0, {}, {}
        return reply

    @property
    def count(self) -> int:
        """Return how many partitions it owns."""
        return sum(map(len, self.owned.values()))

    def numbers(self, topic: str) -> list[int]:
        """Return the partitions of a topic that it owns."""
        return sorted(self.owned.get(topic_id(topic), ()))


def settle(coordinator: Coordinator, members: Iterable[Member], *, rounds: int = 20) -> None:
    """Let members report and revoke until nothing changes any more."""
    for _ in range(rounds):
        before = len(coordinator.log.committed)
        for member in members:
            member.heartbeat(coordinator)
            member.revoke()
        coordinator.wait(0)
        if len(coordinator.log.committed) == before and coordinator.group.state is ConsumerGroupState.STABLE:
            return
    raise AssertionError(f"the group still changes after {rounds} rounds")


def pass_time(coordinator: Coordinator, members: Iterable[Member], ms: int) -> None:
    """Let time pass in steps of a second while members send heartbeats, then let them settle."""
    members = list(members)
    for _ in range(0, ms, 1_000):
        coordinator.wait(1_000)
        for member in members:
            member.heartbeat(coordinator)
            member.revoke()
    settle(coordinator, members)


def durable(group: ConsumerGroup) -> tuple[Any, ...]:
    """Return everything about a group that its records have."""
    return (
        group.epoch, group.metadata_hash, group.assignment_epoch, group.members, group.targets, group.regexes,
    )  # fmt: skip
