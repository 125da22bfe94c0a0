"""The writers that PySpark calls: tasks write Arrow record batches, and a commit does nothing.

A task's records are in their topics when it ends: neither `commit` nor `abort` can remove them.
"""

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from odradek.spark.options import WriteOptions
from odradek.spark.writing.sink import WriteResult, write


class TaskCommitMessage(WriterCommitMessage):  # type: ignore[misc]
    """A task's result."""

    def __init__(self, written: WriteResult) -> None:
        self.written = written


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """`df.write.format("odradek")`. Rows are always appended."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskCommitMessage:
        """Write the rows of a task."""
        return TaskCommitMessage(write(iterator, self._options))


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`df.writeStream.format("odradek")`."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options

    def write(self, iterator: Iterator[Any]) -> TaskCommitMessage:
        """Write the rows of a task."""
        return TaskCommitMessage(write(iterator, self._options))
