"""Conditions on topic, partition, offset and timestamp leave out what they rule out, and never anything else (M11)."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest
from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    Not,
    StringStartsWith,
)

from odradek.model import TopicPartition
from odradek.spark.options import Strategy
from odradek.spark.reading.filters import Filters
from odradek.spark.reading.planning import OffsetRange

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
WHOLE = [(A0, 10, 20), (A1, 10, 20), (B0, 10, 20)]


class ByTimestamp:
    """Offset n has the timestamp 10 * n."""

    def partitions(self, strategy: Strategy) -> list[TopicPartition]:
        return [A0, A1, B0]

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        return {partition: found if (found := -(-at // 10)) < 20 else -1 for partition, at in wanted.items()}

    def commit(self, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
        raise AssertionError

    def topic_ids(self) -> dict[str, UUID]:
        return {}

    def brokers(self) -> tuple[str, ...]:
        return ()

    def close(self) -> None:
        raise AssertionError


def narrowed(*conditions: Filter) -> list[tuple[TopicPartition, int, int]]:
    filters = Filters()
    list(filters.push(conditions))
    ranges = [OffsetRange(partition=partition, start=start, end=end) for partition, start, end in WHOLE]
    return [(each.partition, each.start, each.end) for each in filters.narrow(ranges, ByTimestamp())]


def at(ms: float) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (EqualTo(("partition",), 1), [(A1, 10, 20)]),
        (In(("partition",), (1, 2)), [(A1, 10, 20)]),
        (Not(EqualTo(("partition",), 0)), [(A1, 10, 20)]),
        (LessThan(("partition",), 0), []),
        (EqualTo(("topic",), "b"), [(B0, 10, 20)]),
        (StringStartsWith(("topic",), "a"), [(A0, 10, 20), (A1, 10, 20)]),
        (EqualTo(("offset",), 12), [(each, 12, 13) for each in (A0, A1, B0)]),
        (EqualNullSafe(("offset",), 9), []),
        (GreaterThan(("offset",), 17), [(each, 18, 20) for each in (A0, A1, B0)]),
        (GreaterThanOrEqual(("offset",), 3), WHOLE),
        (LessThan(("offset",), 12), [(each, 10, 12) for each in (A0, A1, B0)]),
        (LessThanOrEqual(("offset",), 12), [(each, 10, 13) for each in (A0, A1, B0)]),
        (GreaterThanOrEqual(("timestamp",), at(170)), [(each, 17, 20) for each in (A0, A1, B0)]),
        (GreaterThan(("timestamp",), at(170)), [(each, 18, 20) for each in (A0, A1, B0)]),
        (EqualTo(("timestamp",), at(20)), WHOLE),
        (GreaterThan(("timestamp",), at(900)), []),
    ],
)
def test_a_condition_narrows_what_is_read(condition: Filter, expected: list[Any]) -> None:
    assert narrowed(condition) == expected


@pytest.mark.parametrize(
    "condition",
    [
        LessThan(("timestamp",), at(120)),
        GreaterThan(("timestamp",), at(-5)),
        GreaterThan(("timestamp",), datetime(2030, 1, 1)),
        Not(EqualTo(("offset",), 12)),
        In(("offset",), (12, 14)),
        EqualTo(("offset",), None),
        EqualTo(("partition",), None),
        EqualTo(("headers", "key"), "k"),
        EqualTo(("value",), b"v"),
        IsNotNull(("partition",)),
    ],
)
def test_a_condition_that_offsets_cannot_express_is_left_to_spark(condition: Filter) -> None:
    assert narrowed(condition) == WHOLE
    assert list(Filters().push([condition])) == [condition]


def test_conditions_are_met_together() -> None:
    conditions = [EqualTo(("topic",), "a"), GreaterThan(("offset",), 11), LessThan(("offset",), 15)]
    assert narrowed(*conditions, GreaterThan(("timestamp",), at(125))) == [(A0, 13, 15), (A1, 13, 15)]


@pytest.mark.parametrize(
    ("condition", "is_exact"),
    [
        (EqualTo(("partition",), 1), True),
        (GreaterThan(("offset",), 5), True),
        (GreaterThan(("timestamp",), at(5)), False),
    ],
)
def test_spark_applies_again_what_is_not_exact(condition: Filter, is_exact: bool) -> None:
    assert list(Filters().push([condition])) == ([] if is_exact else [condition])
