"""A broker whose logs may have lost their ends is in sync with nobody, whatever the tree still says of it.

After a power cut a broker may be back before anybody has noticed that it was gone: the tree has it as the leader of
partitions, or in their ISR, with records that it no longer has. If it registered like that, it would go on as their
leader, or could be elected, and what was acknowledged would be cut from the others' logs. So a broker that was not shut
down cleanly registers when the controller has taken it out of every ISR in which a living broker is, too; then it
follows. Where nobody else is alive it is the best that there is. (Kafka compares registrations in the controller,
which a controller that has just been elected cannot.)
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Final

from odradek.metadata import paths
from odradek.metadata.reading import BrokenNodes, read_brokers, read_topics
from odradek.metadata.store import Reader
from odradek.model import TopicPartition, UnavailableError

_LEAST_PATIENCE_S: Final = 30.0
"""How long to wait at least: there may be no controller now, and one is elected when the last one's session ends."""
_MOST_WATCHED: Final = 100
"""Partitions that are watched at once; the others are looked at when these have changed."""
_log = logging.getLogger("odradek.broker")


async def until_out_of_sync(store: Reader, broker_id: int, *, patience_s: float) -> None:
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
        if broker_id in partition.isr and any(each in alive for each in partition.isr if each != broker_id)
    ]
