"""Faults of the network between brokers, and between brokers and clients."""

from odradek.testing.simulated_cluster.faults.schedule import Schedule


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
    """Disconnect a client and a broker in both directions."""
    del other
    client = schedule.chance.choice(schedule.clients)
    schedule.world.simulation.network.partition([schedule.world.hosts[one]], [client])


async def lose_responses_to_clients(schedule: Schedule, one: int, other: int) -> None:
    """Lose a broker's responses to a client, so that the outcome of its requests is unknown."""
    del other
    client = schedule.chance.choice(schedule.clients)
    schedule.world.simulation.network.block(schedule.world.hosts[one], client)
