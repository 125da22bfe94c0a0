"""Target: the directory of a log, after something happened to its files.

An input is a list of harms of ten bytes: to which file, where, what, and whether a batch's checksum is right again
afterwards. However a directory looks, it can be inspected, verified and opened; what is opened without trust holds
only valid batches, goes on, and has nothing wrong in it when it is closed.
"""

import random
import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, partial
from typing import NamedTuple

from crc32c import crc32c

from conformance.fuzz.fuzz_engine import Target
from odradek.broker.log.errors import LogStorageError
from odradek.broker.log.inspection.file_contents import inspect
from odradek.broker.log.inspection.verification import Verification
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.turns import at_once
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import iterate_batches, verify_crc
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.errors import CorruptBatchError
from odradek.simulation.virtual.disk import MemoryDisk

_FOLDER = "/data/t-0"
_NOW = 1_800_000_000_000
_CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)
_HARM = struct.Struct(">BBHBBi")
_MOST_HARMS = 8
_BATCHES = 12


class Harm(NamedTuple):
    """`kind`: 0 overwrite, 1 cut, 2 append, 3 remove, 4 copy from another place; else a byte."""

    file: int
    kind: int
    place: int
    repair: int
    length: int
    value: int


@cache
def _template() -> dict[str, bytes]:
    """A closed log of several segments: two leaders, an idempotent producer, compressed batches."""
    disk = MemoryDisk()
    log = Log.open(disk, _FOLDER, _CONFIG, now_ms=_NOW)
    sequence = 0
    for number in range(_BATCHES):
        count = number % 3 + 1
        codec = Codec.GZIP if number % 5 == 4 else Codec.NONE
        records = [(_NOW + number * 10 + each, b"k", b"v%d" % number * 10, ()) for each in range(count)]
        batch = encode_batch(records, codec=codec, producer_id=7, producer_epoch=0, base_sequence=sequence)
        log.append_as_leader(batch, leader_epoch=number // 6 * 2, now_ms=_NOW)
        log.write()
        sequence += count
    log.close()
    return {name: disk.read_file(f"{_FOLDER}/{name}") for name in disk.list(_FOLDER)}


def _split(data: bytes) -> list[bytes]:
    count = min(len(data) // _HARM.size, _MOST_HARMS)
    return [data[number * _HARM.size :][: _HARM.size] for number in range(count)]


def _harmed(data: bytes) -> dict[str, bytes]:
    files = dict(_template())
    names = list(files)
    for each in _split(data):
        harm = Harm(*_HARM.unpack(each))
        name = names[harm.file % len(names)]
        content = files.get(name)
        if content is None:
            continue
        if harm.kind == 3:
            del files[name]
            continue
        files[name] = _harm(content, harm, is_log=name.endswith(".log"))
    return files


def _harm(content: bytes, harm: Harm, *, is_log: bool) -> bytes:
    place = harm.place % (len(content) + 1)
    new = struct.pack(">i", harm.value)[: harm.length % 5]
    if harm.kind == 1:
        return content[:place]
    if harm.kind == 2:
        return content + (content[place : place + 300] if harm.repair & 1 else new * (harm.length % 50))
    if harm.kind == 4:
        new = content[harm.value % (len(content) + 1) :][: harm.length]
    changed = content[:place] + new + content[place + len(new) :]
    return _with_right_checksums(changed) if is_log and harm.repair & 1 else changed


def _with_right_checksums(content: bytes) -> bytes:
    """Every batch's CRC is right, as far as sizes lead from one to the next."""
    fixed, position = bytearray(content), 0
    while position + 61 <= len(fixed):
        end = position + 12 + struct.unpack_from(">i", fixed, position + 8)[0]
        if not position + 61 <= end <= len(fixed):
            break
        struct.pack_into(">I", fixed, position + 17, crc32c(fixed[position + 21 : end]))
        position = end
    return bytes(fixed)


def check_log_directory(data: bytes) -> None:
    """Open, repair and reopen a log directory, and compare."""
    head, harms = data[:1], data[1:]
    disk = MemoryDisk()
    disk.make_directories(_FOLDER)
    files = _harmed(harms)
    for name, content in files.items():
        disk.replace_file(f"{_FOLDER}/{name}", content)
    assert disk.list(_FOLDER) == sorted(files)
    for name in disk.list(_FOLDER):
        list(inspect(disk, f"{_FOLDER}/{name}", records=True))
    list(Verification(disk, records=True).partition_directory(_FOLDER))
    is_trusted = head == b"\x01"
    try:
        log = Log.open(disk, _FOLDER, _CONFIG, now_ms=_NOW, clean=is_trusted)
        _use(log, is_trusted=is_trusted)
    except (LogStorageError, CorruptBatchError):
        assert is_trusted, "nothing was trusted, and it can't be opened"
        return
    # A batch that contradicts itself under a right checksum was written so: recovery keeps it, as Kafka's does.
    if not is_trusted and not any(harm[4] & 1 for harm in _split(harms)):
        damaged = [found for found in Verification(disk).partition_directory(_FOLDER) if found.is_damage]
        assert not damaged, damaged


def _use(log: Log, *, is_trusted: bool) -> None:
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        piece = log.read(offset, 700)
        if not piece:
            assert is_trusted, f"nothing at {offset}, before the end at {log.log_end_offset}"
            break
        for position, header in () if is_trusted else iterate_batches(piece):
            assert verify_crc(piece, position, header), "a damaged batch is served"
            assert header.base_offset <= header.last_offset
            assert offset <= header.last_offset < log.log_end_offset
            offset = header.next_offset
        if is_trusted:
            offset += 1 + (log.log_end_offset - offset) // 50
    for look in (log.find_max_timestamp, partial(log.find_offset, _NOW + 100)):
        with suppress(CorruptBatchError):  # its checksum is right, and its records are none
            at_once(look())
    end = log.log_end_offset
    epoch = max([9, *(entry.epoch for entry in log.epochs.entries)])  # no checksum covers a batch's
    info = log.append_as_leader(encode_batch([(_NOW, None, b"new", ())]), leader_epoch=epoch, now_ms=_NOW)
    assert info.first_offset == end
    log.write()
    log.truncate_to(max(end - 1, log.log_start_offset))
    log.close()


def directory_seeds() -> Iterator[bytes]:
    """Nothing; and something to each file, of each kind."""
    yield b"\x00"
    yield b"\x01"
    for file in range(len(_template())):
        for kind in range(5):
            yield b"\x00" + _HARM.pack(file, kind, 70 * file + 3, kind & 1, 4, -1)
            yield b"\x01" + _HARM.pack(file, kind, 30 * file + 8, 1, 2, 5)


_EDGES = (0, 1, -1, 2**31 - 1, -(2**31), 49, 1000)


def mutate_harms(data: bytes, chance: random.Random) -> bytes | None:
    """One harm more, or another one."""
    harms = [data[at : at + _HARM.size] for at in range(1, len(data), _HARM.size)]
    kind = chance.choice((0, 0, 0, 1, 2, 3, 4))
    place = chance.choice((chance.randrange(2000), chance.choice((0, 4, 8, 12, 16, 21, 23, 27, 35, 43, 51, 53, 57))))
    new = _HARM.pack(
        chance.randrange(256), kind, place, chance.randrange(2), chance.choice((1, 2, 4, 61)), chance.choice(_EDGES)
    )
    if harms and chance.random() < 0.5:
        harms[chance.randrange(len(harms))] = new
    else:
        harms.append(new)
    return chance.choice((b"\x00", b"\x00", b"\x01")) + b"".join(harms)


TARGETS = {
    "log_directory": Target(
        check=check_log_directory,
        seeds=directory_seeds,
        mutate=mutate_harms,
        reaches={
            "odradek.broker.log.recovery.log_loader": 0.8,
            "odradek.broker.log.inspection.partition_check": 0.7,
            "odradek.broker.log.inspection.segment_check": 0.75,
        },
        runs=200,
        longest=1 + _MOST_HARMS * _HARM.size,
    )
}
