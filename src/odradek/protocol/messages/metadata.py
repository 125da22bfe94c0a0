"""Hand-written codec of Metadata, versions 0 to 13: decodes requests, encodes responses.

Every client sends Metadata first, so this module must not import a schema. Version notes: 1 adds the controller, racks,
and a null list for all topics; 2 the cluster id; 3 the throttle time; 4 `allow_auto_topic_creation`; 5 offline
replicas; 7 leader epochs; 8 authorized operations (KIP-430), those of the cluster only until 10; 9 is flexible; 10 adds
topic ids, with which names may be null (KIP-516); 13 a top-level error code (KIP-1102).
"""

import struct
import uuid
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final, NamedTuple

from odradek.model import Buffer
from odradek.protocol.primitives import (
    DECODE_ERRORS,
    INT32,
    Meter,
    encode_length,
    encode_string,
    encode_uuid,
    malformed,
    read_count,
    read_string,
    read_text,
    read_uuid,
    skip_tags,
)

FLEXIBLE_FROM: Final = 9
TOPIC_IDS_FROM: Final = 10
_CLUSTER_OPERATIONS_IN: Final = range(8, 11)

_PARTITION: Final = struct.Struct(">hii")
_PARTITION_WITH_EPOCH: Final = struct.Struct(">hiii")
_ERROR: Final = struct.Struct(">h")
_NOTHING: Final = bytes(4)


class WantedTopic(NamedTuple):
    """One topic of a request, by name or by id."""

    name: str | None
    topic_id: uuid.UUID | None


class MetadataRequest(NamedTuple):
    """A request; `topics` is None for all topics. Fields that the version lacks have their defaults."""

    topics: tuple[WantedTopic, ...] | None
    allow_auto_topic_creation: bool = True
    include_cluster_authorized_operations: bool = False
    include_topic_authorized_operations: bool = False


def decode_metadata_request(
    version: int, buffer: Buffer, offset: int = 0, *, meter: Meter | None = None
) -> MetadataRequest:
    """Decode a request's body. Raises `MalformedMessageError`, also for more entries than `meter` allows."""
    try:
        return _decode(version, buffer, offset, Meter(len(buffer)) if meter is None else meter)
    except DECODE_ERRORS as error:
        raise malformed("message", error) from error


def _decode(version: int, buffer: Buffer, offset: int, meter: Meter) -> MetadataRequest:
    flexible = version >= FLEXIBLE_FROM
    count, offset = read_count(buffer, offset, flexible=flexible, nullable=version >= 1)
    meter.take(max(count, 0))
    topics = []
    for _ in range(count):
        topic_id, name = None, None
        if version >= TOPIC_IDS_FROM:
            topic_id, offset = read_uuid(buffer, offset)
            name, offset = read_string(buffer, offset, flexible=True)
        else:
            name, offset = read_text(buffer, offset, flexible=flexible)
        if flexible:
            offset = skip_tags(buffer, offset, meter)
        topics.append(WantedTopic(name, topic_id))
    switches = {}
    for name, versions in (
        ("allow_auto_topic_creation", range(4, 1 << 15)),
        ("include_cluster_authorized_operations", _CLUSTER_OPERATIONS_IN),
        ("include_topic_authorized_operations", range(8, 1 << 15)),
    ):
        if version in versions:
            switches[name] = buffer[offset] != 0
            offset += 1
    if flexible:
        skip_tags(buffer, offset, meter)
    return MetadataRequest(None if count < 0 else tuple(topics), **switches)


def encode_metadata_response(version: int, message: Mapping[str, Any]) -> bytes:
    """Encode a response's body, with throttle time 0; all keys are required except the top-level `error_code`.

    Raises `KeyError`, `struct.error` or `TypeError` for an invalid message.
    """
    flexible = version >= FLEXIBLE_FROM
    tags = b"\x00" if flexible else b""
    parts = [_NOTHING] if version >= 3 else []
    brokers: Sequence[Mapping[str, Any]] = message["brokers"]
    parts.append(encode_length(len(brokers), flexible=flexible))
    for broker in brokers:
        parts += (INT32.pack(broker["node_id"]), encode_string(broker["host"], flexible=flexible))
        parts.append(INT32.pack(broker["port"]))
        if version >= 1:
            parts.append(encode_string(broker["rack"], flexible=flexible))
        parts.append(tags)
    if version >= 2:
        parts.append(encode_string(message["cluster_id"], flexible=flexible))
    if version >= 1:
        parts.append(INT32.pack(message["controller_id"]))
    topics: Sequence[Mapping[str, Any]] = message["topics"]
    parts.append(encode_length(len(topics), flexible=flexible))
    for topic in topics:
        _encode_topic(parts, version, topic)
    if version in _CLUSTER_OPERATIONS_IN:
        parts.append(INT32.pack(message["cluster_authorized_operations"]))
    if version >= 13:
        parts.append(_ERROR.pack(message.get("error_code", 0)))
    parts.append(tags)
    return b"".join(parts)


def _encode_topic(parts: list[bytes], version: int, topic: Mapping[str, Any]) -> None:
    flexible = version >= FLEXIBLE_FROM
    tags = b"\x00" if flexible else b""
    parts += (_ERROR.pack(topic["error_code"]), encode_string(topic["name"], flexible=flexible))
    if version >= TOPIC_IDS_FROM:
        parts.append(encode_uuid(topic["topic_id"]))
    if version >= 1:
        parts.append(b"\x01" if topic["is_internal"] else b"\x00")
    partitions: Sequence[Mapping[str, Any]] = topic["partitions"]
    parts.append(encode_length(len(partitions), flexible=flexible))
    for partition in partitions:
        error, index, leader = partition["error_code"], partition["partition_index"], partition["leader_id"]
        if version >= 7:
            parts.append(_PARTITION_WITH_EPOCH.pack(error, index, leader, partition["leader_epoch"]))
        else:
            parts.append(_PARTITION.pack(error, index, leader))
        parts.append(_brokers(tuple(partition["replica_nodes"]), flexible))
        parts.append(_brokers(tuple(partition["isr_nodes"]), flexible))
        if version >= 5:
            parts.append(_brokers(tuple(partition["offline_replicas"]), flexible))
        parts.append(tags)
    if version >= 8:
        parts.append(INT32.pack(topic["topic_authorized_operations"]))
    parts.append(tags)


# Thousands of partitions share few replica sets, so their encodings are cached.
@lru_cache(maxsize=4096)
def _brokers(ids: tuple[int, ...], flexible: bool) -> bytes:  # noqa: FBT001
    return encode_length(len(ids), flexible=flexible) + struct.pack(f">{len(ids)}i", *ids)
