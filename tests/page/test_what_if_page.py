"""The view of what a change of a live group would move."""

from html import unescape

import pytest

from odradek.clients import Admin
from odradek.page.settings import PageSettings
from odradek.testing import Cluster
from tests.page.members import only_member, reading
from tests.page.visitor import visiting

pytestmark = pytest.mark.asyncio


async def test_a_groups_strategies_are_compared_and_changes_move_partitions(kafka: Cluster) -> None:
    kafka.create_topic("supposed", partitions=4)
    settings = PageSettings(client={"bootstrap_servers": kafka.bootstrap_servers})
    async with visiting(settings) as visitor, reading(kafka, "supposed", "supposers"):
        member = await only_member(kafka, "supposers")
        start = "/group/what-if?id=supposers"
        now = await visitor.get(start)
        added = await visitor.get(f"{start}&add_members=1&strategy=cooperative-sticky")
        grown = await visitor.get(f"{start}&partitions=supposed=3")
        alone = await visitor.get(f"{start}&remove={member}")
        index = await visitor.get("/what-if?q=supposers")
    assert now.status == 200
    assert "0 partitions move." in now.text
    assert "will pause" not in now.text
    assert "will pause" in added.text
    assert "<svg" in now.text
    assert "?id=supposers&add_members=1" in unescape(now.text)
    assert "2 partitions move." in added.text
    assert "range becomes cooperative-sticky" in added.text
    assert "3 partitions new." in grown.text
    assert (alone.status, "no member is left" in alone.text) == (400, True)
    assert "/group/what-if?id=supposers" in index.text


@pytest.mark.parametrize("change", ["strategy=os:system", "add_members=10001", "partitions=t=10001", "partitions=t"])
async def test_a_wrong_change_is_refused_without_a_cluster(change: str) -> None:
    async with visiting() as visitor:
        answer = await visitor.get(f"/group/what-if?id=g&{change}")
    assert answer.status == 400


async def test_a_group_without_members_is_a_sentence(kafka: Cluster) -> None:
    kafka.create_topic("memberless")
    async with Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
        await admin.alter_group_offsets("memberless", {("memberless", 0): 0})
    async with visiting(PageSettings(client={"bootstrap_servers": kafka.bootstrap_servers})) as visitor:
        answer = await visitor.get("/group/what-if?id=memberless")
    assert (answer.status, "has no members" in answer.text) == (400, True)
