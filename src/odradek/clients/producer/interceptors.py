"""Producer interceptors: the application's hooks on sent and acknowledged records (KIP-42)."""

import logging
from collections.abc import Sequence
from typing import Any, NamedTuple

from odradek.clients.producer.producer_batch import RecordMetadata
from odradek.model import ConfigurationError
from odradek.protocol.batches.records import Headers

_log = logging.getLogger("odradek.clients")


class ProducerRecord(NamedTuple):
    """The arguments of `send`, before key and value are serialized."""

    topic: str
    value: Any
    key: Any
    partition: int | None
    timestamp_ms: int | None
    headers: Headers


class ProducerInterceptor:
    """The base class for interceptors. Its methods run in the event loop; their exceptions are only logged."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send, which may be `record` or another."""
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Handle a record that was delivered, or that has failed with `error`.

        A failed record has offset -1, and partition -1 if none was chosen.
        """


class Interceptors:
    """A producer's interceptors: each gets the record that the previous one returned; one that raises is skipped.

    Raises `ConfigurationError` for an object without the two methods.
    """

    def __init__(self, interceptors: Sequence[ProducerInterceptor]) -> None:
        for each in interceptors:
            if not (callable(getattr(each, "on_send", None)) and callable(getattr(each, "on_acknowledgement", None))):
                raise ConfigurationError(
                    f"an interceptor needs the methods on_send and on_acknowledgement: {each!r} lacks one of them"
                )
        self._interceptors = tuple(interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        for each in self._interceptors:
            try:
                returned = each.on_send(record)
                if not isinstance(returned, ProducerRecord):
                    raise TypeError(f"on_send returned {returned!r} instead of a ProducerRecord")
            except Exception:
                _log.exception("Interceptor %s failed for a record of topic %s", type(each).__name__, record.topic)
            else:
                record = returned
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        for each in self._interceptors:
            try:
                each.on_acknowledgement(metadata, error)
            except Exception:
                _log.exception("Interceptor %s failed for an acknowledgement", type(each).__name__)

    def on_send_error(self, record: ProducerRecord, error: Exception) -> None:
        """Call `on_acknowledgement` of all interceptors for a record that `send` refused."""
        partition = -1 if record.partition is None else record.partition
        timestamp = -1 if record.timestamp_ms is None else record.timestamp_ms
        self.on_acknowledgement(RecordMetadata(record.topic, partition, -1, timestamp), error)
