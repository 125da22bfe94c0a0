"""The view of the cluster: its problems and groups that rebalance first, then the brokers with what they have."""

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from shlex import quote
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from odradek.clients import Admin
from odradek.clients.admin.descriptions import BrokerDescription, GroupDescription
from odradek.clients.admin.health import ClusterState, Problem, problems_of
from odradek.clients.admin.log_dirs import LogDirDescription
from odradek.clients.admin.versions import Versions, read_versions
from odradek.metadata import paths
from odradek.metadata.nodes import decode_integer
from odradek.model import OdradekError
from odradek.page.overview import overview
from odradek.page.view import Page, PageRequest, View
from odradek.presentation.group_texts import WAITING_STATES, suspects

_TREE_S: Final = 1.0
"""Limit of the wait for the metadata tree, whose servers may not answer."""
_VERSIONS_S: Final = 60.0
_GROUPS_S: Final = 1.0
"""Limit of the wait for the groups that rebalance: a broker that has just died is still in the metadata."""
_GROUPS_EVERY_S: Final = 2.0
_MOST_GROUPS: Final = 5
"""Limit of the groups that rebalance and are described."""
_REBALANCING: Final = {
    **WAITING_STATES,
    "Reconciling": "waits until its members have given up partitions and taken their new ones",
}
_UNKNOWN: Final = Versions()


class BrokerRow(Struct, frozen=True, kw_only=True):
    """A broker in the table; sizes are None where they are unknown."""

    broker: BrokerDescription
    is_controller: bool
    version: str
    """The software, "" if it is unknown."""
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


class WaitingGroup(Struct, frozen=True, kw_only=True):
    """A group that rebalances, in sentences; `address` is that of the group."""

    sentence: str
    advice: str
    command: str
    address: str


class WaitingGroups(Struct, frozen=True, kw_only=True):
    """The first groups that rebalance, and the number of the others."""

    groups: Sequence[WaitingGroup] = ()
    more: int = 0


class ClusterPage(Struct, frozen=True, kw_only=True):
    """The data of the view."""

    cluster_id: str | None
    controller_id: int
    topics: int
    partitions: int
    problems: Sequence[Problem]
    brokers: Sequence[BrokerRow]
    waiting: WaitingGroups | None = None
    """None if the brokers do not list such groups."""
    features: Sequence[str] = ()
    """The finalized features with their levels."""
    controller_epoch: int | None = None
    """The epoch in the metadata tree; None if the page has no tree, or cannot read it."""


async def cluster(asked: PageRequest) -> ClusterPage:
    """Return the state of the cluster now."""
    state = (await overview(asked)).state
    alive = [each.broker_id for each in state.cluster.brokers if not each.is_fenced]
    key = ("versions", *alive)
    waiting, versions = await asyncio.gather(
        _waiting(asked), asked.reading(key, lambda admin: read_versions(admin, alive), _VERSIONS_S)
    )
    page = replace(cluster_page(state, versions), waiting=waiting)
    with suppress(OdradekError, TimeoutError):
        store = asked.tree()
        async with asyncio.timeout(_TREE_S):
            node = None if store is None else await store.get(paths.CONTROLLER_EPOCH)
        if node is not None:
            return replace(page, controller_epoch=decode_integer(paths.CONTROLLER_EPOCH, node.data))
    return page


async def _waiting(asked: PageRequest) -> WaitingGroups | None:
    """Return the groups that rebalance; None if the brokers do not list them in time, or cannot filter by state."""
    try:
        async with asyncio.timeout(_GROUPS_S):
            return await asked.reading("waiting groups", _read_waiting, _GROUPS_EVERY_S)
    except (OdradekError, TimeoutError):
        return None


async def _read_waiting(admin: Admin) -> WaitingGroups:
    listed = [each.group_id for each in await admin.list_groups(states=_REBALANCING)]
    described = await admin.describe_groups(listed[:_MOST_GROUPS]) if listed else {}
    groups = [
        WaitingGroup(
            sentence=f"Group {each.group_id} {_REBALANCING[each.group_state]}.",
            advice=" ".join(suspects(each)),
            command=f"odradek groups waiting {quote(each.group_id)}",
            address=f"/group?{urlencode({'id': each.group_id})}",
        )
        for each in described.values()
        if isinstance(each, GroupDescription) and each.group_state in _REBALANCING
    ]
    return WaitingGroups(groups=groups, more=max(0, len(listed) - _MOST_GROUPS))


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
