"""Targets: the cutting of a stream into frames, and headers."""

import random
import struct
from collections.abc import Iterator

from conformance.fuzz.client_requests import distinct_requests
from conformance.fuzz.fuzz_engine import Target
from odradek.protocol.api import ApiKey, schema_versions
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.messages.headers import (
    decode_request_header,
    decode_response_header,
    encode_request_header,
    encode_response_header,
)
from odradek.wire.buffers import SMALLEST_BUFFER_BYTES, BufferPool
from odradek.wire.frames import FrameBuffer, FrameSizeError

_LIMITS = (0, 1, 64, 1000, 200_000, 5_000_000)
_APIS = [(api, version) for api in ApiKey for version in schema_versions(api)]
_POOL = BufferPool()
_MISERLY_POOL = BufferPool(limit_bytes=0)
_FILLING = 40_000


def split(stream: bytes, limit: int) -> tuple[list[bytes], bool]:
    """The frames of a stream, and whether it ends in one that cannot be: the plain way."""
    frames: list[bytes] = []
    position = 0
    while position + 4 <= len(stream):
        (size,) = struct.unpack_from(">i", stream, position)
        if not 0 <= size <= limit:
            return frames, True
        if position + 4 + size > len(stream):
            break
        frames.append(stream[position + 4 : position + 4 + size])
        position += 4 + size
    return frames, False


def check_frames(data: bytes) -> None:
    """A stream gives the same frames in whatever pieces it comes, and never takes much more memory than came."""
    chance = random.Random(data[:3])
    limit = _LIMITS[(data[0] if data else 0) % len(_LIMITS)]
    # A byte in eight stands for many: buffers are large, inputs are small.
    stream = b"".join(bytes([b]) * _FILLING if b % 8 == 5 and b > 100 else bytes([b]) for b in data[3:])
    expected, breaks = split(stream, limit)
    frames = FrameBuffer(_MISERLY_POOL if data[:1] > b"\x80" else _POOL, limit)
    found: list[bytes] = []
    position, broken, most_unread = 0, False, 0
    while position < len(stream) and not broken:
        space = frames.space()
        assert len(space), "no space is offered"
        size = min(len(space), chance.choice((1, 2, 3, 7, 100, 5000, 1 << 20)), len(stream) - position)
        space[:size] = stream[position : position + size]
        position += size
        may_have = frames.filled(size)
        most_unread = max(most_unread, frames.unread_bytes)
        before = len(found)
        try:
            while (frame := frames.next_frame()) is not None:
                found.append(bytes(frame))
                if chance.random() < 0.2:
                    frames.push_back(frame)
                    assert frames.next_frame() == frame
        except FrameSizeError:
            broken = True
        assert may_have or (len(found) == before and not broken), "a frame is there, and nobody was told"
        assert frames.held_bytes <= max(2 * SMALLEST_BUFFER_BYTES, 4 * most_unread, 4 << 20)
        if chance.random() < 0.1:
            frames.release_if_empty()
    assert found == expected
    assert broken == breaks
    frames.close()


def frame_seeds() -> Iterator[bytes]:
    """Small frames, large ones, and sizes that lie."""
    for number in range(0, 256, 25):
        head = bytes([number, 0, 0])
        yield head + b"".join(struct.pack(">i", size) + bytes(size) for size in (0, 1, 5, 60))
        yield head + struct.pack(">i", 5 * _FILLING) + b"\xfd" * 5 + struct.pack(">i", 3) + b"abc"
        yield head + struct.pack(">i", -1) + struct.pack(">i", 0x7FFFFFFF)


def check_headers(data: bytes) -> None:
    """A header lies in its frame, and says the same when it is encoded again."""
    for frame in (data, memoryview(data)):
        try:
            header = decode_request_header(frame)
        except MalformedMessageError:
            pass
        else:
            assert 10 <= header.body_offset <= len(data)
            again = encode_request_header(header.api_key, header.api_version, header.correlation_id, header.client_id)
            assert decode_request_header(again)[:4] == header[:4]
    api, version = _APIS[data[0] % len(_APIS) if data else 0]
    try:
        correlation_id, offset = decode_response_header(api, version, data[1:])
    except MalformedMessageError:
        return
    assert 4 <= offset <= len(data) - 1
    assert (
        decode_response_header(api, version, encode_response_header(api, version, correlation_id))[0] == correlation_id
    )


def header_seeds() -> Iterator[bytes]:
    """A header of each API, in its first and its last version, and those of existing clients."""
    for header, frame in distinct_requests():
        yield frame[: header.body_offset]
    for api in ApiKey:
        for version in {*schema_versions(api)[:1], *schema_versions(api)[-1:]}:
            for client_id in (None, "", "a client"):
                yield encode_request_header(api, version, 7, client_id)
    yield encode_request_header(999, 3, 7, "x")


TARGETS = {
    "frames": Target(check=check_frames, seeds=frame_seeds, reaches={"odradek.wire.frames": 0.85}, runs=1500),
    "headers": Target(
        check=check_headers,
        seeds=header_seeds,
        reaches={"odradek.protocol.messages.headers": 0.9, "odradek.protocol.primitives": 0.1},
        runs=10000,
        longest=256,
    ),
}
