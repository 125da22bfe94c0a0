"""The waits in a group, as `Admin.group_waits` and `odradek groups waiting` show them (M7, M10)."""

import asyncio
import uuid
from typing import Any

import pytest

from odradek.clients import Admin
from odradek.clients.admin.group_waits import GroupWaits, MemberWaits
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import Member, World, settled
from odradek.texts.group_texts import headlines, rows
from tests.clients.admin.scene import play
from tests.world.scenes import played_by

REBALANCE_MS = 30_000
QUICK = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "group.consumer.heartbeat.interval.ms": "5000",
}


class Headless:
    """A member of the consumer protocol whose heartbeats are the test's decision."""

    def __init__(self, client: WireClient, name: str) -> None:
        self.client, self.name, self.epoch = client, name, 0
        self.topic_id: uuid.UUID | None = None

    async def beat(self, owned: list[int] | None = None, **changes: Any) -> Any:
        message = {
            "group_id": "g", "member_id": self.name, "member_epoch": self.epoch, "rebalance_timeout": -1,
            "subscribed_topic_names": None, "subscribed_topic_regex": None, "topic_partitions": None,
        }  # fmt: skip
        if self.epoch == 0:
            message |= {
                "rebalance_timeout": REBALANCE_MS, "subscribed_topic_names": ["t"], "topic_partitions": [],
            }  # fmt: skip
        elif owned is not None:
            message["topic_partitions"] = [{"topic_id": self.topic_id, "partitions": owned}] if owned else []
        answer = await self.client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, message | changes, 1)
        assert answer.error_code == ErrorCode.none, answer
        self.epoch = answer.member_epoch
        if answer.assignment is not None and answer.assignment.topic_partitions:
            self.topic_id = answer.assignment.topic_partitions[0].topic_id
        return answer


async def two_members(admin: Admin, world: World) -> tuple[Headless, Headless]:
    """Return a member with all four partitions, and one that has joined after it."""
    client = await world.client()
    await client.ask(ApiKey.FIND_COORDINATOR, {"key": "g", "key_type": 0}, 2)
    first, second = Headless(client, "first"), Headless(client, "second")
    await first.beat()
    await first.beat([0, 1, 2, 3])
    await second.beat()
    return first, second


def shown(group: GroupWaits) -> dict[str, tuple[int | None, int, list[int], list[tuple[int, str | None]]]]:
    return {
        each.member_id: (
            each.epoch,
            len(each.assigned),
            [wait.partition.partition for wait in each.revokes],
            [(wait.partition.partition, wait.held_by) for wait in each.waits_for],
        )
        for each in group.members
    }


@played_by(play, config=QUICK, partitions=4)
async def test_a_partition_is_waited_for_from_the_target_on_and_times_out_after_its_revocation_was_sent(
    admin: Admin, world: World
) -> None:
    """M7. The view shows which revocation holds things up, since when and until when."""
    first, second = await two_members(admin, world)
    before = await admin.group_waits("g")
    assert (before.group_type, before.group_state, before.epoch, before.assignment_epoch) == (
        "consumer", "Reconciling", 2, 2,
    )  # fmt: skip
    moved = [each.partition.partition for each in before.members[0].revokes]
    assert len(moved) == 2
    assert shown(before) == {
        "first": (1, 4, moved, []),
        "second": (2, 0, [], [(number, "first") for number in moved]),
    }
    waits = before.members[1].waits_for
    assert {each.times_out_ms for each in waits} == {None}, "the holder was not told yet"
    computed_ms = waits[0].since_ms
    assert computed_ms is not None

    await asyncio.sleep(3)
    told_ms = world.simulation.runtime("clock").clock.now_ms()
    await first.beat([0, 1, 2, 3])
    after = await admin.group_waits("g")
    assert shown(after) == shown(before) | {"first": (1, 2, moved, [])}
    wait = after.members[1].waits_for[0]
    assert wait.since_ms is not None
    assert 0 <= wait.since_ms - told_ms < 1_000
    assert wait.since_ms >= computed_ms + 3_000
    assert wait.times_out_ms == wait.since_ms + REBALANCE_MS
    assert after.members[0].revokes == after.members[1].waits_for

    kept = [number for number in range(4) if number not in moved]
    await first.beat(kept)
    free = await admin.group_waits("g")
    assert shown(free) == {"first": (2, 2, [], []), "second": (2, 0, [], [(number, None) for number in moved])}
    await second.beat()
    done = await admin.group_waits("g")
    assert shown(done) == {"first": (2, 2, [], []), "second": (2, 2, [], [])}
    assert done.group_state == "Stable"


@played_by(play, config=QUICK, partitions=4)
async def test_the_lines_of_a_group_name_the_holder_and_the_seconds(admin: Admin, world: World) -> None:
    first, _ = await two_members(admin, world)
    early = await admin.group_waits("g")
    revokes, waits = (list(rows(early, member, 0)) for member in early.members)
    moved = ",".join(str(each.partition.partition) for each in early.members[0].revokes)
    assert revokes == [("first", 1, 4, "revokes", f"t({moved})", "first", "0.0", None)]
    assert [row[:6] for row in waits] == [("second", 2, 0, "waits for", f"t({moved})", "first")]
    await first.beat([0, 1, 2, 3])
    group = await admin.group_waits("g")
    assert headlines(group) == [
        "group g  state Reconciling  epoch 2  target epoch 2  members 2: 1 behind, 1 to revoke, 1 waiting"
    ]
    since_ms = group.members[1].waits_for[0].since_ms
    assert since_ms is not None
    (row,) = rows(group, group.members[1], since_ms + 12_000)
    assert row == ("second", 2, 0, "waits for", f"t({moved})", "first", "12.0", "18.0")


def test_a_member_that_only_has_to_send_a_heartbeat_is_shown_as_such() -> None:
    member = MemberWaits(
        member_id="m", client_id="c", epoch=3, assigned=(TopicPartition("t", 0),), revokes=(), waits_for=()
    )
    group = GroupWaits(
        group_id="g", group_type="consumer", group_state="Assigning", epoch=5, assignment_epoch=4, members=(member,)
    )
    assert list(rows(group, member, 0)) == [("m", 3, 1, "next heartbeat", None, None, None, None)]
    assert headlines(group)[1:] == ["the targets of epoch 5 are not computed yet"]


@played_by(play, config=QUICK, partitions=4)
async def test_a_classic_group_shows_its_generation_and_its_members(admin: Admin, world: World) -> None:
    member = await Member(world, "member", "t", "g").start()
    await settled([member], 4)
    group = await admin.group_waits("g")
    assert (group.group_type, group.epoch, group.assignment_epoch) == ("classic", 1, None)
    (only,) = group.members
    assert (len(only.assigned), only.revokes, only.waits_for) == (4, (), ())
    assert headlines(group) == ["group g  state Stable  generation 1  members 1"]
    await member.stop()
    with pytest.raises(KafkaError) as missing:
        await admin.group_waits("nobody")
    assert missing.value.code is ErrorCode.group_id_not_found
