"""The groups of one `__consumer_offsets` partition that this broker leads: machines inside, futures and timers outside.

Decide first, act after: a machine says what must happen, `perform` does it. What waits for a record is answered by
`GroupLog`; one timer per group wakes its machine.
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from odradek.broker.groups.group_log import GroupLog, GroupRecord
from odradek.groups import (
    Append,
    ClassicGroup,
    Effect,
    GroupSettings,
    Offsets,
    PendingMemberExpired,
    PendingMembersOverdue,
    RebalanceStarted,
    State,
)
from odradek.model import ErrorCode, TopicPartition
from odradek.protocol.group_records import (
    GroupMetadataKey,
    OffsetCommitKey,
    OffsetCommitValue,
    encode_key,
    encode_value,
)
from odradek.runtime import Clock

_MAX_LOGGED_MEMBERS: Final = 10
"""Members that a line of the log names."""
_log = logging.getLogger("odradek.groups")


class GroupCoordinatorShard:
    """Groups, offsets, and what wakes them."""

    def __init__(self, log: GroupLog, settings: GroupSettings, clock: Clock) -> None:
        self.is_loading = True
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self.size_bytes = 0
        """About what the members of all groups take in memory."""
        self.log = log
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        self._sizes: dict[str, int] = {}

    @property
    def now_ms(self) -> int:
        """The machines' clock: it only goes forward."""
        return int(self._clock.monotonic() * 1000)

    async def load(self) -> None:
        """Replay the log; when this returns, the groups are as the last coordinator recorded them."""
        replay = await self.log.replay()
        if replay.unreadable:
            _log.warning("%s: %d records can't be read", self.log.partition.topic_partition, replay.unreadable)
        loaded = replay.finish(self._settings, self.now_ms)
        self.offsets = replay.offsets
        self.groups = {group_id: group for group_id, (group, _) in loaded.items()}
        self.is_loading = False
        for group, effects in loaded.values():
            self.apply_effects(group, effects)

    def unload(self, error: ErrorCode = ErrorCode.not_coordinator) -> None:
        """Answer everybody who waits, and stop every timer."""
        for group in list(self.groups.values()):
            self.apply_effects(group, group.unload(error))
        self.log.close(error)
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.groups.clear()

    def kill(self) -> None:
        """Stop every timer, and say nothing to anybody."""
        self.log.kill()
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.groups.clear()

    # -- machines ------------------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> ClassicGroup:
        """The group, made if there is none; if nothing comes of it, `perform` lets it go again."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._settings)
        return group

    def apply_effects(self, group: ClassicGroup, effects: Sequence[Effect]) -> None:
        """Do what a machine says."""
        for effect in effects:
            if isinstance(effect, Append):
                self._append_group_metadata(group, effect)
            elif isinstance(effect, RebalanceStarted):
                told = _printable(f"{group.group_id}: round after generation {effect.generation}: {effect.reason}")
                _log.info("group %s", told)
            elif isinstance(effect, PendingMembersOverdue):
                _log_pending_members_overdue(group.group_id, effect.member_ids)
            elif isinstance(effect, PendingMemberExpired):
                _log.info(
                    "Pending member %s in group %s has been removed after session timeout expiration: "
                    "the client was given this id and never joined with it",
                    _printable(effect.member_id), _printable(group.group_id),
                )  # fmt: skip
            else:
                complete_future(effect.to, effect)
        self._update_size(group)
        if group.is_unused and not self.offsets.of(group.group_id):
            if self.groups.get(group.group_id) is group:
                del self.groups[group.group_id]
            self._cancel_timer(group.group_id)
        elif group.state is not State.DEAD:
            self._schedule_timer(group)

    def _update_size(self, group: ClassicGroup) -> None:
        size = group.size_bytes
        self.size_bytes += size - self._sizes.pop(group.group_id, 0)
        if size:
            self._sizes[group.group_id] = size

    def _append_group_metadata(self, group: ClassicGroup, append: Append) -> None:
        group.current_state_timestamp_ms = self._clock.now_ms()
        value = replace(append.metadata, current_state_timestamp=group.current_state_timestamp_ms)
        record = encode_key(GroupMetadataKey(group=group.group_id)), encode_value(value)
        self.log.write([record], answered=partial(self._group_metadata_appended, group, append.append_id))

    def _group_metadata_appended(self, group: ClassicGroup, append_id: int, error: ErrorCode) -> None:
        if error is ErrorCode.none:
            self.apply_effects(group, group.committed(append_id, self.now_ms))
        else:
            name = _printable(group.group_id)
            _log.warning("group %s: its record is not committed: %s", name, error.name.upper())
            self.apply_effects(group, group.failed(append_id, error, self.now_ms))

    def _schedule_timer(self, group: ClassicGroup) -> None:
        """See that the machine is woken at its next deadline, or before: it then finds nothing to do."""
        deadline_ms = group.next_deadline_ms
        armed = self._timers.get(group.group_id)
        if deadline_ms is None or (armed is not None and armed[0] <= deadline_ms):
            return
        self._cancel_timer(group.group_id)
        # A millisecond at least, so that rounding never makes a machine wait for a moment that does not come.
        delay_ms = max(deadline_ms - self.now_ms, 1)
        self._timers[group.group_id] = deadline_ms, self._loop.call_later(delay_ms / 1000, self._on_timer, group)

    def _cancel_timer(self, group_id: str) -> None:
        armed = self._timers.pop(group_id, None)
        if armed is not None:
            armed[1].cancel()

    def _on_timer(self, group: ClassicGroup) -> None:
        del self._timers[group.group_id]
        self.apply_effects(group, group.expire(self.now_ms))

    # -- offsets -------------------------------------------------------------------------------------------------------

    def commit(self, group_id: str, values: Mapping[TopicPartition, OffsetCommitValue]) -> "asyncio.Future[ErrorCode]":
        """Record offsets; they count when they are committed. A group that nobody is in comes to be by it."""
        future: asyncio.Future[ErrorCode] = self._loop.create_future()
        records: list[GroupRecord] = [
            (encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=number)), encode_value(value))
            for (topic, number), value in values.items()
        ]

        def committed(first_offset: int) -> None:
            self.group(group_id)
            for record_offset, (partition, value) in enumerate(values.items(), first_offset):
                self.offsets.put(group_id, partition, value, record_offset)

        self.log.write(records, committed=committed, answered=partial(complete_future, future))
        return future

    def writes_completed(self) -> "asyncio.Future[None]":
        """Done when everything that is being written now is answered (KIP-447: offsets that are stable)."""
        future: asyncio.Future[None] = self._loop.create_future()
        self.log.when_writes_complete(partial(complete_future, future, None))
        return future

    def on_topics_deleted(self, topics: frozenset[str]) -> None:
        """Forget the offsets of deleted topics, at once: a topic of the same name begins at its beginning."""
        by_group: dict[str, list[TopicPartition]] = {}
        for group_id, partition in self.offsets.of_topics(topics):
            by_group.setdefault(group_id, []).append(partition)
        for group_id, partitions in by_group.items():
            for partition in partitions:
                self.offsets.remove(group_id, partition)
            self._write_tombstones(group_id, partitions, also_group=False)

    def cleanup_group_metadata(self, retention_ms: int) -> None:
        """Forget offsets that nobody needed for so long, and groups that have neither offsets nor members then."""
        now_ms = self._clock.now_ms()
        for group_id, group in list(self.groups.items()):
            condition = group.offset_expiration_condition
            if condition is None:
                continue
            idle_since_ms, subscribed = condition
            expired = self.offsets.expired(
                group_id,
                idle_since_ms=idle_since_ms,
                subscribed=subscribed,
                now_ms=now_ms,
                retention_ms=retention_ms,
            )
            nothing_left = len(expired) == len(self.offsets.of(group_id))
            over = group.is_deletable and nothing_left and not self.offsets.has_open_transactions(group_id)
            if expired or over:
                self._write_tombstones(group_id, expired, also_group=over)

    # -- what is to be deleted -----------------------------------------------------------------------------------------

    def delete(self, group_id: str) -> "asyncio.Future[ErrorCode]":
        """Delete a group that nobody is in, and its offsets, also those that are being written now (KIP-229).

        GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or what became of the record.
        """
        future: asyncio.Future[ErrorCode] = self._loop.create_future()
        self.log.when_writes_complete(partial(self._delete, group_id, future))
        return future

    def _delete(self, group_id: str, future: "asyncio.Future[ErrorCode]") -> None:
        group = self.groups.get(group_id)
        if group is None:
            complete_future(future, ErrorCode.group_id_not_found)
        elif group.state is State.DEAD:
            complete_future(future, ErrorCode.not_coordinator)
        elif group.state is not State.EMPTY:
            complete_future(future, ErrorCode.non_empty_group)
        elif not group.is_empty:
            # The last one is just leaving; the record of it comes first.
            self._loop.call_soon(self.log.when_writes_complete, partial(self._delete, group_id, future))
        else:
            offsets = list(self.offsets.of(group_id))
            self._write_tombstones(group_id, offsets, also_group=True, done=partial(complete_future, future))

    def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> "asyncio.Future[ErrorCode]":
        """Delete a group's offsets of these partitions; whether nobody needs them, the caller knows (KIP-496)."""
        future: asyncio.Future[ErrorCode] = self._loop.create_future()
        present = [partition for partition in self.offsets.of(group_id) if partition in partitions]
        if present:
            self._write_tombstones(group_id, present, also_group=False, done=partial(complete_future, future))
        else:
            complete_future(future, ErrorCode.none)
        return future

    def _write_tombstones(
        self,
        group_id: str,
        partitions: Sequence[TopicPartition],
        *,
        also_group: bool,
        done: Callable[[ErrorCode], None] = lambda _: None,
    ) -> None:
        """Write tombstones. A group that goes is gone at once: whoever joins meanwhile founds a new one.

        `done` is called with what became of them, not at once.
        """
        records: list[GroupRecord] = [
            (encode_key(OffsetCommitKey(group=group_id, topic=topic, partition=number)), None)
            for topic, number in partitions
        ]
        group = self.group(group_id)
        if also_group:
            records.append((encode_key(GroupMetadataKey(group=group_id)), None))
            del self.groups[group_id]
            self.size_bytes -= self._sizes.pop(group_id, 0)
            self._cancel_timer(group_id)

        def committed(_: int) -> None:
            for partition in partitions:
                self.offsets.remove(group_id, partition)

        def answered(error: ErrorCode) -> None:
            if error is not ErrorCode.none:
                _log.warning("group %s: nothing is forgotten: %s", _printable(group_id), error.name.upper())
                if also_group:
                    self.groups.setdefault(group_id, group)
                done(error)
                return
            name, also = _printable(group_id), ", and it is" * also_group
            _log.info("group %s: %d offsets are forgotten%s", name, len(partitions), also)
            if not also_group:
                self.apply_effects(group, ())
            done(error)

        self.log.write(records, committed=committed, answered=answered)


def _log_pending_members_overdue(group_id: str, member_ids: Sequence[str]) -> None:
    _log.info(
        "group %s: the round goes on without %d pending members, which did not join with their ids: %s",
        _printable(group_id), len(member_ids), _printable(", ".join(member_ids[:_MAX_LOGGED_MEMBERS])),
    )  # fmt: skip


def _printable(text: str) -> str:
    """What clients wrote, fit for one line of a log."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:1000])


def complete_future(future: object, result: object) -> None:
    """Complete a future that somebody may have given up already."""
    assert isinstance(future, asyncio.Future)
    if not future.done():
        future.set_result(result)
