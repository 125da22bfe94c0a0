"""ListOffsets: the offset of a timestamp, or the start or end offset of a partition.

```
timestamp -1  latest: the high watermark, for read-committed the last stable offset      -2  earliest
          -3  the record with the largest timestamp (KIP-734, version 7)                 -4  earliest on this disk
          -5  latest in tiered storage (KIP-1005)   -6  earliest not yet there (KIP-1023)   here both give offset -1
```
The high watermark of a new leader may be lower than the one that its predecessor returned. Until it has reached the
start of the new epoch, consumers get OFFSET_NOT_AVAILABLE for the latest offset, and retry (KIP-207).

Versions: 2 isolation level, 4 leader epochs (KIP-320), 5 OFFSET_NOT_AVAILABLE, 8, 9, 11 tiered storage, 10 a timeout.
"""

from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, cast

from odradek.broker.interfaces import BrokerParts
from odradek.broker.replication.partition import Partition
from odradek.broker.security.admission import authorization_error
from odradek.broker.security.context import RequestContext
from odradek.broker.turns import TURN, Steps
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.messages.message_codec import optional
from odradek.security import AclOperation, ResourceType

if TYPE_CHECKING:
    from kio.schema.list_offsets.v11.request import ListOffsetsRequest as Message

LATEST: Final = -1
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
EARLIEST_LOCAL: Final = -4
LATEST_TIERED: Final = -5
EARLIEST_PENDING_UPLOAD: Final = -6
_SINCE: Final = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9, EARLIEST_PENDING_UPLOAD: 11}
_READ_COMMITTED: Final = 1
_OFFSET_NOT_AVAILABLE_FROM: Final = 5
_STEP: Final = 16
_CONSUMER: Final = -1
"""The replica id of consumers. Debugging consumers send -2."""


class _Found(NamedTuple):
    """An offset with its timestamp and epoch; -1 stands for unknown."""

    timestamp: int = -1
    offset: int = -1
    leader_epoch: int = -1


def handle(broker: BrokerParts, context: RequestContext, message: "Message") -> Steps[dict[str, object]]:
    """Return one result per partition; a partition that is named twice gets INVALID_REQUEST."""
    named = [(topic.name, each.partition_index) for topic in message.topics for each in topic.partitions]
    twice = {each for each, count in Counter(named).items() if count > 1} if len(set(named)) < len(named) else set()
    names = (topic.name for topic in message.topics)
    denied = yield from context.denied(AclOperation.DESCRIBE, ResourceType.TOPIC, names)
    read_committed = optional(message, "isolation_level", 0) == _READ_COMMITTED
    is_consumer = message.replica_id == _CONSUMER
    topics, weight = [], 0
    for topic in message.topics:
        partitions: list[dict[str, object]] = []
        weight += 1
        for wanted in topic.partitions:
            if weight >= _STEP:  # the work so far; the rest needs no step
                yield weight
                weight = 0
            weight += TURN if wanted.timestamp >= 0 or wanted.timestamp == MAX_TIMESTAMP else 1
            number = wanted.partition_index
            place = topic.name, number
            try:
                if topic.name in denied:
                    raise authorization_error(ResourceType.TOPIC)
                if place in twice:
                    raise KafkaError(ErrorCode.invalid_request)
                partition = broker.partitions.leader(*place)
                partition.check_leader_epoch(optional(wanted, "current_leader_epoch", -1))
                end = _end(partition, is_consumer=is_consumer, read_committed=read_committed)
                is_end_known = not is_consumer or partition.is_end_known
                steps = _find(partition, wanted.timestamp, context.api_version, end, is_end_known=is_end_known)
                found = yield from _while_led(partition, partial(broker.partitions.leader, *place), steps)
            except KafkaError as error:
                partitions.append({"partition_index": number, "error_code": error.code})
            else:
                timestamp, offset, epoch = found
                found_here = {"timestamp": timestamp, "offset": offset, "leader_epoch": epoch}
                partitions.append({"partition_index": number, "error_code": 0, **found_here})
        topics.append({"name": topic.name, "partitions": partitions})
    return {"topics": topics}


def _end(partition: Partition, *, is_consumer: bool, read_committed: bool) -> int:
    """Return the end offset that the client may see: followers and debugging consumers see all written records."""
    if not is_consumer:
        return partition.log.written_offset
    return partition.last_stable_offset if read_committed else partition.high_watermark


def _while_led(partition: Partition, leader: Callable[[], Partition], steps: Steps[_Found]) -> Steps[_Found]:
    """Do `steps` while this broker leads the partition: afterwards its log may be deleted or truncated."""
    while leader() is partition:
        try:
            yield next(steps)
        except StopIteration as done:
            return cast("_Found", done.value)
    raise KafkaError(ErrorCode.not_leader_or_follower)


def _find(partition: Partition, timestamp: int, version: int, end: int, *, is_end_known: bool) -> Steps[_Found]:
    if timestamp < 0 and version < _SINCE.get(timestamp, 1):
        raise KafkaError(ErrorCode.unsupported_version)
    log, epoch = partition.log, partition.leader_epoch
    match timestamp:
        case -1:
            if not is_end_known:
                raise _end_is_unknown(version)
            return _Found(offset=end, leader_epoch=epoch)
        case -2 | -4:
            start = log.log_start_offset
            # The first record of an empty log will have this leader's epoch.
            return _Found(offset=start, leader_epoch=epoch if start == end else log.epochs.epoch_at(start))
        case -5 | -6:
            return _Found()
        case -3:
            found = yield from log.find_max_timestamp()
        case _ if timestamp < 0:
            raise KafkaError(ErrorCode.unsupported_version, f"there is no special timestamp {timestamp}")
        case _:
            found = yield from log.find_offset(timestamp)
    if found is not None and found.offset < end:
        return _Found(*found)
    if not is_end_known:
        raise _end_is_unknown(version)
    return _Found()


def _end_is_unknown(version: int) -> KafkaError:
    is_known_error = version >= _OFFSET_NOT_AVAILABLE_FROM
    return KafkaError(ErrorCode.offset_not_available if is_known_error else ErrorCode.leader_not_available)
