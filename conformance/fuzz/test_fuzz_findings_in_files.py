"""Findings of the fuzzers in files and nodes, as permanent cases."""

from dataclasses import replace

import pytest

from conformance.fuzz.fuzz_engine import load
from conformance.fuzz.fuzz_files import _GROUP, _GROUP_KEY, _TRANSACTION, _TRANSACTION_KEY, _record_input
from conformance.fuzz.fuzz_handshakes import stream_of
from odradek.broker.log import Log, LogConfig
from odradek.broker.log.checkpoints.checkpoint_file import decode_offsets
from odradek.broker.log.checkpoints.leader_epoch_cache import LeaderEpochs
from odradek.broker.log.checkpoints.meta_properties import decode_meta_properties
from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.segments.index_rebuild import rebuilt_indexes
from odradek.config import parse_properties
from odradek.metadata.node_fields import BrokenNodeError
from odradek.metadata.nodes import (
    BrokerNode,
    ClusterIdNode,
    ControllerNode,
    PartitionStateNode,
    ProducerIdBlockNode,
    TopicNode,
    decode_integer,
)
from odradek.model import ConfigurationError, parse_host_port
from odradek.protocol.batches.record_batch import assign_offset, read_header
from odradek.protocol.batches.records import encode_batch
from odradek.protocol.errors import CorruptBatchError
from odradek.protocol.internal_records.group_records import GROUP_RECORDS
from odradek.protocol.internal_records.transaction_records import TRANSACTION_RECORDS
from odradek.simulation.virtual.disk import MemoryDisk


@pytest.mark.parametrize("number", ["9" * 19, "9" * 20, "1_0", "٣", "+1", "1" * 5000])
def test_a_checkpoint_has_numbers_that_kafka_can_read(number):
    """An offset beyond 64 bits went through, to fail wherever it was packed; 5,000 digits were no DamagedFileError."""
    with pytest.raises(DamagedFileError):
        decode_offsets(f"0\n1\nt 0 {number}\n".encode(), "f")
    with pytest.raises(DamagedFileError):
        decode_offsets(f"0\n{number}\nt 0 5\n".encode(), "f")
    with pytest.raises(DamagedFileError):
        LeaderEpochs.decode(f"0\n1\n{number} 5\n".encode(), "f")
    with pytest.raises(DamagedFileError):
        decode_meta_properties(f"version=0\nbroker.id={number}\n".encode(), "f")


def test_half_a_character_is_none_and_two_halves_are_one():
    """A cluster id with half a character was taken, and could not be sent to anybody."""
    assert parse_properties(r"key=\ud83d\ude00") == {"key": "😀"}
    with pytest.raises(ConfigurationError, match="half a character"):
        parse_properties(r"key=\ud83d")
    assert ClusterIdNode.decode("/p", rb'{"id":"\ud83d\ude00"}').cluster_id == "😀"
    with pytest.raises(BrokenNodeError):
        ClusterIdNode.decode("/p", rb'{"id":"\uD83D"}')


@pytest.mark.parametrize("port", ["0000001234567", "0" * 5000, "65536", "٣"])
def test_a_port_is_one_of_65536(port):
    """Only its first six digits were looked at."""
    with pytest.raises(ConfigurationError):
        parse_host_port(f"host:{port}")


STATE = '{"leader":%s,"leader_epoch":5,"isr":[%s],"controller_epoch":1,"version":1}'


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        (PartitionStateNode, STATE % (1 << 31, 1)),
        (PartitionStateNode, STATE % (1, 1 << 31)),
        (ControllerNode, '{"brokerid":2147483648,"timestamp":"5"}'),
        (ControllerNode, '{"brokerid":1,"timestamp":"9223372036854775808"}'),
        (ProducerIdBlockNode, '{"broker":1,"block_start":"0","block_end":"9223372036854775808"}'),
        (TopicNode, '{"partitions":{"2147483648":[1]}}'),
        (TopicNode, '{"partitions":{"00":[1]}}'),
        (BrokerNode, '{"host":"h","port":65536}'),
        (BrokerNode, '{"host":"A://h:1","port":1}'),
    ],
)
def test_a_node_has_numbers_and_names_that_messages_can_carry(kind, data):
    """One foreign node with a large number made every answer fail that it was in."""
    with pytest.raises(BrokenNodeError):
        kind.decode("/path", data.encode())


def test_an_integer_of_a_node_has_64_bits():
    assert decode_integer("/p", b"9223372036854775807") == (1 << 63) - 1
    with pytest.raises(BrokenNodeError):
        decode_integer("/p", b"9223372036854775808")


@pytest.mark.parametrize("offset", [0, 1 << 40, -5])
def test_a_batch_that_is_out_of_place_does_not_keep_a_closed_log_from_being_opened(offset):
    """Where indexes were missing too, its offset was packed into one, and the broker died at every start."""
    disk, config = MemoryDisk(), LogConfig(segment_bytes=100)
    log = Log.open(disk, "/t-0", config, now_ms=5)
    for _ in range(3):
        log.append_as_leader(encode_batch([(5, None, b"v" * 30, ())]), leader_epoch=0, now_ms=5)
        log.write()
    log.close()
    path = f"/t-0/{1:020d}"
    batch = bytearray(disk.read_file(f"{path}.log"))
    assign_offset(batch, 0, offset, 0)
    disk.replace_file(f"{path}.log", bytes(batch))
    disk.remove(f"{path}.index")
    again = Log.open(disk, "/t-0", config, now_ms=5, clean=True)
    assert again.log_end_offset == 3


def test_the_generation_after_the_last_one_of_32_bits_is_the_first():
    """The record of the next rebalance could not be written, so that the group had none any more."""
    group = replace(_GROUP, generation=(1 << 31) - 1)
    record = _record_input(b"g", *GROUP_RECORDS.encode(_GROUP_KEY, group))
    load("coordinators").check(stream_of([record]))


@pytest.mark.parametrize("field", ["producer_epoch", "next_producer_epoch"])
def test_a_transaction_whose_record_has_the_last_epoch_can_be_aborted(field):
    """No producer has this epoch, but a record may; the epoch that should fence it could not be recorded."""
    value = replace(_TRANSACTION, next_producer_id=8, **{field: (1 << 15) - 1})
    record = _record_input(b"t", *TRANSACTION_RECORDS.encode(_TRANSACTION_KEY, value))
    load("coordinators").check(stream_of([record]))


def test_indexes_are_not_rebuilt_from_a_batch_whose_offset_no_index_can_have():
    """Its offset was packed into an index, and the read for which the index was rebuilt failed with `struct.error`."""
    header = read_header(encode_batch([(5, None, b"v", ())]))
    far = header._replace(base_offset=1 << 40)
    with pytest.raises(CorruptBatchError):
        rebuilt_indexes([(0, header), (header.size, far)], 0, size=2 * header.size, interval_bytes=50)
