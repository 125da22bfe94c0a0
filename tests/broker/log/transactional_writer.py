"""A log that is written in the names of several transactional producers, for tests of more than one file."""

import random

from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.segments.transaction_index import AbortedTransaction
from odradek.protocol.batches.control_records import ControlType
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import decode_records, encode_batch
from odradek.simulation.virtual.disk import MemoryDisk
from tests.broker.log.scene import end_transaction

NOW_MS = 1_800_000_000_000
DIRECTORY = "/data/t-0"
SMALL = LogConfig(segment_bytes=500, index_interval_bytes=100)


class Writer:
    """Appends in the names of producers; each counts its own sequence."""

    def __init__(self, disk: MemoryDisk | None = None, config: LogConfig = SMALL) -> None:
        self.disk = disk or MemoryDisk(random.Random(1))
        self.disk.make_directories("/data")
        self.disk.sync_directory("/")
        self.config = config
        self.sequences: dict[int, int] = {}
        self.log = self.opened()

    def opened(self, *, clean: bool = False, recovery_point: int = 0) -> Log:
        return Log.open(self.disk, DIRECTORY, self.config, now_ms=NOW_MS, clean=clean, recovery_point=recovery_point)

    def restart(self, *, clean: bool) -> None:
        if clean:
            self.log.close()
        self.disk.kill()
        self.log = self.opened(clean=clean)

    def data(self, producer: int, count: int = 1, *, transactional: bool = True) -> None:
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + count
        batch = encode_batch(
            [(NOW_MS, None, b"v" * 30, ())] * count,
            producer_id=producer,
            producer_epoch=0,
            base_sequence=sequence,
            is_transactional=transactional,
        )
        self.log.append_as_leader(batch, leader_epoch=0, now_ms=NOW_MS, transactional=True)

    def end(self, producer: int, type_: ControlType = ControlType.ABORT) -> int:
        return end_transaction(self.log, producer, type_).first_offset

    def settle(self) -> None:
        self.log.write()
        self.log.producers.committed(self.log.written_offset)

    def aborted(self) -> list[AbortedTransaction]:
        return self.log.aborted_transactions(0, self.log.written_offset)

    def files(self) -> list[str]:
        return [name for name in self.disk.list(DIRECTORY) if name.endswith(".txnindex")]


def scripted(writer: Writer) -> list[AbortedTransaction]:
    """Several transactions over several segments; those of them that were aborted."""
    expected = []
    for round_ in range(4):
        begin = writer.log.log_end_offset
        writer.data(1, 2)
        writer.data(2)
        writer.data(7, transactional=False)
        last = writer.end(1)
        expected.append(AbortedTransaction(1, begin, last, begin + 2))
        writer.data(3)
        writer.end(3, ControlType.COMMIT)
        last = writer.end(2, ControlType.COMMIT if round_ % 2 else ControlType.ABORT)
        if not round_ % 2:
            expected.append(AbortedTransaction(2, begin + 2, last, last + 1))
    writer.settle()
    assert len(writer.log.segments.bases) > 3
    return expected


class Outcome:
    """The transactions of a log with these batches, by the rules of KIP-98, computed without the code under test."""

    def __init__(self, data: bytes) -> None:
        self.open: dict[int, int] = {}
        """Where the open transactions begin, by producer."""
        self.aborted: list[AbortedTransaction] = []
        for position, header in iterate_batches(data):
            producer, offset = header.producer_id, header.base_offset
            if header.is_control:
                (record,) = decode_records(data[position : position + header.size])
                first = self.open.pop(producer, None)
                if first is not None and record.key == b"\0\0\0\0":
                    stable = min(self.open.values(), default=offset + 1)
                    self.aborted.append(AbortedTransaction(producer, first, offset, stable))
            elif header.is_transactional:
                self.open.setdefault(producer, offset)

    def check(self, log: Log, end_offset: int | None = None) -> None:
        """Hold a log against it, of which all is committed."""
        log.producers.committed(log.written_offset)
        end = log.written_offset if end_offset is None else end_offset
        start = log.first_base_offset
        assert log.aborted_transactions(start, end) == [
            each for each in self.aborted if each.last_offset >= start and each.first_offset < end
        ]
        entries = log.producers.entries.items()
        assert {key: entry.transaction_start for key, entry in entries if entry.transaction_start >= 0} == self.open
        unstable = min(self.open.values(), default=None)
        assert log.first_unstable_offset == (None if unstable is None else max(unstable, log.log_start_offset))
