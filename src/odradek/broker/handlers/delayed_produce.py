"""The reply to a Produce request while its appends are not acknowledged (Kafka's `DelayedProduce`)."""

from abc import ABC, abstractmethod
from functools import partial
from typing import Final, NamedTuple

from odradek.broker.counters import BrokerCounters
from odradek.broker.handlers.produce_rejections import count_rejection
from odradek.broker.log.validation import AppendInfo
from odradek.broker.replication.partition import ACKS_ALL, Partition
from odradek.broker.serving.purgatory import Purgatory
from odradek.model import ErrorCode, KafkaError
from odradek.model.probes import probe
from odradek.protocol.messages.produce import PartitionResponse
from odradek.wire.reply import PendingReply

Place = tuple[int, int]
"""A partition's place in the response: the topic's index, and the partition's index in the topic."""
FIRST: Final = (0, 0)
"""The place of a request's only partition: a waiter for it costs less than for another place."""
_TIMED_OUT: Final = KafkaError(ErrorCode.request_timed_out, "the in-sync replicas did not get the records in time")
"""The error at a request's timeout; followers may still get the records."""


class Terms(NamedTuple):
    """When a Produce request is answered, and the parts of the broker that a waiting reply uses."""

    acks: int
    timeout_ms: int
    counters: BrokerCounters
    purgatory: Purgatory


class DelayedProduce(PendingReply, ABC):
    """The reply to a Produce request, until its appends are as safe as `acks` requires, or have failed.

    A reply that waits for followers is in the purgatory until the request's timeout.
    """

    _terms: Terms
    _awaited: dict[Place, Partition]
    _is_parked = False

    @abstractmethod
    def set_response(self, place: Place, response: PartitionResponse) -> None:
        """Replace the response of a partition whose append failed."""

    @abstractmethod
    def respond(self) -> None:
        """Complete the reply: no append is awaited any more."""

    def wait_for(self, info: AppendInfo, partition: Partition, place: Place = FIRST) -> None:
        terms = self._terms
        self._awaited[place] = partition
        if terms.acks == ACKS_ALL and not self._is_parked and partition.has_followers:
            self._is_parked = True
            terms.purgatory.park(self, max(terms.timeout_ms, 0))
        waiter = self._acknowledged if place is FIRST else partial(self._acknowledged, place=place)
        partition.when_acknowledged(info, acks=terms.acks, waiter=waiter)

    def _acknowledged(self, error: KafkaError | None, place: Place = FIRST) -> None:
        if self.settled:
            return
        partition = self._awaited.pop(place)
        if error is not None:
            self._fail(place, partition, error)
        if not self._awaited:
            if self._is_parked:
                self._terms.purgatory.release(self)
            self.respond()

    def expire(self) -> None:
        """Complete, with REQUEST_TIMED_OUT for the partitions that are not acknowledged."""
        probe("produce: the in-sync replicas do not have the records in time")
        for place, partition in self._awaited.items():
            self._fail(place, partition, _TIMED_OUT)
        self.respond()

    def _fail(self, place: Place, partition: Partition, error: KafkaError) -> None:
        count_rejection(self._terms.counters, partition.traffic, error, None)
        partition.traffic.produces -= 1  # it failed after all
        number = partition.topic_partition.partition
        self.set_response(place, PartitionResponse(number, int(error.code), error_message=str(error)))
