"""The data source that PySpark loads: `spark.read.format("odradek")`, and the same for write, readStream, writeStream.

PySpark creates an `OdradekDataSource` in a short-lived process per step (schema, plan, commit), so each method imports
what only it needs. Errors are `ConfigurationError`s, and `InvalidTopicError` for a topic's name.
"""

import sys
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from pyspark.sql.datasource import DataSource

from odradek.model import ConfigurationError
from odradek.spark.brief_errors import brief_errors
from odradek.spark.options import check_read_options, parse_read_options, parse_write_options

COMMITS: Final = "pyspark.sql.worker.python_streaming_sink_runner"
"""A module that only the process that commits a micro-batch imports; another process creates the tasks' writers."""


class OdradekDataSource(DataSource):  # type: ignore[misc]
    """Topics of a Kafka cluster as source and sink, with the options and columns of Spark's own Kafka connector."""

    @classmethod
    def name(cls) -> str:
        return "odradek"

    @brief_errors()
    def schema(self) -> Any:
        """Return the columns of a read, and check its options: Spark calls this at `load()` unless it has a schema."""
        from odradek.spark.schema import source_schema

        options = _read_options(self.options)
        return source_schema(include_headers=options.include_headers, values=options.values)

    @brief_errors()
    def reader(self, schema: Any) -> Any:
        from odradek.spark.reading.batch_reader import BatchReader
        from odradek.spark.schema import check_source_schema

        options = parse_read_options(self.options, streaming=False)
        check_source_schema(schema, include_headers=options.include_headers, values=options.values)
        return BatchReader(options, schema, _lookup(options))

    @brief_errors()
    def streamReader(self, schema: Any) -> Any:  # noqa: N802
        from odradek.runtime.parent_process import end_with_parent
        from odradek.spark.reading.stream_reader import StreamReader
        from odradek.spark.schema import check_source_schema
        from odradek.spark.settings import member_keywords

        options = parse_read_options(self.options, streaming=True)
        check_source_schema(schema, include_headers=options.include_headers, values=options.values)
        end_with_parent()  # Spark does not stop a reader whose query ends in `prepareForTriggerAvailableNow`
        if options.group is not None:
            from odradek.spark.reading.group_reader import GroupStreamReader, open_member

            member = partial(open_member, member_keywords(options.bootstrap_servers, options.client, options.group))
            return GroupStreamReader(options, schema, _lookup(options), member)
        return StreamReader(options, schema, _lookup(options))

    @brief_errors()
    def writer(self, schema: Any, overwrite: bool) -> Any:  # noqa: FBT001
        """Return a batch writer. Raise `ConfigurationError` for mode `overwrite`."""
        if overwrite:
            raise ConfigurationError('a topic can\'t be overwritten: write with .mode("append")')
        from odradek.spark.schema import check_sink_schema
        from odradek.spark.writing.writers import BatchWriter

        options = _write_options(self.options)
        check_sink_schema(schema, topic=options.topic, include_timestamp=options.include_timestamp)
        return BatchWriter(options)

    @brief_errors()
    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802, FBT001
        """Return a stream writer. It always appends; `overwrite` is Spark's word for the output mode `complete`."""
        del overwrite
        from odradek.spark.schema import check_sink_schema
        from odradek.spark.writing.writers import StreamWriter

        options = _write_options(self.options)
        check_sink_schema(schema, topic=options.topic, include_timestamp=options.include_timestamp)
        # The commit itself looks up the last decision, after it has fenced earlier drivers.
        return StreamWriter(options, None if COMMITS in sys.modules else _decided_write(options))


def _lookup(options: Any) -> Any:
    """Return a picklable factory of `ClusterLookup`s. Raise `ConfigurationError` for invalid `kafka.*` keys."""
    from odradek.spark.reading.lookup import ClusterLookup
    from odradek.spark.settings import ScanSettings, client_settings

    return partial(ClusterLookup, client_settings(ScanSettings, options.bootstrap_servers, options.client))


def _decided_write(options: Any) -> Any:
    """Return the last write of an exactly-once sink, which is completed first; None without one."""
    if options.transactional_id_prefix is None:
        return None
    from odradek.clients.blocking.loop_thread import loop_thread
    from odradek.spark.writing.committer import decided_write

    return loop_thread().run(partial(decided_write, options))


def _read_options(given: Mapping[str, str]) -> Any:
    """Return the options of a read, batch or stream. Raise `ConfigurationError`, also for invalid `kafka.*` keys."""
    from odradek.spark.settings import ScanSettings, client_settings, member_keywords

    options = check_read_options(given)
    client_settings(ScanSettings, options.bootstrap_servers, options.client)
    if options.group is not None:
        member_keywords(options.bootstrap_servers, options.client, options.group)
    return options


def _write_options(given: Any) -> Any:
    """Return the options of a write. Raise `ConfigurationError`, also for invalid `kafka.*` keys."""
    from odradek.spark.settings import SinkSettings, client_settings

    options = parse_write_options(given)
    client_settings(SinkSettings, options.bootstrap_servers, options.client)
    return options
