"""The metrics of groups of the consumer protocol: states, revocations, and epochs of the largest groups (M7)."""

from typing import Any

import pytest

from odradek.broker.lifecycle import Broker
from odradek.broker.observing import catalog, consumer_group_figures
from odradek.broker.observing.catalog import Metric
from odradek.broker.observing.observation import observe
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World
from tests.world.scenes import played


def figures(broker: Broker, metric: Metric) -> dict[Any, Any]:
    (found,) = [dict(family.samples) for family in observe(broker) if family.metric is metric]
    return {labels[0] if labels else None: value for labels, value in found.items()}


async def heartbeat(client: WireClient, group: str, member: str, epoch: int = 0, owned: Any = None) -> Any:
    message: dict[str, Any] = {
        "group_id": group, "member_id": member, "member_epoch": epoch, "rebalance_timeout": -1,
        "subscribed_topic_names": None, "subscribed_topic_regex": None, "topic_partitions": owned,
    }  # fmt: skip
    if epoch == 0:
        message |= {"rebalance_timeout": 60_000, "subscribed_topic_names": ["t"], "topic_partitions": []}
    answer = await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, message, 1)
    assert answer.error_code == ErrorCode.none
    return answer


async def begin(world: World) -> tuple[Broker, WireClient]:
    broker = await world.start(offsets_topic_num_partitions=1)
    client = await world.client()
    await client.create_topic("t", partitions=4)
    await client.ask(ApiKey.FIND_COORDINATOR, {"key": "g", "key_type": 0}, 3)
    await world.pass_time(1)
    return broker, client


@played
async def test_a_member_that_keeps_what_it_has_to_revoke_is_counted_with_its_partitions_and_its_age(
    world: World,
) -> None:
    """M7. The metrics name the group and the epoch that its slowest member has."""
    broker, client = await begin(world)
    first = (await heartbeat(client, "g", "first")).assignment.topic_partitions
    owned = [{"topic_id": each.topic_id, "partitions": each.partitions} for each in first]
    await heartbeat(client, "g", "second")
    assert figures(broker, catalog.LONGEST_REVOCATION) == {None: 0}
    await heartbeat(client, "g", "first", 1, owned)
    await world.pass_time(7)
    await heartbeat(client, "g", "first", 1, owned)
    await world.pass_time(5)
    assert figures(broker, catalog.PENDING_REVOCATIONS) == {None: 2}
    assert 12 <= figures(broker, catalog.LONGEST_REVOCATION)[None] < 13
    assert figures(broker, catalog.CONSUMER_GROUP_MEMBERS) == {
        "stable": 0, "unrevoked_partitions": 1, "unreleased_partitions": 1, "unknown": 0,
    }  # fmt: skip
    assert {state for state, count in figures(broker, catalog.CONSUMER_GROUPS).items() if count} == {"reconciling"}
    assert figures(broker, catalog.GROUP_COUNT) == {"classic": 0, "consumer": 1}
    assert figures(broker, catalog.GROUP_EPOCH) == {"g": 2}
    assert figures(broker, catalog.ASSIGNMENT_EPOCH) == {"g": 2}
    assert figures(broker, catalog.LOWEST_MEMBER_EPOCH) == {"g": 1}


@played
async def test_epochs_are_shown_of_the_groups_with_the_most_members(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M7. Clients can invent any number of groups, and each would be a label of its own."""
    monkeypatch.setattr(consumer_group_figures, "GROUPS_WITH_EPOCHS", 2)
    broker, client = await begin(world)
    for number in range(7):
        for member in range(3 if number in (2, 5) else 1):
            await heartbeat(client, f"g{number}", f"m{member}")
    assert set(figures(broker, catalog.GROUP_EPOCH)) == {"g2", "g5"}
    assert figures(broker, catalog.CONSUMER_GROUPS)["stable"] == 5
