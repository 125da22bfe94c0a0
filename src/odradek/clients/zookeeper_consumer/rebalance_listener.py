"""The application's callbacks in a rebalance, and a rebalance's log lines, in the words of Kafka 0.8."""

import inspect
import logging
from collections.abc import Awaitable, Callable, Iterable

from msgspec import Struct

from odradek.assignors.zookeeper import ZookeeperRoundRobinAssignor
from odradek.clients.zookeeper_consumer.machine.view import GroupView, Ownership

RebalanceCallback = Callable[[Ownership], Awaitable[None] | None]
"""Called with partitions and the thread ids of their streams; may be a coroutine function."""
_log = logging.getLogger("odradek.clients")


class RebalanceListener(Struct, frozen=True, kw_only=True):
    """The application's callbacks, as in Kafka's `ConsumerRebalanceListener`."""

    before_releasing_partitions: RebalanceCallback | None = None
    before_starting_fetchers: RebalanceCallback | None = None

    async def releasing(self, owned: Ownership) -> None:
        """Call the application before the claims of these partitions are deleted."""
        await _call(self.before_releasing_partitions, owned)

    async def starting(self, owned: Ownership) -> None:
        """Call the application after these partitions were claimed, before they are read."""
        await _call(self.before_starting_fetchers, owned)


async def _call(callback: RebalanceCallback | None, owned: Ownership) -> None:
    if callback is not None:
        result = callback(dict(sorted(owned.items())))
        if inspect.isawaitable(result):
            await result


def log_claims(consumer_id: str, view: GroupView, wanted: Ownership, *, strategy: str, exclude_internal: bool) -> None:
    """Log, for each topic, what the consumer has read, and what its threads claim; warn of threads without partitions.

    With `zookeeper-roundrobin`, a thread without a partition of one topic may have some of another one.
    """
    has_info, is_roundrobin = _log.isEnabledFor(logging.INFO), strategy == ZookeeperRoundRobinAssignor.name
    all_threads = _threads_by_topic(view, view.consumers if has_info else (), exclude_internal=exclude_internal)
    if is_roundrobin:
        _log.info("Starting round-robin assignment with consumers [%s]", ", ".join(sorted(view.consumers)))
    claims = {(place.topic, thread) for place, thread in wanted.items()}
    busy = set(wanted.values())
    own = _threads_by_topic(view, [consumer_id], exclude_internal=exclude_internal)
    for topic, threads in sorted(own.items()):
        partitions, consumers = ", ".join(map(str, view.partitions.get(topic, ()))), sorted(all_threads.get(topic, ()))
        if is_roundrobin:
            text = "Consumer %s rebalancing the following partitions for topic %s: [%s]"
            _log.info(text, consumer_id, topic, partitions)
        else:
            text = "Consumer %s rebalancing the following partitions: [%s] for topic %s with consumers: [%s]"
            _log.info(text, consumer_id, partitions, topic, ", ".join(consumers))
        for thread in threads:
            if (thread not in busy) if is_roundrobin else (topic, thread) not in claims:
                _log.warning("No broker partitions consumed by consumer thread %s for topic %s", thread, topic)
    for place, thread in sorted(wanted.items()):
        _log.info("%s attempting to claim partition %d", thread, place.partition)


def _threads_by_topic(view: GroupView, consumers: Iterable[str], *, exclude_internal: bool) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for name in consumers:
        for thread, topics in view.topics_by_thread(name, exclude_internal=exclude_internal).items():
            for topic in topics:
                found.setdefault(topic, []).append(thread)
    return found
