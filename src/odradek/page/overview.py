"""The reading that the views of the cluster and of topics share: all topics, brokers and log directories."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final

from msgspec import Struct

from odradek.clients import Admin
from odradek.clients.admin.health import ClusterState, LogDirs, cluster_state, read_log_dirs
from odradek.model import TopicPartition
from odradek.page.view import PageRequest

_LOG_DIRS_INTERVALS: Final = 5
"""Log directories are read less often than topics, because their answers have an entry for each replica."""


class TopicRow(Struct, frozen=True, kw_only=True):
    """A topic in the list; `size_bytes` is that of all replicas, None if it is unknown."""

    name: str
    is_internal: bool
    partitions: int
    replication_factor: int
    out_of_sync: int
    size_bytes: int | None


class Overview:
    """A state of the cluster; the rows of its topics are computed when they are needed."""

    def __init__(self, state: ClusterState) -> None:
        self.state = state

    @cached_property
    def topics(self) -> Sequence[TopicRow]:
        """All topics, including internal ones."""
        sizes = sizes_of(self.state.log_dirs)
        return [
            TopicRow(
                name=each.name,
                is_internal=each.is_internal,
                partitions=len(each.partitions),
                replication_factor=each.replication_factor,
                out_of_sync=sum(len(one.isr) < len(one.replicas) for one in each.partitions.values()),
                size_bytes=None
                if sizes is None
                else sum(sizes.get(TopicPartition(each.name, n), 0) for n in each.partitions),
            )
            for each in self.state.topics
        ]


async def overview(asked: PageRequest) -> Overview:
    """Return the state of the cluster, at most one interval old."""

    async def log_dirs_of(brokers: Sequence[int]) -> LogDirs:
        interval_s = _LOG_DIRS_INTERVALS * asked.settings.interval_s
        key = ("log directories", *brokers)
        return await asked.reading(key, lambda admin: read_log_dirs(admin, brokers), interval_s)

    async def read(admin: Admin) -> Overview:
        return Overview(await cluster_state(admin, log_dirs_of))

    return await asked.reading("overview", read)


def sizes_of(log_dirs: LogDirs) -> dict[TopicPartition, int] | None:
    """Return the bytes of all replicas of each partition; None if no broker returns them."""
    known = [each for directories in log_dirs.values() if directories is not None for each in directories]
    found: dict[TopicPartition, int] = {}
    for directory in known:
        for key, size in directory.sizes.items():
            found[key] = found.get(key, 0) + size
    return found if known else None
