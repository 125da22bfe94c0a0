"""Registration after an unclean shutdown: the broker waits until it is in no ISR with a live broker.

After a power cut a broker may restart before its failure was noticed: the tree has it as leader, or in ISRs, although
it may have lost records. If it registered then, it could lead, and the other replicas would truncate acknowledged
records. So it registers only when the controller has removed it from every ISR that has a live member. If no other
member is alive, it stays, because its log is the best one.

If its log is known to be older than the other members' logs, `leave_isrs` also removes it from ISRs whose other members
are down.
"""

import asyncio
import logging
from collections.abc import Collection, Iterable
from contextlib import ExitStack, suppress
from typing import Final

from odradek.metadata import paths
from odradek.metadata.image import new_leadership
from odradek.metadata.nodes import NO_LEADER
from odradek.metadata.reading import BrokenNodes, read_brokers, read_topics
from odradek.metadata.store import BadVersion, NoNode, Reader, SetData, Store
from odradek.model import TopicPartition, UnavailableError

_SHORTEST_TIMEOUT_S: Final = 30.0
"""Lower limit of the wait's time-out: there may be no controller until the former one's session expires."""
_MOST_WATCHED: Final = 100
"""Limit of partitions that are watched, or written, at once; the others follow."""
_MOST_ATTEMPTS: Final = 20
"""Limit of attempts: a write fails after a concurrent one, such as the controller's."""
_log = logging.getLogger("odradek.broker")


async def wait_until_out_of_isrs(store: Reader, broker_id: int, *, timeout_s: float) -> None:
    """Wait until no ISR has both the unregistered broker `broker_id` and a registered broker.

    Raises `UnavailableError` after `timeout_s`, but not before 30 s.
    """
    topics: Iterable[str] = await store.children(paths.TOPICS)
    if not topics:
        return
    in_sync: list[TopicPartition] = []
    broken = BrokenNodes()
    try:
        async with asyncio.timeout(max(timeout_s, _SHORTEST_TIMEOUT_S)):
            while True:
                changed = asyncio.Event()
                with ExitStack() as watches:
                    watches.callback(store.watch_children(paths.BROKER_IDS, changed.set).cancel)
                    for place in in_sync[:_MOST_WATCHED]:
                        watch = store.watch_data(paths.partition_state(place), changed.set)
                        watches.callback(watch.cancel)
                    was_logged = bool(in_sync)
                    in_sync = await _in_sync_with_others(store, broker_id, topics, broken)
                    if not in_sync:
                        return
                    if was_logged:
                        await changed.wait()
                    else:
                        _log.warning(
                            "Waiting for the controller to remove broker %d from the ISR of %s and %d more, after an "
                            "unclean shutdown",
                            broker_id, in_sync[0], len(in_sync) - 1,
                        )  # fmt: skip
                topics = sorted({place.topic for place in in_sync})
    except TimeoutError:
        reason = (
            f"no controller takes it out of the ISR of {in_sync[0]}" if in_sync else "the metadata tree is too slow"
        )
        raise UnavailableError(f"broker {broker_id} was not shut down cleanly, and {reason}") from None


async def leave_isrs(store: Store, broker_id: int, partitions: Collection[TopicPartition], *, timeout_s: float) -> None:
    """Remove an unregistered broker from the partitions' ISRs that have another member, alive or not.

    If another member is alive, the controller removes the broker, and this function waits. Otherwise this function
    writes, because the controller would do so only after the broker has registered and could be elected. Raises
    `UnavailableError` after too many concurrent writes, or if no controller removes the broker in time.
    """
    for _ in range(_MOST_ATTEMPTS):
        await wait_until_out_of_isrs(store, broker_id, timeout_s=timeout_s)
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
                touched = await _rewritten_topics(store, {each.partition.topic for each in some})
                await store.multi([*(each.operation() for each in some), *touched])
    raise UnavailableError(f"the ISRs of broker {broker_id}, which is starting, are changed again and again by others")


async def _rewritten_topics(store: Store, topics: Iterable[str]) -> list[SetData]:
    """Return writes of unchanged topic nodes, which make the controller read the partition states again.

    The controller watches topic nodes, but not partition states.
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
