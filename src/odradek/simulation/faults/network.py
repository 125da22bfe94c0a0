"""Faults of the network between brokers, and between brokers and clients."""

from odradek.simulation.faults.schedule import Schedule
from odradek.simulation.faults.tree import disconnect_tree


async def disconnect(schedule: Schedule, one: int, other: int) -> None:
    """Disconnect two brokers in both directions."""
    hosts = schedule.world.hosts
    schedule.world.simulation.network.partition([hosts[one]], [hosts[other]])


async def disconnect_one_way(schedule: Schedule, one: int, other: int) -> None:
    """Lose all that one broker sends to another."""
    hosts = schedule.world.hosts
    schedule.world.simulation.network.block(hosts[one], hosts[other])


async def isolate(schedule: Schedule, one: int, other: int) -> None:
    """Disconnect a broker from all others, but not from clients and the tree."""
    del other
    hosts = schedule.world.hosts
    schedule.world.simulation.network.partition([hosts[one]], [host for host in hosts if host != hosts[one]])


async def reject(schedule: Schedule, one: int, other: int) -> None:
    """Reset a broker's connections, and refuse new ones to it, while it lives."""
    del other
    schedule.world.simulation.network.reject(schedule.world.hosts[one])


async def disconnect_client(schedule: Schedule, one: int, other: int) -> None:
    del other
    client = schedule.chance.choice(schedule.clients)
    schedule.world.simulation.network.partition([schedule.world.hosts[one]], [client])


async def lose_responses_to_clients(schedule: Schedule, one: int, other: int) -> None:
    """Lose a broker's responses to a client, so that the outcome of its requests is unknown."""
    del other
    client = schedule.chance.choice(schedule.clients)
    schedule.world.simulation.network.block(schedule.world.hosts[one], client)


async def slow_links(schedule: Schedule, one: int, other: int) -> None:
    """Delay all that a broker sends to another, and to a client."""
    hosts, network = schedule.world.hosts, schedule.world.simulation.network
    delay_s = schedule.chance.choice((0.02, 0.2, 1.5))
    for target in (hosts[other], schedule.chance.choice(schedule.clients)):
        network.slow_down(hosts[one], target, delay_s)


async def jitter(schedule: Schedule, one: int, other: int) -> None:
    """Give each piece of data a latency of its own, so that data of one connection overtakes that of another."""
    del one, other
    network = schedule.world.simulation.network
    before, network.latency_s = network.latency_s, (5e-5, schedule.chance.choice((0.05, 0.4)))

    async def calm_down() -> None:
        network.latency_s = before

    schedule.later(calm_down)


async def unplug(schedule: Schedule, one: int, other: int) -> None:
    """Disconnect a broker from everything, the tree as well, while its tasks go on."""
    world, host = schedule.world, schedule.world.hosts[one]
    others = [each for each in (*world.hosts, *schedule.clients) if each != host]
    world.simulation.network.partition([host], others)
    await disconnect_tree(schedule, one, other)
