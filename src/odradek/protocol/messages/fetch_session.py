"""The fetching side of a fetch session (KIP-227), for consumers and followers: requests have only changes.

```
response to …          session id         next request
full (epoch 0)         n                  incremental, epoch 1
full (epoch 0)         0: no session      full
incremental, epoch e   n                  incremental, epoch e + 1
incremental            0: it was closed   full
any                    none: an error     full; it closes session n if the broker still has it
```
A session identifies topics by id or by name; when that changes, the next request is full. Pure. The broker's side is
`broker.serving.fetch_sessions`.
"""

from collections.abc import Mapping
from typing import Final, Generic, Protocol, TypeVar
from uuid import UUID

from msgspec import Struct, field

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


def next_epoch(epoch: int) -> int:
    """Return the epoch of the request after that of `epoch`."""
    return 1 if epoch == _LAST_EPOCH else epoch + 1


class Position(Protocol):
    """A position from which to fetch one partition."""

    @property
    def topic_id(self) -> UUID | None:
        """The topic's id, None if unknown."""


P = TypeVar("P", bound=Position)


class FetchRequest(Struct, Generic[P], frozen=True, kw_only=True):
    """The content of one Fetch. `forgotten` are partitions to remove from the session, with topic ids."""

    positions: Mapping[TopicPartition, P]
    session_id: int = NO_SESSION
    session_epoch: int = FINAL_EPOCH
    forgotten: Mapping[TopicPartition, UUID | None] = field(default_factory=dict)
    uses_topic_ids: bool = True

    @property
    def is_incremental(self) -> bool:
        """Return whether the request has only changes."""
        return self.session_epoch > INITIAL_EPOCH


class FetchSessionHandler(Generic[P]):
    """The session with one broker. After each `build`, call `handle_response` or `handle_error`.

    Requests may follow an incremental one before its response arrives.
    """

    def __init__(self) -> None:
        self.session_id = NO_SESSION
        self.epoch = INITIAL_EPOCH
        """The epoch of the next request; 0 is a full request, which also closes session `session_id`."""
        self.positions: Mapping[TopicPartition, P] = {}
        """The session's positions after the last request; none if the next request is full."""
        self._uses_topic_ids = True

    def build(self, wanted: Mapping[TopicPartition, P], *, uses_topic_ids: bool = True) -> FetchRequest[P]:
        """Return the next request, which fetches exactly `wanted`. `wanted` must not change afterwards."""
        if uses_topic_ids != self._uses_topic_ids:
            self.handle_error()
        known, epoch = self.positions, self.epoch
        self.positions, self.epoch, self._uses_topic_ids = wanted, next_epoch(epoch), uses_topic_ids
        forgotten: dict[TopicPartition, UUID | None] = {}
        for partition, position in known.items():
            now = wanted.get(partition)
            if now is None or (uses_topic_ids and now.topic_id != position.topic_id):
                forgotten[partition] = position.topic_id
        return FetchRequest(
            session_id=self.session_id,
            session_epoch=epoch,
            positions={each: position for each, position in wanted.items() if known.get(each) != position},
            forgotten=forgotten,
            uses_topic_ids=uses_topic_ids,
        )

    def handle_response(
        self, response: FetchResponse, wanted: Mapping[TopicPartition, P]
    ) -> dict[TopicPartition, FetchedPartition]:
        """Return the response's partitions; `wanted` is what its request was built for.

        Raises the response's `KafkaError`, after which the next request is full.
        """
        if response.error_code:
            code = ErrorCode(response.error_code)
            self.handle_error()
            if code is ErrorCode.fetch_session_id_not_found:
                self.session_id = NO_SESSION
            raise KafkaError(code)
        self.session_id = response.session_id
        found = fetched_partitions(response, wanted)
        answers = {partition: answer for partition, answer in found.items() if partition in wanted}
        if response.session_id == NO_SESSION or len(answers) < len(found):
            self.handle_error()  # there is no session, or the broker's has other partitions
        return answers

    def handle_error(self) -> None:
        """Make the next request full, because the broker may not have received the last one."""
        self.epoch, self.positions = INITIAL_EPOCH, {}


def fetched_partitions(
    response: FetchResponse, wanted: Mapping[TopicPartition, Position]
) -> dict[TopicPartition, FetchedPartition]:
    """Return the response's partitions with the names of `wanted`; a topic of an unknown id has an empty name."""
    names = {position.topic_id: partition.topic for partition, position in wanted.items()}
    return {
        TopicPartition(topic.name or names.get(topic.topic_id, ""), partition.partition): partition
        for topic in response.topics
        for partition in topic.partitions
    }
