"""The directory of a sink of files: which checkpoint it belongs to, and files in it that no batch has committed.

Spark writes the files of a batch first, and then lists them in `_spark_metadata`, the sink's commit log. A process that
is killed in between leaves files that are not listed. Spark passes over them; every other reader reads them, although
some are empty, and the records of the others come again with the next attempt. They are removed before a query starts.

    CHECKPOINT/.odradek.lock                  held while the pipeline runs
    CHECKPOINT/odradek_sink                   an id, made at the first start
    DIRECTORY/_odradek                        {"checkpoint": that id, "kept": [file names]}
    DIRECTORY/_spark_metadata/N, N.compact    "v1", then a line of JSON for each file: of batch N, or of all up to N

A file is removed only if all of this holds: its name is one that Spark gives; no batch lists it; it came after the
first start of the pipeline ("kept" has what was there before); and the commit log is whole, and as long as the
checkpoint's.
"""

import json
import logging
import re
from collections.abc import Iterator, Mapping
from typing import Final

from odradek.model import ConfigurationError, StorageError
from odradek.runtime import Disk, DiskLock, Entropy, new_id

_LOCK: Final = ".odradek.lock"
_ID: Final = "odradek_sink"
_CLAIM: Final = "_odradek"
_COMMIT_LOG: Final = "_spark_metadata"
_DATA_FILE: Final = re.compile(r"part-\d{5,}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[.-]c\d{3,}\..+")
_BATCH: Final = re.compile(r"(\d+)(\.compact)?")
_MOST_NAMES_SHOWN: Final = 5

_log = logging.getLogger("odradek.pipelines")


def lock_checkpoint(disk: Disk, checkpoint: str) -> DiskLock:
    """Hold the checkpoint, so that no other process runs on it. Raises `StorageError` if one does."""
    try:
        disk.make_directories(checkpoint)
        return disk.lock(f"{checkpoint}/{_LOCK}", "odradek pipeline")
    except BlockingIOError as error:
        raise StorageError(f"the checkpoint {checkpoint} is in use by {error}: stop that pipeline first") from None
    except OSError as error:
        raise StorageError(f"the checkpoint {checkpoint} cannot be written: {error.strerror}") from None


def prepare_directory(
    disk: Disk, entropy: Entropy, checkpoint: str, directory: str, options: Mapping[str, str], *, name: str
) -> None:
    """Claim `directory` for the checkpoint, and remove the files that earlier attempts did not commit.

    The caller holds the checkpoint's lock. Raises `ConfigurationError` if the directory belongs to another checkpoint:
    Spark would take the batches of this one for done, and skip them. Raises `StorageError` for a disk that fails.
    """
    try:
        _prepare(disk, entropy, checkpoint, directory, options, name)
    except OSError as error:
        raise StorageError(f"sink.path {directory} cannot be prepared: {error.strerror}") from None


def _prepare(
    disk: Disk, entropy: Entropy, checkpoint: str, directory: str, options: Mapping[str, str], name: str
) -> None:
    disk.make_directories(directory)
    own_id = _read(disk, f"{checkpoint}/{_ID}")
    claim = _read(disk, f"{directory}/{_CLAIM}")
    listed = _listed(disk, checkpoint, directory)
    if claim is None:
        if own_id is None:
            own_id = str(new_id(entropy))
            disk.replace_file(f"{checkpoint}/{_ID}", own_id.encode())
        kept = sorted(file for _, file in _data_files(disk, directory) if file not in (listed or ()))
        disk.replace_file(f"{directory}/{_CLAIM}", json.dumps({"checkpoint": own_id, "kept": kept}).encode())
        if kept:
            _log.warning("%s: %d files in %s were there first, and are kept", name, len(kept), directory)
        return
    claimed = json.loads(claim)
    if claimed["checkpoint"] != own_id:
        raise ConfigurationError(
            f"sink.path {directory} has the results of another checkpoint than {checkpoint}: "
            "give it a new path, or the checkpoint that belongs to it"
        )
    # With a retention, committed files leave the commit log, and stay.
    if listed is None or any(key.lower() == "retention" for key in options):
        return
    kept_names = listed.union(claimed["kept"])
    removed = [found for found in _data_files(disk, directory) if found[1] not in kept_names]
    for folder, file in removed:
        disk.remove(f"{folder}/{file}")
        if disk.exists(f"{folder}/.{file}.crc"):
            disk.remove(f"{folder}/.{file}.crc")
    if removed:
        shown = ", ".join(file for _, file in removed[:_MOST_NAMES_SHOWN])
        more = f" and {len(removed) - _MOST_NAMES_SHOWN} more" if len(removed) > _MOST_NAMES_SHOWN else ""
        _log.warning("%s: removed %d uncommitted files from %s: %s%s", name, len(removed), directory, shown, more)


def _read(disk: Disk, path: str) -> str | None:
    return disk.read_file(path).decode() if disk.exists(path) else None


def _data_files(disk: Disk, directory: str) -> Iterator[tuple[str, str]]:
    """The files that have a name as Spark gives them to data, each with its folder; folders of partitions included."""
    pending = [directory]
    while pending:
        folder = pending.pop()
        for name in disk.list(folder):
            if name.startswith(("_", ".")):
                continue
            if disk.is_directory(f"{folder}/{name}"):
                pending.append(f"{folder}/{name}")
            elif _DATA_FILE.fullmatch(name):
                yield folder, name


def _listed(disk: Disk, checkpoint: str, directory: str) -> frozenset[str] | None:
    """The names of all committed files; None if the commit log cannot tell, because a part of it is missing."""
    log = f"{directory}/{_COMMIT_LOG}"
    batches: dict[int, str] = {}
    compacted = -1
    for name in disk.list(log) if disk.exists(log) else ():
        if (match := _BATCH.fullmatch(name)) is None:
            continue
        batch = int(match[1])
        if match[2]:
            compacted = max(compacted, batch)
        if match[2] or batch not in batches:
            batches[batch] = name
    last, first = max(batches, default=-1), max(compacted, 0)
    if last < _last_commit(disk, checkpoint) or any(batch not in batches for batch in range(first, last + 1)):
        _log.warning("The commit log %s is not whole: uncommitted files are not removed", log)
        return None
    names: set[str] = set()
    for batch in range(first, last + 1):
        version, *entries = disk.read_file(f"{log}/{batches[batch]}").decode().splitlines()
        if version != "v1":
            _log.warning("The commit log %s has version %s, not v1: uncommitted files are not removed", log, version)
            return None
        names.update(json.loads(entry)["path"].rpartition("/")[2] for entry in entries)
    return frozenset(names)


def _last_commit(disk: Disk, checkpoint: str) -> int:
    """The last batch that the checkpoint has as committed, or -1."""
    commits = f"{checkpoint}/commits"
    names = disk.list(commits) if disk.exists(commits) else []
    return max((int(name) for name in names if name.isdecimal()), default=-1)
