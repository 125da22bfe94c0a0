"""Dead letters: writes the records that a query cannot use to Parquet files or a topic, or fails the query.

A column function returns a struct per row. Rows whose struct is null stay in the query; the others go to a destination:

    struct(stream, topic, partition, offset, timestamp, key, value, reason), or null
        → LettersDirectory   dead-STREAM-TOPIC-PARTITION-FIRST_OFFSET.parquet, with these columns
        → LettersTopic       the record, written now, with the headers of Kafka Connect's dead letter queues (KIP-298)
        → RefusedLetters     a `BadRowError`

A task's rows are an offset range, and a file's name has the first offset: a repeated task replaces its files by equal
ones. Until a file is complete, its name begins with a dot, which readers of Parquet skip. To a topic, a repeated task
writes its records again.
"""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from msgspec import Struct

from odradek.model import OdradekError
from odradek.spark.options import WriteOptions

MOST_ROWS: Final = 10_000
MOST_BYTES: Final = 16 << 20
"""Rows and bytes that a task keeps in memory before it writes them."""

Destination = Callable[[pa.Table], None]
"""Takes dead letters of a task; called several times. Picklable."""

_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class BadRowError(OdradekError):
    """A record that the query cannot use, with `on_bad_row = "fail"`."""


def without_dead_letters(frame: Any, letter: Any, destination: Destination) -> Any:
    """Return the rows of `frame` where the struct column `letter` is null; the others go to `destination`.

    They are written when Spark runs the query.
    """
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.types import BooleanType

    def is_kept(letters: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return split_dead_letters(letters, destination)

    # Spark must neither run the function twice nor evaluate other conditions first, which would hide records from it.
    return frame.where(arrow_udf(is_kept, BooleanType()).asNondeterministic()(letter))


def split_dead_letters(letters: Iterator[pa.Array], destination: Destination) -> Iterator[pa.Array]:
    """Yield for each array of structs an array of booleans, True for null; pass the other structs to `destination`."""
    waiting: list[pa.RecordBatch] = []
    for array in letters:
        if array.null_count < len(array):
            waiting.append(pa.RecordBatch.from_struct_array(array.filter(array.is_valid())))
            if sum(map(len, waiting)) >= MOST_ROWS or sum(batch.nbytes for batch in waiting) >= MOST_BYTES:
                destination(pa.Table.from_batches(waiting))
                waiting.clear()
        yield array.is_null()
    if waiting:
        destination(pa.Table.from_batches(waiting))


class LettersDirectory(Struct, frozen=True, kw_only=True):
    """Writes letters to Parquet files. All executors and the driver must see the same directory."""

    path: str

    def __call__(self, letters: pa.Table) -> None:
        """Write one file per stream, topic and partition."""
        _write(letters, Path(self.path))


class LettersTopic(Struct, frozen=True, kw_only=True):
    """Writes letters to the topic of `options`: key, value, and headers with the record's origin added.

    The record's own timestamp is a header: with it, retention would delete a letter about an old record.
    """

    options: WriteOptions

    def __call__(self, letters: pa.Table) -> None:
        """Write the letters, and wait until all are acknowledged."""
        from odradek.spark.writing.sink import write

        moments = letters["timestamp"].cast(pa.timestamp("ms", "UTC"), safe=False).cast(pa.int64())
        rows = letters.drop_columns(["key", "value"]).append_column("timestamp_ms", moments).to_pylist()
        columns = [letters["key"], letters["value"], pa.array(map(_with_origin, rows), _HEADERS)]
        record = pa.Table.from_arrays(columns, ["key", "value", "headers"])
        write(iter(record.combine_chunks().to_batches()), self.options)


def _with_origin(row: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the headers of a record, and headers for its topic, partition, offset and reason (KIP-298), and time."""
    origin = {
        "__connect.errors.topic": row["topic"],
        "__connect.errors.partition": row["partition"],
        "__connect.errors.offset": row["offset"],
        "__connect.errors.exception.message": row["reason"],
        "odradek.errors.timestamp": row["timestamp_ms"],
    }
    added = [{"key": name, "value": str(value).encode()} for name, value in origin.items()]
    return [*(row.get("headers") or ()), *added]


class RefusedLetters(Struct, frozen=True, kw_only=True):
    """Raises `BadRowError` for the first letter."""

    def __call__(self, letters: pa.Table) -> None:
        first = letters.select(["topic", "partition", "offset", "reason"]).slice(0, 1).to_pylist()[0]
        raise BadRowError(
            f"{first['topic']}-{first['partition']} offset {first['offset']}: {first['reason']}, and on_bad_row is fail"
        )


def _write(letters: pa.Table, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    keys = ["stream", "topic", "partition"]
    for found in letters.group_by(keys).aggregate([("offset", "min")]).to_pylist():
        mine = pc.and_kleene(
            pc.equal(letters["stream"], found["stream"]),
            pc.and_kleene(
                pc.equal(letters["topic"], found["topic"]), pc.equal(letters["partition"], found["partition"])
            ),
        )
        where = "-".join(str(found[key]) for key in keys)
        name = f"dead-{where}-{found['offset_min']:020d}.parquet"
        # With speculation Spark may run two attempts of a task at once.
        unfinished = directory / f".{name}.{_attempt()}"
        with unfinished.open("wb") as file:
            pq.write_table(letters.filter(mine), file)
            file.flush()
            os.fsync(file.fileno())
        unfinished.replace(directory / name)


def _attempt() -> int:
    from pyspark import TaskContext

    context = TaskContext.get()
    return context.attemptNumber() if context is not None else 0
