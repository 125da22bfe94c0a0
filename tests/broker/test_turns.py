"""Long work of many clients shares the event loop: it has few turns in each iteration."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Any, Final

import pytest

from odradek.broker import turns
from odradek.broker.coordinators import runtime as coordinator_runtime
from odradek.broker.handlers import offset_fetch
from odradek.broker.handlers.config_resources import ConfigResourceType
from odradek.broker.security.context import RequestContext
from odradek.broker.serving.dispatch import MOST_LARGE
from odradek.broker.turns import HEAVY, TURN, Steps, in_turns
from odradek.model import ErrorCode
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.compression import Codec
from odradek.runtime.turns import MOST_TURNS, call_in_turn, next_turn
from odradek.simulation.world import World
from odradek.testing import Simulation
from odradek.wire.connection import Connection
from tests.world.scenes import awaited, in_world

CONFIG: Final = {"offsets.topic.num.partitions": "1", "auto.create.topics.enable": "false"}
TOPICS: Final = 12
PARTITIONS: Final = 20
CLIENTS: Final = 40


@awaited
async def test_one_iteration_of_the_event_loop_has_few_turns_of_all_long_work() -> None:
    iteration, turns = 0, Counter[int]()

    def steps() -> Steps[bool]:
        for _ in range(10):
            yield TURN
            turns[iteration] += 1
        return True

    tasks = [asyncio.create_task(in_turns(steps())) for _ in range(50)]
    tasks[7].cancel()
    await asyncio.sleep(0)  # each has its first turn
    turns.clear()
    while not all(task.done() for task in tasks):
        iteration += 1
        await asyncio.sleep(0)
    assert sum(turns.values()) == 49 * 10
    assert max(turns.values()) == MOST_TURNS


async def _commit(world: World) -> None:
    client = await world.client()
    names = [f"t{number}" for number in range(TOPICS)]
    for name in names:
        await client.create_topic(name, PARTITIONS)
    await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}, 4)
    await world.pass_time(2)
    answer = await client.ask(ApiKey.OFFSET_COMMIT, _committed(dict.fromkeys(names, PARTITIONS)), 8)
    assert {each.error_code for each in answer.topics[0].partitions} == {ErrorCode.none}


@awaited
async def test_work_goes_on_after_an_error_of_other_work() -> None:
    failures: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, found: failures.append(found["exception"]))
    call_in_turn(lambda: 1 // 0)
    async with asyncio.timeout(1):
        await next_turn()
    assert [type(each) for each in failures] == [ZeroDivisionError]


def test_work_of_a_host_goes_on_while_another_host_is_paused() -> None:
    simulation, done = Simulation(0), list[str]()

    async def work(host: str) -> None:
        await next_turn()
        done.append(host)

    async def main() -> None:
        tasks = []
        for host in ("a", "b"):
            with simulation.on(host):
                tasks.append(asyncio.create_task(work(host)))
        await asyncio.sleep(0)  # both wait for their turns
        simulation.pause("a")
        await asyncio.sleep(1)
        assert done == ["b"]
        simulation.resume("a")
        await asyncio.wait(tasks)
        assert done == ["b", "a"]

    simulation.run(main())


def _committed(partitions: Mapping[str, int]) -> dict[str, object]:
    """Return an OffsetCommit for all partitions of topics, whose numbers are given."""
    offset = {"committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
    return {
        "group_id": "g",
        "generation_id_or_member_epoch": -1,
        "member_id": "",
        "group_instance_id": None,
        "topics": [
            {"name": name, "partitions": [{"partition_index": number, **offset} for number in range(count)]}
            for name, count in partitions.items()
        ],
    }


@in_world(CONFIG)
async def test_few_long_responses_are_built_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    """A response may be ten thousand times larger than its request, and in memory before it is encoded."""
    await _commit(world)
    monkeypatch.setattr(turns, "TURN", PARTITIONS)
    # All hosts of a world have the same address.
    monkeypatch.setattr(RequestContext, "client_key", property(lambda context: context.client_id))
    built, most, asked = 0, 0, offset_fetch._answer

    def counted(*arguments: Any) -> Steps[dict[str, object]]:
        nonlocal built, most
        built += 1
        most = max(most, built)
        try:
            return (yield from asked(*arguments))
        finally:
            built -= 1

    monkeypatch.setattr(offset_fetch, "_answer", counted)
    message = {"groups": [{"group_id": "g", "topics": None}], "require_stable": False}

    async def ask_at_once(*names: str) -> None:
        clients = [await world.client(name) for name in names for _ in range(CLIENTS)]
        world.pause()
        answers = [asyncio.create_task(each.ask(ApiKey.OFFSET_FETCH, message, 8)) for each in clients]
        await world.pass_time(1)
        world.resume()
        assert {len((await each).groups[0].topics) for each in answers} == {TOPICS}

    await ask_at_once("one")
    assert (built, most) == (0, 8)
    await ask_at_once("one", "other")
    assert (built, most) == (0, 16), "no client waits for another's"


@in_world({**CONFIG, "queued.max.request.bytes": "2097152", "socket.request.max.bytes": "1048576"})
async def test_no_long_response_is_built_while_unread_ones_take_too_much_memory(world: World) -> None:
    await _commit(world)
    client = await world.client()
    pressure = world.broker.server.memory_pressure
    unread = 1 << 22
    pressure.answered(unread)
    monitored = next(iter(pressure._connections))
    message = {"groups": [{"group_id": "g", "topics": None}], "require_stable": False}
    use = monitored.memory_use()._replace(response_bytes=unread, held_bytes=0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(type(monitored), "memory_use", lambda _: use)
        asked = asyncio.create_task(client.ask(ApiKey.OFFSET_FETCH, message, 8))
        await world.pass_time(5)
        assert not asked.done()
    assert (await asked).groups[0].topics[0].partitions


@in_world(CONFIG)
async def test_large_requests_are_served_while_the_check_of_a_batch_takes_long(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among them are the controller's commands; a batch may take seconds to be compressed anew."""
    producer, client = await world.client(), await world.client("other")
    await client.create_topic("t", config={"compression.type": "gzip"})
    checks: list[Any] = []
    submit = world.runtime.checker.submit

    def later(check: Any) -> Any:
        checks.append(check)
        return waiting

    waiting: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    monkeypatch.setattr(
        type(world.runtime.checker),
        "submit",
        lambda worker, work: submit(work) if worker is not world.runtime.checker else later(work),
    )
    batch = world.batch(bytes(1 << 20), codec=Codec.ZSTD)
    producing = asyncio.create_task(producer.produce("t", batch))
    await world.pass_time(1)
    message = {
        "topics": [{"topic_id": None, "name": f"{number:05}"} for number in range(5000)],
        "allow_auto_topic_creation": False,
        "include_cluster_authorized_operations": False,
        "include_topic_authorized_operations": False,
    }
    found = await client.ask(ApiKey.METADATA, message, 9)
    assert len(found.topics) == 5000
    assert len(checks) == 1
    assert not producing.done()
    waiting.set_result(checks[0]())
    assert (await producing).error_code == ErrorCode.none


@in_world(CONFIG)
async def test_the_groups_of_one_request_are_deleted_in_turns_by_the_number_of_their_offsets(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _commit(world)
    seen: list[int] = []
    monkeypatch.setattr(coordinator_runtime, "cooperatively", lambda items, weigh: _noted(items, weigh, seen))
    client = await world.client()
    deleted = await client.ask(ApiKey.DELETE_GROUPS, {"groups_names": ["g", "unknown"]}, 2)
    assert [each.error_code for each in deleted.results] == [ErrorCode.none, ErrorCode.group_id_not_found]
    assert seen[:2] == [HEAVY + 4 * TOPICS * PARTITIONS, HEAVY]


async def _noted(items: Iterable[Any], weigh: Callable[[Any], int], seen: list[int]) -> AsyncIterator[Any]:
    for item in items:
        seen.append(weigh(item))
        yield item


@in_world({**CONFIG, "queued.max.request.bytes": "2097152", "socket.request.max.bytes": "1048576"})
async def test_a_small_request_may_commit_more_offsets_than_one_turn_has(world: World) -> None:
    """Its response is no longer than the request, so that it does not wait until others are read."""
    client = await world.client()
    await client.create_topic("t", TURN + 1)
    await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": ["g"]}, 4)
    await world.pass_time(2)
    began_s = world.now_s
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(world.broker.server.memory_pressure, "response_room", lambda: 0)
        answer = await client.ask(ApiKey.OFFSET_COMMIT, _committed({"t": TURN + 1}), 8)
    assert Counter(each.error_code for each in answer.topics[0].partitions) == {ErrorCode.none: TURN + 1}
    assert world.now_s - began_s < 1


@in_world(CONFIG)
async def test_large_requests_that_wait_for_their_clients_long_responses_hold_up_no_others(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Among the others are the controller's commands."""
    monkeypatch.setattr(RequestContext, "client_key", property(lambda context: context.client_id))
    names = {"resource_type": ConfigResourceType.TOPIC, "configuration_keys": []}
    message = {
        "resources": [{"resource_name": f"{number:05}", **names} for number in range(2000)],
        "include_synonyms": False,
        "include_documentation": False,
    }
    dispatcher, room = world.broker.dispatcher, asyncio.Event()
    clients = [await world.client(name) for name in ["hostile"] * 2 * MOST_LARGE + ["other"]]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "response_room", lambda _: room.wait())
        asked = [asyncio.create_task(each.ask(ApiKey.DESCRIBE_CONFIGS, message, 4)) for each in clients[:-1]]
        await world.pass_time(1)
    assert not any(each.done() for each in asked)
    other = asyncio.create_task(clients[-1].ask(ApiKey.DESCRIBE_CONFIGS, message, 4))
    await world.pass_time(5)
    assert other.done()
    room.set()
    for each in (*asked, other):
        assert len((await each).results) == 2000
    for _ in range(MOST_LARGE):
        await dispatcher.few_large.acquire()
    assert dispatcher.few_large.locked()
