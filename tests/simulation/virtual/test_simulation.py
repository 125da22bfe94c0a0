"""A simulation: hosts with disks and a network, one seed, and no failure that goes unnoticed."""

import asyncio
import struct

import pytest

from odradek.protocol.api import ApiKey
from odradek.testing import BlockingWireClient, Cluster, MemoryDisk, Simulation, World, simulated_runtime
from tests.world.scenes import in_world


def test_a_host_keeps_its_disk_from_run_to_run_and_shares_it_with_no_other():
    simulation = Simulation(1)

    async def write() -> None:
        simulation.runtime("a").disk.replace_file("/note", b"kept")

    simulation.run(write())
    assert simulation.runtime("a").disk.read_file("/note") == b"kept"
    assert not simulation.runtime("b").disk.exists("/note")


def test_the_wall_clock_is_the_same_every_time_and_moves_with_the_loop():
    simulation = Simulation(1)
    clock = simulation.runtime().clock
    before_ms = clock.now_ms()
    simulation.run(asyncio.sleep(90))
    assert clock.now_ms() - before_ms == 90_000
    assert before_ms == simulated_runtime(2).clock.now_ms()


def test_random_numbers_of_one_host_do_not_shift_those_of_another():
    quiet, busy = Simulation(5), Simulation(5)
    busy.runtime("a").entropy.random()
    assert quiet.runtime("b").entropy.random() == busy.runtime("b").entropy.random()


def test_an_exception_in_a_task_that_is_not_awaited_fails_the_run():
    async def fail() -> None:
        raise ValueError("unheard")

    async def main() -> None:
        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        assert task.done()

    with pytest.raises(ExceptionGroup) as caught:
        Simulation(1).run(main())
    assert [str(error) for error in caught.value.exceptions] == ["unheard"]


def test_an_exception_in_a_callback_fails_the_run():
    async def main() -> None:
        asyncio.get_running_loop().call_soon(lambda: 1 / 0)
        await asyncio.sleep(1)

    with pytest.raises(ExceptionGroup) as caught:
        Simulation(1).run(main())
    assert isinstance(caught.value.exceptions[0], ZeroDivisionError)


def test_a_failure_says_its_seed_and_what_happened_before():
    async def main() -> None:
        await asyncio.sleep(2)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no") as caught:
        Simulation(77).run(main())
    notes = "\n".join(caught.value.__notes__)
    assert "seed 77, 2.000000 s after the start" in notes
    assert "task 1" in notes


def test_a_killed_host_leaves_its_files_and_frees_its_locks():
    simulation = Simulation(1)
    disk = simulation.disk("a")
    disk.replace_file("/data", b"x")
    disk.lock("/.lock", "held")
    simulation.kill("a")
    disk.lock("/.lock", "held again")
    assert disk.read_file("/data") == b"x"
    assert isinstance(disk, MemoryDisk)


# ---- The wire clients ------------------------------------------------------------------------------------------------

CLUSTER = {"include_cluster_authorized_operations": False, "endpoint_type": 1, "include_fenced_brokers": False}


UNKNOWN_API = struct.pack(">hhih", 9999, 0, 1, -1)


@in_world()
async def test_a_response_goes_to_its_request_and_all_others_are_received_in_order(world: World) -> None:
    client = await world.client()
    client.send(ApiKey.DESCRIBE_CLUSTER, CLUSTER)
    versions = client.request(ApiKey.API_VERSIONS, {}, 0)
    client.send(ApiKey.LIST_GROUPS, {"states_filter": []}, 4)
    assert ApiKey.METADATA in [each.api_key for each in (await versions).api_keys]
    assert (await client.answer()).cluster_id == world.broker.image.cluster_id
    assert (await client.answer()).groups == ()


@in_world()
async def test_a_closed_connection_ends_every_wait(world: World) -> None:
    client, other = await world.client(), await world.client("other")
    client.send_bytes(UNKNOWN_API)
    assert await client.receive() is None
    other.send_bytes(UNKNOWN_API)
    with pytest.raises(ConnectionResetError):
        await other.ask(ApiKey.DESCRIBE_CLUSTER, CLUSTER)
    assert client.is_closed
    assert other.is_closed


def test_the_blocking_client_receives_responses_and_the_end_of_the_connection():
    with Cluster() as cluster, BlockingWireClient(cluster.bootstrap_servers) as client:
        assert client.create_topic("t").error_code == 0
        assert [each.broker_id for each in client.ask(ApiKey.DESCRIBE_CLUSTER, CLUSTER).brokers] == [0]
        client.send_raw(struct.pack(">i", len(UNKNOWN_API)) + UNKNOWN_API)
        assert client.receive() is None
        with pytest.raises(ConnectionResetError):
            client.ask(ApiKey.DESCRIBE_CLUSTER, CLUSTER)
