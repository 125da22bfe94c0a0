"""Kafka and our broker answer requests of transactions alike, wrong ones too (M4)."""

from collections.abc import Callable, Sequence
from typing import Any, Final
from uuid import UUID

import pytest

from conformance.peers.compare_with_kafka import BrokerPair, Script, produce
from odradek.protocol.api import ApiKey
from odradek.protocol.batches.records import encode_batch

pytestmark = pytest.mark.needs("kafka")

TOPIC: Final = "in-transactions"
TIMED_OUT: Final = ("in-a-transaction-that-timed-out-1", "in-a-transaction-that-timed-out-2")
"""Topics of one script each, so that the offsets of their records are known."""
PARTITIONS: Final = 3
GROUP: Final = "group-in-transactions"
TIMEOUT_MS: Final = 60_000
Ask = Callable[..., Any]

SCRIPTS: Final[dict[str, Script]] = {}


def script(function: Script) -> Script:
    SCRIPTS[function.__name__.replace("_", " ")] = function
    return function


class Producer:
    """A producer of one transactional id: sends the requests that clients send, by version."""

    def __init__(self, ask: Ask, name: str) -> None:
        self._ask = ask
        self.name = name
        self.id, self.epoch = -1, -1

    def init(self, version: int = 5, *, keeps: bool = True, timeout_ms: int = TIMEOUT_MS, **fields: Any) -> Any:
        message = {"producer_id": -1, "producer_epoch": -1} | fields
        if version >= 6:
            message = {"enable2_pc": False, "keep_prepared_txn": False} | message
        if version < 3:
            message = {}
        answer = self._ask(
            ApiKey.INIT_PRODUCER_ID,
            version,
            transactional_id=self.name,
            transaction_timeout=timeout_ms,
            **message,
        )
        if keeps and answer["error_code"] == "none":
            self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        return answer

    @property
    def _fields(self) -> dict[str, Any]:
        return {"transactional_id": self.name, "producer_id": self.id, "producer_epoch": self.epoch}

    def add(self, version: int = 3, partitions: Sequence[int] = (0, 1), topic: str = TOPIC) -> Any:
        fields = {f"v3_and_below_{name}": value for name, value in self._fields.items()}
        topics = [{"name": topic, "partitions": list(partitions)}]
        return self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, **fields, v3_and_below_topics=topics)

    def add_batched(self, *, verify_only: bool, partitions: Sequence[int] = (0, 1), topic: str = TOPIC) -> Any:
        topics = [{"name": topic, "partitions": list(partitions)}]
        transaction = self._fields | {"verify_only": verify_only, "topics": topics}
        return self._ask(ApiKey.ADD_PARTITIONS_TO_TXN, 5, transactions=[transaction])

    def add_offsets(self, version: int = 3, group_id: str = GROUP) -> Any:
        return self._ask(ApiKey.ADD_OFFSETS_TO_TXN, version, **self._fields, group_id=group_id)

    def commit_offsets(self, version: int = 3, **fields: Any) -> Any:
        place = {"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": -1, "committed_metadata": ""}
        member = {"generation_id": -1, "member_id": "", "group_instance_id": None} if version >= 3 else {}
        message = self._fields | {"group_id": GROUP} | member | fields
        topics = [{"name": TOPIC, "topic_id": UUID(int=5), "partitions": [place]}]
        return self._ask(ApiKey.TXN_OFFSET_COMMIT, version, **message, topics=topics)

    def end(self, version: int = 3, *, committed: bool = True, keeps: bool = True) -> Any:
        answer = self._ask(ApiKey.END_TXN, version, **self._fields, committed=committed)
        if keeps and version >= 5 and answer["error_code"] == "none":
            self.id, self.epoch = answer["producer_id"], answer["producer_epoch"]
        return answer

    def describe(self, *, until: str = "") -> Any:
        return self._ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, until=until, transactional_ids=[self.name])

    def produce(self, version: int, topic: str, sequence: int = 0) -> Any:
        batch = encode_batch(
            [(0, None, b"value", ())],
            producer_id=self.id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        request = produce(topic, bytes(batch), transactional_id=self.name)
        return self._ask(ApiKey.PRODUCE, version, **request.message)


# ---- whole transactions ---------------------------------------------------------------------------------------------


@script
def committed_by_version_1(ask: Ask) -> None:
    producer = Producer(ask, "committed-1")
    producer.init()
    producer.describe()
    producer.add()
    producer.describe()
    producer.add(partitions=[1, 2])
    producer.end()
    producer.end()
    producer.end(committed=False)
    producer.init()


@script
def aborted_by_version_1(ask: Ask) -> None:
    producer = Producer(ask, "aborted-1")
    producer.init()
    producer.add()
    producer.add_offsets()
    producer.commit_offsets()
    producer.end(committed=False)
    producer.end(committed=False)
    producer.end()


@script
def committed_by_version_2(ask: Ask) -> None:
    producer = Producer(ask, "committed-2")
    producer.init()
    producer.add_batched(verify_only=False)
    producer.end(5, keeps=False)
    producer.end(5)
    producer.add_batched(verify_only=False)
    producer.end(5, committed=False)
    producer.init()
    producer.describe()


@script
def ended_without_partitions(ask: Ask) -> None:
    producer = Producer(ask, "empty")
    producer.init()
    producer.end()
    producer.end(committed=False)
    producer.end(5)
    producer.end(5, committed=False, keeps=False)
    producer.end(5, committed=False)
    producer.end(5, committed=True)


@script
def many_transactions_of_one_producer(ask: Ask) -> None:
    producer = Producer(ask, "many")
    producer.init()
    for number in range(3):
        producer.add(partitions=[number])
        producer.end(committed=number % 2 == 0)
    producer.init()
    producer.describe()


# ---- producers ------------------------------------------------------------------------------------------------------


@script
def a_newer_producer_fences_the_older(ask: Ask) -> None:
    older, newer = Producer(ask, "fenced"), Producer(ask, "fenced")
    older.init()
    newer.init()
    for version in (0, 1, 2, 3):
        older.add(version)
        older.end(version)
        older.add_offsets(version)
    older.end(5)
    older.add_batched(verify_only=False)
    older.init(4, producer_id=older.id, producer_epoch=older.epoch, keeps=False)
    older.init(3, producer_id=older.id, producer_epoch=older.epoch, keeps=False)
    newer.add()
    newer.end()


@script
def a_newer_producer_aborts_the_open_transaction(ask: Ask) -> None:
    older, newer = Producer(ask, "aborting"), Producer(ask, "aborting")
    older.init()
    older.add()
    newer.init()
    newer.describe()
    older.end()
    older.init(4, producer_id=older.id, producer_epoch=older.epoch)
    newer.add()
    newer.end()


def _timed_out(ask: Ask, topic: str) -> Producer:
    """Return a producer whose transaction, with a record and an offset, has timed out."""
    producer = Producer(ask, topic)
    producer.init(timeout_ms=500)
    producer.add(partitions=[0], topic=topic)
    producer.add_offsets()
    producer.produce(11, topic)
    producer.commit_offsets(4)
    producer.describe(until="CompleteAbort")
    return producer


@script
def a_transaction_that_timed_out_by_version_1(ask: Ask) -> None:
    producer = _timed_out(ask, TIMED_OUT[0])
    producer.produce(11, TIMED_OUT[0], 1)
    producer.commit_offsets(4)
    for version in (1, 2, 3):
        producer.add(version)
        producer.add_offsets(version)
        producer.end(version)
        producer.end(version, committed=False)
    producer.add_batched(verify_only=True)
    producer.init(4, producer_id=producer.id, producer_epoch=producer.epoch)
    producer.add(partitions=[0])
    producer.end()


@script
def a_transaction_that_timed_out_by_version_2(ask: Ask) -> None:
    producer = _timed_out(ask, TIMED_OUT[1])
    producer.produce(12, TIMED_OUT[1], 1)
    producer.commit_offsets(5)
    producer.end(5, keeps=False)
    producer.add_batched(verify_only=False)
    producer.end(5, committed=False, keeps=False)
    producer.init(5, producer_id=producer.id, producer_epoch=producer.epoch)
    producer.produce(12, TIMED_OUT[1])
    producer.end(5)


@script
def a_producer_takes_a_new_epoch(ask: Ask) -> None:
    producer = Producer(ask, "bumped")
    producer.init()
    id_, epoch = producer.id, producer.epoch
    producer.init(4, producer_id=id_, producer_epoch=epoch)
    producer.init(4, producer_id=id_, producer_epoch=epoch)
    producer.add()
    producer.init(4, producer_id=producer.id, producer_epoch=producer.epoch)
    producer.init(4, producer_id=id_, producer_epoch=epoch + 40, keeps=False)
    producer.init(4, producer_id=id_ + 1_000_000, producer_epoch=epoch, keeps=False)
    producer.init(4, producer_id=id_, producer_epoch=-1, keeps=False)


@script
def an_epoch_that_is_exhausted(ask: Ask) -> None:
    producer = Producer(ask, "exhausted")
    producer.init()
    for _ in range(3):
        producer.init()
    producer.epoch += 7
    producer.add()
    producer.end()


# ---- what is asked wrongly ------------------------------------------------------------------------------------------


@script
def a_transactional_id_that_nobody_has_initialised(ask: Ask) -> None:
    producer = Producer(ask, "unknown")
    producer.id, producer.epoch = 4711, 0
    for version in (0, 2, 3):
        producer.add(version)
        producer.add_offsets(version)
        producer.end(version)
    producer.add_batched(verify_only=True)
    producer.end(5)
    producer.describe()


@script
def a_producer_id_of_another_cluster(ask: Ask) -> None:
    producer = Producer(ask, "foreign")
    producer.init()
    producer.id += 1_000_000
    producer.add()
    producer.add_offsets()
    producer.add_batched(verify_only=True)
    producer.add_batched(verify_only=False)
    producer.end()
    producer.end(5)


@script
def timeouts(ask: Ask) -> None:
    for timeout_ms in (0, -1, 900_000, 900_001, 2**31 - 1):
        Producer(ask, f"timeout-{timeout_ms}").init(timeout_ms=timeout_ms)


@script
def an_empty_transactional_id(ask: Ask) -> None:
    producer = Producer(ask, "")
    producer.init()
    producer.id, producer.epoch = 1, 0
    producer.add()
    producer.end()
    producer.describe()


@script
def an_incomplete_expectation(ask: Ask) -> None:
    producer = Producer(ask, "incomplete")
    producer.init(4, producer_id=5, producer_epoch=-1)
    producer.init(4, producer_id=-1, producer_epoch=3)
    producer.init(4, producer_id=5, producer_epoch=3)


@script
def partitions_that_do_not_exist(ask: Ask) -> None:
    producer = Producer(ask, "nowhere")
    producer.init()
    producer.add(partitions=[0, PARTITIONS])
    producer.add(topic="no-such-topic")
    producer.add_batched(verify_only=False, partitions=[0, PARTITIONS])
    producer.describe()
    producer.end()


@script
def verified_partitions(ask: Ask) -> None:
    producer = Producer(ask, "verified")
    producer.init()
    producer.add_batched(verify_only=True)
    producer.add(partitions=[0])
    producer.add_batched(verify_only=True, partitions=[0, 1])
    producer.add_batched(verify_only=True, partitions=[0])
    producer.epoch += 1
    producer.add_batched(verify_only=True, partitions=[0])
    producer.epoch -= 1
    producer.end()
    producer.add_batched(verify_only=True, partitions=[0])


@script
def offsets_of_groups(ask: Ask) -> None:
    producer = Producer(ask, "offsets")
    producer.init()
    producer.add_offsets(group_id="")
    producer.add_offsets()
    for version in (0, 2, 3, 4, 5):
        producer.commit_offsets(version)
    producer.commit_offsets(6)
    producer.commit_offsets(3, generation_id=7, member_id="nobody")
    producer.commit_offsets(3, generation_id=-1, member_id="nobody")
    producer.commit_offsets(3, group_id="")
    producer.describe()
    producer.end()


@script
def listed_states(ask: Ask) -> None:
    producer = Producer(ask, "listed")
    producer.init()
    producer.add()
    for states in (["Ongoing"], ["Nonsense"], ["Empty", "Nonsense"]):
        ask(
            ApiKey.LIST_TRANSACTIONS, 2, state_filters=states, producer_id_filters=[producer.id], duration_filter=-1,
            transactional_id_pattern=None,
        )  # fmt: skip
    for pattern in ("list.*", "liste", "[", ""):
        ask(
            ApiKey.LIST_TRANSACTIONS, 2, state_filters=[], producer_id_filters=[producer.id], duration_filter=-1,
            transactional_id_pattern=pattern,
        )  # fmt: skip
    ask(ApiKey.LIST_TRANSACTIONS, 1, state_filters=[], producer_id_filters=[producer.id], duration_filter=3_600_000)
    ask(ApiKey.LIST_TRANSACTIONS, 0, state_filters=["Ongoing"], producer_id_filters=[producer.id])
    producer.end()


# ---- two-phase commit (KIP-939) -------------------------------------------------------------------------------------


@script
def a_prepared_transaction_is_aborted(ask: Ask) -> None:
    """Kafka 4.3 refuses `keep_prepared_txn`, so that only its absence can be compared."""
    first, second = Producer(ask, "two-phase"), Producer(ask, "two-phase")
    first.init(6, enable2_pc=True)
    first.describe()
    first.add()
    first.describe()
    second.init(6, enable2_pc=True)
    second.describe()


@pytest.fixture(scope="module")
def coordinators(pair: BrokerPair) -> BrokerPair:
    """Both brokers with a topic, and coordinators that have loaded."""
    pair.create({TOPIC: {}} | {topic: {} for topic in TIMED_OUT}, PARTITIONS)
    pair.play(lambda ask: ask(ApiKey.FIND_COORDINATOR, 3, key=GROUP, key_type=0))
    pair.play(lambda ask: ask(ApiKey.FIND_COORDINATOR, 3, key="any", key_type=1))
    return pair


@pytest.mark.parametrize("name", SCRIPTS)
def test_transactions_are_answered_as_by_kafka(coordinators: BrokerPair, name: str) -> None:
    ours, kafkas = coordinators.play(SCRIPTS[name])
    assert ours == kafkas
