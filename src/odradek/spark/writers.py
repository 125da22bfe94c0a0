"""The sink as PySpark sees it: tasks write Arrow record batches; there is nothing to do when all have.

Records are in their topics when their task has ended, as with the JVM connector: neither `commit` nor `abort` can take
them back, and a task or a micro-batch that is done again writes them again.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from odradek.spark.options import WriteOptions
from odradek.spark.sink import Written, write


class TaskWritten(WriterCommitMessage):  # type: ignore[misc]
    """What a task reports."""

    def __init__(self, written: Written) -> None:
        self.written = written


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """`df.write.format("odradek")`. Save modes do not matter: a topic is only ever appended to."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """See `DataSourceArrowWriter`; runs in a task."""
        return TaskWritten(write(iterator, self._options))


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`df.writeStream.format("odradek")`."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskWritten:
        """See `DataSourceStreamArrowWriter`; runs in a task."""
        return TaskWritten(write(iterator, self._options))
