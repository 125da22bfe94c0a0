"""The application's callbacks in a rebalance, and a rebalance's log lines, in the words of Kafka 0.8."""

import inspect
import logging
from collections.abc import Awaitable, Callable

from msgspec import Struct

from odradek.groups.zookeeper.view import GroupView, Ownership

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


def log_claims(consumer_id: str, view: GroupView, wanted: Ownership, *, exclude_internal: bool) -> None:
    """Log, for each topic, what the consumer has read, and what its threads claim."""
    if not _log.isEnabledFor(logging.INFO):
        return
    threads: dict[str, list[str]] = {}
    for name in view.consumers:
        for thread, topics in view.topics_by_thread(name, exclude_internal=exclude_internal).items():
            for topic in topics:
                threads.setdefault(topic, []).append(thread)
    own: dict[str, list[str]] = {}
    for thread, topics in view.topics_by_thread(consumer_id, exclude_internal=exclude_internal).items():
        for topic in topics:
            own.setdefault(topic, []).append(thread)
    claims = {(place.topic, thread) for place, thread in wanted.items()}
    for topic, threads_of_topic in sorted(own.items()):
        partitions = ", ".join(map(str, view.partitions.get(topic, ())))
        consumers = ", ".join(sorted(threads[topic]))
        text = "Consumer %s rebalancing the following partitions: [%s] for topic %s with consumers: [%s]"
        _log.info(text, consumer_id, partitions, topic, consumers)
        for thread in threads_of_topic:
            if (topic, thread) not in claims:
                _log.info("No broker partitions consumed by consumer thread %s for topic %s", thread, topic)
    for place, thread in sorted(wanted.items()):
        _log.info("%s attempting to claim partition %s", thread, place)
