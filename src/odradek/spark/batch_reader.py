"""A batch read: offsets are looked up once, when Spark plans the query, and every task gets a range."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition

from odradek.spark.boundaries import edge_offsets, ending_offsets, find_partitions, starting_offsets
from odradek.spark.lookup import Lookup
from odradek.spark.options import Edge, GivenOffsets, ReadOptions
from odradek.spark.planning import Plan, plan_batch
from odradek.spark.scan import scan
from odradek.spark.tasks import scan_partitions


class BatchReader(DataSourceReader):  # type: ignore[misc]
    """See the module. Filters are left to Spark: a reader with `pushFilters` is refused unless a setting is on."""

    def __init__(self, options: ReadOptions, schema: Any, open_lookup: Callable[[], Lookup]) -> None:
        self._options = options
        self._columns = tuple(schema.fieldNames())
        self._open_lookup = open_lookup

    def partitions(self) -> Sequence[InputPartition]:
        """See `DataSourceReader`. Raises `OdradekError`, one sentence."""
        return scan_partitions(plan(self._options, self._open_lookup), self._options, self._columns)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """See `DataSourceReader`: Arrow record batches. Spark makes a partition without a value if there are none."""
        return scan(partition.value) if partition.value is not None else iter(())


def plan(options: ReadOptions, open_lookup: Callable[[], Lookup]) -> Plan:
    """What to read. Raises `ConfigurationError` if what was asked for is not there."""
    lookup = open_lookup()
    try:
        partitions = find_partitions(lookup, options.strategy)
        start = starting_offsets(lookup, options, partitions)
        end = ending_offsets(lookup, options, partitions)
        # Offsets that a person wrote may be outside of the log; those that a broker just named are not.
        given = isinstance(options.starting, GivenOffsets) or isinstance(options.ending, GivenOffsets)
        earliest = edge_offsets(lookup, Edge.EARLIEST, partitions) if given else start
        latest = edge_offsets(lookup, Edge.LATEST, partitions) if given else end
    finally:
        lookup.close()
    return plan_batch(start, end, earliest, latest)
