"""Compaction by compiled code beside the plain one: the same logs, byte for byte, and the same damage found."""

from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from odradek.broker.log.cleaner.log_cleaner import CleanerSettings
from odradek.kernels import LIBRARY, Library
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.control_records import ControlType
from odradek.protocol.batches.record_batch import HEADER_SIZE
from odradek.protocol.batches.records import encode_batch
from tests.broker.log.compacting import COMPACT, T0, Room
from tests.broker.log.scene import end_transaction, maintain

PLAIN, COMPILED = None, LIBRARY
RETENTION_MS = 1000
CONFIG = replace(COMPACT, segment_bytes=1500, index_interval_bytes=100, delete_retention_ms=RETENTION_MS)


class Batch(NamedTuple):
    """`outcome` ends a transaction of `producer_id`, which the batch is of."""

    records: list[tuple[int, bytes | None]]
    codec: Codec
    producer_id: int
    outcome: ControlType | None
    is_fixed_time: bool


batches = st.builds(
    Batch,
    st.lists(st.tuples(st.integers(0, 9), st.one_of(st.none(), st.binary(max_size=40))), min_size=1, max_size=8),
    st.sampled_from([Codec.NONE, Codec.NONE, Codec.NONE, Codec.ZSTD]),
    st.sampled_from([-1, -1, 4, 5]),
    st.sampled_from([None, None, None, ControlType.COMMIT, ControlType.ABORT]),
    st.booleans(),
)
rounds = st.lists(st.lists(batches, min_size=1, max_size=12), min_size=1, max_size=4)


def append(room: Room, batch: Batch) -> None:
    records = [(room.now_ms + key, b"%d" % key * 3, value, ()) for key, value in batch.records]
    numbers: dict[str, Any] = {}
    if batch.producer_id >= 0:
        entry = room.log.producers.entries.get(batch.producer_id)
        sequence = 0 if entry is None else entry.last_sequence + 1
        numbers = {"producer_id": batch.producer_id, "producer_epoch": 0, "base_sequence": sequence}
        numbers["is_transactional"] = batch.outcome is not None
    kind = "LogAppendTime" if batch.is_fixed_time else "CreateTime"
    room.reconfigure(replace(room.config, message_timestamp_type=kind))
    room.append_batch(encode_batch(records, codec=batch.codec, **numbers))
    if numbers.get("is_transactional") and batch.outcome is not None:
        end_transaction(room.log, batch.producer_id, batch.outcome, now_ms=room.now_ms)
        room.log.write()


def life(given: list[list[Batch]], *, io_bytes: int, keys: int, library: Library | None) -> dict[str, bytes]:
    """All files of a log after several compactions."""
    room = Room(CONFIG)
    room.settings = CleanerSettings(
        dedupe_buffer_bytes=1, load_factor=keys / 1024, io_buffer_bytes=io_bytes, library=library
    )
    for batches_of_round in given:
        for batch in batches_of_round:
            append(room, batch)
        room.roll()
        room.compact()
        assert not room.manager.cleaner.uncleanable
        room.now_ms += RETENTION_MS // 2
        maintain(room.manager, room.now_ms)
    room.append_batch(encode_batch([(room.now_ms, b"z", b"", ())]))
    room.roll()
    room.compact()
    return {name: room.disk.read_file(f"/data/t-0/{name}") for name in room.names()}


@given(rounds, st.sampled_from([0, 300, 2000, 1 << 20]), st.sampled_from([1, 7, 1000]))
def test_plain_and_compiled_compaction_write_the_same_files(given: list[list[Batch]], io_bytes: int, keys: int) -> None:
    """However much is read at once, and however few keys are noted: of compressed, transactional and other batches."""
    plain = life(given, io_bytes=io_bytes, keys=keys, library=PLAIN)
    assert life(given, io_bytes=io_bytes, keys=keys, library=COMPILED) == plain


BATCHES = (0, 128, 222, 350)
"""Where the batches of the damaged segment begin."""


def damaged(position: int, byte: int, library: Library | None) -> tuple[dict[Any, str], list[bytes]]:
    """Return the error for a log of three segments with one changed byte, and the files."""
    room = Room()
    room.settings = CleanerSettings(library=library, io_buffer_bytes=600)
    for number in range(6):
        room.append((f"{number % 2}", "x" * 50), ("u", "y"))
        room.append((f"{number % 2}", "x" * 50), codec=Codec.LZ4)
        if number % 2:
            room.roll()
    room.append(("a", "1"))
    path = "/data/t-0/" + f"{room.log.segments.bases[1]:020d}.log"
    data = bytearray(room.disk.read_file(path))
    data[position] ^= byte
    room.disk.replace_file(path, bytes(data))
    room.compact()
    logs = [name for name in room.names() if name.endswith(".log")]
    return room.manager.cleaner.uncleanable, [room.disk.read_file(f"/data/t-0/{name}") for name in logs]


@given(st.integers(0, 440), st.integers(1, 255))
def test_plain_and_compiled_compaction_find_the_same_damage(position: int, byte: int) -> None:
    """A checksum covers all of a batch but the first 17 bytes: of those only the leader's epoch may be anything."""
    said, files = damaged(position, byte, COMPILED)
    assert (said, files) == damaged(position, byte, PLAIN)
    assert T0 in said or any(position in range(each + 12, each + 16) for each in BATCHES)


@pytest.mark.parametrize(
    ("position", "said"),
    [
        (HEADER_SIZE + 5, "a batch with a wrong checksum"),
        (0, "a batch with the offsets"),
        (7, "a batch with the offsets"),
        (9, "declares"),
        (16, "magic"),
    ],
)
@pytest.mark.parametrize("library", [PLAIN, COMPILED])
def test_damage_to_a_batch_is_found_wherever_it_is(position: int, said: str, library: Library | None) -> None:
    assert said in damaged(position, 1, library)[0][T0]


def test_more_keys_than_the_first_table_holds_are_kept_once() -> None:
    room = Room()
    room.settings = CleanerSettings(library=COMPILED)
    for value in "12":
        for first in range(0, 5000, 250):
            room.append(*[(f"{key}", value) for key in range(first, first + 250)])
    room.roll()
    assert room.compact() == 1
    assert room.texts() == [(5000 + key, f"{key}", "2") for key in range(5000)]


def test_a_batch_that_is_larger_than_what_is_read_at_once_is_compacted_too() -> None:
    room = Room()
    room.settings = CleanerSettings(library=COMPILED, io_buffer_bytes=200)
    room.append(("a", "1" * 5000), ("b", "1"))
    room.append(("a", "2" * 9000))
    room.append(("c", "3"))
    room.roll()
    assert room.compact() == 1
    assert [(offset, key) for offset, key, _ in room.texts()] == [(1, "b"), (2, "a"), (3, "c")]
