"""The view of the cluster: its problems and groups that rebalance first, then the brokers with what they have."""

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from itertools import starmap
from shlex import quote
from typing import Final
from urllib.parse import urlencode

from msgspec import Struct
from msgspec.structs import replace

from odradek.clients import Admin
from odradek.clients.admin.descriptions import BrokerDescription, GroupDescription
from odradek.clients.admin.health import ClusterState, Problem, problems_of
from odradek.clients.admin.log_dirs import LogDirDescription
from odradek.clients.admin.moves import Move, read_moves
from odradek.clients.admin.versions import Versions, read_versions
from odradek.metadata import paths
from odradek.metadata.nodes import decode_integer
from odradek.metadata.store import Reader
from odradek.page.overview import overview, read_groups, silent_brokers, slow_s
from odradek.page.rendering import duration
from odradek.page.view import Page, PageRequest, View
from odradek.page.views.groups import names_of
from odradek.texts.group_texts import WAITING_STATES, suspects

_VERSIONS_S: Final = 60.0
_GROUPS_S: Final = 2.0
_MOST_GROUPS: Final = 5
"""Limit of the groups of each kind that are shown."""
_REBALANCING: Final = {
    **WAITING_STATES,
    "Reconciling": "waits until its members have given up partitions and taken their new ones",
}
_MOST_MOVES: Final = 50
"""Limit of the moves that are shown."""
_EMPTY: Final = "Empty"
_MOST_EMPTY: Final = 50
"""Limit of the groups without members whose lag is read."""
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
        if not self.disk_bytes or self.free_bytes is None:
            return None
        return 1 - self.free_bytes / self.disk_bytes


class GroupProblem(Problem, frozen=True, kw_only=True):
    """A group that rebalances, or that has lag and no members; `address` is that of the group."""

    address: str


class ClusterPage(Struct, frozen=True, kw_only=True):
    """The data of the view."""

    cluster_id: str | None
    controller_id: int
    topics: int
    partitions: int
    problems: Sequence[Problem]
    brokers: Sequence[BrokerRow]
    waiting: Sequence[GroupProblem] | None = None
    """The first groups that rebalance or are not read; None if the brokers do not list them."""
    more: int = 0
    """The number of the other ones."""
    moves: Sequence[Move] = ()
    """The first replicas that are being moved."""
    features: Sequence[str] = ()
    """The finalized features with their levels."""
    controller_epoch: int | None = None
    """The epoch in the metadata tree; None if the page has no tree, or cannot read it."""


async def cluster(asked: PageRequest) -> ClusterPage:
    state = (await overview(asked)).state
    alive = [each.broker_id for each in state.cluster.brokers if not each.is_fenced]
    (waiting, more), versions, moves, epoch = await asyncio.gather(
        _waiting(asked),
        asked.known(("versions", *alive), lambda admin: read_versions(admin, alive), _VERSIONS_S),
        asked.known("moves", read_moves, slow_s(asked)),
        asked.known("controller epoch", lambda _: _controller_epoch(asked.tree), 0.0),
    )
    page = cluster_page(state, versions or _UNKNOWN)
    problems = [*starmap(_silence, silent_brokers(asked, alive).items()), *page.problems]
    return replace(
        page,
        waiting=waiting,
        more=more,
        problems=problems,
        moves=(moves or [])[:_MOST_MOVES],
        controller_epoch=epoch,
    )


async def _controller_epoch(tree: Callable[[], Reader | None]) -> int | None:
    store = tree()
    node = None if store is None else await store.get(paths.CONTROLLER_EPOCH)
    return None if node is None else decode_integer(paths.CONTROLLER_EPOCH, node.data)


def _silence(broker_id: int, seconds: int) -> Problem:
    return Problem(
        sentence=f"Broker {broker_id} has not answered for {duration(seconds * 1000)}.",
        advice="Its process hangs or is overloaded, or the network is cut: look at the process and its log. Clients "
        "wait for the partitions that it leads, until its session ends and other brokers lead them.",
        command="odradek brokers list",
        is_severe=True,
    )


async def _waiting(asked: PageRequest) -> tuple[list[GroupProblem] | None, int]:
    """Return the groups to look at and how many more there are; None if brokers do not list them with their states."""
    listed = await asked.known("groups", Admin.list_groups)
    if listed is None or not all(each.group_state for each in listed):
        return None, 0
    moving = [each.group_id for each in listed if each.group_state in _REBALANCING]
    empty = [each.group_id for each in listed if each.group_state == _EMPTY]
    chosen = moving[:_MOST_GROUPS] + empty[:_MOST_EMPTY]
    groups = await asked.known(("groups", *chosen), partial(read_groups, group_ids=chosen), _GROUPS_S)
    if groups is None:
        return None, 0
    unread = [each for each in groups if each.group_state == _EMPTY and each.lag]
    found = [each for each in groups if each.group_state in _REBALANCING] + unread[:_MOST_GROUPS]
    more = max(0, len(moving) - _MOST_GROUPS) + max(0, len(unread) - _MOST_GROUPS)
    return [_group_problem(each) for each in found], more


def _group_problem(group: GroupDescription) -> GroupProblem:
    name, is_moving = group.group_id, group.group_state in _REBALANCING
    unread = "Nothing reads its records: start its consumers, or delete the group if it is not needed any more."
    return GroupProblem(
        sentence=f"Group {name} {_REBALANCING[group.group_state]}."
        if is_moving
        else f"Group {name} has no members and a lag of {group.lag:,}.",
        advice=names_of(group).text(" ".join(suspects(group))) if is_moving else unread,
        command=f"odradek groups {'waiting' if is_moving else 'describe'} {quote(name)}",
        address=f"/group?{urlencode({'id': name})}",
    )


def cluster_page(state: ClusterState, versions: Versions = _UNKNOWN) -> ClusterPage:
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
