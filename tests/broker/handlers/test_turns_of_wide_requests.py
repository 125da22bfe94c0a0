"""A request that asks for very much does not keep others waiting until all of it is done."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest

from odradek.broker.cluster.counted_store import CountedStore
from odradek.broker.controller.controller import Controller
from odradek.broker.handlers import create_topics
from odradek.broker.security.admission import Admission
from odradek.broker.security.context import RequestContext, Session
from odradek.broker.turns import TURN
from odradek.metadata.new_topic import NewTopic
from odradek.metadata.store import Create, Node, Operation, Result, Store
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import decode_request, encode_request
from odradek.security import ALLOW_ALL
from odradek.simulation.virtual.disk import MemoryDisk
from odradek.simulation.world import World
from odradek.testing import Simulation
from tests.world.scenes import played

WIDTH: Final = 320
LONGEST_TURN: Final = 16
"""Topics that are looked at before others may go on."""


@played
async def test_many_topics_are_validated_in_turns(world: World) -> None:
    counts = {"num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    topics = [{"name": f"t{number}", **counts} for number in range(WIDTH)]
    body = encode_request(ApiKey.CREATE_TOPICS, 7, {"topics": topics, "timeout": 60_000, "validate_only": True})
    message = decode_request(ApiKey.CREATE_TOPICS, 7, body)
    session = cast("Session", SimpleNamespace(admission=Admission(ALLOW_ALL)))
    context = RequestContext(cast("Any", None), session)
    answer = asyncio.ensure_future(create_topics.handle(await world.start(), context, message))
    turns = 0
    while not answer.done():
        await asyncio.sleep(0)
        turns += 1
    assert len((await answer)["topics"]) == WIDTH
    # When they are read, when they are planned, and when the answer is written.
    assert turns >= 3 * WIDTH // LONGEST_TURN


@played
async def test_the_partitions_of_a_topic_are_placed_in_turns(world: World) -> None:
    async def turns_for(controller: Controller, partitions: int) -> int:
        wanted = [NewTopic(name="t", num_partitions=partitions, replication_factor=1)]
        turns, working = 0, asyncio.ensure_future(controller.create_topics(wanted, validate_only=True))
        while not working.done():
            await asyncio.sleep(0)
            turns += 1
        return turns

    controller = (await world.start()).controller
    assert await turns_for(controller, 10 * TURN) >= await turns_for(controller, 1) + 10


@played
async def test_a_deletion_of_many_partitions_syncs_their_directory_once(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync_directory, synced = MemoryDisk.sync_directory, []

    def counted(disk: MemoryDisk, path: str) -> None:
        synced.append(path)
        sync_directory(disk, path)

    await world.start()
    client = await world.client()
    await client.create_topic("t", 40)
    monkeypatch.setattr(MemoryDisk, "sync_directory", counted)
    await client.ask(ApiKey.DELETE_TOPICS, {"topic_names": ["t"], "timeout": 60_000}, 5)
    assert len(synced) == 1


class PromptStore:
    """A store that never waits, as one in this process."""

    async def multi(self, operations: Sequence[Operation]) -> list[Result]:
        return [cast("Result", None) for _ in operations]

    async def get_many(self, paths: Iterable[str]) -> list[Node | None]:
        return [None for _ in paths]


@pytest.mark.parametrize(
    "ask",
    [lambda tree: tree.multi([Create(path="/a", data=b"")]), lambda tree: tree.get_many(["/a", "/b"])],
    ids=["multi", "get_many"],
)
def test_wide_requests_to_a_prompt_tree_yield_to_other_tasks(ask: Callable[[CountedStore], Any], seed: int) -> None:
    async def scene() -> None:
        tree = CountedStore(cast("Store", PromptStore()))
        went_on: list[bool] = []
        asyncio.get_running_loop().call_soon(went_on.append, True)
        await ask(tree)
        assert went_on

    Simulation(seed).run(scene())
