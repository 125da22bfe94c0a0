"""The views of messages, of a real cluster: lists, one message, searches, files, and what is written."""

import asyncio
import csv
import io
import json
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crc32c
import msgspec
import pytest

from odradek.clients import ConsumerRecord, Producer, SimpleConsumer
from odradek.page.messages.export import pytest_fixture
from odradek.page.settings import PageSettings
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.records import encode_batch
from odradek.runtime import system_runtime
from odradek.simulation.wire_client import WireClient, produce_body
from odradek.testing import Cluster
from odradek.values.value_formats import shower
from tests.page.visitor import Visitor, visiting

pytestmark = pytest.mark.asyncio
HOSTILE = "<script>alert(1)</script>\x1b[31m\u202egnp.exe"


async def written(kafka: Cluster, topic: str, *values: bytes | None, headers: int = 0, **config: str) -> PageSettings:
    kafka.create_topic(topic, config={name.replace("_", "."): text for name, text in config.items()})
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
    assert '<span class="mono">{&#34;a&#34;:{&#34;b&#34;:[1,null]}}</span>' in text
    assert '<span class="mono">ff 00</span>' in text
    assert '<span class="tag">null</span>' in text
    assert "ff 00" in text


async def test_a_record_is_shown_with_its_timestamp_type_and_leader_epoch(kafka: Cluster) -> None:
    kafka.create_topic("stamped", config={"message.timestamp.type": "LogAppendTime"})
    async with Producer(kafka.bootstrap_servers) as producer:
        await (await producer.send("stamped", b"two\nlines", headers=[("trace", b"42")]))
    async with visiting(PageSettings(client={"bootstrap_servers": kafka.bootstrap_servers})) as visitor:
        for address in ("/topics/stamped/messages", "/topics/stamped/messages/0/0"):
            text = await page_of(visitor, address)
            assert "<dd>LogAppendTime</dd>" in text
            assert "<dt>Leader epoch</dt><dd>0</dd>" in text
            assert "<dt>trace</dt><dd>42</dd>" in text
        assert '<span class="mono">two lines</span>' in await page_of(visitor, "/topics/stamped/messages")


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
        assert large.decode() in json.loads(await page_of(visitor, "/topics/large/export?as=ndjson"))["value"]
        answer = await visitor.get("/topics/large/messages/0/0?download=value")
    assert answer.text.encode() == large
    assert answer.headers["content-disposition"].startswith("attachment")


@pytest.fixture
def careless() -> Iterator[Cluster]:
    """A cluster that takes rubbish."""
    with Cluster(config={"log.validate.records": "needed"}) as cluster:
        yield cluster


async def test_a_batch_of_rubbish_has_a_line_and_hides_no_message(careless: Cluster) -> None:
    kafka = careless
    settings = await written(kafka, "rubbish", b"before", message_timestamp_type="LogAppendTime")
    rubbish = encode_batch([(0, None, b"v" * 20, ())] * 3)
    rubbish[61:] = b"\xff" * len(rubbish[61:])
    rubbish[22] |= Codec.ZSTD
    struct.pack_into(">I", rubbish, 17, crc32c.crc32c(bytes(rubbish[21:])))
    host, _, port = kafka.bootstrap_servers.split(",")[0].partition(":")
    client = await WireClient.connect(system_runtime().network, host, int(port))
    client.send(ApiKey.PRODUCE, produce_body("rubbish", rubbish, version=9), 9)
    assert (await client.produce_response()).topics[0].partitions[0].error_code == 0
    client.close()
    async with Producer(kafka.bootstrap_servers) as producer:
        await (await producer.send("rubbish", b"after"))
    async with visiting(settings) as visitor:
        for address in ("messages", "messages?from=beginning", "search?text=e"):
            text = await page_of(visitor, f"/topics/rubbish/{address}")
            assert "before" in text
            assert "after" in text
            assert text.count("The batch up to offset 3 cannot be read, and saved files are without it: ") == 1
        assert "2 found in" in text
        saved = await visitor.get("/topics/rubbish/export?as=ndjson")
        assert [json.loads(line)["value"] for line in saved.text.splitlines()] == ["after", "before"]
        assert "''rubbish%20without%20partition%200%20offsets%201-3.ndjson" in saved.headers["content-disposition"]
        async with visitor.watching("/topics/rubbish/messages") as parts:
            found = await anext(part async for part in parts if part["id"] == "found")
        assert "cannot be read" in found["html"]


async def test_a_session_reads_messages_for_two_searches_at_the_same_time(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, begun, reading, goes_on = await written(kafka, "atonce", b"v"), list[str](), list[str](), asyncio.Event()
    end_offsets, fetch = SimpleConsumer.end_offsets, SimpleConsumer.fetch

    async def counted(self: SimpleConsumer, partitions: Any) -> Any:
        found = await end_offsets(self, partitions)
        begun.append("search")
        return found

    async def held(self: SimpleConsumer, *args: Any, **kwargs: Any) -> Any:
        reading.append("chunk")
        await goes_on.wait()
        return await fetch(self, *args, **kwargs)

    monkeypatch.setattr(SimpleConsumer, "end_offsets", counted)
    monkeypatch.setattr(SimpleConsumer, "fetch", held)
    async with visiting(settings) as visitor, asyncio.timeout(30):
        searches = [asyncio.create_task(visitor.get("/topics/atonce/search?text=v")) for _ in range(6)]
        while len(begun) < len(searches):
            await asyncio.sleep(0)
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(reading) == 2
        goes_on.set()
        assert [answer.status for answer in await asyncio.gather(*searches)] == [200] * 6
    assert len(reading) == 6


async def test_a_file_of_too_many_bytes_is_refused(kafka: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("odradek.page.views.messages._MOST_SAVED_BYTES", 30_000)
    settings = await written(kafka, "toolarge", b"x" * 20_000, b"y" * 20_000)
    async with visiting(settings) as visitor:
        assert "save fewer" in await page_of(visitor, "/topics/toolarge/export?as=csv", 400)
        assert "y" * 20_000 in await page_of(visitor, "/topics/toolarge/export?as=csv&limit=1")


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


async def test_the_fixture_of_a_topic_named_as_a_keyword_or_as_its_own_argument_is_python() -> None:
    for topic in ("class", "kafka", "1-2"):
        record = ConsumerRecord(topic, 0, 0, 1, None, b"value", (), -1)
        fixture = pytest_fixture([record])
        compile(fixture, "fixture.py", "exec")
        assert f"def topic_{topic.replace('-', '_')}(kafka)".encode() in fixture


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


async def test_another_schema_or_no_schema_does_not_go_round_the_masks(kafka: Cluster, tmp_path: Path) -> None:
    names = {"right": ("user", "pin"), "wrong": ("id", "note")}
    for name, (first, second) in names.items():
        fields = [{"name": first, "type": "string"}, {"name": second, "type": "string"}]
        schema = {"type": "record", "name": "R", "fields": fields}
        (tmp_path / f"{name}.avsc").write_bytes(msgspec.json.encode(schema))
    schemas = {name: shower("avro", str(tmp_path / f"{name}.avsc"), option="schema") for name in names}
    looks_like_text = b"\x28" + b"ann".ljust(20, b"!") + b"\x28" + b"s3cret".ljust(20, b"!")
    settings = await written(kafka, "avro", looks_like_text, b"\x28s3cret")
    masked = msgspec.structs.replace(settings, masks=("pin",), schemas=schemas, formats={"avro.value": "right"})
    async with visiting(masked) as visitor:
        assert "ann!" in await page_of(visitor, "/topics/avro/messages")
        for chosen in ("right", "wrong", "guess", "text", "hex", "json", "msgpack"):
            for place in ("messages", "messages/0/0", "messages/0/1"):
                assert "s3cret" not in await page_of(visitor, f"/topics/avro/{place}?value_format={chosen}")
        assert "s3cret" not in await page_of(visitor, "/topics/avro/export?as=ndjson")
        assert "0 found" in await page_of(visitor, "/topics/avro/search?text=s3cret")


async def test_a_header_is_masked_before_it_is_cut(kafka: Cluster) -> None:
    settings = await written(kafka, "cut")
    async with Producer(kafka.bootstrap_servers) as producer:
        await (await producer.send("cut", b"v", headers=[("card", b"x" * 4090 + b"4111111111111111")]))
    async with visiting(msgspec.structs.replace(settings, masks=("/[0-9]{16}/",))) as visitor:
        assert "4111" not in await page_of(visitor, "/topics/cut/messages")


async def test_a_wrong_address_is_answered_at_once_with_a_sentence(kafka: Cluster) -> None:
    settings = await written(kafka, "asked", b"v")
    async with visiting(settings) as visitor, asyncio.timeout(20):
        for address, status in (
            ("/topics/nope/messages", 404),
            ("/topics/nope/produce", 404),
            ("/topics/a%20b/messages", 400),
            ("/topics/asked/messages/7/0", 400),
            (f"/topics/asked/messages?cursor={'9' * 4400}:1", 400),
            (f"/topics/asked/messages?from=@P{'9' * 400}D", 400),
            ("/topics/asked/messages?from=@0001-01-01", 400),
        ):
            assert 'class="notice severe"' in await page_of(visitor, address, status)


async def test_a_number_beyond_the_protocol_is_refused(kafka: Cluster) -> None:
    settings = await written(kafka, "numbers", b"v")
    async with visiting(settings) as visitor:
        for address, form in (
            ("/topics/numbers/partitions", {"total": "2147483648"}),
            ("/create-topic", {"name": "x", "partitions": "2147483648"}),
            ("/topics/numbers/produce", {"value": "v", "partition": "9" * 5000}),
            ("/group/reset?id=g", {"name": "g", "plan": "numbers,2147483648,0"}),
        ):
            assert 400 <= (await visitor.post(address, form)).status < 500
