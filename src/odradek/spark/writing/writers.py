"""The writers that PySpark calls: tasks write Arrow record batches; with exactly once, the driver commits them.

At least once, a task's records are in their topics when it ends: neither `commit` nor `abort` can remove them.
PySpark pickles a `BatchWriter` into its tasks and its commit; a `StreamWriter` is created twice per micro-batch, for
its tasks and for its commit.
"""

import uuid
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage

from odradek.clients.blocking.loop_thread import loop_thread
from odradek.clients.producer.transactions.prepared_transaction import PreparedTransaction
from odradek.model import OdradekError
from odradek.spark.brief_errors import brief_errors
from odradek.spark.options import WriteOptions
from odradek.spark.writing import committer
from odradek.spark.writing.decision import WriteId
from odradek.spark.writing.sink import WriteResult, write


class TaskCommitMessage(WriterCommitMessage):  # type: ignore[misc]
    """A task's result. `task` is `PARTITION.ATTEMPT` of an exactly-once write."""

    def __init__(self, written: WriteResult, write_id: WriteId | None = None, task: str = "") -> None:
        self.written = written
        self.write_id = write_id
        self.task = task


_ATTEMPT_IDS: Final = 16
"""Few, as brokers keep a transactional id for a week."""
Messages = Sequence[TaskCommitMessage | None]


def write_task(
    batches: Iterator[Any], options: WriteOptions, write_id: WriteId, task: str, decided: WriteId | None
) -> TaskCommitMessage:
    """Write the rows of a task in a transaction, and prepare it; write nothing if the batch is decided already.

    Raise `OdradekError` for a batch before the last one that is decided: its rows may be others, which would be lost.
    """
    if decided is not None and decided.query == write_id.query and decided.batch > write_id.batch:
        raise OdradekError(
            f"this query is at batch {write_id.batch}, but batch {decided.batch} was committed with the "
            f"transactionalIdPrefix {options.transactional_id_prefix!r}: its checkpoint is older than its sink, or "
            "another driver runs it. To write from this checkpoint on, which repeats rows, delete the consumer group "
            f"{options.transactional_id_prefix!r}"
        )
    if committer.is_decided(write_id, decided):
        for _ in batches:
            pass  # Spark's writer of the rows waits for its reader
        return TaskCommitMessage(WriteResult(0, 0), write_id, task)
    assert options.transactional_id_prefix is not None
    written = write(batches, options, write_id.transactional_id(options.transactional_id_prefix, task))
    return TaskCommitMessage(written, write_id, task)


@brief_errors()
def end_write(options: WriteOptions, messages: Messages, write_id: WriteId | None, *, committed: bool) -> None:
    """Commit or abort what the tasks have prepared; `None` is the message of a failed task."""
    if options.transactional_id_prefix is None:
        return
    prepared: dict[str, PreparedTransaction] = {}
    for message in messages:
        if message is not None:
            write_id = message.write_id
            if message.written.prepared is not None:
                prepared[message.task] = message.written.prepared
    end = committer.commit if committed else committer.abort
    loop_thread().run(partial(end, options, write_id, prepared))


class BatchWriter(DataSourceArrowWriter):  # type: ignore[misc]
    """`df.write.format("odradek")`. Rows are always appended."""

    def __init__(self, options: WriteOptions) -> None:
        self._options = options
        job = uuid.uuid4().hex
        self._write_id = WriteId(query=job, run=job, batch=0)

    @brief_errors()
    def write(self, iterator: Iterator[Any]) -> TaskCommitMessage:
        if self._options.transactional_id_prefix is None:
            return TaskCommitMessage(write(iterator, self._options))
        return write_task(iterator, self._options, self._write_id, _task(TaskContext.get()), None)

    def commit(self, messages: Messages) -> None:
        end_write(self._options, messages, self._write_id, committed=True)

    def abort(self, messages: Messages) -> None:
        end_write(self._options, messages, self._write_id, committed=False)


class StreamWriter(DataSourceStreamArrowWriter):  # type: ignore[misc]
    """`df.writeStream.format("odradek")`. `decided` is the last micro-batch that needs no rows."""

    def __init__(self, options: WriteOptions, decided: WriteId | None) -> None:
        self._options = options
        self._decided = decided

    @brief_errors()
    def write(self, iterator: Iterator[Any]) -> TaskCommitMessage:
        if self._options.transactional_id_prefix is None:
            return TaskCommitMessage(write(iterator, self._options))
        context = TaskContext.get()
        write_id = WriteId(
            query=context.getLocalProperty("sql.streaming.queryId"),
            # StreamExecution's job group is the id of the query's run.
            run=uuid.uuid5(uuid.NAMESPACE_OID, context.getLocalProperty("spark.jobGroup.id")).hex,
            batch=int(context.getLocalProperty("streaming.sql.batchId")),
        )
        return write_task(iterator, self._options, write_id, _task(context), self._decided)

    def commit(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        del batchId
        end_write(self._options, messages, None, committed=True)

    def abort(self, messages: Messages, batchId: int) -> None:  # noqa: N803
        del batchId
        end_write(self._options, messages, None, committed=False)


def _task(context: Any) -> str:
    """Return `PARTITION.ATTEMPT`, which almost always differs between attempts of a task that run at once.

    If Spark repeats a stage, it counts attempts from 0 again while those of the first run may still be running. One
    time in `_ATTEMPT_IDS`, two attempts then share a name: the later attempt aborts the transaction of the earlier one,
    and a batch with this transaction fails.
    """
    return f"{context.partitionId()}.{context.attemptNumber()}{context.taskAttemptId() % _ATTEMPT_IDS:02}"
