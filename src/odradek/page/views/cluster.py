"""The view of the cluster: its problems first, then the brokers with racks, leaders, replicas and disks."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from odradek.clients.admin.descriptions import BrokerDescription
from odradek.clients.admin.health import ClusterState, Problem, problems_of
from odradek.clients.admin.log_dirs import LogDirDescription
from odradek.clients.admin.versions import Versions, read_versions
from odradek.metadata import paths
from odradek.metadata.nodes import decode_integer
from odradek.model import OdradekError
from odradek.page.overview import overview
from odradek.page.view import Page, PageRequest, View

_TREE_S: Final = 1.0
"""Limit of the wait for the metadata tree, whose servers may be away."""
_VERSIONS_S: Final = 60.0
_UNKNOWN: Final = Versions()


class BrokerRow(Struct, frozen=True, kw_only=True):
    """A broker in the table; sizes are None where they are unknown."""

    broker: BrokerDescription
    is_controller: bool
    version: str
    """The software, "" if the broker does not tell it."""
    leaders: int
    replicas: int
    log_bytes: int | None
    disk_bytes: int | None
    free_bytes: int | None

    @property
    def disk_used(self) -> float | None:
        """The used share of its volumes."""
        if not self.disk_bytes or self.free_bytes is None:
            return None
        return 1 - self.free_bytes / self.disk_bytes


class ClusterPage(Struct, frozen=True, kw_only=True):
    """The data of the view."""

    cluster_id: str | None
    controller_id: int
    topics: int
    partitions: int
    problems: Sequence[Problem]
    brokers: Sequence[BrokerRow]
    features: Sequence[str] = ()
    """The finalized features with their levels."""
    controller_epoch: int | None = None
    """The epoch in the metadata tree; None if the page has no tree, or cannot read it."""


async def cluster(asked: PageRequest) -> ClusterPage:
    """Return the state of the cluster now."""
    state = (await overview(asked)).state
    alive = [each.broker_id for each in state.cluster.brokers if not each.is_fenced]
    key = ("versions", *alive)
    page = cluster_page(state, await asked.reading(key, lambda admin: read_versions(admin, alive), _VERSIONS_S))
    with suppress(OdradekError, TimeoutError):
        store = asked.tree()
        async with asyncio.timeout(_TREE_S):
            node = None if store is None else await store.get(paths.CONTROLLER_EPOCH)
        if node is not None:
            return replace(page, controller_epoch=decode_integer(paths.CONTROLLER_EPOCH, node.data))
    return page


def cluster_page(state: ClusterState, versions: Versions = _UNKNOWN) -> ClusterPage:
    """Return what the view shows of a state."""
    partitions = [each for topic in state.topics for each in topic.partitions.values()]
    leaders = Counter(each.leader for each in partitions)
    replicas = Counter(broker_id for each in partitions for broker_id in each.replicas)
    return ClusterPage(
        cluster_id=state.cluster.cluster_id,
        controller_id=state.cluster.controller_id,
        topics=len(state.topics),
        partitions=len(partitions),
        problems=problems_of(state),
        brokers=[
            BrokerRow(
                broker=each,
                is_controller=each.broker_id == state.cluster.controller_id,
                version=versions.brokers.get(each.broker_id, ""),
                leaders=leaders[each.broker_id],
                replicas=replicas[each.broker_id],
                **_disks(state.log_dirs.get(each.broker_id)),
            )
            for each in state.cluster.brokers
        ],
        features=versions.feature_texts,
    )


def _disks(directories: Sequence[LogDirDescription] | None) -> dict[str, int | None]:
    if directories is None:
        return {"log_bytes": None, "disk_bytes": None, "free_bytes": None}
    # Directories on one volume have the same figures, which count once.
    volumes = {(each.total_bytes or 0, each.usable_bytes) for each in directories if each.usable_bytes is not None}
    return {
        "log_bytes": sum(sum(each.sizes.values()) for each in directories),
        "disk_bytes": sum(total for total, _ in volumes) or None,
        "free_bytes": sum(usable for _, usable in volumes) if volumes else None,
    }


VIEW = View(
    title="Cluster",
    path="/",
    pages=(Page(path="/", template="cluster.html", data=cluster, live=("state",)),),
)
