"""The rules of commits and ISR membership (M1): tables, and a model of a leader with lossy followers."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.broker.replication.machine.leader import LeaderReplication

LAG_MS = 30_000


def leader(*, isr=(1, 2, 3), end=100, high_watermark=100, start=100, now_ms=0) -> LeaderReplication:
    made = LeaderReplication(
        broker_id=1,
        replicas=(1, 2, 3),
        isr=isr,
        leader_epoch=5,
        partition_epoch=7,
        start_offset=start,
        high_watermark=high_watermark,
        now_ms=now_ms,
    )
    made.log_end_offset = end
    return made


def advance(machine: LeaderReplication, *, now_ms: int = 0, min_isr: int = 1) -> int:
    machine.advance(now_ms=now_ms, max_lag_ms=LAG_MS, min_isr=min_isr)
    return machine.high_watermark


def fetch(machine: LeaderReplication, replica: int, offset: int, now_ms: int = 0) -> int:
    machine.fetched(replica, offset, log_start_offset=0, now_ms=now_ms)
    return advance(machine, now_ms=now_ms)


def test_records_that_every_isr_member_has_are_committed() -> None:
    machine = leader(end=110)
    assert fetch(machine, 2, 110) == 100
    assert fetch(machine, 3, 105) == 105
    assert fetch(machine, 3, 110) == 110


@pytest.mark.parametrize("partition_epoch", [6, 7])
def test_a_leader_that_continues_in_its_epoch_keeps_its_start_offset(partition_epoch: int) -> None:
    """The end offset that it returned for the previous epoch stays the same after more writes."""
    before, machine = leader(start=100, end=110), leader(start=110, end=110)
    before.partition_epoch = partition_epoch
    machine.resume(before)
    assert machine.start_offset == 100
    machine.resume(leader(start=90))
    assert machine.start_offset == 90
    other = leader(start=80)
    other.leader_epoch = 4
    machine.resume(other)
    assert machine.start_offset == 90


def test_a_lagging_follower_outside_the_isr_does_not_delay_commits() -> None:
    machine = leader(isr=(1, 2), end=110)
    machine.fetched(3, 0, log_start_offset=0, now_ms=0)
    assert fetch(machine, 2, 110) == 110


def test_a_follower_joining_the_isr_counts_before_the_controller_answers() -> None:
    machine = leader(isr=(1, 2), end=100)
    assert fetch(machine, 3, 100) == 100
    assert machine.appended(110, now_ms=1, max_lag_ms=LAG_MS, min_isr=1) is False
    assert fetch(machine, 2, 110, now_ms=1) == 100
    assert fetch(machine, 3, 105, now_ms=2) == 105


def test_a_follower_that_cannot_join_does_not_delay_commits() -> None:
    """It was caught up a moment ago, and is about to stop, or is dead."""
    machine = leader(isr=(1, 2), end=100)
    fetch(machine, 3, 100)
    change = machine.propose_join(3)
    assert change is not None
    machine.appended(110, now_ms=1, max_lag_ms=LAG_MS, min_isr=1)
    assert fetch(machine, 2, 110, now_ms=1) == 100, "it may have joined"
    machine.refused(change)
    assert advance(machine, now_ms=2) == 110
    machine.updated(replicas=(1, 2, 3), isr=(1, 2), partition_epoch=8, now_ms=3)
    fetch(machine, 3, 110, now_ms=3)
    machine.appended(120, now_ms=4, max_lag_ms=LAG_MS, min_isr=1)
    assert fetch(machine, 2, 120, now_ms=4) == 110, "it may join now"
    assert machine.advance(now_ms=5, max_lag_ms=LAG_MS, min_isr=1, live={1, 2})
    assert machine.high_watermark == 120


def test_a_follower_behind_the_high_watermark_does_not_delay_commits() -> None:
    machine = leader(isr=(1, 2), end=100)
    fetch(machine, 3, 100)
    machine.fetched(3, 50, log_start_offset=0, now_ms=1)
    machine.appended(110, now_ms=1, max_lag_ms=LAG_MS, min_isr=1)
    assert fetch(machine, 2, 110, now_ms=1) == 110


def test_the_high_watermark_never_decreases() -> None:
    machine = leader(end=110)
    fetch(machine, 2, 110)
    assert fetch(machine, 3, 110) == 110
    assert fetch(machine, 3, 90) == 110


def test_below_min_insync_replicas_nothing_is_committed() -> None:
    machine = leader(isr=(1,), end=110)
    assert advance(machine, min_isr=2) == 100
    assert advance(machine, min_isr=1) == 110


@pytest.mark.parametrize(
    ("fetched", "high_watermark", "joins"),
    [(100, 100, True), (99, 100, False), (105, 110, False), (110, 110, True), (120, 110, True)],
)
def test_a_follower_joins_when_it_reaches_the_high_watermark(fetched, high_watermark, joins) -> None:
    machine = leader(isr=(1, 2), end=120, high_watermark=high_watermark)
    machine.fetched(3, fetched, log_start_offset=0, now_ms=0)
    change = machine.propose_join(3)
    assert (change is not None) is joins
    if change is not None:
        assert (change.isr, change.leader_epoch, change.partition_epoch) == ((1, 2, 3), 5, 7)


def test_a_follower_joins_only_beyond_the_start_of_the_leader_epoch() -> None:
    machine = leader(isr=(1, 2), end=120, high_watermark=90, start=100)
    machine.fetched(3, 95, log_start_offset=0, now_ms=0)
    assert machine.propose_join(3) is None


def test_lagging_members_leave_the_isr_and_the_leader_stays() -> None:
    machine = leader(end=110)
    machine.fetched(2, 110, log_start_offset=0, now_ms=10)
    assert machine.propose_leave(now_ms=LAG_MS, max_lag_ms=LAG_MS) is None
    change = machine.propose_leave(now_ms=LAG_MS + 1, max_lag_ms=LAG_MS)
    assert change.isr == (1, 2)
    assert machine.isr == (1, 2, 3), "the change is only pending"


def test_a_caught_up_member_does_not_lag_however_long_it_is_silent() -> None:
    machine = leader(end=100)
    fetch(machine, 2, 100)
    fetch(machine, 3, 100)
    assert machine.propose_leave(now_ms=10 * LAG_MS, max_lag_ms=LAG_MS) is None


def test_a_member_that_keeps_pace_with_a_busy_leader_does_not_lag() -> None:
    """It never has everything, but it always has what there was at its last fetch."""
    machine = leader(end=110)
    for step in range(1, 100):
        now_ms = step * 1_000
        for replica in (2, 3):
            machine.fetched(replica, 100 + 10 * (step - 1), log_start_offset=0, now_ms=now_ms)
        assert machine.propose_leave(now_ms=now_ms, max_lag_ms=5_000) is None
        machine.log_end_offset = 110 + 10 * step


def test_a_repeated_fetch_from_the_end_keeps_a_member_in_sync_while_the_log_grows() -> None:
    machine = leader(end=100)
    fetch(machine, 2, 100)
    fetch(machine, 3, 100)
    assert machine.fetched_again(2, 100, broker_epoch=-1, now_ms=2 * LAG_MS)
    machine.log_end_offset = 110
    assert list(machine.lagging(now_ms=2 * LAG_MS + 1, max_lag_ms=LAG_MS)) == [3]


@pytest.mark.parametrize(
    "changes", [{"replica": 4}, {"isr": (1, 3)}, {"offset": 99}, {"end": 110}, {"broker_epoch": 8}, {"is_first": True}]
)
def test_a_fetch_that_may_change_something_is_not_a_repeated_one(changes) -> None:
    machine = leader(end=100)
    if not changes.get("is_first"):
        fetch(machine, 2, 100)
    machine.isr = changes.get("isr", machine.isr)
    machine.log_end_offset = changes.get("end", machine.log_end_offset)
    replica, offset, epoch = (changes.get(*each) for each in (("replica", 2), ("offset", 100), ("broker_epoch", -1)))
    assert not machine.fetched_again(replica, offset, broker_epoch=epoch, now_ms=1)


def test_while_an_isr_change_is_pending_both_isrs_must_have_a_record() -> None:
    machine = leader(isr=(1, 2), end=110, high_watermark=100)
    machine.fetched(3, 100, log_start_offset=0, now_ms=0)
    change = machine.propose_join(3)
    assert machine.maximal_isr == (1, 2, 3)
    assert fetch(machine, 2, 110, now_ms=2 * LAG_MS) == 100, "the one that may be a member has not got it"
    machine.refused(change)
    assert advance(machine, now_ms=2 * LAG_MS) == 110


def test_a_member_that_may_have_left_still_counts() -> None:
    machine = leader(end=110)
    fetch(machine, 2, 110)
    change = machine.propose_leave(now_ms=LAG_MS + 1, max_lag_ms=LAG_MS)
    assert change.isr == (1, 2)
    assert advance(machine) == 100
    assert machine.accepted(change, isr=(1, 2), partition_epoch=8)
    assert advance(machine, now_ms=LAG_MS + 1) == 110


def test_an_alter_partition_response_older_than_the_known_state_is_ignored() -> None:
    machine = leader()
    machine.fetched(2, 100, log_start_offset=0, now_ms=0)
    machine.log_end_offset = 110
    change = machine.propose_leave(now_ms=2 * LAG_MS, max_lag_ms=LAG_MS)
    assert machine.updated(replicas=(1, 2, 3), isr=(1, 2, 3), partition_epoch=9, now_ms=0)
    assert machine.pending is None
    assert not machine.accepted(change, isr=(1,), partition_epoch=8)
    assert (machine.isr, machine.partition_epoch) == ((1, 2, 3), 9)


def test_a_known_partition_state_does_not_end_a_pending_isr_change() -> None:
    machine = leader(end=110)
    change = machine.propose_leave(now_ms=LAG_MS + 1, max_lag_ms=LAG_MS)
    assert not machine.updated(replicas=(1, 2, 3), isr=(1, 2, 3), partition_epoch=7, now_ms=0)
    assert machine.pending is change


def test_adding_and_removing_replicas_keeps_the_state_of_the_others() -> None:
    machine = leader(end=110)
    machine.fetched(2, 110, log_start_offset=0, now_ms=0)
    assert machine.updated(replicas=(1, 2, 4), isr=(1, 2), partition_epoch=8, now_ms=0)
    assert machine.remotes[2].log_end_offset == 110
    assert 3 not in machine.remotes
    machine.fetched(3, 110, log_start_offset=0, now_ms=0)
    assert advance(machine) == 110


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("append"), st.integers(1, 5)),
            st.tuples(st.just("fetch"), st.sampled_from([2, 3])),
            st.tuples(st.just("restart"), st.sampled_from([2, 3])),
            st.tuples(st.just("time"), st.integers(1, 2 * LAG_MS)),
            st.tuples(st.just("join"), st.sampled_from([2, 3])),
            st.tuples(st.just("leave"), st.just(0)),
            st.tuples(st.just("answer"), st.booleans()),
        ),
        max_size=60,
    )
)
def test_committed_records_are_on_every_member_of_any_isr_that_may_have_been_written(steps) -> None:
    """M1: safety of an election: every member of an ISR that may have been written has all committed records."""
    machine = leader(end=0, high_watermark=0, start=0)
    has = {1: 0, 2: 0, 3: 0}
    written = [(1, 2, 3)]
    now_ms = 0
    for what, argument in steps:
        if what == "append":
            has[1] += argument
            machine.appended(has[1], now_ms=now_ms, max_lag_ms=LAG_MS, min_isr=1)
        elif what == "fetch":
            machine.fetched(argument, has[argument], log_start_offset=0, now_ms=now_ms)
            advance(machine, now_ms=now_ms)
            has[argument] = has[1]
        elif what == "restart" and has[argument] > max(0, machine.remotes[argument].log_end_offset):
            has[argument] -= 1  # what it has fetched and not yet said so
        elif what == "time":
            now_ms += argument
        elif what == "join":
            change = machine.propose_join(argument)
            if change is not None:
                written.append(change.isr)
        elif what == "leave":
            change = machine.propose_leave(now_ms=now_ms, max_lag_ms=LAG_MS)
            if change is not None:
                written.append(change.isr)
        elif what == "answer" and machine.pending is not None:
            change = machine.pending
            if argument:
                assert machine.accepted(change, isr=change.isr, partition_epoch=machine.partition_epoch + 1)
                written = [change.isr]
            else:
                machine.refused(change)
                written = [machine.isr]
        advance(machine, now_ms=now_ms)
        for isr in written:
            for member in isr:
                assert has[member] >= machine.high_watermark


def test_the_low_watermark_waits_for_live_and_for_in_sync_followers() -> None:
    machine = leader(isr=(1, 2))
    assert machine.low_watermark(40, live={1, 2, 3}) == -1, "no follower has fetched"
    machine.fetched(2, 100, log_start_offset=40, now_ms=0)
    machine.fetched(3, 50, log_start_offset=10, now_ms=0)
    assert machine.low_watermark(40, live={1, 2, 3}) == 10
    assert machine.low_watermark(40, live={1, 2}) == 40
    assert machine.low_watermark(30, live={1, 2}) == 30, "the leader may have deleted less"
    assert leader(isr=(1,)).low_watermark(30, live=()) == 30
    machine.fetched(2, 100, log_start_offset=20, now_ms=0)
    assert machine.low_watermark(40, live={1}) == 20, "a dead member of the ISR may return and lead"
