"""The consumer's side of a fetch session with one broker (KIP-227): requests contain only changes. No I/O.

```
response to …          session id         next request
full (epoch 0)         n                  incremental, epoch 1
full (epoch 0)         0: no session      full
incremental, epoch e   n                  incremental, epoch e + 1
incremental            0: it was closed   full
any                    none: an error     full; it closes session n if the broker still has it
```
A session identifies topics by id or by name; when that changes, the next request is full.
"""

import uuid
from collections.abc import Mapping
from typing import Final

from odradek.clients.fetch import FetchPosition, FetchRequest
from odradek.model import ErrorCode, KafkaError, TopicPartition
from odradek.protocol.messages.fetch import FetchedPartition, FetchResponse

NO_SESSION: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
_LAST_EPOCH: Final = 2**31 - 1
SESSION_ERRORS: Final = {
    ErrorCode.fetch_session_id_not_found,
    ErrorCode.invalid_fetch_session_epoch,
    ErrorCode.fetch_session_topic_id_error,
}
"""Errors that only incremental requests get, so that a full request follows at once."""


class FetchSessionHandler:
    """The session with one broker. After each `build`, call `handle_response` or `handle_error`."""

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        """The epoch of the next request; 0 is a full request, which also closes session `session_id`."""
        self._positions: Mapping[TopicPartition, FetchPosition] = {}
        """The session's positions after the last request."""
        self._uses_topic_ids = False

    @property
    def is_incremental(self) -> bool:
        """Return whether the next request contains only changes."""
        return self.epoch != INITIAL_EPOCH

    def build(self, wanted: Mapping[TopicPartition, FetchPosition], *, uses_topic_ids: bool) -> FetchRequest:
        """Return the next request, which fetches exactly `wanted`."""
        if uses_topic_ids != self._uses_topic_ids:
            self.epoch = INITIAL_EPOCH
        known = self._positions if self.is_incremental else {}
        self._positions, self._uses_topic_ids = wanted, uses_topic_ids
        forgotten: dict[TopicPartition, uuid.UUID | None] = {}
        for partition, position in known.items():
            now = wanted.get(partition)
            if now is None or (uses_topic_ids and now.topic_id != position.topic_id):
                forgotten[partition] = position.topic_id
        return FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            positions={each: position for each, position in wanted.items() if known.get(each) != position},
            forgotten=forgotten,
            uses_topic_ids=uses_topic_ids,
        )

    def handle_response(self, response: FetchResponse) -> dict[TopicPartition, FetchedPartition]:
        """Return the response's partitions. Raises its `KafkaError`, after which the next request is full."""
        if response.error_code:
            code = ErrorCode(response.error_code)
            self.handle_error()
            if code == ErrorCode.fetch_session_id_not_found:
                self.session_id = NO_SESSION
            raise KafkaError(code)
        self.session_id = response.session_id
        if response.session_id == NO_SESSION:
            self.epoch = INITIAL_EPOCH
        else:
            self.epoch = 1 if self.epoch == _LAST_EPOCH else self.epoch + 1
        names = {position.topic_id: partition.topic for partition, position in self._positions.items()}
        found = {
            TopicPartition(topic.name or names.get(topic.topic_id, ""), partition.partition): partition
            for topic in response.topics
            for partition in topic.partitions
        }
        wanted = {partition: answer for partition, answer in found.items() if partition in self._positions}
        if len(wanted) < len(found):
            self.handle_error()  # the broker's session has other partitions
        return wanted

    def handle_error(self) -> None:
        """Make the next request full, because the broker may not have received the last one."""
        self.epoch = INITIAL_EPOCH
