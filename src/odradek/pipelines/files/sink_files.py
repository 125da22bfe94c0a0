"""Prepares the directory of a file sink: claims it for one checkpoint, removes uncommitted files, checks columns.

Spark writes the files of a batch first and then lists them in `_spark_metadata`, the sink's commit log. A killed
process leaves unlisted files. Spark ignores them; other readers do not, although some are empty and the next attempt
writes the records of the others again. So unlisted files are removed before the query starts.

    CHECKPOINT/.odradek.lock                  held while the pipeline runs
    CHECKPOINT/odradek_sink                   an id, made at the first start
    CHECKPOINT/offsets/N                      written by Spark before it runs batch N
    DIRECTORY/_odradek                        {"checkpoint": that id, "kept": [file names], "columns": {name: type},
                                              "started": {name: type}, "started_after": N}
    DIRECTORY/_spark_metadata/N, N.compact    "v1", then a line of JSON for each file: of batch N, or of all up to N

A file is removed only if all of these conditions hold; otherwise it stays, and is logged once:

- It lies in the directory or in a partition folder (`name=value`) that is neither a link nor has a `_` file of another
  job (`_SUCCESS`, `_delta_log`, `_spark_metadata`, ...), and its name is one that Spark gives.
- No batch lists it, and the commit log is complete and has all batches that the checkpoint committed.
- It did not exist at the last start ("kept" has the unlisted files of that time).
- A batch was in progress, and the file was last written after that batch's offsets.

"columns" are those of all files; "started" those of the last start, which are in files if batch N is not the last one.
"""

import json
import logging
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from odradek.model import ConfigurationError, StorageError, first_names
from odradek.pipelines.files.compaction import finish_compaction
from odradek.runtime import Disk, DiskLock, Entropy, new_id

LOCK: Final = ".odradek.lock"
PARTITION: Final = " of partition_by"
"""Ends the type of a column whose values are in the names of folders."""
_ID: Final = "odradek_sink"
_CLAIM: Final = "_odradek"
_COMMIT_LOG: Final = "_spark_metadata"
_DATA_FILE: Final = re.compile(r"part-\d{5,}-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}[.-]c\d{3,}\..+")
_AFTER: Final = ("commits", "state")
"""Directories that Spark writes after a batch's offsets; with lost offsets, new batches would use the old files."""
_BATCH: Final = re.compile(r"(\d+)(\.compact)?")

_log = logging.getLogger("odradek.pipelines")


class _Claim(NamedTuple):
    """The content of DIRECTORY/_odradek: the checkpoint's id, and the files not in the commit log at the last start."""

    checkpoint: str
    kept: frozenset[str]
    columns: Mapping[str, str] = {}
    started: Mapping[str, str] = {}
    started_after: int = -1


class _CommitLog(NamedTuple):
    """The names of all files in the commit log, and the number of its last batch, -1 if there is none."""

    files: frozenset[str]
    last_batch: int


def lock_checkpoint(disk: Disk, checkpoint: str) -> DiskLock:
    """Lock the checkpoint. Raise `StorageError` if another process holds it, it cannot be written, or it is damaged."""
    try:
        disk.make_directories(checkpoint)
        if not _names(disk, f"{checkpoint}/offsets") and any(_names(disk, f"{checkpoint}/{each}") for each in _AFTER):
            raise StorageError(f"the checkpoint {checkpoint} has lost its offsets: give the pipeline another one")
        return disk.lock(f"{checkpoint}/{LOCK}", "odradek pipeline")
    except BlockingIOError as error:
        raise StorageError(f"the checkpoint {checkpoint} is in use by {error}: stop that pipeline first") from None
    except OSError as error:
        raise StorageError(f"the checkpoint {checkpoint} cannot be written: {error.strerror}") from None


def _names(disk: Disk, directory: str) -> list[str]:
    """Return a directory's names, without those of the temporary files that a killed process leaves."""
    names = disk.list(directory) if disk.exists(directory) else []
    return [name for name in names if not name.startswith(".")]


def prepare_directory(
    disk: Disk, entropy: Entropy, checkpoint: str, directory: str, options: Mapping[str, str], *, name: str
) -> None:
    """Claim `directory` for the checkpoint, and remove the files that earlier attempts did not commit.

    The caller holds the checkpoint's lock. Raise `ConfigurationError` if the directory belongs to another checkpoint,
    because Spark would skip this checkpoint's batches as done. Raise `StorageError` if the disk fails, or `_odradek` or
    `odradek_sink` is damaged.
    """
    try:
        _prepare(disk, entropy, checkpoint, directory, options, name)
    except OSError as error:
        raise StorageError(f"sink.path {directory} cannot be prepared: {error.strerror}") from None


def _prepare(
    disk: Disk, entropy: Entropy, checkpoint: str, directory: str, options: Mapping[str, str], name: str
) -> None:
    disk.make_directories(directory)
    finish_compaction(disk, directory)
    own_id = _own_id(disk, f"{checkpoint}/{_ID}")
    claim = _read_claim(disk, directory, checkpoint)
    log = _read_commit_log(disk, checkpoint, directory)
    if claim is None:
        if own_id is None:
            own_id = str(new_id(entropy))
            disk.replace_file(f"{checkpoint}/{_ID}", own_id.encode())
        kept = {file for _, file in _data_files(disk, directory) if log is None or file not in log.files}
        _write_claim(disk, directory, _Claim(own_id, frozenset(kept)))
        if kept:
            _log.warning("%s: kept %d files that were in %s before the first start", name, len(kept), directory)
        return
    if claim.checkpoint != own_id:
        raise ConfigurationError(
            f"sink.path {directory} has the results of another checkpoint than {checkpoint}: "
            "give it a new path, or the checkpoint that belongs to it"
        )
    # With a retention, committed files leave the commit log and must stay.
    if log is None or any(key.lower() == "retention" for key in options):
        return
    unlisted = [found for found in _data_files(disk, directory) if found[1] not in log.files]
    new = [found for found in unlisted if found[1] not in claim.kept]
    removed = _of_killed_attempt(disk, f"{checkpoint}/offsets/{log.last_batch + 1}", directory, new)
    for folder, file in removed:
        disk.remove(f"{folder}/{file}")
        if disk.exists(f"{folder}/.{file}.crc"):
            disk.remove(f"{folder}/.{file}.crc")
    if removed:
        _log.warning(
            "%s: removed %d uncommitted files from %s: %s",
            name,
            len(removed),
            directory,
            first_names(file for _, file in removed),
        )
    left = [found for found in new if found not in removed]
    if left:
        _log.warning(
            "%s: left %d files in %s that no batch of this pipeline committed and another job may have written: %s",
            name,
            len(left),
            directory,
            first_names(file for _, file in left),
        )
    kept = {file for _, file in unlisted} - {file for _, file in removed}
    if kept != claim.kept:
        _write_claim(disk, directory, claim._replace(kept=frozenset(kept)))


def check_columns(
    disk: Disk, checkpoint: str, directory: str, columns: Mapping[str, str], *, by_position: bool, claim: bool
) -> None:
    """Raise `ConfigurationError` if no reader could read files with `columns` together with those in `directory`.

    `columns` are types by name; `by_position` is for CSV, whose readers do not look at names. With `claim`, a batch is
    about to be written. Raise `StorageError` if the disk fails.
    """
    try:
        claimed = _read_claim(disk, directory, checkpoint)
        if claimed is None:
            return
        log = f"{directory}/{_COMMIT_LOG}"
        names = disk.list(log) if disk.exists(log) else []
        last = max((int(found[1]) for name in names if (found := _BATCH.fullmatch(name))), default=-1)
        written = {**claimed.columns, **(claimed.started if last > claimed.started_after else {})}
        if (change := _changed_column(written, columns, by_position=by_position)) is not None:
            raise ConfigurationError(f"{change} in the files of {directory}: write to another directory, or as before")
        if claim:
            _write_claim(disk, directory, claimed._replace(columns=written, started=columns, started_after=last))
    except OSError as error:
        raise StorageError(f"sink.path {directory} cannot be prepared: {error.strerror}") from None


def _changed_column(before: Mapping[str, str], after: Mapping[str, str], *, by_position: bool) -> str | None:
    """Return the first difference between columns that readers do not bridge: they do add and leave out columns."""
    if by_position and before and list(before.items()) != list(after.items()):
        return f"the columns are {_shown_columns(after)}, and {_shown_columns(before)}"
    known = {name.lower(): kind for name, kind in before.items()}
    for name, kind in after.items():
        if known.get(name.lower(), kind) != kind:
            return f"the column {name} is {kind}, and {known[name.lower()]}"
    partitions = [{each for each in columns.items() if PARTITION in each[1]} for columns in (before, after)]
    if before and partitions[0] != partitions[1]:
        old, new = ([name for name, _ in sorted(each)] or ["nothing"] for each in partitions)
        return f"sink.partition_by is {', '.join(new)}, and {', '.join(old)}"
    return None


def _shown_columns(columns: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items())


def _of_killed_attempt(
    disk: Disk, offsets: str, directory: str, files: Sequence[tuple[str, str]]
) -> list[tuple[str, str]]:
    """Return those `files` not older than the file `offsets`; none if it is missing or `directory` has another job."""
    if _has_other_job(disk.list(directory), {_CLAIM, f"{_CLAIM}.tmp", _COMMIT_LOG}) or not disk.exists(offsets):
        return []
    began_at = disk.modified_at(offsets)
    return [(folder, file) for folder, file in files if disk.modified_at(f"{folder}/{file}") >= began_at]


def _own_id(disk: Disk, path: str) -> str | None:
    if not disk.exists(path):
        return None
    if own_id := disk.read_file(path).decode(errors="replace").strip():
        return own_id
    raise StorageError(f'{path} is empty: write the id "checkpoint" of the sink\'s file {_CLAIM} into it')


def _read_claim(disk: Disk, directory: str, checkpoint: str) -> _Claim | None:
    path = f"{directory}/{_CLAIM}"
    if not disk.exists(path):
        return None
    try:
        claim = json.loads(disk.read_file(path))
        kept = frozenset(map(str, claim["kept"]))
        # An earlier version wrote no columns.
        columns, started = dict(claim.get("columns", {})), dict(claim.get("started", {}))
        after = int(claim.get("started_after", -1))
        return _Claim(str(claim["checkpoint"]), kept, columns, started, after)
    except (ValueError, KeyError, TypeError, AttributeError):
        raise StorageError(
            f"{path} is not a claim of an Odradek pipeline: remove this file if {directory} has the results of the "
            f"checkpoint {checkpoint}, and give the pipeline a new sink.path if not"
        ) from None


def _write_claim(disk: Disk, directory: str, claim: _Claim) -> None:
    text = json.dumps(claim._asdict() | {"kept": sorted(claim.kept)})
    disk.replace_file(f"{directory}/{_CLAIM}", text.encode())


def _data_files(disk: Disk, directory: str) -> Iterator[tuple[str, str]]:
    """Yield (folder, name) of files named by Spark, also in partition folders, but not in those of other jobs."""
    pending = [directory]
    while pending:
        folder = pending.pop()
        names = disk.list(folder)
        if folder != directory and _has_other_job(names):
            continue
        for name in names:
            path = f"{folder}/{name}"
            if name.startswith(".") or disk.is_link(path):
                continue
            if disk.is_directory(path):
                if "=" in name:
                    pending.append(path)
            elif _DATA_FILE.fullmatch(name):
                yield folder, name


def _has_other_job(names: Iterable[str], own: Collection[str] = ()) -> bool:
    """Return whether a folder has a `_` file that is neither in `own` nor a partition folder (`_name=value`)."""
    return any(name.startswith("_") and "=" not in name and name not in own for name in names)


def _read_commit_log(disk: Disk, checkpoint: str, directory: str) -> _CommitLog | None:
    """Return the sink's commit log; None, with a warning, if it is incomplete, malformed or of another version."""
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
        _log.warning("The commit log %s is incomplete: uncommitted files are not removed", log)
        return None
    names: set[str] = set()
    for batch in range(first, last + 1):
        try:
            version, *entries = disk.read_file(f"{log}/{batches[batch]}").decode().splitlines()
            if version != "v1":
                _log.warning(
                    "The commit log %s has version %s, not v1: uncommitted files are not removed", log, version
                )
                return None
            names.update(json.loads(entry)["path"].rpartition("/")[2] for entry in entries)
        except (ValueError, KeyError, TypeError, AttributeError):
            _log.warning(
                "The commit log %s is incomplete, %s cannot be read: uncommitted files are not removed",
                log,
                batches[batch],
            )
            return None
    return _CommitLog(frozenset(names), last)


def _last_commit(disk: Disk, checkpoint: str) -> int:
    """Return the number of the last batch that the checkpoint has committed, or -1."""
    names = _names(disk, f"{checkpoint}/commits")
    return max((int(name) for name in names if name.isdecimal()), default=-1)
