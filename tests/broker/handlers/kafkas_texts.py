"""Refused requests, and the text of Kafka 4.4's error, which scripts look for; some of ours go on after it.

`test_kafkas_texts` sends them to our broker, and `conformance/peers/test_same_texts.py` to both. Both have the
topics of `TOPICS`.
"""

import dataclasses
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from odradek.protocol.api import ApiKey

TOPICS: Final = {"texts": 3, "col.lides": 1}


class Row(NamedTuple):
    """One request; `text` is Kafka's, or the beginning of it."""

    name: str
    api: ApiKey
    version: int
    message: dict[str, Any]
    text: str


def _create(name: str, text: str, *, topic: str = "new", **fields: Any) -> Row:
    wanted = {"name": topic, "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []}
    message = {"topics": [wanted | fields], "timeout": 10_000, "validate_only": True}
    return Row(name, ApiKey.CREATE_TOPICS, 7, message, text)


def _placed(name: str, text: str, *replicas: int, first: int = 0) -> Row:
    assignments = [{"partition_index": first, "broker_ids": list(replicas)}]
    return _create(name, text, num_partitions=-1, replication_factor=-1, assignments=assignments)


def _config(name: str, text: str, key: str, value: str | None) -> Row:
    return _create(name, text, configs=[{"name": key, "value": value}])


def _add(name: str, text: str, count: int, assignment: list[list[int]] | None = None) -> Row:
    assignments = None if assignment is None else [{"broker_ids": each} for each in assignment]
    topic = {"name": "texts", "count": count, "assignments": assignments}
    message = {"topics": [topic], "timeout": 10_000, "validate_only": True}
    return Row(name, ApiKey.CREATE_PARTITIONS, 3, message, text)


def _alter(name: str, text: str, kind: int, resource: str, *changes: tuple[str, int, str | None]) -> Row:
    configs = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in changes]
    resources = [{"resource_type": kind, "resource_name": resource, "configs": configs}]
    return Row(name, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, {"resources": resources, "validate_only": True}, text)


def _move(name: str, text: str, topic: str, partition: int, *replicas: int) -> Row:
    topics = [{"name": topic, "partitions": [{"partition_index": partition, "replicas": list(replicas)}]}]
    return Row(name, ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, {"timeout": 10_000, "topics": topics}, text)


def _elect(name: str, text: str, topic: str, partition: int) -> Row:
    message = {"election_type": 0, "timeout": 10_000, "topic_partitions": [{"topic": topic, "partitions": [partition]}]}
    return Row(name, ApiKey.ELECT_LEADERS, 2, message, text)


def _quota(name: str, text: str, value: float = 1.0, key: str = "producer_byte_rate", kind: str = "user") -> Row:
    entry = {
        "entity": [{"entity_type": kind, "entity_name": "u"}],
        "ops": [{"key": key, "value": value, "remove": False}],
    }
    return Row(name, ApiKey.ALTER_CLIENT_QUOTAS, 1, {"entries": [entry], "validate_only": True}, text)


def _update(name: str, text: str, feature: str, level: int, kind: int = 1) -> Row:
    updates = [{"feature": feature, "max_version_level": level, "upgrade_type": kind}]
    text = f"The update failed for all features since the following feature had an error: {text}"
    message = {"timeout": 10_000, "feature_updates": updates, "validate_only": True}
    return Row(name, ApiKey.UPDATE_FEATURES, 2, message, text)


def _beat(name: str, text: str, **fields: Any) -> Row:
    message = {
        "group_id": "texts", "member_id": "member", "member_epoch": 0, "instance_id": None, "rack_id": None,
        "rebalance_timeout": 10_000, "subscribed_topic_names": ["texts"], "subscribed_topic_regex": None,
        "server_assignor": None, "topic_partitions": [],
    }  # fmt: skip
    return Row(name, ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, message | fields, text)


def _group(name: str, text: str, api: ApiKey, version: int, names: str, **more: Any) -> Row:
    return Row(name, api, version, {names: ["nobody"], **more}, text)


_MANUAL: Final = "The manual partition assignment includes"
_VALUE: Final = "Invalid value x for configuration"
_NAME: Final = "Topic name is invalid:"
_OTHERS: Final = "contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
_SET, _APPEND = 0, 2
_TOPIC, _BROKER, _LOGGER = 2, 4, 8
ROWS: Final = (
    _create("a topic that exists", "Topic 'texts' already exists.", topic="texts"),
    _create("a topic that collides", "Topic 'col_lides' collides with existing topic: col.lides", topic="col_lides"),
    _create("a name of other characters", f"{_NAME} 'a b' {_OTHERS}", topic="a b"),
    _create("an empty name", f"{_NAME} the empty string is not allowed", topic=""),
    _create("the name ..", f"{_NAME} '..' is not allowed", topic=".."),
    _create(
        "a long name",
        f"{_NAME} the length of '{'a' * 250}' is longer than the max allowed length 249",
        topic="a" * 250,
    ),
    _create("no partitions", "Number of partitions was set to an invalid non-positive value.", num_partitions=0),
    _create(
        "no replicas",
        "Replication factor must be larger than 0, or -1 to use the default value.",
        replication_factor=0,
    ),
    _create(
        "more replicas than brokers",
        "Unable to replicate the partition 2 time(s): The target replication factor of 2 cannot be reached because "
        "only 1 broker(s) are registered",
        replication_factor=2,
    ),
    _placed("an empty list of replicas", f"{_MANUAL} an empty replica list."),
    _placed("a broker twice", f"{_MANUAL} the broker 0 more than once.", 0, 0),
    _placed("an unknown broker", f"{_MANUAL} broker 7, but no such broker is registered.", 7),
    _placed("a gap", "partitions should be a consecutive 0-based integer sequence", 0, first=1),
    _config("an unknown key", "Unknown topic config name: no.such", "no.such", "1"),
    _config("no number", f"{_VALUE} retention.ms: Not a number of type LONG", "retention.ms", "x"),
    _config("a low number", "Invalid value -5 for configuration retention.ms: Value must be", "retention.ms", "-5"),
    _config("no boolean", f"{_VALUE} preallocate: Expected value to be either true or false", "preallocate", "x"),
    _config("a null", "Null value not supported for topic configs: retention.ms", "retention.ms", None),
    _add("fewer partitions", "The topic texts currently has 3 partition(s); 2 would not be an increase.", 2),
    _add("as many partitions", "Topic already has 3 partition(s).", 3),
    _add(
        "too few lists",
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        5,
        [[0]],
    ),
    _alter("an unknown topic", "The topic 'nobody' does not exist.", _TOPIC, "nobody", ("retention.ms", _SET, "1")),
    _alter("no list", "Can't APPEND to key retention.ms because its type is not LIST.", _TOPIC, "texts",
           ("retention.ms", _APPEND, "1")),
    _alter("a key twice", "Error due to duplicate config keys", _TOPIC, "texts", ("retention.ms", _SET, "1"),
           ("retention.ms", _SET, "2")),
    _alter("an unknown logger", "Logger no.such does not exist!", _LOGGER, "0", ("no.such", _SET, "INFO")),
    _move("a move of an unknown topic", "Unable to find a topic named nobody.", "nobody", 0, 0),
    _move("a move of an unknown partition", "Unable to find partition texts:9.", "texts", 9, 0),
    _move("a move to a broker twice", f"{_MANUAL} the broker 0 more than once.", "texts", 0, 0, 0),
    _elect("an election in an unknown topic", "No such topic as nobody", "nobody", 0),
    _elect("an election of an unknown partition", "No such partition as texts-9", "texts", 9),
    _quota("an unknown quota", "Invalid configuration key no.such", key="no.such"),
    _quota("a negative quota", "Quota producer_byte_rate must be greater than 0", -1.0),
    _quota("a broken quota", "producer_byte_rate cannot be a fractional value.", 1.5),
    _quota("a quota of another kind", "Unhandled client quota entity type: x", kind="x"),
    _update(
        "a level that is too high",
        "Invalid update version 9 for feature transaction.version. Local controller 0 only supports versions 0-2",
        "transaction.version",
        9,
    ),
    _update(
        "an unknown feature",
        "Invalid update version 1 for feature no.such. Local controller 0 does not support this feature.",
        "no.such",
        1,
    ),
    _update(
        "a lower level",
        "Invalid update version 1 for feature transaction.version. Can't downgrade the version of this feature without "
        "setting the upgrade type to either safe or unsafe downgrade.",
        "transaction.version",
        1,
    ),
    _update("no feature", "Invalid update version 0 for feature no.such. Feature no.such not found.", "no.such", 0, 2),
    _update(
        "an older release",
        "Unsupported metadata.version downgrade from 33 to 25. Refusing to perform the requested downgrade because it "
        "might delete metadata information.",
        "metadata.version",
        25,
        2,
    ),
    _beat("a member without an id", "MemberId can't be empty.", member_id=""),
    _beat("a member without a time", "RebalanceTimeoutMs must be provided in first request.", rebalance_timeout=-1),
    _beat(
        "an unknown assignor",
        "ServerAssignor nobody is not supported. Supported assignors: uniform, range.",
        server_assignor="nobody",
    ),
    _beat(
        "a wrong expression",
        "SubscribedTopicRegex `(` is not a valid regular expression: ",
        subscribed_topic_names=None,
        subscribed_topic_regex="(",
    ),
    _group("an unknown group", "Group nobody not found.", ApiKey.DESCRIBE_GROUPS, 6, "groups",
           include_authorized_operations=False),
    Row(
        "the credential of an unknown user",
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        0,
        {"users": [{"name": "nobody"}]},
        "Attempt to describe a user credential that does not exist: nobody",
    ),
    Row(
        "a credential of few iterations",
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
        0,
        {
            "deletions": [],
            "upsertions": [
                {"name": "eve", "mechanism": 1, "iterations": 1, "salt": b"s", "salted_password": b"p" * 32}
            ],
        },
        "Too few iterations",
    ),
    Row(
        "an unknown controller",
        ApiKey.UNREGISTER_CONTROLLER,
        0,
        {"controller_id": 77},
        "Controller ID 77 is not currently registered.",
    ),
)  # fmt: skip


def error_texts(answer: Any) -> Iterator[str]:
    """Yield each text of an error in a decoded response."""
    if isinstance(answer, tuple):
        for each in answer:
            yield from error_texts(each)
    elif dataclasses.is_dataclass(answer):
        text = getattr(answer, "error_message", None)
        if text:
            yield text
        for field in dataclasses.fields(answer):
            yield from error_texts(getattr(answer, field.name))
