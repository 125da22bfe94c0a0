"""Dead letters: records that a query cannot use, kept as they came, in Parquet files.

A column function takes a struct per row. Rows whose struct is null stay in the query; the others go to a directory and
leave the query:

    struct(stream, topic, partition, offset, timestamp, key, value, reason), or null
        → dead-STREAM-TOPIC-PARTITION-FIRST_OFFSET.parquet, with these columns

The rows of a task are an offset range, and a file's name says where its records begin. So a task that runs again, or a
micro-batch after a restart, replaces its files by equal ones. A file is there once it is whole: it is written under a
name with a leading dot, which readers of Parquet leave out.
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
"""Limits of what a task holds in memory until it writes a file."""


def without_dead_letters(frame: Any, letter: Any, directory: Path) -> Any:
    """Return the rows of `frame` where the column `letter`, a struct, is null; write the others to `directory`.

    The directory must be the same one for the driver and all executors. Rows are written when Spark runs the query.
    """
    from pyspark.sql.functions import arrow_udf
    from pyspark.sql.types import BooleanType

    target = str(directory.absolute())

    def is_kept(letters: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return split_dead_letters(letters, Path(target))

    # Spark must neither run it twice nor move other conditions before it, which would hide records from it.
    return frame.where(arrow_udf(is_kept, BooleanType()).asNondeterministic()(letter))


def split_dead_letters(letters: Iterator[pa.Array], directory: Path) -> Iterator[pa.Array]:
    """Yield, for each array of structs, where it is null, and write what is not null to `directory`.

    The last file is written when the arrays end.
    """
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
    """Write a file for each partition."""
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
        # Two attempts of a task may run at the same time, where Spark speculates.
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
