"""Replay of a `__consumer_offsets` partition's records when its coordinator loads.

Only the last record of each group is turned into a group, at the end. Keys of later versions (KIP-848 and share
groups) and unreadable values are skipped and counted.
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
    """The state after the records so far."""

    def __init__(self) -> None:
        self.offsets = Offsets()
        self.unreadable = 0
        """Number of records skipped because they cannot be read: written by a newer release, or damaged."""
        self._groups: dict[str, GroupMetadataValue] = {}

    def record(
        self, key: bytes | None, value: bytes | None, record_offset: int, producer_id: int = NO_PRODUCER
    ) -> None:
        """Replay a record; `producer_id` is set if it is part of a transaction."""
        try:
            known = UnknownKey(version=-1) if key is None else decode_key(key)
            if isinstance(known, GroupMetadataKey):
                self._group(known, value)
            elif isinstance(known, OffsetCommitKey):
                self._offset(known, value, record_offset, producer_id)
        except MalformedMessageError:
            self.unreadable += 1

    def end_transaction(self, producer_id: int, *, committed: bool) -> None:
        """Replay a transaction marker."""
        self.offsets.end_transaction(producer_id, committed=committed)

    def finish(self, settings: GroupSettings, now_ms: int) -> dict[str, tuple[ClassicGroup, list[Effect]]]:
        """Return every group and the effects of loading it; `now_ms` is the groups' monotonic clock.

        A group id that only has offsets becomes a group without members.
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
