"""Batches of a stream in a group: what is read, and what is committed when."""

from collections.abc import Callable, Collection, Mapping

import pytest

from odradek.clients.group_stream import Batch, GroupStream, Offsets
from odradek.model import TopicPartition, UnavailableError
from odradek.simulation.virtual.clock import VirtualClock

pytestmark = pytest.mark.asyncio

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
INTERVAL_S = 60.0


class Group:
    """The ends of the partitions' logs, which begin at 0, and the committed offsets."""

    def __init__(self) -> None:
        self.ends = {A0: 5, A1: 7}
        self.committed: dict[TopicPartition, int] = {}


class Member:
    """A member whose partitions a test decides."""

    def __init__(self, group: Group, *owned: TopicPartition) -> None:
        self.group = group
        self.owned, self.given = set(owned), set(owned)
        self.is_fenced = False
        self.commits = 0
        self.while_waiting: Callable[[], object] = lambda: None

    async def poll(self, topics: Collection[str], wait_ms: int = 0) -> tuple[set[TopicPartition], set[TopicPartition]]:
        assert topics == {"a"}
        if wait_ms:
            self.while_waiting()
        given, self.given = self.given, set()
        return set(self.owned), given

    def take(self, *owned: TopicPartition) -> None:
        """Have these from the next poll on, all of them given again, as an eager group does."""
        self.owned, self.given = set(owned), set(owned)

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: at for each, at in self.group.committed.items() if each in partitions}

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> None:
        if self.is_fenced:
            raise UnavailableError("fenced")
        self.commits += 1
        self.group.committed |= offsets

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, 0)

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return {each: self.group.ends[each] for each in partitions}

    async def close(self) -> None:
        self.owned.clear()


class Query:
    """A stream and its checkpoint, whose batches are all finished."""

    def __init__(self, member: Member, last: Batch | None = None, target: Offsets | None = None) -> None:
        self.clock = VirtualClock()
        self.last, self.target = last, target
        interval_ms = int(INTERVAL_S * 1000)
        self._stream = GroupStream(member, member.beginning_offsets, self.clock, max_poll_interval_ms=interval_ms)

    async def read(self, most: int | None = None) -> list[tuple[int, int, int]]:
        """Return the ranges of the next batch, `(partition, start, end)`; none if nothing is new."""

        def limit(start: Offsets, end: Offsets) -> Offsets:
            return end if most is None else {each: min(at, start[each] + most) for each, at in end.items()}

        batch = await self._stream.next_batch(self.last, {"a"}, limit, self.target)
        if batch is None:
            return []
        self.last = batch
        return [(each.partition, batch.start[each], end) for each, end in sorted(batch.end.items())]


async def test_a_stream_reads_its_partitions_and_commits_a_batch_when_the_next_is_planned() -> None:
    group = Group()
    query = Query(Member(group, A0))
    assert await query.read() == [(0, 0, 5)]
    assert group.committed == {A0: 0}, "where it began"
    group.ends[A0] = 8
    assert await query.read(most=2) == [(0, 5, 7)]
    assert group.committed == {A0: 5}


async def test_nothing_new_in_its_own_partitions_starts_no_batch_and_is_committed_once() -> None:
    group = Group()
    group.committed[A0] = 2
    member = Member(group, A0)
    query = Query(member)
    assert await query.read() == [(0, 2, 5)]
    assert member.commits == 0, "the group has this offset"
    group.ends[A1] = 9
    assert [await query.read(), await query.read()] == [[], []]
    assert (member.commits, group.committed[A0]) == (1, 5)


async def test_a_partition_moves_between_batches_and_is_read_once() -> None:
    group = Group()
    one, two = Member(group, A0, A1), Member(group)
    first, second = Query(one), Query(two)
    assert await first.read() == [(0, 0, 5), (1, 0, 7)]
    assert await second.read() == []
    assert second.last == Batch(start={}, end={}), "the first batch may be empty"
    group.ends |= {A0: 6, A1: 9}
    one.take(A0)
    assert await first.read() == [(0, 5, 6)]
    two.take(A1)
    assert await second.read() == [(1, 7, 9)]


async def test_a_partition_that_comes_back_is_read_where_the_group_is_and_not_where_the_checkpoint_was() -> None:
    group = Group()
    member = Member(group, A0, A1)
    query = Query(member)
    await query.read()
    member.take(A0)
    assert await query.read() == []
    group.committed[A1], group.ends[A1] = 20, 21
    member.take(A0, A1)
    assert await query.read() == [(0, 5, 5), (1, 20, 21)]


async def test_a_partition_that_was_lost_and_given_again_in_one_rebalance_is_read_where_the_group_is() -> None:
    group = Group()
    member = Member(group, A0)
    query = Query(member)
    await query.read()
    assert await query.read() == []
    group.committed[A0], group.ends[A0] = 20, 21
    member.take(A0)
    assert await query.read() == [(0, 20, 21)]


async def test_an_offset_that_the_group_has_lost_is_committed_again() -> None:
    group = Group()
    group.ends[A0] = 0
    member = Member(group, A0)
    query = Query(member)
    await query.read()
    group.committed.clear()
    member.take(A0)
    assert await query.read() == []
    assert group.committed == {A0: 0}


async def test_a_restart_goes_on_behind_the_last_batch_unless_another_stream_has_moved_the_group() -> None:
    group = Group()
    first = Query(Member(group, A0, A1))
    await first.read()
    assert group.committed == {A0: 0, A1: 0}, "the batch is in the checkpoint, and not in the group"
    group.ends |= {A0: 6, A1: 9}
    group.committed[A1] = 3
    assert await Query(Member(group, A0, A1), first.last).read() == [(0, 5, 6), (1, 3, 9)]


async def test_a_commit_that_fails_is_logged_and_made_again(caplog: pytest.LogCaptureFixture) -> None:
    group = Group()
    member = Member(group, A0)
    query = Query(member)
    await query.read()
    member.is_fenced = True
    assert await query.read() == []
    assert "Failed to commit progress, other members may read these records again: fenced" in caplog.text
    member.is_fenced = False
    assert await query.read() == []
    assert group.committed == {A0: 5}


async def test_with_a_target_it_reads_no_further() -> None:
    group = Group()
    query = Query(Member(group, A0, A1), target=dict(group.ends))
    group.ends |= {A0: 6, A1: 9}
    assert await query.read() == [(0, 0, 5), (1, 0, 7)]
    assert await query.read() == []


async def test_with_a_target_a_partition_that_another_member_has_read_beyond_it_is_left() -> None:
    group = Group()
    query = Query(Member(group, A0, A1), target=dict(group.ends))
    group.committed[A1], group.ends[A1] = 9, 10
    assert await query.read() == [(0, 0, 5), (1, 9, 9)]


async def test_with_a_target_a_partition_that_comes_back_while_it_waits_goes_on_behind_its_last_batch() -> None:
    group = Group()
    first = Query(Member(group, A0, A1))
    await first.read()
    member = Member(group, A0)
    again = Query(member, first.last, target=dict(group.ends))
    member.while_waiting = lambda: member.take(A0, A1)
    assert await again.read() == []
    assert group.committed == {A0: 5, A1: 7}


async def test_with_a_target_it_waits_for_the_partitions_of_a_dead_member() -> None:
    group = Group()
    member = Member(group, A0)
    query = Query(member, target=dict(group.ends))
    assert await query.read() == [(0, 0, 5)]
    member.while_waiting = lambda: member.take(A0, A1)
    assert await query.read() == [(0, 5, 5), (1, 0, 7)]
    assert await query.read() == []


async def test_with_a_target_it_waits_while_another_member_reads_on(caplog: pytest.LogCaptureFixture) -> None:
    group = Group()
    member = Member(group, A0)
    query = Query(member, target=dict(group.ends))
    await query.read()

    def read_on() -> None:
        query.clock.advance_to(query.clock.monotonic() + INTERVAL_S - 10)
        group.committed[A1] = min(group.committed.get(A1, 0) + 1, stops_at)

    member.while_waiting, stops_at = read_on, 7
    assert await query.read() == []
    assert group.committed[A1] == 7
    assert "do not read on" not in caplog.text
    group.committed[A1] = stops_at = 3
    before_s = query.clock.monotonic()
    assert await query.read() == []
    assert "do not read on" in caplog.text
    assert query.clock.monotonic() - before_s == 2 * (INTERVAL_S - 10)


async def test_a_partition_that_comes_back_after_other_batches_of_a_restart_goes_on_behind_its_last_one() -> None:
    group = Group()
    first = Query(Member(group, A0, A1))
    await first.read()
    group.ends |= {A0: 6, A1: 9}
    member = Member(group, A0)
    again = Query(member, first.last)
    assert await again.read() == [(0, 5, 6)]
    member.take(A0, A1)
    assert await again.read() == [(0, 6, 6), (1, 7, 9)]
