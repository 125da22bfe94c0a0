"""The log lines of a broker about others that leave the cluster, and about the partitions that it leads instead."""

import logging

from odradek.metadata.image import MetadataDelta
from odradek.model import TopicPartition, first_names

_log = logging.getLogger("odradek.broker")


def log_departures(delta: MetadataDelta, own_id: int) -> None:
    """Log which brokers have left with the new image, and which partitions broker `own_id` leads from now on."""
    old, new = delta.old, delta.new
    for broker_id in old.brokers.keys() - new.brokers.keys() - {own_id} if delta.brokers_changed else ():
        kept = [
            each
            for topic in old.topics.values()
            for each in topic.partitions.values()
            if broker_id in (each.leader, *each.isr)
        ]
        alone = [each for each in kept if new.brokers.keys().isdisjoint(each.replicas)]
        led = sum(each.leader == broker_id for each in kept)
        if len(kept) > len(alone):
            _log.warning(
                "Broker %d has left the cluster without a controlled shutdown: its process ended, or its session with "
                "the metadata tree did. It led %d partitions and was in the ISR of %d; the controller elects in-sync "
                "replicas. See the log of broker %d, and start it again",
                broker_id, led, sum(broker_id in each.isr for each in kept), broker_id,
            )  # fmt: skip
        elif alone:
            _log.warning(
                "Broker %d has left the cluster. %d of its partitions have no other live replica, and no leader until "
                "one returns: start broker %d again",
                broker_id, len(alone), broker_id,
            )  # fmt: skip
        else:
            _log.info("Broker %d has left the cluster; it was in no ISR", broker_id)
    gained = [
        TopicPartition(name, number)
        for name in delta.topics
        if (before := old.topics.get(name)) is not None and name in new.topics
        for number, after in new.topics[name].partitions.items()
        if after.leader == own_id
        and (known := before.partitions.get(number)) is not None
        and known.leader_epoch >= 0
        and known.leader != own_id
    ]
    if gained and own_id in old.brokers:
        _log.info("Broker %d leads %d more partitions: %s", own_id, len(gained), first_names(gained))
