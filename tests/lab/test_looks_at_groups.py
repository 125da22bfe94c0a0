"""Looks at a live group: when a rebalance begins and ends, who came and left, and which partitions nobody reads."""

from typing import Final

import pytest

from odradek.clients.admin.descriptions import GroupDescription, GroupPartition, MemberDescription
from odradek.lab.group_watch import GroupWatch, SeenRebalance
from odradek.lab.pictures.charts import Lanes
from odradek.lab.pictures.views import timelines_chart
from odradek.model import TopicPartition

START_MS: Final = 1_700_000_000_000


def group(
    state: str, members: dict[str, list[int]], *, protocol: str = "range", epochs: tuple[int, int] | None = None,
    lag: int = 0,
) -> GroupDescription:  # fmt: skip
    """A group of topic t; `epochs` are those of the group and of all members, for the consumer protocol."""
    return GroupDescription(
        group_id="g",
        group_state=state,
        protocol_type="consumer",
        protocol=protocol,
        coordinator=None,
        members=tuple(
            MemberDescription(
                member_id=name, group_instance_id=None, client_id="", client_host="",
                assignment=tuple(TopicPartition("t", number) for number in numbers), epoch=epochs and epochs[1],
            )
            for name, numbers in members.items()
        ),
        partitions=(
            GroupPartition(
                topic="t", partition=0, committed_offset=0, end_offset=lag, lag=lag, member_id=None, client_id=None,
                client_host=None,
            ),
        ),
        epoch=epochs and epochs[0],
        assignment_epoch=epochs and epochs[0],
    )  # fmt: skip


def watched(*looks: tuple[int, GroupDescription]) -> GroupWatch:
    watch = GroupWatch()
    for at_ms, described in looks:
        watch.look(described, START_MS + at_ms)
    return watch


def rebalance_of(watch: GroupWatch) -> SeenRebalance:
    assert watch.rebalance is not None
    return watch.rebalance


def test_a_stable_group_has_no_rebalance() -> None:
    stable = group("Stable", {"a": [0, 1]})
    assert watched((0, stable), (500, stable)).rebalance is None


def test_a_rebalance_of_an_eager_group_has_the_members_that_came_and_the_partitions_without_a_reader() -> None:
    looks = [(0, group("Stable", {"a": [0, 1]})), (500, group("PreparingRebalance", {"a": [], "b": []}, protocol=""))]
    watch = watched(*looks, (1_000, looks[1][1]))
    assert watch.goes_on
    assert rebalance_of(watch).joined == {"b": START_MS + 500}
    assert {gap.partition.partition for gap in watch.timeline("g").gaps} == {0, 1}
    chart = timelines_chart("owners", [watch.timeline("g")])
    assert isinstance(chart, Lanes)
    assert len(chart.panels[0].rows[-1].lanes) == 2
    watch.look(group("Stable", {"a": [0], "b": [1]}), START_MS + 1_500)
    assert not watch.goes_on
    ended = rebalance_of(watch)
    assert (ended.from_ms, ended.to_ms, ended.moved) == (START_MS, START_MS + 1_500, 1)
    unowned_ms = watch.timeline("g").unowned_partition_ms
    assert unowned_ms == 2_000
    assert ended.sentence(unowned_ms) == (
        "The rebalance took about 1.5 s (members: 1 joined, 0 left; partitions moved: 1), and partitions had no reader "
        "for about 2.0 partition-seconds in all."
    )


def test_a_cooperative_group_reads_on_while_its_coordinator_hides_the_owners() -> None:
    watch = watched(
        (0, group("Stable", {"a": [0, 1]}, protocol="cooperative-sticky")),
        (500, group("PreparingRebalance", {"a": [], "b": []}, protocol="")),
        (1_000, group("Stable", {"a": [0], "b": []}, protocol="cooperative-sticky")),
    )
    assert [gap.partition.partition for gap in watch.timeline("g").gaps] == [1]


def test_members_behind_the_epoch_of_their_group_are_a_rebalance() -> None:
    watch = watched((0, group("Reconciling", {"a": [0], "b": []}, epochs=(3, 2))))
    assert watch.goes_on
    watch.look(group("Stable", {"a": [0], "b": []}, epochs=(3, 3)), START_MS + 500)
    assert not watch.goes_on


def test_a_rebalance_between_two_looks_is_seen_by_what_has_changed() -> None:
    watch = watched((0, group("Stable", {"a": [0, 1]})), (500, group("Stable", {"b": [0, 1]})))
    seen = rebalance_of(watch)
    assert (seen.from_ms, seen.to_ms) == (START_MS, START_MS + 500)
    assert (list(seen.joined), list(seen.left), seen.moved) == (["b"], ["a"], 2)


def test_two_rebalances_shortly_after_each_other_are_one() -> None:
    watch = watched(
        (0, group("Stable", {"a": [0, 1]})),
        (500, group("Stable", {"a": [0], "b": []})),
        (1_000, group("Stable", {"a": [0], "b": [1]})),
    )
    assert rebalance_of(watch).from_ms == START_MS
    assert rebalance_of(watch).moved == 1
    assert watch.timeline("g").unowned_partition_ms == 500


def test_changes_long_after_the_last_look_are_no_rebalance() -> None:
    watch = watched((0, group("Stable", {"a": [0]})), (60_000, group("Stable", {"b": [0]})))
    assert watch.rebalance is None


@pytest.mark.parametrize(("every_ms", "count"), [(500, 11), (30_000, 121)])
def test_the_past_of_the_lag_has_a_sample_each_half_minute_for_an_hour(every_ms: int, count: int) -> None:
    looks = 5 * 60_000 // every_ms + 1 if every_ms == 500 else 200
    watch = watched(*((number * every_ms, group("Stable", {}, lag=number)) for number in range(looks)))
    assert len(watch.lags) == count
    assert watch.lags[-1].topics == {"t": looks - 1}
    assert watch.lags[-1].partitions == {TopicPartition("t", 0): looks - 1}
