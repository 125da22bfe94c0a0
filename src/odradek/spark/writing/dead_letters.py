"""Dead letters: writes the records that a query cannot use to Parquet files or a topic, or fails the query.

A read that decodes values makes letters of those that it cannot decode (`value_columns`). For values that Spark parses,
a column function takes the JSON of each bad row; the others stay in the query. Letters go to a destination:

    stream, topic, partition, offset, timestamp, key, value, reason, and headers if they are read
        → LettersDirectory   dead-STREAM-TOPIC-PARTITION-FIRST_OFFSET.parquet, with these columns
        → LettersTopic       the record, written now, with the headers of Kafka Connect's dead letter queues (KIP-298)
        → RefusedLetters     a `BadRowError`

A task's rows are of offset ranges, and a file's name has the first offset: a repeated task replaces its files by equal
ones. Until a file is complete, its name begins with a dot, which readers of Parquet skip. To a topic, a repeated task
writes its records again.
"""

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final, TypedDict

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import asdict

from odradek.config.definition import definitions
from odradek.model import OdradekError
from odradek.spark.options import DeadLetters, WriteOptions, parse_write_options
from odradek.spark.settings import SinkSettings

MOST_ROWS: Final = 10_000
MOST_BYTES: Final = 16 << 20
"""Rows and bytes of a partition that a task keeps in memory before it writes them."""

Destination = Callable[[pa.Table], None]
"""Takes dead letters of a task; called several times. Picklable."""

_LETTERS: Final = pa.schema(
    [
        ("stream", pa.string()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("reason", pa.string()),
    ]
)
_HEADERS: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class BadRowError(OdradekError):
    """A record that the query cannot use, with `on_bad_row = "fail"`."""


class _Header(TypedDict, total=False):
    key: str
    value: bytes


class _Letter(Struct, frozen=True, kw_only=True):
    """A letter as Spark's `to_json` writes it: without nulls, bytes in base64, the timestamp in microseconds."""

    stream: str
    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None = None
    value: bytes | None = None
    reason: str
    headers: list[_Header] | None = None


def without_dead_letters(
    frame: Any, is_bad: Any, letter: Any, destination: Destination, *, has_headers: bool = False
) -> Any:
    """Return the rows of `frame` that are not bad; the struct column `letter` of the others goes to `destination`.

    They are written when Spark runs the query.
    """
    from pyspark.sql.functions import arrow_udf, to_json, when
    from pyspark.sql.types import BooleanType

    def is_kept(letters: Iterator[pa.Array]) -> Iterator[pa.Array]:
        return split_dead_letters(letters, destination, has_headers=has_headers)

    # Spark must neither run the function twice nor evaluate other conditions first, which would hide records from it.
    # A text, since Spark writes one null for each field of a null struct, which costs more than the function.
    return frame.where(arrow_udf(is_kept, BooleanType()).asNondeterministic()(when(is_bad, to_json(letter))))


def split_dead_letters(
    letters: Iterator[pa.Array], destination: Destination, *, has_headers: bool = False
) -> Iterator[pa.Array]:
    """Yield for each array of JSON an array of booleans, True for null; pass the letters to `destination`."""
    schema = _LETTERS.append(pa.field("headers", _HEADERS)) if has_headers else _LETTERS
    decode = msgspec.json.Decoder(_Letter).decode
    waiting = WaitingLetters(destination)
    for array in letters:
        if array.null_count < len(array):
            rows = [asdict(decode(text)) for text in array.drop_null().to_pylist()]
            waiting.add(pa.RecordBatch.from_pylist(rows, schema))
        yield array.is_null()
    waiting.write()


class WaitingLetters:
    """The dead letters of a task that are not written yet.

    The letters of each partition alone say which ones are written together: a repeated task may read its partitions in
    another order, and in other pieces.
    """

    def __init__(self, destination: Destination) -> None:
        self._destination = destination
        self._waiting: dict[tuple[str, int], _Waiting] = {}

    def add(self, letters: pa.RecordBatch) -> None:
        """Keep letters, in order within each partition; write those that have `MOST_ROWS` or `MOST_BYTES` together."""
        table = pa.Table.from_batches([letters])
        for found in table.group_by(["topic", "partition"]).aggregate([]).to_pylist():
            topic, partition = found["topic"], found["partition"]
            mine = pc.and_(pc.equal(table["topic"], topic), pc.equal(table["partition"], partition))
            self._add(self._waiting.setdefault((topic, partition), _Waiting()), table.filter(mine))

    def _add(self, waiting: "_Waiting", letters: pa.Table) -> None:
        ends = _ends(letters)
        first = before = 0
        while first < letters.num_rows:
            full = int(ends.searchsorted(before + MOST_BYTES - waiting.bytes)) + 1
            end = min(full, first + MOST_ROWS - waiting.rows, letters.num_rows)
            waiting.tables.append(letters.slice(first, end - first))
            waiting.rows += end - first
            waiting.bytes += int(ends[end - 1]) - before
            if waiting.rows >= MOST_ROWS or waiting.bytes >= MOST_BYTES:
                self._write(waiting)
            first, before = end, int(ends[end - 1])

    def write(self) -> None:
        """Write what waits; the task must call it at its end."""
        for waiting in self._waiting.values():
            self._write(waiting)

    def _write(self, waiting: "_Waiting") -> None:
        if waiting.tables:
            self._destination(pa.concat_tables(waiting.tables))
            waiting.tables.clear()
            waiting.rows = waiting.bytes = 0


class _Waiting(Struct):
    """Letters of a partition."""

    tables: list[pa.Table] = []
    rows: int = 0
    bytes: int = 0


def _ends(letters: pa.Table) -> Any:
    """Return an array of where each letter ends, counted in about the bytes of all."""
    import numpy as np  # only for bad rows

    lengths = (pc.fill_null(pc.binary_length(letters[name]), 0).to_numpy() for name in ("key", "value", "reason"))
    sizes = sum(lengths, np.zeros(letters.num_rows, np.int64))
    if "headers" in letters.column_names:
        rows = letters["headers"].to_pylist()
        sizes += [sum(len(each["key"] or "") + len(each["value"] or b"") for each in row or ()) for row in rows]
    return sizes.cumsum()


def make_destination(letters: DeadLetters, bootstrap_servers: str, client: Mapping[str, str]) -> Destination:
    """Return the destination of `letters`, for a read with these `kafka.*` options. Raise `ConfigurationError`."""
    if letters.directory is not None:
        return LettersDirectory(path=letters.directory)
    if letters.topic is None:
        return RefusedLetters()
    known = definitions(SinkSettings)
    options = {f"kafka.{key}": value for key, value in client.items() if key in known}
    options |= {"kafka.bootstrap.servers": bootstrap_servers, "topic": letters.topic}
    return LettersTopic(options=parse_write_options(options))


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
    import pyarrow.parquet as pq  # only for bad rows

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
