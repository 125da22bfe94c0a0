"""Parses the options of a read or a write (`.option(…)`) into `ReadOptions` and `WriteOptions`. Pure.

Names, defaults and meaning are those of Spark's own Kafka connector, so that a job migrates by changing its `format`.
Spark passes option names in lower case; error texts spell them as the documentation does.
"""

import json
import logging
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Struct

from odradek.config.secrets import ClientOptions
from odradek.model import ConfigurationError, TopicPartition, bootstrap_addresses, validate_topic_name
from odradek.model.suggestions import similar_names
from odradek.spark.topic_pattern import topic_matcher

_log = logging.getLogger("odradek.spark")

T = TypeVar("T")


class Edge(Enum):
    """The start or end of a partition's log, as a timestamp of ListOffsets."""

    EARLIEST = -2
    LATEST = -1


class GivenOffsets(Struct, frozen=True, kw_only=True):
    """A boundary given as an offset or an edge for every partition that is read."""

    offsets: Mapping[TopicPartition, int | Edge]


class AtTimestamp(Struct, frozen=True, kw_only=True):
    """A boundary given as one timestamp (ms): in each partition, the first record at or after it."""

    timestamp_ms: int


class AtTimestamps(Struct, frozen=True, kw_only=True):
    """A boundary given as a timestamp (ms) for every partition that is read: the first record at or after it."""

    timestamps_ms: Mapping[TopicPartition, int]


Boundary = Edge | GivenOffsets | AtTimestamp | AtTimestamps
"""The start or the end of a read."""


class Subscribe(Struct, frozen=True, kw_only=True):
    """The option `subscribe`: all partitions of these topics, also partitions added later."""

    topics: tuple[str, ...]


class SubscribePattern(Struct, frozen=True, kw_only=True):
    """The option `subscribePattern`: all partitions of topics whose whole name matches, also topics created later."""

    pattern: str

    def matches(self, topic: str) -> bool:
        """Return whether the whole topic name matches."""
        return topic_matcher(self.pattern)(topic)


class Assign(Struct, frozen=True, kw_only=True):
    """The option `assign`: exactly these partitions."""

    partitions: tuple[TopicPartition, ...]


Strategy = Subscribe | SubscribePattern | Assign


class DeadLetters(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where the records of a read go whose values are not decoded; without `directory` and `topic` they end the read.

    Their rows stay in the read.
    """

    stream: str
    """The name of the stream that the letters have."""
    directory: str | None = None
    topic: str | None = None
    """A topic of the cluster that is read."""
    since_ms: int | None = None
    until_ms: int | None = None
    """Only records with a timestamp from `since_ms` on, and before `until_ms`."""


class ValueOptions(Struct, frozen=True, kw_only=True):
    """How a read decodes values to columns."""

    format: str
    """`json`, `avro` or `protobuf`."""
    schema: str
    """The JSON of a `StructType`, the text of an `.avsc` file, or a descriptor file of `protoc` in base64."""
    message: str | None = None
    """The full name of the Protobuf message."""
    framing: str | None = None
    """`confluent`, or None."""
    dead_letters: DeadLetters | None = None


class ReadOptions(Struct, frozen=True, kw_only=True):
    """The options of a batch or stream read. Picklable: tasks get them with their partition."""

    bootstrap_servers: str
    client: ClientOptions
    """The `kafka.*` options without their prefix, except `bootstrap.servers`."""
    strategy: Strategy
    starting: Boundary
    ending: Boundary
    starting_timestamp_falls_back: bool
    """Whether a partition without a record at or after the starting timestamp is read from its end; else reads fail."""
    fail_on_data_loss: bool
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    """A trigger with fewer new offsets waits for more, at most `max_trigger_delay_ms` since the last batch."""
    max_trigger_delay_ms: int
    poll_timeout_ms: int | None
    """How long a task waits for records; None means `default.api.timeout.ms`."""
    min_partitions: int | None
    max_records_per_partition: int | None
    include_headers: bool
    group: ClientOptions | None
    """The `kafka.*` options of the group's member, without their prefix; None unless `consumeMode=group`."""
    values: ValueOptions | None = None


class WriteOptions(Struct, frozen=True, kw_only=True):
    """The options of a batch or stream write."""

    bootstrap_servers: str
    client: ClientOptions
    topic: str | None
    """The topic of all rows; overrides the column `topic`."""
    include_timestamp: bool
    """Whether the column `timestamp` becomes the records' timestamp; else it is ignored, as in the JVM connector."""
    transactional_id_prefix: str | None = None
    """The name of an exactly-once sink; None: at least once."""


_READ_OPTIONS: Final = (
    "assign",
    "subscribe",
    "subscribePattern",
    "consumeMode",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "endingOffsets",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "failOnDataLoss",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "groupIdPrefix",
    "minPartitions",
    "maxRecordsPerPartition",
    "includeHeaders",
    "valueFormat",
    "valueSchema",
    "valueMessage",
    "valueFraming",
    "valueDeadLetters",
)
_WRITE_OPTIONS: Final = ("topic", "includeHeaders", "includeTimestamp", "guarantee", "transactionalIdPrefix")
_OF_SPARK: Final = frozenset({"path", "checkpointlocation", "queryname", "serialization.format"})
"""Options that Spark itself adds: the argument of `load`, a query's checkpoint and name, a table's format."""
_OF_STREAMS: Final = ("maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay")
_OF_MEMBERS: Final = (
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "heartbeat.interval.ms",
    "max.poll.interval.ms",
    "client.rack",
)
"""The client keys of a group's member; without `consumeMode=group` only `group.id` has an effect."""
_DURATION: Final = re.compile(r"(\d+)\s*(ms|s|m|min|h|d)?", re.IGNORECASE)
_UNITS_MS: Final = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_FIXED_BY_SPARK: Final = {
    "kafka.auto.offset.reset": "startingOffsets says where to begin",
    "kafka.key.deserializer": "keys arrive as binary, cast them in a column expression",
    "kafka.value.deserializer": "values arrive as binary, cast them in a column expression",
    "kafka.key.serializer": "cast the key to string or binary in a column expression",
    "kafka.value.serializer": "cast the value to string or binary in a column expression",
    "kafka.enable.auto.commit": "Spark's checkpoint holds the offsets",
    "kafka.interceptor.classes": "interceptors are Java classes, and there is no Java client here",
}


def parse_read_options(options: Mapping[str, str], *, streaming: bool) -> ReadOptions:
    """Parse the options of a read. Raise `ConfigurationError`, which names the option, or `InvalidTopicError`."""
    given = _lowered(options, _READ_OPTIONS)
    strategy = _strategy(given)
    ending: Boundary = Edge.LATEST
    if streaming:
        for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
            if name.lower() in given:
                raise ConfigurationError(f"{name} is for batch reads: a stream has no end")
    else:
        ending = _boundary(given, "ending", default=Edge.LATEST)
        for name in _OF_STREAMS:
            if given.pop(name.lower(), None) is not None:
                _log.warning("%s is ignored: a batch read has no trigger", name)
    starting = _boundary(given, "starting", default=Edge.LATEST if streaming else Edge.EARLIEST)
    _check_edges(starting, ending, streaming=streaming)
    fallback = given.get("startingoffsetsbytimestampstrategy", "error").strip().lower()
    if fallback not in {"error", "latest"}:
        raise ConfigurationError(f"startingOffsetsByTimestampStrategy is error or latest, not {fallback!r}")
    most, least = _positive(given, "maxOffsetsPerTrigger"), _positive(given, "minOffsetsPerTrigger")
    if most is not None and least is not None and least > most:
        raise ConfigurationError(f"minOffsetsPerTrigger ({least}) is above maxOffsetsPerTrigger ({most})")
    for name in ("fetchOffset.numRetries", "fetchOffset.retryIntervalMs"):
        _whole(given.get(name.lower(), "0"), name, at_least=0)
    client = _client(given)
    group = _group(given, strategy, client, streaming=streaming)
    return ReadOptions(
        bootstrap_servers=_bootstrap_servers(given),
        client=ClientOptions({key: value for key, value in client.items() if group is None or key not in group}),
        group=group,
        strategy=strategy,
        starting=starting,
        ending=ending,
        starting_timestamp_falls_back=fallback == "latest",
        fail_on_data_loss=_flag(given, "failOnDataLoss", default=True),
        max_offsets_per_trigger=most,
        min_offsets_per_trigger=least,
        max_trigger_delay_ms=_duration_ms(given.get("maxtriggerdelay", "15m"), "maxTriggerDelay"),
        poll_timeout_ms=_positive(given, "kafkaConsumer.pollTimeoutMs"),
        min_partitions=_positive(given, "minPartitions"),
        max_records_per_partition=_positive(given, "maxRecordsPerPartition"),
        include_headers=_flag(given, "includeHeaders", default=False),
        values=_values(given),
    )


def check_read_options(options: Mapping[str, str]) -> ReadOptions:
    """Parse options that may be those of a batch or of a stream: ends are a batch's, all else a stream may have."""
    return parse_read_options(options, streaming=not any(key.lower().startswith("ending") for key in options))


def parse_write_options(options: Mapping[str, str]) -> WriteOptions:
    """Parse the options of a write. Raise `ConfigurationError`, which names the option, or `InvalidTopicError`."""
    given = _lowered(options, _WRITE_OPTIONS)
    topic = given.get("topic")
    if topic is not None:
        validate_topic_name(topic.strip())
    return WriteOptions(
        bootstrap_servers=_bootstrap_servers(given),
        client=_client(given),
        topic=topic.strip() if topic is not None else None,
        include_timestamp=_flag(given, "includeTimestamp", default=False),
        transactional_id_prefix=_transactional_id_prefix(given),
    )


def _transactional_id_prefix(given: Mapping[str, str]) -> str | None:
    guarantee = given.get("guarantee", "at_least_once").strip().lower()
    prefix = given.get("transactionalidprefix", "").strip()
    if guarantee not in {"at_least_once", "exactly_once"}:
        raise ConfigurationError(f"guarantee is at_least_once or exactly_once, not {guarantee!r}")
    if guarantee == "at_least_once":
        if prefix:
            raise ConfigurationError("transactionalIdPrefix has an effect only with guarantee=exactly_once")
        return None
    if not prefix:
        raise ConfigurationError(
            "guarantee=exactly_once needs transactionalIdPrefix: a name for this sink that no other query or job uses, "
            "the same after each restart"
        )
    return prefix


def _lowered(options: Mapping[str, str], known: tuple[str, ...]) -> dict[str, str]:
    """Return the options by lower-case names. Raise `ConfigurationError` for unsupported and unknown ones.

    Reads accept the options of writes and the other way round, so that both may share a dict.
    """
    given = {key.lower(): str(value) for key, value in options.items()}
    spelled = {name.lower(): name for name in known}
    others = {name.lower() for name in (*_READ_OPTIONS, *_WRITE_OPTIONS)}
    for key in given:
        if key in _FIXED_BY_SPARK:
            raise ConfigurationError(f"{key} can't be set: {_FIXED_BY_SPARK[key]}")
        if key.startswith("kafka.") or key in spelled or key in others or key in _OF_SPARK:
            continue
        near = similar_names(key, spelled, cutoff=0.85)
        if near:
            raise ConfigurationError(f"there is no option {key!r}: did you mean {spelled[near[0]]}?")
        if key in {"bootstrap.servers", "bootstrapservers", "bootstrap_servers"}:
            raise ConfigurationError(f"there is no option {key!r}: did you mean kafka.bootstrap.servers?")
        raise ConfigurationError(f"there is no option {key!r}: there are kafka.*, {', '.join(known)}")
    return given


def _bootstrap_servers(given: Mapping[str, str]) -> str:
    servers = given.get("kafka.bootstrap.servers", "").strip()
    if not servers:
        raise ConfigurationError("kafka.bootstrap.servers is missing: give it as HOST:PORT[,HOST:PORT…]")
    try:
        return ",".join(bootstrap_addresses([servers]))
    except ConfigurationError as error:
        raise ConfigurationError(f"kafka.bootstrap.servers has {servers!r}, which is not HOST:PORT: {error}") from None


def _client(given: Mapping[str, str]) -> ClientOptions:
    return ClientOptions(
        (key.removeprefix("kafka."), value)
        for key, value in sorted(given.items())
        if key.startswith("kafka.") and key != "kafka.bootstrap.servers"
    )


def _group(
    given: Mapping[str, str], strategy: Strategy, client: Mapping[str, str], *, streaming: bool
) -> ClientOptions | None:
    mode = given.get("consumemode", "direct").strip().lower()
    if mode not in {"direct", "group"}:
        raise ConfigurationError(f"consumeMode is direct or group, not {mode!r}")
    if mode == "direct":
        return None
    if not streaming:
        raise ConfigurationError("consumeMode=group is for streams: a batch read is over before a group has assigned")
    if isinstance(strategy, Assign):
        raise ConfigurationError("consumeMode=group lets the group assign partitions: subscribe to topics instead")
    if not client.get("group.id"):
        raise ConfigurationError("consumeMode=group needs the group's name: set kafka.group.id")
    return ClientOptions((key, value) for key, value in client.items() if key in _OF_MEMBERS)


def _values(given: Mapping[str, str]) -> ValueOptions | None:
    kind = given.get("valueformat")
    schema, message, framing = (given.get(f"value{name}") for name in ("schema", "message", "framing"))
    letters = given.get("valuedeadletters")
    if kind is None:
        if schema or message or framing or letters:
            raise ConfigurationError(
                "valueFormat is missing: valueSchema, valueMessage, valueFraming and valueDeadLetters belong to it"
            )
        return None
    kind = kind.strip().lower()
    if kind not in {"json", "avro", "protobuf"}:
        raise ConfigurationError(f"valueFormat is json, avro or protobuf, not {kind!r}")
    if not schema:
        raise ConfigurationError(
            "valueSchema is missing: StructType.json(), the text of an Avro schema, or a descriptor file in base64"
        )
    if (message is None) == (kind == "protobuf"):
        raise ConfigurationError("valueMessage is the full name of the message of valueFormat=protobuf, and only of it")
    if framing not in {None, "confluent"}:
        raise ConfigurationError(f"valueFraming is confluent, not {framing!r}")
    if kind == "json" and (framing or letters):
        raise ConfigurationError("valueFraming and valueDeadLetters are for valueFormat=avro and protobuf")
    try:
        dead_letters = None if letters is None else msgspec.json.decode(letters, type=DeadLetters)
    except msgspec.DecodeError as error:
        raise ConfigurationError(f"valueDeadLetters is not the JSON of its fields: {error}") from None
    return ValueOptions(format=kind, schema=schema, message=message, framing=framing, dead_letters=dead_letters)


def _strategy(given: Mapping[str, str]) -> Strategy:
    named = [name for name in ("assign", "subscribe", "subscribePattern") if name.lower() in given]
    if len(named) != 1:
        what = f"{' and '.join(named)} are given" if named else "none is given"
        raise ConfigurationError(f"one of assign, subscribe and subscribePattern says what to read: {what}")
    value = given[named[0].lower()].strip()
    if named[0] == "assign":
        partitions = _per_partition(value, "assign", _partition_list)
        if not partitions:
            raise ConfigurationError("assign names no partition")
        return Assign(partitions=tuple(sorted(partitions)))
    if named[0] == "subscribe":
        topics = tuple(dict.fromkeys(topic.strip() for topic in value.split(",") if topic.strip()))
        if not topics:
            raise ConfigurationError("subscribe names no topic")
        for topic in topics:
            validate_topic_name(topic)
        return Subscribe(topics=topics)
    if not value:
        raise ConfigurationError("subscribePattern is empty")
    topic_matcher(value)
    return SubscribePattern(pattern=value)


def _boundary(given: Mapping[str, str], side: str, *, default: Edge) -> Boundary:
    """Parse the start or the end of a read, in the JVM connector's order of precedence."""
    name = f"{side}Timestamp"
    if name.lower() in given:
        return AtTimestamp(timestamp_ms=_whole(given[name.lower()], name, at_least=0))
    name = f"{side}OffsetsByTimestamp"
    if name.lower() in given:
        timestamps = _per_partition(given[name.lower()], name, _partition_numbers)
        if any(timestamp < 0 for timestamp in timestamps.values()):
            raise ConfigurationError(f"{name} has a timestamp below 0")
        return AtTimestamps(timestamps_ms=timestamps)
    name = f"{side}Offsets"
    value = given.get(name.lower(), default.name).strip()
    if value.lower() in {"earliest", "latest"}:
        return Edge[value.upper()]
    if not value.startswith("{"):
        raise ConfigurationError(
            f'{name} is earliest, latest or JSON like {{"topic":{{"0":23,"1":-2}}}}, not {value!r}'
        )
    offsets: dict[TopicPartition, int | Edge] = {}
    for partition, offset in _per_partition(value, name, _partition_numbers).items():
        if offset < Edge.EARLIEST.value:
            raise ConfigurationError(f"{name} has offset {offset} for {partition}: -2 is earliest, -1 is latest")
        offsets[partition] = Edge(offset) if offset < 0 else offset
    return GivenOffsets(offsets=offsets)


def _check_edges(starting: Boundary, ending: Boundary, *, streaming: bool) -> None:
    """Raise `ConfigurationError` for a batch that is empty by definition, as the JVM connector does."""
    if not streaming and _has(starting, Edge.LATEST):
        raise ConfigurationError("startingOffsets can't be latest (-1) in a batch read: there is nothing after it yet")
    if _has(ending, Edge.EARLIEST):
        raise ConfigurationError("endingOffsets can't be earliest (-2): there is nothing before it")


def _has(boundary: Boundary, edge: Edge) -> bool:
    return boundary is edge or (isinstance(boundary, GivenOffsets) and edge in boundary.offsets.values())


def _per_partition(text: str, name: str, entries: Callable[[Any, str], Mapping[int, T]]) -> dict[TopicPartition, T]:
    """Parse JSON {topic: …} into a dict by partition; `entries` parses the value of a topic."""
    try:
        topics = json.loads(text)
    except ValueError as error:
        raise ConfigurationError(f"{name} is not JSON: {error}") from None
    if not isinstance(topics, dict):
        raise ConfigurationError(f"{name} must be a JSON object with topics as keys")
    found: dict[TopicPartition, T] = {}
    for topic, value in topics.items():
        validate_topic_name(topic)
        for partition, entry in entries(value, name).items():
            found[TopicPartition(topic, partition)] = entry
    return found


def _partition_list(value: Any, name: str) -> dict[int, None]:
    if not isinstance(value, list) or not all(type(number) is int and number >= 0 for number in value):
        raise ConfigurationError(f'{name} must look like {{"topic":[0,1]}}')
    return dict.fromkeys(value)


def _partition_numbers(value: Any, name: str) -> dict[int, int]:
    fits = isinstance(value, dict) and all(
        key.isascii() and key.isdigit() and type(number) is int for key, number in value.items()
    )
    if not fits:
        raise ConfigurationError(f'{name} must look like {{"topic":{{"0":23,"1":345}}}}')
    return {int(key): number for key, number in value.items()}


def _flag(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = given.get(name.lower(), str(default)).strip().lower()
    if value not in {"true", "false"}:
        raise ConfigurationError(f"{name} is true or false, not {value!r}")
    return value == "true"


def _positive(given: Mapping[str, str], name: str) -> int | None:
    value = given.get(name.lower())
    return None if value is None else _whole(value, name, at_least=1)


def _whole(value: str, name: str, *, at_least: int) -> int:
    try:
        number = int(value.strip())
    except ValueError:
        raise ConfigurationError(f"{name} is a whole number, not {value!r}") from None
    if number < at_least:
        raise ConfigurationError(f"{name} is at least {at_least}, not {number}")
    return number


def _duration_ms(value: str, name: str) -> int:
    """Parse a duration as Spark does: a number of ms, or with a unit."""
    found = _DURATION.fullmatch(value.strip())
    if found is None:
        raise ConfigurationError(f"{name} is a duration such as 30s, 15m or 1h, not {value!r}")
    return int(found[1]) * _UNITS_MS[(found[2] or "ms").lower()]
