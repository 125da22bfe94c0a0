"""Kafka and our broker answer requests of administration alike, wrong ones too (M1)."""

import itertools
import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pytest

from conformance.peers.compare_with_kafka import BrokerPair, Case, Request, check, comparable
from conformance.peers.kafka_tools import tool
from odradek.protocol.api import ApiKey
from odradek.protocol.messages.message_codec import decode_response
from odradek.simulation.wire_client import BlockingWireClient

pytestmark = pytest.mark.needs("kafka")

TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "admin-a": {},
    "admin-b": {"retention.ms": "1000000", "cleanup.policy": "compact"},
    "admin.c": {},
    "admin-d": {},
}
SPECIFICATION: Final = Path(__file__).parents[2] / "docs" / "specification.md"
FEATURES_TOOL: Final = "org.apache.kafka.tools.FeatureCommand"
PARTITIONS: Final = 3
TOPIC, BROKER, LOGGERS = 2, 4, 8
SET, DELETE, APPEND, SUBTRACT = 0, 1, 2, 3
_names = (f"made-{number}" for number in itertools.count())


NO_EFFECT: Final = {
    ("background.threads", "11", "0"),
    ("background.threads", "11", ""),
    ("inter.broker.protocol.version", "3.0", "0"),
    ("inter.broker.protocol.version", "3.0", ""),
    ("sasl.kerberos.min.time.before.relogin", "5", "0"),
    ("sasl.kerberos.service.name", "kafka", "0"),
}
"""Keys, values and brokers that Kafka accepts."""


def one(name: str, *requests: Request, differs: str = "") -> Case:
    return Case(name=name, requests=requests, differs=differs)


# ---- topics ---------------------------------------------------------------------------------------------------------


def topic(
    name: str | None = None,
    partitions: int = 1,
    replicas: int = 1,
    assignments: Mapping[int, Sequence[int]] | None = None,
    **configs: str | None,
) -> Mapping[str, Any]:
    return {
        "name": next(_names) if name is None else name,
        "num_partitions": partitions,
        "replication_factor": replicas,
        "assignments": [
            {"partition_index": place, "broker_ids": list(ids)} for place, ids in (assignments or {}).items()
        ],
        "configs": [{"name": key.replace("_", "."), "value": value} for key, value in configs.items()],
    }


def create(*topics: Mapping[str, Any], version: int = 7, validate_only: bool = False) -> Request:
    message = {"topics": topics, "timeout": 10_000, "validate_only": validate_only}
    return Request(api=ApiKey.CREATE_TOPICS, version=version, message=message)


def delete(*names: str, version: int = 5) -> Request:
    return Request(api=ApiKey.DELETE_TOPICS, version=version, message={"topic_names": names, "timeout": 10_000})


def add(
    name: str, count: int, assignments: Sequence[Sequence[int]] | None = None, *, validate_only: bool = False
) -> Request:
    placed = None if assignments is None else [{"broker_ids": list(ids)} for ids in assignments]
    topics = [{"name": name, "count": count, "assignments": placed}]
    return Request(
        api=ApiKey.CREATE_PARTITIONS,
        version=3,
        message={"topics": topics, "timeout": 10_000, "validate_only": validate_only},
    )


def describe(*names: str, limit: int = 2000, cursor: tuple[str, int] | None = None) -> Request:
    at = None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]}
    message = {"topics": [{"name": name} for name in names], "response_partition_limit": limit, "cursor": at}
    return Request(api=ApiKey.DESCRIBE_TOPIC_PARTITIONS, version=0, message=message, settles=True)


_CREATION: Final = [
    one("a topic", create(topic("created"))),
    *(one(f"a topic in version {version}", create(topic(partitions=2), version=version)) for version in range(2, 8)),
    one("a topic that exists", create(topic("admin-a"))),
    one("a topic that exists, only validated", create(topic("admin-a"), validate_only=True)),
    one("a topic, only validated", create(topic("validated"), validate_only=True), describe("validated")),
    one("a topic twice in a request", create(topic("twice"), topic("twice"))),
    one("defaults", create(topic(partitions=-1, replicas=-1))),
    one("defaults in an old version", create(topic(partitions=-1, replicas=-1), version=3)),
    *(
        one(f"the name {name[:20]!r}", create(topic(name)))
        for name in (
            "",
            ".",
            "..",
            "a b",
            "a/b",
            "ä",
            "x" * 249,
            "x" * 250,
            "a\0b",
            "__consumer_offsets2",
            "__cluster_metadata",
            "-",
            "_",
        )
    ),
    one("a name that collides with another one's metric", create(topic("admin_c"))),
    *(one(f"{count} partitions", create(topic(partitions=count))) for count in (0, -2, 10_001, 2**31 - 1)),
    *(one(f"{count} replicas", create(topic(replicas=count))) for count in (0, -2, 2, 32_767)),
    one("an assignment", create(topic(partitions=-1, replicas=-1, assignments={0: [0], 1: [0]}))),
    one("an assignment and numbers", create(topic(partitions=1, replicas=1, assignments={0: [0]}))),
    one("an assignment and a number of partitions", create(topic(partitions=1, replicas=-1, assignments={0: [0]}))),
    one("an assignment with a gap", create(topic(partitions=-1, replicas=-1, assignments={0: [0], 2: [0]}))),
    one("an assignment that begins at 1", create(topic(partitions=-1, replicas=-1, assignments={1: [0]}))),
    one("an assignment to an unknown broker", create(topic(partitions=-1, replicas=-1, assignments={0: [7]}))),
    one("an assignment to a broker twice", create(topic(partitions=-1, replicas=-1, assignments={0: [0, 0]}))),
    one("an assignment to nobody", create(topic(partitions=-1, replicas=-1, assignments={0: []}))),
    one("a negative partition's assignment", create(topic(partitions=-1, replicas=-1, assignments={-1: [0]}))),
    one("a configuration", create(topic(retention_ms="5000", cleanup_policy="compact,delete"))),
    one("an unknown key", create(topic(no_such_key="1"))),
    one("a value that is not a number", create(topic(retention_ms="soon"))),
    one("a value out of range", create(topic(retention_ms="-2"))),
    one("no value", create(topic(retention_ms=None))),
    one("an empty value", create(topic(retention_ms=""))),
    one("an empty list", create(topic(cleanup_policy=""))),
    one("a policy that there is not", create(topic(cleanup_policy="forget"))),
    one("a policy twice", create(topic(cleanup_policy="delete,delete"))),
    one("a codec that there is not", create(topic(compression_type="rar"))),
    one("a boolean that is none", create(topic(preallocate="maybe"))),
    one("a number with blanks", create(topic(retention_ms=" 7000 "))),
    one(
        "a segment that is too small",
        create(topic(segment_bytes="1000")),
        differs="Kafka asks for a mebibyte since KIP-1030; smaller ones do no harm",
    ),
    one("no topics", create()),
    one("good and bad ones", create(topic(), topic("a b"), topic("admin-a"))),
]
_DELETION: Final = [
    one("a deletion", create(topic("to-go")), delete("to-go")),
    one("a deletion of an unknown topic", delete("nobody-made-it")),
    one("a deletion of an illegal name", delete("a b")),
    one(
        "a deletion twice in a request",
        create(topic("to-go-twice")),
        delete("to-go-twice", "to-go-twice"),
        differs="Kafka names it once in its answer",
    ),
    one("a deletion of nothing", delete()),
]
_EXPANSION: Final = [
    one("more partitions", add("admin-d", 4), add("admin-d", 4), add("admin-d", 2)),
    one("as many partitions", add("admin-a", PARTITIONS)),
    *(one(f"{count} partitions in all", add("admin-a", count)) for count in (0, -1)),
    one("more partitions, only validated", add("admin-a", 9, validate_only=True), describe("admin-a")),
    one("more partitions of an unknown topic", add("nobody-made-it", 5)),
    one("more partitions, placed", add("admin-b", 4, [[0]])),
    one("more partitions, placed on an unknown broker", add("admin-a", 4, [[7]])),
    one("more partitions, placed on a broker twice", add("admin-a", 4, [[0, 0]])),
    one("more partitions, placed on nobody", add("admin-a", 4, [[]])),
    one("more partitions, too few placed", add("admin-a", 5, [[0]])),
    one("more partitions, too many placed", add("admin-a", 4, [[0], [0]])),
    one("more partitions, none placed", add("admin-a", 4, [])),
    one("more partitions, nothing placed and too few", add("admin-a", 1, [])),
]
_DESCRIPTION: Final = [
    one("all partitions", describe("admin-a", "admin.c")),
    one("topics in another order", describe("admin.c", "admin-a")),
    one("a topic twice", describe("admin-a", "admin-a")),
    *(one(f"at most {limit} partitions", describe("admin-a", "admin.c", limit=limit)) for limit in (1, 2, 3, 4, 6, 7)),
    *(one(f"at most {limit} partitions, not a number", describe("admin-a", limit=limit)) for limit in (0, -1)),
    *(
        one(f"from {cursor} on", describe("admin-a", "admin.c", limit=2, cursor=cursor))
        for cursor in (
            ("admin-a", 1),
            ("admin-a", 2),
            ("admin-a", 3),
            ("admin-a", 99),
            ("admin-b", 0),
            ("admin.c", 2),
            ("z", 0),
            ("", 0),
            ("admin-a", -1),
        )
    ),
    one("a cursor on a topic that was not asked for", describe("admin.c", cursor=("admin-a", 1))),
    one("a cursor without topics", describe(cursor=("admin-a", 1), limit=2)),
    one("unknown topics", describe("nobody-made-it", "admin-a")),
    one("illegal topics", describe("a b", "", "admin-a"), differs="Kafka fails on the whole request"),
    one("unknown topics do not count", describe("nobody-made-it", "admin-a", limit=1)),
]


# ---- configurations -------------------------------------------------------------------------------------------------


def change(
    *configs: tuple[str, int, str | None], kind: int = TOPIC, name: str = "admin-d", validate_only: bool = False
) -> Request:
    entries = [{"name": key, "config_operation": operation, "value": value} for key, operation, value in configs]
    resources = [{"resource_type": kind, "resource_name": name, "configs": entries}]
    return Request(
        api=ApiKey.INCREMENTAL_ALTER_CONFIGS,
        version=1,
        message={"resources": resources, "validate_only": validate_only},
    )


def replace(
    *configs: tuple[str, str | None], kind: int = TOPIC, name: str = "admin-d", validate_only: bool = False
) -> Request:
    entries = [{"name": key, "value": value} for key, value in configs]
    resources = [{"resource_type": kind, "resource_name": name, "configs": entries}]
    return Request(
        api=ApiKey.ALTER_CONFIGS, version=2, message={"resources": resources, "validate_only": validate_only}
    )


def configs(*keys: str, kind: int = TOPIC, name: str = "admin-d") -> Request:
    resources = [{"resource_type": kind, "resource_name": name, "configuration_keys": list(keys)}]
    message = {"resources": resources, "include_synonyms": False, "include_documentation": False}
    return Request(api=ApiKey.DESCRIBE_CONFIGS, version=4, message=message, settles=True)


def twice(request: Request, *, kafka_is_silent: bool = False) -> Request:
    return Request(
        api=request.api,
        version=request.version,
        message={**request.message, "resources": [*request.message["resources"]] * 2},
        kafka_is_silent=kafka_is_silent,
    )


_CHANGES: Final = [
    one("a value set", change(("retention.ms", SET, "5000")), configs("retention.ms")),
    one("a value taken back", change(("retention.ms", DELETE, None)), configs("retention.ms")),
    one("a value taken back that was not set", change(("flush.ms", DELETE, None))),
    one("a value set, only validated", change(("flush.ms", SET, "5000"), validate_only=True), configs("flush.ms")),
    one("a list gets longer", change(("cleanup.policy", APPEND, "compact")), configs("cleanup.policy")),
    one("a list gets longer by what it has", change(("cleanup.policy", APPEND, "compact")), configs("cleanup.policy")),
    one("a list gets shorter", change(("cleanup.policy", SUBTRACT, "compact")), configs("cleanup.policy")),
    one("a list gets shorter by what it lacks", change(("cleanup.policy", SUBTRACT, "compact"))),
    one("a list gets empty", change(("cleanup.policy", SUBTRACT, "delete")), configs("cleanup.policy")),
    one("a list begins anew", change(("cleanup.policy", APPEND, "delete")), configs("cleanup.policy")),
    one("a number gets longer", change(("retention.ms", APPEND, "1"))),
    one("a number gets shorter", change(("retention.ms", SUBTRACT, "1"))),
    one("no value to set", change(("retention.ms", SET, None))),
    one("no value to append", change(("cleanup.policy", APPEND, None))),
    one("an empty value to set", change(("retention.ms", SET, ""))),
    one("an empty name", change(("", SET, "1"))),
    one("an unknown key to set", change(("no.such.key", SET, "1"))),
    one("an unknown key to take back", change(("no.such.key", DELETE, None))),
    one("a bad value", change(("retention.ms", SET, "soon"))),
    one(
        "a bad value among good ones", change(("flush.ms", SET, "7"), ("retention.ms", SET, "-5")), configs("flush.ms")
    ),
    one("a key twice", change(("retention.ms", SET, "1"), ("retention.ms", SET, "2"))),
    one(
        "an operation that there is not", change(("retention.ms", 9, "1")), differs="Kafka fails: UNKNOWN_SERVER_ERROR"
    ),
    one("a resource twice", twice(change(("retention.ms", SET, "1")))),
    one("nothing to change", change()),
    one("a topic that is not there", change(("retention.ms", SET, "1"), name="nobody-made-it")),
    one("an illegal topic", change(("retention.ms", SET, "1"), name="a b")),
    one("a broker that is not there", change(("log.retention.ms", SET, "1000000"), kind=BROKER, name="77")),
    one("a broker that is not a number", change(("log.retention.ms", SET, "1000000"), kind=BROKER, name="x")),
    one("a broker's fixed key", change(("log.dirs", SET, "/tmp/x"), kind=BROKER, name="0")),
    one(
        "a broker's unknown key",
        change(("no.such.key", SET, "1"), kind=BROKER, name="0", validate_only=True),
        differs="Odradek has no plugins that read such a key",
    ),
    *(
        one(
            f"{key} = {value} of broker {name!r}",
            change((key, SET, value), kind=BROKER, name=name, validate_only=True),
            differs="Odradek refuses a value without effect" if (key, value, name) in NO_EFFECT else "",
        )
        for name in ("0", "")
        for key, value in (
            ("background.threads", "11"),
            ("background.threads", "10"),
            ("background.threads", "0"),
            ("background.threads", "x"),
            ("queued.max.requests", "9"),
            ("sasl.kerberos.service.name", "kafka"),
            ("sasl.kerberos.min.time.before.relogin", "5"),
            ("ssl.protocol", "TLSv1.3"),
            ("log.local.retention.ms", "7"),
            ("authorizer.class.name", "x"),
            ("inter.broker.protocol.version", "3.0"),
            ("log.dir", "x"),
            ("leader.replication.throttled.rate", "x"),
            ("leader.replication.throttled.rate", "-1"),
            ("follower.replication.throttled.rate", "0"),
        )
    ),
    *(
        one(f"a topic's {key} = {value}", change((key, SET, value), validate_only=True))
        for key, value in (
            ("preallocate", "false"),
            ("preallocate", "x"),
            ("remote.storage.enable", "false"),
            ("remote.storage.enable", "true"),
            ("remote.log.copy.disable", "true"),
            ("remote.log.delete.on.disable", "true"),
            ("local.retention.ms", "-2"),
            ("local.retention.ms", "-3"),
            ("local.retention.ms", "1000"),
            ("local.retention.bytes", "7"),
            ("leader.replication.throttled.replicas", ""),
            ("leader.replication.throttled.replicas", "x"),
            ("leader.replication.throttled.replicas", "*"),
            ("follower.replication.throttled.replicas", "0:1,*"),
            ("follower.replication.throttled.replicas", "0:1, 1:0"),
        )
    ),
    one(
        "segments that take their whole size at once",
        change(("preallocate", SET, "true"), validate_only=True),
        differs="Odradek's segments grow as they are written",
    ),
    one("a broker's value", change(("log.retention.ms", SET, "-1"), kind=BROKER, name="0", validate_only=True)),
    one("every broker's value", change(("log.retention.ms", SET, "-1"), kind=BROKER, name="", validate_only=True)),
    one("every broker's bad value", change(("log.retention.ms", SET, "soon"), kind=BROKER, name="")),
    one(
        "levels of loggers",
        change(("root", SET, "WARN"), kind=LOGGERS, name="0"),
        configs("root", kind=LOGGERS, name="0"),
        change(("root", SET, "INFO"), kind=LOGGERS, name="0"),
        configs("root", kind=LOGGERS, name="0"),
    ),
    *(
        one(
            f"loggers of {name!r}: {operation} {logger} to {level}",
            change((logger, operation, level), kind=LOGGERS, name=name, validate_only=True),
        )
        for name, logger, operation, level in (
            ("0", "root", SET, "LOUD"),
            ("0", "root", SET, "warn"),
            ("0", "root", SET, "FATAL"),
            ("0", "root", SET, None),
            ("0", "root", DELETE, None),
            ("0", "root", APPEND, "INFO"),
            ("0", "root", 9, "INFO"),
            ("0", "nothing", SET, "INFO"),
            ("0", "nothing", DELETE, None),
            ("77", "root", SET, "INFO"),
            ("", "root", SET, "INFO"),
        )
    ),
    one("levels of loggers, replaced", replace(("root", "INFO"), kind=LOGGERS, name="0")),
    one("loggers of no broker", configs("root", kind=LOGGERS, name="")),
    one("a kind that there is not", change(("retention.ms", SET, "1"), kind=99)),
    one("kind 0", change(("retention.ms", SET, "1"), kind=0)),
    one(
        "all values replaced",
        replace(("flush.ms", "5000"), ("retention.ms", "-1")),
        replace(("flush.ms", "6000")),
        configs("flush.ms", "retention.ms"),
    ),
    one("all values replaced by nothing", replace(), configs("flush.ms")),
    one("all values replaced by an unknown key", replace(("no.such.key", "1"))),
    one("all values replaced by no value", replace(("flush.ms", None))),
    one("all values replaced of a topic that is not there", replace(("flush.ms", "1"), name="nobody-made-it")),
    one(
        "all values replaced twice",
        twice(replace(("flush.ms", "1")), kafka_is_silent=True),
        differs="Kafka does not answer",
    ),
    one("a key that is described", configs("retention.ms", "no.such.key")),
    one("a topic that is described and not there", configs(name="nobody-made-it")),
    one("an illegal topic that is described", configs(name="a b")),
    one("a broker that is described and not there", configs("log.retention.ms", kind=BROKER, name="77")),
    one("a broker that is described and no number", configs("log.retention.ms", kind=BROKER, name="x")),
    one("a kind that is described and not there", configs(kind=99)),
]

# ---- the rest -------------------------------------------------------------------------------------------------------


def ask(api: ApiKey, version: int, **message: Any) -> Request:
    return Request(api=api, version=version, message=message, is_unordered=True)


def forget(group: str, topic: str = "admin-a", *partitions: int) -> Request:
    places = [{"partition_index": place} for place in partitions or (0,)]
    return ask(ApiKey.OFFSET_DELETE, 0, group_id=group, topics=[{"name": topic, "partitions": places}])


_REST: Final = [
    *(
        one(
            f"groups deleted that are not there, version {version}",
            ask(ApiKey.DELETE_GROUPS, version, groups_names=["nobody", ""]),
        )
        for version in (0, 1, 2)
    ),
    one("a group deleted twice", ask(ApiKey.DELETE_GROUPS, 2, groups_names=["nobody", "nobody"])),
    one("offsets deleted of a group that is not there", forget("nobody")),
    one("offsets deleted of no group", forget("")),
    *(
        one(f"resources of kinds {kinds}", ask(ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=kinds))
        for kinds in ([32], [99], [0])
    ),
    one("client metrics resources", ask(ApiKey.LIST_CONFIG_RESOURCES, 0)),
    one("a client without a name", ask(ApiKey.API_VERSIONS, 3, client_software_name="", client_software_version="1")),
    one("a client of a bad name", ask(ApiKey.API_VERSIONS, 3, client_software_name="a b", client_software_version="1")),
    one(
        "a client of a bad version", ask(ApiKey.API_VERSIONS, 3, client_software_name="a", client_software_version="-1")
    ),
]

CASES: Final = [*_CREATION, *_DELETION, *_EXPANSION, *_DESCRIPTION, *_CHANGES, *_REST]


@pytest.fixture(scope="module", autouse=True)
def topics(pair: BrokerPair) -> None:
    """The topics of this table."""
    pair.create(TOPICS, PARTITIONS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_an_administrator_gets_the_same_answer(pair: BrokerPair, case: Case):
    """M1"""
    check(pair, case)


@pytest.mark.parametrize("version", range(5))
def test_our_broker_lists_the_same_versions_of_its_requests(pair: BrokerPair, version: int):
    """M1: but for the rows of the table in the specification"""
    request = ask(ApiKey.API_VERSIONS, version, client_software_name="test", client_software_version="1")
    ours, kafkas = pair.ask(request)
    assert (ours["error_code"], kafkas["error_code"]) == ("none", "none")
    theirs, told = (
        {each["api_key"]: (each["min_version"], each["max_version"]) for each in answer["api_keys"]}
        for answer in (kafkas, ours)
    )
    theirs[ApiKey.INIT_PRODUCER_ID] = 0, 5  # the pair enables unstable versions
    table = re.findall(r"\| (\d+) \w+ \| (\S+) \| (\S+) \|", SPECIFICATION.read_text())
    assert len(table) > 5
    for key, in_kafka, here in table:
        versions = [None if each == "–" else tuple(map(int, each.split("–"))) for each in (in_kafka, here)]
        assert versions == [theirs.pop(int(key)), told.pop(int(key), None)], key
    assert told == theirs


def test_kafkas_tool_describes_the_features_of_both(pair: BrokerPair):
    """KIP-584: ours are Kafka's, at the same finalized levels unless the feature is off."""
    outputs = [
        tool(FEATURES_TOOL, "--bootstrap-server", servers, "describe")
        for servers in (pair.ours.bootstrap_servers, pair.kafka.bootstrap_servers)
    ]
    # Feature: NAME SupportedMinVersion: N SupportedMaxVersion: N FinalizedVersionLevel: N Epoch: N
    ours, kafkas = ({words[1]: words[7] for words in map(str.split, output.splitlines())} for output in outputs)
    assert ours.keys() == kafkas.keys()
    assert {name: level for name, level in ours.items() if level != kafkas[name]} == {
        **dict.fromkeys(("eligible.leader.replicas.version", "kraft.version", "share.version", "streams.version"), "0"),
    }


def test_a_version_of_api_versions_to_come_is_answered_in_version_0(pair: BrokerPair):
    """M1: with what would be understood, so that a newer client finds out (KIP-511)."""
    frames = []
    for servers in (pair.ours.bootstrap_servers, pair.kafka.bootstrap_servers):
        with BlockingWireClient(servers) as connection:
            request = connection.frame(
                ApiKey.API_VERSIONS, {"client_software_name": "a", "client_software_version": "1"}, 4
            )
            connection.send_raw(request[:6] + struct.pack(">h", 99) + request[8:])
            frames.append(connection.receive())
    ours, kafkas = (comparable(decode_response(ApiKey.API_VERSIONS, 0, frame, 4)) for frame in frames)
    assert ours["error_code"] == kafkas["error_code"] == "unsupported_version"
    (mine,) = (entry for entry in ours["api_keys"] if entry["api_key"] == ApiKey.API_VERSIONS)
    assert mine in kafkas["api_keys"]
