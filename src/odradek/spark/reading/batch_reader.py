"""A batch read: offsets are looked up once, when Spark plans the query, and every task gets offset ranges."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from msgspec.structs import replace
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from odradek.spark.brief_errors import brief_errors
from odradek.spark.options import Edge, GivenOffsets, ReadOptions
from odradek.spark.reading.boundaries import edge_offsets, ending_offsets, find_partitions, starting_offsets
from odradek.spark.reading.filters import Filters
from odradek.spark.reading.lookup import Lookup
from odradek.spark.reading.planning import Plan, plan_batch
from odradek.spark.reading.scan import scan
from odradek.spark.reading.tasks import scan_partitions


class _PushFilters:
    """A reader's `pushFilters`, which PySpark's check (`__func__`) mistakes for the inherited method.

    While `spark.sql.python.filterPushdown.enabled` is off, the default, PySpark fails the query of a reader that
    overrides the method. With the setting on, it calls the method of any reader.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, filters: Filters) -> None:
        self._filters = filters

    def __call__(self, pushed: list[Filter]) -> Iterator[Filter]:
        return self._filters.push(pushed)


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """A batch read."""

    def __init__(self, options: ReadOptions, schema: Any, open_lookup: Callable[[], Lookup]) -> None:
        self._options = options
        self._columns = tuple(schema.fieldNames())
        self._open_lookup = open_lookup
        self._filters = Filters()
        self.pushFilters = _PushFilters(self._filters)

    @brief_errors()
    def partitions(self) -> Sequence[InputPartition]:
        """Return a Spark partition per task. Raise `OdradekError`, such as `DataLossError`."""
        lookup = self._open_lookup()
        try:
            found = plan(self._options, lookup)
            narrowed = replace(found, ranges=self._filters.narrow(found.ranges, lookup))
            return scan_partitions(narrowed, self._options, self._columns, lookup)
        finally:
            lookup.close()

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Return a task's Arrow record batches. Without tasks Spark passes one partition of value None."""
        return scan(partition.value) if partition.value is not None else iter(())


def plan(options: ReadOptions, lookup: Lookup) -> Plan:
    """Return the offset ranges to read. Raise `OdradekError`, such as `ConfigurationError` for a missing topic."""
    partitions = find_partitions(lookup, options.strategy)
    start = starting_offsets(lookup, options, partitions)
    end = ending_offsets(lookup, options, partitions)
    # Offsets given by the user may be outside of the log; those that a broker just returned are not.
    given = isinstance(options.starting, GivenOffsets) or isinstance(options.ending, GivenOffsets)
    earliest = edge_offsets(lookup, Edge.EARLIEST, partitions) if given else start
    latest = edge_offsets(lookup, Edge.LATEST, partitions) if given else end
    return plan_batch(start, end, earliest, latest)
