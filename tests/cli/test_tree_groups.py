"""`odradek groups tree|migrate`: groups of generation 1 in the tree (M4, M8)."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from odradek.cli import main
from odradek.clients import Admin, Consumer, ZookeeperConsumer
from odradek.clients.zookeeper_consumer.group_tree import create_persistent
from odradek.clients.zookeeper_consumer.tree_groups import set_offsets
from odradek.metadata.store import Store
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
        for topic in ("t", "owned", "modern"):
            await admin.create_topic(topic, partitions=2)


@pytest.fixture(name="group")
def fixture_group(at: tuple[str, ...], request: pytest.FixtureRequest) -> str:
    """A group, named after the test, with offsets of two partitions in the tree and without consumers."""
    group = request.node.name
    change(at, {TopicPartition("t", 0): 3, TopicPartition("t", 1): 4}, group)
    return group


def change(at: tuple[str, ...], offsets: dict[TopicPartition, int], group: str) -> None:
    in_tree(at, lambda store: set_offsets(store, group, offsets))


def in_tree(at: tuple[str, ...], change: Callable[[Store], Awaitable[object]]) -> None:
    """Change the tree in a session of its own."""

    async def work() -> None:
        store = open_store(at[1], system_runtime())
        try:
            await change(store)
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
def living(member: AbstractAsyncContextManager[object]) -> Iterator[None]:
    """Run a member of a group in an event loop of its own."""
    joined, ended = threading.Event(), threading.Event()

    async def live() -> None:
        async with member:
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


@asynccontextmanager
async def zookeeper_member(url: str) -> AsyncIterator[None]:
    """A member of generation 1, in the group `living`, with two threads."""
    async with ZookeeperConsumer(url, group_id="living", consumer_id="c1") as consumer:
        await consumer.create_message_streams({"owned": 2})
        yield


@asynccontextmanager
async def modern_member(servers: str, group: str) -> AsyncIterator[None]:
    """A member of generation 2 that has committed an offset of the topic `modern`."""
    async with Consumer("modern", bootstrap_servers=servers, group_id=group, client_id="living") as consumer:
        while not consumer.assignment():
            await consumer.poll(timeout_ms=100)
        await consumer.commit({TopicPartition("modern", 0): 7})
        yield


def test_a_group_is_shown_with_its_consumers_owners_and_offsets(at: tuple[str, ...]) -> None:
    with living(zookeeper_member(at[1])):
        shown = odradek("tree", "living", *at[:2])
        assert "owned × 2" in shown.stdout
        assert [line.split()[-1] for line in shown.stdout.splitlines()[-2:]] == ["living_c1-0", "living_c1-1"]
        found = json.loads(odradek("tree", "living", *at[:2], "--json").stdout)
        assert found["members"] == [{"consumer_id": "living_c1", "subscription": {"owned": 2}, "pattern": "static"}]
        refused = odradek("migrate", "living", "--to", "kafka", *at, fails=1)
        assert "has consumers in the tree: living_c1" in refused.output


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


@pytest.mark.parametrize("target", ["kafka", "zookeeper"])
def test_a_group_with_members_in_kafka_is_not_copied(at: tuple[str, ...], group: str, target: str) -> None:
    with living(modern_member(at[3], group)):
        refused = odradek("migrate", group, "--to", target, "--execute", *at, fails=1).output
    assert "has members in Kafka: living-" in refused
    assert "stop them and try again" in refused
    found = json.loads(odradek("tree", group, *at[:2], "--json").stdout)
    assert {each["topic"] for each in found["partitions"]} == {"t"}


@pytest.mark.parametrize("arguments", [("tree", "a/ids"), ("tree", ".."), ("migrate", "a/ids", "--to", "zookeeper")])
def test_an_id_that_names_another_node_is_refused(at: tuple[str, ...], arguments: tuple[str, ...]) -> None:
    places = at[:2] if arguments[0] == "tree" else at
    assert "GROUP is the name of a node in the tree" in odradek(*arguments, *places, fails=2).output


@pytest.mark.parametrize("node", ["ids/x", "offsets/t/1"], ids=["registration", "offset"])
def test_a_group_with_a_broken_node_is_shown_and_not_copied(at: tuple[str, ...], group: str, node: str) -> None:
    path = f"/consumers/{group}/{node}"

    async def spoil(store: Store) -> None:
        await create_persistent(store, [f"/consumers/{group}/ids", path])
        await store.set(path, b"oops")

    in_tree(at, spoil)
    try:
        for arguments in ((), (group,)):
            shown = odradek("tree", *arguments, *at[:2], "--json")
            (found,) = [each for each in map(json.loads, shown.stdout.splitlines()) if each["group_id"] == group]
            assert found["group_state"] == "Broken"
            assert f"left out: the metadata node {path} is broken" in shown.stderr
        assert {"partition": 0, "committed_offset": 3, "topic": "t", "owner": None} in found["partitions"]
        assert f"the metadata node {path} is broken" in odradek("migrate", group, "--to", "kafka", *at, fails=1).output
    finally:
        in_tree(at, lambda store: store.delete(path))


def test_a_negative_offset_in_the_tree_is_none(at: tuple[str, ...], group: str) -> None:
    change(at, {TopicPartition("t", 0): -1}, group)
    moved = odradek("migrate", group, "--to", "kafka", *at, "--json").stdout.splitlines()
    assert [json.loads(line)["partition"] for line in moved] == [1]


def test_an_offset_of_a_deleted_topic_does_not_stop_a_copy(at: tuple[str, ...], group: str) -> None:
    change(at, {TopicPartition("gone", 0): 7, TopicPartition("t", 2): 1}, group)
    done = odradek("migrate", group, "--to", "kafka", "--execute", *at, "--json")
    moved = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(each["topic"], each["partition"], each["new_offset"]) for each in moved] == [("t", 0, 3), ("t", 1, 4)]
    assert done.stderr.splitlines() == [
        "left out: there is no partition gone-0", "left out: there is no partition t-2",
    ]  # fmt: skip
    change(at, {TopicPartition("gone", 0): 7}, f"{group}-alone")
    refused = odradek("migrate", f"{group}-alone", "--to", "kafka", *at, fails=1).output
    assert "has no offsets in the tree for a partition that exists" in refused
