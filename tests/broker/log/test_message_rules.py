"""The rules for the records of a client's batch, compared with a literal implementation of Kafka's. Row M1."""

import io
import struct
import tracemalloc
from typing import Any, NamedTuple

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from odradek.broker.log.batch_contents import MAX_RECORD_ERRORS, MAX_RECORDS, InvalidRecordsError
from odradek.broker.log.log import Log
from odradek.broker.log.log_config import LogConfig
from odradek.broker.log.validation import MessageRules, UncheckedBatchError
from odradek.model import ErrorCode, KafkaError
from odradek.protocol.batches.compression import Codec, compress
from odradek.protocol.batches.record_batch import (
    HEADER_SIZE,
    BatchHeader,
    iterate_batches,
    read_header,
    verify_crc,
    write_header,
)
from odradek.protocol.batches.records import decode_records, encode_batch, encode_record
from odradek.protocol.varint import encode_varint
from odradek.simulation.virtual.disk import MemoryDisk

NOW = 1_800_000_000_000
HOUR = 3_600_000


# ---- the oracle: Kafka's rules, read off its documentation and its validator's tests -------------------------------


class Refused(Exception):
    """The error code that a batch gets."""


class Kept(NamedTuple):
    """The corrections of an accepted batch."""

    max_timestamp: int
    values: list[bytes | None]


def take(stream: io.BytesIO, count: int) -> bytes:
    taken = stream.read(count)
    if len(taken) != count:
        raise Refused(ErrorCode.invalid_record)
    return taken


def signed(stream: io.BytesIO, bits: int) -> int:
    """A zigzag number of up to 32 or 64 bits, in up to 5 or 10 bytes."""
    number = shift = 0
    for _ in range(5 if bits == 32 else 10):
        (byte,) = take(stream, 1)
        number += (byte % 128) << shift
        shift += 7
        if byte < 128:
            value = number // 2 if number % 2 == 0 else -(number + 1) // 2
            if not -(2 ** (bits - 1)) <= value < 2 ** (bits - 1):
                raise Refused(ErrorCode.invalid_record)
            return value
    raise Refused(ErrorCode.invalid_record)


def nullable(stream: io.BytesIO) -> bytes | None:
    length = signed(stream, 32)
    return None if length < 0 else take(stream, length)


def verdict(header: BatchHeader, section: bytes, config: LogConfig) -> Kept | ErrorCode:
    try:
        return judged(header, section, config)
    except Refused as wrong:
        return wrong.args[0]


def judged(header: BatchHeader, section: bytes, config: LogConfig) -> Kept:
    stream = io.BytesIO(section)
    timestamps, deltas, values, errors = [], [], [], set()
    for _ in range(header.record_count):
        length = signed(stream, 32)
        if length < 0:
            raise Refused(ErrorCode.invalid_record)
        record = io.BytesIO(take(stream, length))
        take(record, 1)
        timestamp = header.base_timestamp + signed(record, 64)
        deltas.append(signed(record, 32))
        key = nullable(record)
        values.append(nullable(record))
        header_count = signed(record, 32)
        if header_count < 0:
            raise Refused(ErrorCode.invalid_record)
        for _ in range(header_count):
            if nullable(record) is None:
                raise Refused(ErrorCode.invalid_record)
            nullable(record)
        if record.read():
            raise Refused(ErrorCode.invalid_record)
        if "compact" in config.cleanup_policy and key is None:
            errors.add(ErrorCode.invalid_record)
        elif config.message_timestamp_type == "CreateTime" and timestamp != -1:
            too_old = NOW - timestamp > config.message_timestamp_before_max_ms
            too_new = timestamp - NOW > config.message_timestamp_after_max_ms
            if too_old or too_new:
                errors.add(ErrorCode.invalid_timestamp)
        if not -(2**63) <= timestamp < 2**63 and not (key is None and "compact" in config.cleanup_policy):
            errors.add(ErrorCode.invalid_timestamp)
        timestamps.append(timestamp)
    if stream.read():
        raise Refused(ErrorCode.invalid_record)
    if errors:
        raise Refused(max(errors, key=lambda code: code == ErrorCode.invalid_timestamp))
    if deltas != list(range(header.record_count)):
        raise Refused(ErrorCode.invalid_record)
    largest = max([-1, *timestamps]) if config.message_timestamp_type == "CreateTime" else header.max_timestamp
    return Kept(largest, values)


# ---- batches of all kinds ------------------------------------------------------------------------------------------

_TEXT = st.binary(max_size=6)
_TIMES = st.one_of(
    st.sampled_from([-1, 0, -7, NOW - HOUR, NOW - HOUR - 1, NOW + HOUR, NOW + HOUR + 1, 2**62]),
    st.integers(NOW - 2 * HOUR, NOW + 2 * HOUR),
)


@st.composite
def fields(draw: Any, number: int) -> bytes:
    """A batch's record with this number, its body, most often a right one."""
    return b"".join(
        (
            draw(st.sampled_from([b"\x00", b"\xff"])),
            encode_varint(draw(st.one_of(st.integers(-HOUR, HOUR), st.just(2**61), st.just(-(2**61))))),
            encode_varint(draw(st.one_of(*[st.just(number)] * 9, st.integers(-(2**31), 2**31 - 1)))),
            *(
                encode_varint(-draw(st.integers(1, 3))) if text is None else encode_varint(len(text)) + text
                for text in (draw(st.one_of(st.none(), _TEXT)), draw(st.one_of(st.none(), _TEXT)))
            ),
            draw(header_fields()),
        )
    )


@st.composite
def header_fields(draw: Any) -> bytes:
    names = draw(st.lists(st.one_of(st.binary(max_size=2), st.none()) if draw(st.booleans()) else _TEXT, max_size=2))
    count = len(names) + draw(st.sampled_from([0, 0, 0, 0, 1, -1, -5]))
    parts = [encode_varint(count)]
    for name in names:
        parts += (encode_varint(-1),) if name is None else (encode_varint(len(name)), name)
        value = draw(st.one_of(st.none(), _TEXT))
        parts += (encode_varint(-1),) if value is None else (encode_varint(len(value)), value)
    return b"".join(parts)


@st.composite
def sections(draw: Any) -> tuple[bytes, int]:
    """Records, encoded, some of them spoiled, and how many the header says there are."""
    bodies = [draw(fields(number)) for number in range(draw(st.integers(1, 4)))]
    lies = st.sampled_from([0, 0, 0, 0, 0, 0, 1, -1])
    data = bytearray(b"".join(encode_varint(max(len(body) + draw(lies), 0)) + body for body in bodies))
    match draw(st.integers(0, 9)):
        case 0:
            data += draw(st.binary(max_size=3))
        case 1:
            del data[draw(st.integers(0, len(data))) :]
        case 2:
            data[draw(st.integers(0, len(data) - 1))] = draw(st.integers(0, 255))
        case 3:
            place = draw(st.integers(0, len(data) - 1))
            data[place:place] = b"\x80" * draw(st.integers(1, 10))
    return bytes(data), max(len(bodies) + draw(lies), 1)


_CONFIGS = st.builds(
    lambda compact, kind, before, after: LogConfig(
        validate_all=True,
        cleanup_policy=("compact",) if compact else ("delete",),
        message_timestamp_type=kind,
        message_timestamp_before_max_ms=before,
        message_timestamp_after_max_ms=after,
    ),
    st.booleans(),
    st.sampled_from(["CreateTime", "LogAppendTime"]),
    st.sampled_from([2**63 - 1, HOUR]),
    st.sampled_from([2**63 - 1, HOUR]),
)


def packed(section: bytes, count: int, codec: Codec = Codec.NONE, **changes: Any) -> bytearray:
    """A batch around `section`, its CRC right."""
    batch = bytearray(HEADER_SIZE)
    batch += compress(codec, section)
    header = BatchHeader(0, 0, -1, 2, 0, codec, count - 1, NOW, NOW, -1, -1, -1, count)._replace(**changes)
    write_header(batch, header)
    return batch


def admitted(batch: bytes | bytearray, config: LogConfig) -> bytearray:
    header, stored = MessageRules(config).admit(memoryview(bytearray(batch)), NOW, from_client=True)
    data = bytearray(stored)
    assert read_header(data) == header, "the header is that of the batch"
    assert verify_crc(data, 0, header)
    return data


def refusal(batch: bytes | bytearray, config: LogConfig) -> KafkaError:
    before = bytearray(batch)
    with pytest.raises(KafkaError) as caught:
        MessageRules(config).admit(memoryview(before), NOW, from_client=True, is_checked=None)
    assert before == batch, "a refused batch is left as it was"
    return caught.value


@given(section=sections(), codec=st.sampled_from(list(Codec)), config=_CONFIGS, base=_TIMES, said=_TIMES)
def test_batches_are_accepted_exactly_by_kafkas_rules(
    section: tuple[bytes, int], codec: Codec, config: LogConfig, base: int, said: int
) -> None:
    data, count = section
    batch = packed(data, count, codec, base_timestamp=base, max_timestamp=said)
    kept = verdict(read_header(batch), data, config)
    if not isinstance(kept, Kept):
        assert refusal(batch, config).code == kept
        return
    stored = admitted(batch, config)
    assert read_header(stored).max_timestamp == kept.max_timestamp
    records = decode_records(stored)
    assert [record.value for record in records] == kept.values
    assert [record.offset for record in records] == list(range(count))


@given(section=sections(), codec=st.sampled_from(list(Codec)))
def test_the_header_of_an_unchecked_batch_is_stored_unchanged(section: tuple[bytes, int], codec: Codec) -> None:
    batch = packed(*section, codec)
    assume(section[1] * 7 <= len(batch) - HEADER_SIZE)
    assert admitted(batch, LogConfig(validate_all=False)) == batch


# ---- one rule at a time --------------------------------------------------------------------------------------------


def record_errors(error: KafkaError) -> dict[int, str | None]:
    assert isinstance(error, InvalidRecordsError)
    return dict(error.record_errors)


def test_each_record_without_a_key_is_named_on_a_compacted_topic() -> None:
    batch = encode_batch([(NOW, key, b"v", ()) for key in (b"a", None, b"", None)])
    error = refusal(batch, LogConfig(cleanup_policy=("compact", "delete")))
    assert error.code == ErrorCode.invalid_record
    assert list(record_errors(error)) == [1, 3]
    assert "due to 2 record errors in total" in str(error)
    assert admitted(encode_batch([(NOW, b"", None, ())]), LogConfig(cleanup_policy=("compact",))), "a tombstone"
    assert admitted(batch, LogConfig()), "other topics take null keys"


def test_each_record_whose_time_is_out_of_range_is_named() -> None:
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    times = (NOW - 1000, NOW - 1001, -1, NOW + 500, NOW + 501, 0)
    error = refusal(encode_batch([(time, None, b"v", ()) for time in times]), config)
    assert error.code == ErrorCode.invalid_timestamp
    assert list(record_errors(error)) == [1, 4, 5]


def test_an_invalid_time_gives_the_code_and_missing_keys_are_named_too() -> None:
    batch = encode_batch([(NOW, None, b"v", ()), (NOW + 2 * HOUR, b"k", b"v", ())])
    error = refusal(batch, LogConfig(cleanup_policy=("compact",)))
    assert (error.code, list(record_errors(error))) == (ErrorCode.invalid_timestamp, [0, 1])


def test_by_default_the_record_that_is_too_far_ahead_is_named() -> None:
    error = refusal(encode_batch([(NOW, None, b"v", ()), (NOW + HOUR + 1, None, b"v", ())]), LogConfig())
    assert (error.code, list(record_errors(error))) == (ErrorCode.invalid_timestamp, [1])


def test_a_header_with_a_too_late_largest_timestamp_is_corrected() -> None:
    batch = encode_batch([(NOW - 5, None, b"v", ()), (NOW - 9, None, b"v", ())])
    write_header(batch, read_header(batch)._replace(max_timestamp=NOW + 2 * HOUR))
    assert read_header(admitted(batch, LogConfig())).max_timestamp == NOW - 5


@pytest.mark.parametrize("codec", list(Codec))
def test_an_impossible_record_count_is_refused(codec: Codec) -> None:
    batch = encode_batch([(NOW, None, b"v", ())], codec=codec)
    for count in (1000, 2**31 - 1):
        lying = bytearray(batch)
        write_header(lying, read_header(lying)._replace(record_count=count, last_offset_delta=count - 1))
        assert refusal(lying, LogConfig()).code == ErrorCode.invalid_record


def test_a_batch_with_too_many_records_is_refused() -> None:
    record = encode_varint(6) + bytes(4) + encode_varint(-1) + bytes(1)
    count = MAX_RECORDS + 1
    error = refusal(packed(record * count, count, Codec.ZSTD), LogConfig(max_message_bytes=1 << 30))
    assert error.code == ErrorCode.message_too_large


@pytest.mark.parametrize(
    ("value", "count", "config"),
    [(bytes(5 << 20), 1, LogConfig()), (b"", 20_000, LogConfig(compression_type="zstd"))],
)
def test_a_long_check_is_left_to_the_caller(value: bytes, count: int, config: LogConfig) -> None:
    batch = encode_batch([(1, b"a", value, ())] * count, codec=Codec.ZSTD)
    if config.compression_type == "zstd":
        batch = encode_batch([(1, b"a", value, ())] * count, codec=Codec.GZIP)
    rules = MessageRules(config)
    with pytest.raises(UncheckedBatchError) as unchecked:
        rules.admit(memoryview(bytearray(batch)), NOW, from_client=True)
    checked = unchecked.value.check()
    assert isinstance(checked, memoryview)
    assert decode_records(checked) == decode_records(batch)
    assert rules.admit(checked, NOW, from_client=True, is_checked=True) == (read_header(checked), checked)


def test_the_fault_in_a_large_batch_is_left_to_the_caller() -> None:
    """Python finds it out, for which the loop has no time."""
    batch = encode_batch([(NOW, b"a", bytes(70_000), ()), (NOW, b"b", b"v", ())])
    batch[-1] = 7
    write_header(batch, read_header(batch))
    rules = MessageRules(LogConfig())
    with pytest.raises(UncheckedBatchError) as unchecked:
        rules.admit(memoryview(bytearray(batch)), NOW, from_client=True)
    refused = unchecked.value.check()
    assert isinstance(refused, InvalidRecordsError)
    assert refused.__traceback__ is refused.__cause__ is None
    assert list(record_errors(refused)) == [1]


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("deltas", [(0, 2, 1), (1, 2, 3), (0, 0, 1), (0, 2**31 - 1, 2)])
def test_offset_deltas_that_do_not_count_up_are_refused(codec: Codec, deltas: tuple[int, int, int]) -> None:
    section = b"".join(encode_record(0, delta, b"k", b"v", ()) for delta in deltas)
    error = refusal(packed(section, 3, codec), LogConfig())
    assert error.code == ErrorCode.invalid_record
    assert "offset deltas" in str(error)


def test_a_malformed_record_is_named() -> None:
    batch = encode_batch([(NOW, b"a", b"v", ()), (NOW, b"b", b"v", ())])
    batch[-1] = 7
    write_header(batch, read_header(batch))
    error = refusal(batch, LogConfig(validate_all=True))
    assert (error.code, list(record_errors(error))) == (ErrorCode.invalid_record, [1])


def test_more_bad_records_than_an_answer_holds_are_counted_and_not_named() -> None:
    batch = encode_batch([(NOW, None, b"", ())] * (MAX_RECORD_ERRORS + 5))
    error = refusal(batch, LogConfig(cleanup_policy=("compact",)))
    assert list(record_errors(error)) == list(range(MAX_RECORD_ERRORS))
    assert f"due to {MAX_RECORD_ERRORS + 5} record errors" in str(error)


@pytest.mark.parametrize("kind", ["CreateTime", "LogAppendTime"])
def test_a_client_cannot_set_log_append_time(kind: str) -> None:
    batch = encode_batch([(NOW, b"a", b"v", ())])
    write_header(batch, read_header(batch)._replace(attributes=8))
    assert refusal(batch, LogConfig(message_timestamp_type=kind)).code == ErrorCode.invalid_timestamp


def test_a_topic_with_log_append_time_accepts_any_timestamp() -> None:
    config = LogConfig(
        message_timestamp_type="LogAppendTime", message_timestamp_before_max_ms=5, message_timestamp_after_max_ms=5
    )
    log = Log.open(MemoryDisk(), "/data/t-0", config, now_ms=NOW)
    log.append_as_leader(encode_batch([(0, None, b"v", ()), (NOW * 2, None, b"v", ())]), leader_epoch=0, now_ms=NOW)
    log.write()
    assert [record.timestamp for record in decode_records(log.read(0, 1000))] == [NOW, NOW]


@pytest.mark.parametrize("number", [5, 6, 7])
def test_an_unknown_codec_is_an_invalid_record(number: int) -> None:
    assert refusal(packed(b"\x00" * 7, 1, attributes=number), LogConfig()).code == ErrorCode.invalid_record


def test_a_batch_comes_with_base_offset_zero() -> None:
    assert refusal(encode_batch([(NOW, b"a", b"v", ())], base_offset=5), LogConfig()).code == ErrorCode.invalid_record


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec != Codec.NONE])
def test_data_that_is_not_the_codecs_is_an_invalid_record(codec: Codec) -> None:
    batch = packed(b"", 1)
    batch += b"\x05garbage that no codec reads"
    write_header(batch, read_header(batch)._replace(attributes=codec))
    assert refusal(batch, LogConfig(validate_all=True)).code == ErrorCode.invalid_record
    assert admitted(batch, LogConfig(validate_all=False)) == batch, "nobody looked"


# ---- compression.type ----------------------------------------------------------------------------------------------

_TYPES = {"uncompressed": Codec.NONE} | {codec.name.lower(): codec for codec in Codec if codec != Codec.NONE}
_RECORDS = [
    (NOW - number, b"k%d" % number, b"v" * number if number % 3 else None, [("h", None), ("g", b"x" * number)])
    for number in range(50)
]


@pytest.mark.parametrize("sent", list(Codec))
@pytest.mark.parametrize("kind", [*_TYPES, "producer"])
def test_a_batch_is_stored_in_the_topics_codec_with_all_that_is_in_it(kind: str, sent: Codec) -> None:
    batch = encode_batch(_RECORDS, codec=sent, producer_id=9, producer_epoch=2, base_sequence=40)
    stored = admitted(batch, LogConfig(compression_type=kind))
    header = read_header(stored)
    assert header.codec == _TYPES.get(kind, sent)
    assert header[6:] == read_header(batch)[6:], "counts, times and the producer's numbers are the same"
    assert decode_records(stored) == decode_records(batch)
    if kind == "producer" or _TYPES[kind] == sent:
        assert stored == batch


@pytest.mark.parametrize(
    ("codec", "low", "high"),
    [("gzip", 1, 9), ("lz4", 9, 12), ("zstd", -50, 19), ("gzip", -1, -1), ("lz4", 1, 17), ("zstd", 22, -131_072)],
)
def test_the_level_is_the_topics(codec: str, low: int, high: int) -> None:
    records = [(NOW, b"k%d" % n, b'{"flight": "LH%d", "gate": "A%d"}' % (n * 7919, n * 31), ()) for n in range(500)]
    batch = encode_batch(records)
    sizes = []
    for level in (low, high):
        config = LogConfig(compression_type=codec, **{f"compression_{codec}_level": level})
        stored = admitted(batch, config)
        assert decode_records(stored) == decode_records(batch)
        sizes.append(len(stored))
    if (low, high) in ((1, 9), (9, 12), (-50, 19)):
        assert sizes[0] > sizes[1]


def test_a_batch_that_exceeds_the_limit_after_recompression_is_too_large() -> None:
    batch = encode_batch([(NOW, b"k", b"v" * 2000, ())], codec=Codec.GZIP)
    assert admitted(batch, LogConfig(max_message_bytes=500)) == batch
    small = LogConfig(max_message_bytes=500, compression_type="uncompressed")
    assert refusal(batch, small).code == ErrorCode.message_too_large


def test_a_batch_above_the_limit_is_refused_though_it_would_shrink() -> None:
    batch = encode_batch([(NOW, b"k", b"v" * 2000, ())])
    assert refusal(batch, LogConfig(max_message_bytes=500, compression_type="gzip")).code == ErrorCode.message_too_large


def test_a_duplicate_of_a_recompressed_batch_is_known() -> None:
    log = Log.open(MemoryDisk(), "/data/t-0", LogConfig(compression_type="zstd"), now_ms=NOW)
    batch = encode_batch(_RECORDS, producer_id=9, producer_epoch=2, base_sequence=0)
    first = log.append_as_leader(bytearray(batch), leader_epoch=3, now_ms=NOW)
    again = log.append_as_leader(bytearray(batch), leader_epoch=3, now_ms=NOW)
    assert (again.first_offset, again.last_offset, again.duplicate) == (0, 49, True)
    assert (first.first_offset, first.last_offset, first.duplicate) == (0, 49, False)
    log.append_as_leader(encode_batch([(NOW, b"k", b"v", ())]), leader_epoch=3, now_ms=NOW)
    log.write()
    headers = [header for _, header in iterate_batches(log.read(0, 100_000))]
    assert [(header.base_offset, header.codec, header.partition_leader_epoch) for header in headers] == [
        (0, Codec.ZSTD, 3),
        (50, Codec.ZSTD, 3),
    ]


def test_append_time_and_another_codec_together() -> None:
    config = LogConfig(compression_type="lz4", message_timestamp_type="LogAppendTime")
    log = Log.open(MemoryDisk(), "/data/t-0", config, now_ms=NOW)
    log.append_as_leader(encode_batch(_RECORDS, codec=Codec.GZIP), leader_epoch=0, now_ms=NOW + 5)
    log.write()
    (_, header), *_ = iterate_batches(log.read(0, 100_000))
    assert (header.codec, header.max_timestamp, header.is_log_append_time) == (Codec.LZ4, NOW + 5, True)
    assert {record.timestamp for record in decode_records(log.read(0, 100_000))} == {NOW + 5}


def test_the_rules_of_a_changed_configuration_hold_from_the_next_batch_on() -> None:
    log = Log.open(MemoryDisk(), "/data/t-0", LogConfig(), now_ms=NOW)
    log.append_as_leader(encode_batch([(NOW, None, b"v", ())]), leader_epoch=0, now_ms=NOW)
    log.update_config(LogConfig(cleanup_policy=("compact",)))
    with pytest.raises(InvalidRecordsError):
        log.append_as_leader(encode_batch([(NOW, None, b"v", ())]), leader_epoch=0, now_ms=NOW)
    log.update_config(LogConfig(compression_type="gzip"))
    log.append_as_leader(encode_batch([(NOW, None, b"v", ())]), leader_epoch=0, now_ms=NOW)
    log.write()
    codecs = [header.codec for _, header in iterate_batches(log.read(0, 1000))]
    assert codecs == [Codec.NONE, Codec.GZIP]


def test_batches_of_the_broker_itself_are_stored_unchanged() -> None:
    config = LogConfig(cleanup_policy=("compact",), compression_type="gzip", max_message_bytes=10)
    marker = encode_batch([(NOW, struct.pack(">hh", 0, 1), b"v", ())], is_control=True)
    _, stored = MessageRules(config).admit(memoryview(marker), NOW, from_client=False)
    assert stored == marker


# ---- bombs ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec != Codec.NONE])
def test_a_decompression_bomb_is_refused_within_the_memory_limit(codec: Codec) -> None:
    limit = 1 << 20
    bomb = packed(b"\x00" * (64 * limit), 1, codec)
    config = LogConfig(cleanup_policy=("compact",), validate_max_bytes=limit, max_message_bytes=1 << 30)
    tracemalloc.start()
    try:
        assert refusal(bomb, config).code == ErrorCode.message_too_large
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < 5 * limit + 3 * len(bomb)


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec != Codec.NONE])
def test_records_that_take_just_the_limit_are_taken(codec: Codec) -> None:
    batch = encode_batch([(NOW, b"k", b"v" * 50_000, ())], codec=codec)
    size = len(encode_batch([(NOW, b"k", b"v" * 50_000, ())])) - HEADER_SIZE
    assert admitted(batch, LogConfig(validate_all=True, validate_max_bytes=size)) == batch
    error = refusal(batch, LogConfig(validate_all=True, validate_max_bytes=size - 1))
    assert error.code == ErrorCode.message_too_large
