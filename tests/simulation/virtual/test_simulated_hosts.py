"""The hosts of a simulation: a paused process runs nothing, and each host has a clock of its own."""

import asyncio

import pytest

from odradek.model import ErrorCode, TopicPartition
from odradek.simulation.virtual.simulation import Simulation
from odradek.simulation.world import World, until
from tests.world.scenes import in_world


class Collector(asyncio.Protocol):
    def __init__(self) -> None:
        self.data = b""

    def data_received(self, data: bytes) -> None:
        self.data += data


def test_a_paused_process_runs_nothing_and_then_everything_late() -> None:
    simulation, ticks = Simulation(1), list[float]()

    async def tick() -> None:
        while True:
            await asyncio.sleep(1)
            ticks.append(round(simulation.clock.elapsed_s, 1))

    async def main() -> None:
        with simulation.on("a"):
            ticking = asyncio.create_task(tick())
        await asyncio.sleep(2.5)
        simulation.pause("a")
        await asyncio.sleep(10)
        simulation.resume("a")
        await asyncio.sleep(1.7)
        ticking.cancel()

    simulation.run(main())
    assert ticks == [1.0, 2.0, 12.5, 13.5]


def test_data_for_a_paused_process_waits_in_its_open_sockets() -> None:
    simulation, server, client = Simulation(1), Collector(), Collector()

    async def main() -> None:
        await simulation.runtime("a").network.listen(lambda: server, "a", 1)
        transport, _ = await simulation.runtime("b").network.connect(lambda: client, "a", 1)
        await asyncio.sleep(1)
        simulation.pause("a")
        transport.write(b"one ")
        transport.write(b"two")
        await asyncio.sleep(60)
        assert (server.data, transport.is_closing()) == (b"", False)
        await simulation.runtime("b").network.connect(Collector, "a", 1)  # the kernel accepts it
        simulation.resume("a")
        await asyncio.sleep(1)
        assert server.data == b"one two"

    simulation.run(main())


@pytest.mark.parametrize("rate", [0.97, 1.03])
def test_timers_and_clocks_of_a_host_that_drifts_agree_with_each_other(rate: float) -> None:
    simulation, took_s, woke_s = Simulation(1), list[float](), list[float]()

    async def sleep() -> None:
        clock, loop = simulation.runtime("a").clock, asyncio.get_running_loop()
        began_s, began_ms = clock.monotonic(), clock.now_ms()
        await asyncio.sleep(100)
        assert clock.monotonic() == loop.time()
        assert clock.now_ms() - began_ms == 100_000
        took_s.append(clock.monotonic() - began_s)
        woke_s.append(simulation.clock.elapsed_s)

    async def main() -> None:
        with simulation.on("a"):
            sleeping = asyncio.create_task(sleep())
        await asyncio.sleep(50)
        simulation.set_rate("a", rate)  # the timer that is set follows
        await sleeping

    simulation.run(main())
    assert took_s == [pytest.approx(100)]
    assert woke_s == [pytest.approx(50 + 50 / rate)]


def test_the_wall_clock_of_one_host_jumps_alone() -> None:
    simulation = Simulation(1)
    one, other = (simulation.runtime(host).clock for host in ("a", "b"))
    before_s = one.monotonic()
    simulation.clock.host("a").wall_offset_ms = -60_000
    assert other.now_ms() - one.now_ms() == 60_000
    assert one.monotonic() == before_s


@in_world({"min.insync.replicas": "2"}, seed=1, brokers=3)
async def test_a_paused_leader_is_replaced_and_then_steps_down(world: World) -> None:
    await world.create_topic("t", replication_factor=3)
    place = TopicPartition("t", 0)
    (leader,) = [number for number, each in world.running.items() if each.partitions.get(place)]
    store, old = world.store(leader), world.running[leader]
    before = old.broker_epoch
    client = await world.client("client", broker=leader)
    world.pause(leader)
    answer = asyncio.create_task(client.produce("t", World.batch(b"late"), acks=-1))
    await until(lambda: any(each.partitions.get(place) for each in world.running.values() if each is not old))
    assert old.partitions.get(place) is not None, "the paused leader has not heard of it"
    assert not answer.done()
    world.resume(leader)
    await asyncio.sleep(0.5)
    store.reconnect()
    assert (await answer).error_code != ErrorCode.none
    await until(lambda: old.partitions.get(place) is None and old.broker_epoch > before)
