"""Targets: what lies around. Records of groups, the small files of a data directory, the nodes of the metadata tree.

All of these may have been written by others, by an older release or by a failing disk; a decoder refuses them with its
own error, which names the place, and what it takes can be used: a number that no message can carry would break every
answer that it is in.
"""

import json
import random
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final
from uuid import UUID

from crc32c import crc32c
from msgspec import Struct
from msgspec.structs import replace

from conformance.fuzz.client_requests import group_metadata
from conformance.fuzz.fuzz_engine import Target
from odradek.broker.log.checkpoints import checkpoint_file, meta_properties
from odradek.broker.log.checkpoints.leader_epoch_cache import LeaderEpochs
from odradek.broker.log.errors import DamagedFileError
from odradek.broker.log.producers.producer_snapshot import decode_snapshot, encode_snapshot
from odradek.broker.log.producers.producer_state import AppendedBatch, ProducerEntry, ProducerState
from odradek.broker.log.segments.transaction_index import decode_transactions
from odradek.config.listeners import ListenerAddress
from odradek.metadata import node_fields, nodes
from odradek.model import TopicPartition
from odradek.protocol import consumer_protocol
from odradek.protocol.errors import MalformedMessageError
from odradek.protocol.internal_records import group_records
from odradek.protocol.internal_records.group_records import GROUP_RECORDS
from odradek.protocol.internal_records.record_types import RecordTypes, UnknownKey
from odradek.protocol.internal_records.transaction_records import (
    TRANSACTION_RECORDS,
    PartitionsSchema,
    TransactionLogKey,
    TransactionLogValue,
)

_TOPICS = (TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("topic.b", 2**31 - 1))
_ID = UUID(int=7 << 100)
_INT64 = range(-(1 << 63), 1 << 63)
_INT32 = range(-(1 << 31), 1 << 31)

# ---- records of groups, and what members tell each other ------------------------------------------------------------

_SUBSCRIPTION = consumer_protocol.Subscription(
    topics=("a", "é"), user_data=b"u", owned_partitions=_TOPICS, generation_id=5, rack_id="r"
)
_ASSIGNMENT = consumer_protocol.Assignment(partitions=_TOPICS, user_data=b"")
_OFFSET = group_records.OffsetCommitValue(offset=9, metadata="m", commit_timestamp=5, leader_epoch=3)
_MEMBER = group_records.MemberMetadata(
    member_id="m", client_id="c", client_host="/h", session_timeout=10, subscription=b"s", assignment=b"a"
)
_GROUP = group_records.GroupMetadataValue(
    protocol_type="consumer", generation=3, protocol="range", leader="m", members=(_MEMBER, _MEMBER)
)
_OFFSET_KEY = group_records.OffsetCommitKey(group="g", topic="t", partition=3)
_GROUP_KEY = group_records.GroupMetadataKey(group="g")


_CONSUMER_GROUP: Final = (
    (
        group_records.ConsumerGroupMemberMetadataKey(group_id="g", member_id="m"),
        group_records.ConsumerGroupMemberMetadataValue(
            instance_id=None,
            rack_id="r",
            client_id="c",
            client_host="/h",
            subscribed_topic_names=("a", "é"),
            subscribed_topic_regex=None,
            server_assignor="uniform",
            classic_member_metadata=group_records.ClassicMemberMetadata(
                supported_protocols=(group_records.ClassicProtocol(name="range", metadata=b"m"),)
            ),
        ),
    ),
    (
        group_records.ConsumerGroupTargetAssignmentMemberKey(group_id="g", member_id="m"),
        group_records.ConsumerGroupTargetAssignmentMemberValue(
            topic_partitions=(group_records.TopicPartitions(topic_id=_ID, partitions=(0, 2)),)
        ),
    ),
)
_TRANSACTION_KEY = TransactionLogKey(transactional_id="t")
_TRANSACTION = TransactionLogValue(
    producer_id=7,
    producer_epoch=1,
    transaction_timeout_ms=5,
    transaction_status=1,
    transaction_partitions=(PartitionsSchema(topic="a", partition_ids=(0, 1)),),
    transaction_last_update_timestamp_ms=9,
    transaction_start_timestamp_ms=8,
    next_producer_id=8,
)
_RECORDS: Final[dict[bytes, RecordTypes]] = {b"g": GROUP_RECORDS, b"t": TRANSACTION_RECORDS}


def _record_input(kind: bytes, key: bytes, value: bytes | None) -> bytes:
    """The size of the key in a byte, key and value; nothing is a tombstone."""
    return kind + bytes([len(key)]) + key + (value or b"")


def check_group_records(data: bytes) -> None:
    """A record, a subscription, user data or an assignment is refused, or is the same when written and read again."""
    kind, content = data[:1], data[1:]
    for view in (content, memoryview(content)):
        try:
            if kind in _RECORDS:
                _check_record(_RECORDS[kind], view)
            elif kind == b"s":
                subscription = consumer_protocol.decode_subscription(view)
                encoded = consumer_protocol.encode_subscription(subscription)
                again = consumer_protocol.decode_subscription(encoded)
                assert sorted(again.owned_partitions) == sorted(subscription.owned_partitions)
                assert _without(again, "owned_partitions") == _without(subscription, "owned_partitions")
                assert len(subscription.topics) + len(subscription.owned_partitions) <= len(content)
            elif kind == b"u":
                sticky = consumer_protocol.decode_sticky_user_data(view)
                encoded = consumer_protocol.encode_sticky_user_data(sticky)
                same = consumer_protocol.decode_sticky_user_data(encoded)
                assert (sorted(same.partitions), same.generation) == (sorted(sticky.partitions), sticky.generation)
            elif kind == b"c":
                generation = consumer_protocol.decode_generation_user_data(view)
                assert consumer_protocol.encode_generation_user_data(generation) == bytes(view[:4])
            else:
                assignment = consumer_protocol.decode_assignment(view)
                again_ = consumer_protocol.decode_assignment(consumer_protocol.encode_assignment(assignment))
                assert sorted(again_.partitions) == sorted(assignment.partitions)
                assert again_.user_data == assignment.user_data
        except MalformedMessageError:
            continue


def _check_record(types: RecordTypes, content: bytes | memoryview) -> None:
    size = content[0] if content else 0
    key_bytes, value_bytes = content[1 : 1 + size], content[1 + size :]
    key, value = types.decode(key_bytes, value_bytes or None)
    if isinstance(key, UnknownKey):
        assert value is None
        return
    version = struct.unpack_from(">h", value_bytes)[0] if value_bytes else None
    assert types.decode(*types.encode(key, value, version)) == (key, value)


def _without(value: Any, name: str) -> list[Any]:
    return [getattr(value, field) for field in value.__struct_fields__ if field != name]


def group_seeds() -> Iterator[bytes]:
    """Each kind in each of its versions, and what members of existing clients send each other."""
    yield _record_input(b"g", *GROUP_RECORDS.encode(_OFFSET_KEY, None))
    yield _record_input(b"g", *GROUP_RECORDS.encode(_GROUP_KEY, None))
    for version in range(5):
        yield _record_input(b"g", *GROUP_RECORDS.encode(_OFFSET_KEY, _OFFSET, version))
        yield _record_input(b"g", *GROUP_RECORDS.encode(_GROUP_KEY, _GROUP, version))
    for key, value in _CONSUMER_GROUP:
        yield _record_input(b"g", *GROUP_RECORDS.encode(key, value))
    for version in range(2):
        yield _record_input(b"t", *TRANSACTION_RECORDS.encode(_TRANSACTION_KEY, _TRANSACTION, version))
    sticky = consumer_protocol.StickyUserData(partitions=_TOPICS, generation=3)
    yield b"u" + consumer_protocol.encode_sticky_user_data(sticky)
    yield b"c" + consumer_protocol.encode_generation_user_data(3)
    for version in range(4):
        yield b"s" + consumer_protocol.encode_subscription(_SUBSCRIPTION, version)
        yield b"a" + consumer_protocol.encode_assignment(_ASSIGNMENT, version)
    for kind, content in group_metadata():
        yield kind + content


# ---- the small files of a data directory ----------------------------------------------------------------------------

_PRODUCERS = ProducerState(
    {
        1: ProducerEntry(2, (AppendedBatch(0, 4, 10, 14, 5),), last_timestamp=5),
        7: ProducerEntry(0, last_timestamp=9, transaction_start=3),
    }
)


_TRANSACTION_BYTES: Final = 34


def check_small_files(data: bytes) -> None:
    """A file is damaged, at a byte that it has, or says the same when it is written and read again."""
    kind, content = data[:1], data[1:]
    check = _FILES.get(kind)
    if check is None:
        return
    try:
        check(content)
    except DamagedFileError as error:
        place = error.byte
    else:
        place = 0
    assert 0 <= place <= len(content)


def _check_offsets(content: bytes) -> None:
    offsets = checkpoint_file.decode_offsets(content, "f")
    assert all(offset in _INT64 and partition.partition in _INT32 for partition, offset in offsets.items())
    assert checkpoint_file.decode_offsets(checkpoint_file.encode_offsets(offsets), "f") == offsets


def _check_epochs(content: bytes) -> None:
    epochs = LeaderEpochs.decode(content, "f")
    assert all(epoch in _INT32 and offset in _INT64 for epoch, offset in epochs.entries)
    assert LeaderEpochs.decode(epochs.encode(), "f").entries == epochs.entries


def _check_snapshot(content: bytes) -> None:
    if len(content) > 6:
        # In every second try the checksum is right.
        content = content if content[-1] & 1 else content[:2] + struct.pack(">I", crc32c(content[6:])) + content[6:]
    producers = decode_snapshot(content, "f")
    encoded = encode_snapshot(producers)
    assert encode_snapshot(decode_snapshot(encoded, "f")) == encoded


def _check_meta_properties(content: bytes) -> None:
    found = meta_properties.decode_meta_properties(content, "f")
    if found.broker_id is not None and found.cluster_id is not None:
        assert found.broker_id in _INT32
        found.cluster_id.encode()


def _check_partition_metadata(content: bytes) -> None:
    topic_id = meta_properties.decode_partition_metadata(content, "f")
    assert (
        meta_properties.decode_partition_metadata(meta_properties.encode_partition_metadata(topic_id), "f") == topic_id
    )


def _check_transactions(content: bytes) -> None:
    entries = [entry for _, entry in decode_transactions(content, "f")]
    assert len(entries) * _TRANSACTION_BYTES == len(content)


_FILES: Final[dict[bytes, Callable[[bytes], None]]] = {
    b"o": _check_offsets,
    b"e": _check_epochs,
    b"s": _check_snapshot,
    b"m": _check_meta_properties,
    b"p": _check_partition_metadata,
    b"t": _check_transactions,
}


def file_seeds() -> Iterator[bytes]:
    """Each file as we write it, and as Kafka's KRaft brokers write theirs."""
    yield b"o" + checkpoint_file.encode_offsets(dict.fromkeys(_TOPICS, 1500))
    yield b"e" + b"0\n2\n0 0\n3 1500\n"
    yield b"s" + encode_snapshot(_PRODUCERS)
    yield b"s" + encode_snapshot(ProducerState())
    yield b"m" + meta_properties.encode_meta_properties(1, "mEgkBPdUTcyZ9uBFk7hDJQ", "cTs6hwuyTyWRqwTXQvbmwA")
    yield b"m" + b"#\n#Sat Nov 21 2026\nnode.id=1\ndirectory.id=x\nversion=1\ncluster.id=\\u0041\\\n  b\n"
    yield b"t" + struct.pack(">hqqqq", 0, 7, 5, 9, 10) * 2
    yield b"p" + meta_properties.encode_partition_metadata(_ID)


_NUMBERS = (
    b"0",
    b"\\ud83d\\ude00",
    b"\\ud800",
    b"-1",
    b"9" * 19,
    b"9" * 20,
    b"1" * 5000,
    b"+1",
    b"1_0",
    "٣".encode(),
    b"1e3",
    b"0x1",
    b"",
    b" 1",
    b"2147483648",
)


def mutate_text(data: bytes, chance: random.Random) -> bytes | None:
    """Put another number where one is; None for files that are no text."""
    if data[:1] in {b"s", b"t"}:
        return None
    places = [place for place in range(1, len(data)) if data[place : place + 1].isdigit()]
    if not places:
        return None
    place = chance.choice(places)
    end = place
    while data[end : end + 1].isdigit():
        end += 1
    return data[:place] + chance.choice(_NUMBERS) + data[end:]


# ---- the nodes of the metadata tree ---------------------------------------------------------------------------------

_REPLICAS = {0: (1, 2), 1: (2, 1)}
_NODES: Final[tuple[Any, ...]] = (
    nodes.BrokerNode(
        endpoints=(ListenerAddress("PLAINTEXT", "h", 9092), ListenerAddress("A", "::1", 1)),
        timestamp_ms=5,
        rack="r",
        protocols={"A": "SSL"},
    ),
    nodes.TopicNode(replicas=_REPLICAS, topic_id=_ID, adding_replicas={0: (3,)}, removing_replicas={0: (1,)}),
    nodes.PartitionStateNode(leader=1, leader_epoch=5, isr=(1, 2), controller_epoch=3, leader_recovery_state=1),
    nodes.ControllerNode(broker_id=1, timestamp_ms=5),
    nodes.ConfigNode(config={"retention.ms": "5"}),
    nodes.ClusterIdNode(cluster_id="c"),
    nodes.ProducerIdBlockNode(broker_id=1, first=1000, last=1999),
    nodes.DeleteTopicsNode(topics=("a", "b")),
    nodes.ReassignPartitionsNode(replicas={TopicPartition("a", 0): (1, 2)}),
    nodes.PreferredReplicaElectionNode(partitions=_TOPICS),
    nodes.ConsumerNode(subscription={"a": 1}, pattern="static", timestamp_ms=5),
    nodes.LogDirEventNode(broker_id=1),
    nodes.BrokerDirectoriesNode(
        directories={
            "x": nodes.KnownDirectory(path="/x"),
            "y": nodes.KnownDirectory(path="/y", is_forgotten=True, is_old=True),
        },
        accepted=frozenset({TopicPartition("a", 0)}),
    ),
)


def check_nodes(data: bytes) -> None:
    """A node is broken, or is the same when it is written and read again; messages can carry what is in it."""
    if not data:
        return
    kind, content = type(_NODES[data[0] % len(_NODES)]), data[1:]
    try:
        node = kind.decode("/path", content)
    except node_fields.BrokenNodeError:
        pass
    else:
        again = kind.decode("/path", node.encode())
        if isinstance(
            node, nodes.BrokerNode
        ):  # every listener's protocol is written, also those that go without saying
            again = replace(again, protocols=node.protocols)
        assert again == node
        _check_value(node)
    try:
        number = nodes.decode_integer("/path", content)
    except node_fields.BrokenNodeError:
        return
    assert number in _INT64
    assert nodes.decode_integer("/path", nodes.encode_integer(number)) == number


_LONG = frozenset({"timestamp_ms", "first", "last"})


def _check_value(value: Any, name: str = "") -> None:
    if isinstance(value, str):
        value.encode()
    elif isinstance(value, int):
        assert value in (_INT64 if name in _LONG else _INT32), f"{name} is {value}"
    elif isinstance(value, dict):
        for key, each in value.items():
            _check_value(key)
            _check_value(each)
    elif isinstance(value, Struct):
        for name in value.__struct_fields__:
            _check_value(getattr(value, name), name)
    elif isinstance(value, tuple):
        for each in value:
            _check_value(each)


def node_seeds() -> Iterator[bytes]:
    """Each kind of node; and one as the first of Kafka's releases wrote it."""
    for number, node in enumerate(_NODES):
        yield bytes([number]) + node.encode()
    yield b"\x00" + b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5"}'
    yield b"\x00" + b"17"


_ODD: Final[tuple[Any, ...]] = (
    None,
    True,
    "",
    "x",
    "\ud800",
    "1" * 21,
    "-5",
    1 << 31,
    1 << 63,
    -1,
    1.5,
    [],
    {},
    [None],
    [[1]],
)
_ODD_TEXTS: Final = (
    "PLAINTEXT://h:0000001234567",
    "h:" + "0" * 5000,
    "A://[::1",
    "\ud800://h:1",
    "A://h:٣",
    "//:1",
    "0",
)


def mutate_node(data: bytes, chance: random.Random) -> bytes | None:
    """Put something else somewhere in the JSON."""
    try:
        value = json.loads(data[1:])
    except (ValueError, RecursionError):
        return None
    holder = {"": value}
    places: list[tuple[Any, Any]] = [(holder, "")]
    for place, key in places:
        inside = place[key]
        if isinstance(inside, dict | list) and len(places) < 1000:
            places += [(inside, each) for each in (inside if isinstance(inside, dict) else range(len(inside)))]
    place, key = chance.choice(places)
    place[key] = chance.choice(_ODD + _ODD_TEXTS)
    if isinstance(place, dict) and chance.random() < 0.2:
        place[chance.choice(("0", "00", "9" * 10, "٣", "\ud800", "version"))] = place.pop(key)
    return data[:1] + json.dumps(next(iter(holder.values()))).encode()


TARGETS = {
    "group_records": Target(
        check=check_group_records,
        seeds=group_seeds,
        # Its other lines compile a codec, which happens once in a process.
        reaches={"odradek.protocol.internal_records.record_types": 0.5, "odradek.protocol.consumer_protocol": 0.95},
        runs=5000,
    ),
    "small_files": Target(
        check=check_small_files,
        seeds=file_seeds,
        mutate=mutate_text,
        reaches={
            "odradek.broker.log.checkpoints.checkpoint_file": 0.9,
            "odradek.broker.log.checkpoints.meta_properties": 0.9,
            "odradek.broker.log.producers.producer_snapshot": 0.9,
        },
        runs=5000,
    ),
    "nodes": Target(
        check=check_nodes, seeds=node_seeds, mutate=mutate_node, reaches={"odradek.metadata.nodes": 0.85}, runs=5000
    ),
}
