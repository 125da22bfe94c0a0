"""The check that replies of group coordinators show only what is committed: offsets, and assignments of generations.

A reply may have the state of any moment from the arrival of its request on, as the log of `__consumer_offsets` has it
below the high watermark. The check reads that log itself: it shares no code with the coordinators but the decoding.
"""

from collections import defaultdict
from collections.abc import Iterator
from typing import Any, Final

from odradek.broker.groups.machine.records import GroupMetadataRecord, GroupRecordCodec, OffsetCommitRecord
from odradek.broker.lifecycle import Broker
from odradek.broker.log.log import Log
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.model.names import OFFSETS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.control_records import ControlType, decode_marker
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import decode_records
from odradek.protocol.internal_records.group_records import GroupMetadataValue
from odradek.simulation.promises import BrokenPromiseError
from odradek.simulation.virtual.message_tap import MessageTap, TappedRequest

_PLACE: Final = TopicPartition(OFFSETS_TOPIC, 0)
_READ_BYTES: Final = 1 << 20
_NO_OFFSET: Final = -1
_Key = tuple[str, str, int]
"""`(group, topic, partition)` of a committed offset, or `(group, "", 0)` of a generation."""


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
    """The findings in the responses of all brokers to OffsetFetch and SyncGroup."""

    def __init__(self) -> None:
        self.findings: list[str] = []
        self._states: dict[Log, _CommittedState] = {}
        self._arrived: dict[int, tuple[TappedRequest, _CommittedState, int]] = {}
        """Requests without a response, by identity, with the state and its number of changes at their arrival."""
        self._tap = MessageTap((ApiKey.OFFSET_FETCH, ApiKey.SYNC_GROUP), self._on_request, self._on_response)

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
        if (state := self._state(request.broker)) is not None:
            self._arrived[id(request)] = request, state, state.changes

    def _on_response(self, request: TappedRequest, response: Any) -> bool:
        _, state, change = self._arrived.pop(id(request), (request, None, 0))
        if state is not None and state is self._state(request.broker):
            shown = (
                _offsets(request, response) if request.api is ApiKey.OFFSET_FETCH else _generation(request, response)
            )
            for key, value in shown:
                if not any(_shows(each, value) for each in state.since(key, change)):
                    self.findings.append(
                        f"broker {request.broker.broker_id} answered {request.api.name} of {key} with {value}, "
                        f"and had committed {state.since(key, change)}"
                    )
        return True


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


def _generation(request: TappedRequest, response: Any) -> Iterator[tuple[_Key, Any]]:
    """Yield the generation, the member and its assignment that a SyncGroup response shows."""
    message = request.message
    if response.error_code == ErrorCode.none:
        yield (message.group_id, "", 0), (message.generation_id, message.member_id, response.assignment)


def _shows(committed: Any, shown: Any) -> bool:
    """Return whether a committed value, such as a generation, is what a response shows."""
    if isinstance(committed, GroupMetadataValue):
        members = {member.member_id: member.assignment for member in committed.members}
        generation, member_id, assignment = shown
        return generation == committed.generation and members.get(member_id) == (assignment or b"")
    if isinstance(shown, tuple):
        return committed is None  # a classic member of a group of the consumer protocol
    return bool(shown == (_NO_OFFSET if committed is None else committed))
