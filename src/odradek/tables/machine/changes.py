"""The changes that a batch makes to a table with a key: the last one of each key, by partition and offset.

Changes are an Arrow table: a column `key.NAME` for each column of the key, `partition` and `offset` (-1 for rows of a
query without these columns), and `deletes`, which is true for tombstones. Other columns stay with their rows.
"""

from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from odradek.model import PreconditionError

PARTITION: Final = "partition"
OFFSET: Final = "offset"
DELETES: Final = "deletes"
_PREFIX: Final = "key."
_UNKNOWN: Final = -1


class TableKey(Struct, frozen=True):
    """The columns whose values name a row, and the query's column, if any, that is true for tombstones."""

    columns: tuple[str, ...]
    tombstone: str = ""


def changes_of(rows: pa.Table, key: TableKey) -> pa.Table:
    """Return a change for each row of a query. Raise `PreconditionError` for a key that is null."""
    for name in key.columns:
        if rows.column(name).null_count:
            raise PreconditionError(
                f"the key {name} is null in a row{_place(rows, name)}: leave such rows out, WHERE {name} IS NOT NULL"
            )
    found = {_PREFIX + name: rows.column(name) for name in key.columns}
    is_ordered = {PARTITION, OFFSET} <= set(rows.column_names)
    for name in (PARTITION, OFFSET):
        known = pc.fill_null(rows.column(name).cast(pa.int64()), _UNKNOWN) if is_ordered else None
        found[name] = pa.repeat(pa.scalar(_UNKNOWN, pa.int64()), rows.num_rows) if known is None else known
    deletes = pc.fill_null(rows.column(key.tombstone), False) if key.tombstone else None
    found[DELETES] = pa.repeat(False, rows.num_rows) if deletes is None else deletes
    return pa.table(found)


def _place(rows: pa.Table, name: str) -> str:
    if not {PARTITION, OFFSET} <= set(rows.column_names):
        return ""
    row = rows.filter(pc.is_null(rows.column(name))).slice(0, 1).to_pylist()[0]
    return f" (partition {row[PARTITION]}, offset {row[OFFSET]})"


def key_columns(changes: pa.Table) -> list[str]:
    """Return the names that the key's columns have in the table."""
    return [name.removeprefix(_PREFIX) for name in changes.column_names if name.startswith(_PREFIX)]


def keys_of(changes: pa.Table) -> pa.Table:
    """Return the keys, under the names that they have in the table."""
    names = key_columns(changes)
    return changes.select([_PREFIX + name for name in names]).rename_columns(names)


def last_changes(changes: pa.Table) -> pa.Table:
    """Return the last change of each key, in the order of partitions and offsets.

    Raise `PreconditionError` for two of one key whose order is unknown.
    """
    keys = [_PREFIX + name for name in key_columns(changes)]
    ordered = changes.sort_by([(PARTITION, "ascending"), (OFFSET, "ascending")])
    numbered = ordered.append_column("at", pa.array(np.arange(ordered.num_rows)))
    last = numbered.group_by(keys).aggregate([("at", "max")])
    if last.num_rows < ordered.num_rows:
        _check_order(ordered, keys)
    return ordered.take(pa.array(np.sort(last.column("at_max").to_numpy())))


def _check_order(changes: pa.Table, keys: list[str]) -> None:
    places = [*keys, PARTITION, OFFSET]
    counts = changes.group_by(places).aggregate([([], "count_all")])
    if counts.num_rows == changes.num_rows:
        return
    row = counts.filter(pc.greater(counts.column("count_all"), 1)).slice(0, 1).to_pylist()[0]
    key = ", ".join(f"{name.removeprefix(_PREFIX)} = {row[name]!r}" for name in keys)
    if row[OFFSET] == _UNKNOWN:
        raise PreconditionError(
            f"a batch has {row['count_all']} rows with the key {key}, and nothing says which is the last: SELECT "
            "partition and offset, too"
        )
    raise PreconditionError(
        f"{row['count_all']} rows with the key {key} are of one record (partition {row[PARTITION]}, offset "
        f"{row[OFFSET]}), so none of them is the last: the query must make one row of each key of a record"
    )


def have_keys(rows: pa.Table, keys: pa.Table) -> Any:
    """Return for each row whether its key is among `keys`, as an array of numpy."""
    names = keys.column_names
    wanted = keys.cast(pa.schema([rows.schema.field(name) for name in names]))
    numbers = [str(number) for number in range(len(names))]  # a column may have any name
    numbered = rows.select(names).rename_columns(numbers).append_column("at", pa.array(np.arange(rows.num_rows)))
    found = np.zeros(rows.num_rows, np.bool_)
    matching = numbered.join(wanted.rename_columns(numbers), keys=numbers, join_type="left semi")
    found[matching.column("at").to_numpy()] = True
    return found
