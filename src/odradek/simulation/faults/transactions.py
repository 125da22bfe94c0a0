"""Faults that are aimed at transactions: at their coordinators, and at the times of their producers."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from odradek.broker.lifecycle import Broker
from odradek.model import KafkaError
from odradek.model.names import TRANSACTIONS_TOPIC
from odradek.simulation.faults.processes import kill
from odradek.simulation.faults.schedule import Schedule, leaders
from odradek.simulation.promises import CLIENTS
from odradek.simulation.workloads.transactions import INPUT, OUT, Actor, Transactions
from odradek.simulation.world import World, until


def _actors(schedule: Schedule) -> list[Actor]:
    return [actor for each in schedule.workloads if isinstance(each, Transactions) for actor in each.actors]


async def crash_at_an_end(schedule: Schedule, one: int, other: int) -> None:
    """Kill a coordinator that has recorded the end of a transaction, perhaps all brokers, and all producers with it.

    One time in two, this record has not reached all brokers.
    """
    del one, other
    world, chance = schedule.world, schedule.chance
    if chance.random() < 0.5:
        await _hold_at_an_end(schedule)
    with suppress(TimeoutError):
        await until(lambda: bool(_coordinators(world, _has_prepared)), within_s=2.5)
    await asyncio.sleep(0.004 * chance.random())
    if dying := _coordinators(world, _has_prepared):
        for actor in _actors(schedule):
            actor.crash()
        has_all_killed = chance.random() < 0.3
        for number in sorted(world.running) if has_all_killed else dying:
            await kill(schedule, number, number)
        if has_all_killed:
            await schedule.end_faults()  # the markers are sent to leaders that have just started


async def _hold_at_an_end(schedule: Schedule) -> None:
    """Cut a follower off from the coordinator, its leader, just before a transaction with written records ends."""
    world, actors = schedule.world, _actors(schedule)
    for actor in actors:
        actor.may_end.clear()
    with suppress(TimeoutError):
        await until(lambda: any(actor.is_waiting_to_end for actor in actors), within_s=2.5)
    for number in _coordinators(world, lambda broker: True):
        if followers := [host for host in world.hosts if host != world.hosts[number]]:
            world.simulation.network.partition([world.hosts[number]], [schedule.chance.choice(followers)])
    for actor in actors:
        actor.may_end.set()


def _coordinators(world: World, condition: Callable[[Broker], bool]) -> list[int]:
    """Return the brokers that coordinate transactions and meet the condition."""
    return [number for number in leaders(world, TRANSACTIONS_TOPIC) if condition(world.running[number])]


def _has_prepared(broker: Broker) -> bool:
    with suppress(KafkaError):
        return any(each.state.is_prepared for each in broker.transactions.transactions())
    return False


async def abort_while_requests_are_held(schedule: Schedule, one: int, other: int) -> None:
    """Hold what producers send to a broker until one of them has aborted its transaction after a timeout.

    Most often, the broker is one that leads partitions and does not coordinate the transactions.
    """
    del other
    world, actors = schedule.world, _actors(schedule)
    of_topics = {number for topic in (INPUT, OUT) for number in leaders(world, topic)}
    others = sorted(of_topics - set(leaders(world, TRANSACTIONS_TOPIC)))
    if others and schedule.chance.random() < 0.75:
        one = schedule.chance.choice(others)
    for actor in actors:
        world.simulation.network.block(actor.host, world.hosts[one])
        actor.aborts = True
    await asyncio.sleep(1)
    aborted = {actor: actor.aborted for actor in actors}
    await asyncio.sleep(CLIENTS["request_timeout_ms"] / 1000 - 1.5)
    held = [actor for actor in actors if actor.aborted == aborted[actor]]
    with suppress(TimeoutError):
        await until(lambda: any(actor.aborted > aborted[actor] for actor in held), within_s=2.5)
    world.simulation.network.heal()
    for actor in actors:
        actor.aborts = False
    await asyncio.sleep(3)


async def oversleep(schedule: Schedule, one: int, other: int) -> None:
    """Let transactions time out while their producers write."""
    del one, other
    for actor in _actors(schedule):
        actor.oversleeps = True
    await asyncio.sleep(1)
    for actor in _actors(schedule):
        actor.oversleeps = False
