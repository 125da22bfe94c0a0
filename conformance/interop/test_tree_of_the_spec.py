"""M9: each node of the metadata tree is what SPEC 8 says it is, in every store, and as a ZooKeeper client reads it."""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from kazoo.client import KazooClient

from conformance.interop.existing_clients import DEADLINE_S
from odradek.broker.lifecycle import Broker
from odradek.config.broker import BrokerConfig
from odradek.metadata.new_topic import NewTopic as PlannedTopic
from odradek.metadata.nodes import (
    ConsumerNode,
    DeleteTopicsNode,
    PreferredReplicaElectionNode,
    ReassignPartitionsNode,
    encode_integer,
)
from odradek.metadata.reading import read_subtree
from odradek.metadata.store import Reader
from odradek.model import TopicPartition
from odradek.runtime import system_runtime
from odradek.stores import MemoryStore, MemoryTree, open_reader
from odradek.testing import eventually

pytestmark = pytest.mark.long

EPHEMERAL, PERSISTENT = True, False
Tree = Mapping[str, tuple[bytes, bool]]
"""Paths to data, and whether the node is ephemeral."""
Check = Callable[[Any], bool]


class Kind(NamedTuple):
    """A row of the table: which paths, whether they are ephemeral, and what the JSON there is at least."""

    path: str
    is_ephemeral: bool
    value: Check


def integer(value: Any) -> bool:
    return type(value) is int


def text(value: Any) -> bool:
    return isinstance(value, str)


def milliseconds(value: Any) -> bool:
    return text(value) and value.isdigit()


def one_of(*values: Any) -> Check:
    return lambda value: value in values and type(value) is type(values[0])


def list_of(check: Check) -> Check:
    return lambda value: isinstance(value, list) and all(map(check, value))


def mapping(key: str, check: Check) -> Check:
    """A JSON object whose names match `key`."""

    def matches(value: Any) -> bool:
        return isinstance(value, dict) and all(re.fullmatch(key, name) and check(each) for name, each in value.items())

    return matches


def fields(**checks: Check) -> Check:
    """A JSON object with at least these fields."""
    return lambda value: (
        isinstance(value, dict) and all(name in value and check(value[name]) for name, check in checks.items())
    )


NAME: Final = "[a-zA-Z0-9._-]+"
PARTITION: Final = fields(topic=text, partition=integer)
SPEC: Final = (
    Kind(
        "/brokers/ids/[0-9]+",
        EPHEMERAL,
        fields(version=one_of(1, 2, 3, 4, 5), host=text, port=integer, jmx_port=integer, timestamp=milliseconds),
    ),
    Kind(
        f"/brokers/topics/{NAME}",
        PERSISTENT,
        fields(version=one_of(1, 2, 3), partitions=mapping("[0-9]+", list_of(integer))),
    ),
    Kind(
        f"/brokers/topics/{NAME}/partitions/[0-9]+/state",
        PERSISTENT,
        fields(controller_epoch=integer, leader=integer, version=one_of(1), leader_epoch=integer, isr=list_of(integer)),
    ),
    Kind("/controller", EPHEMERAL, fields(version=one_of(1, 2), brokerid=integer, timestamp=milliseconds)),
    Kind("/controller_epoch", PERSISTENT, integer),
    Kind(
        f"/consumers/{NAME}/ids/{NAME}",
        EPHEMERAL,
        fields(
            version=one_of(1),
            subscription=mapping(".+", integer),
            pattern=one_of("static", "white_list", "black_list"),
            timestamp=milliseconds,
        ),
    ),
    Kind(f"/consumers/{NAME}/offsets/{NAME}/[0-9]+", PERSISTENT, integer),
    Kind(
        "/admin/reassign_partitions",
        PERSISTENT,
        fields(version=one_of(1), partitions=list_of(fields(topic=text, partition=integer, replicas=list_of(integer)))),
    ),
    Kind("/admin/preferred_replica_election", PERSISTENT, fields(version=one_of(1), partitions=list_of(PARTITION))),
    Kind(f"/config/topics/{NAME}", PERSISTENT, fields(version=one_of(1), config=mapping(".+", text))),
)
"""SPEC 8 without what has no JSON of its own: `/consumers/…/owners/…`, and the list in `/admin/delete_topics`."""
OF_A_BROKER: Final = {SPEC[number].path for number in (0, 1, 2, 3, 4, 9)}
"""The rows that a broker with a topic creates by itself."""


def check(tree: Tree) -> set[str]:
    """Compare every node that the table knows; the rows that some node is of."""
    seen: set[str] = set()
    for path, (data, is_ephemeral) in tree.items():
        for kind in SPEC:
            if re.fullmatch(kind.path, path):
                seen.add(kind.path)
                assert is_ephemeral == kind.is_ephemeral, path
                assert kind.value(json.loads(data)), (path, data)
    return seen


async def everything(tree: Reader) -> Tree:
    found = await read_subtree(tree, "/")
    nodes = await tree.get_many(found)
    return {path: (node.data, node.owner != 0) for path, node in zip(found, nodes, strict=True) if node is not None}


def in_sqlite(path: Path) -> Tree:
    async def read() -> Tree:
        tree = open_reader(f"sqlite:///{path}", system_runtime())
        try:
            return await everything(tree)
        finally:
            await tree.close()

    return asyncio.run(read())


def in_zookeeper(hosts: str) -> Tree:
    """Read the tree with kazoo alone."""
    client = KazooClient(hosts=hosts)
    client.start()
    tree: dict[str, tuple[bytes, bool]] = {}
    waiting = [""]
    while waiting:
        path = waiting.pop()
        data, stat = client.get(path or "/")
        tree[path or "/"] = data, stat.ephemeralOwner != 0
        waiting += [f"{path}/{name}" for name in client.get_children(path or "/")]
    client.stop()
    client.close()
    return tree


def create_topic(servers: str) -> None:
    admin = AdminClient({"bootstrap.servers": servers})
    topic = NewTopic("flights", 3, 1, config={"retention.ms": "1000"})
    admin.create_topics([topic])["flights"].result(DEADLINE_S)


def test_a_broker_in_memory_makes_the_tree_of_the_spec(tmp_path: Path) -> None:
    async def run() -> Tree:
        store = MemoryStore(MemoryTree())
        config = BrokerConfig.parse({"listeners": "PLAINTEXT://127.0.0.1:0", "log.dirs": str(tmp_path)})
        broker = Broker(config, system_runtime(), store)
        await broker.start()
        await broker.create_topics([PlannedTopic(name="flights", num_partitions=3, config={"retention.ms": "1000"})])
        tree = await everything(store)
        await broker.stop()
        assert not any(is_ephemeral for _, is_ephemeral in (await everything(store)).values())
        return tree

    tree = asyncio.run(run())
    assert check(tree) == OF_A_BROKER
    assert tree["/controller_epoch"][0] == b"1"


@contextmanager
def up(directory: Path, *options: str) -> Iterator[str]:
    """`odradek up` with three brokers; their addresses."""
    command = [sys.executable, "-m", "odradek", "up", "--brokers", "3", "--port", "0", "--data-dir", str(directory)]
    process = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        line = process.stdout.readline() if process.stdout else ""
        assert line.startswith("ready: "), process.communicate(timeout=DEADLINE_S)
        yield line.removeprefix("ready: ").strip()
    finally:
        os.kill(process.pid, signal.SIGTERM)
        process.communicate(timeout=DEADLINE_S)


@pytest.mark.parametrize("store", ["sqlite", pytest.param("zookeeper", marks=pytest.mark.needs("zookeeper"))])
def test_several_brokers_make_the_tree_of_the_spec(tmp_path: Path, store: str, request: pytest.FixtureRequest) -> None:
    if store == "zookeeper":
        at = f"{request.getfixturevalue('zookeeper').address}/several"
        options, read = ["--metadata", f"zookeeper://{at}"], lambda: in_zookeeper(at)
    else:
        options, read = [], lambda: in_sqlite(tmp_path / "metadata.sqlite")
    with up(tmp_path, *options) as servers:
        create_topic(servers)
        eventually(lambda: sum(path.endswith("/state") for path in read()) == 3)
        tree = read()
    assert check(tree) == OF_A_BROKER
    assert tree["/controller_epoch"][0] == b"1"
    assert json.loads(tree["/config/topics/flights"][0])["config"] == {"retention.ms": "1000"}
    registered = {path: json.loads(data) for path, (data, _) in tree.items() if path.startswith("/brokers/ids/")}
    assert {path: f"{each['host']}:{each['port']}" for path, each in registered.items()} == {
        f"/brokers/ids/{number}": address for number, address in enumerate(servers.split(","))
    }
    states = [json.loads(data) for path, (data, _) in tree.items() if path.endswith("/state")]
    assert sorted(state["leader"] for state in states) == [0, 1, 2]
    assert sum(path == "/controller" for path in tree) == 1


def test_nodes_of_tools_and_consumers_match_the_spec_too() -> None:
    """The rows that no broker creates by itself, as this project's writers encode them."""
    where = TopicPartition("t", 1)
    written = {
        "/consumers/g/ids/c": ConsumerNode(subscription={"t": 2}, pattern="static", timestamp_ms=5).encode(),
        "/consumers/g/offsets/t/1": encode_integer(2**40),
        "/admin/reassign_partitions": ReassignPartitionsNode(replicas={where: (1, 2)}).encode(),
        "/admin/preferred_replica_election": PreferredReplicaElectionNode(partitions=(where,)).encode(),
    }
    tree = {path: (data, "/ids/" in path) for path, data in written.items()}
    assert check(tree) == {kind.path for kind in SPEC} - OF_A_BROKER
    assert json.loads(DeleteTopicsNode(topics=("a", "b")).encode()) == {"version": 1, "topics": ["a", "b"]}


@pytest.mark.parametrize(
    ("path", "data", "is_ephemeral"),
    [
        ("/controller", b'{"version":1,"brokerid":"0","timestamp":"1"}', True),
        ("/controller", b'{"version":1,"brokerid":0,"timestamp":"1"}', False),
        ("/controller_epoch", b'"1"', False),
        ("/controller_epoch", b"true", False),
        ("/brokers/ids/1", b'{"version":1,"host":"h","port":1,"timestamp":"1"}', True),
        ("/brokers/topics/t", b'{"version":1,"partitions":{"x":[1]}}', False),
    ],
)
def test_the_comparison_finds_nodes_that_do_not_match_the_spec(path: str, data: bytes, is_ephemeral) -> None:
    with pytest.raises(AssertionError):
        check({path: (data, is_ephemeral)})
