"""Measures the cost of a membership change in each generation of consumer groups, on a simulated cluster.

The cluster, network and ZooKeeper tree are those of `odradek.testing`: with virtual time and a seed, the figures are
the same every time; the members are those of `group_members`.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from odradek.clients import Admin
from odradek.lab.costs import Change, Cost, Costs, Generation
from odradek.lab.group_members import CONFIG, TOPIC, TREE_S, GroupMember, TreeRequest, new_member
from odradek.lab.timeline import Mark, Timeline, TimelineBuilder
from odradek.metadata.store import NodeExists
from odradek.model import TopicPartition
from odradek.simulation.world import World

_LOOK_S: Final = 0.005
_CALM_S: Final = 3.0
"""How long nothing must change before a group counts as settled."""
_LIMIT_S: Final = 600.0
_LEAD_S: Final = 0.3
"""How much of the time before the change a timeline shows."""
_GROUP_REQUESTS: Final = frozenset(
    {"JoinGroup", "SyncGroup", "Heartbeat", "LeaveGroup", "ConsumerGroupHeartbeat", "OffsetCommit", "OffsetFetch"}
)


class Measured(NamedTuple):
    """The cost of one change, and the owners of partitions during it."""

    cost: Cost
    timeline: Timeline


def measure(generation: Generation, change: Change, *, members: int, partitions: int, seed: int = 0) -> Measured:
    """Run one change in a group of `members` that share one topic; return its cost and timeline.

    Raises `TimeoutError` if the group does not settle within `_LIMIT_S`.
    """
    world = World(
        seed,
        CONFIG,
        tree_s=TREE_S,
        limit_s=10 * _LIMIT_S,
        before_start=lambda broker: broker.server.measure_requests(),
    )
    found: list[Measured] = []

    async def scenario(world: World) -> None:
        found.append(await _Run(world, generation, members, partitions).cost_of(change))

    world.play(scenario)
    return found[0]


class _Run:
    """One group on one simulated cluster."""

    def __init__(self, world: World, generation: Generation, members: int, partitions: int) -> None:
        self._world = world
        self._generation = generation
        self._members = members
        self._partitions = partitions
        self._tree: Counter[str] = Counter()
        self._living = [self._new_member(number) for number in range(members)]
        self._dead: list[GroupMember] = []
        self._began_s = 0.0
        self._owners = TimelineBuilder()

    def _new_member(self, number: int) -> GroupMember:
        return new_member(self._world, self._generation, f"member-{number:04}", self._count)

    def _count(self, request: TreeRequest) -> None:
        self._tree["reads"] += len(request.reads)
        self._tree["writes"] += len(request.operations)
        self._tree["claims refused"] += request.is_claim and request.error == NodeExists.__name__

    async def cost_of(self, change: Change) -> Measured:
        """Let the group settle, change it, and return the cost until it has settled again."""
        async with Admin(self._world.servers, runtime=self._world.simulation.runtime("admin")) as admin:
            await admin.create_topic(TOPIC, partitions=self._partitions)
        await asyncio.gather(*(member.start() for member in self._living))
        await self._settle()
        self._tree.clear()
        requests, began_s = self._requests(), self._world.now_s
        self._began_s, self._owners = began_s, TimelineBuilder()
        changing = asyncio.create_task(self._change(change))
        stopped_s, stopped, settled_s = await self._settle()
        await changing
        cost = Cost(
            generation=self._generation,
            change=change,
            members=self._members,
            partitions=self._partitions,
            settled_s=settled_s - began_s,
            stopped_partition_s=stopped_s,
            members_stopped=stopped,
            group_requests=self._requests() - requests,
            tree_reads=self._tree["reads"],
            tree_writes=self._tree["writes"],
            claims_refused=self._tree["claims refused"],
        )
        self._world.simulation.network.heal()
        await asyncio.gather(*(member.leave() for member in (*self._living, *self._dead)))
        return Measured(cost, self._timeline(cost))

    def _timeline(self, cost: Cost) -> Timeline:
        settled_ms = round(cost.settled_s * 1000)
        end_ms = settled_ms + round(_LEAD_S * 1000)
        self._owners.close(end_ms)
        return Timeline(
            title=f"generation {cost.generation}, {cost.change}",
            start_ms=-round(_LEAD_S * 1000),
            end_ms=end_ms,
            spans=self._owners.spans(),
            marks=(Mark(from_ms=0, to_ms=settled_ms, text=cost.change),),
        )

    def _note_owners(self, owned: Sequence[tuple[GroupMember, set[int]]], at_ms: int) -> None:
        owners = {TopicPartition(TOPIC, number): member.name for member, some in owned for number in some}
        self._owners.note_all(owners, at_ms)

    async def _change(self, change: Change) -> None:
        if change is Change.JOINS:
            joining = self._new_member(len(self._living))
            self._living.append(joining)
            await joining.start()
            return
        leaving = self._living.pop()
        if change is Change.LEAVES:
            await leaving.leave()
        else:
            self._dead.append(leaving)
            leaving.die()

    def _requests(self) -> int:
        meter = self._world.broker.server.meter
        assert meter is not None
        return sum(each.requests for (api, _), each in meter.counters.items() if api in _GROUP_REQUESTS)

    async def _settle(self) -> tuple[float, int, float]:
        """Wait until the group settles. Return partition-seconds without owner, stopped members, last change's time."""
        stopped_partition_s, stopped = 0.0, set()
        before = [(member, member.owned) for member in self._living]
        last_change_s = self._world.now_s
        ends_s = last_change_s + _LIMIT_S
        self._note_owners(before, round((self._world.now_s - self._began_s - _LEAD_S) * 1000))
        while self._world.now_s < ends_s:
            await asyncio.sleep(_LOOK_S)
            now = [(member, member.owned) for member in self._living]
            previous = {id(member): owned for member, owned in before}
            stopped |= {id(member) for member, owned in now if previous.get(id(member), set()) - owned}
            everything = [number for _, owned in now for number in owned]
            stopped_partition_s += (self._partitions - len(set(everything))) * _LOOK_S
            if [owned for _, owned in now] != [owned for _, owned in before] or len(now) != len(before):
                last_change_s = self._world.now_s
                self._note_owners(now, round((last_change_s - self._began_s) * 1000))
            before = now
            is_complete = len(everything) == len(set(everything)) == self._partitions
            if is_complete and self._is_balanced(now) and self._world.now_s - last_change_s >= _CALM_S:
                return stopped_partition_s, len(stopped), last_change_s
        raise TimeoutError(f"{self._generation}: the group did not settle within {_LIMIT_S:.0f} s")

    def _is_balanced(self, owned: Sequence[tuple[GroupMember, set[int]]]) -> bool:
        sizes = [len(some) for _, some in owned]
        return max(sizes) - min(sizes) <= 1


def measure_all(
    changes: Iterable[Change],
    *,
    members: Sequence[int],
    partitions: int,
    generations: Sequence[Generation] = tuple(Generation),
    seed: int = 0,
    measured: Callable[[Cost], None] = lambda cost: None,
) -> Costs:
    """Return the cost of each change for each group size and generation; call `measured` after each."""
    found = []
    for change in changes:
        for size in members:
            for generation in generations:
                found.append(measure(generation, change, members=size, partitions=partitions, seed=seed))
                measured(found[-1].cost)
    return Costs(costs=tuple(each.cost for each in found), timelines=tuple(each.timeline for each in found))
