"""The group coordinator's state machine: the groups and committed offsets of one `__consumer_offsets` partition.

It implements `odradek.coordination.Machine`. A group that has only offsets is a classic group without members.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.coordination import NO_PRODUCER, CoordinatorResult, Now, Reply
from odradek.groups.classic.classic_group import ClassicGroup, GroupSettings
from odradek.groups.classic.classic_groups import ClassicGroups
from odradek.groups.classic.states import State
from odradek.groups.classic.sync import validate_commit
from odradek.groups.consumer.consumer_group import WaitingJoin
from odradek.groups.consumer.consumer_groups import ASSIGNMENT, DEADLINES, ConsumerGroups, validate_member_epoch
from odradek.groups.consumer.group_repair import repair
from odradek.groups.consumer.member import JOINING_EPOCH
from odradek.groups.consumer.messages import ConsumerGroupDescribeRequest, ConsumerGroupHeartbeatRequest
from odradek.groups.consumer.settings import ConsumerGroupSettings
from odradek.groups.deadlines import DeadlineKey, Deadlines
from odradek.groups.messages import (
    CommitRequest,
    DeleteGroupRequest,
    DeleteOffsetsRequest,
    DescribeRequest,
    FetchedOffsets,
    FetchOffsetsRequest,
    HeartbeatRequest,
    JoinRequest,
    LeaveRequest,
    OffsetsDeleted,
    Request,
    SyncRequest,
)
from odradek.groups.mixed.classic_members import ClassicMembers
from odradek.groups.mixed.migration import Migration
from odradek.groups.offsets import Offsets
from odradek.groups.records import ConsumerGroupRecord, GroupMetadataRecord, GroupRecord, OffsetCommitRecord
from odradek.groups.result_builder import ResultBuilder, answer
from odradek.metadata.image import ClusterImage
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.consumer_protocol import PROTOCOL_TYPE

_EXPIRE_OFFSETS: Final = "expire offsets"
_NO_GROUP: Final = ""
"""The group id in deadlines and results that concern no single group."""

_READS: Final = (DescribeRequest, ConsumerGroupDescribeRequest, FetchOffsetsRequest, HeartbeatRequest)
"""Requests that never write a record."""

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
    ) -> None:
        self.offsets = Offsets()
        self.size_bytes = 0
        self._offset_settings = offset_settings
        self._deadlines: Deadlines[DeadlineKey] = Deadlines()
        self.classic = ClassicGroups(settings, self._deadlines)
        self._migration = Migration(self.classic, consumer_settings)
        self.consumer = ConsumerGroups(consumer_settings, self._deadlines, self._migration.downgrade)
        """The groups of the consumer protocol. A group id has either a classic or a consumer group."""
        self._classic_members = ClassicMembers(self.consumer, self._migration, consumer_settings, self._deadlines)
        self._sizes: dict[str, int] = {}
        self._image = ClusterImage()
        self._expiring: list[str] = []
        """Groups that the current check for expired offsets has not visited yet."""
        self._handlers: Final[dict[type, Callable[[str, Any, object, Now], _Result]]] = {
            JoinRequest: self._join,
            SyncRequest: self._sync,
            HeartbeatRequest: self._heartbeat,
            LeaveRequest: self._leave,
            CommitRequest: self._commit,
            FetchOffsetsRequest: self._fetch_offsets,
            DescribeRequest: self._describe,
            DeleteGroupRequest: self._delete_group,
            DeleteOffsetsRequest: self._delete_offsets,
            ConsumerGroupHeartbeatRequest: self._consumer_heartbeat,
            ConsumerGroupDescribeRequest: self._describe_consumer,
        }

    @property
    def next_deadline_ms(self) -> int | None:
        return 0 if self._expiring else self._deadlines.next_ms

    # -- durable state -------------------------------------------------------------------------------------------------

    def apply(self, record: GroupRecord, offset: int, producer_id: int) -> None:
        if isinstance(record, GroupMetadataRecord):
            if record.value is None:
                self._forget(record.group_id)
                self._keep_if_used(record.group_id)
            elif (group := self._migration.take_downgraded(record.group_id)) is not None:
                self.classic.groups[record.group_id] = group
                self._account(record.group_id)
            else:
                self.classic.get_or_create(record.group_id).apply(record.value)
        elif isinstance(record, ConsumerGroupRecord):
            self._apply_consumer(record)
        elif record.value is None:
            self.offsets.remove(record.group_id, record.partition)
        elif producer_id == NO_PRODUCER:
            self._have_group(record.group_id)
            self.offsets.put(record.group_id, record.partition, record.value, offset)
        else:
            self._have_group(record.group_id)
            self.offsets.put_transactional(producer_id, record.group_id, record.partition, record.value, offset)

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        for group_id in self.offsets.end_transaction(producer_id, committed=committed):
            self._keep_if_used(group_id)

    def _apply_consumer(self, record: ConsumerGroupRecord) -> None:
        group_id = record.group_id
        self.consumer.apply(record)
        self._account(group_id)
        if group_id not in self.consumer.groups:
            self._keep_if_used(group_id)
        elif (classic := self.classic.groups.get(group_id)) is not None and classic.is_unused:
            self._forget(group_id)

    def _account(self, group_id: str) -> None:
        size_bytes = self.consumer.size_bytes(group_id) + self.classic.size_bytes(group_id)
        self.size_bytes += size_bytes - self._sizes.pop(group_id, 0)
        if size_bytes:
            self._sizes[group_id] = size_bytes

    def _have_group(self, group_id: str) -> None:
        """Create an empty classic group, for offsets, if no group has this id."""
        if group_id not in self.classic.groups and group_id not in self.consumer.groups:
            self.classic.get_or_create(group_id)

    def _forget(self, group_id: str) -> None:
        self.classic.forget(group_id)
        self._account(group_id)

    def _keep_if_used(self, group_id: str) -> None:
        """Create an empty classic group if the id has committed or pending offsets but no group."""
        if self.offsets.of(group_id) or self.offsets.has_open_transactions(group_id):
            self._have_group(group_id)

    def _forget_if_unused(self, group_id: str) -> None:
        """Drop a classic group that has no record, no offset, no member and no pending member."""
        group = self.classic.groups.get(group_id)
        if group is None or not group.is_unused:
            return
        if not self.offsets.of(group_id) and not self.offsets.has_open_transactions(group_id):
            self._forget(group_id)

    # -- election, images, failed appends ------------------------------------------------------------------------------

    def on_elected(self, image: ClusterImage, now: Now) -> Iterator[_Result]:
        """Rebuild and repair the groups. Rebalance classic ones if unassigned, too large, or their topics changed."""
        self._image = image
        self._deadlines.set((_NO_GROUP, _EXPIRE_OFFSETS, ""), now.ms + self._offset_settings().check_interval_ms)
        counts = _partition_counts(image)
        for group in list(self.classic.groups.values()):
            yield self._rebuild(group, counts, now)
        for consumer_group in list(self.consumer.groups.values()):
            yield CoordinatorResult(key=consumer_group.group_id, records=repair(consumer_group, image))
            self.consumer.rebuild(consumer_group, now)

    def _rebuild(self, group: ClassicGroup, partition_counts: Mapping[str, int], now: Now) -> _Result:
        return self._decided(self.classic.rebuild(group, partition_counts, now))

    def on_image(self, old: ClusterImage, new: ClusterImage, now: Now) -> Iterator[_Result]:
        """Delete the offsets of topics that were deleted (or recreated), and mark consumer groups for a refresh."""
        del now
        self._image = new
        self.consumer.on_image(old, new)
        gone = frozenset(
            name
            for name in self.offsets.topics
            if name in old.topics and (name not in new.topics or new.topics[name].topic_id != old.topics[name].topic_id)
        )
        for group_id, partitions in list(self.offsets.of_topics(gone)) if gone else ():
            yield self._deletion(group_id, partitions, with_group=False)

    def reset(self, key: str, now: Now) -> _Result:
        self._migration.reset(key)
        self.consumer.forget_trace(key)
        consumer_group = self.consumer.groups.get(key)
        if consumer_group is not None:
            self.consumer.rebuild(consumer_group, now)
        group = self.classic.groups.get(key)
        if group is not None and consumer_group is not None and group.is_unused:
            self._forget(key)
            group = None
        return (
            CoordinatorResult(key=key) if group is None else self._rebuild(group, _partition_counts(self._image), now)
        )

    # -- time ----------------------------------------------------------------------------------------------------------

    def expire(self, now: Now) -> _Result | None:
        due = self._deadlines.pop_due(now.ms)
        if due is None:
            return self._expire_offsets(self._expiring.pop(), now) if self._expiring else None
        kind = due[1]
        if kind == _EXPIRE_OFFSETS:
            self._deadlines.set(due, now.ms + self._offset_settings().check_interval_ms)
            self._expiring = [*self.classic.groups, *self.consumer.groups]
            return CoordinatorResult(key=_NO_GROUP)
        waiting = self.consumer.take_join(due[0], now) if kind == ASSIGNMENT else None
        if waiting is not None:
            return self._answer_join(due[0], waiting, now)
        if kind in DEADLINES:
            return self.consumer.expire(due, self._image, now)
        return self._decided(self.classic.expire(due, now))

    def _expire_offsets(self, group_id: str, now: Now) -> _Result:
        """Delete a group's expired offsets, and the group if it then has neither offsets nor members."""
        group, consumer_group = self.classic.groups.get(group_id), self.consumer.groups.get(group_id)
        if consumer_group is not None:
            condition: tuple[int, frozenset[str]] | None = (-1, self.consumer.subscribed_topics(consumer_group))
            is_deletable = not consumer_group.members
        else:
            condition = None if group is None else group.offset_expiration_condition
            is_deletable = group is not None and group.is_deletable
        if condition is None:
            return CoordinatorResult(key=group_id)
        idle_since_ms, subscribed = condition
        expired = self.offsets.expired(
            group_id,
            idle_since_ms=idle_since_ms,
            subscribed=subscribed,
            now_ms=now.wall_ms,
            retention_ms=self._offset_settings().retention_ms,
        )
        nothing_left = len(expired) == len(self.offsets.of(group_id))
        is_over = is_deletable and nothing_left and not self.offsets.has_open_transactions(group_id)
        if not expired and not is_over:
            return CoordinatorResult(key=group_id)
        return self._deletion(group_id, expired, with_group=is_over)

    def _answer_join(self, key: str, waiting: WaitingJoin, now: Now) -> _Result:
        """Handle again a request that waited for targets; reply UNKNOWN_MEMBER_ID if its member has left."""
        if waiting.member_id in self.consumer.groups[key].members:
            return self.handle(key, waiting.request, waiting.to, now)
        text = f"member {waiting.member_id} left group {key} before it got partitions"
        return answer(key, waiting.to, KafkaError(ErrorCode.unknown_member_id, text))

    # -- requests ------------------------------------------------------------------------------------------------------

    def is_read(self, request: Request) -> bool:
        return isinstance(request, _READS)

    def handle(self, key: str, request: Request, to: object, now: Now) -> _Result:
        return self._handlers[type(request)](key, request, to, now)

    def _decided(self, out: ResultBuilder) -> _Result:
        """Return a classic group's result. If the result has no records and the group is unused, drop the group."""
        self._account(out.key)
        if not out.records:
            self._forget_if_unused(out.key)
        return out.build()

    def _join(self, key: str, request: JoinRequest, to: object, now: Now) -> _Result:
        consumer_group = self.consumer.groups.get(key)
        if consumer_group is not None and consumer_group.members:
            return self._classic_members.join(consumer_group, request, to, self._image, now)
        out = self.classic.join(key, request, to, now)
        if not self.classic.groups[key].is_unused:
            out.records[:0] = self.consumer.deletion(key)
        return self._decided(out)

    def _sync(self, key: str, request: SyncRequest, to: object, now: Now) -> _Result:
        consumer_group = self.consumer.groups.get(key)
        if consumer_group is not None:
            return self._classic_members.sync(consumer_group, request, to, self._image, now)
        return self._decided(self.classic.sync(key, request, to, now))

    def _heartbeat(self, key: str, request: HeartbeatRequest, to: object, now: Now) -> _Result:
        consumer_group = self.consumer.groups.get(key)
        if consumer_group is not None:
            return answer(key, to, self._classic_members.heartbeat(consumer_group, request, now))
        return answer(key, to, self.classic.heartbeat(key, request, now))

    def _leave(self, key: str, request: LeaveRequest, to: object, now: Now) -> _Result:
        consumer_group = self.consumer.groups.get(key)
        if consumer_group is not None:
            return self._classic_members.leave(consumer_group, request, to, self._image, now)
        return self._decided(self.classic.leave(key, request, to, now))

    def _commit(self, key: str, request: CommitRequest, to: object, now: Now) -> _Result:
        """Record offsets. A commit by a client that is not a member creates the group if none exists."""
        group, consumer_group = self.classic.groups.get(key), self.consumer.groups.get(key)
        if consumer_group is not None:
            error = validate_member_epoch(consumer_group, request.member_id, request.generation)
            member = consumer_group.members.get(request.member_id)
            is_member = request.generation >= 0 and member is not None and not member.is_classic
            if error is ErrorCode.none and is_member and not request.has_member_epoch:
                error = ErrorCode.unsupported_version
        elif group is not None:
            error = validate_commit(group, request.member_id, request.instance_id, request.generation, now)
        else:
            error = request.missing_group_error if request.generation >= 0 else ErrorCode.none
        if error is not ErrorCode.none:
            return answer(key, to, error)
        return CoordinatorResult(
            key=key,
            records=[OffsetCommitRecord(key, partition, value) for partition, value in request.values.items()],
            replies=(Reply(to=to, value=ErrorCode.none),),
            producer=request.producer,
            is_only_records=True,
        )

    def _fetch_offsets(self, key: str, request: FetchOffsetsRequest, to: object, now: Now) -> _Result:
        del now
        consumer_group = self.consumer.groups.get(key)
        if consumer_group is not None and (request.member_id is not None or request.member_epoch >= 0):
            error = validate_member_epoch(consumer_group, request.member_id or "", request.member_epoch)
            if error is not ErrorCode.none:
                return answer(key, to, FetchedOffsets(values={}, unstable=frozenset(), error=error))
        known = self.offsets.of(key)
        wanted = tuple(known) if request.partitions is None else request.partitions
        unstable = frozenset(
            each
            for each in wanted
            if request.require_stable and self.offsets.has_pending_transactional_offsets(key, each)
        )
        values = {each: known[each] for each in wanted if each in known and each not in unstable}
        return answer(key, to, FetchedOffsets(values=values, unstable=unstable))

    def _describe(self, key: str, request: DescribeRequest, to: object, now: Now) -> _Result:
        del request, now
        return answer(key, to, self.classic.describe(key) or self._without(key, "classic"))

    def _without(self, key: str, protocol: str) -> KafkaError:
        """Return the error of a group that has not this protocol, in Kafka's words: its tools match them."""
        is_other = key in self.classic.groups or key in self.consumer.groups
        text = f"Group {key} is not a {protocol} group." if is_other else f"Group {key} not found."
        return KafkaError(ErrorCode.group_id_not_found, text)

    # -- groups of the consumer protocol -------------------------------------------------------------------------------

    def _consumer_heartbeat(self, key: str, request: ConsumerGroupHeartbeatRequest, to: object, now: Now) -> _Result:
        classic = self.classic.groups.get(key)
        if classic is None or classic.is_unused:
            return self.consumer.heartbeat(key, request, to, self._image, now)
        if classic.state is State.EMPTY:  # ids that were handed out do not count, as in Kafka
            before = (GroupMetadataRecord(key, None),)
            return self.consumer.heartbeat(key, request, to, self._image, now, before=before)
        if request.member_epoch != JOINING_EPOCH:
            return answer(key, to, KafkaError(ErrorCode.group_id_not_found, f"group {key} has classic members"))
        return self._upgrade(classic, request, to, now)

    def _upgrade(self, classic: ClassicGroup, request: ConsumerGroupHeartbeatRequest, to: object, now: Now) -> _Result:
        """Convert a classic group to the consumer protocol, and add the member that sent `request`."""
        key = classic.group_id
        try:
            upgrade = self._migration.upgrade(classic, self._image)
        except KafkaError as error:
            return answer(key, to, error)
        result = self.consumer.heartbeat(
            key, request, to, self._image, now, before=upgrade.records, group=upgrade.group
        )
        if not result.records:
            return result
        self.consumer.start_sessions(upgrade.group, now)
        return replace(result, replies=(*result.replies, *self._migration.upgraded(classic)))

    def _describe_consumer(self, key: str, request: ConsumerGroupDescribeRequest, to: object, now: Now) -> _Result:
        del request, now
        return answer(key, to, self.consumer.describe(key) or self._without(key, "consumer"))

    # -- deletion ------------------------------------------------------------------------------------------------------

    def _delete_group(self, key: str, request: DeleteGroupRequest, to: object, now: Now) -> _Result:
        """Delete a group without members, and its offsets (KIP-229)."""
        del request, now
        group, consumer_group = self.classic.groups.get(key), self.consumer.groups.get(key)
        if group is None and consumer_group is None:
            return answer(key, to, ErrorCode.group_id_not_found)
        if (group is not None and group.state is not State.EMPTY) or (consumer_group and consumer_group.members):
            return answer(key, to, ErrorCode.non_empty_group)
        return self._deletion(key, self.offsets.partitions(key), with_group=True, to=to)

    def _delete_offsets(self, key: str, request: DeleteOffsetsRequest, to: object, now: Now) -> _Result:
        """Delete offsets (KIP-496), except those of subscribed topics, or all if a subscription cannot be read."""
        del now
        group, consumer_group = self.classic.groups.get(key), self.consumer.groups.get(key)
        kept_topics: frozenset[str] | None = frozenset()
        if consumer_group is not None:
            kept_topics = self.consumer.subscribed_topics(consumer_group)
        elif group is None:
            return answer(key, to, ErrorCode.group_id_not_found)
        elif group.state is not State.EMPTY:
            if group.protocol_type != PROTOCOL_TYPE:
                return answer(key, to, ErrorCode.non_empty_group)
            kept_topics = group.subscribed_topics()
        errors: dict[TopicPartition, ErrorCode] = {}
        for partition in request.partitions:
            is_kept = kept_topics is None or partition.topic in kept_topics
            errors[partition] = ErrorCode.group_subscribed_to_topic if is_kept else ErrorCode.none
        known = frozenset(self.offsets.partitions(key))
        gone = [each for each, error in errors.items() if error is ErrorCode.none and each in known]
        return self._deletion(key, gone, with_group=False, to=to, reply=errors)

    def _deletion(
        self,
        group_id: str,
        partitions: list[TopicPartition],
        *,
        with_group: bool,
        to: object = None,
        reply: object = ErrorCode.none,
    ) -> _Result:
        """Return the result that deletes offsets, and the group if `with_group`; `to` is None if no request waits."""
        records: list[GroupRecord] = [OffsetCommitRecord(group_id, each, None) for each in partitions]
        if with_group and group_id in self.consumer.groups:
            records += self.consumer.deletion(group_id)
        elif with_group:
            records.append(GroupMetadataRecord(group_id, None))
        deleted = OffsetsDeleted(group_id=group_id, count=len(partitions), with_group=with_group)
        return CoordinatorResult(
            key=group_id,
            records=records,
            replies=() if to is None else (Reply(to=to, value=reply),),
            events=(deleted,) if records else (),
            is_atomic=False,
            is_only_records=True,
        )


def _partition_counts(image: ClusterImage) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in image.topics.items()}
