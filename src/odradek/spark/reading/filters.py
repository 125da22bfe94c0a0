"""Filters that Spark pushes to a batch read, turned into fewer partitions and shorter offset ranges.

    topic, partition      whole partitions are left out
    offset                a range begins later or ends earlier
    timestamp >= T        a range begins at the first record of T or later; `<` ends none: later records may be older

Spark calls `pushFilters` only if `spark.sql.python.filterPushdown.enabled` is set.
"""

import operator
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from msgspec.structs import replace
from pyspark.sql import datasource

from odradek.model import TopicPartition
from odradek.spark.reading.lookup import Lookup
from odradek.spark.reading.planning import OffsetRange

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TYPES: Final = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
_COMPARISONS: Final[dict[type, Callable[[Any, Any], bool]]] = {
    datasource.EqualTo: operator.eq,
    datasource.EqualNullSafe: operator.eq,
    datasource.GreaterThan: operator.gt,
    datasource.GreaterThanOrEqual: operator.ge,
    datasource.LessThan: operator.lt,
    datasource.LessThanOrEqual: operator.le,
    datasource.In: lambda value, among: value in among,
    datasource.StringStartsWith: lambda value, begin: value.startswith(begin),
    datasource.StringEndsWith: lambda value, end: value.endswith(end),
    datasource.StringContains: lambda value, part: part in value,
}


class Filters:
    """The pushed filters of one read; a row must meet all of them."""

    def __init__(self) -> None:
        self._pushed: list[datasource.Filter] = []

    def push(self, filters: Iterable[datasource.Filter]) -> Iterator[datasource.Filter]:
        """Store the filters that narrow the read; yield all filters that Spark must still apply."""
        for each in filters:
            column = _column(each)
            if column is not None:
                self._pushed.append(each)
            if column not in {"topic", "partition"} and not (column == "offset" and _edges(each) is not None):
                yield each

    def narrow(self, ranges: Iterable[OffsetRange], lookup: Lookup) -> tuple[OffsetRange, ...]:
        """Return the parts of `ranges` that may have rows that meet all filters."""
        narrowed = [self._within_offsets(each) for each in ranges if self._has_partition(each.partition)]
        earliest_ms = max((at for each in self._of("timestamp") if (at := _earliest_ms(each)) is not None), default=-1)
        if earliest_ms >= 0:
            found = lookup.offsets({each.partition: earliest_ms for each in narrowed if each.size > 0})
            narrowed = [_from(each, found.get(each.partition, each.start)) for each in narrowed]
        return tuple(each for each in narrowed if each.size > 0)

    def _of(self, column: str) -> Sequence[datasource.Filter]:
        return [each for each in self._pushed if _column(each) == column]

    def _has_partition(self, partition: TopicPartition) -> bool:
        return all(_meets(each, partition.topic) for each in self._of("topic")) and all(
            _meets(each, partition.partition) for each in self._of("partition")
        )

    def _within_offsets(self, range_: OffsetRange) -> OffsetRange:
        start, end = range_.start, range_.end
        for each in self._of("offset"):
            low, high = _edges(each) or (start, end)
            start, end = max(start, low), min(end, high)
        return replace(range_, start=start, end=max(start, end))


def _from(range_: OffsetRange, first: int) -> OffsetRange:
    """Return the range from offset `first` on. -1 means that no record is late enough: the range becomes empty."""
    return replace(range_, start=range_.end if first < 0 else min(max(range_.start, first), range_.end))


def _column(condition: datasource.Filter) -> str | None:
    """Return the column of a supported comparison with values of the column's type; None for other conditions."""
    comparison = condition.child if isinstance(condition, datasource.Not) else condition
    if type(comparison) not in _COMPARISONS or len(comparison.attribute) != 1:
        return None
    column: str = comparison.attribute[0]
    values = comparison.value if isinstance(comparison, datasource.In) else (comparison.value,)
    kind = _TYPES.get(column)
    return column if kind is not None and all(type(value) is kind for value in values) else None


def _meets(condition: datasource.Filter, value: Any) -> bool:
    if isinstance(condition, datasource.Not):
        return not _meets(condition.child, value)
    return _COMPARISONS[type(condition)](value, condition.value)


def _edges(condition: datasource.Filter) -> tuple[int, int] | None:
    """Return the range of offsets (end exclusive) that meet the condition; None for `In` and `Not`."""
    value: Any = getattr(condition, "value", None)
    most = 1 << 63
    match condition:
        case datasource.EqualTo() | datasource.EqualNullSafe():
            return value, value + 1
        case datasource.GreaterThan():
            return value + 1, most
        case datasource.GreaterThanOrEqual():
            return value, most
        case datasource.LessThan():
            return 0, value
        case datasource.LessThanOrEqual():
            return 0, value + 1
    return None


def _earliest_ms(condition: datasource.Filter) -> int | None:
    """Return the lowest timestamp (ms) that meets a condition; None without a lower bound or without time zone."""
    value: Any = getattr(condition, "value", None)
    if not isinstance(value, datetime) or value.tzinfo is None:
        return None
    since = value - _EPOCH
    match condition:
        case datasource.EqualTo() | datasource.EqualNullSafe() | datasource.GreaterThanOrEqual():
            return -(-since // timedelta(milliseconds=1))
        case datasource.GreaterThan():
            return since // timedelta(milliseconds=1) + 1
    return None
