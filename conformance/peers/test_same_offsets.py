"""Questions about offsets and epochs, to Kafka and to our broker, over the same batches: the same answers (M1)."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest

from conformance.peers.compare_with_kafka import BrokerPair, Case, Request, check, produce
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.records import encode_batch

pytestmark = pytest.mark.needs("kafka")

NOW: Final = 1_790_000_000_000
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    "times": {"index.interval.bytes": "1"},
    "compact-times": {"cleanup.policy": "compact"},
    "deleted": {},
    "empty": {},
}
TIMES: Final[Sequence[Sequence[int]]] = ((100, 110, 120), (90, 200), (50,), (300, 250, 300), (10, 20, 300), (310,))
"""Each batch's timestamps, behind `NOW`: not in order, neither within a batch nor from one to the next."""


def list_offsets(
    *timestamps: int,
    topic: str = "times",
    partition: int = 0,
    version: int = 9,
    epoch: int = -1,
    isolation: int = 0,
    replica_id: int = -1,
) -> Request:
    partitions = [
        {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": time} for time in timestamps
    ]
    asked = [{"name": topic, "partitions": partitions}]
    message = {"replica_id": replica_id, "isolation_level": isolation, "topics": asked, "timeout": 1000}
    return Request(api=ApiKey.LIST_OFFSETS, version=version, message=message)


def epochs(
    *asked: int, topic: str = "times", partition: int = 0, current: int = -1, version: int = 4, replica_id: int = -1
) -> Request:
    partitions = [{"partition": partition, "current_leader_epoch": current, "leader_epoch": epoch} for epoch in asked]
    message = {"replica_id": replica_id, "topics": [{"topic": topic, "partitions": partitions}]}
    return Request(api=ApiKey.OFFSET_FOR_LEADER_EPOCH, version=version, message=message)


def delete_records(offset: int, *, topic: str = "deleted", partition: int = 0, version: int = 2) -> Request:
    partitions = [{"partition_index": partition, "offset": offset}]
    message = {"topics": [{"name": topic, "partitions": partitions}], "timeout": 5000}
    return Request(api=ApiKey.DELETE_RECORDS, version=version, message=message)


def describe_producers(topic: str, *partitions: int) -> Request:
    message = {"topics": [{"name": topic, "partition_indexes": list(partitions)}]}
    return Request(api=ApiKey.DESCRIBE_PRODUCERS, version=0, message=message)


def describe_log_dirs(topics: Any, version: int = 4) -> Request:
    return Request(api=ApiKey.DESCRIBE_LOG_DIRS, version=version, message={"topics": topics}, is_unordered=True)


def one(name: str, request: Request, differs: str = "") -> Case:
    return Case(name=name, requests=[request], differs=differs)


LOOKED_FOR: Final = sorted(
    {-(10**9), 0, 5, *(time + near for times in TIMES for time in times for near in (-1, 0, 1)), 10**9}
)

CASES: Final = [
    *(
        Case(
            name=f"times in batches of {codec.name.lower()}",
            requests=[list_offsets(NOW + time, partition=int(codec)) for time in LOOKED_FOR],
        )
        for codec in Codec
    ),
    *(
        Case(
            name=f"the special timestamp {special} in every version",
            requests=[list_offsets(special, version=version) for version in range(1, 11)],
        )
        for special in (-1, -2, -3, -4, -5, -6, -7, -100)
    ),
    *(
        Case(
            name=f"the special timestamp {special}, {topic}",
            requests=[list_offsets(special, topic=topic, isolation=isolation) for isolation in (0, 1)],
        )
        for special in (-1, -2, -3, -4, -5)
        for topic in ("times", "empty")
    ),
    one("a time in an empty log", list_offsets(NOW, topic="empty")),
    one("the greatest time there is", list_offsets(2**63 - 1)),
    one("an unknown topic", list_offsets(-1, topic="nobody-made-it")),
    one("an illegal topic", list_offsets(-1, topic="a b")),
    one("an unknown partition", list_offsets(-1, partition=50)),
    one("a negative partition", list_offsets(-1, partition=-1)),
    one("the present epoch", list_offsets(-1, epoch=0)),
    one("an epoch to come", list_offsets(-1, epoch=5)),
    one("an epoch to come, by a time", list_offsets(NOW, epoch=5)),
    one("a partition twice", list_offsets(-1, -2), "Kafka names the partition once in its answer"),
    one("a bad isolation level", list_offsets(-1, isolation=9), "Kafka fails: UNKNOWN_SERVER_ERROR"),
    one("as a follower", list_offsets(-1, replica_id=0)),
    one("as a debugging consumer", list_offsets(-1, replica_id=-2)),
    one("the end of an epoch", epochs(0)),
    one("ends of epochs", epochs(-1, 1, 7, 2**31 - 1, -5)),
    one("the end of an epoch of an empty log", epochs(0, topic="empty")),
    one("the end of an epoch, the present one known", epochs(0, current=0)),
    one("the end of an epoch, one to come known", epochs(0, current=9)),
    *(one(f"the end of an epoch in version {version}", epochs(0, 3, version=version)) for version in (2, 3)),
    one("the end of an epoch of an unknown partition", epochs(0, partition=50)),
    one("the end of an epoch of an unknown topic", epochs(0, topic="nobody-made-it")),
    Case(
        name="records deleted",
        requests=[
            delete_records(0),
            delete_records(4),
            delete_records(4),
            delete_records(2),
            list_offsets(-2, topic="deleted"),
            list_offsets(NOW + 100, topic="deleted"),
            list_offsets(-3, topic="deleted"),
            list_offsets(-4, topic="deleted"),
            epochs(0, topic="deleted"),
            delete_records(-1),
            list_offsets(-2, topic="deleted"),
            list_offsets(-1, topic="deleted"),
            list_offsets(NOW + 100, topic="deleted"),
            produce("deleted", bytes(encode_batch([(NOW + 999, b"k", b"v", ())]))),
            list_offsets(-3, topic="deleted"),
        ],
    ),
    Case(
        name="the greatest time where all records are deleted",
        requests=[delete_records(-1, partition=2), list_offsets(-3, topic="deleted", partition=2)],
        differs="Kafka answers with a record that was deleted",
    ),
    one("records deleted beyond the end", delete_records(10_000, partition=1)),
    one("records deleted before the beginning", delete_records(-2, partition=1)),
    one("records deleted far before the beginning", delete_records(-(2**60), partition=1)),
    one("records deleted of a compacted topic", delete_records(1, topic="compact-times")),
    one("records deleted of an unknown topic", delete_records(1, topic="nobody-made-it")),
    one("records deleted of an unknown partition", delete_records(1, partition=50)),
    one("records deleted of an internal topic", delete_records(0, topic="__consumer_offsets")),
    one("producers of a partition without one", describe_producers("times", 0, 1)),
    one("producers of what is not there", describe_producers("times", 50, -1)),
    one("producers of an unknown topic", describe_producers("nobody-made-it", 0)),
    one("producers of no partition", describe_producers("times")),
    *(
        one(
            f"directories in version {version}",
            describe_log_dirs([{"topic": "times", "partitions": [0, 1, 2]}], version),
        )
        for version in range(1, 6)
    ),
    one("directories of what is not there", describe_log_dirs([{"topic": "times", "partitions": [50]}])),
    one("directories of an unknown topic", describe_log_dirs([{"topic": "nobody-made-it", "partitions": [0]}])),
    one("directories of nothing", describe_log_dirs([])),
]


@pytest.fixture(scope="module", autouse=True)
def topics(pair: BrokerPair) -> None:
    """The topics of this table."""
    pair.create(TOPICS, len(Codec))
    for topic in ("times", "compact-times", "deleted"):
        for codec in Codec:
            for times in TIMES:
                records = [(NOW + time, b"k", b"v%d" % time, ()) for time in times]
                pair.agree(produce(topic, bytes(encode_batch(records, codec=codec)), partition=int(codec)))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_question_about_offsets_has_the_same_answer(pair: BrokerPair, case: Case):
    """M1"""
    check(pair, case)
