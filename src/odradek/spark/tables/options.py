"""The options of the sink `odradek_iceberg`. Spark passes their names in lower case."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from odradek.config.secrets import ClientOptions
from odradek.model import ConfigurationError
from odradek.model.suggestions import similar_names
from odradek.tables.columns import parse_transform, split_transforms
from odradek.tables.location import TableLocation, parse_location
from odradek.tables.machine.changes import TableKey

_KNOWN: Final = ("path", "table", "catalog", "pipeline", "mode", "key", "tombstone", "partitionBy", "keepSnapshots")
_OF_SPARK: Final = frozenset({"checkpointlocation", "queryname"})
_LOCATION: Final = ("path", "table", "catalog")
KEEP_SNAPSHOTS: Final = 100
"""The snapshots that a stream keeps: a commit reads and writes the list of all, so its cost grows with them."""
_PREFIXES: Final = ("catalog.", "write.", "commit.", "history.")


class TableOptions(Struct, frozen=True, kw_only=True):
    """The parsed options."""

    location: TableLocation
    pipeline: str = ""
    """The name under which the table keeps the query's progress: by default its own, or, if that is empty, its id."""
    key: TableKey | None = None
    """The key of the mode `upsert`; None in the mode `append`."""
    partition_by: tuple[str, ...] = ()
    properties: ClientOptions = ClientOptions()
    """Iceberg's properties of a table that is made."""
    checkpoint: str = ""
    keep_snapshots: int = KEEP_SNAPSHOTS
    """Each time that a stream has written so many, older ones are expired; 0 means never."""


def parse_table_options(options: Mapping[str, str]) -> TableOptions:
    """Parse the options. Raise `ConfigurationError`, which names the option."""
    given = {key.lower(): str(value) for key, value in options.items()}
    spelled = {name.lower(): name for name in _KNOWN}
    for key in given:
        if key in spelled or key in _OF_SPARK or key.startswith(_PREFIXES):
            continue
        near = similar_names(key, spelled, cutoff=0.75)
        hint = f"did you mean {spelled[near[0]]}?" if near else f"there are {', '.join(_KNOWN)}, catalog.* and write.*"
        raise ConfigurationError(f"there is no option {key!r}: {hint}")
    location = parse_location({k: v for k, v in given.items() if k in _LOCATION or k.startswith("catalog.")})
    partition_by = split_transforms(given.get("partitionby", ""))
    columns = [parse_transform(text)[0] for text in partition_by]
    table_key = _key(given)
    pairs = zip(columns, partition_by, strict=True)
    outside = [] if table_key is None else [pair for pair in pairs if pair[0] not in table_key.columns]
    if table_key is not None and outside:
        raise ConfigurationError(
            f"partitionBy has {outside[0][1]}, and {outside[0][0]} is no column of the key, so that a new row could be "
            "in another partition than the one it replaces: partition by the key, as bucket(16, "
            f"{table_key.columns[0]})"
        )
    return TableOptions(
        location=location,
        pipeline=given.get("pipeline", "").strip() or given.get("queryname", ""),
        key=table_key,
        partition_by=partition_by,
        properties=ClientOptions((k, v) for k, v in given.items() if k.startswith(("write.", "commit.", "history."))),
        keep_snapshots=_whole(given.get("keepsnapshots", str(KEEP_SNAPSHOTS))),
        checkpoint=given.get("checkpointlocation", "").strip(),
    )


def _key(given: Mapping[str, str]) -> TableKey | None:
    mode = given.get("mode", "append").strip()
    if mode not in ("append", "upsert"):
        raise ConfigurationError(f"mode is append or upsert, not {mode!r}")
    columns = tuple(name for name in map(str.strip, given.get("key", "").split(",")) if name)
    tombstone = given.get("tombstone", "").strip()
    if mode == "append":
        if columns or tombstone:
            raise ConfigurationError(f'{"key" if columns else "tombstone"} is for mode = "upsert"')
        return None
    if not columns:
        raise ConfigurationError('mode = "upsert" needs key: the columns whose values name a row')
    if twice := next((name for name in columns if columns.count(name) > 1), None):
        raise ConfigurationError(f"key names {twice} twice")
    if tombstone in columns:
        raise ConfigurationError(f"tombstone is {tombstone}, a column of the key: give a BOOLEAN column of its own")
    return TableKey(columns, tombstone)


def _whole(text: str) -> int:
    if not text.strip().isdecimal():
        raise ConfigurationError(f"keepSnapshots is a number of snapshots, or 0 for all, not {text!r}")
    return int(text)
