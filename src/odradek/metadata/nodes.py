"""The content of nodes in the metadata tree: dataclasses that encode and decode Kafka's JSON.

`decode(path, data)` requires the fields of SPEC 8, and ignores unknown ones. It raises `BrokenNodeError` for invalid
content.
"""

import base64
import binascii
import json
import re
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, TypeGuard
from uuid import UUID

from msgspec import Struct, field

from odradek.config import ListenerAddress, parse_listener
from odradek.model import ConfigurationError, OdradekError, TopicPartition

NO_LEADER: Final = -1
RECOVERED: Final = 0
RECOVERING: Final = 1
_NUMBER: Final = re.compile("-?[0-9]{1,20}")
_PARTITION: Final = re.compile("0|[1-9][0-9]{0,9}")


class BrokenNodeError(OdradekError):
    """The content of the node at `path` is invalid, for `reason`. Such a node is not changed."""

    def __init__(self, path: str, reason: str) -> None:
        self.path = path
        self.reason = reason
        super().__init__(f"the metadata node {path} is broken: {reason}")


def encode_topic_id(topic_id: UUID) -> str:
    """Return a topic id in Kafka's format: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(topic_id.bytes).rstrip(b"=").decode()


def decode_topic_id(text: str) -> UUID:
    """Decode a topic id in Kafka's format. Raises `ValueError` for other text."""
    try:
        return UUID(bytes=base64.b64decode(text + "==", altchars=b"-_", validate=True))
    except (binascii.Error, ValueError):
        raise ValueError(f"{text!r} is not a topic id") from None


class BrokerNode(Struct, frozen=True, kw_only=True):
    """`/brokers/ids/{id}`, `/brokers/registrations/{id}`: a broker's endpoints, and protocols by listener name."""

    endpoints: tuple[ListenerAddress, ...]
    timestamp_ms: int
    rack: str | None = None
    protocols: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Encode Kafka's version 5; for readers of version 1, `host` and `port` are of the first endpoint."""
        first = self.endpoints[0]
        fields: dict[str, Any] = {
            "version": 5,
            "host": first.host,
            "port": first.port,
            "jmx_port": -1,
            "timestamp": str(self.timestamp_ms),
            "endpoints": [str(endpoint) for endpoint in self.endpoints],
            "listener_security_protocol_map": {each.name: each.name for each in self.endpoints} | dict(self.protocols),
            "features": {},
        }
        if self.rack is not None:
            fields["rack"] = self.rack
        return _encode(fields)

    @classmethod
    def decode(cls, path: str, data: bytes) -> "BrokerNode":
        """Decode versions 1 to 5; version 1 has one plaintext endpoint."""
        fields = _Fields(path, data)
        texts = fields.texts("endpoints", default=())
        if not texts:
            texts = (str(ListenerAddress("PLAINTEXT", fields.text("host"), fields.integer("port"))),)
        try:
            endpoints = tuple(parse_listener(text) for text in texts)
        except ConfigurationError as error:
            raise BrokenNodeError(path, str(error)) from None
        return cls(
            endpoints=endpoints,
            timestamp_ms=fields.integer("timestamp", default=0, bits=64),
            rack=fields.text("rack") if fields.has("rack") else None,
            protocols={
                name: str(protocol) for name, protocol in fields.mapping("listener_security_protocol_map").items()
            },
        )


class KnownDirectory(Struct, frozen=True, kw_only=True):
    """A data directory at `path`.

    `is_forgotten`: an operator gave it up. `is_old`: other directories may have newer logs of its partitions.
    """

    path: str
    is_forgotten: bool = False
    is_old: bool = False


class BrokerDirectoriesNode(Struct, frozen=True, kw_only=True):
    """`/brokers/log_dirs/{id}`: data directories by `directory.id`, and partitions whose loss was accepted."""

    directories: Mapping[str, KnownDirectory]
    accepted: frozenset[TopicPartition] = frozenset()

    def encode(self) -> bytes:
        """Encode version 1 of Odradek's own format; false and empty fields are omitted."""
        fields: dict[str, dict[str, Any]] = {}
        for name, each in sorted(self.directories.items()):
            flags = {"forgotten": each.is_forgotten, "old": each.is_old}
            fields[name] = {"path": each.path, **{flag: True for flag, is_set in flags.items() if is_set}}
        accepted = {"accepted": _by_topic(self.accepted)} if self.accepted else {}
        return _encode({"version": 1, "directories": fields, **accepted})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "BrokerDirectoriesNode":
        """Decode version 1; `partitions` and `doubted` are earlier releases' names of `old`."""
        directories, node = {}, _Fields(path, data)
        for name, data_of_one in node.mapping("directories", required=True).items():
            fields = _Fields(path, data_of_one)
            directories[name] = KnownDirectory(
                path=fields.text("path"),
                is_forgotten=fields.has("forgotten"),
                is_old=any(map(fields.has, ("old", "partitions", "doubted"))),
            )
        return cls(directories=directories, accepted=_partitions(path, node, "accepted"))


def _by_topic(partitions: Collection[TopicPartition]) -> dict[str, list[int]]:
    numbers: dict[str, list[int]] = {}
    for key in sorted(partitions):
        numbers.setdefault(key.topic, []).append(key.partition)
    return numbers


def _partitions(path: str, fields: "_Fields", name: str) -> frozenset[TopicPartition]:
    topics = _Fields(path, fields.mapping(name))
    return frozenset(TopicPartition(topic, number) for topic in topics.names for number in topics.integers(topic))


class TopicNode(Struct, frozen=True, kw_only=True):
    """`/brokers/topics/{topic}`: a topic's id and replicas. Old tools create topics without an id."""

    replicas: Mapping[int, tuple[int, ...]]
    topic_id: UUID | None = None
    adding_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)
    removing_replicas: Mapping[int, tuple[int, ...]] = field(default_factory=dict)

    def encode(self) -> bytes:
        """Encode Kafka's version 3; version 2 if there is no id."""
        fields: dict[str, Any] = {
            "version": 2 if self.topic_id is None else 3,
            "partitions": {str(partition): list(replicas) for partition, replicas in sorted(self.replicas.items())},
            "adding_replicas": {str(partition): list(replicas) for partition, replicas in self.adding_replicas.items()},
            "removing_replicas": {str(each): list(replicas) for each, replicas in self.removing_replicas.items()},
        }
        if self.topic_id is not None:
            fields["topic_id"] = encode_topic_id(self.topic_id)
        return _encode(fields)

    @classmethod
    def decode(cls, path: str, data: bytes) -> "TopicNode":
        """Decode versions 1 to 3."""
        fields = _Fields(path, data)
        try:
            topic_id = decode_topic_id(fields.text("topic_id")) if fields.has("topic_id") else None
        except ValueError as error:
            raise BrokenNodeError(path, str(error)) from None
        return cls(
            replicas=fields.replicas("partitions", required=True),
            topic_id=topic_id,
            adding_replicas=fields.replicas("adding_replicas"),
            removing_replicas=fields.replicas("removing_replicas"),
        )


class PartitionStateNode(Struct, frozen=True, kw_only=True):
    """`/brokers/topics/{topic}/partitions/{p}/state`: leader (-1: none), leader epoch and ISR.

    `leader_recovery_state` is `RECOVERING` from an unclean election until the leader has recovered (KIP-704).
    """

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    controller_epoch: int
    leader_recovery_state: int = RECOVERED

    def encode(self) -> bytes:
        """Encode Kafka's version 1."""
        fields = {
            "controller_epoch": self.controller_epoch,
            "leader": self.leader,
            "version": 1,
            "leader_epoch": self.leader_epoch,
            "isr": list(self.isr),
        }
        if self.leader_recovery_state:
            fields["leader_recovery_state"] = self.leader_recovery_state
        return _encode(fields)

    @classmethod
    def decode(cls, path: str, data: bytes) -> "PartitionStateNode":
        """Decode version 1."""
        fields = _Fields(path, data)
        is_recovering = fields.integer("leader_recovery_state", default=RECOVERED) == RECOVERING
        return cls(
            leader=fields.integer("leader"),
            leader_epoch=fields.integer("leader_epoch"),
            isr=fields.integers("isr"),
            controller_epoch=fields.integer("controller_epoch"),
            leader_recovery_state=RECOVERING if is_recovering else RECOVERED,
        )


class ControllerNode(Struct, frozen=True, kw_only=True):
    """`/controller`: the controller's broker id."""

    broker_id: int
    timestamp_ms: int

    def encode(self) -> bytes:
        """Encode Kafka's version 1."""
        return _encode({"version": 1, "brokerid": self.broker_id, "timestamp": str(self.timestamp_ms)})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "ControllerNode":
        """Decode versions 1 and 2."""
        fields = _Fields(path, data)
        return cls(broker_id=fields.integer("brokerid"), timestamp_ms=fields.integer("timestamp", default=0, bits=64))


class ConfigNode(Struct, frozen=True, kw_only=True):
    """`/config/topics/{topic}`, `/config/brokers/{id}`, `/config/groups/{group}`: dynamic configuration."""

    config: Mapping[str, str]

    def encode(self) -> bytes:
        """Encode Kafka's version 1."""
        return _encode({"version": 1, "config": dict(self.config)})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "ConfigNode":
        """Decode version 1; numbers and booleans, written by some tools, become strings."""
        config = _Fields(path, data).mapping("config", required=True)
        return cls(
            config={name: value if isinstance(value, str) else json.dumps(value) for name, value in config.items()}
        )


class ClusterIdNode(Struct, frozen=True, kw_only=True):
    """`/cluster/id`: the cluster id, written once and never changed."""

    cluster_id: str

    def encode(self) -> bytes:
        """Encode Kafka's version 1; here the version is a string."""
        return _encode({"version": "1", "id": self.cluster_id})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "ClusterIdNode":
        """Decode version 1."""
        return cls(cluster_id=_Fields(path, data).text("id"))


class ProducerIdBlockNode(Struct, frozen=True, kw_only=True):
    """`/latest_producer_id_block`: the last allocated block of producer ids, from `first` to `last` inclusive."""

    broker_id: int
    first: int
    last: int

    def encode(self) -> bytes:
        """Encode Kafka's version 1; the ids are strings, because they have 64 bits."""
        ends = {"block_start": str(self.first), "block_end": str(self.last)}
        return _encode({"version": 1, "broker": self.broker_id, **ends})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "ProducerIdBlockNode":
        """Decode version 1."""
        fields = _Fields(path, data)
        first, last = fields.integer("block_start", bits=64), fields.integer("block_end", bits=64)
        return cls(broker_id=fields.integer("broker"), first=first, last=last)


class LogDirEventNode(Struct, frozen=True, kw_only=True):
    """`/log_dir_event_notification/log_dir_event_{number}`: a broker's logs went offline or online (KIP-112)."""

    broker_id: int

    def encode(self) -> bytes:
        """Encode Kafka's version 1, whose only event is 1."""
        return _encode({"version": 1, "broker": self.broker_id, "event": 1})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "LogDirEventNode":
        """Decode version 1."""
        return cls(broker_id=_Fields(path, data).integer("broker"))


class DeleteTopicsNode(Struct, frozen=True, kw_only=True):
    """`/admin/delete_topics`: the topics to delete that old tools list in the node's data."""

    topics: tuple[str, ...]

    def encode(self) -> bytes:
        """Encode Kafka's version 1."""
        return _encode({"version": 1, "topics": list(self.topics)})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "DeleteTopicsNode":
        """Decode version 1."""
        return cls(topics=_Fields(path, data).texts("topics"))


class ReassignPartitionsNode(Struct, frozen=True, kw_only=True):
    """`/admin/reassign_partitions`: the target replicas of partitions."""

    replicas: Mapping[TopicPartition, tuple[int, ...]]

    def encode(self) -> bytes:
        """Encode Kafka's version 1."""
        partitions = [
            {"topic": key.topic, "partition": key.partition, "replicas": list(replicas)}
            for key, replicas in sorted(self.replicas.items())
        ]
        return _encode({"version": 1, "partitions": partitions})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "ReassignPartitionsNode":
        """Decode version 1."""
        return cls(
            replicas={each.topic_partition(): each.integers("replicas") for each in _Fields(path, data).partitions()}
        )


class PreferredReplicaElectionNode(Struct, frozen=True, kw_only=True):
    """`/admin/preferred_replica_election`: partitions that need a preferred leader election."""

    partitions: tuple[TopicPartition, ...]

    def encode(self) -> bytes:
        """Encode Kafka's version 1."""
        partitions = [{"topic": each.topic, "partition": each.partition} for each in self.partitions]
        return _encode({"version": 1, "partitions": partitions})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "PreferredReplicaElectionNode":
        """Decode version 1."""
        return cls(partitions=tuple(each.topic_partition() for each in _Fields(path, data).partitions()))


class ConsumerNode(Struct, frozen=True, kw_only=True):
    """`/consumers/{group}/ids/{consumer}` of generation 1: the number of threads by topic or filter."""

    subscription: Mapping[str, int]
    pattern: str
    timestamp_ms: int

    def encode(self) -> bytes:
        """Encode Kafka's version 1."""
        fields = {"version": 1, "subscription": dict(self.subscription), "pattern": self.pattern}
        return _encode({**fields, "timestamp": str(self.timestamp_ms)})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "ConsumerNode":
        """Decode version 1; `pattern` is static, white_list or black_list."""
        fields = _Fields(path, data)
        pattern = fields.text("pattern")
        if pattern not in {"static", "white_list", "black_list"}:
            raise BrokenNodeError(path, f"its pattern is {pattern!r}")
        subscription = fields.mapping("subscription", required=True)
        if not all(_fits(threads, 32) for threads in subscription.values()):
            raise BrokenNodeError(path, "subscription does not map topics to numbers of threads")
        return cls(
            subscription=subscription, pattern=pattern, timestamp_ms=fields.integer("timestamp", default=0, bits=64)
        )


def encode_integer(value: int) -> bytes:
    """Encode the decimal integer of `/controller_epoch` and `/consumers/{group}/offsets/…`."""
    return str(value).encode()


def decode_integer(path: str, data: bytes) -> int:
    """Decode a decimal integer. Raises `BrokenNodeError` for other data."""
    try:
        number = int(data[:32])
    except ValueError:
        number = None
    if number is None or not _fits(number, 64):
        raise BrokenNodeError(path, f"{data[:32]!r} is not an integer")
    return number


def _fits(value: object, bits: int) -> TypeGuard[int]:
    """Return whether `value` is a signed integer of at most `bits` bits, as in message fields."""
    return type(value) is int and -1 << (bits - 1) <= value < 1 << (bits - 1)


def _encode(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


class _Fields:
    """A JSON object with typed access to its fields."""

    __slots__ = ("_fields", "_path")

    def __init__(self, path: str, data: bytes | dict[str, Any]) -> None:
        self._path = path
        if isinstance(data, bytes):
            try:
                text, data = data, json.loads(data)
                if b"\\ud" in text or b"\\uD" in text:
                    json.dumps(data, ensure_ascii=False).encode()  # a lone surrogate cannot be encoded in a response
            except (ValueError, RecursionError) as error:
                raise BrokenNodeError(path, f"not JSON ({error})") from None
        if not isinstance(data, dict):
            raise BrokenNodeError(path, "not a JSON object")
        self._fields = data

    @property
    def names(self) -> Iterable[str]:
        return self._fields.keys()

    def has(self, name: str) -> bool:
        return self._fields.get(name) is not None

    def integer(self, name: str, default: int | None = None, *, bits: int = 32) -> int:
        """Return the integer field `name`; its JSON value may be a string of digits."""
        value = self._fields.get(name, default)
        if isinstance(value, str) and _NUMBER.fullmatch(value):
            value = int(value)
        if not _fits(value, bits):
            raise self._broken(name, f"an integer of {bits} bits")
        return value

    def text(self, name: str) -> str:
        value = self._fields.get(name)
        if not isinstance(value, str):
            raise self._broken(name, "a string")
        return value

    def texts(self, name: str, default: tuple[str, ...] | None = None) -> tuple[str, ...]:
        value = self._fields.get(name, default)
        if not isinstance(value, list | tuple) or not all(isinstance(each, str) for each in value):
            raise self._broken(name, "a list of strings")
        return tuple(value)

    def integers(self, name: str) -> tuple[int, ...]:
        value = self._fields.get(name)
        if not isinstance(value, list) or not all(_fits(each, 32) for each in value):
            raise self._broken(name, "a list of integers")
        return tuple(value)

    def mapping(self, name: str, *, required: bool = False) -> dict[str, Any]:
        value = self._fields.get(name, None if required else {})
        if not isinstance(value, dict):
            raise self._broken(name, "an object")
        return value

    def replicas(self, name: str, *, required: bool = False) -> dict[int, tuple[int, ...]]:
        """Return the replicas by partition number; numbers are strings in JSON."""
        mapping = _Fields(self._path, self.mapping(name, required=required))
        keys = sorted(mapping._fields, key=lambda key: (len(key), key))
        if not all(_PARTITION.fullmatch(key) and _fits(int(key), 32) for key in keys):
            raise self._broken(name, "an object of partitions")
        return {int(key): mapping.integers(key) for key in keys}

    def partitions(self) -> list["_Fields"]:
        value = self._fields.get("partitions")
        if not isinstance(value, list):
            raise self._broken("partitions", "a list")
        return [_Fields(self._path, each) for each in value]

    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.text("topic"), self.integer("partition"))

    def _broken(self, name: str, kind: str) -> BrokenNodeError:
        return BrokenNodeError(self._path, f"{name} is not {kind}")
