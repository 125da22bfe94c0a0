"""All four codecs, compared with those of Python clients, and on data with false sizes."""

import gzip
import struct
import zlib
from contextlib import suppress

import aiokafka.codec as aiokafka_codec
import cramjam
import kafka.codec as kafka_codec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from odradek.protocol.batches.compression import Codec, compress, decompress
from odradek.protocol.errors import CorruptBatchError

COMPRESSING = [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD]
TEXT = b"".join(b'{"flight": %d, "carrier": "UA"}' % number for number in range(8000))
CASES = {
    "nothing": b"",
    "one byte": b"a",
    "text of several blocks": TEXT,
    "what can't be compressed": bytes(zlib.crc32(struct.pack(">I", n)) & 0xFF for n in range(150_000)),
    "zeros": bytes(300_000),
}
ENCODERS = {
    "kafka-python": {
        Codec.GZIP: kafka_codec.gzip_encode,
        Codec.SNAPPY: kafka_codec.snappy_encode,
        Codec.LZ4: kafka_codec.lz4_encode,
        Codec.ZSTD: kafka_codec.zstd_encode,
    },
    "aiokafka": {
        Codec.GZIP: lambda data: aiokafka_codec.gzip_encode(data, None),
        Codec.SNAPPY: aiokafka_codec.snappy_encode,
        Codec.LZ4: lambda data: aiokafka_codec.lz4_encode(data, None),
        Codec.ZSTD: lambda data: aiokafka_codec.zstd_encode(data, None),
    },
}
DECODERS = {
    "kafka-python": {
        Codec.GZIP: kafka_codec.gzip_decode,
        Codec.SNAPPY: kafka_codec.snappy_decode,
        Codec.LZ4: kafka_codec.lz4_decode,
        Codec.ZSTD: kafka_codec.zstd_decode,
    },
    "aiokafka": {
        Codec.GZIP: aiokafka_codec.gzip_decode,
        Codec.SNAPPY: aiokafka_codec.snappy_decode,
        Codec.LZ4: aiokafka_codec.lz4_decode,
        Codec.ZSTD: aiokafka_codec.zstd_decode,
    },
}


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("case", CASES)
def test_compressed_data_is_decompressed_unchanged(codec, case):
    data = CASES[case]
    assert bytes(decompress(codec, compress(codec, memoryview(data)))) == data


@given(data=st.binary(max_size=2000), repeat=st.integers(1, 100), codec=st.sampled_from(COMPRESSING))
def test_any_bytes_are_decompressed_unchanged(data, repeat, codec):
    assert bytes(decompress(codec, compress(codec, data * repeat))) == data * repeat


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("client", DECODERS)
@pytest.mark.parametrize("case", ["one byte", "text of several blocks", "what can't be compressed"])
def test_python_clients_decompress_data_compressed_here(codec, client, case):
    assert bytes(DECODERS[client][codec](compress(codec, CASES[case]))) == CASES[case]


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("client", ENCODERS)
@pytest.mark.parametrize("case", ["one byte", "text of several blocks", "what can't be compressed"])
def test_data_compressed_by_python_clients_is_decompressed_here(codec, client, case):
    assert bytes(decompress(codec, bytes(ENCODERS[client][codec](CASES[case])))) == CASES[case]


def test_lz4_blocks_are_independent_because_javas_reader_refuses_others():
    flags = compress(Codec.LZ4, TEXT)[4]
    assert flags >> 6 == 1
    assert flags & 0x20


def test_raw_snappy_without_xerial_framing_is_read_because_librdkafka_writes_it():
    assert bytes(decompress(Codec.SNAPPY, bytes(cramjam.snappy.compress_raw(TEXT)))) == TEXT


def test_several_gzip_members_are_read():
    assert decompress(Codec.GZIP, gzip.compress(b"one") + gzip.compress(b"two")) == b"onetwo"


@pytest.mark.parametrize("codec", [Codec.LZ4, Codec.ZSTD])
def test_frames_of_all_settings_are_read_one_after_another(codec):
    module = cramjam.lz4 if codec == Codec.LZ4 else cramjam.zstd
    skippable = struct.pack("<II", 0x184D2A53, 5) + b"hello"
    data = bytes(module.compress(TEXT)) + skippable + bytes(compress(codec, b"tail"))
    assert bytes(decompress(codec, data)) == TEXT + b"tail"


@pytest.mark.parametrize("codec", COMPRESSING)
def test_a_decompression_bomb_is_refused_without_being_decompressed(codec):
    bomb = compress(codec, bytes(64 << 20))
    assert len(bomb) < 4 << 20
    with pytest.raises(CorruptBatchError):
        decompress(codec, bomb, max_bytes=1 << 20)


@pytest.mark.parametrize("codec", COMPRESSING)
def test_data_of_exactly_the_limit_is_decompressed(codec):
    assert bytes(decompress(codec, compress(codec, TEXT), max_bytes=len(TEXT))) == TEXT
    with pytest.raises(CorruptBatchError):
        decompress(codec, compress(codec, TEXT), max_bytes=len(TEXT) - 1)


@pytest.mark.parametrize("codec", COMPRESSING)
@pytest.mark.parametrize("cut", [1, 5, 11, 100])
def test_truncated_data_is_refused(codec, cut):
    with pytest.raises(CorruptBatchError):
        decompress(codec, memoryview(compress(codec, TEXT))[:-cut])


@given(data=st.binary(max_size=300), codec=st.sampled_from(COMPRESSING))
def test_random_bytes_are_refused_or_decompressed_but_raise_nothing_else(data, codec):
    prefix = bytes(compress(codec, b"abcabcabcabc"))[: len(data) % 12]
    with suppress(CorruptBatchError):
        assert len(decompress(codec, prefix + data, max_bytes=1 << 20)) <= 1 << 20


@given(position=st.integers(0, 2000), value=st.integers(0, 255), codec=st.sampled_from(COMPRESSING))
def test_a_changed_byte_is_refused_or_decompressed_but_raises_nothing_else(position, value, codec):
    data = bytearray(compress(codec, TEXT))
    data[position % len(data)] = value
    with suppress(CorruptBatchError):
        assert len(decompress(codec, data, max_bytes=1 << 20)) <= 1 << 20


@pytest.mark.parametrize("claimed", [2**31 - 1, 2**32 - 1])
def test_snappy_that_claims_gigabytes_is_refused_before_anything_is_allocated(claimed):
    length = bytearray()
    rest = claimed
    while rest > 0x7F:
        length.append(rest & 0x7F | 0x80)
        rest >>= 7
    length.append(rest)
    with pytest.raises(CorruptBatchError):
        decompress(Codec.SNAPPY, bytes(length) + b"\x00a")


XERIAL_HEADER = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
SNAPPY_BLOCK = bytes(cramjam.snappy.compress_raw(b"a"))
SKIPPED_FRAME = struct.pack("<II", 0x184D2A50, 0)
MANY_PIECES = {
    "gzip members": (Codec.GZIP, gzip.compress(b"") * 1000),
    "snappy blocks": (Codec.SNAPPY, XERIAL_HEADER + (struct.pack(">i", len(SNAPPY_BLOCK)) + SNAPPY_BLOCK) * 20_000),
    "lz4 frames": (Codec.LZ4, bytes(compress(Codec.LZ4, b"")) * 20_000),
    "lz4 frames without data": (Codec.LZ4, SKIPPED_FRAME * 20_000),
    "zstd frames": (Codec.ZSTD, bytes(cramjam.zstd.compress(b"")) * 20_000),
    "zstd frames without data": (Codec.ZSTD, SKIPPED_FRAME * 20_000),
}


@pytest.mark.parametrize("case", MANY_PIECES)
def test_data_in_very_many_pieces_is_refused(case):
    """Each costs time, however little data it has, and zlib copies the rest of the data for each member."""
    codec, data = MANY_PIECES[case]
    with pytest.raises(CorruptBatchError, match="more than"):
        decompress(codec, data)


def test_a_few_gzip_members_are_read():
    assert bytes(decompress(Codec.GZIP, gzip.compress(b"a") * 8)) == b"a" * 8
