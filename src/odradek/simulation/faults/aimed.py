"""Faults that wait for the moments in which they matter: most of these last milliseconds, and are rare."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from odradek.broker.replication.partition import Partition
from odradek.model.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from odradek.model.probes import listening
from odradek.simulation.faults.processes import cut_power, kill, stop
from odradek.simulation.faults.schedule import Schedule, is_in_tree, partition_states
from odradek.simulation.faults.tree import blink, depose, disconnect_tree, expire
from odradek.simulation.virtual.clock import HOST
from odradek.simulation.virtual.loop import pass_time
from odradek.simulation.world import World, until

_LONGEST_WAIT_S = 12.0


async def kill_leader_ahead(schedule: Schedule, one: int, other: int) -> None:
    """Kill a leader, or cut its power, when it has records that a follower lacks; perhaps kill the next leader, too.

    The next leader may be cut off from the others before it is killed. The killed brokers may restart at once.
    """
    del other
    world, chance = schedule.world, schedule.chance
    found = await _find(schedule, one, lambda partition: _is_ahead(world, partition))
    if found is None:
        return
    await asyncio.sleep(chance.choice((0.0, 0.003, 0.05)) * chance.random())
    number, place = found.replication.broker_id, found.topic_partition
    if number in world.running:
        has_power_cut = schedule.power_may_go() and chance.random() < 0.4
        await (cut_power if has_power_cut else kill)(schedule, number, number)
    if chance.random() < 0.5:
        following = await _find(schedule, one, lambda partition: partition.topic_partition == place)
        if following is not None:
            number = following.replication.broker_id
            if chance.random() < 0.5:
                _cut_off(schedule, number)
            await asyncio.sleep(chance.choice((0.0, 0.05, 2.0)) * chance.random())
            if number in world.running:
                await kill(schedule, number, number)
    if chance.random() < 0.5:
        await schedule.end_faults()


def _is_ahead(world: World, partition: Partition) -> bool:
    """Return whether a running follower lacks records of the leader."""
    logs = [broker.logs.get(partition.topic_partition) for broker in world.running.values()]
    return any(log is not None and log.written_offset < partition.log.written_offset for log in logs)


async def strand_leader(schedule: Schedule, one: int, other: int) -> None:
    """Cut a leader off from the other brokers, perhaps from the tree, but not from its clients; then often kill it.

    Or cut it off a second time, after it has led on with its followers.
    """
    del other
    world, chance = schedule.world, schedule.chance
    found = await _find(schedule, one, lambda partition: bool(partition.replication.remotes))
    if found is None:
        return
    number = found.replication.broker_id
    _cut_off(schedule, number)
    if chance.random() < 0.5:
        await disconnect_tree(schedule, number, number)
        if chance.random() < 0.5:
            await expire(schedule, number, number)
    await asyncio.sleep(chance.choice((1.0, 5.0, _LONGEST_WAIT_S)) * chance.random())
    if chance.random() < 0.3:
        await schedule.end_faults()
        await asyncio.sleep(chance.choice((0.1, 3.0)))
        _cut_off(schedule, number)
        await asyncio.sleep(chance.choice((5.0, _LONGEST_WAIT_S)))
    elif number in world.running and chance.random() < 0.7:
        await kill(schedule, number, number)


async def kill_at_isr_change(schedule: Schedule, one: int, other: int) -> None:
    """Cut a follower off from its leader, and kill the leader or the controller while a change of the ISR is pending.

    The change removes the follower, and responses to the leader are slow; or the follower joins again, and gets the
    leader's records late.
    """
    del other
    world, chance, network = schedule.world, schedule.chance, schedule.world.simulation.network
    found = await _find(schedule, one, lambda partition: len(partition.isr) > 1)
    if found is None:
        return
    leader = found.replication.broker_id
    follower = chance.choice([each for each in found.isr if each != leader])
    network.partition([world.hosts[leader]], [world.hosts[follower]])
    if chance.random() < 0.5:
        with suppress(TimeoutError):
            await until(lambda: follower not in found.isr, within_s=_LONGEST_WAIT_S)
        network.heal()
        network.slow_down(world.hosts[leader], world.hosts[follower], chance.choice((0.2, 1.0)))
    else:
        for number in range(len(world.hosts)):
            network.slow_down(world.hosts[number], world.hosts[leader], chance.choice((0.02, 0.2)))
    if await _find(schedule, leader, lambda partition: partition.replication.pending is not None) is not None:
        await asyncio.sleep(chance.choice((0.0, 0.05, 0.4)) * chance.random())
        controllers = [each for each, broker in world.running.items() if broker.metadata_loop.is_controller]
        dying = chance.choice([leader, leader, *controllers])
        if dying in world.running:
            await kill(schedule, dying, dying)


async def restart_in_flight(schedule: Schedule, one: int, other: int) -> None:
    """Lose a leader's responses to clients for a moment, and kill it. It may restart at once."""
    del other
    world, chance = schedule.world, schedule.chance
    found = await _find(schedule, one, lambda partition: True)
    if found is None:
        return
    number = found.replication.broker_id
    for client in schedule.clients:
        world.simulation.network.block(world.hosts[number], client)
    await asyncio.sleep(chance.choice((0.1, 0.8)) * chance.random())
    if number in world.running:
        await kill(schedule, number, number)
    if chance.random() < 0.5:
        await schedule.end_faults()


async def kill_in_sync(schedule: Schedule, one: int, other: int) -> None:
    """Cut a follower off until it has left the ISR, end all its members, and let the follower return.

    The members are killed or stopped; with group flush they may lose power, all at once.
    """
    del other
    world, chance = schedule.world, schedule.chance
    found = await _find(schedule, one, lambda partition: len(partition.isr) > 1)
    if found is None or len(world.running) < len(world.hosts):
        return
    follower = chance.choice([each for each in found.isr if each != found.replication.broker_id])
    _cut_off(schedule, follower)
    with suppress(TimeoutError):
        await until(lambda: follower not in found.isr, within_s=_LONGEST_WAIT_S)
    await asyncio.sleep(chance.random())
    end = chance.choice((kill, kill, stop, cut_power if schedule.flushes_by_group else kill))
    for number in found.isr:
        if number in world.running and number != follower:
            await end(schedule, number, number)
    world.simulation.network.heal()
    await asyncio.sleep(chance.choice((1.0, 10.0)))


async def restart_all(schedule: Schedule, one: int, other: int) -> None:
    """End all brokers of a whole cluster, one shortly after the other, and start them again.

    They are killed; with group flush, which keeps what was acknowledged, they may lose power.
    """
    world, chance = schedule.world, schedule.chance
    await schedule.end_faults()
    await schedule.until_whole()
    await asyncio.sleep(chance.random())
    end = chance.choice((kill, cut_power)) if schedule.flushes_by_group else kill
    for number in schedule.all_brokers(one, other):
        await end(schedule, number, number)
        await asyncio.sleep(chance.choice((0.0, 0.0, 0.1, 7.0)) * chance.random())
    assert not world.running
    await schedule.end_faults()


async def hold_over_elections(schedule: Schedule, one: int, other: int) -> None:
    """Hold back what a leader sends to one follower, move the leadership away and back, then let it through.

    The follower gets a response that is two leader epochs old.
    """
    del other
    world, chance = schedule.world, schedule.chance
    found = await _find(schedule, one, lambda partition: len(partition.isr) > 1)
    if found is None:
        return
    leader, place = found.replication.broker_id, found.topic_partition
    follower = chance.choice([each for each in found.isr if each != leader])
    world.simulation.network.block(world.hosts[leader], world.hosts[follower])
    await asyncio.sleep(chance.choice((0.0, 0.5)) * chance.random())
    for _ in range(2):
        leading = await _find(schedule, one, lambda partition: partition.topic_partition == place)
        if leading is not None and leading.replication.broker_id in world.running:
            await expire(schedule, leading.replication.broker_id, one)
            await asyncio.sleep(chance.choice((0.2, 2.0)))
    world.simulation.network.heal()


async def cut_power_beside_isr(schedule: Schedule, one: int, other: int) -> None:
    """Cut a follower off until it has left the ISR; cut its power when it is about to join again, or has just joined.

    Without group flush, only a broker that is in no ISR by the tree: nothing that was acknowledged needs its disk.
    """
    del other
    world, chance, network = schedule.world, schedule.chance, schedule.world.simulation.network
    found = await _find(schedule, one, lambda partition: len(partition.isr) > 1)
    if found is None:
        return
    leader, place = found.replication.broker_id, found.topic_partition
    follower = chance.choice([each for each in found.isr if each != leader])
    network.partition([world.hosts[leader]], [world.hosts[follower]])
    with suppress(TimeoutError):
        await until(lambda: follower not in found.isr, within_s=_LONGEST_WAIT_S)
    network.heal()
    for number in range(len(world.hosts)):
        network.slow_down(world.hosts[number], world.hosts[leader], chance.choice((0.02, 0.2)))
    await _find(schedule, leader, lambda each: each.topic_partition == place and each.replication.pending is not None)
    if follower in world.running and (schedule.flushes_by_group or not _is_in_any_isr(schedule, follower)):
        await cut_power(schedule, follower, follower)


def _is_in_any_isr(schedule: Schedule, number: int) -> bool:
    """Return whether a broker is in an ISR by the tree."""
    world = schedule.world
    topics = [*schedule.topics, *(each for each in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) if is_in_tree(world, each))]
    states = [state for topic in topics for state in partition_states(world, topic)]
    return any(state is None or number in state.isr for state in states)


async def restart_unseen(schedule: Schedule, one: int, other: int) -> None:
    """Stop or kill a broker, and start it again while the controller does not see the tree.

    The controller learns that the broker is away and that it is back at the same time.
    """
    del other
    world, chance = schedule.world, schedule.chance
    await schedule.end_faults()
    await schedule.until_whole()
    controllers = [each for each, broker in world.running.items() if broker.metadata_loop.is_controller and each != one]
    if not controllers:
        return
    store = world.store(controllers[0])
    if chance.random() < 0.5:
        store.disconnect()
        await kill(schedule, one, one)
    else:
        stopping = asyncio.create_task(stop(schedule, one, one), name=f"stopping broker {one}")
        with suppress(TimeoutError):  # the controller takes part in the first half of a stop
            await until(
                lambda: stopping.done() or not _is_in_any_isr(schedule, one), within_s=_LONGEST_WAIT_S, each_s=0.001
            )
        store.disconnect()
        await stopping
    blinded_s = world.now_s
    await world.start(one)
    await asyncio.sleep(chance.choice((0.2, 2.0)) * chance.random())
    world.simulation.network.note(f"the controller was without the tree for {world.now_s - blinded_s:.2f} s")
    store.reconnect()


async def kill_at_a_rare_branch(schedule: Schedule, one: int, other: int) -> None:
    """Disturb a broker; kill the one that reaches a marked branch or transition, or `one`, a few loop turns later."""
    chance = schedule.chance
    if other in schedule.world.running:
        await chance.choice((kill, blink, expire, depose))(schedule, other, other)
    loop = asyncio.get_running_loop()
    reached: asyncio.Future[tuple[str, str]] = loop.create_future()
    skipped = chance.randrange(4)

    def count(name: str) -> None:
        nonlocal skipped
        skipped -= 1
        if skipped < 0 and not reached.done():
            reached.set_result((name, HOST.get()))

    with listening(count):
        await asyncio.wait([reached], timeout=_LONGEST_WAIT_S)
    if not reached.done():
        return
    for _ in range(chance.randrange(6)):
        await asyncio.sleep(0)
    await asyncio.sleep(chance.choice((0.0, 0.002, 0.05)) * chance.random())
    (name, host), hosts = reached.result(), schedule.world.hosts
    dying = hosts.index(host) if host in hosts and chance.random() < 0.7 else one
    if dying in schedule.world.running:
        schedule.world.simulation.network.note(f"broker {dying} is killed after {name!r} on {host}")
        await kill(schedule, dying, dying)


def _cut_off(schedule: Schedule, number: int) -> None:
    hosts = schedule.world.hosts
    schedule.world.simulation.network.partition([hosts[number]], [host for host in hosts if host != hosts[number]])


async def _find(schedule: Schedule, preferred: int, condition: Callable[[Partition], bool]) -> Partition | None:
    """Wait until a leader of the topics at which the deed aims meets a condition; return None if none does for a time.

    Leaders on the broker `preferred` come first.
    """
    world, deadline_s = schedule.world, schedule.world.now_s + _LONGEST_WAIT_S
    internal = [topic for topic in (OFFSETS_TOPIC, TRANSACTIONS_TOPIC) if is_in_tree(world, topic)]
    topics = internal if internal and schedule.aims_at_coordinators else schedule.topics
    while world.now_s < deadline_s:
        found = [
            each
            for broker in world.running.values()
            for each in broker.partitions
            if each.topic_partition.topic in topics and condition(each)
        ]
        if found:
            return min(found, key=lambda each: (each.replication.broker_id != preferred, each.topic_partition))
        await pass_time(0.001)
    return None
