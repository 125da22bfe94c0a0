"""Resolves the boundaries of a read (`earliest`, offsets, a timestamp) to an offset for every partition."""

from collections.abc import Collection, Sequence

from odradek.model import ConfigurationError, PreconditionError, TopicPartition
from odradek.spark.options import Assign, AtTimestamp, Boundary, Edge, GivenOffsets, ReadOptions, Strategy, Subscribe
from odradek.spark.reading.lookup import Lookup
from odradek.spark.reading.planning import missing_partitions


def find_partitions(lookup: Lookup, strategy: Strategy) -> list[TopicPartition]:
    """Return the partitions to read, sorted.

    Raise `PreconditionError` if a named topic or partition does not exist. A pattern may match no topic yet.
    """
    found = lookup.partitions(strategy)
    if isinstance(strategy, Subscribe):
        there = {partition.topic for partition in found}
        missing = [topic for topic in strategy.topics if topic not in there]
        if missing:
            raise PreconditionError(f"there is no topic {' and no topic '.join(map(repr, missing))}: create it first")
    if isinstance(strategy, Assign) and (gone := [each for each in strategy.partitions if each not in found]):
        raise PreconditionError(f"there is no partition {' and no partition '.join(map(str, gone))}")
    return found


def starting_offsets(
    lookup: Lookup, options: ReadOptions, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the first offset to read of every partition.

    Raise `ConfigurationError` if the option's entries are not exactly these partitions, or if a partition has no record
    at or after its timestamp and `startingOffsetsByTimestampStrategy` is not `latest`.
    """
    found = _resolve(lookup, options.starting, partitions, "startingOffsets")
    late = [partition for partition, offset in found.items() if offset < 0]
    if late and not options.starting_timestamp_falls_back:
        raise ConfigurationError(
            f"{late[0]} has no record at or after the starting timestamp: "
            "startingOffsetsByTimestampStrategy = latest begins at its end"
        )
    return found | lookup.offsets(dict.fromkeys(late, Edge.LATEST.value))


def ending_offsets(
    lookup: Lookup, options: ReadOptions, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return the end offset of every partition: the log end if no record is at or after the ending timestamp.

    Raise `ConfigurationError` if the option's entries are not exactly these partitions.
    """
    found = _resolve(lookup, options.ending, partitions, "endingOffsets")
    late = [partition for partition, offset in found.items() if offset < 0]
    return found | lookup.offsets(dict.fromkeys(late, Edge.LATEST.value))


def edge_offsets(lookup: Lookup, edge: Edge, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the log start or log end offset of each partition."""
    return lookup.offsets(dict.fromkeys(partitions, edge.value))


def _resolve(
    lookup: Lookup, boundary: Boundary, partitions: Sequence[TopicPartition], name: str
) -> dict[TopicPartition, int]:
    """Return an offset for every partition; -1 if it has no record at or after the timestamp."""
    if isinstance(boundary, Edge):
        return edge_offsets(lookup, boundary, partitions)
    if isinstance(boundary, AtTimestamp):
        return lookup.offsets(dict.fromkeys(partitions, boundary.timestamp_ms))
    if isinstance(boundary, GivenOffsets):
        _check_partitions(boundary.offsets.keys(), partitions, name)
        asked = {each: offset.value for each, offset in boundary.offsets.items() if isinstance(offset, Edge)}
        given = {each: offset for each, offset in boundary.offsets.items() if not isinstance(offset, Edge)}
        return given | lookup.offsets(asked)
    _check_partitions(boundary.timestamps_ms.keys(), partitions, f"{name}ByTimestamp")
    return lookup.offsets(boundary.timestamps_ms)


def _check_partitions(given: Collection[TopicPartition], partitions: Sequence[TopicPartition], name: str) -> None:
    problem = missing_partitions(given, partitions)
    if problem:
        raise ConfigurationError(f"{name}: {problem}")
