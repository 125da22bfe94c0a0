"""The mark of a pipeline in its snapshot's summary: the query and the batch, and the next offset of each partition.

    odradek.pipeline  orders
    odradek.query     the id of the streaming query, which its checkpoint has
    odradek.batch     12
    odradek.writer    who committed it, for people
    odradek.offsets   [{"orders": ["4f1c2a", "BAIF"]}]

`odradek.offsets` has an object for each source of the query, null for one that is not Odradek's. The object has the id
and the offsets of each topic: zigzag varints in base64, each the difference to the partition before; a partition
without an offset counts as -1. Every snapshot repeats them, so they are short: about three bytes for a partition.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from odradek.model import OdradekError
from odradek.protocol.varint import encode_varint, read_varint

PREFIX: Final = "odradek."
"""Begins the names of our tags and of our keys in summaries and properties."""
_ABSENT: Final = -1
_DAMAGED: Final = (KeyError, ValueError, TypeError, AttributeError, IndexError, binascii.Error, OdradekError)


class TopicOffsets(Struct, frozen=True):
    """The next offset by partition, and the topic's id; an empty text if its brokers give topics no ids."""

    topic_id: str
    offsets: Mapping[int, int]


SourceOffsets = Mapping[str, TopicOffsets] | None
"""The next offsets of a query's source by topic; None for a source that is not Odradek's."""
Progress = tuple[SourceOffsets, ...]
"""The next offsets of all sources of a query; empty if they are unknown."""


class Mark(Struct, frozen=True, kw_only=True):
    """The pipeline, query and batch of a snapshot, with the next offsets."""

    pipeline: str
    query: str
    batch: int
    writer: str
    progress: Progress = ()


def encode_mark(mark: Mark) -> dict[str, str]:
    """Return the keys for a snapshot's summary."""
    found = {"pipeline": mark.pipeline, "query": mark.query, "batch": str(mark.batch), "writer": mark.writer}
    if mark.progress:
        found["offsets"] = encode_progress(mark.progress)
    return {PREFIX + key: value for key, value in found.items()}


def encode_progress(progress: Progress) -> str:
    sources = [
        None if source is None else {name: [each.topic_id, _packed(each.offsets)] for name, each in source.items()}
        for source in progress
    ]
    return json.dumps(sources, separators=(",", ":"), sort_keys=True)


def decode_progress(text: str | None) -> Progress:
    """Return the offsets in a text; an empty tuple for None, and for a text that is damaged."""
    try:
        return _decoded(text or "[]")
    except _DAMAGED:
        return ()


def _decoded(text: str) -> Progress:
    return tuple(map(_source, json.loads(text)))


def decode_mark(summary: Mapping[str, str]) -> Mark | None:
    """Return the mark in a summary; None if it has none, or one that is damaged."""
    try:
        return Mark(
            pipeline=summary[f"{PREFIX}pipeline"],
            query=summary[f"{PREFIX}query"],
            batch=int(summary[f"{PREFIX}batch"]),
            writer=summary.get(f"{PREFIX}writer", ""),
            progress=_decoded(summary.get(f"{PREFIX}offsets", "[]")),
        )
    except _DAMAGED:
        return None


def _source(encoded: Mapping[str, tuple[str, str]] | None) -> SourceOffsets:
    if encoded is None:
        return None
    return {name: TopicOffsets(topic_id, _unpacked(packed)) for name, (topic_id, packed) in encoded.items()}


def _packed(offsets: Mapping[int, int]) -> str:
    """Return the offsets of partitions 0 to the last one, each as the difference to the one before."""
    packed, before = bytearray(), 0
    for partition in range(max(offsets, default=-1) + 1):
        offset = offsets.get(partition, _ABSENT)
        packed += encode_varint(offset - before)
        before = offset
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def _unpacked(packed: str) -> dict[int, int]:
    data = base64.urlsafe_b64decode(packed + "=" * (-len(packed) % 4))
    found: dict[int, int] = {}
    position = partition = offset = 0
    while position < len(data):
        difference, position = read_varint(data, position)
        offset += difference
        if offset != _ABSENT:
            found[partition] = offset
        partition += 1
    return found
