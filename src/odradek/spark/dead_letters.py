"""Dead letters: records that a query cannot use, kept unchanged in Parquet files.

A column function returns a struct per row. Rows whose struct is null stay in the query; the others are written to a
directory:

    struct(stream, topic, partition, offset, timestamp, key, value, reason), or null
        → dead-STREAM-TOPIC-PARTITION-FIRST_OFFSET.parquet, with these columns

A task's rows are an offset range, and the file name holds the first offset, so a repeated task or micro-batch replaces
its files by equal ones. A file is renamed when it is complete; until then its name begins with a dot, which readers of
Parquet skip.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

MOST_ROWS: Final = 10_000
MOST_BYTES: Final = 16 << 20
"""Rows and bytes that a task keeps in memory before it writes a file."""


def without_dead_letters(frame: Any, letter: Any, directory: Path) -> Any:
    """Return the rows of `frame` where the struct column `letter` is null; write the others to `directory`.

    All executors and the driver must see the same directory. Rows are written when Spark runs the query.
    """
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.types import BooleanType

    target = str(directory.absolute())

    def is_kept(letters: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return split_dead_letters(letters, Path(target))

    # Spark must neither run it twice nor evaluate other conditions first, which would hide records from it.
    return frame.where(arrow_udf(is_kept, BooleanType()).asNondeterministic()(letter))


def split_dead_letters(letters: Iterator[pa.Array], directory: Path) -> Iterator[pa.Array]:
    """Yield where each array of structs is null; write what is not null to `directory`, the last file at the end."""
    waiting: list[pa.RecordBatch] = []
    for array in letters:
        if array.null_count < len(array):
            waiting.append(pa.RecordBatch.from_struct_array(array.filter(array.is_valid())))
            if sum(map(len, waiting)) >= MOST_ROWS or sum(batch.nbytes for batch in waiting) >= MOST_BYTES:
                _write(pa.Table.from_batches(waiting), directory)
                waiting.clear()
        yield array.is_null()
    if waiting:
        _write(pa.Table.from_batches(waiting), directory)


def _write(letters: pa.Table, directory: Path) -> None:
    """Write one file per partition."""
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
