"""Target: the fast path of Produce, which decodes nothing, compared with the full path, which decodes everything."""

import random
import struct
from collections.abc import Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any
from uuid import UUID

from conformance.fuzz.fuzz_engine import Target
from odradek.broker.counters import BrokerCounters
from odradek.broker.handlers.delayed_produce import Terms
from odradek.broker.handlers.produce_fast_path import ProduceFastPath
from odradek.broker.log.validation import AppendInfo
from odradek.broker.security.admission import Admission
from odradek.model import TopicPartition
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.headers import decode_request_header, encode_request_header
from odradek.protocol.messages.produce import VERSIONS as SERVED
from odradek.protocol.messages.produce import ProduceTopic, decode_produce_request, encode_produce_request
from odradek.security import ALLOW_ALL
from odradek.wire.reply import PendingReply

_ID = UUID(int=5)
_SIZES = (1, 0x7E, 0x7F, 300)


_TIMEOUT_MS = 1000
VERSIONS = [each for each in SERVED if each >= 7]
"""Those that the full path passes to `learn`."""


class _Clock:
    def now_ms(self) -> int:
        return 5


class _Partition:
    """A partition that accepts all records."""

    topic_partition = TopicPartition("t", 3)
    topic_id = _ID
    has_followers = False

    def __init__(self) -> None:
        self.taken: list[bytes] = []

    def append_records(self, records: memoryview, *, acks: int, now_ms: int) -> AppendInfo:
        self.taken.append(bytes(records))
        return AppendInfo(7, 8, -1, 0, False)

    def when_acknowledged(self, info: AppendInfo, *, acks: int, waiter: Any) -> None:
        self.acks = acks
        self.waiter = waiter


def _frame(version: int, acks: int, records: bytes) -> bytes:
    topic = ProduceTopic("t", _ID, [(3, records)])
    body = encode_produce_request(version, [topic], acks=acks, timeout_ms=_TIMEOUT_MS)
    return encode_request_header(ApiKey.PRODUCE, version, 77, "c") + b"".join(body)


@cache
def _learned(version: int, acks: int) -> tuple[ProduceFastPath, Any]:
    """Return a fast path that knows the prefixes of some requests, and their partition; calls do not change it."""
    partition: Any = _Partition()
    clock: Any = _Clock()
    purgatory: Any = None
    session: Any = SimpleNamespace(admission=Admission(ALLOW_ALL))
    quotas: Any = SimpleNamespace(are_set=False)
    fast_path = ProduceFastPath(session, quotas, clock)
    for size in _SIZES:
        learned = memoryview(_frame(version, acks, b"r" * size))
        header = decode_request_header(learned)
        context: Any = type("Context", (), {"header": header})
        records = decode_produce_request(version, learned, header.body_offset).topics[0].partitions[0][1]
        assert isinstance(records, memoryview)
        fast_path.learn(learned, context, partition, records, Terms(acks, _TIMEOUT_MS, BrokerCounters(), purgatory))
    return fast_path, partition


def check_fast_path(data: bytes) -> None:
    """Check that the full path would append and answer the same as the fast path did."""
    if len(data) < 2:
        return
    version, acks = VERSIONS[data[0] % len(VERSIONS)], (1, -1)[data[1] & 1]
    fast_path, partition = _learned(version, acks)
    partition.taken.clear()
    frame = memoryview(data)[2:]
    reply = fast_path(frame)
    if reply is None:
        assert not partition.taken
        return
    header = decode_request_header(frame)
    request = decode_produce_request(header.api_version, frame, header.body_offset)
    ((name, topic_id, ((number, decoded),)),) = request.topics
    assert (header.api_key, header.api_version) == (ApiKey.PRODUCE, version)
    assert topic_id == _ID if version >= 13 else name == "t"
    assert number == 3
    assert [decoded] == partition.taken
    assert request.acks == partition.acks == acks
    assert isinstance(reply, PendingReply)
    partition.waiter(None)
    (answer,) = reply.buffers
    assert struct.unpack_from(">ii", answer) == (len(answer) - 4, header.correlation_id)


def fast_path_seeds() -> Iterator[bytes]:
    """Yield for each version a request that is known, and one that is not."""
    for number, version in enumerate(VERSIONS):
        for acks in (1, -1):
            for size in (1, 0x7D, 0x7E, 0x7F, 300):
                yield bytes([number, acks & 0xFF == 0xFF]) + _frame(version, acks, b"x" * size)
    yield b"\x05\x00" + _frame(VERSIONS[6], 1, b"x" * 20)


def mutate_end(data: bytes, chance: random.Random) -> bytes | None:
    """Change what is behind the known beginning, or the numbers before it; the rest would only be unknown."""
    if len(data) < 30:
        return None
    places = (*range(6, 10), *range(20, min(len(data), 60)), len(data) - 1, len(data) - 2, len(data) - 3)
    place = chance.choice(places)
    new = chance.choice(
        (b"", b"\x00", b"\x01", b"\x80\x01", b"\xff\xff\xff\xff\x0f", b"\x81\x80\x00", chance.randbytes(1))
    )
    return data[:place] + new + data[place + chance.choice((0, 1, 1, 2)) :]


TARGETS = {
    "fast_path": Target(
        check=check_fast_path,
        seeds=fast_path_seeds,
        mutate=mutate_end,
        finish=_learned.cache_clear,
        reaches={"odradek.broker.handlers.produce_fast_path": 0.75},
        runs=3000,
    )
}
