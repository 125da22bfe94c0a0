"""The views of groups, of a real broker: the list, a rebalance as it goes, and what changes offsets."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from html import unescape
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from odradek.clients import Admin, Producer
from odradek.clients.admin.descriptions import (
    ClusterDescription,
    GroupDescription,
    GroupListing,
    GroupPartition,
    MemberDescription,
)
from odradek.model import TopicPartition, UnavailableError
from odradek.page.sessions import Session
from odradek.page.settings import PageSettings
from odradek.simulation.virtual.clock import VirtualClock
from odradek.testing import Cluster
from tests.page.members import only_member, reading
from tests.page.visitor import Visitor, visiting

pytestmark = pytest.mark.asyncio


@asynccontextmanager
async def page_of(kafka: Cluster, *, may_change: bool = True) -> AsyncIterator[Visitor]:
    settings = PageSettings(client={"bootstrap_servers": kafka.bootstrap_servers}, may_change=may_change)
    async with visiting(settings) as visitor:
        yield visitor


async def committed_group(kafka: Cluster, name: str, *, offset: int = 3, records: int = 5) -> None:
    """A topic of two partitions with some records, and a group without members that has committed an offset."""
    kafka.create_topic(name, partitions=2)
    async with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        for number in range(records):
            await producer.send(name, f"v{number}".encode(), partition=0)
    async with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await admin.alter_group_offsets(name, {(name, 0): offset, (name, 1): 0})


async def test_the_list_filters_and_sorts_by_lag_and_links_to_each_group(kafka: Cluster) -> None:
    await committed_group(kafka, "listed-a", offset=4)
    await committed_group(kafka, "listed-b", offset=1)
    async with page_of(kafka) as visitor:
        answer = await visitor.get("/groups?q=LISTED-&sort=-lag")
        nothing = await visitor.get("/groups?q=absent-name")
        named = await visitor.get("/group?id=listed-a")
    assert answer.status == 200
    assert answer.text.index("/group?id=listed-b") < answer.text.index("/group?id=listed-a")
    assert '<td class="number">4</td>' in answer.text
    assert "None of the" in nothing.text
    assert "<title>Group listed-a · Odradek</title>" in named.text
    assert "<h1>Group listed-a</h1>" in named.text


async def test_the_list_names_a_broker_that_does_not_answer_and_has_the_groups_of_the_others(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    await committed_group(kafka, "of-broker-0")
    away, describe, list_groups = {1}, Admin.describe_cluster, Admin.list_groups

    async def two_brokers(self: Admin) -> ClusterDescription:
        found = await describe(self)
        return replace(found, brokers=(*found.brokers, replace(found.brokers[0], broker_id=1)))

    async def answered(self: Admin, *, broker_ids: Sequence[int] = (0, 1)) -> list[GroupListing]:
        if away & {*broker_ids}:
            raise UnavailableError("a broker hangs")
        return await list_groups(self)

    monkeypatch.setattr(Admin, "describe_cluster", two_brokers)
    monkeypatch.setattr(Admin, "list_groups", answered)
    async with page_of(kafka) as visitor:
        answer = await visitor.get("/groups")
    away.add(0)
    async with page_of(kafka) as visitor:
        nothing = await visitor.get("/groups")
    assert answer.status == 200
    assert "Broker 1 does not answer: the groups that it coordinates are missing here." in answer.text
    assert "/group?id=of-broker-0" in answer.text
    assert nothing.status == 503


async def test_a_rebalance_is_shown_while_it_goes_on_and_explained_afterwards(kafka: Cluster) -> None:
    kafka.create_topic("moved", partitions=4)
    async with page_of(kafka) as visitor, AsyncExitStack() as stack:
        await stack.enter_async_context(reading(kafka, "moved", "movers"))
        async with visitor.watching("/group?id=movers") as parts, asyncio.timeout(30):
            first = await anext(parts)
            while "Stable" not in first["html"]:
                first = await anext(parts)
            await stack.enter_async_context(reading(kafka, "moved", "movers"))
            shown = ""
            async for part in parts:
                if part["id"] == "now":
                    shown = part["html"]
                    if "What caused the last rebalance" in shown and "1 joined" in shown:
                        break
    assert "partition-seconds" in shown
    assert "reader-movers" in shown
    assert "<svg" in shown


async def test_members_are_paged_with_what_each_holds(kafka: Cluster) -> None:
    kafka.create_topic("held", partitions=3)
    async with reading(kafka, "held", "holders"), page_of(kafka) as visitor:
        answer = await visitor.get("/group/members?id=holders")
        while "held(0,1,2)" not in answer.text:
            answer = await visitor.get("/group/members?id=holders")
        other = await visitor.get("/group/members?id=holders&q=absent")
    assert "What these members hold" in answer.text
    assert "No member matches" in other.text


async def test_the_history_has_the_journal_and_its_picture(kafka: Cluster) -> None:
    async with page_of(kafka) as visitor:
        answer = await visitor.get("/group/history?id=never-rebalanced")
    assert answer.status == 200
    assert "The journal has no rebalance of this group" in answer.text


async def test_a_reset_shows_what_is_read_again_needs_the_name_and_can_be_undone(kafka: Cluster) -> None:
    await committed_group(kafka, "again")
    async with page_of(kafka) as visitor, Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:

        async def offset() -> int:
            return (await admin.describe_group("again")).partitions[0].committed_offset or 0

        preview = await visitor.get("/group/reset?id=again&to=to_earliest&topic=again")
        assert "3 records will be read again" in preview.text
        plan = unescape(preview.text.partition('name="plan"')[2].partition(">")[2].partition("<")[0])
        assert plan == "again,0,0\nagain,1,0"
        refused = await visitor.post("/group/reset?id=again", {"plan": plan, "name": "other"})
        assert "type the group" in refused.text
        assert await offset() == 3
        done = await visitor.post("/group/reset?id=again", {"plan": plan, "name": "again"})
        assert (done.status, done.headers["location"]) == (303, "/group?id=again")
        assert await offset() == 0
        assert "Undo the reset" in (await visitor.get("/group?id=again")).text
        await visitor.post("/group/undo?id=again", {})
        assert await offset() == 3
        assert "Undo the reset" not in (await visitor.get("/group?id=again")).text


async def test_a_wrong_place_of_a_reset_gets_a_sentence(kafka: Cluster) -> None:
    await committed_group(kafka, "wrong-place")
    async with page_of(kafka) as visitor:
        for query, sentence in (
            ("to=elsewhere", "there is no place"),
            ("to=to_offset", "say which"),
            ("to=to_offset&value=x", "is not a number"),
            ("to=to_datetime&value=yesterday", "is not a time"),
            ("to=to_earliest&topic=absent", "has no committed offsets in absent"),
        ):
            answer = await visitor.get(f"/group/reset?id=wrong-place&{query}")
            assert answer.status == 400
            assert sentence in unescape(answer.text)


async def test_a_group_is_deleted_by_operators_who_type_its_name(kafka: Cluster) -> None:
    await committed_group(kafka, "deleted")
    async with page_of(kafka, may_change=False) as viewer:
        assert (await viewer.post("/group/delete?id=deleted", {"name": "deleted"})).status == 403
        assert (await viewer.get("/group/reset?id=deleted")).status == 403
        assert "Delete" not in (await viewer.get("/group?id=deleted")).text
    async with page_of(kafka) as operator:
        assert "type the group" in (await operator.post("/group/delete?id=deleted", {"name": ""})).text
        assert (await operator.post("/group/delete?id=deleted", {"name": "deleted"})).status == 303
        assert (await operator.get("/group?id=deleted")).status == 404


async def test_a_removed_member_is_gone_and_a_second_removal_gets_a_sentence(kafka: Cluster) -> None:
    kafka.create_topic("removed")
    async with reading(kafka, "removed", "removed"), page_of(kafka) as visitor:
        member_id = await only_member(kafka, "removed")
        address = f"/group/remove?id=removed&member={member_id}"
        form = (await visitor.get(address)).text
        assert "A member that still runs joins again" in form
        assert f"<h1>Remove member {member_id[: len('reader-removed-0000')]}</h1>" in form
        assert (await visitor.post(address, {"name": "removed"})).status == 303
        answer = await visitor.post(address.replace("member=", "member=x"), {"name": "removed"})
    assert "has left already" in unescape(answer.text)


@pytest.mark.parametrize(
    ("address", "target"),
    [
        ("/groups/billing", "/group?id=billing"),
        ("/groups/a%2Fb%20%26%20c%3F+%C3%A9", "/group?id=a%2Fb+%26+c%3F%2B%C3%A9"),
        ("/groups/" + "x" * 300, "/group?id=" + "x" * 300),
        ("/groups/", "/groups"),
    ],
)
async def test_an_address_with_the_name_of_a_group_leads_to_its_page(address: str, target: str) -> None:
    async with visiting() as visitor:
        assert (await visitor.get(address)).headers["location"] == target


async def test_an_address_without_a_group_gets_a_sentence(kafka: Cluster) -> None:
    async with page_of(kafka) as visitor:
        assert "the address names no group" in (await visitor.get("/group")).text


async def test_a_stuck_classic_group_names_the_members_that_may_hold_it_up(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = _Brokers()

    class Stuck:
        async def describe_group(self, group_id: str) -> GroupDescription:
            described = await brokers.describe_group(group_id)
            return replace(described, group_state="PreparingRebalance", members=described.members[:7])

        async def rebalance_history(self, _group_id: str, *, limit: int) -> list[Any]:
            return [][:limit]

    async def admin(_session: Session) -> Stuck:
        return Stuck()

    monkeypatch.setattr(Session, "admin", admin)
    async with visiting() as visitor:
        text = (await visitor.get("/group?id=stuck")).text
    assert "The group rebalances, at least since" in text
    assert "Check whether these poll, which had partitions before: c-member-0000 on h, c-member-0001 on h" in text
    assert "c-member-0004 on h and 2 more." in text


class _Brokers:
    """An admin client of brokers without a journal, whose group of 2,000 members rebalances at the second look."""

    def __init__(self) -> None:
        self.looks = 0

    async def describe_group(self, group_id: str) -> GroupDescription:
        self.looks += 1
        is_stable = self.looks != 2
        members = tuple(
            MemberDescription(
                member_id=f"member-{number:04}", group_instance_id=None, client_id="c", client_host="/h",
                assignment=tuple(TopicPartition("t", number * 5 + each) for each in range(5)) if is_stable else (),
            )
            for number in range(2_000)
        )  # fmt: skip
        owners = {partition: member for member in members for partition in member.assignment}
        partitions = [TopicPartition("t", number) for number in range(10_000)]
        return GroupDescription(
            group_id=group_id, group_state="Stable" if is_stable else "PreparingRebalance", protocol_type="consumer",
            protocol="range", coordinator=None, members=members,
            partitions=tuple(GroupPartition.of(each, None, 5, owners.get(each)) for each in partitions),
        )  # fmt: skip

    async def rebalance_history(self, _group_id: str, *, limit: int) -> list[Any]:
        return [][:limit]


async def test_a_group_of_many_members_on_brokers_without_a_journal_is_paged(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = _Brokers()

    async def admin(_session: Session) -> _Brokers:
        return brokers

    monkeypatch.setattr(Session, "admin", admin)
    async with visiting(PageSettings(interval_s=0.0)) as visitor:
        first, moving, after = [await visitor.get("/group?id=big") for _ in range(3)]
        members = await visitor.get("/group/members?id=big&page=50")
    assert "The group rebalances" not in first.text
    assert "waits until all members have joined again" in moving.text
    assert "until the group removes it after its max.poll.interval.ms" in moving.text
    assert "The group rebalances, since" in moving.text
    assert "No member reads t(0,1," in moving.text
    assert "The cluster has no journal of this rebalance" in after.text
    assert "The first 30 of 2,000 members" in after.text
    assert "member-1999" in members.text
    assert max(len(each.text) for each in (first, moving, after, members)) < 100_000


class _Journalled:
    """An admin client of a group of three partitions, with the journal that a test writes."""

    def __init__(self) -> None:
        self.state = "Stable"
        self.owners = {"a": [0, 1], "b": [2]}
        self.journal: list[dict[str, Any]] = []

    async def describe_group(self, group_id: str) -> GroupDescription:
        return GroupDescription(
            group_id=group_id, group_state=self.state, protocol_type="consumer", protocol="range", coordinator=None,
            members=tuple(
                MemberDescription(
                    member_id=name, group_instance_id=None, client_id="c", client_host="/h",
                    assignment=tuple(TopicPartition("t", each) for each in numbers) if self.state == "Stable" else (),
                )
                for name, numbers in self.owners.items()
            ),
            partitions=(),
        )  # fmt: skip

    async def rebalance_history(self, _group_id: str, *, limit: int) -> list[dict[str, Any]]:
        return self.journal[-limit:]

    def write(self, reason: str, *, duration_ms: int, unowned_ms: int, loses: str, gets: str) -> None:
        """Write the record of a rebalance in which partition 2 changes its owner."""
        self.owners = {"a": [0, 1], gets: [2]}
        self.journal.append(
            {
                "reason": reason, "outcome": "stable", "started_ms": 1_000_000 + len(self.journal) * 100_000,
                "duration_ms": duration_ms, "moved": 1, "unowned_partition_ms": unowned_ms,
                "longest_unowned_ms": unowned_ms, "timed_out": [], "waited_for": {}, "owners_left_out": 0,
                "owned": {name: {"t": numbers} for name, numbers in self.owners.items()},
                "changes": [
                    {"at_ms": 10, "member": loses, "loses": {"t": [2]}},
                    {"at_ms": duration_ms, "member": gets, "gets": {"t": [2]}},
                ],
            }
        )  # fmt: skip


@pytest_asyncio.fixture
async def journalled(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[tuple[_Journalled, VirtualClock, Visitor]]:
    brokers, clock = _Journalled(), VirtualClock()

    async def admin(_session: Session) -> _Journalled:
        return brokers

    monkeypatch.setattr(Session, "admin", admin)
    async with visiting(PageSettings(interval_s=0.0), clock=clock) as visitor:
        yield brokers, clock, visitor


async def test_after_a_gap_in_watching_the_figures_of_the_last_rebalance_are_those_of_the_journal(
    journalled: tuple[_Journalled, VirtualClock, Visitor],
) -> None:
    brokers, clock, visitor = journalled
    brokers.write("b joined", duration_ms=200, unowned_ms=111, loses="z", gets="b")
    assert "b joined: the rebalance took 0.200 s" in (await visitor.get("/group?id=g")).text
    brokers.state = "PreparingRebalance"
    clock.advance(0.5)
    assert "What caused" not in (await visitor.get("/group?id=g")).text
    clock.advance(38.7)
    brokers.state = "Stable"
    brokers.write("b timed out", duration_ms=379, unowned_ms=369, loses="b", gets="d")
    text = (await visitor.get("/group?id=g")).text
    assert "b timed out: the rebalance took 0.379 s" in text
    assert "0.369 partition-seconds in all" in text
    assert "0.369 partition-seconds without an owner" in text
    assert ("38.7" in text, "as this page saw it" in text, "took about" in text) == (False, False, False)


async def test_until_a_rebalance_is_in_the_journal_the_one_before_it_is_not_shown_as_the_last(
    journalled: tuple[_Journalled, VirtualClock, Visitor],
) -> None:
    brokers, clock, visitor = journalled
    brokers.write("b joined", duration_ms=200, unowned_ms=111, loses="z", gets="b")
    await visitor.get("/group?id=g")
    clock.advance(0.5)
    brokers.owners = {"a": [0, 1], "d": [2]}  # within half a second
    text = (await visitor.get("/group?id=g")).text
    assert ("b joined" in text, "as this page saw it" in text) == (False, True)
    brokers.write("d joined", duration_ms=379, unowned_ms=369, loses="b", gets="d")
    clock.advance(0.5)
    text = (await visitor.get("/group?id=g")).text
    assert "d joined: the rebalance took 0.379 s" in text
    assert "0.369 partition-seconds without an owner" in text
    assert "took about" not in text


async def test_a_record_that_is_written_after_the_first_look_is_shown_some_looks_later(
    journalled: tuple[_Journalled, VirtualClock, Visitor],
) -> None:
    brokers, clock, visitor = journalled
    brokers.write("b joined", duration_ms=200, unowned_ms=111, loses="z", gets="b")
    await visitor.get("/group?id=g")
    brokers.write("b joined again", duration_ms=300, unowned_ms=0, loses="b", gets="b")
    for _ in range(4):
        clock.advance(0.5)
        text = (await visitor.get("/group?id=g")).text
    assert "b joined again: the rebalance took 0.300 s" in text
