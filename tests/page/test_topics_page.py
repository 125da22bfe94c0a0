"""The views of topics, of a real broker: lists, one topic, and each change."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from visitor import Visitor, visiting

from odradek.page.settings import PageSettings
from odradek.testing import Cluster

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def visitor(kafka: Cluster) -> AsyncIterator[Visitor]:
    async with visiting(PageSettings(client={"bootstrap_servers": kafka.bootstrap_servers})) as visitor:
        yield visitor


async def test_the_list_is_filtered_and_sorted_by_the_address(visitor: Visitor, kafka: Cluster) -> None:
    for name, partitions in (("sorted-a", 1), ("sorted-b", 3), ("sorted-c", 2)):
        kafka.create_topic(name, partitions=partitions)
    text = (await visitor.get("/topics?q=SORTED-&sort=-partitions")).text
    assert sorted(("sorted-a", "sorted-b", "sorted-c"), key=text.index) == ["sorted-b", "sorted-c", "sorted-a"]
    assert "3 topics" in text
    assert "No topic" in (await visitor.get("/topics?q=%3Cscript%3E")).text
    assert (await visitor.get("/topics?page=last")).status == 400


async def test_a_topic_is_created_shown_altered_and_deleted(visitor: Visitor) -> None:
    created = await visitor.post(
        "/create-topic", {"name": "made", "partitions": "2", "replicas": "", "configs": "retention.ms=77000\n\n"}
    )
    assert (created.status, created.headers["location"]) == (303, "/topics/made")
    shown = (await visitor.get("/topics/made")).text
    assert "Topic made is created." in shown
    assert "77000" in shown
    assert "this topic" in shown
    assert "Kafka&#39;s default" in shown
    await visitor.post("/topics/made/configuration", {"key": "retention.ms", "remove": "1"})
    assert "77000" not in (await visitor.get("/topics/made")).text
    await visitor.post("/topics/made/configuration", {"key": "cleanup.policy", "value": "compact"})
    await visitor.post("/topics/made/partitions", {"total": "5"})
    shown = (await visitor.get("/topics/made")).text
    assert "compact" in shown
    assert "<dt>Partitions</dt><dd>5</dd>" in shown
    deleted = await visitor.post("/topics/made/delete", {"name": "made"})
    assert (deleted.status, deleted.headers["location"]) == (303, "/topics")
    assert (await visitor.get("/topics/made")).status == 404


@pytest.mark.parametrize(
    ("address", "form", "words"),
    [
        ("/create-topic", {"name": "a b"}, "a b"),
        ("/create-topic", {"name": "x", "partitions": "many"}, "not a number"),
        ("/create-topic", {"name": "x", "configs": "retention"}, "is not KEY=VALUE"),
        ("/create-topic", {"name": "x", "configs": "nonsense.ms=1"}, "nonsense.ms"),
        ("/topics/kept/partitions", {"total": "1"}, "1"),
        ("/topics/kept/configuration", {"key": ""}, "has no key"),
        ("/topics/kept/delete", {"name": "kep"}, "nothing is deleted"),
    ],
)
async def test_a_wrong_form_is_shown_again_with_the_reason(
    visitor: Visitor, kafka: Cluster, address: str, form: dict[str, str], words: str
) -> None:
    if "kept" not in {each.name for each in kafka.admin().list_topics()}:
        kafka.create_topic("kept", partitions=2)
    answer = await visitor.post(address, form)
    assert answer.status == 400
    reason = answer.text.partition('<p class="notice severe">')[2].partition("</p>")[0]
    assert words in reason
    assert f'action="{address}"' in answer.text


async def test_a_viewer_sees_topics_without_the_forms(kafka: Cluster) -> None:
    kafka.create_topic("looked-at")
    settings = PageSettings(client={"bootstrap_servers": kafka.bootstrap_servers}, may_change=False)
    async with visiting(settings) as visitor:
        assert "/create-topic" not in (await visitor.get("/topics")).text
        assert "data-dialog" not in (await visitor.get("/topics/looked-at")).text
        assert (await visitor.get("/topics/looked-at/delete")).status == 403
        assert (await visitor.post("/topics/looked-at/delete", {"name": "looked-at"})).status == 403
        assert (await visitor.get("/topics/looked-at")).status == 200
