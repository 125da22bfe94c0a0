"""The view of the metadata tree: a level at each address, values in words and without secrets."""

import json
import re

import pytest

from odradek.cli.page_server import open_page
from odradek.metadata.store import Reader
from odradek.model import ConfigurationError
from odradek.page.settings import PageSettings
from odradek.stores import MemoryStore, MemoryTree
from odradek.texts import node_texts
from tests.page.visitor import visiting

STATE = b'{"version":1,"leader":2,"leader_epoch":7,"isr":[2,1],"controller_epoch":1}'
USER = b'{"version":1,"config":{"SCRAM-SHA-512":"salt=c2FsdA==,stored_key=abc","producer_byte_rate":"1000"}}'


class Trees:
    """Opens stores of one tree, and counts them."""

    def __init__(self) -> None:
        self.tree = MemoryTree()
        self.opened: list[MemoryStore] = []
        self.closed = 0

    def __call__(self) -> Reader:
        trees = self

        class Counted(MemoryStore):
            async def close(self) -> None:
                trees.closed += 1
                await super().close()

        self.opened.append(Counted(self.tree))
        return self.opened[-1]


@pytest.mark.asyncio
async def test_each_address_shows_one_node_and_its_children() -> None:
    trees = Trees()
    writer = MemoryStore(trees.tree)
    for path in ("/brokers", "/brokers/ids", "/brokers/topics"):
        await writer.create(path)
    await writer.create("/brokers/ids/0", b'{"host":"h<1>","port":9092,"timestamp":"1700000000000"}', ephemeral=True)
    await writer.create("/brokers/topics/<b>", b"{}")
    for number in range(120):
        await writer.create(f"/brokers/topics/t-{number}", b'{"partitions":{"0":[1]}}')
    async with visiting(PageSettings(open_tree=trees)) as visitor:
        assert trees.opened == [], "it is opened when it is asked for"
        assert 'href="/metadata?path=/brokers"' in (await visitor.get("/metadata")).text
        topics = (await visitor.get("/metadata?path=/brokers/topics")).text
        assert "121 nodes" in topics
        assert "Page 1 of 2" in topics
        assert "&lt;b&gt;" in topics
        assert "<b>" not in topics
        assert "1 node" in (await visitor.get("/metadata?path=/brokers/topics&q=t-119")).text
        broker = (await visitor.get("/metadata?path=/brokers/ids/0")).text
        assert "Broker 0 is alive" in broker
        assert "It is reached at PLAINTEXT://h&lt;1&gt;:9092." in broker
        assert f"ephemeral, of session 0x{writer.session_id:x}" in broker
        assert 'datetime="2023-11-14T22:13:20.000Z"' in broker
        missing = await visitor.get("/metadata?path=/brokers/none")
        assert (missing.status, "there is no node /brokers/none" in missing.text) == (404, True)
        assert (await visitor.get("/metadata?path=../etc")).status == 400
        async with visitor.watching("/metadata?path=/brokers/topics&q=t-119") as parts:
            await writer.create("/brokers/topics/t-1199")
            while "2 nodes" not in (await anext(parts))["html"]:
                pass
        assert (len(trees.opened), trees.closed) == (1, 0), "one session serves all"
    assert trees.closed == 1
    await writer.close()


@pytest.mark.asyncio
async def test_a_page_without_the_tree_says_how_to_start_it_with_one() -> None:
    async with visiting() as visitor:
        answer = await visitor.get("/metadata")
        assert answer.status == 200
        assert "odradek page --metadata sqlite:///" in answer.text


@pytest.mark.asyncio
async def test_a_page_with_a_login_does_not_show_the_tree() -> None:
    sasl = {"security_protocol": "SASL_SSL"}
    with pytest.raises(ConfigurationError, match="leave out --metadata"):
        await open_page("127.0.0.1:0", sasl, login=True, metadata="sqlite:///no-such")


@pytest.mark.asyncio
async def test_names_of_digits_are_in_numeric_order_whatever_their_length() -> None:
    tree = MemoryTree()
    for name in ("10", "9", "name", "1" * 5_000):
        await MemoryStore(tree).create(f"/{name}")
    async with visiting(PageSettings(open_tree=lambda: MemoryStore(tree))) as visitor:
        rows = (await visitor.get("/metadata")).text.partition("<tbody>")[2]
    assert [rows.index(f">{name}</a>") for name in ("9", "10", "1" * 5_000, "name")] == sorted(
        each.start() - 1 for each in re.finditer(r"(?<=>)\w+</a>", rows)
    )


@pytest.mark.parametrize("levels", [101, 900, 5_000, 100_000])
def test_json_that_is_nested_too_deeply_is_shown_as_text(levels: int) -> None:
    data = b"[" * levels + b"]" * levels
    assert node_texts.pretty(data) == data.decode()
    assert node_texts.pretty(b"[" * 100 + b"]" * 100).count("\n") == 198


def test_values_are_explained_by_path_and_fields() -> None:
    path = "/brokers/topics/flights/partitions/3/state"
    assert node_texts.sentence(path, STATE).endswith(
        "The leader is broker 2 (-1: none) in leader epoch 7; in sync are [2, 1]."
    )
    assert "partition 3 of topic flights" in node_texts.sentence(path, b"not JSON")
    broker = b'{"host":"{x}","port":1,"timestamp":"1"}'
    assert node_texts.sentence("/brokers/ids/{0}", broker).endswith("PLAINTEXT://{x}:1.")
    assert node_texts.sentence("/somebody/elses", b"") == ""
    assert node_texts.written_ms(b'{"timestamp":"soon"}') is None


@pytest.mark.parametrize("data", [USER, b"SCRAM-SHA-512=stored_key=abc", b'["stored_key=abc"]'])
def test_credentials_of_users_are_not_shown(data: bytes) -> None:
    shown = node_texts.pretty_without_secrets("/config/users/alice", data)
    assert "abc" not in shown
    assert node_texts.HIDDEN in shown
    assert ("producer_byte_rate" in shown) is (data == USER)


def test_passwords_of_brokers_are_not_shown() -> None:
    config = {"ssl.keystore.password": "p1", "listener.name.a.ssl.keystore.key": "p2", "log.retention.ms": "7"}
    data = json.dumps({"version": 1, "config": config}).encode()
    shown = json.loads(node_texts.pretty_without_secrets("/config/brokers/0", data))["config"]
    assert list(shown.values()) == [node_texts.HIDDEN, node_texts.HIDDEN, "7"]
