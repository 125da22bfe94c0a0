"""The fast path for Produce requests with one partition that begin like an earlier request of their connection.

```
int32 api key and version | int32 correlation id | everything up to the records' length | length | records | 3 tags?
                                                   always the same for a client's partition
```
All requests of librdkafka have this form; their version is 7 or later. For a known prefix nothing is decoded, and the
response is a copy of an encoded response with the numbers replaced; that halves the time of a small request. Other and
failing requests take the full path (`produce`), and so do those of a muted connection. A prefix contains the client id,
so the quotas that apply to it are known as well.
"""

import struct
from typing import Final

from odradek.broker.handlers.delayed_produce import DelayedProduce, Place, Terms
from odradek.broker.log.validation import AppendInfo
from odradek.broker.replication.partition import Partition
from odradek.broker.security.context import RequestContext, Session
from odradek.broker.security.quotas.client_quotas import Charge, ClientLimits, ClientQuotas
from odradek.broker.serving.responses import frame as response_frame
from odradek.model import KafkaError
from odradek.protocol.messages.headers import RequestHeader
from odradek.protocol.messages.produce import FLEXIBLE_FROM, PartitionResponse, TopicResponse, encode_produce_response
from odradek.protocol.varint import read_unsigned_varint
from odradek.runtime import Clock
from odradek.wire.reply import Reply

_HEAD: Final = struct.Struct(">ii")
_INT32: Final = struct.Struct(">i")
_OFFSETS: Final = struct.Struct(">qqq")
_NO_TAGS: Final = b"\x00\x00\x00"
"""The empty tag sections of the partition, the topic and the request."""
_MARK: Final = 0x1122334455667788
"""A base offset whose bytes occur nowhere else in an encoded response."""
_MOST_PREFIXES: Final = 1024
_MOST_LENGTHS: Final = 4
_LONGEST_PREFIX: Final = 512
"""Limits of known prefixes, of their different lengths, and of their bytes, beyond which a fast path saves nothing."""


class ProduceFastPath:
    """The known prefixes of one connection."""

    __slots__ = ("_authorizer", "_authorizer_version", "_clock", "_ends", "_prefixes", "_quotas", "_session")

    def __init__(self, session: Session, quotas: ClientQuotas, clock: Clock) -> None:
        self._session = session
        self._authorizer = session.admission.authorizer
        self._authorizer_version = self._authorizer.version
        self._quotas = quotas
        self._clock = clock
        self._ends: list[int] = []
        self._prefixes: dict[bytes, _Prefix] = {}

    def __call__(self, frame: memoryview) -> Reply | None:
        """Append the records of a request with a known prefix; return None for other requests and after an error."""
        if self._authorizer.version != self._authorizer_version:
            self._forget()
        for end in self._ends:
            prefix = self._prefixes.get(bytes(frame[8:end]))
            if prefix is None:
                continue
            head, correlation_id = _HEAD.unpack_from(frame)
            if head != prefix.head:
                return None
            records = _records(frame, end, flexible=prefix.is_flexible)
            if records is None:
                return None
            partition, charge = prefix.partition, None
            if (quotas := self._quotas).are_set:
                if quotas.is_muted(self._session.connection):
                    return None
                charge = prefix.begin(self._session, quotas, correlation_id, len(frame))
            try:
                info = partition.append_records(records, acks=prefix.terms.acks, now_ms=self._clock.now_ms())
            except KafkaError:
                return None  # nothing was appended; the full path answers with the error
            reply = _DelayedAnswer(prefix, correlation_id, info)
            reply.wait_for(info, partition)
            if charge is not None:
                charge.apply(reply)
            return reply
        return None

    def learn(
        self, frame: memoryview, context: RequestContext, partition: Partition, records: memoryview, terms: Terms
    ) -> None:
        """Store the prefix, unless it is too long, of a one-partition request that the full path has appended."""
        header = context.header
        is_flexible = header.api_version >= FLEXIBLE_FROM
        start = len(frame) - len(records) - (len(_NO_TAGS) if is_flexible else 0)
        length_size = _varint_size(len(records) + 1) if is_flexible else _INT32.size
        end = start - length_size
        found = _records(frame, end, flexible=is_flexible)
        if found is None or len(found) != len(records) or end > _LONGEST_PREFIX:
            return
        is_outdated = self._authorizer.version != self._authorizer_version
        if is_outdated or len(self._prefixes) >= _MOST_PREFIXES or len(self._ends) >= _MOST_LENGTHS:
            self._forget()
        self._prefixes[bytes(frame[8:end])] = _Prefix(header, partition, terms, _HEAD.unpack_from(frame)[0])
        if end not in self._ends:
            self._ends.append(end)

    def _forget(self) -> None:
        """Forget all prefixes, so that the full path authorizes each of them again."""
        self._authorizer_version = self._authorizer.version
        self._prefixes.clear()
        self._ends.clear()


class _Prefix:
    """A known prefix: its partition, the encoded response, and the limits of its client id."""

    __slots__ = (
        "_limits",
        "_limits_version",
        "_place",
        "_template",
        "head",
        "header",
        "is_flexible",
        "partition",
        "terms",
    )

    def __init__(self, header: RequestHeader, partition: Partition, terms: Terms, head: int) -> None:
        self.header = header
        self.head = head
        self.is_flexible = header.api_version >= FLEXIBLE_FROM
        self.partition = partition
        self.terms = terms
        self._template = self.encode(PartitionResponse(partition.topic_partition.partition, 0, _MARK))
        self._place = self._template.index(_MARK.to_bytes(8, "big"))
        self._limits: ClientLimits | None = None
        self._limits_version = -1

    def begin(self, session: Session, quotas: ClientQuotas, correlation_id: int, size: int) -> Charge | None:
        """Return a charge for a request of `size` bytes; None if no quota applies."""
        if self._limits_version != quotas.version:
            self._limits = quotas.produce_limits(RequestContext(self.header, session))
            self._limits_version = quotas.version
        if self._limits is None:
            return None
        header = self.header._replace(correlation_id=correlation_id)
        return quotas.charge(RequestContext(header, session), self._limits, size)

    def encode(self, response: PartitionResponse) -> bytes:
        topic = TopicResponse(self.partition.topic_partition.topic, self.partition.topic_id, [response])
        (answer,) = response_frame(self.header, encode_produce_response(self.header.api_version, [topic]))
        return bytes(answer)

    def answer(self, correlation_id: int, info: AppendInfo, failed: PartitionResponse | None) -> bytearray:
        """Return the response with the append's offsets, or with `failed`."""
        answer = bytearray(self._template if failed is None else self.encode(failed))
        _INT32.pack_into(answer, 4, correlation_id)
        if failed is None:
            _OFFSETS.pack_into(answer, self._place, info.first_offset, info.log_append_time, info.log_start_offset)
        return answer


class _DelayedAnswer(DelayedProduce):
    """The reply to one request with a known prefix."""

    _failed: PartitionResponse | None = None

    def __init__(self, prefix: _Prefix, correlation_id: int, info: AppendInfo) -> None:
        self._terms = prefix.terms
        self._awaited = {}
        self._prefix = prefix
        self._correlation_id = correlation_id
        self._info = info

    def set_response(self, place: Place, response: PartitionResponse) -> None:
        self._failed = response

    def respond(self) -> None:
        self.complete((self._prefix.answer(self._correlation_id, self._info, self._failed),))


def _records(frame: memoryview, end: int, *, flexible: bool) -> memoryview | None:
    """Return the records after a prefix that ends at `end`; None if they do not fill the rest of the frame."""
    if not flexible:
        if len(frame) < end + 4:
            return None
        start = end + 4
        length: int = _INT32.unpack_from(frame, end)[0]
        return frame[start:] if 0 < length == len(frame) - start else None
    try:
        length, start = read_unsigned_varint(frame, end)
    except (IndexError, KafkaError):
        return None
    stop = start + length - 1
    return frame[start:stop] if length > 1 and stop + 3 == len(frame) and bytes(frame[stop:]) == _NO_TAGS else None


def _varint_size(value: int) -> int:
    return max(1, (value.bit_length() + 6) // 7)
