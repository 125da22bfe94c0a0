"""The groups of one `__consumer_offsets` partition that this broker leads.

The state machines decide and return effects; `apply_effects` performs them. `GroupLog` reports when records are
committed; one timer per group calls `ClassicGroup.expire`.
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
"""Limit of member ids in a log line."""
_log = logging.getLogger("odradek.groups")


class GroupCoordinatorShard:
    """Groups, offsets and timers of one partition."""

    def __init__(self, log: GroupLog, settings: GroupSettings, clock: Clock) -> None:
        self.is_loading = True
        self.groups: dict[str, ClassicGroup] = {}
        self.offsets = Offsets()
        self.size_bytes = 0
        """About how many bytes of memory the members of all groups take."""
        self.log = log
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._timers: dict[str, tuple[int, asyncio.TimerHandle]] = {}
        self._sizes: dict[str, int] = {}

    @property
    def now_ms(self) -> int:
        """Return the groups' clock, in monotonic ms."""
        return int(self._clock.monotonic() * 1000)

    async def load(self) -> None:
        """Replay the log, so that groups and offsets are as the last coordinator recorded them."""
        replay = await self.log.replay()
        if replay.unreadable:
            _log.warning("Skipped %d unreadable records of %s", replay.unreadable, self.log.partition.topic_partition)
        loaded = replay.finish(self._settings, self.now_ms)
        self.offsets = replay.offsets
        self.groups = {group_id: group for group_id, (group, _) in loaded.items()}
        self.is_loading = False
        for group, effects in loaded.values():
            self.apply_effects(group, effects)

    def unload(self, error: ErrorCode = ErrorCode.not_coordinator) -> None:
        """Answer all waiting requests with `error` and stop all timers."""
        for group in list(self.groups.values()):
            self.apply_effects(group, group.unload(error))
        self.log.close(error)
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.groups.clear()

    def kill(self) -> None:
        """Stop all timers without answering requests."""
        self.log.kill()
        for _, timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self.groups.clear()

    # -- groups --------------------------------------------------------------------------------------------------------

    def group(self, group_id: str) -> ClassicGroup:
        """Return the group, created if it does not exist; `apply_effects` drops it again if it stays unused."""
        group = self.groups.get(group_id)
        if group is None:
            group = self.groups[group_id] = ClassicGroup(group_id, self._settings)
        return group

    def apply_effects(self, group: ClassicGroup, effects: Sequence[Effect]) -> None:
        """Append records, complete futures and log, as the effects say; then drop the group or set its timer."""
        for effect in effects:
            if isinstance(effect, Append):
                self._append_group_metadata(group, effect)
            elif isinstance(effect, RebalanceStarted):
                text = _printable(f"{group.group_id} with generation {effect.generation}: {effect.reason}")
                _log.info("Preparing to rebalance group %s", text)
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
            _log.warning("Failed to commit the record of group %s: %s", name, error.name.upper())
            self.apply_effects(group, group.failed(append_id, error, self.now_ms))

    def _schedule_timer(self, group: ClassicGroup) -> None:
        """Set the timer to the group's next deadline; a timer that is set earlier is kept."""
        deadline_ms = group.next_deadline_ms
        armed = self._timers.get(group.group_id)
        if deadline_ms is None or (armed is not None and armed[0] <= deadline_ms):
            return
        self._cancel_timer(group.group_id)
        # At least 1 ms, so that rounding cannot wake the group before its deadline again and again.
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
        """Append offsets, which are valid once committed. A commit of an unknown group creates the group."""
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
        """Return a future that completes when all current writes are answered (KIP-447: stable offsets)."""
        future: asyncio.Future[None] = self._loop.create_future()
        self.log.when_writes_complete(partial(complete_future, future, None))
        return future

    def on_topics_deleted(self, topics: frozenset[str]) -> None:
        """Remove the offsets of deleted topics at once: a new topic of the same name starts without offsets."""
        by_group: dict[str, list[TopicPartition]] = {}
        for group_id, partition in self.offsets.of_topics(topics):
            by_group.setdefault(group_id, []).append(partition)
        for group_id, partitions in by_group.items():
            for partition in partitions:
                self.offsets.remove(group_id, partition)
            self._write_tombstones(group_id, partitions, also_group=False)

    def cleanup_group_metadata(self, retention_ms: int) -> None:
        """Remove expired offsets, and groups that then have neither offsets nor members."""
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

    # -- deletion ------------------------------------------------------------------------------------------------------

    def delete(self, group_id: str) -> "asyncio.Future[ErrorCode]":
        """Delete an empty group and its offsets, including those being written now (KIP-229).

        The result is GROUP_ID_NOT_FOUND, NON_EMPTY_GROUP, or the result of the append.
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
            # The last member is leaving; its record must be written first.
            self._loop.call_soon(self.log.when_writes_complete, partial(self._delete, group_id, future))
        else:
            offsets = list(self.offsets.of(group_id))
            self._write_tombstones(group_id, offsets, also_group=True, done=partial(complete_future, future))

    def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> "asyncio.Future[ErrorCode]":
        """Delete a group's offsets of these partitions; the caller has checked that they may be deleted (KIP-496)."""
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
        """Append tombstones. A deleted group is removed at once: a member that joins meanwhile creates a new one.

        `done` is called later with the result.
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
                _log.warning("Failed to delete offsets of group %s: %s", _printable(group_id), error.name.upper())
                if also_group:
                    self.groups.setdefault(group_id, group)
                done(error)
                return
            name, also = _printable(group_id), " and the group" * also_group
            _log.info("Deleted %d offsets%s: group %s", len(partitions), also, name)
            if not also_group:
                self.apply_effects(group, ())
            done(error)

        self.log.write(records, committed=committed, answered=answered)


def _log_pending_members_overdue(group_id: str, member_ids: Sequence[str]) -> None:
    _log.info(
        "Group %s: the rebalance continues without %d pending members, which did not join with their ids: %s",
        _printable(group_id), len(member_ids), _printable(", ".join(member_ids[:_MAX_LOGGED_MEMBERS])),
    )  # fmt: skip


def _printable(text: str) -> str:
    """Replace unprintable characters of a client's text for the log."""
    return "".join(letter if letter.isprintable() else "?" for letter in text[:1000])


def complete_future(future: object, result: object) -> None:
    """Complete a future unless it is done or cancelled."""
    assert isinstance(future, asyncio.Future)
    if not future.done():
        future.set_result(result)
