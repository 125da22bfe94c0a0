"""From the records of a `__consumer_offsets` partition to its groups and offsets: what a new coordinator does first.

Records are taken one by one; only the last one of each group is made into a group, at the end. Keys of later versions
(KIP-848 and share groups) and values that can't be read are passed over and counted.
"""

from odradek.groups.classic import ClassicGroup
from odradek.groups.core import GroupSettings
from odradek.groups.messages import Effect
from odradek.groups.offsets import Offsets
from odradek.model import TopicPartition
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.group_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    decode_key,
    decode_value,
)

NO_PRODUCER = -1


class CoordinatorPlayback:
    """The state that the records so far make."""

    def __init__(self) -> None:
        self.offsets = Offsets()
        self.unreadable = 0
        """Records that were passed over because they can't be read: a bug, or a newer release's."""
        self._groups: dict[str, GroupMetadataValue] = {}

    def record(
        self, key: bytes | None, value: bytes | None, record_offset: int, producer_id: int = NO_PRODUCER
    ) -> None:
        """One record; `producer_id` if it is part of a transaction."""
        try:
            known = UnknownKey(version=-1) if key is None else decode_key(key)
            if isinstance(known, GroupMetadataKey):
                self._group(known, value)
            elif isinstance(known, OffsetCommitKey):
                self._offset(known, value, record_offset, producer_id)
        except MalformedMessageError:
            self.unreadable += 1

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """The marker of a transaction's end."""
        self.offsets.end_transaction(producer_id, committed=committed)

    def finish(self, settings: GroupSettings, now_ms: int) -> dict[str, tuple[ClassicGroup, list[Effect]]]:
        """Every group, and what must happen at once because it was loaded; `now_ms` is the machines' clock.

        A name that only offsets are kept under is a group without members, too.
        """
        groups = {
            group_id: ClassicGroup.load(group_id, metadata, settings, now_ms)
            for group_id, metadata in self._groups.items()
        }
        for group_id in self.offsets.groups:
            if group_id not in groups:
                groups[group_id] = (ClassicGroup(group_id, settings), [])
        return groups

    def _group(self, key: GroupMetadataKey, data: bytes | None) -> None:
        if data is None:
            self._groups.pop(key.group, None)
            return
        value = decode_value(key, data)
        assert isinstance(value, GroupMetadataValue)
        self._groups[key.group] = value

    def _offset(self, key: OffsetCommitKey, data: bytes | None, record_offset: int, producer_id: int) -> None:
        partition = TopicPartition(key.topic, key.partition)
        if data is None:
            self.offsets.remove(key.group, partition)
            return
        value = decode_value(key, data)
        assert isinstance(value, OffsetCommitValue)
        if producer_id == NO_PRODUCER:
            self.offsets.put(key.group, partition, value, record_offset)
        else:
            self.offsets.put_transactional(producer_id, key.group, partition, value, record_offset)
