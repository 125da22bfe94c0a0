"""The decision of an exactly-once write: which transactions of its tasks are committed. Pure.

    transactional ids   PREFIX-RUN-PARITY-PARTITION.ATTEMPT, of each attempt of a task; PREFIX-driver
    decision            committed offsets of the consumer group PREFIX, written in one transaction of PREFIX-driver:
                        offset = the number of the decision, metadata = "QUERY BATCH RUN TASK:PRODUCER_ID:EPOCH,…"

The metadata is spread over the partitions of a topic, as brokers limit its length. Offsets with a lower number are of
earlier decisions. RUN is new after each start of a query, and consecutive batches differ in PARITY: no attempt that is
late, and none of the next batch, begins a transaction with the id of one that is decided and still open.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Final

from msgspec import Struct

from odradek.clients.group_offsets import OffsetAndMetadata
from odradek.clients.producer.transactions.prepared_transaction import PreparedTransaction
from odradek.model import ConfigurationError, TopicPartition

MOST_METADATA: Final = 4096
"""The default of `offset.metadata.max.bytes`."""


class WriteId(Struct, frozen=True, kw_only=True):
    """A micro-batch of a streaming query in one of its runs; in a batch write, `query` and `run` are its job."""

    query: str
    run: str
    batch: int

    def transactional_id(self, prefix: str, task: str) -> str:
        """Return the id of a task's attempt, `PARTITION.ATTEMPT`."""
        return f"{prefix}-{self.run}-{self.batch % 2}-{task}"


class Decision(Struct, frozen=True, kw_only=True):
    """The transactions, by task, that make up a write. `number` counts the decisions of a prefix."""

    number: int
    write: WriteId
    prepared: Mapping[str, PreparedTransaction]

    def by_transactional_id(self, prefix: str) -> dict[str, PreparedTransaction]:
        """Return the transactions by transactional id."""
        return {self.write.transactional_id(prefix, task): each for task, each in self.prepared.items()}

    def offsets(self, topic: str, partitions: Iterable[int]) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the offsets to commit. Raise `ConfigurationError` if the decision is too long for the topic."""
        head = f"{self.write.query} {self.write.batch} {self.write.run} "
        texts, line = [], head
        for task, each in self.prepared.items():
            entry = f"{task}:{each}"
            if len(line) + len(entry) + 1 > MOST_METADATA:
                texts.append(line)
                line = head
            line += entry if line == head else f",{entry}"
        texts.append(line)
        numbers = sorted(partitions)
        if len(texts) > len(numbers):
            raise ConfigurationError(
                f"the decision on {len(self.prepared)} tasks needs {len(texts)} partitions of {topic!r}, which has "
                f"{len(numbers)}: write with fewer tasks (coalesce)"
            )
        return {
            TopicPartition(topic, number): OffsetAndMetadata(self.number, text)
            for number, text in zip(numbers, texts, strict=False)
        }


def last_decision(prefix: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Decision | None:
    """Return the decision in the group's offsets. Raise `ConfigurationError` for those of a consumer."""
    if not offsets:
        return None
    number = max(each.offset for each in offsets.values())
    heads, prepared = set(), {}
    try:
        for each in offsets.values():
            if each.offset == number:
                query, batch, run, tasks = each.metadata.split(" ")
                heads.add((query, int(batch), run))
                for entry in tasks.split(","):
                    task, _, name = entry.partition(":")
                    prepared[task] = PreparedTransaction.parse(name)
        ((query, last_batch, run),) = heads
    except ValueError:
        raise ConfigurationError(
            f"the consumer group {prefix!r} has offsets that no exactly-once sink has written: choose another "
            "transactionalIdPrefix"
        ) from None
    return Decision(number=number, write=WriteId(query=query, run=run, batch=last_batch), prepared=prepared)


def is_of_prefix(prefix: str, transactional_id: str) -> bool:
    """Return whether an id is one of the tasks of a sink."""
    return re.fullmatch(rf"{re.escape(prefix)}-[0-9a-f]{{32}}-[01]-\d+\.\d+", transactional_id) is not None
