"""The content of nodes in the metadata tree: dataclasses that encode and decode Kafka's JSON.

`decode(path, data)` requires the fields of SPEC 8, and ignores unknown ones. It raises `BrokenNodeError` for invalid
content.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Any, Final
from uuid import UUID

from msgspec import Struct, field

from odradek.config.listeners import ListenerAddress, parse_listener
from odradek.metadata.node_fields import BrokenNodeError, Fields, fits
from odradek.model import ConfigurationError, ErrorCode, KafkaError, TopicPartition
from odradek.model.names import numbers_by_topic

NO_LEADER: Final = -1
RECOVERED: Final = 0
RECOVERING: Final = 1
PRODUCER_ID_BLOCK_SIZE: Final = 1_000
_LAST_PRODUCER_ID: Final = 2**63 - 1


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

    def endpoint_of_protocols(self) -> dict[str, ListenerAddress]:
        """Return the first endpoint of each security protocol; a listener without one is named after it."""
        return {self.protocols.get(each.name, each.name): each for each in reversed(self.endpoints)}

    @classmethod
    def decode(cls, path: str, data: bytes) -> "BrokerNode":
        """Decode versions 1 to 5; version 1 has one plaintext endpoint."""
        fields = Fields(path, data)
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
        accepted = {"accepted": numbers_by_topic(self.accepted)} if self.accepted else {}
        return _encode({"version": 1, "directories": fields, **accepted})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "BrokerDirectoriesNode":
        """Decode version 1; `partitions` and `doubted` are earlier releases' names of `old`."""
        directories, node = {}, Fields(path, data)
        for name, data_of_one in node.mapping("directories", required=True).items():
            fields = Fields(path, data_of_one)
            directories[name] = KnownDirectory(
                path=fields.text("path"),
                is_forgotten=fields.has("forgotten"),
                is_old=any(map(fields.has, ("old", "partitions", "doubted"))),
            )
        return cls(directories=directories, accepted=_partitions(path, node, "accepted"))


def _partitions(path: str, fields: "Fields", name: str) -> frozenset[TopicPartition]:
    topics = Fields(path, fields.mapping(name))
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
        fields = Fields(path, data)
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
        fields = Fields(path, data)
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
        fields = Fields(path, data)
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
        config = Fields(path, data).mapping("config", required=True)
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
        return cls(cluster_id=Fields(path, data).text("id"))


class ClusterSecretNode(Struct, frozen=True, kw_only=True):
    """`/cluster/secret`: random bytes, and whether requests of brokers to each other need a proof made with them.

    They need one in a cluster that began with this release; in an older one, from when an operator says so.
    """

    secret: bytes
    requires_proofs: bool = True

    def __repr__(self) -> str:
        return "ClusterSecretNode()"

    def encode(self) -> bytes:
        """Encode version 1; the secret is hexadecimal text."""
        return _encode({"version": 1, "secret": self.secret.hex(), "requires_proofs": int(self.requires_proofs)})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "ClusterSecretNode":
        fields = Fields(path, data)
        try:
            return cls(
                secret=bytes.fromhex(fields.text("secret")),
                requires_proofs=fields.integer("requires_proofs", default=0) != 0,
            )
        except ValueError:
            raise fields.broken("secret", "hexadecimal text") from None


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
        fields = Fields(path, data)
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
        return cls(broker_id=Fields(path, data).integer("broker"))


class DeleteTopicsNode(Struct, frozen=True, kw_only=True):
    """`/admin/delete_topics`: the topics to delete that old tools list in the node's data."""

    topics: tuple[str, ...]

    def encode(self) -> bytes:
        """Encode Kafka's version 1."""
        return _encode({"version": 1, "topics": list(self.topics)})

    @classmethod
    def decode(cls, path: str, data: bytes) -> "DeleteTopicsNode":
        """Decode version 1."""
        return cls(topics=Fields(path, data).texts("topics"))


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
            replicas={
                each.topic_partition(): each.integers("replicas") for each in Fields(path, data).objects("partitions")
            }
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
        return cls(partitions=tuple(each.topic_partition() for each in Fields(path, data).objects("partitions")))


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
        fields = Fields(path, data)
        pattern = fields.text("pattern")
        if pattern not in {"static", "white_list", "black_list"}:
            raise BrokenNodeError(path, f"its pattern is {pattern!r}")
        subscription = fields.mapping("subscription", required=True)
        if not all(fits(threads, 32) for threads in subscription.values()):
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
    if number is None or not fits(number, 64):
        raise BrokenNodeError(path, f"{data[:32]!r} is not an integer")
    return number


def _encode(fields: Mapping[str, Any]) -> bytes:
    return json.dumps(fields, separators=(",", ":")).encode()


def next_producer_id_block(latest: ProducerIdBlockNode | None, broker_id: int) -> ProducerIdBlockNode:
    """Return the block after `latest`, for this broker. Raises `KafkaError` when all 2**63 ids are used up."""
    first = 0 if latest is None else latest.last + 1
    if first > _LAST_PRODUCER_ID - PRODUCER_ID_BLOCK_SIZE:
        raise KafkaError(ErrorCode.unknown_server_error, "there are no producer ids left in this cluster")
    return ProducerIdBlockNode(broker_id=broker_id, first=first, last=first + PRODUCER_ID_BLOCK_SIZE - 1)
