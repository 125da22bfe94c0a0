"""The replay of a group's journal: each partition has one owner or a gap, whatever the protocol (M6, M7)."""

import asyncio
import json
from typing import Any

import pytest

from odradek.clients import Consumer
from odradek.lab.case import LabError
from odradek.lab.replay import replay
from odradek.lab.timeline import Timeline
from odradek.model import TopicPartition
from odradek.simulation.world import World, until
from odradek.testing import eventually
from tests.lab.lab_commands import lab, lab_json
from tests.lab.test_lab_live import living_group

CONFIG = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.session.timeout.ms": "1000",
    "group.consumer.session.timeout.ms": "3000",
    "group.min.session.timeout.ms": "1000",
}
CLASSIC = {"session_timeout_ms": 3_000, "heartbeat_interval_ms": 500}
SETTINGS: dict[str, dict[str, Any]] = {
    "range": {**CLASSIC, "partition_assignment_strategy": "range"},
    "cooperative-sticky": {**CLASSIC, "partition_assignment_strategy": "cooperative-sticky"},
    "consumer": {"group_protocol": "consumer"},
}


class Reader:
    """A consumer on a host of its own."""

    def __init__(self, world: World, name: str, settings: dict[str, Any]) -> None:
        self.world, self.name = world, name
        self.consumer: Consumer = world.consumer(name, "t", group_id="g", **settings)

    async def start(self) -> None:
        await self.consumer.__aenter__()
        self.polling = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while True:
            await self.consumer.poll()

    async def stop(self) -> None:
        self.polling.cancel()
        await asyncio.wait([self.polling])
        await self.consumer.__aexit__(None, None, None)

    def fall_silent(self) -> None:
        self.world.simulation.network.partition(
            [self.name], [host for host in (*self.world.hosts, "admin") if host != self.name]
        )


@pytest.mark.parametrize("protocol", SETTINGS)
def test_the_gaps_of_a_replay_are_those_that_the_journal_counts(protocol: str, seed: int) -> None:
    """Members join, one falls silent, one leaves, and one comes again."""
    histories: list[list[dict[str, Any]]] = []

    async def scenario(world: World) -> None:
        async with world.admin() as admin:
            await admin.create_topic("t", partitions=6)
            readers = [Reader(world, f"reader-{number}", SETTINGS[protocol]) for number in range(4)]

            async def calm(*living: Reader) -> None:
                await until(
                    lambda: (
                        sorted(place.partition for each in living for place in each.consumer.assignment())
                        == list(range(6))
                    ),
                    within_s=60,
                )
                await asyncio.sleep(5)

            for count, reader in enumerate(readers[:3], 1):
                await reader.start()
                await calm(*readers[:count])
            readers[2].fall_silent()
            await calm(*readers[:2])
            await readers[1].stop()
            await calm(readers[0])
            await readers[3].start()
            await calm(readers[0], readers[3])
            histories.append(await admin.rebalance_history("g", limit=100))
            world.simulation.network.heal()
            for each in (readers[0], readers[2], readers[3]):
                await each.stop()

    World(seed, CONFIG, limit_s=1_000).play(scenario)
    (history,) = histories
    timeline = replay("g", history)
    counted_ms = sum(each["unowned_partition_ms"] for each in history)
    # A gap that goes on from one record to the next is a difference of rounded times.
    assert timeline.unowned_partition_ms == pytest.approx(counted_ms, abs=6 * len(history))
    assert timeline.unowned_partition_ms > 0
    assert len(timeline.members) == 4
    assert len({span.partition for span in timeline.spans}) == 6
    assert_one_owner_at_a_time(timeline)
    at_the_end = [span.member for span in timeline.spans if span.to_ms == timeline.end_ms]
    assert sorted(at_the_end.count(member) for member in set(at_the_end)) == [3, 3]
    for first in range(len(history)):
        assert_one_owner_at_a_time(replay("g", history[first:]))


def assert_one_owner_at_a_time(timeline: Timeline) -> None:
    last: dict[TopicPartition, int] = {}
    for span in timeline.spans:
        assert span.from_ms < span.to_ms
        assert last.setdefault(span.partition, span.from_ms) == span.from_ms, "no hole and no overlap"
        last[span.partition] = span.to_ms


def record(started_ms: int, owned: dict[str, list[int]], changes: list[dict[str, Any]], **more: Any) -> dict[str, Any]:
    return {
        "group": "g",
        "protocol_type": "consumer",
        "started_ms": started_ms,
        "duration_ms": 100,
        "outcome": "stable",
        "reason": "a joined",
        "owned": {member: {"t": numbers} for member, numbers in owned.items()},
        "owners_left_out": 0,
        "changes": changes,
        **more,
    }


def change(at_ms: int, member: str, **partitions: list[int]) -> dict[str, Any]:
    return {"at_ms": at_ms, "member": member, **{key: {"t": numbers} for key, numbers in partitions.items()}}


def test_the_owners_before_the_first_record_come_from_its_changes() -> None:
    timeline = replay("g", [record(1_000, {"b": [0, 1]}, [change(-500, "a", loses=[0]), change(40, "b", gets=[0])])])
    assert [(span.partition.partition, span.member, span.from_ms, span.to_ms) for span in timeline.spans] == [
        (0, None, 500, 1_040),
        (0, "b", 1_040, 1_200),
        (1, "b", 500, 1_200),
    ]
    assert timeline.start_ms == 500


def test_a_record_that_the_journal_has_lost_changes_the_owner_at_the_next_one() -> None:
    timeline = replay(
        "g",
        [
            record(1_000, {"a": [0]}, [change(50, "a", gets=[0])]),
            record(9_000, {"c": [0]}, [change(10, "b", loses=[0]), change(20, "c", gets=[0])]),
        ],
    )
    spans = [(span.member, span.from_ms, span.to_ms) for span in timeline.spans][:3]
    assert spans == [("a", 1_050, 9_000), ("b", 9_000, 9_010), (None, 9_010, 9_020)]


def test_a_partition_without_a_next_owner_has_no_gap_unless_the_last_rebalance_goes_on() -> None:
    lost = record(1_000, {"a": [0]}, [change(50, "a", loses=[1])])
    assert [gap.from_ms for gap in replay("g", [lost]).gaps] == [1_050]
    assert replay("g", [lost, record(5_000, {"a": [0, 2]}, [change(10, "a", gets=[2])])]).gaps == ()


def test_a_group_without_members_has_neither_owners_nor_gaps() -> None:
    timeline = replay(
        "g",
        [
            record(1_000, {}, [change(0, "a", loses=[0, 1])], outcome="empty"),
            record(9_000, {"a": [0, 1]}, [change(50, "a", gets=[0, 1])]),
        ],
    )
    assert timeline.gaps == (), "as in the journal's figures"
    assert [(span.from_ms, span.to_ms) for span in timeline.spans] == [(9_050, timeline.end_ms)] * 2


def test_a_history_without_owners_is_refused_with_its_reason() -> None:
    with pytest.raises(LabError, match="generation 1"):
        replay("g", [])
    old = {key: value for key, value in record(0, {}, []).items() if key not in ("owned", "changes")}
    with pytest.raises(LabError, match="an older broker has written them"):
        replay("g", [old])
    with pytest.raises(LabError, match="no member of the group g had a partition"):
        replay("g", [record(0, {}, [])])
    with pytest.raises(LabError, match="the protocol type connect"):
        replay("g", [record(0, {}, [], protocol_type="connect")])


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_live_group_is_replayed_as_text_as_objects_and_as_a_picture(
    servers: str, protocol: str, tmp_path: Any
) -> None:
    group = f"replayed-{protocol}"
    with living_group(servers, group, group_protocol=protocol):
        pass

    def journaled() -> bool:
        history = lab_history(servers, group)
        return bool(history) and history[-1]["outcome"] == "empty"

    assert eventually(journaled, what="the journal has the departure of the last member")
    text = lab("replay", group, "-b", servers)
    assert "█" in text
    assert "partition-seconds without an owner" in text
    spans = lab_json("replay", group, "-b", servers)
    assert {each["partition"] for each in spans} == {0, 1, 2, 3}
    assert len({each["member"] for each in spans} - {None}) == 2
    picture = tmp_path / "replay.svg"
    lab("replay", group, "-b", servers, "--picture", str(picture))
    assert picture.read_text().count("<svg") == 1
    assert "generation 1" in lab("replay", "nothing", "-b", servers, code=1)


def lab_history(servers: str, group: str) -> list[dict[str, Any]]:
    from click.testing import CliRunner

    from odradek.cli import main

    result = CliRunner().invoke(main, ["groups", "history", group, "-b", servers, "--json"])
    return [json.loads(line) for line in result.stdout.splitlines()]
