"""Housekeeping of a table: expired snapshots, small files, and files that no snapshot lists.

pyiceberg expires snapshots in the metadata only. A file is removed here if the metadata before a change needed it and
the metadata after it does not (`expire`), or if no metadata needs it and it is old (`clean`). Tags and branches keep
their snapshots, so every pipeline goes on.
"""

import logging
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

from msgspec import Struct

from odradek.model import PreconditionError, UnavailableError
from odradek.runtime import system_runtime
from odradek.tables.data_files import data_files
from odradek.tables.location import TableLocation, existing_table, table_errors
from odradek.tables.table import publish_metadata, staged_updates

TARGET_BYTES: Final = 128 << 20
"""The size up to which small files are merged; a file of half of it stays as it is."""
_MOST_ATTEMPTS: Final = 20
"""How often a compaction is committed while a pipeline appends."""
_ENDINGS: Final = (".parquet", ".avro", ".metadata.json")
"""The files that `clean` knows; it leaves all others."""
_log = logging.getLogger("odradek.tables")


class Expired(Struct, frozen=True):
    """The snapshots and files that were removed."""

    snapshots: int
    files: int


def expire(location: TableLocation, *, keep: int, before_ms: int) -> Expired:
    """Remove snapshots older than `before_ms`, but for the newest `keep`, and the files that only they had."""
    table = existing_table(location)
    with table_errors(location):
        refs = {each.snapshot_id for each in table.metadata.refs.values()}
        snapshots = sorted(table.metadata.snapshots, key=lambda each: (each.sequence_number or 0, each.timestamp_ms))
        old = [
            each.snapshot_id
            for each in snapshots[: max(len(snapshots) - keep, 0)]
            if each.timestamp_ms < before_ms and each.snapshot_id not in refs
        ]
        if not old:
            return Expired(0, 0)
        before = _files_of_snapshots(table)
        table.maintenance.expire_snapshots().by_ids(old).commit()
        publish_metadata(location, table)
        after = existing_table(location)
        unneeded = sorted(before - _files_of_snapshots(after))
        return Expired(len(old), _remove(after, unneeded))


def clean(location: TableLocation, *, before_ms: int) -> int:
    """Remove the files in the table's directory that no snapshot lists and that were written before that time.

    Return their number. A batch that is being written has such files, so the age must exceed the longest batch. Raise
    `PreconditionError` for a table that is not in a local directory, or whose metadata is in another one.
    """
    if location.path is None:
        raise PreconditionError(f"the files of {location} are not in a local directory that can be listed")
    disk = system_runtime().disk
    real_folder = cache(Path.resolve)

    def real(path: str) -> str:
        """Return the path without links: the directory may have another name than when the table was made."""
        given = Path(path.removeprefix("file://"))
        return str(real_folder(given.parent) / given.name)

    # Listed first: a file that is committed meanwhile is in the metadata that is read then.
    found = {real(path) for folder in ("data", "metadata") for path in _walk(f"{location.path}/{folder}")}
    table = existing_table(location)
    with table_errors(location):
        logged = (each.metadata_file for each in table.metadata.metadata_log)
        needed = {real(path) for path in (table.metadata_location, *logged, *_files_of_snapshots(table))}
    if real(table.metadata_location) not in found:
        raise PreconditionError(f"the metadata of {location} is not in its directory: {table.metadata_location}")
    old = sorted(path for path in found - needed if path.endswith(_ENDINGS))
    removed = 0
    for path in old:
        with suppress(FileNotFoundError):
            if disk.modified_at(path) * 1000 < before_ms:
                disk.remove(path)
                removed += 1
    return removed


def _walk(folder: str) -> Iterator[str]:
    disk = system_runtime().disk
    pending = [folder] if disk.exists(folder) else []
    while pending:
        each = pending.pop()
        for name in disk.list(each):
            path = f"{each}/{name}"
            if disk.is_link(path):
                continue
            if disk.is_directory(path):
                pending.append(path)
            else:
                yield path


def _files_of_snapshots(table: Any) -> set[str]:
    """Return the paths of all files that a snapshot of the table needs."""
    metadata = table.metadata
    found = {each.statistics_path for each in (*metadata.statistics, *metadata.partition_statistics)}
    for snapshot in metadata.snapshots:
        found.add(snapshot.manifest_list)
        for manifest in snapshot.manifests(table.io):
            if manifest.manifest_path not in found:
                found.add(manifest.manifest_path)
                entries = manifest.fetch_manifest_entry(table.io, discard_deleted=True)
                found |= {entry.data_file.file_path for entry in entries}
    return found


def _remove(table: Any, paths: Iterable[str]) -> int:
    removed = 0
    for path in paths:
        try:
            table.io.delete(path)
            removed += 1
        except (OSError, ValueError) as error:
            _log.warning("Failed to remove %s, which no snapshot needs: %s", path, error)
    return removed


class Compacted(Struct, frozen=True):
    """The numbers of files before and after."""

    before: int
    after: int


def compact(location: TableLocation, *, target_bytes: int = TARGET_BYTES) -> Compacted:
    """Merge the small files of each partition, in one snapshot that changes no row; pipelines may append meanwhile.

    Files of another partition spec, and files with rows that were deleted by other writers, stay as they are. Raise
    `UnavailableError` if others change the same files, or the partition spec.
    """
    from pyiceberg.io.pyarrow import ArrowScan

    table = existing_table(location)
    with table_errors(location):
        old: list[Any] = []
        new: list[Any] = []
        scan = ArrowScan(table.metadata, table.io, table.schema(), _always_true())
        for group in _groups(table, target_bytes):
            rows = scan.to_table(group)
            counted = sum(task.file.record_count for task in group)
            assert rows.num_rows == counted, f"{rows.num_rows} rows are read of {counted}"
            new += data_files(table.metadata, rows, table.io)
            old += [task.file for task in group]
        if old:
            _replace(location, table, old, new)
    return Compacted(len(old), len(new))


def _groups(table: Any, target_bytes: int) -> Iterator[list[Any]]:
    """Yield files of a partition that are merged into about one."""
    pending, sizes = defaultdict[Any, list[Any]](list), defaultdict[Any, int](int)
    spec_id = table.metadata.default_spec_id
    for task in sorted(table.scan().plan_files(), key=lambda each: str(each.file.file_path)):
        partition, size = task.file.partition, task.file.file_size_in_bytes
        if task.delete_files or task.file.spec_id != spec_id or size >= target_bytes // 2:
            continue
        if sizes[partition] + size > target_bytes:
            if len(pending[partition]) > 1:
                yield pending[partition]
            pending[partition], sizes[partition] = [], 0
        pending[partition].append(task)
        sizes[partition] += size
    yield from (group for group in pending.values() if len(group) > 1)


def _replace(location: TableLocation, table: Any, old: list[Any], new: list[Any]) -> None:
    """Commit a snapshot with `new` files in place of `old` ones, on the newest head that still has them."""
    from pyiceberg.exceptions import CommitFailedException, ValidationException
    from pyiceberg.table.update import AssertDefaultSpecId, AssertRefSnapshotId, AssertTableUUID

    from odradek.tables.overwrites import overwrite

    spec_id = table.metadata.default_spec_id
    for _ in range(_MOST_ATTEMPTS):
        transaction = table.transaction()
        try:
            with overwrite(transaction, table.io) as snapshot:
                for file in old:
                    snapshot.delete_data_file(file)
                for file in new:
                    file.spec_id = spec_id
                    snapshot.append_data_file(file)
            requirements = (
                AssertTableUUID(uuid=table.metadata.table_uuid),
                AssertRefSnapshotId(ref="main", snapshot_id=table.current_snapshot().snapshot_id),
                AssertDefaultSpecId(default_spec_id=spec_id),
            )
            updates = tuple(map(_as_replace, staged_updates(transaction)))
            response = table.catalog.commit_table(table, requirements, updates)
        except ValidationException as error:
            raise UnavailableError(f"others have changed files of {location} meanwhile: {error}") from None
        except CommitFailedException as error:
            _log.info("The compaction of %s is committed again: %s", location, error)
            table = existing_table(location)
            deleted = {task.file.file_path for task in table.scan().plan_files() if task.delete_files}
            if table.metadata.default_spec_id != spec_id or not deleted.isdisjoint(file.file_path for file in old):
                raise UnavailableError(f"others have changed {location} meanwhile: its partitions, or rows") from None
            continue
        publish_metadata(location, table, response)
        return
    raise UnavailableError(f"the table {location} is changed too often to be compacted: stop its pipeline meanwhile")


def _as_replace(update: Any) -> Any:
    """Return the update with a snapshot of the kind `replace`, by which readers of changes know that no row changed."""
    from pyiceberg.table.snapshots import Operation, Summary

    snapshot = getattr(update, "snapshot", None)
    if snapshot is None:
        return update
    summary = Summary(operation=Operation.REPLACE, **snapshot.summary.additional_properties)
    return update.model_copy(update={"snapshot": snapshot.model_copy(update={"summary": summary})})


def _always_true() -> Any:
    from pyiceberg.expressions import AlwaysTrue

    return AlwaysTrue()
