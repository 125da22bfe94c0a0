"""A broker's data directories and the logs that are in them: found, opened, missed, put aside, and lost with a disk.

`lock` takes the directories, `load` opens what is in them, `expect` says what should be, `name_directories` makes new
ones this broker's. A directory whose disk fails, then or later, is offline until the next start, and so are all of its
logs (KIP-112). What is done with logs that are here is `log_manager`'s, which is this and more.
"""

import logging
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType

from odradek.log.checkpoints import meta_properties
from odradek.log.cleaner.log_cleaner import LogCleaner
from odradek.log.directories.checkpoint_writer import CheckpointWriter
from odradek.log.directories.directory_loading import (
    Directory,
    FoundLog,
    OpenedLog,
    choose_twin,
    drop_empty_twins,
    explore,
    open_found,
    refuse_twins,
)
from odradek.log.directories.loading_progress import LoadingStoppedError, Progress
from odradek.log.directories.log_dir_lock import Ownership
from odradek.log.directories.lost_records import Shortfall, Shortfalls
from odradek.log.directories.maintenance import MaintenanceJob
from odradek.log.directories.missing_logs import Expectations
from odradek.log.errors import LogStorageError, is_disk_failure, is_out_of_descriptors, is_passing
from odradek.log.log import Log
from odradek.log.log_config import LogConfig
from odradek.log.names import parent_of, stray_folder
from odradek.log.segments.open_files import DEFAULT_OPEN_FILES, FilePool
from odradek.log.segments.segment import Segment
from odradek.model import StorageError, TopicPartition
from odradek.runtime import Disk, Entropy, new_id, uuid4

_logger = logging.getLogger("odradek.log")
ConfigFor = Callable[[str], LogConfig]


class LogDirectories:
    """See the module. Methods raise `StorageError` when the disk, or what is on it, is not as it should be."""

    def __init__(
        self,
        disk: Disk,
        directories: Sequence[str],
        *,
        broker_id: int,
        entropy: Entropy,
        cluster_id: str | None = None,
        config_for: ConfigFor = lambda topic: LogConfig(),
        max_open_files: int = DEFAULT_OPEN_FILES,
        note: str = "odradek serve",
        when_log_stopped: Callable[[], None] | None = None,
        when_directory_failed: Callable[[Set[TopicPartition], StorageError], None] | None = None,
        when_segment_suspected: Callable[[TopicPartition, Log, Segment], bool] | None = None,
    ) -> None:
        """`config_for` tells a topic's configuration; `note` is what a second broker is told about this one.

        `when_log_stopped` is called for each log that the disk's fault has stopped, `when_directory_failed` for all of
        a directory whose disk has failed, `when_segment_suspected` for a segment that is to be checked for damage.
        """
        self.directories = list(directories)
        self.broker_id = broker_id
        self.pool = FilePool(disk, max_open_files)
        self._disk = disk
        self._entropy = entropy
        self._config_for = config_for
        self._when_log_stopped = when_log_stopped
        self._when_directory_failed = when_directory_failed
        self._when_segment_suspected = when_segment_suspected
        self._ownership = Ownership(
            disk, self.directories, broker_id=broker_id, cluster_id=cluster_id, entropy=entropy, note=note
        )
        self._logs: dict[TopicPartition, Log] = {}
        self.cleaner = LogCleaner(disk, entropy, MappingProxyType(self._logs))
        self._topic_ids: dict[TopicPartition, uuid.UUID] = {}
        self._counts = dict.fromkeys(self.directories, 0)
        """How many logs are in each directory."""
        self._maintenance: MaintenanceJob | None = None
        self._folders_to_remove: list[tuple[int, str]] = []
        self._checkpoints = CheckpointWriter(disk)
        self._outdated: dict[TopicPartition, int] = {}
        """What the checkpoints have and must not have when a new log of that name begins, up to which plan of them."""
        self._unopened: dict[str, FoundLog] = {}
        """The folders of logs that are not open, or not yet: what the checkpoints say of them is kept."""
        self._offline: dict[TopicPartition, StorageError] = {}
        self._undeleted: dict[TopicPartition, list[str]] = {}
        """Folders of logs that were deleted and could not be renamed."""
        self._expectations = Expectations()
        self.shortfalls = Shortfalls()
        """Logs that have lost records; none of them is opened before that is settled."""
        self.strays: dict[str, tuple[TopicPartition, uuid.UUID | None]] = {}
        """Folders of stray logs that were found at the start: of which partition and topic they are."""
        self._progress: Progress | None = None
        self._wants_stop = False
        self._is_open = False
        self.were_closed = False
        """Whether every directory was left by a clean shutdown, so that no log has lost its end; known when loaded."""

    # ---- opening ------------------------------------------------------------------------------------------------

    @property
    def cluster_id(self) -> str | None:
        """The cluster that the directories belong to, None if nobody has said it yet."""
        return self._ownership.cluster_id

    @cluster_id.setter
    def cluster_id(self, cluster_id: str) -> None:
        self._ownership.cluster_id = cluster_id

    def lock(self) -> None:
        """Take the directories, creating what is not there; see `offline_directories` for those that the disk refuses.

        Raises `StorageError` that says which process has one, or whose directory it is, or why there is none. Sets
        `cluster_id` to what the directories say, if it was None.
        """
        self._ownership.take()

    def load(self, now_ms: int, *, threads: int = 1, monotonic: Callable[[], float] = lambda: 0.0) -> None:
        """Open every log in the directories, which `lock` has taken; recover those that were not closed.

        Blocks, with so many `threads` at work on each directory; `monotonic` is the clock of the lines that say how far
        it is. Raises `LoadingStoppedError` after `stop_loading`: `close` keeps what was recovered by then.
        """
        assert self._ownership.is_held, "lock comes first"
        self._is_open = True
        explored = [each for directory in self._usable if (each := self._explore(directory)) is not None]
        self.were_closed = all(each.was_closed for each in explored) and not self.offline_directories
        everything = drop_empty_twins(self._disk, [each for directory in explored for each in directory.logs])
        self._unopened = {each.folder: each for each in everything}
        self._offline = refuse_twins(everything)
        for reason in self._offline.values():
            _logger.error("%s; the partition is offline", reason)
        self._progress = Progress(monotonic, logs=len(everything), size=sum(each.size for each in everything))
        if self._wants_stop:
            self._progress.stop()
        configs = {topic: self._config_for(topic) for topic in {each.partition.topic for each in everything}}
        lanes = [
            [
                partial(open_found, self.pool, each, configs[each.partition.topic], now_ms, self._progress)
                for each in everything
                if parent_of(each.folder) == directory and each.partition not in self._offline
            ]
            for directory in self._usable
        ]
        for opened in self.pool.run_lanes(lanes, threads=threads):
            if opened is not None:
                self._take(opened)
        in_order = sorted(self._logs.items())
        self._logs.clear()
        self._logs.update(in_order)
        for directory in explored:
            self.strays.update(directory.strays)
        there = {each.partition for each in everything}
        for shortfall in (each for directory in explored for each in directory.vanished):
            if shortfall.partition not in there:
                self._fall_short(shortfall)
        if self._progress.is_stopped:
            raise LoadingStoppedError
        if everything:
            self._progress.end()

    def _explore(self, directory: str) -> Directory | None:
        try:
            explored = explore(self._disk, directory)
        except OSError as error:
            self._ownership.lose(directory, error)
            return None
        self._outdated.update(dict.fromkeys(explored.outdated, self._checkpoints.planned))
        self.cleaner.offsets.update(explored.cleaned_offsets)
        return explored

    @property
    def offline_directories(self) -> Mapping[str, StorageError]:
        """The data directories that the disk did not give at the start, and why; at least one is left."""
        return self._ownership.offline

    @property
    def _usable(self) -> list[str]:
        return [directory for directory in self.directories if directory not in self._ownership.offline]

    @property
    def directory_ids(self) -> Mapping[str, str]:
        """The directories that can be used and have an id: their absolute paths, by `directory.id` (KIP-858)."""
        return {
            self._ownership.ids[each]: self._disk.absolute(each) for each in self._usable if each in self._ownership.ids
        }

    @property
    def offline_paths(self) -> Set[str]:
        """Absolute paths of `offline_directories`."""
        return {self._disk.absolute(each) for each in self.offline_directories}

    @property
    def new_directories(self) -> Set[str]:
        """Of `directory_ids`, those that had no `meta.properties` at this start."""
        return {self._ownership.ids[each] for each in self._ownership.new if each in self._ownership.ids}

    def name_directories(self) -> None:
        """Write down whose the `new_directories` are, of the cluster `cluster_id`.

        Whoever has to know them must know them before: after this they look like directories that were always there.
        Raises `StorageError` if no directory is left.
        """
        for directory in self._usable:
            try:
                self._ownership.write_identity(directory)
            except OSError as error:
                if is_out_of_descriptors(error):
                    raise StorageError(f"{directory} can't be given its name: {error} (ulimit -n)") from error
                self.fail_directory(directory, error)
        if self.has_failed:
            raise StorageError("; ".join(map(str, self.offline_directories.values())))

    def partitions_in(self, path: str) -> list[TopicPartition]:
        """Those whose logs are in the directory of this absolute path, open or not."""
        (directory,) = {each for each in self.directories if self._disk.absolute(each) == path}
        return [*self._logs_in(directory), *(each.partition for each in self._unopened_in(directory))]

    def stop(self, partition: TopicPartition, reason: str) -> None:
        """Let nobody read or write a log until the next start; its files stay as they are."""
        self._logs[partition].halt(reason)

    def missing(self, partitions: Iterable[TopicPartition]) -> set[TopicPartition]:
        """Those that have no log in any directory that can be used, not even one that can't be opened."""
        return {each for each in partitions if each not in self._logs and each not in self._offline}

    def expect(
        self,
        partitions: Set[TopicPartition],
        topics: Set[str] = frozenset(),
        *,
        lost: Mapping[str, str] = MappingProxyType({}),
        irreplaceable: Set[TopicPartition] = frozenset(),
    ) -> None:
        """Say what this broker had before this start: these partitions, and whatever it had of these topics.

        While a directory is offline, or `lost` (paths by `directory.id`), the logs of those that are in no other are
        taken to be in it (see `missing_logs`). Until this is said no log is made while one is offline.
        """
        self._expectations.set(partitions, topics, lost=lost, irreplaceable=irreplaceable)
        missing = sorted(map(str, self.missing(partitions)))
        if self.offline_directories and missing:
            _logger.error("%d logs are in no directory that can be used: %s", len(missing), ", ".join(missing[:10]))

    @property
    def twins(self) -> set[TopicPartition]:
        """Partitions of which there is a log in two directories, so that neither is open."""
        folders = Counter(found.partition for found in self._unopened.values())
        return {partition for partition, count in folders.items() if count > 1}

    def settle_twins(self, topic_ids: Mapping[str, uuid.UUID], now_ms: int) -> None:
        """Of `twins`, open the log that is of the topic of this id, and put those aside that are another topic's.

        A topic that was deleted and made again while one directory was offline leaves them. Where no id tells, they
        stay as they are. Blocks.
        """
        for partition in sorted(self.twins):
            found = [each for each in self._unopened.values() if each.partition == partition]
            try:
                right, others = choose_twin(self._disk, found, topic_ids.get(partition.topic))
                for each in others:
                    self._put_aside(each.partition, each.folder, "another topic's of the same name")
            except (OSError, LogStorageError) as error:
                _logger.error("%s; the partition stays offline", error)
                continue
            if right is not None:
                del self._offline[partition]
                progress = self._progress = Progress(lambda: 0.0, logs=1, size=right.size)
                config = self._config_for(partition.topic)
                opened = open_found(self.pool, right, config, now_ms, progress)
                if opened is not None:
                    self._take(opened)

    def _put_aside(self, partition: TopicPartition, folder: str, reason: str) -> str:
        target = stray_folder(partition, uuid4(self._entropy).hex)
        _logger.warning("%s is %s, and is put aside as %s", folder, reason, target)
        return self._move(partition, folder, target)

    def _move(self, partition: TopicPartition, folder: str, name: str) -> str:
        """Give a log's folder another name that is no log's; where it is then. Raises `LogStorageError`."""
        directory = parent_of(folder)
        self._outdated[partition] = self._checkpoints.planned
        try:
            self._disk.rename(folder, f"{directory}/{name}")
        except OSError as error:
            message = f"{folder} cannot be renamed to {name}: {error}"
            raise LogStorageError(message, is_passing=is_passing(error)) from error
        self._unopened.pop(folder, None)
        try:
            self._disk.sync_directory(directory)
        except OSError as error:
            _logger.warning("%s is renamed to %s, which a power cut may undo: %s", folder, name, error)
        return f"{directory}/{name}"

    def stop_loading(self) -> None:
        """Let `load`, which runs on another thread, end soon."""
        self._wants_stop = True
        if self._progress is not None:
            self._progress.stop()

    def _take(self, opened: OpenedLog) -> None:
        partition = opened.found.partition
        if opened.log is None:
            assert opened.error is not None
            _logger.error("%s; the partition is offline", opened.error)
            self._offline[partition] = opened.error
            return
        del self._unopened[opened.found.folder]
        self._logs[partition] = opened.log
        if opened.shortfall is not None:
            self._fall_short(opened.shortfall)
        self._watch(partition, opened.log)
        self._counts[parent_of(opened.found.folder)] += 1
        opened.log.producers.committed(min(opened.found.high_watermark, opened.log.written_offset))
        if opened.topic_id is not None:
            self._topic_ids[partition] = opened.topic_id

    def _fall_short(self, shortfall: Shortfall) -> None:
        self.were_closed = False
        self.shortfalls.add(shortfall)
        _logger.error("%s", shortfall)

    def open(self, now_ms: int) -> None:
        """`lock`, `load` and `name_directories`, with a new cluster id if there is none."""
        self.lock()
        if self.cluster_id is None:
            self.cluster_id = meta_properties.encode_uuid(new_id(self._entropy))
        self.load(now_ms)
        self.name_directories()

    # ---- logs ---------------------------------------------------------------------------------------------------

    def get(self, partition: TopicPartition) -> Log | None:
        """The partition's log, None if there is none."""
        return self._logs.get(partition)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._logs)

    def __len__(self) -> int:
        return len(self._logs)

    @property
    def logs(self) -> Mapping[TopicPartition, Log]:
        """Every log; to be read only."""
        return self._logs

    def topic_id(self, partition: TopicPartition) -> uuid.UUID | None:
        """The id of the topic that the log was created for; another one's log is not this topic's (KIP-516)."""
        return self._topic_ids.get(partition)

    @property
    def topic_ids(self) -> Mapping[TopicPartition, uuid.UUID]:
        """The topic ids of the logs that are open, where the folders have them."""
        return self._topic_ids

    def _logs_in(self, directory: str) -> dict[TopicPartition, Log]:
        return {tp: log for tp, log in self._logs.items() if parent_of(log.directory) == directory}

    def _unopened_in(self, directory: str) -> list[FoundLog]:
        return [found for found in self._unopened.values() if parent_of(found.folder) == directory]

    # ---- disks that fail while the broker runs ----------------------------------------------------------------

    def _watch(self, partition: TopicPartition, log: Log) -> None:
        suspected = self._when_segment_suspected
        log.set_listeners(
            on_failure=partial(self._log_failed, log),
            on_suspected=None if suspected is None else partial(suspected, partition, log),
        )

    def _log_failed(self, log: Log, error: Exception) -> None:
        if isinstance(error, OSError) and is_disk_failure(error):
            self.fail_directory(parent_of(log.directory), error)
        if self._when_log_stopped is not None and log.failure is not None:
            self._when_log_stopped()

    def fail_directory(self, directory: str, error: OSError) -> None:
        """Use a directory no more, nor any log in it, as Kafka does when its disk fails (KIP-112).

        It is offline until the next start, as one that failed at this one.
        """
        if directory in self.offline_directories or not self._is_open:
            return
        reason = self._ownership.fail(directory, error)
        self._expectations.expect_nothing_more()
        logs = self._logs_in(directory)
        _logger.error("%s; its %d logs are offline until this broker is started again", reason, len(logs))
        for log in logs.values():
            log.halt(str(reason))
        if self._when_directory_failed is not None:
            self._when_directory_failed(logs.keys(), reason)

    @property
    def has_failed(self) -> bool:
        """Whether no directory is left."""
        return not self._usable
