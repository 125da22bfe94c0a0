"""A table's metadata, as pyiceberg reads and commits it: the shell of `machine.committing`.

pyiceberg's own `append` is not exactly once: after a conflict it drops the requirement that failed, and appends. So the
requirements of a commit are listed here, and go straight to the catalog.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from odradek.model import OdradekError, PreconditionError, UnavailableError
from odradek.runtime import system_runtime
from odradek.tables.columns import check_key, check_partitions, create_table, fit_columns, head_of
from odradek.tables.data_files import WrittenFiles
from odradek.tables.location import (
    TableLocation,
    existing_table,
    find_table,
    identifier_of,
    load_table,
    open_catalog,
    table_errors,
)
from odradek.tables.machine.committing import (
    Accepted,
    Batch,
    Commit,
    Ended,
    Event,
    Load,
    Loaded,
    Planned,
    Refused,
    Send,
    TableState,
    Unknown,
    tag_name,
)
from odradek.tables.machine.marks import PREFIX, Mark, Progress, decode_mark, encode_mark, encode_progress
from odradek.tables.upserts import Replacement, Upsert

if TYPE_CHECKING:
    from pyiceberg.table import Table
    from pyiceberg.table.metadata import TableMetadata

ACCEPTS: Final = f"{PREFIX}accepts."
"""Begins the name of a table property that lets a pipeline's next batch pass its checks; the commit removes it."""
STARTS: Final = f"{PREFIX}start."
"""Begins the name of a table property with the offsets where a pipeline's first batch began."""
_MOST_CHANGES: Final = 20
"""How often a change of the schema is tried while others commit."""
_log = logging.getLogger("odradek.tables")


def prepared_table(
    location: TableLocation,
    columns: pa.Schema,
    *,
    key: Sequence[str] = (),
    partition_by: Sequence[str] = (),
    properties: Mapping[str, str] | None = None,
) -> "Table":
    """Return the table, made or changed so that it has the columns of a query, and with the columns of its key.

    Raise `OdradekError` if that cannot be.
    """
    with table_errors(location):
        from pyiceberg.exceptions import CommitFailedException

        catalog = open_catalog(location, create=True)
        assert catalog is not None
        for _ in range(_MOST_CHANGES):
            table = find_table(catalog, location)
            if table is None:
                create_table(
                    catalog,
                    identifier_of(location),
                    columns,
                    location=location.path,
                    key=key,
                    partition_by=partition_by,
                    properties=dict(properties or {}),
                )
                table = catalog.load_table(identifier_of(location))
                publish_metadata(location, table)
            check_key(table, key)
            check_partitions(table, partition_by)
            try:
                if not fit_columns(table, columns):
                    return table
            except CommitFailedException as error:
                _log.info("The schema of %s is changed again: %s", location, error)
                continue
            table = find_table(catalog, location)
            publish_metadata(location, table)
            return table
    raise UnavailableError(f"the schema of {location} cannot be changed while others change the table")


def check_table(
    location: TableLocation, columns: pa.Schema, *, key: Sequence[str] = (), partition_by: Sequence[str] = ()
) -> None:
    """Raise `OdradekError` if `prepared_table` would, without a change; a new table's columns are not checked."""
    table = load_table(location)
    if table is not None:
        with table_errors(location):
            check_key(table, key)
            check_partitions(table, partition_by)
            fit_columns(table, columns, change=False)


def state_of(metadata: "TableMetadata", pipeline: str, query: str = "") -> TableState:
    """Return a table's state for a pipeline; without one, for the write of a job, whose id is `query`."""
    main = metadata.refs.get("main")
    tag: int | None = None
    if pipeline:
        reference = metadata.refs.get(tag_name(pipeline))
        tag = None if reference is None else reference.snapshot_id
    elif query:
        marked = (each.snapshot_id for each in metadata.snapshots if mark_of(each).query == query)
        tag = next(marked, None)
    found = None if tag is None else metadata.snapshot_by_id(tag)
    mark = None if found is None else mark_of(found)
    is_in_main = tag is None or _is_in_main(metadata, tag)
    return TableState(
        uuid=str(metadata.table_uuid),
        main=None if main is None else main.snapshot_id,
        tag=tag,
        mark=mark if mark is not None and mark.query else None,
        is_in_main=is_in_main,
        in_main=None if is_in_main else _mark_in_main(metadata, pipeline),
        accepts=ACCEPTS + pipeline in metadata.properties,
    )


_NO_MARK: Final = Mark(pipeline="", query="", batch=-1, writer="")


def mark_of(snapshot: Any) -> Mark:
    """Return a snapshot's mark; one with an empty query if it has none."""
    summary = snapshot.summary
    return (None if summary is None else decode_mark(summary.additional_properties)) or _NO_MARK


def _is_in_main(metadata: "TableMetadata", snapshot: int) -> bool:
    """Return whether a snapshot is an ancestor of `main`.

    Where expired snapshots hide the ancestors, it counts as one: sequence numbers only grow, and a branch that was
    rolled back has its own numbers from there on. In tables of version 1, all are 0.
    """
    known = {each.snapshot_id: each for each in metadata.snapshots}
    wanted, main = known.get(snapshot), metadata.refs.get("main")
    if wanted is None or main is None:
        return False
    number = wanted.sequence_number or 0
    each = known.get(main.snapshot_id)
    while each is not None:
        if each.snapshot_id == snapshot:
            return True
        if each.parent_snapshot_id is None or 0 < (each.sequence_number or 0) <= number:
            return False
        each = known.get(each.parent_snapshot_id)
    return True


def _mark_in_main(metadata: "TableMetadata", pipeline: str) -> Mark | None:
    """Return the mark of the pipeline's newest snapshot among `main` and its ancestors that are not expired."""
    known = {each.snapshot_id: each for each in metadata.snapshots}
    main = metadata.refs.get("main")
    each = None if main is None else known.get(main.snapshot_id)
    while each is not None:
        if (mark := mark_of(each)).query and mark.pipeline == pipeline:
            return mark
        each = None if each.parent_snapshot_id is None else known.get(each.parent_snapshot_id)
    return None


def progress_in_main(location: TableLocation, pipeline: str) -> Progress:
    """Return the next offsets of a pipeline's sources by the rows that the table has; an empty tuple if unknown.

    They are unknown, too, if a user accepts the pipeline's next batch as it is.
    """
    table = load_table(location)
    if table is None:
        return ()
    state = state_of(table.metadata, pipeline)
    mark = state.mark if state.is_in_main else state.in_main
    return () if mark is None or state.accepts else mark.progress


def commit_batch(location: TableLocation, batch: Batch, planned: Planned, written: Sequence[WrittenFiles]) -> Ended:
    """Commit a batch's files, or its changes to a table with a key, in one snapshot, once, whatever others commit.

    Raise `PreconditionError` if it must not be committed, `UnavailableError` if the outcome stays unknown: then the
    next attempt of the batch finds out.
    """
    commit = Commit(batch, planned, str(location))
    request = commit.start()
    changed = [each for each in written if each.changes is not None]
    with table_errors(location):
        upsert = Upsert(changed) if changed else None
        table: Any = None
        while not isinstance(request, Ended):
            if isinstance(request, Load):
                table = _loaded(location, batch.mark)
                event: Event = Loaded(state_of(table.metadata, batch.mark.pipeline, batch.mark.query))
            else:
                event = _send(table, location, batch, request, _replacement(table, location, written, upsert))
            request = commit.handle(event)
    return request


def _loaded(location: TableLocation, mark: Mark) -> "Table":
    catalog = open_catalog(location, create=False)
    table = None if catalog is None else find_table(catalog, location)
    if table is None:
        raise PreconditionError(
            f"the table {location} was dropped while batch {mark.batch} of {mark.pipeline} was written: start with a "
            "new checkpoint, which makes it anew with all rows"
        )
    return table


def _replacement(
    table: "Table", location: TableLocation, written: Sequence[WrittenFiles], upsert: Upsert | None
) -> Replacement:
    """Return the files that the batch adds to the table's newest snapshot, and those that it removes."""
    spec_id = table.metadata.default_spec_id
    if any((each.files or each.changes is not None) and each.spec_id != spec_id for each in written):
        raise UnavailableError(f"the partitions of {location} were changed while the batch was written")
    for each in written:
        for file in each.files:
            file.spec_id = each.spec_id
    if upsert is not None:
        return upsert.replacement(table)
    return Replacement(added=tuple(file for each in written for file in each.files))


def _send(table: "Table", location: TableLocation, batch: Batch, request: Send, files: Replacement) -> Event:
    from pyiceberg.exceptions import CommitFailedException

    updates, snapshot = _updates(table, batch, request, files)
    try:
        response = table.catalog.commit_table(table, _requirements(table, batch.mark, request), updates)
    except CommitFailedException as error:
        return Refused(str(error))
    except Exception as error:
        # Catalogs raise what they like when their answer is lost, and SQLite while another process holds its lock.
        try:
            with table_errors(location):
                raise
        except OdradekError as known:
            _log.warning("The outcome of a commit to %s is looked up: %s: %s", location, type(error).__name__, known)
            return Unknown(str(known))
    publish_metadata(location, table, response)
    return Accepted(snapshot)


def _updates(table: "Table", batch: Batch, request: Send, files: Replacement) -> tuple[tuple[Any, ...], int]:
    """Return the changes of a commit, whose manifests are written, and the id of its snapshot."""
    from pyiceberg.table.update import RemovePropertiesUpdate, SetPropertiesUpdate, SetSnapshotRefUpdate

    from odradek.tables.overwrites import overwrite

    mark = batch.mark
    transaction = head_of(table).transaction()
    if files.removed:
        update = overwrite(transaction, table.io, encode_mark(mark))
    else:
        appends = transaction.update_snapshot(snapshot_properties=encode_mark(mark))
        merges = table.properties.get("commit.manifest-merge.enabled", "false").lower() == "true"
        update = appends.merge_append() if merges else appends.fast_append()
    with update as snapshot:
        for file in files.removed:
            snapshot.delete_data_file(file)
        for file in files.added:
            snapshot.append_data_file(file)
    updates = staged_updates(transaction)
    if mark.pipeline:
        name = tag_name(mark.pipeline)
        updates += (SetSnapshotRefUpdate(ref_name=name, type="tag", snapshot_id=snapshot.snapshot_id),)
        if request.tag is None and batch.start:
            updates += (SetPropertiesUpdate(updates={STARTS + mark.pipeline: encode_progress(batch.start)}),)
    if request.state.accepts:
        updates += (RemovePropertiesUpdate(removals=[ACCEPTS + mark.pipeline]),)
    return updates, snapshot.snapshot_id


def staged_updates(transaction: Any) -> tuple[Any, ...]:
    """Return what a transaction would commit, which pyiceberg shows by no public name."""
    return tuple(transaction._updates)


def _requirements(table: "Table", mark: Mark, request: Send) -> tuple[Any, ...]:
    from pyiceberg.table.update import AssertDefaultSpecId, AssertRefSnapshotId, AssertTableUUID

    found: list[Any] = [
        AssertTableUUID(uuid=table.metadata.table_uuid),
        AssertRefSnapshotId(ref="main", snapshot_id=request.state.main),
        AssertDefaultSpecId(default_spec_id=table.metadata.default_spec_id),
    ]
    # Iceberg lets no commit require anything of a tag while the table has no snapshot: there `main` tells of any other.
    if mark.pipeline and table.metadata.snapshots:
        found.append(AssertRefSnapshotId(ref=tag_name(mark.pipeline), snapshot_id=request.tag))
    return tuple(found)


def accept_next(location: TableLocation, pipeline: str, *, is_new: bool = False) -> None:
    """Let the next batch of a pipeline pass the checks of what the table has.

    Raise `PreconditionError` for a name that the table has neither a tag nor a snapshot of, unless `is_new`.
    """
    table = existing_table(location)
    with table_errors(location):
        names = {name.removeprefix(PREFIX) for name in table.metadata.refs if name.startswith(PREFIX)}
        names |= {mark_of(each).pipeline for each in table.metadata.snapshots} - {""}
        if pipeline not in names and not is_new:
            known = ", ".join(sorted(names)) or "none"
            raise PreconditionError(f"the table {location} has no pipeline {pipeline}: it has {known}; or give --new")
        table.transaction().set_properties({ACCEPTS + pipeline: "true"}).commit_transaction()
        publish_metadata(location, table)


def publish_metadata(location: TableLocation, table: "Table", response: Any = None) -> None:
    """After a commit, write the name of the metadata file for readers without a catalog, and remove old files.

    `response` is the catalog's; pyiceberg's own commits leave the metadata in `table`. Readers see it a moment later.
    """
    if response is not None:
        _remove_old_metadata(table, response.metadata)
    if location.path is None:
        return
    metadata_location = (table if response is None else response).metadata_location
    name = Path(metadata_location).name.removesuffix(".metadata.json")
    try:
        system_runtime().disk.replace_file(f"{location.path}/metadata/version-hint.text", name.encode())
    except OSError as error:
        _log.warning("version-hint.text of %s is not written: which some readers follow: %s", location, error)


def _remove_old_metadata(table: "Table", committed: "TableMetadata") -> None:
    """Remove the metadata files that the commit dropped from the table's log, if the table wants that."""
    if committed.properties.get("write.metadata.delete-after-commit.enabled", "false").lower() != "true":
        return
    kept = {each.metadata_file for each in committed.metadata_log}
    for file in (each.metadata_file for each in table.metadata.metadata_log if each.metadata_file not in kept):
        with suppress(OSError, ValueError):
            table.io.delete(file)
