"""Reassignments under any order of events, and controllers that die anywhere (M1, M10)."""

import random
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from odradek.broker.controller.machine.alter_partition import alter_partition
from odradek.broker.controller.machine.reassignment import advance, plan_reassignments, reassignments
from odradek.metadata.isr_request import AlterPartitionItem
from odradek.model import KafkaError, TopicPartition
from tests.broker.controller.machine.partition_world import (
    CONTROLLER_EPOCH,
    image,
    partition,
    topic,
    with_live,
    written,
)

KEY = TopicPartition("t", 0)
BROKERS = range(1, 6)
EVENTS = (
    *("produce", "produce", "fetch", "fetch", "join", "join", "lag", "die", "return"),
    *("step", "step", "halfstep", "target"),
)


class ReassignedPartition:
    """One partition: what the tree says of it, and how many records each broker has."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.target = (1, 2, 3)
        self.cluster = image(BROKERS, topic(partition(1, 2, 3)))
        self.records = Counter()
        self.committed = 0

    @property
    def now(self):
        return self.cluster.topics["t"].partitions[0]

    @property
    def live(self):
        return self.cluster.brokers.keys()

    @property
    def leads(self) -> bool:
        return self.now.leader in self.live

    def produce(self) -> None:
        """All of the ISR have one record more, so it is committed."""
        if self.leads and set(self.now.isr) <= self.live:
            self.committed += 1
            self.records |= dict.fromkeys(self.now.isr, self.committed)

    def fetch(self) -> None:
        """A follower gets all that the leader has."""
        followers = [each for each in self.now.replicas if each in self.live]
        if self.leads and followers:
            self.records[self.chance.choice(followers)] = self.records[self.now.leader]

    def join(self) -> None:
        self.ask((*self.now.isr, self.chance.choice(self.now.replicas)))

    def lag(self) -> None:
        slow = self.chance.choice(self.now.replicas)
        self.ask(tuple(each for each in self.now.isr if each != slow))

    def ask(self, isr) -> None:
        """The leader asks for an ISR whose members have all that is committed."""
        if not self.leads or any(self.records[each] < self.committed for each in isr):
            return
        request = AlterPartitionItem(
            isr=dict.fromkeys(isr, -1), leader_epoch=self.now.leader_epoch, partition_epoch=self.now.state_version
        )
        try:
            change = alter_partition(
                self.cluster, KEY, self.now.leader, request, ineligible=(), controller_epoch=CONTROLLER_EPOCH
            )
        except KafkaError:
            return
        if change is not None:
            self.cluster = written(self.cluster, [change.operation()])

    def die(self) -> None:
        self.cluster = with_live(self.cluster, self.live - {self.chance.choice(BROKERS)})

    def come_back(self) -> None:
        self.cluster = with_live(self.cluster, self.live | {self.chance.choice(BROKERS)})

    def aim(self) -> None:
        """Somebody asks for other replicas, or cancels."""
        target = tuple(self.chance.sample(BROKERS, self.chance.randint(1, 3)))
        wanted = None if self.chance.random() < 0.3 else target
        planned = plan_reassignments(self.cluster, {KEY: wanted}, controller_epoch=CONTROLLER_EPOCH)
        if not planned.errors:
            for step in planned.steps:
                self.cluster = written(self.cluster, step.operations)
            now = self.now
            self.target = tuple(each for each in now.replicas if each not in now.removing_replicas)

    def step(self, *, dies: bool = False) -> bool:
        """Take the controller's next step; it may die between a request and a write."""
        before = self.now
        step = advance(self.cluster.topics["t"], self.live, CONTROLLER_EPOCH, is_stopped=bool)
        if step is None:
            return False
        for told in step.stop:
            assert told.leader_epoch == before.leader_epoch
            for broker in told.brokers:
                assert broker not in self.now.isr
                assert broker != self.now.leader
                assert broker not in self.target
                if broker in self.live:
                    self.records.pop(broker, None)
        if dies:
            return True
        self.cluster = written(self.cluster, step.operations)
        assert set(self.now.isr) >= set(before.isr) - set(before.removing_replicas)
        assert self.now.leader_epoch == before.leader_epoch + 1
        return True

    def happen(self, event: str) -> None:
        if event == "halfstep":
            self.step(dies=True)
        else:
            {"return": self.come_back, "target": self.aim}.get(event, getattr(self, event, None))()
        self.check()

    def check(self) -> None:
        assert self.now.isr
        assert set(self.now.isr) <= set(self.now.replicas)
        assert self.now.leader in (-1, *self.now.isr)
        assert all(self.records[each] >= self.committed for each in self.now.isr), "an acknowledged record is lost"


@settings(max_examples=80)
@given(seed=st.integers(0, 2**32), events=st.lists(st.sampled_from(EVENTS), max_size=80))
def test_a_reassignment_ends_in_the_target_and_loses_no_acknowledged_record(seed, events):
    reassigned = ReassignedPartition(random.Random(seed))
    for event in events:
        reassigned.happen(event)
    reassigned.cluster = with_live(reassigned.cluster, set(BROKERS))
    reassigned.check()
    for _ in range(20):
        for replica in reassigned.now.replicas:
            reassigned.records[replica] = reassigned.records[reassigned.now.leader]
            reassigned.ask((*reassigned.now.isr, *({replica} - set(reassigned.now.isr))))
        reassigned.check()
        reassigned.step()
        reassigned.check()
    assert not reassigned.step()
    assert reassignments(reassigned.cluster) == {}
    assert reassigned.now.replicas == reassigned.target
    assert set(reassigned.now.isr) == set(reassigned.target)
    assert reassigned.now.leader in reassigned.target


def test_the_events_reach_every_phase():
    """Else the property above would say little."""
    seen = set()
    for seed in range(200):
        reassigned = ReassignedPartition(random.Random(seed))
        for _ in range(60):
            reassigned.happen(reassigned.chance.choice(EVENTS))
            now = reassigned.now
            withdrawn = set(now.adding_replicas) & set(now.removing_replicas)
            seen.add("withdrawn" if withdrawn else "adding" if now.adding_replicas else "idle")
            step = advance(replace(reassigned.cluster.topics["t"]), reassigned.live, CONTROLLER_EPOCH, is_stopped=bool)
            if step is not None:
                seen.add("finish" if step.stop else "move")
            if withdrawn and set(now.isr) <= withdrawn:
                seen.add("only the withdrawn are in sync")
    assert seen == {"idle", "adding", "withdrawn", "move", "finish", "only the withdrawn are in sync"}
