"""The embedded protocol `consumer`, versions 0 to 3: subscriptions and assignments of members of a classic group.

Members send these bytes to each other through the coordinator.

```
subscription  version int16 | topics [string] | user_data bytes? | 1+: owned [topic string, partitions [int32]]
              2+: generation_id int32 | 3+: rack_id string?
assignment    version int16 | partitions [topic string, partitions [int32]] | user_data bytes?

user data in subscriptions, by assignor; it does not start with a version
sticky               previous_assignment [topic string, partitions [int32]] | 1: generation int32
cooperative-sticky   generation int32
```
Each version only appends fields, so the fields of version 3 can be read from any newer version. Members always write
version 3, as Java's do (KIP-429 owned partitions, KIP-792 generation, KIP-881 rack).
"""

import struct
from collections.abc import Iterable
from itertools import groupby
from typing import Final

from msgspec import Struct

from odradek.model import Buffer, TopicPartition
from odradek.protocol.primitives import (
    DECODE_ERRORS,
    INT16,
    INT32,
    encode_length,
    encode_string,
    malformed,
    read_count,
    read_string,
    read_text,
    read_view,
)

PROTOCOL_TYPE: Final = "consumer"
VERSION: Final = 3


class Subscription(Struct, frozen=True, kw_only=True):
    """A member's metadata in JoinGroup, for the group's leader.

    `generation_id` is -1 if the member owned no partitions or its client is too old.
    """

    topics: tuple[str, ...]
    user_data: bytes | None = None
    owned_partitions: tuple[TopicPartition, ...] = ()
    generation_id: int = -1
    rack_id: str | None = None


class Assignment(Struct, frozen=True, kw_only=True):
    """The leader's assignment for one member."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None


class StickyUserData(Struct, frozen=True, kw_only=True):
    """User data of `sticky`: the partitions that the member had before it revoked them; version 0 has no generation."""

    partitions: tuple[TopicPartition, ...]
    generation: int = -1


def encode_subscription(subscription: Subscription, version: int = VERSION) -> bytes:
    """Encode a subscription as a protocol's metadata in JoinGroup."""
    parts = [INT16.pack(version), INT32.pack(len(subscription.topics))]
    parts += [encode_string(topic, flexible=False) for topic in subscription.topics]
    parts.append(_encode_bytes(subscription.user_data))
    if version >= 1:
        parts.append(_encode_partitions(subscription.owned_partitions))
    if version >= 2:
        parts.append(INT32.pack(subscription.generation_id))
    if version >= 3:
        parts.append(encode_string(subscription.rack_id, flexible=False))
    return b"".join(parts)


def decode_subscription(data: Buffer) -> Subscription:
    """Decode a subscription of any version; fields after version 3 are ignored. Raises `MalformedMessageError`."""
    view = memoryview(data)
    owned: tuple[TopicPartition, ...] = ()
    generation_id, rack_id = -1, None
    try:
        version, offset = _read_version(view)
        count, offset = read_count(view, offset, flexible=False)
        topics = []
        for _ in range(count):
            topic, offset = read_text(view, offset, flexible=False)
            topics.append(topic)
        user_data, offset = read_view(view, offset, flexible=False)
        if version >= 1:
            owned, offset = _read_partitions(view, offset)
        if version >= 2:
            (generation_id,) = INT32.unpack_from(view, offset)
            offset += INT32.size
        if version >= 3:
            rack_id, offset = read_string(view, offset, flexible=False)
    except DECODE_ERRORS as error:
        raise malformed("subscription", error) from error
    return Subscription(
        topics=tuple(topics),
        user_data=None if user_data is None else bytes(user_data),
        owned_partitions=owned,
        generation_id=generation_id,
        rack_id=rack_id,
    )


def subscription_version(data: Buffer) -> int:
    """Return the version of a subscription, but at most 3; the member's assignment is encoded in it.

    Raises `MalformedMessageError` if there is no valid version.
    """
    try:
        return min(_read_version(memoryview(data))[0], VERSION)
    except DECODE_ERRORS as error:
        raise malformed("subscription", error) from error


def encode_assignment(assignment: Assignment, version: int = VERSION) -> bytes:
    """Encode a member's assignment for SyncGroup; all versions have the same fields."""
    return INT16.pack(version) + _encode_partitions(assignment.partitions) + _encode_bytes(assignment.user_data)


def decode_assignment(data: Buffer) -> Assignment:
    """Decode an assignment of any version; empty bytes are an empty assignment. Raises `MalformedMessageError`."""
    view = memoryview(data)
    if not view:
        return Assignment(partitions=())
    try:
        _, offset = _read_version(view)
        partitions, offset = _read_partitions(view, offset)
        user_data, _ = read_view(view, offset, flexible=False)
    except DECODE_ERRORS as error:
        raise malformed("assignment", error) from error
    return Assignment(partitions=partitions, user_data=None if user_data is None else bytes(user_data))


def encode_sticky_user_data(data: StickyUserData) -> bytes:
    """Encode the user data of `sticky`: Kafka's StickyAssignorUserData, version 1."""
    return _encode_partitions(data.partitions) + INT32.pack(data.generation)


def decode_sticky_user_data(data: Buffer) -> StickyUserData:
    """Decode the user data of `sticky`, version 0 or 1. Raises `MalformedMessageError`."""
    view = memoryview(data)
    try:
        partitions, offset = _read_partitions(view, 0)
        generation = INT32.unpack_from(view, offset)[0] if len(view) - offset >= INT32.size else -1
    except DECODE_ERRORS as error:
        raise malformed("sticky user data", error) from error
    return StickyUserData(partitions=partitions, generation=generation)


def encode_generation_user_data(generation: int) -> bytes:
    """Encode the user data of `cooperative-sticky`."""
    return INT32.pack(generation)


def decode_generation_user_data(data: Buffer) -> int:
    """Return the generation in the user data of `cooperative-sticky`. Raises `MalformedMessageError`."""
    try:
        generation: int = INT32.unpack_from(data)[0]
    except DECODE_ERRORS as error:
        raise malformed("cooperative-sticky user data", error) from error
    return generation


def _read_version(view: memoryview) -> tuple[int, int]:
    (version,) = INT16.unpack_from(view)
    if version < 0:
        raise ValueError(f"its version is {version}")
    return version, INT16.size


def _encode_bytes(data: bytes | None) -> bytes:
    return encode_length(-1 if data is None else len(data), flexible=False) + (data or b"")


def _encode_partitions(partitions: Iterable[TopicPartition]) -> bytes:
    topics = [(topic, [p.partition for p in group]) for topic, group in groupby(sorted(partitions), lambda p: p.topic)]
    parts = [INT32.pack(len(topics))]
    for topic, numbers in topics:
        parts += (
            encode_string(topic, flexible=False),
            struct.pack(f">i{len(numbers)}i", len(numbers), *numbers),
        )
    return b"".join(parts)


def _read_partitions(view: memoryview, offset: int) -> tuple[tuple[TopicPartition, ...], int]:
    topic_count, offset = read_count(view, offset, flexible=False)
    partitions: list[TopicPartition] = []
    for _ in range(topic_count):
        topic, offset = read_text(view, offset, flexible=False)
        count, offset = read_count(view, offset, flexible=False)
        if offset + 4 * count > len(view):
            raise IndexError(f"{count} partitions are more than there are bytes for")
        partitions += [TopicPartition(topic, number) for number in struct.unpack_from(f">{count}i", view, offset)]
        offset += 4 * count
    return tuple(partitions), offset
