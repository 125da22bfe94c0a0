"""The columns of a table: made from a query's, and fitted to them when the query changes.

A table gets new columns, wider types (int to long, float to double, longer decimals) and optional columns, as Iceberg
allows. Everything else is refused before a row is written.
"""

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from odradek.model import ConfigurationError, PreconditionError
from odradek.tables.machine.changes import OFFSET, PARTITION, TableKey

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table

_TRANSFORM: Final = re.compile(r"\s*(?:(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([^(),]+?)\s*\)|([^(),]+?))\s*")
_PROPERTIES: Final = {
    "write.metadata.delete-after-commit.enabled": "true",
    "commit.manifest-merge.enabled": "true",
}
"""Of tables that are made here: without them, each commit leaves a metadata file and a manifest."""


def split_transforms(text: str) -> tuple[str, ...]:
    """Return the parts of `day(timestamp), bucket(16, key)`: commas within brackets separate nothing."""
    return tuple(part.strip() for part in re.split(r",(?![^(]*\))", text) if part.strip())


def parse_transform(text: str) -> tuple[str, str]:
    """Return the column and Iceberg's transform of `day(timestamp)`, `bucket(16, key)` or `region`.

    Raise `ConfigurationError` for anything else.
    """
    found = _TRANSFORM.fullmatch(text)
    if found is not None:
        name, number, column, plain = found.groups()
        if plain is not None:
            return plain, "identity"
        name = name.lower().removesuffix("s") if name.lower() in ("years", "months", "days", "hours") else name.lower()
        if name in ("year", "month", "day", "hour", "identity") and number is None:
            return column, name
        if name in ("bucket", "truncate") and number is not None and int(number) > 0:
            return column, f"{name}[{int(number)}]"
    raise ConfigurationError(
        f"there is no partition transform {text!r}: there are COLUMN, year(COLUMN), month(COLUMN), day(COLUMN), "
        "hour(COLUMN), bucket(N, COLUMN) and truncate(N, COLUMN)"
    )


def create_table(
    catalog: "Catalog",
    identifier: tuple[str, ...],
    columns: pa.Schema,
    *,
    location: str | None,
    key: Sequence[str],
    partition_by: Sequence[str],
    properties: dict[str, str],
) -> None:
    """Create the table with all columns optional but for those of its key, and its namespace if that is missing.

    Raise `ConfigurationError` for columns that Iceberg cannot have.
    """
    from pyiceberg.exceptions import CommitFailedException, NoSuchNamespaceError, TableAlreadyExistsError
    from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException
    from pyiceberg.transforms import parse_transform as iceberg_transform

    optional = pa.schema([field.with_nullable(field.name not in key) for field in columns])
    given = {"location": location, "properties": _PROPERTIES | properties}
    try:
        try:
            transaction = catalog.create_table_transaction(identifier, optional, **given)
        except NoSuchNamespaceError:
            catalog.create_namespace_if_not_exists(identifier[:-1])
            transaction = catalog.create_table_transaction(identifier, optional, **given)
        if key:
            with transaction.update_schema() as schema:
                schema.set_identifier_fields(*key)
        with transaction.update_spec() as spec:
            for text in partition_by:
                column, transform = parse_transform(text)
                _check_transform(transaction.table_metadata.schema(), text, column, iceberg_transform(transform))
                spec.add_field(column, iceberg_transform(transform))
        transaction.commit_transaction()
    except (TableAlreadyExistsError, CommitFailedException):
        pass  # another process was faster
    except (UnsupportedPyArrowTypeException, ValueError, TypeError) as error:
        raise ConfigurationError(f"the query's columns do not fit an Iceberg table: {error}") from None


def _check_transform(schema: Any, text: str, column: str, transform: Any) -> None:
    names = [schema.find_column_name(each) for each in schema.field_ids]
    if column not in names:
        raise ConfigurationError(
            f"partitionBy has {text}, and there is no column {column}: there are {', '.join(names)}"
        )
    kind = schema.find_type(column)
    if not transform.can_transform(kind):
        raise ConfigurationError(f"partitionBy has {text}, which does not fit the type {kind} of the column {column}")


def keyed_columns(columns: pa.Schema, key: TableKey) -> pa.Schema:
    """Return the table's columns for those of a query: the key's are required, and the tombstone's is left out.

    Raise `ConfigurationError` for columns that cannot be a key, or mark tombstones, or give the order of rows.
    """
    shown = ", ".join(columns.names)
    for name in key.columns:
        if name not in columns.names:
            raise ConfigurationError(f"key names no column of the query: {name}; there are {shown}")
        kind = columns.field(name).type
        if pa.types.is_nested(kind):
            raise ConfigurationError(f"the key {name} is nested ({kind}): make columns of its fields")
        if pa.types.is_floating(kind):
            raise ConfigurationError(
                f"the key {name} is of type {kind}, whose values are not exact: cast it to DECIMAL"
            )
    for name in (PARTITION, OFFSET):
        if name in columns.names and not pa.types.is_integer(columns.field(name).type):
            raise ConfigurationError(
                f'the column {name} is of type {columns.field(name).type}, and mode = "upsert" takes it for the {name} '
                "of a record: rename it with AS"
            )
    if key.tombstone:
        if key.tombstone not in columns.names:
            raise ConfigurationError(f"tombstone names no column of the query: {key.tombstone}; there are {shown}")
        if not pa.types.is_boolean(columns.field(key.tombstone).type):
            raise ConfigurationError(
                f"the column {key.tombstone}, which marks tombstones, is of type {columns.field(key.tombstone).type}, "
                "not BOOLEAN"
            )
    return pa.schema(
        [field.with_nullable(field.name not in key.columns) for field in columns if field.name != key.tombstone]
    )


def check_key(table: "Table", key: Sequence[str]) -> None:
    """Raise `PreconditionError` if the table has another key than the sink: Iceberg's identifier fields."""
    present = table.schema().identifier_field_names()
    shown = ", ".join(sorted(present))
    if present and not key:
        raise PreconditionError(
            f'the table has the key {shown}, whose rows mode = "append" would repeat: set mode = "upsert" and the key, '
            "or write to another table"
        )
    if key and not present:
        raise PreconditionError(
            f'the table has no key, as it was written with mode = "append", and may have several rows with the same '
            f"{', '.join(key)}: write to another table"
        )
    if present != set(key):
        raise PreconditionError(
            f"the key of the table is {shown}, and that of the sink is {', '.join(key)}: give the same one, or write "
            "to another table"
        )


def check_partitions(table: "Table", partition_by: Sequence[str]) -> None:
    """Raise `PreconditionError` if the table is partitioned otherwise, or sorted, which the sink does not write."""
    schema = table.schema()
    if partition_by:
        wanted = [parse_transform(text) for text in partition_by]
        present = [(str(schema.find_column_name(each.source_id)), str(each.transform)) for each in table.spec().fields]
        if wanted != present:
            shown = ", ".join(f"{transform} of {column}" for column, transform in present) or "nothing"
            raise PreconditionError(
                f"partitionBy is {', '.join(partition_by)}, and the table is partitioned by {shown}: leave it out"
            )
    if not table.sort_order().is_unsorted:
        raise PreconditionError(
            f"the table declares the sort order {table.sort_order()}, in which this sink does not write"
        )


def fit_columns(table: "Table", columns: pa.Schema, *, change: bool = True) -> bool:
    """Change the table's schema so that it has the query's columns; return whether it was, or must be, changed.

    Raise `PreconditionError` for columns that Iceberg does not let it have. A refused commit raises pyiceberg's
    `CommitFailedException`.
    """
    from pyiceberg.exceptions import ResolveError, ValidationError
    from pyiceberg.io.pyarrow import UnsupportedPyArrowTypeException

    schema = table.schema()
    _check_names(schema, columns)
    before = schema.as_struct()
    transaction = head_of(table).transaction()
    try:
        with transaction.update_schema() as update:
            update.union_by_name(columns)
    except (ValidationError, ResolveError, UnsupportedPyArrowTypeException, ValueError, TypeError) as error:
        raise PreconditionError(
            f"the query's columns do not fit the table: {error}. Iceberg widens int to long, float to double and "
            "decimals; cast the column in the query, or write to another table"
        ) from None
    after = transaction.table_metadata.schema().as_struct()
    if after == before:
        return False
    if change:
        transaction.commit_transaction()
    return True


def head_of(table: "Table") -> "Table":
    """Return the table with its newest snapshot only: pyiceberg copies all metadata for each step of a transaction."""
    from pyiceberg.table import Table

    head = table.current_snapshot()
    emptied: dict[str, Any] = {"snapshot_log": [], "metadata_log": [], "statistics": []}
    refs = {name: each for name, each in table.metadata.refs.items() if name == "main"}
    snapshots = [] if head is None else [head]
    metadata = table.metadata.model_copy(update={**emptied, "snapshots": snapshots, "refs": refs})
    return Table(table.name(), metadata, table.metadata_location, table.io, table.catalog)


def _check_names(schema: Any, columns: pa.Schema) -> None:
    present = {field.name.lower(): field for field in schema.fields}
    for name in columns.names:
        known = present.get(name.lower())
        if known is not None and known.name != name:
            raise PreconditionError(
                f"the query's column {name} is {known.name} in the table, which is another name to Iceberg: rename it "
                "with AS"
            )
    missing = [field.name for field in schema.fields if field.required and field.name not in columns.names]
    if missing:
        raise PreconditionError(f"the query has no column {missing[0]}, which is required in the table")
