"""`odradek groups tree|migrate`: groups of generation 1 in the tree (M4, M8)."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli import main
from odradek.clients import Admin, ZookeeperConsumer
from odradek.clients.zookeeper_consumer.tree_groups import set_offsets
from odradek.model import TopicPartition
from odradek.runtime import system_runtime
from odradek.stores import open_store
from odradek.testing import Cluster


def odradek(*arguments: str, fails: int = 0) -> Result:
    result = CliRunner().invoke(main, ["groups", *arguments])
    assert result.exit_code == fails, result.output
    return result


@pytest.fixture(name="at", scope="module")
def fixture_at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, ...]]:
    """The options of a cluster with a group in its tree that has a consumer and offsets."""
    folder: Path = tmp_path_factory.mktemp("cluster")
    with Cluster(brokers=1, data_dir=folder) as cluster:
        asyncio.run(create_topics(cluster.bootstrap_servers))
        yield ("--metadata", f"sqlite:///{folder}/metadata.sqlite", "-b", cluster.bootstrap_servers)


async def create_topics(servers: str) -> None:
    async with Admin(servers) as admin:
        for topic in ("t", "owned"):
            await admin.create_topic(topic, partitions=2)


@pytest.fixture(name="group")
def fixture_group(at: tuple[str, ...], request: pytest.FixtureRequest) -> str:
    """A group, named after the test, with offsets of two partitions in the tree and without consumers."""
    group = request.node.name
    change(at, {TopicPartition("t", 0): 3, TopicPartition("t", 1): 4}, group)
    return group


def change(at: tuple[str, ...], offsets: dict[TopicPartition, int], group: str) -> None:
    async def work() -> None:
        store = open_store(at[1], system_runtime())
        try:
            await set_offsets(store, group, offsets)
        finally:
            await store.close()

    asyncio.run(work())


def test_a_group_without_consumers_is_listed_as_empty(at: tuple[str, ...], group: str) -> None:
    listed = {
        each["group_id"]: each for each in map(json.loads, odradek("tree", *at[:2], "--json").stdout.splitlines())
    }
    assert listed[group] == {"group_id": group, "group_state": "Empty", "group_type": "zookeeper"}
    assert group in odradek("tree", *at[:2]).stdout


@contextmanager
def living_group(at: tuple[str, ...]) -> Iterator[None]:
    """Run a consumer with two threads in an event loop of its own."""
    joined, ended = threading.Event(), threading.Event()

    async def live() -> None:
        async with ZookeeperConsumer(at[1], group_id="living", consumer_id="c1") as consumer:
            await consumer.create_message_streams({"owned": 2})
            joined.set()
            await asyncio.to_thread(ended.wait, 60)

    life = threading.Thread(target=asyncio.run, args=(live(),))
    life.start()
    try:
        assert joined.wait(60)
        yield
    finally:
        ended.set()
        life.join()


def test_a_group_is_shown_with_its_consumers_owners_and_offsets(at: tuple[str, ...]) -> None:
    with living_group(at):
        shown = odradek("tree", "living", *at[:2])
        assert "owned × 2" in shown.stdout
        assert [line.split()[-1] for line in shown.stdout.splitlines()[-2:]] == ["c1-0", "c1-1"]
        found = json.loads(odradek("tree", "living", *at[:2], "--json").stdout)
        assert found["members"] == [{"consumer_id": "c1", "subscription": {"owned": 2}, "pattern": "static"}]
        refused = odradek("migrate", "living", "--to", "kafka", *at, fails=1)
        assert "has consumers in the tree: c1" in refused.output


def test_offsets_move_to_kafka_and_back(at: tuple[str, ...], group: str) -> None:
    shown = odradek("migrate", group, "--to", "kafka", *at, "--json")
    assert [json.loads(line)["executed"] for line in shown.stdout.splitlines()] == [False, False]
    assert "dry run" in shown.stderr
    odradek("migrate", group, "--to", "kafka", "--execute", *at)
    change(at, {TopicPartition("t", 0): 0}, group)
    back = odradek("migrate", group, "--to", "zookeeper", "--execute", *at, "--json")
    moved = [json.loads(line) for line in back.stdout.splitlines()]
    assert [(each["partition"], each["committed_offset"], each["new_offset"]) for each in moved] == [
        (0, 0, 3),
        (1, 4, 4),
    ]
    found = json.loads(odradek("tree", group, *at[:2], "--json").stdout)
    assert [each["committed_offset"] for each in found["partitions"]] == [3, 4]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("tree", "nothing"), "the tree has no group 'nothing'"),
        (("migrate", "nothing", "--to", "kafka"), "group 'nothing' has no offsets in the tree"),
        (("migrate", "nothing", "--to", "zookeeper"), "group 'nothing' has no offsets in Kafka"),
    ],
)
def test_a_group_that_does_not_exist_is_refused(at: tuple[str, ...], arguments: tuple[str, ...], message: str) -> None:
    places = at[:2] if arguments[0] == "tree" else at
    assert message in odradek(*arguments, *places, fails=1).output
