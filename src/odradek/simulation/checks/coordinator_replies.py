"""The check that replies of group coordinators show only what is committed: offsets, generations, members, epochs.

A reply may have the state of any moment from the arrival of its request on, as the log of `__consumer_offsets` has it
below the high watermark. The check reads that log itself: it shares no code with the coordinators but the decoding.
FindCoordinator shows the leader that the broker knows when the request arrives, or when it answers.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple
from uuid import UUID

from odradek.broker.groups.machine.records import (
    ConsumerGroupRecord,
    GroupMetadataRecord,
    GroupRecordCodec,
    OffsetCommitRecord,
)
from odradek.broker.lifecycle import Broker
from odradek.broker.log.log import Log
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.control_records import ControlType, decode_marker
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import decode_records
from odradek.protocol.internal_records.group_records import ConsumerGroupCurrentMemberAssignmentKey, GroupMetadataValue
from odradek.simulation.promises import BrokenPromiseError
from odradek.simulation.virtual.message_tap import MessageTap, TappedRequest

_PLACE: Final = TopicPartition(OFFSETS_TOPIC, 0)
_READ_BYTES: Final = 1 << 20
_NO_OFFSET: Final = -1
_Key = tuple[str, str, int]
"""`(group, topic, partition)` of an offset, `(group, "", 0)` of a generation, `(group, member, -1)` of a member."""
_COORDINATED: Final = ((0, OFFSETS_TOPIC), (1, TRANSACTIONS_TOPIC))
"""The types of keys of FindCoordinator, and their topics."""


class _CommittedState:
    """The values in a log of `__consumer_offsets` below a high watermark, with all earlier ones."""

    def __init__(self) -> None:
        self.changes = 0
        self._next_offset = 0
        self._values: dict[_Key, list[tuple[int, Any]]] = defaultdict(list)
        """The values of each key, with the number of the change."""
        self._latest: dict[_Key, int] = {}
        """The log's offset of the newest record of each key."""
        self._pending: dict[int, dict[_Key, tuple[int, Any]]] = defaultdict(dict)

    def read(self, log: Log, end: int) -> None:
        """Read what has been committed since the last call."""
        self._next_offset = max(self._next_offset, log.log_start_offset)
        while self._next_offset < end and (data := log.read(self._next_offset, _READ_BYTES, up_to_offset=end)):
            for position, header in iterate_batches(memoryview(data)):
                if header.base_offset >= self._next_offset:
                    self._apply(header, memoryview(data)[position : position + header.size])
                self._next_offset = header.next_offset

    def since(self, key: _Key, change: int) -> list[Any]:
        """Return the value of a key after `change` changes, and all later values; None stands for no value."""
        values = self._values.get(key, [])
        before = [value for number, value in values if number <= change]
        return [before[-1] if before else None, *(value for number, value in values if number > change)]

    def _apply(self, header: Any, batch: memoryview) -> None:
        if header.is_control:
            marker, pending = decode_marker(batch), self._pending.pop(header.producer_id, {})
            if marker is not None and marker.type is ControlType.COMMIT:
                for key, (offset, value) in pending.items():
                    if offset > self._latest.get(key, -1):
                        self._put(key, offset, value)
            return
        for each in decode_records(batch):
            record = GroupRecordCodec().decode(each.key, each.value)
            if isinstance(record, GroupMetadataRecord):
                self._put((record.group_id, "", 0), each.offset, record.value)
            elif isinstance(record, ConsumerGroupRecord):
                if isinstance(record.key, ConsumerGroupCurrentMemberAssignmentKey):
                    self._put((record.group_id, record.key.member_id, -1), each.offset, record.value)
            elif isinstance(record, OffsetCommitRecord):
                key = record.group_id, *record.partition
                value = None if record.value is None else record.value.offset
                if header.is_transactional and value is not None:
                    self._pending[header.producer_id][key] = each.offset, value
                else:
                    self._put(key, each.offset, value)
                if value is None:
                    for pending in self._pending.values():
                        pending.pop(key, None)

    def _put(self, key: _Key, offset: int, value: Any) -> None:
        self.changes += 1
        self._latest[key] = offset
        self._values[key].append((self.changes, value))


class CoordinatorReplies:
    """The findings in the responses of all brokers to requests for coordinators."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        self._states: dict[Log, _CommittedState] = {}
        self._arrived: dict[int, tuple[TappedRequest, _CommittedState, int]] = {}
        """Requests without a response, by identity, with the state and its number of changes at their arrival."""
        self._led: dict[int, dict[int, int]] = {}
        """The coordinators that brokers knew when requests of FindCoordinator arrived, by the identity of those."""
        self._tap = MessageTap((*_SHOWN, ApiKey.FIND_COORDINATOR), self._on_request, self._on_response)

    def watch(self, broker: Broker) -> None:
        """Check the responses of a broker, which has not started, from now on."""
        self._tap.attach(broker)

    def raise_findings(self) -> None:
        """Raise `BrokenPromiseError` for the first finding, if there is one."""
        if self.findings:
            raise BrokenPromiseError(self.findings[0])

    def _state(self, broker: Broker) -> _CommittedState | None:
        """Return what is committed now; None if the broker does not lead the log, or cannot read it."""
        partition = broker.partitions.get(_PLACE)
        if partition is None:
            return None
        state = self._states.setdefault(partition.log, _CommittedState())
        try:
            state.read(partition.log, partition.high_watermark)
        except (OSError, KafkaError):  # the disk fails, or a fault has damaged the file
            return None
        return state

    def _on_request(self, request: TappedRequest) -> None:
        if request.api is ApiKey.FIND_COORDINATOR:
            self._led[id(request)] = _coordinators(request.broker)
        elif (state := self._state(request.broker)) is not None:
            self._arrived[id(request)] = request, state, state.changes

    def _on_response(self, request: TappedRequest, response: Any) -> bool:
        if request.api is ApiKey.FIND_COORDINATOR:
            self._check_coordinators(request, response)
            return True
        _, state, change = self._arrived.pop(id(request), (request, None, 0))
        if state is not None and state is self._state(request.broker):
            for key, value in _SHOWN[request.api](request, response):
                if not any(_shows(each, value) for each in state.since(key, change)):
                    self.findings.append(
                        f"broker {request.broker.broker_id} answered {request.api.name} of {key} with {value}, "
                        f"and had committed {state.since(key, change)}"
                    )
        return True

    def _check_coordinators(self, request: TappedRequest, response: Any) -> None:
        kind = getattr(request.message, "key_type", 0)
        known = {each.get(kind) for each in (self._led.pop(id(request), {}), _coordinators(request.broker))}
        for each in getattr(response, "coordinators", (response,)):
            if each.error_code == ErrorCode.none and each.node_id not in known:
                self.findings.append(
                    f"broker {request.broker.broker_id} answered that {each.node_id} coordinates, and knows {known}"
                )


def _coordinators(broker: Broker) -> dict[int, int]:
    """Return the leaders of the topics of coordinators that a broker knows, by the type of key."""
    found = {kind: broker.image.partition(TopicPartition(topic, 0)) for kind, topic in _COORDINATED}
    return {kind: partition.leader for kind, partition in found.items() if partition is not None}


class _Member(NamedTuple):
    """A member as a response shows it: of a generation, in which it has an assignment, if that is shown."""

    generation: int
    member_id: str
    assignment: bytes | None = None


class _Members(NamedTuple):
    """The assignments of all members of a stable group."""

    assignments: dict[str, bytes]


class _Epoch(NamedTuple):
    """A member of a consumer group: its epoch, and its partitions if they are shown."""

    epoch: int
    partitions: dict[UUID | None, tuple[int, ...]] | None


def _offsets(request: TappedRequest, response: Any) -> Iterator[tuple[_Key, Any]]:
    """Yield the offsets in a response; a request of one group has its id itself."""
    for group in getattr(response, "groups", (response,)):
        group_id = getattr(group, "group_id", None) or request.message.group_id
        for topic in group.topics:
            image = request.broker.image.topic_by_id(getattr(topic, "topic_id", None))
            name = getattr(topic, "name", "" if image is None else image.name)
            for each in topic.partitions if name else ():
                if each.error_code == ErrorCode.none:
                    yield (group_id, name, each.partition_index), each.committed_offset


def _assigned(request: TappedRequest, response: Any) -> Iterator[tuple[_Key, _Member]]:
    message = request.message
    if response.error_code == ErrorCode.none:
        yield (message.group_id, "", 0), _Member(message.generation_id, message.member_id, response.assignment or b"")


def _alive(request: TappedRequest, response: Any) -> Iterator[tuple[_Key, _Member]]:
    message = request.message
    if response.error_code == ErrorCode.none:
        yield (message.group_id, "", 0), _Member(message.generation_id, message.member_id)


def _joined(request: TappedRequest, response: Any) -> Iterator[tuple[_Key, _Member]]:
    if response.error_code == ErrorCode.none:
        yield (request.message.group_id, "", 0), _Member(response.generation_id, response.member_id)


def _described(request: TappedRequest, response: Any) -> Iterator[tuple[_Key, _Members]]:
    del request
    for group in response.groups:
        if group.error_code == ErrorCode.none and group.group_state == "Stable":
            members = {member.member_id: bytes(member.member_assignment) for member in group.members}
            yield (group.group_id, "", 0), _Members(members)


def _beaten(request: TappedRequest, response: Any) -> Iterator[tuple[_Key, _Epoch]]:
    """Yield the epoch in a response of ConsumerGroupHeartbeat; a negative one is that of a member that leaves."""
    if response.error_code == ErrorCode.none and response.member_epoch >= 0:
        given = response.assignment
        shown = None if given is None else _by_topic(given.topic_partitions)
        key = request.message.group_id, response.member_id or request.message.member_id, -1
        yield key, _Epoch(response.member_epoch, shown)


_SHOWN: Final[dict[ApiKey, Callable[[TappedRequest, Any], Iterator[tuple[_Key, Any]]]]] = {
    ApiKey.OFFSET_FETCH: _offsets,
    ApiKey.SYNC_GROUP: _assigned,
    ApiKey.HEARTBEAT: _alive,
    ApiKey.JOIN_GROUP: _joined,
    ApiKey.DESCRIBE_GROUPS: _described,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _beaten,
}


def _by_topic(places: Any) -> dict[UUID | None, tuple[int, ...]]:
    return {each.topic_id: tuple(sorted(each.partitions)) for each in places if each.partitions}


def _shows(committed: Any, shown: Any) -> bool:
    """Return whether a committed value, such as a generation, is what a response shows."""
    if isinstance(shown, _Epoch):
        return committed is not None and (
            shown.epoch == committed.member_epoch
            and shown.partitions in (None, _by_topic(committed.assigned_partitions))
        )
    if isinstance(committed, GroupMetadataValue):
        members = {member.member_id: member.assignment for member in committed.members}
        if isinstance(shown, _Members):
            return shown.assignments == members
        return shown.generation == committed.generation and (
            shown.member_id in members and shown.assignment in (None, members[shown.member_id])
        )
    if isinstance(shown, _Member | _Members):
        return committed is None  # a classic member of a group of the consumer protocol
    return bool(shown == (_NO_OFFSET if committed is None else committed))
