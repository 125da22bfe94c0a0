"""The views of topics, of a real broker: lists, one topic, and each change."""

import re
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any

import pytest
import pytest_asyncio

from odradek.clients import Producer
from odradek.clients.admin.descriptions import TopicDescription
from odradek.clients.metadata import PartitionMetadata
from odradek.clients.offsets import EARLIEST, LATEST, MAX_TIMESTAMP, OffsetAndTimestamp
from odradek.model import TopicPartition, UnavailableError
from odradek.page.overview import counted, read_offsets
from odradek.page.rendering import in_units
from odradek.page.settings import PageSettings
from odradek.testing import Cluster
from tests.page.visitor import Visitor, visiting

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
    assert "keys have Kafka's default</summary>" in shown
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


async def written(kafka: Cluster, topic: str, count: int) -> None:
    kafka.create_topic(topic, partitions=2)
    async with Producer(kafka.bootstrap_servers) as producer:
        for number in range(count):
            await producer.send(topic, b"v", partition=number % 2, timestamp_ms=1_700_000_000_000 + number)


def row_of(text: str, name: str) -> str:
    (row,) = re.findall(
        rf'<tr>\s*<th scope="row"[^>]*>(?:<a[^>]*>)?{re.escape(name)}(?:</a>)?</th>.*?</tr>', text, re.S
    )
    return str(row)


async def test_the_list_has_messages_and_the_last_write_and_is_sorted_by_them(visitor: Visitor, kafka: Cluster) -> None:
    for name, count in (("counted-a", 3), ("counted-b", 0), ("counted-c", 9)):
        await written(kafka, name, count)
    text = (await visitor.get("/topics?q=counted-&sort=-messages")).text
    assert sorted(("counted-a", "counted-b", "counted-c"), key=text.index) == ["counted-c", "counted-a", "counted-b"]
    assert ">9</a>" in row_of(text, "counted-c")
    assert "2023-11-14 22:13:20.008" in row_of(text, "counted-c")
    assert ">0</a>" in row_of(text, "counted-b")


async def test_a_list_counts_no_more_partitions_than_its_limit_and_says_so(
    visitor: Visitor, kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("limited-a", "limited-b"):
        await written(kafka, name, 1)
    monkeypatch.setattr("odradek.page.views.topics._MOST_COUNTED", 3)
    text = (await visitor.get("/topics?q=limited-")).text
    assert ">1</a>" in row_of(text, "limited-a")
    assert ">not counted</a>" in row_of(text, "limited-b")
    assert "the limit of a list" in text


class SomeLeaders:
    """A request to a cluster whose broker 1 does not answer, and whose brokers do not know the greatest time."""

    async def known(self, _key: object, read: Any, _interval_s: float) -> Any:
        with suppress(UnavailableError):
            return await read(self)

    async def list_offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, OffsetAndTimestamp]:
        if any(key.partition for key in wanted) or MAX_TIMESTAMP in wanted.values():
            raise UnavailableError("no answer")
        return {key: OffsetAndTimestamp({EARLIEST: 2, LATEST: 7}[kind], -1, 0) for key, kind in wanted.items()}


async def test_offsets_of_a_leader_that_does_not_answer_are_left_out() -> None:
    both = {
        number: PartitionMetadata(leader=number, leader_epoch=0, replicas=(number,), isr=(number,), offline_replicas=())
        for number in (0, 1)
    }
    whole = TopicDescription(name="t", topic_id=None, is_internal=False, partitions=both)
    first = TopicDescription(name="t", topic_id=None, is_internal=False, partitions={0: both[0]})
    offsets = await read_offsets(SomeLeaders(), [whole], 1.0)  # type: ignore[arg-type]
    assert counted(offsets, first) == (5, None)
    assert counted(offsets, whole) == (None, None)


async def test_a_topic_has_its_groups_with_lag_and_a_link_to_write(visitor: Visitor, kafka: Cluster) -> None:
    await written(kafka, "grouped", 10)
    await written(kafka, "grouped-too", 0)
    with kafka.admin() as admin:
        admin.alter_group_offsets("behind", {("grouped", 0): 1, ("grouped", 1): 5})
        admin.alter_group_offsets("elsewhere", {("grouped-too", 0): 0})
    text = (await visitor.get("/topics/grouped")).text
    assert "<dt>Messages</dt><dd>10</dd>" in text
    assert '<td class="number">4</td>' in row_of(text, "behind")
    assert "elsewhere" not in text
    assert 'href="/topics/grouped/produce" data-dialog' in text


async def test_settings_that_differ_come_first_with_units_and_are_changed_beside_them(
    visitor: Visitor, kafka: Cluster
) -> None:
    kafka.create_topic("tuned", config={"retention.ms": "172800000", "segment.bytes": "1073741824"})
    text = (await visitor.get("/topics/tuned")).text
    own, _, defaults = text.replace("<wbr>", "").partition("keys have Kafka's default</summary>")
    keys, others = (re.findall(r'<th scope="row" class="mono"[^>]*>([^<]+)</th>', each) for each in (own, defaults))
    assert keys[:2] == ["retention.ms", "segment.bytes"]
    assert others == sorted(others) != []
    assert '172800000<span class="quiet">, 2 days</span>' in text
    assert '1073741824<span class="quiet">, 1 GiB</span>' in text
    assert 'href="/topics/tuned/configuration?key=retention.ms" data-dialog' in text
    form = (await visitor.get("/topics/tuned/configuration?key=retention.ms")).text
    assert 'name="key" required value="retention.ms"' in form
    assert 'name="value" value="172800000"' in form
    assert "Now 172800000, 2 days, set by this topic" in form


@pytest.mark.parametrize(
    ("key", "value", "text"),
    [
        ("retention.ms", "604800000", "7 days"),
        ("retention.ms", "86400000", "1 day"),
        ("retention.ms", "77000", "77 seconds"),
        ("retention.ms", "90061000", "1 d 1 h"),
        ("retention.ms", "31536000000", "365 days"),
        ("segment.ms", "129600000", "36 hours"),
        ("flush.ms", "1500", "1.5 s"),
        ("retention.ms", "-1", "no limit"),
        ("flush.messages", "9223372036854775807", "no limit"),
        ("max.message.bytes", "1048588", "1.0 MiB"),
        ("index.interval.bytes", "4096", "4 KiB"),
        ("min.compaction.lag.ms", "0", ""),
        ("compression.gzip.level", "-1", ""),
        ("cleanup.policy", "delete", ""),
        ("segment.bytes", None, ""),
        ("segment.bytes", "9" * 5000, ""),
    ],
)
async def test_values_have_units(key: str, value: str | None, text: str) -> None:
    assert in_units(value, key) == text


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
