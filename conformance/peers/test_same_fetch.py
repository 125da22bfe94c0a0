"""Fetches at all offsets, with limits of all sizes, to Kafka and to our broker: the same batches (M1)."""

from collections.abc import Mapping
from typing import Any, Final

import pytest

from conformance.peers.compare_with_kafka import BrokerPair, Case, Request, check, produce
from conformance.peers.test_same_offsets import list_offsets
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.compression import Codec
from odradek.protocol.batches.record_batch import iterate_batches
from odradek.protocol.batches.records import encode_batch

pytestmark = pytest.mark.needs("kafka")

NOW: Final = 1_790_000_000_000
FAR: Final = 4_000_000_000_000
"""Producers whose records are old would expire."""
TOPIC: Final = "fetched"
ENDED: Final = "fetched-transactions"
TOPICS: Final[Mapping[str, Mapping[str, str]]] = {
    TOPIC: {"index.interval.bytes": "300"},
    ENDED: {"message.timestamp.after.max.ms": str(2**63 - 1)},
}
COUNT: Final = 12
"""Batches, of 1 to 12 records."""
END: Final = sum(range(1, COUNT + 1))


def fetch(
    offset: int,
    *,
    topic: str = TOPIC,
    partition: int = 0,
    version: int = 11,
    isolation: int = 0,
    most: int = 1 << 20,
    partition_most: int = 1 << 20,
    **more: Any,
) -> Request:
    wanted = {
        "partition": partition,
        "current_leader_epoch": more.get("epoch", -1),
        "fetch_offset": offset,
        "last_fetched_epoch": more.get("last_epoch", -1),
        "log_start_offset": -1,
        "partition_max_bytes": partition_most,
    }
    message = {
        "replica_id": -1,
        "max_wait": more.get("wait", 0),
        "min_bytes": more.get("least", 0),
        "max_bytes": most,
        "isolation_level": isolation,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    return Request(api=ApiKey.FETCH, version=version, message=message)


def end(producer_id: int, *, commit: bool, epoch: int = 0, coordinator: int = 0) -> Request:
    """The marker of a transaction's end."""
    marker = {
        "producer_id": producer_id,
        "producer_epoch": epoch,
        "transaction_result": commit,
        "topics": [{"name": ENDED, "partition_indexes": [0]}],
        "coordinator_epoch": coordinator,
    }
    return Request(api=ApiKey.WRITE_TXN_MARKERS, version=1, message={"markers": [marker]})


CASES: Final = [
    *(
        Case(name=f"every offset in version {version}", requests=[fetch(at, version=version) for at in range(END + 1)])
        for version in range(4, 13)
    ),
    *(
        Case(
            name=f"at most {most} of the partition and {total} in all",
            requests=[fetch(at, most=total, partition_most=most) for at in (0, 1, 2, 40, END - 1, END)],
        )
        for most in (0, 1, 60, 61, 100, 500, 1000)
        for total in (0, 1, 100, 1000)
    ),
    Case(name="outside the log", requests=[fetch(at) for at in (-1, -2, END + 1, 2**62)]),
    Case(name="the present epoch", requests=[fetch(0, epoch=0)]),
    Case(name="an epoch to come", requests=[fetch(0, epoch=5)]),
    Case(name="the epoch of the record before", requests=[fetch(2, version=12, last_epoch=0, epoch=0)]),
    Case(name="an epoch that never was", requests=[fetch(2, version=12, last_epoch=7, epoch=0)]),
    Case(name="more than there is, after a while", requests=[fetch(END - 1, least=10_000, wait=100)]),
    Case(name="less than no bytes at least", requests=[fetch(1, least=-1)]),
    Case(
        name="less than no bytes at most",
        requests=[fetch(1, partition_most=-1)],
        differs="Kafka fails: UNKNOWN_SERVER_ERROR",
    ),
]


@pytest.fixture(scope="module", autouse=True)
def topics(pair: BrokerPair) -> None:
    """The topics to fetch from."""
    pair.create(TOPICS, 1)
    for number in range(COUNT):
        records = [(NOW + number, b"k", b"x" * 50, (("h", None),)) for _ in range(number + 1)]
        pair.agree(produce(TOPIC, bytes(encode_batch(records, codec=list(Codec)[number % len(Codec)]))))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_fetch_has_the_same_answer(pair: BrokerPair, case: Case):
    """M1"""
    check(pair, case)


def in_transaction(producer_id: int, sequence: int, *, epoch: int = 0) -> Request:
    """Two records of a producer."""
    records = [(FAR, b"k", b"v", ()), (FAR, b"k", b"w", ())]
    options = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
    data = bytes(encode_batch(records, is_transactional=True, **options))
    return produce(ENDED, data, transactional_id="t", version=9)


STEPS: Final = [
    in_transaction(1, 0),
    in_transaction(2, 0),
    in_transaction(1, 2),
    end(2, commit=False),
    in_transaction(3, 0),
    end(1, commit=True, coordinator=3),
    end(1, commit=True, coordinator=2),
    in_transaction(2, 2),
    end(3, commit=False, epoch=1),
    in_transaction(3, 2),
    in_transaction(3, 0, epoch=1),
    in_transaction(3, 7, epoch=2),
    in_transaction(3, 0, epoch=2),
    end(2, commit=False),
    end(2, commit=False),
    end(3, commit=False, epoch=1),
    end(3, commit=False, epoch=2),
    end(9, commit=True),
]


def test_readers_of_transactions_get_the_same_answers(pair: BrokerPair):
    """M1: the last stable offset and the aborted transactions after each step, refused ones among them."""
    for number, step in enumerate(STEPS):
        pair.agree(step)
        last = pair.agree(list_offsets(-1, topic=ENDED))["topics"][0]["partitions"][0]["offset"]
        pair.agree(list_offsets(-1, topic=ENDED, isolation=1))
        for offset in range(last + 1):
            answers = pair.ask(fetch(offset, topic=ENDED, isolation=1))
            ours, kafkas = (without_times(answer) for answer in answers)
            assert ours == kafkas, (number, offset)


def without_times(answer: Any) -> Any:
    """Each broker's markers have its own time, and so another checksum."""
    for topic in answer["responses"]:
        for partition in topic["partitions"]:
            found = iterate_batches(partition["records"])
            partition["records"] = [header._replace(crc=0, base_timestamp=0, max_timestamp=0) for _, header in found]
            partition["aborted_transactions"].sort(key=repr)
    return answer
