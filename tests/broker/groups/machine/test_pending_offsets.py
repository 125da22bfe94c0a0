"""Pending offsets of open transactions: deletion, deleted topics, markers, and what each of them costs (M8)."""

import gc
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest

from odradek.broker.coordinators.machine import NO_PRODUCER, CoordinatorResult, Now, Producer
from odradek.broker.groups.machine import group_coordinator_machine
from odradek.broker.groups.machine.classic.classic_group import GroupSettings
from odradek.broker.groups.machine.group_coordinator_machine import GroupCoordinatorMachine, OffsetSettings
from odradek.broker.groups.machine.messages import (
    CommitRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    FetchOffsetsRequest,
)
from odradek.broker.groups.machine.records import GroupMetadataRecord, GroupRecord, OffsetCommitRecord
from odradek.metadata.image import ClusterImage, TopicImage
from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.internal_records.group_records import GroupMetadataValue, OffsetCommitValue
from tests.broker.groups.machine.machine_log import classic_groups

NOW = Now(0, 0)
PRODUCER = 7


class Scene:
    """A machine whose records are applied as a coordinator does it."""

    def __init__(self) -> None:
        self.machine = GroupCoordinatorMachine(GroupSettings, OffsetSettings)
        self.next_offset = 0

    def apply(self, record: GroupRecord, producer_id: int = NO_PRODUCER) -> None:
        self.machine.apply(record, self.next_offset, producer_id)
        self.next_offset += 1

    def commit(self, group: str, number: int, offset: int, producer_id: int = NO_PRODUCER, topic: str = "t") -> None:
        value = OffsetCommitValue(offset=offset, commit_timestamp=0)
        self.apply(OffsetCommitRecord(group, TopicPartition(topic, number), value), producer_id)

    def take(self, result: CoordinatorResult[GroupRecord]) -> Any:
        """Apply a result's records, and return the reply, if any."""
        for record in result.records:
            self.apply(record)
        return result.replies[0].value if result.replies else None

    def offsets(self, group: str) -> dict[int, int]:
        fetched = self.take(self.machine.handle(group, FetchOffsetsRequest(), None, NOW))
        return {number: value.offset for (_, number), value in fetched.values.items()}


def test_a_deleted_group_has_no_offsets_when_a_transaction_commits_later() -> None:
    at = Scene()
    at.commit("g", 0, 1)
    at.commit("g", 0, 2, PRODUCER)
    at.commit("g", 1, 3, PRODUCER)
    at.take(at.machine.handle("g", DeleteGroupRequest(), object(), NOW))
    at.machine.end_transaction(PRODUCER, committed=True)
    assert (at.machine.groups.by_id, at.offsets("g")) == ({}, {})


@pytest.mark.parametrize("last", [NO_PRODUCER, PRODUCER + 1])
def test_a_transaction_does_not_replace_an_offset_that_was_recorded_after_its_own(last: int) -> None:
    at = Scene()
    at.commit("g", 0, 1)
    at.commit("g", 0, 2, PRODUCER)
    at.commit("g", 0, 3, last)
    at.machine.end_transaction(PRODUCER + 1, committed=True)
    at.machine.end_transaction(PRODUCER, committed=True)
    assert at.offsets("g") == {0: 3}
    at.commit("g", 0, 4, PRODUCER)
    at.machine.end_transaction(PRODUCER, committed=True)
    assert at.offsets("g") == {0: 4}


def test_a_transaction_has_a_limit_of_offsets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its end applies all of them at once."""
    monkeypatch.setattr(group_coordinator_machine, "MOST_PENDING", 4)
    at = Scene()

    def commit(group: str, count: int, producer_id: int) -> object:
        values = {
            TopicPartition("t", number): OffsetCommitValue(offset=1, commit_timestamp=0) for number in range(count)
        }
        producer = Producer(producer_id=producer_id, epoch=0)
        result = at.machine.handle(group, CommitRequest(values=values, producer=producer), object(), NOW)
        for record in result.records:
            at.apply(record, producer_id)
        return result.replies[0].value

    assert commit("g", 3, PRODUCER) is ErrorCode.none
    assert commit("h", 2, PRODUCER) is ErrorCode.invalid_commit_offset_size
    assert commit("h", 2, PRODUCER + 1) is ErrorCode.none
    assert commit("h", 1, PRODUCER) is ErrorCode.none
    at.machine.end_transaction(PRODUCER, committed=True)
    assert commit("g", 4, PRODUCER) is ErrorCode.none


def test_a_pending_offset_can_be_deleted() -> None:
    at = Scene()
    at.commit("g", 0, 2, PRODUCER)
    at.commit("g", 1, 3, PRODUCER)
    at.take(at.machine.handle("g", DeleteOffsetsRequest(partitions=(TopicPartition("t", 0),)), object(), NOW))
    at.machine.end_transaction(PRODUCER, committed=True)
    assert at.offsets("g") == {1: 3}


def test_offsets_of_a_group_whose_record_was_deleted_keep_a_group_that_can_be_listed_and_expire() -> None:
    """As of a log in which Kafka has turned a classic group into one of another kind."""
    at = Scene()
    value = GroupMetadataValue(protocol_type="consumer", generation=3, protocol=None, leader=None)
    at.commit("g", 0, 1)
    at.apply(GroupMetadataRecord("g", value))
    at.apply(GroupMetadataRecord("g", None))
    assert classic_groups(at.machine)["g"].generation == 0
    at.apply(OffsetCommitRecord("g", TopicPartition("t", 0), None))
    assert classic_groups(at.machine)["g"].is_unused
    at.apply(GroupMetadataRecord("g", None))
    assert at.machine.groups.by_id == {}


def test_a_committed_transaction_has_a_group_for_its_offsets_though_the_record_of_the_group_was_deleted() -> None:
    at = Scene()
    at.commit("g", 0, 1, PRODUCER)
    at.apply(GroupMetadataRecord("g", None))
    at.machine.end_transaction(PRODUCER, committed=True)
    assert list(at.machine.groups.by_id) == ["g"]
    assert at.offsets("g") == {0: 1}


def image(**topics: int) -> ClusterImage:
    found = {name: TopicImage(name=name, topic_id=UUID(int=number), partitions={}) for name, number in topics.items()}
    return ClusterImage(topics=found)


@pytest.mark.parametrize("later", [{"u": 2}, {"t": 3, "u": 2}], ids=["deleted", "created again"])
def test_pending_offsets_of_a_deleted_topic_do_not_become_valid(later: dict[str, int]) -> None:
    at = Scene()
    at.commit("g", 0, 1, PRODUCER)
    at.commit("g", 0, 5, PRODUCER, topic="u")
    for result in at.machine.on_image(image(t=1, u=2), image(**later), NOW):
        at.take(result)
    at.machine.end_transaction(PRODUCER, committed=True)
    assert {topic for topic, _ in at.machine.offsets.of("g")} == {"u"}


def test_between_the_results_of_an_image_a_topic_that_was_created_again_has_no_offsets_and_takes_none() -> None:
    at = Scene()
    for group in "gh":
        for number, topic in enumerate("tu"):
            at.commit(group, number, 1, topic=topic)
    results = at.machine.on_image(image(t=1, u=2), image(t=3, u=2), NOW)
    at.take(next(results))
    assert [at.offsets(group) for group in "gh"] == [{1: 1}, {1: 1}]
    value = OffsetCommitValue(offset=5, commit_timestamp=0)
    request = CommitRequest(values={TopicPartition("t", 0): value})
    codes = [at.take(at.machine.handle(group, request, object(), NOW)) for group in "gh"]
    assert codes == [ErrorCode.none, ErrorCode.coordinator_load_in_progress]
    for result in results:
        at.take(result)
    assert [at.offsets(group) for group in "gh"] == [{0: 5, 1: 1}, {1: 1}]
    assert at.take(at.machine.handle("h", request, object(), NOW)) is ErrorCode.none


class Unread(dict[str, Any]):
    """A mapping that is too large to be walked through."""

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("walked through")

    keys = values = items = __iter__  # type: ignore[assignment]


@pytest.mark.parametrize("committed", [False, True])
def test_a_marker_does_not_look_at_groups_outside_its_transaction(committed: bool) -> None:
    at = Scene()
    at.commit("other", 0, 1)
    at.commit("g", 0, 1, PRODUCER)
    at.machine.groups.by_id = Unread(at.machine.groups.by_id)
    at.machine.end_transaction(PRODUCER, committed=committed)
    assert at.offsets("g") == ({0: 1} if committed else {})
    assert "g" in at.machine.groups.by_id


def test_a_new_image_costs_as_much_as_there_are_topics_with_offsets() -> None:
    at = Scene()
    at.commit("g", 0, 1)
    old, new = image(t=1), image()
    unread = [ClusterImage(topics=Unread(each.topics)) for each in (old, new)]
    for result in at.machine.on_image(*unread, NOW):
        at.take(result)
    assert at.offsets("g") == {}


class CountedId(int):
    """A producer id that counts its uses as a key."""

    uses = 0

    def __hash__(self) -> int:
        CountedId.uses += 1
        return int.__hash__(self)


@pytest.mark.parametrize("request_type", [FetchOffsetsRequest, DeleteOffsetsRequest, None])
def test_partitions_without_pending_offsets_cost_the_same_with_many_transactions(request_type: Any) -> None:
    at, partitions = Scene(), tuple(TopicPartition("u", number) for number in range(100))
    for number in range(50):
        at.commit("g", 0, 1, CountedId(PRODUCER + number))
    for number in range(100):
        at.commit("g", number, 1, topic="u")
    CountedId.uses = 0
    if request_type is FetchOffsetsRequest:
        request = FetchOffsetsRequest(partitions=(TopicPartition("t", 0), *partitions), require_stable=True)
        found = at.take(at.machine.handle("g", request, object(), NOW))
        assert (found.unstable, found.values.keys()) == ({TopicPartition("t", 0)}, set(partitions))
    elif request_type is DeleteOffsetsRequest:
        at.take(at.machine.handle("g", DeleteOffsetsRequest(partitions=partitions), object(), NOW))
        assert at.offsets("g") == {}
    else:
        ages: dict[str, Any] = {"idle_since_ms": 0, "subscribed": (), "now_ms": 2, "retention_ms": 1, "most": 1000}
        assert at.machine.offsets.expired("g", **ages) == list(partitions)
    assert CountedId.uses == 0


@pytest.fixture
def few_deleted(monkeypatch: pytest.MonkeyPatch) -> int:
    monkeypatch.setattr(group_coordinator_machine, "MOST_DELETED", 10)
    return 10


def test_a_group_is_deleted_in_parts_and_closed_meanwhile(few_deleted: int) -> None:
    at, to = Scene(), object()
    for number in range(35):
        at.commit("g", number, 1, PRODUCER if number % 7 == 0 else NO_PRODUCER)
    result = at.machine.handle("g", DeleteGroupRequest(), to, NOW)
    parts = 0
    while not result.replies:
        assert len(result.records) <= few_deleted
        at.take(result)
        refused = at.take(at.machine.handle("g", FetchOffsetsRequest(), object(), NOW))
        assert refused.code is ErrorCode.coordinator_load_in_progress
        assert at.machine.next_deadline_ms == 0
        following = at.machine.expire(NOW)
        assert following is not None
        result, parts = following, parts + 1
    assert (parts, result.replies[0].to) == (3, to)
    assert [(each.count, each.with_group) for each in result.events] == [(35, True)]
    assert at.take(result) is ErrorCode.none
    assert (at.machine.groups.by_id, at.offsets("g"), at.machine.next_deadline_ms) == ({}, {}, None)


def test_a_deletion_whose_part_is_not_appended_ends(few_deleted: int) -> None:
    at = Scene()
    for number in range(2 * few_deleted):
        at.commit("g", number, 1)
    at.machine.handle("g", DeleteGroupRequest(), object(), NOW)
    at.take(at.machine.reset("g", NOW))
    assert len(at.offsets("g")) == 2 * few_deleted
    assert at.machine.expire(NOW) is None


def test_offsets_expire_in_parts(few_deleted: int) -> None:
    at, later = Scene(), Now(10**10, 10**10)
    list(at.machine.on_elected(ClusterImage(), NOW))
    for number in range(35):
        at.commit("g", number, 1)
    sizes = []
    while (result := at.machine.expire(later)) is not None:
        sizes.append(len(result.records))
        at.take(result)
    assert [each for each in sizes if each] == [few_deleted, few_deleted, few_deleted, 6]  # the last one is the group
    assert at.machine.groups.by_id == {}


def test_a_part_that_cannot_be_deleted_waits_for_the_next_check(few_deleted: int) -> None:
    at, later = Scene(), Now(10**10, 10**10)
    for number in range(35):
        at.commit("g", number, 1)
    list(at.machine.on_elected(ClusterImage(), NOW))
    tries = 0
    while (result := at.machine.expire(later)) is not None:
        tries += bool(result.records)
    assert tries == 1


def test_offsets_of_a_deleted_topic_are_deleted_in_parts(few_deleted: int) -> None:
    at = Scene()
    for number in range(35):
        at.commit("g", number, 1)
    at.commit("g", 0, 1, topic="u")
    sizes = []
    for result in at.machine.on_image(image(t=1, u=1), image(u=1), NOW):
        at.take(result)
        sizes.append((len(result.records), result.is_continued))
        if result.is_continued:
            value = {TopicPartition("t", 0): OffsetCommitValue(offset=1, commit_timestamp=0)}
            refused = at.machine.handle("g", CommitRequest(values=value), object(), NOW)
            assert at.take(refused) is ErrorCode.coordinator_load_in_progress
    assert sizes == [(few_deleted, True), (few_deleted, True), (few_deleted, True), (5, False)]
    assert at.offsets("g") == {0: 1}


def test_the_garbage_collector_does_not_go_over_offsets_and_their_groups() -> None:
    at = Scene()
    gc.collect()
    before = len(gc.get_objects())
    for number in range(1000):
        at.commit("g", number, 1)
        at.commit("g", number, 2, PRODUCER)
        at.commit(f"g{number}", 0, 1)
    gc.collect()
    assert len(gc.get_objects()) - before < 100
