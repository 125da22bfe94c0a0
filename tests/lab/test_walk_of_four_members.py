"""M4, M6, M7. SPEC 4's walk in each generation: a topic of three partitions, one to four members, and back to one."""

from typing import Any

import pytest

from odradek.simulation.world import Member, World, settled
from tests.clients.zookeeper_consumer.zookeeper_world import Reader
from tests.world.scenes import in_world

CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "1000",
}
SETTINGS: dict[str, dict[str, Any]] = {
    **{
        f"generation 2, {assignor}": {"partition_assignment_strategy": assignor, "heartbeat_interval_ms": 1_000}
        for assignor in ("range", "roundrobin", "sticky", "cooperative-sticky")
    },
    "generation 3, uniform": {"group_protocol": "consumer"},
    "generation 3, range": {"group_protocol": "consumer", "group_remote_assignor": "range"},
}
STRATEGIES = {
    f"generation 1, {strategy}": strategy for strategy in ("zookeeper-range", "zookeeper-roundrobin", "ceiling-range")
}


@pytest.mark.parametrize("protocol", [*STRATEGIES, *SETTINGS])
@in_world(CONFIG)
async def test_four_members_come_one_by_one_and_three_of_them_go_again(world: World, protocol: str) -> None:
    """Shares of 3, 2 and 1, three times 1, and none for the fourth; then back. Each partition has one owner."""

    def new_member(world: World, number: int) -> Reader | Member:
        name = f"member-{number}"
        if protocol in STRATEGIES:
            return Reader(world, name, {"t": 1}, partition_assignment_strategy=STRATEGIES[protocol])
        return Member(world, name, "t", "readers", **SETTINGS[protocol])

    await world.create_topic("t", 3)
    members = [new_member(world, number) for number in range(4)]
    for count, shares in enumerate(([3], [1, 2], [1, 1, 1], [0, 1, 1, 1]), 1):
        await members[count - 1].start()
        await shared(members[:count], shares)
    for left, shares in enumerate(([1, 1, 1], [1, 2], [3]), 1):
        await members[left - 1].stop()
        await shared(members[left:], shares)
    await members[-1].stop()


async def shared(members: list[Reader | Member], shares: list[int]) -> None:
    """Let time pass until the group is at rest, and see that it stays there."""
    await settled(members, 3)
    assert sorted(len(member.owned) for member in members) == shares
