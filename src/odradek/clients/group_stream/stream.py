"""The planner of the batches of a stream in a group, which commits each finished batch (decision 17).

The group's coordinator assigns the partitions among the streams of one group; those of a dead stream go to the others.
Reading continues at the group's committed offset. Offsets are committed, and partitions given up, only between two
batches, so a rebalance repeats nothing. If a stream dies in a batch, or a batch takes longer than
`max.poll.interval.ms`, other streams read the batch again: at least once.

The owner of a stream stores each batch in a checkpoint before it reads the batch. After a restart it repeats the last
batch unless that had been finished, and then asks for the next one.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping
from typing import Final, Protocol

from msgspec import Struct

from odradek.model import OdradekError, TopicPartition
from odradek.runtime import Clock

_log = logging.getLogger("odradek.clients")

_POLL_MS: Final = 100

Offsets = Mapping[TopicPartition, int]
"""The next offset to read, by partition."""


class Batch(Struct, frozen=True, kw_only=True):
    """The ranges of a batch: those partitions that the stream owned when it was planned. `end` is exclusive."""

    start: Offsets
    end: Offsets


class Member(Protocol):
    """A member of the group: `ConsumerMember`, or a test's."""

    async def poll(
        self, topics: Collection[str], wait_ms: int = 0
    ) -> tuple[Collection[TopicPartition], Collection[TopicPartition]]:
        """Take part in rebalances. Return the owned partitions, and those of them assigned in this call.

        Wait up to `wait_ms` for a rebalance to begin. The first call, and a call during a rebalance, may wait longer.
        """

    async def committed(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the committed offsets of the partitions that have one."""

    async def commit(self, offsets: Offsets) -> None:
        """Commit the next offsets to read. Raise `OdradekError`, also if the member lost its partitions."""

    async def beginning_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]: ...

    async def end_offsets(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]: ...

    async def close(self) -> None: ...


class GroupStream:
    """One stream, from its start or restart on.

    `first_offsets` returns where to begin in partitions without a committed offset.
    """

    def __init__(
        self,
        member: Member,
        first_offsets: Callable[[Collection[TopicPartition]], Awaitable[Offsets]],
        clock: Clock,
        *,
        max_poll_interval_ms: int,
    ) -> None:
        self.log_ends: dict[TopicPartition, int] = {}
        """The log end offsets that the last `next_batch` found."""
        self._member = member
        self._first_offsets = first_offsets
        self._clock = clock
        self._max_poll_interval_s = max_poll_interval_ms / 1000
        self._positions: dict[TopicPartition, int] = {}
        """The next offset to read of each owned partition."""
        self._last: dict[TopicPartition, tuple[int, int]] = {}
        """By partition that this stream does not own now: start and end of the last batch that had it."""
        self._committed: dict[TopicPartition, int] = {}
        """The group's committed offsets that this stream has fetched or committed."""

    async def next_batch(
        self,
        last: Batch | None,
        topics: Collection[str],
        limit: Callable[[Offsets, Offsets], Offsets] = lambda start, end: end,
        target: Offsets | None = None,
    ) -> Batch | None:
        """Commit the batch `last`, which is finished, take part in a rebalance, and return the next batch.

        `limit` returns the end of a batch by its start and the log end offsets. If the stream's partitions have nothing
        new, return None, or an empty batch if `last` is None. With `target`, read up to these offsets, and wait
        before returning None while other members are behind; log a warning and return if none of them advances within
        `max.poll.interval.ms`.
        """
        await self._finish(last)
        await self._rebalance(topics)
        await self._finish(last)
        deadline, before = math.inf, None
        while (batch := await self._plan(last, limit, target)) is None and (behind := await self._behind(target)):
            if behind != before:
                deadline, before = self._clock.monotonic() + self._max_poll_interval_s, behind
            elif self._clock.monotonic() > deadline:
                _log.warning(
                    "Other members of the group do not read on, so these partitions stay unread from these offsets: %s",
                    behind,
                )
                break
            await self._rebalance(topics, _POLL_MS)
            await self._finish(last)
        return batch

    async def close(self) -> None:
        await self._member.close()

    async def _plan(
        self, last: Batch | None, limit: Callable[[Offsets, Offsets], Offsets], target: Offsets | None
    ) -> Batch | None:
        start = dict(self._positions)
        ends = self.log_ends = await self._member.end_offsets(sorted(start))
        if target is not None:
            ends = {each: min(end, max(target.get(each, 0), start[each])) for each, end in ends.items()}
        end = limit(start, ends)
        return None if end == start and last is not None else Batch(start=start, end=end)

    async def _finish(self, last: Batch | None) -> None:
        """Set each position that is at the last batch's start to that batch's end, and commit the changed positions.

        Other positions stay: after a restart, another stream may have advanced them. The last batch of a partition that
        another member has is kept until the partition comes back. A failed commit is only logged.
        """
        if last is not None:
            self._last |= {each: (last.start.get(each, -1), end) for each, end in last.end.items()}
        for partition in sorted(self._last.keys() & self._positions.keys()):
            start, end = self._last.pop(partition)
            if self._positions[partition] == start:
                self._positions[partition] = end
        changed = {each: end for each, end in self._positions.items() if self._committed.get(each) != end}
        if changed:
            try:
                await self._member.commit(changed)
            except OdradekError as error:
                _log.warning("Failed to commit progress, other members may read these records again: %s", error)
            else:
                self._committed |= changed

    async def _behind(self, target: Offsets | None) -> dict[TopicPartition, int]:
        """Return the committed, or else the log start offsets of other members' partitions that are behind `target`."""
        away = [each for each in target or () if each not in self._positions]
        if not away or target is None:
            return {}
        at = await self._member.beginning_offsets(away) | await self._member.committed(away)
        return {each: at[each] for each in away if at[each] < target[each]}

    async def _rebalance(self, topics: Collection[str], wait_ms: int = 0) -> None:
        owned, given = await self._member.poll(topics, wait_ms)
        self._positions = {each: at for each, at in self._positions.items() if each in owned and each not in given}
        if new := [each for each in sorted(owned) if each not in self._positions]:
            found = await self._member.committed(new)
            self._committed |= found
            if unknown := [each for each in new if each not in found]:
                for each in unknown:
                    self._committed.pop(each, None)
                found |= await self._first_offsets(unknown)
            self._positions |= found
