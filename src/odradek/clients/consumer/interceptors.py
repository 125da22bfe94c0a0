"""Consumer interceptors: the application's hooks on returned records and committed offsets (KIP-42)."""

import logging
from collections.abc import Mapping, Sequence

from odradek.clients.consumer.subscription_state import ConsumerRecord
from odradek.clients.group_offsets import OffsetAndMetadata
from odradek.model import ConfigurationError, TopicPartition

_log = logging.getLogger("odradek.clients")


class ConsumerInterceptor:
    """The base class for interceptors. Its methods run in the event loop; their exceptions are only logged."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records that the application gets instead of `records`; the position is after all of `records`."""
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Handle offsets that the group's coordinator has stored."""


class Interceptors:
    """A consumer's interceptors: each gets the records that the previous one returned; one that raises is skipped.

    Raises `ConfigurationError` for an object without the two methods.
    """

    def __init__(self, interceptors: Sequence[ConsumerInterceptor]) -> None:
        for each in interceptors:
            if not (callable(getattr(each, "on_consume", None)) and callable(getattr(each, "on_commit", None))):
                raise ConfigurationError(
                    f"an interceptor needs the methods on_consume and on_commit: {each!r} lacks one of them"
                )
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        for each in self._interceptors:
            try:
                returned = each.on_consume(list(records))
                if not isinstance(returned, list) or not all(isinstance(one, ConsumerRecord) for one in returned):
                    raise TypeError(f"on_consume returned {returned!r} instead of a list of ConsumerRecord")
            except Exception:
                _log.exception("Interceptor %s failed for %d records", type(each).__name__, len(records))
            else:
                records = returned
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for each in self._interceptors:
            try:
                each.on_commit(offsets)
            except Exception:
                _log.exception("Interceptor %s failed for a commit", type(each).__name__)
