"""The invariants of KIP-848's published TLA+ model, checked after every step of random histories (M7).

`ODRADEK_SEEDS=1000 pytest tests/broker/groups/machine/consumer/test_model_invariants.py` tries so many.
"""

import random
from collections.abc import Callable
from typing import Any, Final

import pytest

from odradek.broker.coordinators.machine import NO_PRODUCER, Now
from odradek.broker.groups.machine.classic.classic_group import GroupSettings
from odradek.broker.groups.machine.consumer import consumer_groups, group_update
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup
from odradek.broker.groups.machine.consumer.heartbeat import heartbeat, is_settled, reply_to, unchanged
from odradek.broker.groups.machine.consumer.member import LEAVING_STATIC_EPOCH
from odradek.broker.groups.machine.consumer.messages import ConsumerGroupHeartbeatRequest
from odradek.broker.groups.machine.group_coordinator_machine import GroupCoordinatorMachine, OffsetSettings
from odradek.broker.groups.machine.records import GroupRecordCodec
from odradek.model import ErrorCode
from tests.broker.groups.machine.consumer.protocol_world import (
    GROUP,
    Coordinator,
    Member,
    durable,
    image_of,
    settings,
    settle,
)
from tests.world.sampling import seeds

pytestmark = pytest.mark.long

_SEEDS: Final = len(seeds(50))
_STEPS: Final = 120
_CODEC: Final = GroupRecordCodec()
_TOPICS: Final = ("a", "b", "c")


class History:
    """Members that join, report, revoke late, leave, vanish and change their minds; topics that grow; coordinators that
    die with what is not committed."""

    def __init__(self, seed: int) -> None:
        self.entropy = random.Random(seed)
        self.counts = {topic: self.entropy.randint(1, 6) for topic in _TOPICS}
        self.version = 0
        names = self.entropy.choice((["range"], ["uniform"], ["uniform", "range"]))
        self.at = Coordinator(self.counts, consumer_settings=settings(*names))
        self.at.commits_at_once = False
        self.members: list[Member] = []
        self.waiting: list[tuple[Member, object]] = []
        self.names = iter(range(10_000))
        self.last_epoch = 0
        self.steps: list[tuple[int, Callable[[], None]]] = [
            (12, self.heartbeat),
            (10, self.commit),
            (8, self.revoke),
            (3, self.join),
            (1, self.leave),
            (1, self.vanish),
            (1, self.subscribe),
            (2, self.wait),
            (1, self.grow),
            (1, self.lose),
            (1, self.refuse),
        ]

    def run(self) -> None:
        """Take random steps, then let everything heal."""
        weights = [weight for weight, _ in self.steps]
        for _ in range(_STEPS):
            self.entropy.choices(self.steps, weights)[0][1]()
            self.collect()
            self.check()
        self.heal()

    def topics(self) -> list[str]:
        return self.entropy.sample(_TOPICS, self.entropy.randint(1, len(_TOPICS)))

    def join(self) -> None:
        if len(self.members) < 5:
            static = {"instance_id": f"i{next(self.names)}"} if self.entropy.random() < 0.3 else {}
            regex = "[ab]" if self.entropy.random() < 0.2 else None
            self.members.append(Member(f"m{next(self.names)}", () if regex else self.topics(), regex=regex, **static))

    def some_member(self) -> Member | None:
        idle = [member for member in self.members if all(member is not other for other, _ in self.waiting)]
        return self.entropy.choice(idle) if idle else None

    def heartbeat(self) -> None:
        member = self.some_member()
        if member is not None:
            to = object()
            self.waiting.append((member, to))
            self.at.send(member.request(), to)

    def collect(self) -> None:
        for waiting in list(self.waiting):
            member, to = waiting
            reply = self.at.reply(to)
            if reply is not None:
                self.waiting.remove(waiting)
                member.follow(reply)

    def commit(self) -> None:
        appended = len(self.at.log.appended)
        self.at.log.commit(self.entropy.randint(0, appended) if self.entropy.random() < 0.3 else None)

    def revoke(self) -> None:
        if member := self.some_member():
            member.revoke()

    def leave(self) -> None:
        if member := self.some_member():
            self.members.remove(member)
            self.at.send(leaving(member, -1), object())

    def vanish(self) -> None:
        """Let a client die, or return as another process with its instance id."""
        member = self.some_member()
        if member is None:
            return
        self.members.remove(member)
        if "instance_id" in member.more:
            self.at.send(leaving(member, LEAVING_STATIC_EPOCH), object())
            again = Member(f"m{next(self.names)}", member.topics, regex=member.regex, **member.more)
            self.members.append(again)

    def subscribe(self) -> None:
        member = self.some_member()
        if member is not None and not member.regex:
            member.topics = tuple(self.topics())

    def wait(self) -> None:
        self.at.now_ms += self.entropy.choice((500, 2_000, 6_000))
        self.at.log.expire(self.at.now_ms)

    def grow(self) -> None:
        topic = self.entropy.choice(_TOPICS)
        if self.counts[topic] < 10:
            self.counts[topic] += self.entropy.randint(1, 2)
        elif self.entropy.random() < 0.5:
            self.counts[topic], self.version = 2, self.version + 1
        self.at.log.change_image(image_of(self.counts, version=self.version), self.at.now_ms)

    def lose(self) -> None:
        self.at.log.lose(self.at.now_ms, ErrorCode.not_coordinator)

    def refuse(self) -> None:
        self.at.log.refuses = True
        self.heartbeat()
        self.wait()
        self.at.log.refuses = False

    # -- what must hold ------------------------------------------------------------------------------------------------

    @property
    def group(self) -> ConsumerGroup | None:
        return self.at.log.consumer_group(GROUP)

    def check(self) -> None:
        group = self.group
        if group is None:
            return
        check_group(group)
        for member in self.members:
            known = group.members.get(member.name)
            if known is not None and member.epoch > 0 and known.epoch >= member.epoch:
                # It may be told later that it was removed; until then it is a member with all that it owns.
                for topic, numbers in member.owned.items():
                    held = known.assigned.get(topic, frozenset()) | known.revoking.get(topic, frozenset())
                    assert numbers <= held, f"{member.name} owns {sorted(numbers - held)} of {topic} without a claim"

    def heal(self) -> None:
        self.at.commits_at_once = True
        self.at.log.commit()
        self.collect()
        self.waiting.clear()
        if not self.members:
            self.members.append(Member("last", _TOPICS))
        for _ in range(12):
            self.at.wait(1_000)
            for member in self.members:
                member.heartbeat(self.at)
                member.revoke()
        settle(self.at, self.members)
        group = self.group
        assert group is not None
        assert sorted(group.members) == sorted(member.name for member in self.members)
        self.check_shares()
        assert durable(replayed(self.at)) == durable(group)

    def check_shares(self) -> None:
        """Every partition of a subscribed topic has one owner; with one subscription, shares differ by one at most."""
        owners: dict[tuple[Any, int], str] = {}
        for member in self.members:
            for topic, numbers in member.owned.items():
                for number in numbers:
                    assert (topic, number) not in owners, f"{member.name} and {owners[topic, number]} own {number}"
                    owners[topic, number] = member.name
        image = self.at.log.image
        wanted = {topic for member in self.members for topic in (member.topics or ("a", "b"))}
        assert set(owners) == {
            (image.topics[topic].topic_id, number) for topic in wanted for number in range(self.counts[topic])
        }


def leaving(member: Member, epoch: int) -> Any:
    request = member.request()
    return type(request)(member_id=member.name, member_epoch=epoch, instance_id=member.more.get("instance_id"))


def check_group(group: ConsumerGroup) -> None:
    """No partition has two claims, and no epoch is ahead of the group's."""
    assert group.assignment_epoch <= group.epoch
    claims: dict[tuple[Any, int], str] = {}
    for member in group.members.values():
        assert LEAVING_STATIC_EPOCH <= member.epoch <= group.assignment_epoch
        assert member.previous_epoch <= group.assignment_epoch
        for assignment in (member.assigned, member.revoking):
            for topic, numbers in assignment.items():
                for number in numbers:
                    other = claims.setdefault((topic, number), member.member_id)
                    assert other == member.member_id, f"{other} and {member.member_id} have {number} of {topic}"
        assert not any(member.assigned.get(topic, frozenset()) & numbers for topic, numbers in member.revoking.items())


def replayed(at: Coordinator) -> ConsumerGroup:
    """Return the group of a machine that read the committed records as bytes, of each key the last one only."""
    last: dict[bytes, tuple[int, Any]] = {}
    for offset, record in enumerate(at.log.committed):
        key, value = _CODEC.encode(record)
        last[key] = offset, _CODEC.decode(key, value)
    machine = GroupCoordinatorMachine(GroupSettings, OffsetSettings)
    for offset, record in sorted(last.values(), key=lambda each: each[0]):
        machine.apply(record, offset, NO_PRODUCER)
    (group,) = machine.groups.of_type(ConsumerGroup)
    return group


@pytest.mark.parametrize("block", range(10))
def test_invariants_hold_after_every_step_and_every_group_converges(
    block: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    if block % 2:  # the targets of these small groups wait as those of large ones do
        monkeypatch.setattr(group_update, "_ENTRIES_PER_MS", 0.001)
    for seed in range(block * _SEEDS // 10, (block + 1) * _SEEDS // 10):
        try:
            History(seed).run()
        except AssertionError as error:
            error.add_note(f"seed {seed}")
            raise


@pytest.mark.parametrize(
    "fault", ["gives before it is free", "does not wait for the revocation", "never frees a partition"]
)
def test_a_planted_fault_is_found_within_a_hundred_seeds(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if fault == "gives before it is free":
        honest = group_update.reconcile
        monkeypatch.setattr(group_update, "reconcile", lambda *args: honest(*args[:3], lambda *_: True))
    elif fault == "does not wait for the revocation":
        monkeypatch.setattr(group_update, "_owns_any", lambda *_: False)
    else:
        monkeypatch.setattr(ConsumerGroup, "_release", lambda *_: None)
    with pytest.raises(AssertionError):
        for seed in range(100):
            History(seed).run()


class QuietHistory(History):
    """The events of `History`; members often send heartbeats that only extend their sessions."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.steps.append((12, self.say_nothing))

    def say_nothing(self) -> None:
        member = self.some_member()
        if member is not None and member.epoch > 0:
            to = object()
            self.waiting.append((member, to))
            self.at.send(ConsumerGroupHeartbeatRequest(member_id=member.name, member_epoch=member.epoch), to)


def test_a_heartbeat_without_news_is_answered_as_if_everything_were_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    """M7. The short way answers only what the long way would answer without a record."""
    taken = 0
    history: QuietHistory

    def compared(group: ConsumerGroup, request: Any) -> bool:
        nonlocal taken
        if not is_settled(group, request):
            return False
        taken += 1
        of_group, now = settings("range"), Now(history.at.now_ms, history.at.now_ms)
        update = heartbeat(group, request, history.at.log.image, of_group, now)
        assert (update.records, update.changes_assignment, update.awaits_target) == ([], False, False)
        assert reply_to(request, update, of_group) == unchanged(request, of_group)
        return True

    monkeypatch.setattr(consumer_groups, "is_settled", compared)
    for seed in range(_SEEDS):
        history = QuietHistory(seed)
        history.run()
    assert taken > _SEEDS
