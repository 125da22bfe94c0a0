"""A broker whose logs may have lost their ends is in sync with nobody, whatever the tree still says of it.

After a power cut a broker may be back before anybody has noticed that it was gone: the tree has it as the leader of
partitions, or in their ISR, with records that it no longer has. If it registered like that, it would go on as their
leader, or could be elected, and what was acknowledged would be cut from the others' logs. So a broker that was not shut
down cleanly registers when the controller has taken it out of every ISR in which a living broker is, too; then it
follows. Where nobody else is alive it is the best that there is. (Kafka compares registrations in the controller,
which a controller that has just been elected cannot.)

A log that is known to be older than the one that was in sync is not the best that there is: `leave_isrs` takes
it out where the others are down, too.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable
from contextlib import ExitStack, suppress
from typing import Final

from odradek.controller.state_change import new_leadership
from odradek.metadata import paths
from odradek.metadata.nodes import NO_LEADER
from odradek.metadata.reading import BrokenNodes, read_brokers, read_topics
from odradek.metadata.store import BadVersion, NoNode, Reader, SetData, Store
from odradek.model import TopicPartition, UnavailableError

_LEAST_PATIENCE_S: Final = 30.0
"""How long to wait at least: there may be no controller now, and one is elected when the last one's session ends."""
_MOST_WATCHED: Final = 100
"""Partitions that are watched, or written, at once; the others come when these have changed."""
_MOST_ATTEMPTS: Final = 20
"""A write fails when somebody else wrote, which a controller does a few times when brokers come and go."""
_log = logging.getLogger("odradek.broker")


async def wait_until_out_of_isrs(store: Reader, broker_id: int, *, patience_s: float) -> None:
    """Return when no ISR has both this broker, which is not registered, and one that is.

    Raises `UnavailableError` if that takes longer than `patience_s`, which is raised to half a minute.
    """
    topics: Iterable[str] = await store.children(paths.TOPICS)
    if not topics:
        return
    doubted: list[TopicPartition] = []
    broken = BrokenNodes()
    try:
        async with asyncio.timeout(max(patience_s, _LEAST_PATIENCE_S)):
            while True:
                changed = asyncio.Event()
                with ExitStack() as watches:
                    watches.callback(store.watch_children(paths.BROKER_IDS, changed.set).cancel)
                    for place in doubted[:_MOST_WATCHED]:
                        watch = store.watch_data(paths.partition_state(place), changed.set)
                        watches.callback(watch.cancel)
                    was_told = bool(doubted)
                    doubted = await _in_sync_with_others(store, broker_id, topics, broken)
                    if not doubted:
                        return
                    if was_told:
                        await changed.wait()
                    else:
                        _log.warning(
                            "broker %d was not shut down cleanly and still counts as in sync, in %s and %d more: "
                            "waiting for the controller to see to that",
                            broker_id, doubted[0], len(doubted) - 1,
                        )  # fmt: skip
                topics = sorted({place.topic for place in doubted})
    except TimeoutError:
        raise UnavailableError(
            f"broker {broker_id} was not shut down cleanly, and no controller takes it out of the ISR of {doubted[0]}"
        ) from None


async def leave_isrs(
    store: Store, broker_id: int, partitions: Collection[TopicPartition], *, patience_s: float
) -> None:
    """Take a broker that is not registered out of the ISRs of partitions that have another member, living or not.

    Where one lives, the controller does it, which is waited for. Elsewhere nobody would before this broker is
    registered, and could be elected; a controller that writes meanwhile finds another version, and reads again. Raises
    `UnavailableError` if that takes too long (see `wait_until_out_of_isrs`).
    """
    for _ in range(_MOST_ATTEMPTS):
        await wait_until_out_of_isrs(store, broker_id, patience_s=patience_s)
        found = await read_topics(store, sorted({key.topic for key in partitions}), BrokenNodes())
        changes = []
        for key in sorted(partitions):
            topic = found.get(key.topic)
            image = None if topic is None else topic.partitions.get(key.partition)
            if image is None or not image.is_readable or broker_id not in image.isr:
                continue
            others = tuple(each for each in image.isr if each != broker_id)
            leader = NO_LEADER if image.leader == broker_id else image.leader
            if others:
                changes.append(new_leadership(key, image, leader, others, controller_epoch=image.controller_epoch))
        if not changes:
            return
        with suppress(BadVersion, NoNode):
            for first in range(0, len(changes), _MOST_WATCHED):
                some = changes[first : first + _MOST_WATCHED]
                touched = await _touched(store, {each.partition.topic for each in some})
                await store.multi([*(each.operation() for each in some), *touched])
    raise UnavailableError(
        f"somebody else changes the in-sync sets of broker {broker_id}, which starts, again and again"
    )


async def _touched(store: Store, topics: Iterable[str]) -> list[SetData]:
    """Writes that change nothing, so that the controller reads the topics' states again before it goes by them.

    It watches topics, and no states.
    """
    places = [paths.topic(name) for name in sorted(topics)]
    nodes = await store.get_many(places)
    return [
        SetData(path=place, data=node.data, version=node.version)
        for place, node in zip(places, nodes, strict=True)
        if node is not None
    ]


async def _in_sync_with_others(
    store: Reader, broker_id: int, topics: Iterable[str], broken: BrokenNodes
) -> list[TopicPartition]:
    alive = await read_brokers(store, broken)
    found = await read_topics(store, topics, broken)
    return [
        TopicPartition(topic.name, number)
        for topic in found.values()
        if topic is not None
        for number, partition in sorted(topic.partitions.items())
        if partition.is_readable
        and broker_id in partition.isr
        and any(each in alive for each in partition.isr if each != broker_id)
    ]
