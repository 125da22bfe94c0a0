"""The same shell on a SQLite tree and the machine's own loop."""

import asyncio
from pathlib import Path

import pytest

from odradek.broker.controller_shell import ControllerShell
from odradek.config import BrokerConfig, ListenerAddress
from odradek.controller import NewTopic
from odradek.runtime import system_runtime
from odradek.stores import SqliteStore

pytestmark = pytest.mark.asyncio


async def begin(path: Path, broker_id: int = 0) -> tuple[SqliteStore, ControllerShell]:
    store = SqliteStore(str(path), system_runtime())
    endpoint = ListenerAddress("PLAINTEXT", "localhost", 9092 + broker_id)
    shell = ControllerShell(
        store, broker_id, [endpoint], BrokerConfig(), system_runtime(), on_image=lambda old, new: None
    )
    await shell.start()
    return store, shell


async def test_topics_outlive_a_broker_that_was_killed(tmp_path) -> None:
    """M9."""
    path = tmp_path / "metadata.sqlite"
    store, shell = await begin(path)
    await shell.create_topics([NewTopic(name="a", num_partitions=3), NewTopic(name="b")])
    await shell.delete_topics(["b"])
    shell.kill()
    store.abandon()
    store, again = await begin(path)
    assert again.is_controller
    assert again.image.controller_epoch == 2
    assert again.image.topics == shell.image.topics
    assert list(again.image.topics) == ["a"]
    await again.stop()
    await store.close()


async def test_a_broker_takes_over_from_one_that_was_killed(tmp_path) -> None:
    """M1."""
    path = tmp_path / "metadata.sqlite"
    (store_one, one), (store_two, two) = await begin(path, 1), await begin(path, 2)
    async with asyncio.timeout(30):
        while len(one.image.brokers) < 2:
            await asyncio.sleep(0.01)
        await one.create_topics([NewTopic(name="a", assignment={0: (1, 2)})])
        one.kill()
        store_one.abandon()
        while not (two.is_controller and two.image.topics["a"].partitions[0].leader == 2):
            await asyncio.sleep(0.01)
    await two.stop()
    await store_two.close()
