"""Merges small Parquet files of an offline pipeline, and updates the commit log of Spark's sink.

    DIRECTORY/.odradek_compaction/N/          a merged file, as Spark writes it; readers skip names with a dot
    DIRECTORY/.odradek_compaction/journal     {"merged": [{"from", "entry"}], "replaced": [paths]}

The journal is written when all merged files are complete. After that, this process or else the next start completes the
compaction: it moves merged files to their folders, replaces entries of the commit log, and removes the replaced files.
Without a journal, the next start removes `.odradek_compaction`. While entries are replaced, another reader may see rows
twice or not at all; the caller holds the checkpoint's lock, so no query writes.
"""

import json
import logging
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from odradek.runtime import Disk

WORK: Final = ".odradek_compaction"
_JOURNAL: Final = "journal"
_COMMIT_LOG: Final = "_spark_metadata"
_VERSION: Final = "v1"

_log = logging.getLogger("odradek.pipelines")

_Entry = dict[str, Any]
"""A line of the commit log: path (a URI), size, modificationTime in ms, and others."""


def compact(spark: Any, disk: Disk, directory: str, target_file_bytes: int, *, name: str) -> None:
    """Merge files smaller than half of `target_file_bytes`, in each folder, into files of up to `target_file_bytes`.

    Raise `OSError` and Spark's errors, such as for files with incompatible columns; a failed merge changes no file.
    """
    finish_compaction(disk, directory)
    groups = list(_small_groups(disk, directory, target_file_bytes))
    if not groups:
        return
    merged: list[dict[str, Any]] = []
    try:
        for number, entries in enumerate(groups):
            place = f"{directory}/{WORK}/{number}"
            paths = [f"file://{_disk_path(entry)}" for entry in entries]
            spark.read.option("mergeSchema", "true").parquet(*paths).coalesce(1).write.parquet(f"file://{place}")
            (file,) = (each for each in disk.list(place) if each.startswith("part-"))
            folder = entries[0]["path"].rpartition("/")[0]
            entry = entries[0] | {
                "path": f"{folder}/{file}",
                "size": disk.size(f"{place}/{file}"),
                "modificationTime": int(disk.modified_at(f"{place}/{file}") * 1000),
            }
            merged.append({"from": f"{place}/{file}", "entry": entry})
    except BaseException:
        _remove_tree(disk, f"{directory}/{WORK}")
        raise
    disk.sync_all([str(each["from"]) for each in merged])
    replaced = [_disk_path(entry) for entries in groups for entry in entries]
    journal = {"merged": merged, "replaced": replaced}
    disk.replace_file(f"{directory}/{WORK}/{_JOURNAL}", json.dumps(journal).encode())
    finish_compaction(disk, directory)
    _log.info("%s: merged %d files of %s into %d", name, len(replaced), directory, len(merged))


def finish_compaction(disk: Disk, directory: str) -> None:
    """Complete an unfinished compaction if it has a journal, else remove its merged files. Raise `OSError`."""
    work = f"{directory}/{WORK}"
    if not disk.exists(work):
        return
    if disk.exists(f"{work}/{_JOURNAL}"):
        journal = json.loads(disk.read_file(f"{work}/{_JOURNAL}"))
        for each in journal["merged"]:
            if disk.exists(each["from"]):
                disk.rename(each["from"], _disk_path(each["entry"]))
        replaced = {_base_name(path) for path in journal["replaced"]}
        _exchange(disk, directory, replaced, [each["entry"] for each in journal["merged"]])
        for path in journal["replaced"]:
            _remove(disk, path)
        # The compaction is complete.
        disk.remove(f"{work}/{_JOURNAL}")
    _remove_tree(disk, work)


def _small_groups(disk: Disk, directory: str, target_file_bytes: int) -> Iterator[Sequence[_Entry]]:
    """Yield groups of files to merge: two or more of one folder, at most `target_file_bytes` together.

    Files of half of `target_file_bytes` and more are left out.
    """
    folders: dict[str, list[_Entry]] = {}
    for _, entries in _commit_log(disk, directory):
        for entry in entries:
            if entry["size"] < target_file_bytes // 2 and disk.exists(_disk_path(entry)):
                folders.setdefault(entry["path"].rpartition("/")[0], []).append(entry)
    for found in folders.values():
        group: list[_Entry] = []
        for entry in found:
            if sum(each["size"] for each in group) + entry["size"] > target_file_bytes:
                if len(group) > 1:
                    yield group
                group = []
            group.append(entry)
        if len(group) > 1:
            yield group


def _exchange(disk: Disk, directory: str, replaced: set[str], merged: Sequence[_Entry]) -> None:
    """Remove entries of the `replaced` file names from the commit log, and add `merged` to its last file."""
    logs = _commit_log(disk, directory)
    for index, (path, entries) in enumerate(logs):
        kept = [entry for entry in entries if _file_name(entry) not in replaced]
        if index == len(logs) - 1:
            there = {_file_name(entry) for entry in kept}
            kept += [entry for entry in merged if _file_name(entry) not in there]
        if kept != entries:
            folder, _, file = path.rpartition("/")
            # Hadoop would compare the new content with the checksum of the old one.
            if disk.exists(f"{folder}/.{file}.crc"):
                disk.remove(f"{folder}/.{file}.crc")
            disk.replace_file(path, "\n".join([_VERSION, *map(json.dumps, kept)]).encode())


def _commit_log(disk: Disk, directory: str) -> list[tuple[str, list[_Entry]]]:
    """Return the commit log's files from the last compacted one on, as (path, entries).

    The list is empty if the log has another version or a file that cannot be parsed.
    """
    log = f"{directory}/{_COMMIT_LOG}"
    batches: dict[int, str] = {}
    start = 0
    for name in sorted(disk.list(log) if disk.exists(log) else ()):
        number, _, suffix = name.partition(".")
        if number.isdecimal() and suffix in {"", "compact"}:
            batches[int(number)] = name if suffix or int(number) not in batches else batches[int(number)]
            start = max(start, int(number)) if suffix else start
    found = []
    for batch in sorted(each for each in batches if each >= start):
        path = f"{log}/{batches[batch]}"
        version, *lines = disk.read_file(path).decode().splitlines()
        try:
            entries = [json.loads(line) for line in lines]
            if version != _VERSION or not all({"path", "size"} <= entry.keys() for entry in entries):
                return []
        except (ValueError, AttributeError):
            return []
        found.append((path, entries))
    return found


def _disk_path(entry: _Entry) -> str:
    return unquote(urlsplit(entry["path"]).path)


def _file_name(entry: _Entry) -> str:
    return _base_name(_disk_path(entry))


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


def _remove(disk: Disk, path: str) -> None:
    folder, _, file = path.rpartition("/")
    for each in (path, f"{folder}/.{file}.crc"):
        if disk.exists(each):
            disk.remove(each)


def _remove_tree(disk: Disk, directory: str) -> None:
    if not disk.exists(directory):
        return
    for name in disk.list(directory):
        path = f"{directory}/{name}"
        if disk.is_directory(path) and not disk.is_link(path):
            _remove_tree(disk, path)
        else:
            disk.remove(path)
    disk.remove_directory(directory)
