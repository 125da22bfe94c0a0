"""The rebalance journal: a record in `__rebalances` for every rebalance of the groups that this broker coordinates.

The key is the group id, the value compact JSON (`to_json`). The topic is created with the first record, with a
retention of seven days. The journal is best effort: `dropped` counts records that could not be written after some
attempts, or were still waiting when the broker stopped.
"""

import json
import logging
from collections import Counter, deque
from collections.abc import Awaitable, Callable
from heapq import nlargest, nsmallest
from itertools import islice
from typing import Any, Final, TypeAlias

from odradek.broker.cluster.requests.broker_connections import BrokerConnections
from odradek.broker.coordinators.runtime import partition_of, replication_factor
from odradek.broker.groups.machine.rebalance_trace import CauseKind, RebalanceCompleted
from odradek.broker.metadata_cache import MetadataCache
from odradek.broker.replication.partition import ACKS_LEADER
from odradek.broker.replication.replica_manager import ReplicaManager
from odradek.broker.retrying_sender import RetryingSender
from odradek.metadata.new_topic import NewTopic
from odradek.model import Buffer, OdradekError, TopicPartition, UnavailableError
from odradek.model.errors import ErrorCode, KafkaError
from odradek.model.names import JOURNAL_TOPIC, numbers_by_topic
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.messages.produce import ProduceTopic, decode_produce_response, encode_produce_request
from odradek.runtime import Clock

MOST_PARTITIONS: Final = 1_000
"""Limit of partitions in a record: `unowned_ms` has those without an owner for longest, `owned` the first by name."""
_RETENTION_MS: Final = 7 * 24 * 3_600_000
_SEGMENT_BYTES: Final = 16 << 20
_MOST_WAITING: Final = 1_000
"""Limit of records that wait to be written; beyond it the oldest are dropped."""
_MOST_ATTEMPTS: Final = 5
_FIRST_BACKOFF_S: Final = 1.0
_LONGEST_BACKOFF_S: Final = 4.0
_PRODUCE_VERSION: Final = 9
_TIMEOUT_MS: Final = 5_000
_Waiting: TypeAlias = deque[tuple[RebalanceCompleted, int]]
"""The rebalances without a record, each with the number of its next attempt."""
_log = logging.getLogger("odradek.groups")


class RebalanceJournal:
    """One broker's journal and rebalance metrics. `create_topic` returns when the topic is in the image."""

    def __init__(
        self,
        metadata: MetadataCache,
        clock: Clock,
        partitions: ReplicaManager,
        connections: BrokerConnections,
        *,
        create_topic: Callable[[NewTopic], Awaitable[None]],
    ) -> None:
        self.rebalances = Counter[str](dict.fromkeys(CauseKind, 0))
        """Number of rebalances by the kind of their cause."""
        self.duration_ms = 0
        """The sum of the durations of all rebalances."""
        self.unowned_partition_ms = 0
        """The time for which partitions had no owner, summed over all partitions."""
        self.dropped = 0
        """Number of records that were not written."""
        self._metadata = metadata
        self._clock = clock
        self._partitions = partitions
        self._connections = connections
        self._create = create_topic
        self._sender = RetryingSender[_Waiting](
            "rebalance journal",
            deque(),
            self._write_next,
            first_backoff_s=_FIRST_BACKOFF_S,
            longest_backoff_s=_LONGEST_BACKOFF_S,
        )

    def write(self, rebalance: RebalanceCompleted) -> None:
        """Count a rebalance, and append its record in the background."""
        self.rebalances[rebalance.cause.kind] += 1
        self.duration_ms += rebalance.duration_ms
        self.unowned_partition_ms += sum(rebalance.unowned_ms.values())
        waiting = self._sender.waiting
        waiting.append((rebalance, 1))
        if len(waiting) > _MOST_WAITING:
            waiting.popleft()
            self.dropped += 1
        self._sender.wake()

    def stop(self) -> None:
        """Stop writing, and drop the waiting records."""
        self.dropped += len(self._sender.waiting)
        self._sender.waiting.clear()
        self._sender.close()

    async def _write_next(self, waiting: _Waiting) -> bool:
        rebalance, attempt = waiting.popleft()
        record = (rebalance.started_ms, rebalance.group_id.encode(), to_json(rebalance), ())
        try:
            await self._write(rebalance.group_id, encode_batch([record]))
        except OdradekError as error:
            if attempt < _MOST_ATTEMPTS:
                waiting.appendleft((rebalance, attempt + 1))
                return False
            self.dropped += 1
            _log.warning("Dropped a record of the rebalance journal: %s", error)
        except Exception:
            self.dropped += 1
            raise
        return True

    async def _write(self, group_id: str, batch: Buffer) -> None:
        if JOURNAL_TOPIC not in self._metadata.image.topics:
            await self._create(self._topic())
        key = partition_of(self._metadata.image, JOURNAL_TOPIC, group_id)
        number, image = key.partition, self._metadata.image.partition(key)
        if image is None or not image.has_leader:
            raise UnavailableError(f"{key} has no leader")
        if image.leader == self._metadata.broker_id:
            partition = self._partitions.leader(JOURNAL_TOPIC, number)
            now_ms = self._clock.now_ms()
            partition.append_records(memoryview(batch), acks=ACKS_LEADER, now_ms=now_ms, from_client=False)
        else:
            await self._send(image.leader, number, batch)

    async def _send(self, leader: int, number: int, batch: Buffer) -> None:
        connection = await self._connections.connection(self._metadata.image.brokers, leader)
        body = encode_produce_request(
            _PRODUCE_VERSION, [ProduceTopic(JOURNAL_TOPIC, None, [(number, batch)])], acks=1, timeout_ms=_TIMEOUT_MS
        )
        reply = await connection.exchange(ApiKey.PRODUCE, _PRODUCE_VERSION, body)
        response = decode_produce_response(_PRODUCE_VERSION, reply.frame, reply.offset)
        ((_, _, (answer,)),) = response.topics
        if answer.error_code:
            raise KafkaError(ErrorCode(answer.error_code))

    def _topic(self) -> NewTopic:
        return NewTopic(
            name=JOURNAL_TOPIC,
            num_partitions=1,
            replication_factor=replication_factor(
                self._metadata.config, "offsets.topic.replication.factor", len(self._metadata.image.brokers)
            ),
            config={"retention.ms": str(_RETENTION_MS), "segment.bytes": str(_SEGMENT_BYTES)},
        )


def to_json(rebalance: RebalanceCompleted) -> bytes:
    """Return a rebalance as compact JSON: times in ms, partitions as `{topic: {partition: ms}}`."""
    unowned_ms = rebalance.unowned_ms
    longest = nlargest(MOST_PARTITIONS, unowned_ms.items(), key=lambda each: each[1])
    by_topic: dict[str, dict[str, int]] = {}
    for partition, gap_ms in sorted(longest):
        by_topic.setdefault(partition.topic, {})[str(partition.partition)] = gap_ms
    value: dict[str, Any] = {
        "version": 1,
        "group": rebalance.group_id,
        "group_type": rebalance.group_type,
        "generation": rebalance.generation,
        "outcome": rebalance.outcome,
        "cause": rebalance.cause.kind,
        "reason": rebalance.cause.text,
        "caused_by": rebalance.cause.members[:MOST_PARTITIONS],
        "started_ms": rebalance.started_ms,
        "duration_ms": rebalance.duration_ms,
        "join_ms": rebalance.join_ms,
        "assign_ms": rebalance.assign_ms,
        "protocol_type": rebalance.protocol_type,
        "protocol": rebalance.protocol_name,
        "members": rebalance.members,
        "waited_for": dict(rebalance.waited_for),
        "revocations": dict(rebalance.revocations),
        "timed_out": rebalance.timed_out[:MOST_PARTITIONS],
        "clients": dict(islice(rebalance.clients.items(), MOST_PARTITIONS)),
        "moved": len(rebalance.moved),
        "unowned_partitions": len(unowned_ms),
        "unowned_partition_ms": sum(unowned_ms.values()),
        "longest_unowned_ms": max(unowned_ms.values(), default=0),
        "unowned_ms": by_topic,
        **_owners(rebalance),
    }
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _owners(rebalance: RebalanceCompleted) -> dict[str, Any]:
    """Return the final owners, and the changes that led to them, from which a reader computes the first owners."""
    changed = (change.partitions for change in rebalance.changes)
    every = frozenset[TopicPartition]().union(*rebalance.owned.values(), *changed)
    named = every if len(every) <= MOST_PARTITIONS else frozenset(nsmallest(MOST_PARTITIONS, every))
    changes = [(change, change.partitions & named) for change in rebalance.changes]
    return {
        "owned": {
            member_id: numbers_by_topic(some & named) for member_id, some in rebalance.owned.items() if some & named
        },
        "owners_left_out": len(every) - len(named),
        "changes": [
            {
                "at_ms": change.at_ms,
                "member": change.member_id,
                "gets" if change.gets else "loses": numbers_by_topic(some),
            }
            for change, some in changes
            if some
        ],
    }
