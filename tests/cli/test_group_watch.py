"""The views of `groups watch`: the change of lag, members and partitions, and a coordinator that is away."""

import asyncio
import io

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.cli.groups.watch import Sample, View, lag_per_s, render, views
from odradek.clients import OffsetAndMetadata
from odradek.clients.admin.descriptions import GroupDescription, GroupPartition, MemberDescription
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.simulation.world import World
from tests.world.scenes import in_world


def group(*lags: int | None, owner: str | None = "m") -> GroupDescription:
    """A group with one member that owns partitions of these lags."""
    partitions = tuple(
        GroupPartition(
            topic="t", partition=number, committed_offset=0, end_offset=lag, lag=lag,
            member_id=owner, client_id="c", client_host="/h",
        )
        for number, lag in enumerate(lags)
    )  # fmt: skip
    member = MemberDescription(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="/h",
        assignment=tuple(TopicPartition("t", number) for number in range(len(lags))) if owner else (),
    )
    return GroupDescription(
        group_id="g", group_state="Stable", protocol_type="consumer", protocol="range", coordinator=None,
        members=(member,), partitions=partitions,
    )  # fmt: skip


def view(
    before: GroupDescription | None, now: GroupDescription | None, *, seconds: float = 2.0, error: str = ""
) -> View:
    first = None if before is None else Sample(group_id="g", at_s=100.0, group=before)
    return View(before=first, now=Sample(group_id="g", at_s=100.0 + seconds, group=now, error=error))


@given(st.lists(st.tuples(st.integers(0, 1000), st.integers(0, 1000)), min_size=1), st.floats(0.1, 100))
def test_the_change_of_lag_is_that_of_all_partitions_in_a_second(lags: list[tuple[int, int]], seconds: float) -> None:
    before, now = group(*(old for old, _ in lags)), group(*(new for _, new in lags))
    change = lag_per_s(view(before, now, seconds=seconds).lag_changes(), now.partitions)
    assert change == pytest.approx(sum(new - old for old, new in lags) / seconds, rel=1e-6, abs=1e-6)


def test_partitions_without_two_lags_do_not_count_as_change() -> None:
    now = group(5, 7, None, 9)
    assert lag_per_s(view(group(1, None, 3), now).lag_changes(), now.partitions) == 2.0
    assert lag_per_s(view(group(None), now).lag_changes(), now.partitions) is None
    assert lag_per_s(view(None, now).lag_changes(), now.partitions) is None
    assert lag_per_s(view(group(1), now, error="late").lag_changes(), now.partitions) is None


def text(shown: View, *, per_partition: bool = False) -> str:
    from rich.console import Console

    console = Console(width=500, file=io.StringIO())
    console.print(*render(shown, per_partition=per_partition), sep="\n")
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_a_view_shows_members_or_partitions_with_their_lag_and_its_change() -> None:
    shown = text(view(group(8, 8), group(5, 7)))
    head, second, columns, member = shown.splitlines()
    assert head == "group g  state Stable  generation -  members 1  lag 12 (-2.0/s)"
    assert second == "assignor range  coordinator -"
    assert columns.split() == ["CONSUMER-ID", "CLIENT-ID", "HOST", "#PARTITIONS", "LAG", "LAG/S", "PARTITIONS"]
    assert member.split() == ["m", "c", "/h", "2", "12", "-2.0", "t(0,1)"]
    rows = [line.split() for line in text(view(group(8, 8), group(5, 7)), per_partition=True).splitlines()[3:]]
    assert rows == [["t", "0", "0", "5", "5", "-1.5", "m"], ["t", "1", "0", "7", "7", "-0.5", "m"]]


def test_a_view_shows_members_without_partitions_and_partitions_without_a_member() -> None:
    rows = [line.split() for line in text(view(None, group(5, owner=None))).splitlines()[3:]]
    assert [row[0] for row in rows] == ["m", "-"]
    assert rows[1][3:5] == ["1", "5"]


def test_a_view_says_that_the_group_is_gone_or_cannot_be_read() -> None:
    assert text(view(group(1), None)) == "group g does not exist any more\n"
    assert text(view(group(1), group(1), error="no answer")).splitlines()[2] == "no answer"


# ---- samples --------------------------------------------------------------------------------------------------------


@in_world({"offsets.topic.num.partitions": "1"})
async def test_a_coordinator_that_is_away_is_shown_and_the_group_again_when_it_is_back(world: World) -> None:
    async with world.admin() as admin:
        await admin.create_topic("t")
        await admin.alter_group_offsets("g", {TopicPartition("t", 0): OffsetAndMetadata(0)})
        seen = views(admin, "g", 1.0)
        assert (await anext(seen)).now.error == ""
        await world.kill()
        started = asyncio.get_running_loop().time()
        away = await anext(seen)
        assert asyncio.get_running_loop().time() - started < 7
        assert "trying again" in away.now.error
        assert away.now.group is away.before.group
        assert "trying again" in text(away)
        await world.start()
        while (back := await anext(seen)).now.error:
            assert back.now.group is away.now.group
        assert back.before.error == ""
        assert lag_per_s(back.lag_changes(), back.now.group.partitions) == 0.0
        await admin.delete_groups(["g"])
        assert (await anext(seen)).now.group is None
        await seen.aclose()


@in_world()
async def test_a_group_that_never_was_is_an_error_and_no_view(world: World) -> None:
    async with world.admin() as admin:
        with pytest.raises(KafkaError, match="there is no group 'g'") as refused:
            await anext(views(admin, "g", 1.0))
        assert refused.value.code is ErrorCode.group_id_not_found
