"""Sessions are limited in number, and give way by Kafka's rules (KIP-227)."""

import random

import pytest

from odradek.broker.serving.fetch_sessions import FetchContext, FetchSessions, FetchTarget, PartitionKey
from odradek.model import ErrorCode, KafkaError


def targets(count: int) -> list[FetchTarget]:
    return [FetchTarget(PartitionKey("t", number), fetch_offset=number) for number in range(count)]


def sessions_of(slots: int, most_partitions: int = 1000) -> FetchSessions:
    return FetchSessions(slots=slots, most_partitions=most_partitions, entropy=random.Random(1))


def begin(sessions: FetchSessions, count: int, now: float) -> FetchContext:
    return sessions.open(0, 0, targets(count), (), uses_topic_ids=False, now=now)


def go_on(sessions: FetchSessions, session_id: int, epoch: int, now: float, *wanted: FetchTarget) -> FetchContext:
    return sessions.open(session_id, epoch, wanted, (), uses_topic_ids=False, now=now)


def test_a_full_cache_opens_no_further_session() -> None:
    sessions = sessions_of(slots=2)
    assert begin(sessions, 5, 0).session_id
    assert begin(sessions, 5, 1).session_id
    late = begin(sessions, 50, 100)
    assert (late.session_id, len(late.targets), late.incremental) == (0, 50, False)


def test_a_session_unused_for_two_minutes_gives_way() -> None:
    sessions = sessions_of(slots=2)
    old, used = begin(sessions, 5, 0).session_id, begin(sessions, 5, 0).session_id
    go_on(sessions, used, 1, 119)
    assert begin(sessions, 1, 121).session_id
    with pytest.raises(KafkaError) as failure:
        go_on(sessions, old, 1, 122)
    assert failure.value.code == ErrorCode.fetch_session_id_not_found
    assert go_on(sessions, used, 2, 122).session_id == used


def test_after_two_minutes_a_smaller_session_gives_way_to_a_larger_one() -> None:
    sessions = sessions_of(slots=2)
    small, large = begin(sessions, 2, 0).session_id, begin(sessions, 20, 0).session_id
    for session_id in (small, large):
        go_on(sessions, session_id, 1, 119)
    assert not begin(sessions, 2, 130).session_id
    assert begin(sessions, 3, 130).session_id
    assert go_on(sessions, large, 2, 131).session_id == large
    assert len(sessions) == 2


def test_sessions_that_remember_too_much_together_are_not_opened_until_one_was_unused_for_two_minutes() -> None:
    sessions = sessions_of(slots=9, most_partitions=100)
    used, unused = begin(sessions, 60, 0).session_id, begin(sessions, 20, 0).session_id
    assert not begin(sessions, 101, 500).session_id
    go_on(sessions, used, 1, 119)
    assert not begin(sessions, 30, 120).session_id
    assert sessions.partition_count == 80
    assert begin(sessions, 30, 121).session_id
    assert sessions.partition_count == 90
    with pytest.raises(KafkaError):
        go_on(sessions, unused, 1, 121)


def test_a_session_that_adds_too_many_partitions_is_lost_and_its_client_begins_again() -> None:
    sessions = sessions_of(slots=9, most_partitions=100)
    session_id = begin(sessions, 60, 0).session_id
    with pytest.raises(KafkaError) as failure:
        go_on(sessions, session_id, 1, 1, *targets(101))
    assert failure.value.code == ErrorCode.fetch_session_id_not_found
    assert (len(sessions), sessions.partition_count) == (0, 0)


def test_partitions_are_counted_as_they_come_and_go() -> None:
    sessions = sessions_of(slots=9)
    session_id = begin(sessions, 10, 0).session_id
    sessions.open(session_id, 1, targets(12), [PartitionKey("t", 0)], uses_topic_ids=False, now=1)
    assert sessions.partition_count == 11
    sessions.open(session_id, -1, (), (), uses_topic_ids=False, now=2)
    assert sessions.partition_count == 0


def test_no_slots_mean_no_sessions() -> None:
    assert not begin(sessions_of(slots=0), 5, 0).session_id


def test_epochs_begin_again_at_one_after_the_largest() -> None:
    sessions = sessions_of(slots=1)
    context = begin(sessions, 1, 0)
    assert context.session is not None
    context.session.next_epoch = 2**31 - 1
    assert go_on(sessions, context.session_id, 2**31 - 1, 1).incremental
    assert go_on(sessions, context.session_id, 1, 2).incremental


def test_a_partition_that_gave_records_comes_last_the_next_time() -> None:
    sessions = sessions_of(slots=1)
    context = begin(sessions, 3, 0)
    assert context.session is not None
    context.session.served(PartitionKey("t", 0))
    again = go_on(sessions, context.session_id, 1, 1)
    assert [key.partition for key in again.targets] == [1, 2, 0]


def test_a_request_changes_what_it_names_and_leaves_the_rest() -> None:
    sessions = sessions_of(slots=1)
    session_id = begin(sessions, 2, 0).session_id
    changed = FetchTarget(PartitionKey("t", 1), fetch_offset=99, max_bytes=5, current_leader_epoch=3)
    again = go_on(sessions, session_id, 1, 1, changed)
    assert [(each.fetch_offset, each.max_bytes) for each in again.targets.values()] == [(0, 0), (99, 5)]
    assert again.targets[changed.key].current_leader_epoch == 3


def test_a_follower_gets_the_high_watermark_again_after_its_leader_epoch_changed() -> None:
    """The follower may have dropped the response with the high watermark of the previous epoch."""
    sessions = sessions_of(slots=1)
    context = begin(sessions, 2, 0)
    for target in context.targets.values():
        target.high_watermark = 7
    changed = [FetchTarget(PartitionKey("t", number), current_leader_epoch=number - 1) for number in range(2)]
    again = go_on(sessions, context.session_id, 1, 1, *changed)
    assert [each.high_watermark for each in again.targets.values()] == [7, -1]


def test_a_session_without_partitions_is_closed() -> None:
    sessions = sessions_of(slots=1)
    session_id = begin(sessions, 1, 0).session_id
    over = sessions.open(session_id, 1, (), [PartitionKey("t", 0)], uses_topic_ids=False, now=1)
    assert (over.session_id, len(sessions)) == (0, 0)


def test_a_session_has_at_most_the_partitions_that_its_client_may_have() -> None:
    sessions = sessions_of(slots=2)
    assert not sessions.open(0, 0, targets(4), (), uses_topic_ids=False, now=0, most=3).session_id
    session_id = sessions.open(0, 0, targets(2), (), uses_topic_ids=False, now=0, most=3).session_id
    with pytest.raises(KafkaError) as failure:
        sessions.open(session_id, 1, targets(4), (), uses_topic_ids=False, now=0, most=3)
    assert failure.value.code == ErrorCode.fetch_session_id_not_found
    assert len(sessions) == sessions.partition_count == 0
