"""Calls the producer's partitioner, whose exceptions and invalid partitions become errors of a single `send`."""

import logging
from operator import index

from odradek.clients.metadata import ClusterMetadata
from odradek.model import ConfigurationError, ErrorCode, KafkaError
from odradek.partitioners import AdaptivePartitioner, BatchAware, KeyRule, LoadAware, Partitioner
from odradek.partitioners.adaptive import sticky_bytes

_log = logging.getLogger("odradek.clients")


class RecordPlacer:
    """Calls a partitioner, and its optional methods if it has them.

    Raises `ConfigurationError` for an unknown `key_rule`.
    """

    def __init__(self, partitioner: Partitioner) -> None:
        self._partitioner = partitioner
        self._name = type(partitioner).__name__
        self._batch_aware = partitioner if isinstance(partitioner, BatchAware) else None
        self._load_aware = partitioner if isinstance(partitioner, LoadAware) else None
        self.key_rule = _key_rule(partitioner)
        """How the partitioner uses keys; None if it must be called for each record."""
        self.is_batch_aware = self._batch_aware is not None
        """Whether the partitioner may choose again when a record would open a new batch."""
        self.is_load_aware = self._load_aware is not None
        """Whether the partitioner uses appended bytes and queue sizes."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, metadata: ClusterMetadata) -> int:
        """Return the chosen partition. Raises `KafkaError` INVALID_PARTITIONS for an unknown one or a failure."""
        try:
            partition = index(self._partitioner.partition(topic, key, value, metadata))
        except Exception as error:
            raise self._failed(topic, error) from error
        if partition not in metadata.topics[topic].partitions:
            raise KafkaError(
                ErrorCode.invalid_partitions,
                f"partitioner {self._name} returned partition {partition} of topic {topic!r}, which has partitions "
                f"0 to {len(metadata.topics[topic].partitions) - 1}",
            )
        return partition

    def on_new_batch(self, topic: str, metadata: ClusterMetadata, previous: int) -> None:
        """Notify the partitioner that a record would open a new batch. Raises `KafkaError` if it fails."""
        assert self._batch_aware is not None
        try:
            self._batch_aware.on_new_batch(topic, metadata, previous)
        except Exception as error:
            raise self._failed(topic, error) from error

    def on_appended(
        self, topic: str, partition: int, appended_bytes: int, metadata: ClusterMetadata, *, batch_ready: bool
    ) -> None:
        """Call `on_appended` of the partitioner. If it fails, log that and call no method of `LoadAware` again."""
        if self._load_aware is not None:
            try:
                self._load_aware.on_appended(topic, partition, appended_bytes, metadata, batch_ready=batch_ready)
            except Exception:
                _log.exception("%s.on_appended failed; it is not notified of loads any more", self._name)
                self._load_aware, self.is_load_aware = None, False

    def sticky_bytes(self, topic: str, partition: int) -> tuple[int, int]:
        """Return for how many bytes without a key the partitioner would return `partition`; 0 if that is unknown.

        The second number is for as long as no batch is ready.
        """
        adaptive = self._partitioner
        return sticky_bytes(adaptive, topic, partition) if type(adaptive) is AdaptivePartitioner else (0, 0)

    def on_batch(self, topic: str, partition: int, batch_bytes: int, metadata: ClusterMetadata) -> None:
        """Notify the partitioner of a whole batch without keys, so that it may choose again for the next batch."""
        if self._batch_aware is not None:
            self.on_new_batch(topic, metadata, partition)
        self.on_appended(topic, partition, batch_bytes, metadata, batch_ready=True)

    def update_load(self, topic: str, queue_sizes: dict[int, int], *, partition_count: int) -> None:
        """Call `update_load` of the partitioner. If it fails, log that and call no method of `LoadAware` again."""
        if self._load_aware is not None:
            try:
                self._load_aware.update_load(topic, queue_sizes, partition_count=partition_count)
            except Exception:
                _log.exception("%s.update_load failed; it is not notified of loads any more", self._name)
                self._load_aware, self.is_load_aware = None, False

    def _failed(self, topic: str, error: Exception) -> KafkaError:
        what = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        message = f"partitioner {self._name} failed for a record of topic {topic!r}: {what}"
        return KafkaError(ErrorCode.invalid_partitions, message)


def _key_rule(partitioner: Partitioner) -> KeyRule | None:
    rule = getattr(partitioner, "key_rule", None)
    if rule is not None and rule not in set(KeyRule):
        known = " or ".join(KeyRule)
        raise ConfigurationError(f"key_rule of partitioner {type(partitioner).__name__} is {known}, not {rule!r}")
    return None if rule is None else KeyRule(rule)
