"""The views of messages, of a real cluster: lists, one message, searches, files, and what is written."""

import csv
import io
import json

import msgspec
import pytest
from visitor import Visitor, visiting

from odradek.clients import Producer
from odradek.page.settings import PageSettings
from odradek.testing import Cluster

pytestmark = pytest.mark.asyncio
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp.exe"


async def written(kafka: Cluster, topic: str, *values: bytes | None, headers: int = 0) -> PageSettings:
    kafka.create_topic(topic)
    async with Producer(kafka.bootstrap_servers) as producer:
        for number, value in enumerate(values):
            named = [(f"h{each}", b"<b>") for each in range(headers)]
            await producer.send(topic, value, b"k%d" % number, headers=named)
    return PageSettings(client={"bootstrap_servers": kafka.bootstrap_servers})


async def page_of(visitor: Visitor, address: str, status: int = 200) -> str:
    answer = await visitor.get(address)
    assert answer.status == status, answer.text
    return answer.text


async def test_messages_are_listed_newest_first_with_their_formats(kafka: Cluster) -> None:
    settings = await written(kafka, "listed", b"first", b'{"a": {"b": [1, null]}}', None, b"\xff\x00")
    async with visiting(settings) as visitor:
        text = await page_of(visitor, "/topics/listed/messages")
    places = [text.index(f'/topics/listed/messages/0/{offset}"') for offset in (3, 2, 1, 0)]
    assert places == sorted(places)
    assert '<span class="json-name">b</span>' in text
    assert '<span class="tag">null</span>' in text
    assert "ff 00" in text


async def test_hostile_values_are_text(kafka: Cluster) -> None:
    settings = await written(
        kafka, "hostile", HOSTILE.encode(), json.dumps({HOSTILE: HOSTILE}).encode(), headers=10_000
    )
    async with visiting(settings) as visitor:
        for address in ("/topics/hostile/messages", "/topics/hostile/messages/0/0", "/topics/hostile/messages/0/1"):
            text = await page_of(visitor, address)
            assert "<script>alert" not in text
            assert "\x1b" not in text
            assert "\u202e" not in text
            assert "&lt;b&gt;" in text
            assert len(text) < 300_000


async def test_a_large_value_is_cut_in_the_list_and_can_be_downloaded(kafka: Cluster) -> None:
    large = json.dumps({"a": "x" * 900_000}).encode()
    settings = await written(kafka, "large", large)
    async with visiting(settings) as visitor:
        text = await page_of(visitor, "/topics/large/messages")
        assert len(text) < 20_000
        assert "Show the whole message" in text
        answer = await visitor.get("/topics/large/messages/0/0?download=value")
    assert answer.text.encode() == large
    assert answer.headers["content-disposition"].startswith("attachment")


async def test_a_search_shows_what_it_found_and_goes_on_while_the_page_is_open(kafka: Cluster) -> None:
    settings = await written(kafka, "searched", *(b"value %d" % number for number in range(100)))
    async with visiting(settings) as visitor:
        text = await page_of(visitor, "/topics/searched/search?text=value+7")
        assert "11 found in 100 messages" in text
        async with visitor.watching("/topics/searched/search?key=k42") as parts:
            found = [part async for part in parts if part["id"] == "found"]
        assert "1 found in 100 messages" in found[-1]["html"]
        assert "regular expression" in await page_of(visitor, "/topics/searched/search?text=(&regex=1", 400)


@pytest.mark.parametrize(
    "query", ["partition=x", "partition=7", "from=yesterday", "cursor=x", "limit=0", "value_format=xml"]
)
async def test_a_wrong_address_is_explained(kafka: Cluster, query: str) -> None:
    topic = f"wrong-{query.replace('=', '-')}"
    settings = await written(kafka, topic, b"value")
    async with visiting(settings) as visitor:
        assert 'class="notice severe"' in await page_of(visitor, f"/topics/{topic}/messages?{query}", 400)


async def test_messages_are_saved_in_each_format(kafka: Cluster) -> None:
    settings = await written(kafka, "saved", b"one", b"=SUM(A1)", headers=1)
    async with visiting(settings) as visitor:
        address = "/topics/saved/export?from=beginning&as="
        lines = (await visitor.get(address + "ndjson")).text.splitlines()
        assert [json.loads(line)["value"] for line in lines] == ["one", "=SUM(A1)"]
        rows = list(csv.reader(io.StringIO((await visitor.get(address + "csv")).text)))
        assert [row[5] for row in rows] == ["value", "one", "'=SUM(A1)"]
        fixture = (await visitor.get(address + "pytest")).text
    compile(fixture, "saved.py", "exec")
    assert "b'=SUM(A1)'" in fixture


async def test_masked_fields_are_nowhere(kafka: Cluster) -> None:
    settings = await written(kafka, "masked", b'{"user": "ann", "pin": "s3cret"}')
    async with visiting(msgspec.structs.replace(settings, masks=("pin",))) as visitor:
        for address in ("messages", "messages?value_format=text", "messages/0/0?value_format=hex", "export?as=ndjson"):
            text = await page_of(visitor, f"/topics/masked/{address}")
            assert "ann" in text
            assert "s3cret" not in text
        assert "s3cret" not in await page_of(visitor, "/topics/masked/messages/0/0?download=value", 400)


async def test_a_message_is_written_and_shown(kafka: Cluster) -> None:
    settings = await written(kafka, "target")
    form = {"key": "k", "value": '{"a":1}', "value_format": "json", "headers": "a=1", "partition": ""}
    async with visiting(settings) as visitor:
        answer = await visitor.post("/topics/target/produce", form)
        assert (answer.status, answer.headers["location"]) == (303, "/topics/target/messages/0/0")
        assert '<span class="json-number">1</span>' in await page_of(visitor, "/topics/target/messages/0/0")
        wrong = await visitor.post("/topics/target/produce", {**form, "value": "{"})
    assert wrong.status == 400
    assert "the value is not json" in wrong.text
