"""What the controller knows of brokers beside their registration: who is about to stop, and which logs can't be used.

It holds for a registration: a broker that registers again starts anew. It is in nobody's tree; the next controller
learns it again, from the answers to the commands that it begins with, and from brokers that ask once more.
"""

from collections.abc import Collection, Mapping, Set

from odradek.metadata.image import BrokerImage
from odradek.model import TopicPartition


class ControllerContext:
    """One term's. Whoever elects leaders passes over these."""

    def __init__(self) -> None:
        self._shutting_down: dict[int, int] = {}
        self._offline: dict[int, tuple[int, set[TopicPartition]]] = {}
        self._changed: set[str] = set()

    @property
    def shutting_down(self) -> Set[int]:
        """Brokers that asked to stop."""
        return self._shutting_down.keys()

    @property
    def offline(self) -> Mapping[int, Collection[TopicPartition]]:
        """Replicas whose logs can't be used, by broker."""
        return {broker_id: partitions for broker_id, (_, partitions) in self._offline.items()}

    def add_shutting_down(self, broker: BrokerImage) -> None:
        """The broker, in this registration, is about to stop."""
        self._shutting_down[broker.broker_id] = broker.epoch

    def update_offline(
        self, broker: BrokerImage, broken: Collection[TopicPartition], sound: Collection[TopicPartition]
    ) -> bool:
        """What the broker answered of its logs; whether that is news."""
        epoch, known = self._offline.get(broker.broker_id, (broker.epoch, set[TopicPartition]()))
        if epoch != broker.epoch:
            known = set()
        after = known.difference(sound).union(broken)
        self._offline[broker.broker_id] = broker.epoch, after
        if not after:
            del self._offline[broker.broker_id]
        self._changed.update(key.topic for key in known ^ after)
        return after != known

    def take_changed(self) -> set[str]:
        """Topics of which replicas can't be used any more, or can again, since the last call."""
        changed, self._changed = self._changed, set()
        return changed

    def brokers_changed(self, brokers: Mapping[int, BrokerImage]) -> None:
        """Forget what was of brokers that are gone, or that registered again."""
        epochs = {broker_id: broker.epoch for broker_id, broker in brokers.items()}
        for known in [each for each, epoch in self._shutting_down.items() if epochs.get(each) != epoch]:
            del self._shutting_down[known]
        for known in [each for each, (epoch, _) in self._offline.items() if epochs.get(each) != epoch]:
            del self._offline[known]
