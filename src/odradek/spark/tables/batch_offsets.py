"""The offsets of a micro-batch, read from the files that Spark writes into its checkpoint before it runs the batch.

CHECKPOINT/metadata      {"id": the query's id}
CHECKPOINT/offsets/N     "v1", a line of the batch's settings, and a line of JSON with the end of each source
"""

import json
import logging
from pathlib import Path
from typing import Any

from msgspec import Struct

from odradek.model import OdradekError
from odradek.spark.reading.planning import decode_offset
from odradek.tables.machine.marks import Progress, SourceOffsets, TopicOffsets

_log = logging.getLogger("odradek.spark")


class BatchOffsets(Struct, frozen=True):
    """Where a batch starts and ends; both are empty if that is unknown."""

    start: Progress = ()
    end: Progress = ()


def batch_offsets(checkpoint: str, batch: int) -> BatchOffsets:
    """Return a batch's offsets. They are unknown if the checkpoint is a URL, or has them in another form."""
    if not checkpoint or "://" in checkpoint.removeprefix("file://"):
        return BatchOffsets()
    folder = Path(checkpoint.removeprefix("file://").removeprefix("file:")) / "offsets"
    try:
        ends = _sources(folder / str(batch))
        befores = _sources(folder / str(batch - 1)) if batch else [None] * len(ends)
    except (OSError, ValueError) as error:
        _log.info("The offsets of batch %d are unknown: %s", batch, error)
        return BatchOffsets()
    if len(befores) != len(ends):
        return BatchOffsets()
    end = tuple(map(_end, ends))
    return BatchOffsets(tuple(map(_start, befores, ends)), end)


def query_id(checkpoint: str) -> str | None:
    """Return the id of the query that a checkpoint belongs to; None if it cannot be read."""
    try:
        text = (Path(checkpoint.removeprefix("file://").removeprefix("file:")) / "metadata").read_text()
        return str(json.loads(text)["id"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sources(path: Path) -> list[Any]:
    """Return the decoded line of each source; None for a source without an offset."""
    version, _, *lines = path.read_text().splitlines()
    if version != "v1":
        raise ValueError(f"{path} has version {version}")
    return [None if line == "-" else json.loads(line) for line in lines]


def _end(encoded: Any) -> SourceOffsets:
    """Return the offsets of a source; None if the source is not Odradek's."""
    try:
        offset = decode_offset(encoded)
    except (OdradekError, AttributeError):
        return None
    return _by_topic(offset.offsets, offset.topic_ids)


def _start(before: Any, end: Any) -> SourceOffsets:
    """Return where a source starts: the first batch of a query has that in its end."""
    try:
        offset = decode_offset(end)
        if offset.start is not None:
            return _by_topic(offset.start, offset.topic_ids)
    except (OdradekError, AttributeError):
        return None
    return _end(before)


def _by_topic(offsets: Any, topic_ids: Any) -> dict[str, TopicOffsets]:
    found: dict[str, dict[int, int]] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        found.setdefault(topic, {})[partition] = offset
    return {topic: TopicOffsets(f"{topic_ids[topic]:x}" if topic in topic_ids else "", o) for topic, o in found.items()}
