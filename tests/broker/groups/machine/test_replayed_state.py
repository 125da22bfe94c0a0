"""Durable state after any requests equals that of a machine that replays the log, compacted or not (M6, M8)."""

from typing import Any, NamedTuple
from uuid import UUID

import hypothesis
import hypothesis.strategies as st

from odradek.broker.coordinators.machine import NO_PRODUCER, CoordinatorResult, Now, Producer
from odradek.broker.groups.machine.classic.classic_group import ClassicGroup, GroupSettings
from odradek.broker.groups.machine.group_coordinator_machine import GroupCoordinatorMachine, OffsetSettings
from odradek.broker.groups.machine.messages import (
    CommitRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    JoinRequest,
    LeaveRequest,
    LeavingMember,
    SyncRequest,
)
from odradek.broker.groups.machine.records import GroupRecord, GroupRecordCodec
from odradek.metadata.image import ClusterImage, TopicImage
from odradek.model import TopicPartition
from odradek.protocol.internal_records.group_records import OffsetCommitValue
from tests.broker.groups.machine.machine_log import classic_groups

GROUPS = ("a", "b")
CODEC = GroupRecordCodec()


class Entry(NamedTuple):
    """A record in the log, or the marker that ends a transaction."""

    offset: int
    producer_id: int
    record: GroupRecord | None
    committed: bool = False


def new_machine() -> GroupCoordinatorMachine:
    return GroupCoordinatorMachine(lambda: GroupSettings(initial_rebalance_delay_ms=0), OffsetSettings)


def image(*names: str, version: int) -> ClusterImage:
    topics = {name: TopicImage(name=name, topic_id=UUID(int=version), partitions={}) for name in names}
    return ClusterImage(topics=topics)


class Scene:
    """A machine and its log."""

    def __init__(self) -> None:
        self.log: list[Entry] = []
        self.machine = new_machine()
        self.now_ms = 0
        self.topic_version = 1
        list(self.machine.on_elected(ClusterImage(), self.now))

    @property
    def now(self) -> Now:
        return Now(self.now_ms, self.now_ms)

    def take(self, result: CoordinatorResult[GroupRecord]) -> None:
        producer_id = NO_PRODUCER if result.producer is None else result.producer.producer_id
        for record in result.records:
            self.machine.apply(record, len(self.log), producer_id)
            self.log.append(Entry(len(self.log), producer_id, record))

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        return classic_groups(self.machine)

    def handle(self, group: str, request: Any) -> None:
        self.take(self.machine.handle(group, request, object(), self.now))

    def commit(self, group: str, number: int, producer_id: int) -> None:
        value = OffsetCommitValue(offset=len(self.log), commit_timestamp=self.now_ms)
        producer = None if producer_id == NO_PRODUCER else Producer(producer_id=producer_id, epoch=0)
        partition = TopicPartition(f"t{number}", 0)
        known = self.groups.get(group)
        members = () if known is None else known.members
        member_id, generation = next(((each.member_id, self.groups[group].generation) for each in members), ("", -1))
        request = CommitRequest(
            values={partition: value}, producer=producer, member_id=member_id, generation=generation
        )
        self.handle(group, request)

    def mark(self, producer_id: int, committed: bool) -> None:
        self.machine.end_transaction(producer_id, committed=committed)
        self.log.append(Entry(len(self.log), producer_id, None, committed))

    def join(self, group: str, name: str) -> None:
        known = group in self.groups and name in self.groups[group].members
        request = JoinRequest(
            member_id=name if known else "", new_member_id=name, session_timeout_ms=1_000, rebalance_timeout_ms=1_000,
            protocol_type="x", protocols=(("p", b""),), requires_member_id=False, can_skip_assignment=True,
        )  # fmt: skip
        self.handle(group, request)

    def sync(self, group: str, name: str) -> None:
        if group in self.groups:
            generation = self.groups[group].generation
            self.handle(group, SyncRequest(member_id=name, generation=generation, assignments=((name, b"assigned"),)))

    def leave(self, group: str, name: str) -> None:
        self.handle(group, LeaveRequest(members=(LeavingMember(member_id=name),)))

    def delete(self, group: str) -> None:
        self.handle(group, DeleteGroupRequest())

    def delete_offset(self, group: str, number: int) -> None:
        self.handle(group, DeleteOffsetsRequest(partitions=(TopicPartition(f"t{number}", 0),)))

    def recreate_topic(self, number: int) -> None:
        name, self.topic_version = f"t{number}", self.topic_version + 1
        old, new = image(name, version=self.topic_version - 1), image(name, version=self.topic_version)
        for result in self.machine.on_image(old, new, self.now):
            self.take(result)

    def wait(self, days: int) -> None:
        self.now_ms += days * 24 * 3_600_000 + 2_000
        while (result := self.machine.expire(self.now)) is not None:
            self.take(result)


def replayed(entries: list[Entry]) -> GroupCoordinatorMachine:
    machine = new_machine()
    for entry in entries:
        if entry.record is None:
            machine.end_transaction(entry.producer_id, committed=entry.committed)
        else:
            record = CODEC.decode(*CODEC.encode(entry.record))
            assert record == entry.record
            machine.apply(record, entry.offset, entry.producer_id)
    return machine


def compacted(entries: list[Entry]) -> list[Entry]:
    """Return what a log cleaner leaves: of each key the last record, up to the first one of an open transaction."""
    started: dict[int, int] = {}
    aborted: set[int] = set()
    of_transaction: dict[int, list[int]] = {}
    for entry in entries:
        if entry.record is None:
            if not entry.committed:
                aborted.update(of_transaction.get(entry.producer_id, ()))
            of_transaction.pop(entry.producer_id, None)
            started.pop(entry.producer_id, None)
        elif entry.producer_id != NO_PRODUCER:
            started.setdefault(entry.producer_id, entry.offset)
            of_transaction.setdefault(entry.producer_id, []).append(entry.offset)
    stable_offset = min(started.values(), default=len(entries))
    last: dict[Any, int] = {}
    for entry in entries[:stable_offset]:
        if entry.record is not None and entry.offset not in aborted:
            last[CODEC.encode(entry.record)[0]] = entry.offset
    return [
        entry
        for entry in entries
        if entry.offset >= stable_offset
        or entry.record is None
        or (entry.offset not in aborted and last[CODEC.encode(entry.record)[0]] == entry.offset)
    ]


def durable(machine: GroupCoordinatorMachine) -> dict[str, Any]:
    return {
        name: (
            group.record,
            dict(group.assignments),
            dict(machine.offsets.of(name)),
            set(machine.offsets.pending(name)),
        )
        for name, group in classic_groups(machine).items()
        if group.record is not None or machine.offsets.partitions(name)
    }


GROUP, NUMBER, NAME = st.sampled_from(GROUPS), st.integers(0, 1), st.sampled_from(("m", "n"))
COMMIT = st.tuples(st.just("commit"), GROUP, NUMBER, st.sampled_from((NO_PRODUCER, 7, 8)))
MARK = st.tuples(st.just("mark"), st.sampled_from((7, 8)), st.booleans())
OPERATION = st.one_of(
    *(COMMIT, COMMIT, MARK),
    st.tuples(st.just("join"), GROUP, NAME),
    st.tuples(st.just("sync"), GROUP, NAME),
    st.tuples(st.just("leave"), GROUP, NAME),
    st.tuples(st.just("delete"), GROUP),
    st.tuples(st.just("delete_offset"), GROUP, NUMBER),
    st.tuples(st.just("recreate_topic"), NUMBER),
    st.tuples(st.just("wait"), st.sampled_from((0, 0, 8))),
)


@hypothesis.settings(max_examples=80)
@hypothesis.given(st.lists(OPERATION, min_size=10, max_size=60))
def test_replay_gives_the_durable_state_that_requests_left(operations: list[tuple[Any, ...]]) -> None:
    at = Scene()
    for name, *arguments in operations:
        getattr(at, name)(*arguments)
    assert durable(replayed(at.log)) == durable(at.machine)
    assert durable(replayed(compacted(at.log))) == durable(at.machine)
