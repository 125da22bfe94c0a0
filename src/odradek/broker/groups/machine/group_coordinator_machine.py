"""The group coordinator's state machine: the groups and committed offsets of one `__consumer_offsets` partition.

It implements `odradek.broker.coordinators.machine.Machine`. A group that has only offsets is a classic group without
members.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.broker.coordinators.machine import NO_PRODUCER, CoordinatorResult, Now, Reply
from odradek.broker.groups.machine.both_protocols.classic_members import ClassicMembers
from odradek.broker.groups.machine.both_protocols.migration import Migration
from odradek.broker.groups.machine.classic.classic_group import ClassicGroup, GroupSettings
from odradek.broker.groups.machine.classic.classic_groups import ClassicGroups, describe
from odradek.broker.groups.machine.consumer.consumer_group import ConsumerGroup, WaitingJoin
from odradek.broker.groups.machine.consumer.consumer_groups import ASSIGNMENT, DEADLINES, ConsumerGroups, repair
from odradek.broker.groups.machine.consumer.member import JOINING_EPOCH
from odradek.broker.groups.machine.consumer.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
)
from odradek.broker.groups.machine.consumer.target_assignment import ConsumerGroupSettings
from odradek.broker.groups.machine.deadline_queue import DeadlineKey, Deadlines
from odradek.broker.groups.machine.group_registry import Group, GroupRegistry
from odradek.broker.groups.machine.messages import (
    CommitRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    DescribeRequest,
    FetchedOffsets,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    MemberRequest,
    OffsetsDeleted,
    Request,
    SyncRequest,
)
from odradek.broker.groups.machine.offsets import MOST_PENDING, Offsets
from odradek.broker.groups.machine.records import (
    ConsumerGroupRecord,
    GroupMetadataRecord,
    GroupRecord,
    OffsetCommitRecord,
    ResultBuilder,
    answer,
)
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE

_EXPIRE_OFFSETS: Final = "expire offsets"
_NO_GROUP: Final = ""
"""The group id in deadlines and results that concern no single group."""

_READS: Final = (DescribeRequest, ConsumerGroupDescribeRequest, FetchOffsetsRequest, HeartbeatRequest)
"""Requests that never write a record."""
MOST_DELETED: Final = 2048
"""Limit of the offsets that one result deletes, in some 10 ms."""

_Result = CoordinatorResult[GroupRecord]


class OffsetSettings(Struct, frozen=True, kw_only=True):
    """The broker's `offsets.retention.*` settings."""

    retention_ms: int = 7 * 24 * 3_600_000
    check_interval_ms: int = 600_000


class GroupCoordinatorMachine:
    """The groups and offsets of one partition."""

    def __init__(
        self,
        settings: Callable[[], GroupSettings],
        offset_settings: Callable[[], OffsetSettings],
        consumer_settings: Callable[[str], ConsumerGroupSettings] = lambda _: ConsumerGroupSettings(),
        has_room_for: Callable[[int], bool] = lambda _: True,
    ) -> None:
        self.groups = GroupRegistry()
        self.offsets = Offsets()
        self._has_room_for = has_room_for
        self._offset_settings = offset_settings
        self._deadlines: Deadlines[DeadlineKey] = Deadlines()
        self._classic = ClassicGroups(settings, self._deadlines)
        self._migration = Migration(self._classic, consumer_settings)
        self.consumer = ConsumerGroups(consumer_settings, self._deadlines, self._migration.downgrade)
        self._classic_members = ClassicMembers(self.consumer, self._migration, consumer_settings, self._deadlines)
        self._hidden: dict[str, ClassicGroup] = {}
        """Classic groups of a log that lacks tombstones; each appears when the consumer group of its id is gone."""
        self._image = ClusterImage()
        self._gone: dict[str, frozenset[str]] = {}
        """By group, the topics of the last image's deletions, until its offsets of them are deleted."""
        self._expiring: list[tuple[str, int]] = []
        """Groups that the current check for expired offsets has to visit, while they have fewer offsets than this."""
        self._deleting: dict[str, tuple[object, int]] = {}
        """Groups whose offsets are deleted in parts: the waiting request, and the number that are deleted."""
        self._handlers: Final[dict[type, Callable[[str, Any, object, Now], _Result]]] = {
            **dict.fromkeys((JoinRequest, SyncRequest, HeartbeatRequest, LeaveRequest), self._member_request),
            CommitRequest: self._commit,
            FetchOffsetsRequest: self._fetch_offsets,
            DescribeRequest: self._describe,
            DeleteGroupRequest: self._delete_group,
            DeleteOffsetsRequest: self._delete_offsets,
            ConsumerGroupHeartbeatRequest: self._consumer_heartbeat,
            ConsumerGroupDescribeRequest: self._describe_consumer,
        }

    @property
    def size_bytes(self) -> int:
        return self.groups.size_bytes

    @property
    def next_deadline_ms(self) -> int | None:
        return 0 if self._deleting or self._expiring else self._deadlines.next_ms

    # -- durable state -------------------------------------------------------------------------------------------------

    def apply(self, record: GroupRecord, offset: int, producer_id: int) -> None:
        if isinstance(record, GroupMetadataRecord):
            self._apply_classic(record)
        elif isinstance(record, ConsumerGroupRecord):
            self._apply_consumer(record)
        elif record.value is None:
            self.offsets.remove(record.group_id, record.partition)
        else:
            if producer_id == NO_PRODUCER:
                self.offsets.put(record.group_id, record.partition, record.value, offset)
            else:
                self.offsets.put_transactional(producer_id, record.group_id, record.partition, record.value, offset)
            self._have_group_of_offsets(record.group_id)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for group_id in self.offsets.end_transaction(producer_id, committed=committed):
            self._have_group_of_offsets(group_id)

    def _apply_classic(self, record: GroupMetadataRecord) -> None:
        key = record.group_id
        known = self.groups.by_id.get(key)
        group = known if isinstance(known, ClassicGroup) else self._hidden.get(key)
        if record.value is None:
            self._hidden.pop(key, None)
            if isinstance(known, ClassicGroup):
                self._forget(known)
                self._have_group_of_offsets(key)
            return
        if group is None:
            group = self._classic.new(key)
            if known is None:
                self.groups.put(group)
            else:
                self._hidden[key] = group
        group.apply(record.value)

    def _apply_consumer(self, record: ConsumerGroupRecord) -> None:
        key = record.group_id
        known = self.groups.by_id.get(key)
        group = known if isinstance(known, ConsumerGroup) else ConsumerGroup(key)
        group.apply(record.key, record.value)
        if not group.is_gone:
            if isinstance(known, ClassicGroup):
                known.clear_deadlines()
                if known.record is not None:
                    self._hidden[key] = known
            self.groups.put(group)
        elif group is known:
            self.consumer.forget(key)
            self.groups.remove(key)
            hidden = self._hidden.pop(key, None)
            if (classic := self._migration.take_successor(key) or hidden) is not None:
                self.groups.put(classic)
            self._have_group_of_offsets(key)

    def _forget(self, group: ClassicGroup) -> None:
        group.clear_deadlines()
        self.groups.remove(group.group_id)

    def _have_group_of_offsets(self, group_id: str) -> None:
        """Create an empty classic group if the id has committed or pending offsets but no group."""
        if group_id not in self.groups.by_id and self._has_offsets(group_id):
            self.groups.put(self._classic.new(group_id))

    def _has_offsets(self, group_id: str) -> bool:
        return bool(self.offsets.of(group_id)) or self.offsets.has_open_transactions(group_id)

    # -- election, images, failed appends ------------------------------------------------------------------------------

    def on_elected(self, image: ClusterImage, now: Now) -> Iterator[_Result]:
        """Rebuild and repair the groups. Rebalance classic ones if unassigned, too large, or their topics changed."""
        self._image = image
        self._deadlines.set((_NO_GROUP, _EXPIRE_OFFSETS, ""), now.ms + self._offset_settings().check_interval_ms)
        counts = _partition_counts(image)
        for group in self.groups.of_type(ClassicGroup):
            yield self._rebuild(group, counts, now)
        for consumer_group in self.groups.of_type(ConsumerGroup):
            yield CoordinatorResult(key=consumer_group.group_id, records=repair(consumer_group, image))
            self.consumer.rebuild(consumer_group, now)

    def _rebuild(self, group: ClassicGroup, partition_counts: Mapping[str, int], now: Now) -> _Result:
        return self._decided(group, self._classic.rebuild(group, partition_counts, now))

    def on_image(self, old: ClusterImage, new: ClusterImage, now: Now) -> Iterator[_Result]:
        """Delete the offsets of topics that were deleted (or recreated), and mark consumer groups for a refresh."""
        del now
        self._image = new
        if old.topics is not new.topics or old.brokers is not new.brokers:
            for group in self.groups.of_type(ConsumerGroup):
                group.needs_refresh = True
        gone = frozenset(
            name
            for name in self.offsets.topics
            if name in old.topics and (name not in new.topics or new.topics[name].topic_id != old.topics[name].topic_id)
        )
        self._gone = dict.fromkeys(self.offsets.groups, gone) if gone else {}
        for group_id in tuple(self._gone):
            partitions = self.offsets.of_topics(group_id, self._gone[group_id])
            while len(partitions) > MOST_DELETED:
                yield self._deletion(group_id, partitions[:MOST_DELETED], with_group=False, is_continued=True)
                del partitions[:MOST_DELETED]
            del self._gone[group_id]
            yield self._deletion(group_id, partitions, with_group=False)

    def reset(self, key: str, now: Now) -> _Result:
        self._deleting.pop(key, None)
        self._migration.reset(key)
        self.consumer.forget_trace(key)
        group = self.groups.by_id.get(key)
        if isinstance(group, ClassicGroup):
            return self._rebuild(group, _partition_counts(self._image), now)
        if isinstance(group, ConsumerGroup):
            self.consumer.rebuild(group, now)
        return CoordinatorResult(key=key)

    # -- time ----------------------------------------------------------------------------------------------------------

    def expire(self, now: Now) -> _Result | None:
        if self._deleting:
            return self._delete_next(next(iter(self._deleting)))
        due = self._deadlines.pop_due(now.ms)
        if due is None:
            return self._expire_offsets(*self._expiring.pop(), now) if self._expiring else None
        key, kind, _ = due
        group = self.groups.by_id.get(key)
        if kind == _EXPIRE_OFFSETS:
            self._deadlines.set(due, now.ms + self._offset_settings().check_interval_ms)
            self._expiring = [(group_id, sys.maxsize) for group_id in self.groups.by_id]
        elif isinstance(group, ConsumerGroup) and kind in DEADLINES:
            waiting = self.consumer.take_join(group, now) if kind == ASSIGNMENT else None
            if waiting is not None:
                return self._answer_join(group, waiting, now)
            return self.consumer.expire(group, due, self._image, now)
        elif kind in DEADLINES:
            self.consumer.forget(key)
        elif isinstance(group, ClassicGroup):
            return self._decided(group, self._classic.expire(group, due, now))
        return CoordinatorResult(key=key)

    def _expire_offsets(self, group_id: str, most: int, now: Now) -> _Result:
        """Delete a group's expired offsets, and the group if it then has neither offsets nor members."""
        group = self.groups.by_id.get(group_id)
        condition = None if group is None else group.offset_expiration_condition
        count = len(self.offsets.of(group_id))
        if group is None or condition is None or count >= most:
            return CoordinatorResult(key=group_id)
        idle_since_ms, subscribed = condition
        expired = self.offsets.expired(
            group_id,
            idle_since_ms=idle_since_ms,
            subscribed=subscribed,
            now_ms=now.wall_ms,
            retention_ms=self._offset_settings().retention_ms,
            most=MOST_DELETED,
        )
        if len(expired) == MOST_DELETED:
            self._expiring.append((group_id, count))
        nothing_left = len(expired) == count
        is_over = group.is_deletable and nothing_left and not self.offsets.has_open_transactions(group_id)
        if not expired and not is_over:
            return CoordinatorResult(key=group_id)
        return self._deletion(group_id, expired, with_group=is_over)

    def _answer_join(self, group: ConsumerGroup, waiting: WaitingJoin, now: Now) -> _Result:
        """Handle again a request that waited for targets; reply UNKNOWN_MEMBER_ID if its member has left."""
        if waiting.member_id in group.members:
            return self._handlers[type(waiting.request)](group.group_id, waiting.request, waiting.to, now)
        text = f"member {waiting.member_id} left group {group.group_id} before it got partitions"
        return answer(group.group_id, waiting.to, KafkaError(ErrorCode.unknown_member_id, text))

    # -- requests ------------------------------------------------------------------------------------------------------

    def is_read(self, request: Request) -> bool:
        return isinstance(request, _READS)

    def handle(self, key: str, request: Request, to: object, now: Now) -> _Result:
        if key in self._deleting:
            return answer(key, to, KafkaError(ErrorCode.coordinator_load_in_progress, "the group is being deleted"))
        if isinstance(request, JoinRequest | ConsumerGroupHeartbeatRequest) and not self._may_grow(key, request):
            text = "the member does not fit into message.max.bytes, or the groups take all of queued.max.request.bytes"
            return answer(key, to, KafkaError(ErrorCode.group_max_size_reached, text))
        return self._handlers[type(request)](key, request, to, now)

    def _may_grow(self, key: str, request: JoinRequest | ConsumerGroupHeartbeatRequest) -> bool:
        """Return whether there is memory for the request's member, which may always use as many bytes as before.

        A classic member must also fit into a record.
        """
        size_bytes = request.size_bytes
        if not size_bytes:
            return True
        if isinstance(request, JoinRequest) and size_bytes > self._classic.settings().max_member_bytes:
            return False
        group = self.groups.by_id.get(key)
        more_bytes = size_bytes - (0 if group is None else group.member_size_bytes(request.member_id))
        return more_bytes <= 0 or self._has_room_for(more_bytes)

    def _decided(self, group: ClassicGroup, out: ResultBuilder) -> _Result:
        """Return a classic group's result. Drop the group if it is unused and has no offsets.

        A new group with members replaces an empty consumer group when the tombstones are applied.
        """
        known = self.groups.by_id.get(out.key)
        is_kept = not group.is_unused or out.records or (group is known and self._has_offsets(out.key))
        if is_kept and isinstance(known, ConsumerGroup):
            out.records[:0] = self._migration.replace(known, group)
        elif is_kept:
            self.groups.put(group)
        elif group is known:
            self._forget(group)
        return out.build()

    def _member_request(self, key: str, request: MemberRequest, to: object, now: Now) -> _Result:
        group = self.groups.by_id.get(key)
        if isinstance(group, ConsumerGroup) and (group.members or not isinstance(request, JoinRequest)):
            return self._classic_members.handle(group, request, to, self._image, now)
        classic = group if isinstance(group, ClassicGroup) else self._classic.new(key)
        return self._decided(classic, self._classic.handle(classic, request, to, now))

    def _commit(self, key: str, request: CommitRequest, to: object, now: Now) -> _Result:
        """Record offsets. A commit by a client that is not a member creates the group if none exists."""
        group = self.groups.by_id.get(key)
        if group is not None:
            error = group.validate_commit(request, now)
        else:
            error = request.missing_group_error if request.generation >= 0 else ErrorCode.none
        gone = self._gone.get(key, ())
        if gone and any(each.topic in gone for each in request.values):  # of a topic that was created again
            error = ErrorCode.coordinator_load_in_progress
        if error is ErrorCode.none and request.producer is not None:
            pending = self.offsets.pending_of(request.producer.producer_id)
            if pending + len(request.values) > MOST_PENDING:
                error = ErrorCode.invalid_commit_offset_size
        if error is not ErrorCode.none:
            return answer(key, to, error)
        return CoordinatorResult(
            key=key,
            records=[OffsetCommitRecord(key, partition, value) for partition, value in request.values.items()],
            replies=(Reply(to=to, value=ErrorCode.none),),
            producer=request.producer,
            needs_verification=request.producer is not None,
            is_only_records=True,
        )

    def _fetch_offsets(self, key: str, request: FetchOffsetsRequest, to: object, now: Now) -> _Result:
        del now
        group = self.groups.by_id.get(key)
        error = ErrorCode.none if group is None else group.validate_fetch(request)
        if error is not ErrorCode.none:
            return answer(key, to, FetchedOffsets(values={}, unstable=frozenset(), error=error))
        known, gone = self.offsets.of(key), self._gone.get(key, ())
        pending = self.offsets.pending(key) if request.require_stable else ()
        if request.partitions is None and not pending and not gone:  # a group may have 100,000
            return answer(key, to, FetchedOffsets(values=dict(known), unstable=frozenset()))
        wanted = known if request.partitions is None else request.partitions
        unstable = frozenset(each for each in wanted if each in pending)
        values = {
            each: known[each] for each in wanted if each in known and each not in unstable and each[0] not in gone
        }
        return answer(key, to, FetchedOffsets(values=values, unstable=unstable))

    def _describe(self, key: str, request: DescribeRequest, to: object, now: Now) -> _Result:
        del request, now
        group = self.groups.by_id.get(key)
        found = describe(group) if isinstance(group, ClassicGroup) else _is_not(key, group, "classic")
        return answer(key, to, found)

    # -- groups of the consumer protocol -------------------------------------------------------------------------------

    def _consumer_heartbeat(self, key: str, request: ConsumerGroupHeartbeatRequest, to: object, now: Now) -> _Result:
        group = self.groups.by_id.get(key)
        if not isinstance(group, ClassicGroup) or group.is_unused:
            known = group if isinstance(group, ConsumerGroup) else None
            return self.consumer.heartbeat(key, known, request, to, self._image, now)
        if group.is_empty:  # ids that were handed out do not count, as in Kafka
            return self.consumer.heartbeat(key, None, request, to, self._image, now, before=group.tombstones())
        if request.member_epoch != JOINING_EPOCH:
            return answer(key, to, KafkaError(ErrorCode.group_id_not_found, f"group {key} has classic members"))
        return self._upgrade(group, request, to, now)

    def _upgrade(self, classic: ClassicGroup, request: ConsumerGroupHeartbeatRequest, to: object, now: Now) -> _Result:
        """Convert a classic group to the consumer protocol, and add the member that sent `request`."""
        key = classic.group_id
        try:
            upgrade = self._migration.upgrade(classic, self._image)
        except KafkaError as error:
            return answer(key, to, error)
        result = self.consumer.heartbeat(key, upgrade.group, request, to, self._image, now, before=upgrade.records)
        if not result.records:
            return result
        self.consumer.start_sessions(upgrade.group, now)
        return replace(result, replies=(*result.replies, *self._migration.upgraded(classic)))

    def _describe_consumer(self, key: str, request: ConsumerGroupDescribeRequest, to: object, now: Now) -> _Result:
        del request, now
        group = self.groups.by_id.get(key)
        found = self.consumer.describe(group) if isinstance(group, ConsumerGroup) else _is_not(key, group, "consumer")
        return answer(key, to, found)

    # -- deletion ------------------------------------------------------------------------------------------------------

    def _delete_group(self, key: str, request: DeleteGroupRequest, to: object, now: Now) -> _Result:
        """Delete a group without members, and its offsets (KIP-229)."""
        del request, now
        group = self.groups.by_id.get(key)
        if group is None or not group.is_empty:
            return answer(key, to, ErrorCode.group_id_not_found if group is None else ErrorCode.non_empty_group)
        self._deleting[key] = (to, 0)
        return self._delete_next(key)

    def _delete_next(self, key: str) -> _Result:
        """Delete offsets of a group in `_deleting`, and the group with the last ones."""
        to, count = self._deleting.pop(key)
        partitions = self.offsets.partitions(key, MOST_DELETED)
        if len(partitions) < MOST_DELETED:
            return self._deletion(key, partitions, with_group=True, to=to, before=count)
        self._deleting[key] = (to, count + len(partitions))
        # If the records cannot be appended, the key is reset, and the request fails.
        records = [OffsetCommitRecord(key, each, None) for each in partitions]
        return CoordinatorResult(key=key, records=records, is_atomic=False)

    def _delete_offsets(self, key: str, request: DeleteOffsetsRequest, to: object, now: Now) -> _Result:
        """Delete offsets (KIP-496), except those of subscribed topics, or all if a subscription cannot be read."""
        del now
        group = self.groups.by_id.get(key)
        if group is None:
            return answer(key, to, ErrorCode.group_id_not_found)
        if not group.is_empty and group.protocol_type != PROTOCOL_TYPE:
            return answer(key, to, ErrorCode.non_empty_group)
        kept_topics = frozenset() if group.is_empty else group.subscribed_topics()
        errors: dict[TopicPartition, ErrorCode] = {}
        for partition in request.partitions:
            is_kept = kept_topics is None or partition.topic in kept_topics
            errors[partition] = ErrorCode.group_subscribed_to_topic if is_kept else ErrorCode.none
        known, pending = self.offsets.of(key), self.offsets.pending(key)
        gone = [
            each for each, error in errors.items() if error is ErrorCode.none and (each in known or each in pending)
        ]
        return self._deletion(key, gone, with_group=False, to=to, reply=errors)

    def _deletion(
        self,
        group_id: str,
        partitions: list[TopicPartition],
        *,
        with_group: bool,
        to: object = None,
        reply: object = ErrorCode.none,
        before: int = 0,
        is_continued: bool = False,
    ) -> _Result:
        """Return the result that deletes offsets, and the group if `with_group`; `to` is None if no request waits.

        `before` is the number of offsets that earlier results deleted.
        """
        records: list[GroupRecord] = [OffsetCommitRecord(group_id, each, None) for each in partitions]
        if with_group:
            records += self.groups.by_id[group_id].tombstones()
        deleted = OffsetsDeleted(group_id=group_id, count=before + len(partitions), with_group=with_group)
        return CoordinatorResult(
            key=group_id,
            records=records,
            replies=() if to is None else (Reply(to=to, value=reply),),
            events=(deleted,) if records else (),
            is_atomic=False,
            is_continued=is_continued,
            is_only_records=True,
        )


def _partition_counts(image: ClusterImage) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in image.topics.items()}


def _is_not(key: str, group: Group | None, kind: str) -> KafkaError:
    """Return the error of an id without a group of this kind, in Kafka's words: its tools match them."""
    text = f"Group {key} not found." if group is None else f"Group {key} is not a {kind} group."
    return KafkaError(ErrorCode.group_id_not_found, text)
