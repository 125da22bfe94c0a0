"""The exactly-once sink: its transactions, its decisions, and crashes at each step (X1)."""

import asyncio
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import StringType, StructField, StructType

from bench.peers.kafka_peer import KafkaBroker
from odradek.clients import Admin, Producer
from odradek.clients.admin.transactions import NO_TIMEOUT_MS, TransactionDescription
from odradek.clients.producer.transactions.prepared_transaction import PreparedTransaction
from odradek.model import ConfigurationError, KafkaError, OdradekError, TopicPartition
from odradek.spark import source
from odradek.spark.options import WriteOptions, parse_write_options
from odradek.spark.writing import committer
from odradek.spark.writing.committer import LostTransactionError, check_open, decided_write
from odradek.spark.writing.decision import Decision, WriteId, is_of_prefix, last_decision
from odradek.spark.writing.writers import TaskCommitMessage, end_write, write_task
from odradek.testing.conditions import eventually
from odradek.testing.servers.odradek_process import ServedBroker

pytestmark = pytest.mark.long

TASKS = 3


@pytest.fixture(
    scope="module",
    params=["true", "false", pytest.param("kafka", marks=pytest.mark.needs("kafka"))],
    ids=["two-phase", "with time-outs", "on Kafka"],
)
def cluster(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[ServedBroker | KafkaBroker]:
    options = {
        "num.partitions": "2",
        "offsets.topic.num.partitions": "4",
        "transaction.state.log.num.partitions": "4",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    }
    data = tmp_path_factory.mktemp("once") / "data"
    if request.param == "kafka":  # has no two-phase commit
        with KafkaBroker(data, options=options, heap="384M", short_lived=True) as broker:
            yield broker
        return
    with ServedBroker(data, options=options | {"transaction.two.phase.commit.enable": request.param}) as ours:
        yield ours


@pytest.fixture
def sink(cluster: ServedBroker | KafkaBroker) -> "Sink":
    return Sink(cluster.bootstrap_servers)


class Sink:
    """A topic, and what Spark does with its writers; each object is another run of the same query."""

    def __init__(self, bootstrap: str, name: str = "", **options: str) -> None:
        self.bootstrap = bootstrap
        self.name = name or f"s-{uuid.uuid4().hex[:8]}"
        self.run = uuid.uuid4().hex
        given = {"kafka.bootstrap.servers": bootstrap, "topic": self.name, "guarantee": "exactly_once"}
        self.options: WriteOptions = parse_write_options(
            {**given, "transactionalIdPrefix": self.name, "kafka.default.api.timeout.ms": "20000", **options}
        )

    def restarted(self) -> "Sink":
        return Sink(self.bootstrap, self.name)

    def id(self, batch: int) -> WriteId:
        return WriteId(query="query", run=self.run, batch=batch)

    def task(self, batch: int, number: int, attempt: int = 0, rows: int = 2) -> TaskCommitMessage:
        values = [f"{batch}/{number}/{row}".encode() for row in range(rows)]
        batches = [pa.record_batch([pa.array(values, pa.binary())], ["value"])] if rows else []
        decided = asyncio.run(decided_write(self.options))
        return write_task(iter(batches), self.options, self.id(batch), f"{number}.{attempt}", decided)

    def tasks(self, batch: int) -> list[TaskCommitMessage]:
        return [self.task(batch, number) for number in range(TASKS)]

    def commit(self, messages: list[TaskCommitMessage]) -> None:
        end_write(self.options, messages, None, committed=True)

    def abort(self, messages: list[Any]) -> None:
        end_write(self.options, messages, None, committed=False)

    def write(self, batch: int) -> None:
        self.commit(self.tasks(batch))

    def read(self) -> list[str]:
        """Return the values that a consumer sees with read_committed, sorted, up to the ends of the logs."""
        self.wait_for_markers()
        from confluent_kafka import OFFSET_BEGINNING, Consumer
        from confluent_kafka import TopicPartition as Place

        settings = {
            "bootstrap.servers": self.bootstrap,
            "group.id": "reader",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
        consumer = Consumer(settings)
        try:
            places = [Place(self.name, number, OFFSET_BEGINNING) for number in range(2)]
            consumer.assign(places)
            values, ended = [], 0
            while ended < len(places):
                message = consumer.poll(30)
                assert message is not None, "there is neither a record nor an end"
                if message.error():
                    ended += 1
                else:
                    values.append(message.value().decode())
            return sorted(values)
        finally:
            consumer.close()

    def wait_for_markers(self) -> None:
        """Wait for the markers of the ended transactions: coordinators answer EndTxn before they are written."""
        eventually(lambda: not self.transactions("PrepareCommit", "PrepareAbort"), within_s=60, what="the markers")

    def open_transactions(self) -> list[str]:
        return self.transactions("Ongoing")

    def transactions(self, *states: str) -> list[str]:
        async def listed() -> list[str]:
            async with Admin(self.bootstrap) as admin:
                found = await admin.list_transactions(states=states)
            return [each.transactional_id for each in found if each.transactional_id.startswith(self.name)]

        return asyncio.run(listed())


def rows(*batches: int) -> list[str]:
    return sorted(f"{batch}/{number}/{row}" for batch in batches for number in range(TASKS) for row in range(2))


class Crashed(Exception):
    """The driver's process ends here."""


def crashing(monkeypatch: pytest.MonkeyPatch, name: str, after: int | None) -> None:
    """Let a function of the driver crash before its work, or after `after` of its transactions."""
    real: Callable[..., Any] = getattr(committer, name)

    async def crash(*args: Any, **more: Any) -> Any:
        if after is None:
            raise Crashed
        cluster, prepared = args
        if not (more["committed"] and prepared):
            return await real(*args, **more)
        await real(cluster, dict(list(prepared.items())[:after]), **more)
        raise Crashed

    monkeypatch.setattr(committer, name, crash)


def dying_in_a_decision(patch: pytest.MonkeyPatch) -> None:
    """Let the driver die between the offsets of its decision and the end of their transaction."""
    real = Producer.send_offsets

    async def send_offsets(self: Producer, *args: Any, **more: Any) -> None:
        await real(self, *args, **more)
        raise Crashed

    async def abort(self: Producer) -> None:
        raise Crashed

    patch.setattr(committer, "_DRIVER_TIMEOUT_MS", 1_000)
    patch.setattr(Producer, "send_offsets", send_offsets)
    patch.setattr(Producer, "abort_transaction", abort)


# ---- without Spark ----------------------------------------------------------------------------------------------


def test_rows_are_visible_when_their_batch_is_committed(sink: Sink) -> None:
    messages = sink.tasks(0)
    assert sink.read() == []
    assert len(sink.open_transactions()) == TASKS
    sink.commit(messages)
    for batch in (1, 2, 3):
        sink.write(batch)
    assert sink.read() == rows(0, 1, 2, 3)
    assert sink.open_transactions() == []


@pytest.mark.parametrize(
    ("name", "after", "is_decided", "restarts"),
    [
        ("_decide", None, False, False),
        ("send_offsets", None, False, False),
        ("send_offsets", None, False, True),
        ("_complete", None, True, False),
        ("end_prepared_transactions", 1, True, False),
        ("end_prepared_transactions", 1, True, True),
        ("end_prepared_transactions", 3, True, False),
    ],
)
def test_a_driver_that_dies_in_a_commit_leaves_all_or_nothing_for_the_next_one(
    cluster: ServedBroker | KafkaBroker,
    sink: Sink,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    after: int | None,
    is_decided: bool,
    restarts: bool,
) -> None:
    sink.write(6)
    messages = sink.tasks(7)
    with monkeypatch.context() as patch:
        if name == "_complete":  # the last decision is completed at first
            patch.setattr(committer, "_completed", lambda *_: asyncio.sleep(0))
        if name == "send_offsets":
            dying_in_a_decision(patch)
        else:
            crashing(patch, name, after)
        with pytest.raises(Crashed):
            sink.commit(messages)
    if restarts:
        if isinstance(cluster, KafkaBroker):
            # Kafka 4.3 that dies before the markers may say CompleteCommit after its restart, and never write one.
            sink.wait_for_markers()
        cluster.kill()
        cluster.start()
    following = sink.restarted()
    repeated = following.tasks(7)
    assert [message.written.records for message in repeated] == [0 if is_decided else 2] * TASKS
    assert sink.read() == (rows(6, 7) if is_decided else rows(6))
    following.commit(repeated)
    following.write(8)
    assert following.read() == rows(6, 7, 8)
    assert following.open_transactions() == []


def test_an_attempt_that_dies_after_prepare_and_one_that_loses_are_aborted(sink: Sink) -> None:
    sink.task(0, 1)
    winner = [sink.task(0, 0), sink.task(0, 1, attempt=1), sink.task(0, 2)]
    sink.task(0, 2, attempt=1)
    sink.commit(winner)
    assert sink.read() == rows(0)
    assert sink.open_transactions() == []


def test_a_batch_with_a_failed_task_is_aborted(sink: Sink) -> None:
    sink.write(0)
    messages = sink.tasks(1)
    sink.task(1, 3)
    sink.abort([*messages, None])
    assert sink.read() == rows(0)
    assert sink.open_transactions() == []


def test_an_abort_after_a_decision_commits(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark calls abort if commit has raised."""
    messages = sink.tasks(0)
    with monkeypatch.context() as patch:
        crashing(patch, "end_prepared_transactions", 1)
        with pytest.raises(Crashed):
            sink.commit(messages)
    sink.abort(messages)
    assert sink.read() == rows(0)


def test_a_driver_that_was_replaced_cannot_commit_its_batch(sink: Sink) -> None:
    late, following = sink.tasks(0), sink.restarted()
    following.write(0)
    with pytest.raises(OdradekError, match="was committed by another driver"):
        sink.commit(late)
    sink.abort(late)
    following.write(1)
    assert following.read() == rows(0, 1)


def test_a_driver_that_stops_before_its_decision_is_fenced(sink: Sink, monkeypatch: pytest.MonkeyPatch) -> None:
    real, following = committer._decide, sink.restarted()
    messages = sink.tasks(0), following.tasks(0)

    async def late(*args: Any) -> None:
        monkeypatch.setattr(committer, "_decide", real)
        await committer.commit(following.options, following.id(0), {m.task: m.written.prepared for m in messages[1]})
        await real(*args)

    monkeypatch.setattr(committer, "_decide", late)
    with pytest.raises(KafkaError, match="PRODUCER_FENCED"):
        sink.commit(messages[0])
    assert sink.read() == rows(0)


def test_a_transaction_that_was_aborted_fails_its_batch(sink: Sink) -> None:
    sink.write(0)
    messages = sink.tasks(1)

    async def terminate(name: str) -> None:
        async with Admin(sink.bootstrap) as admin:
            await admin.terminate_transaction(name)

    asyncio.run(terminate(sink.id(1).transactional_id(sink.name, "1.0")))
    with pytest.raises(LostTransactionError, match="was aborted before its batch was committed"):
        sink.commit(messages)
    sink.abort(messages)
    sink.restarted().write(1)
    assert sink.read() == rows(0, 1)


def test_an_older_checkpoint_is_refused_as_its_batches_may_have_other_rows(sink: Sink) -> None:
    sink.write(6)
    sink.write(7)
    with pytest.raises(OdradekError, match=r"is at batch 6, but batch 7 was committed .* delete the consumer group"):
        sink.restarted().task(6, 0)
    assert sink.read() == rows(6, 7)


def test_a_decided_transaction_that_was_aborted_is_an_error_at_each_start(
    sink: Sink, monkeypatch: pytest.MonkeyPatch
) -> None:
    messages = sink.tasks(0)
    with monkeypatch.context() as patch:
        crashing(patch, "end_prepared_transactions", 0)
        with pytest.raises(Crashed):
            sink.commit(messages)

    async def terminate(name: str) -> None:
        async with Admin(sink.bootstrap) as admin:
            await admin.terminate_transaction(name)

    asyncio.run(terminate(sink.id(0).transactional_id(sink.name, "1.0")))
    with pytest.raises(LostTransactionError, match="its rows are missing"):
        asyncio.run(decided_write(sink.options))


def test_tasks_without_rows_and_batches_without_rows_have_no_transactions(sink: Sink) -> None:
    empty = [sink.task(0, number, rows=0) for number in range(TASKS)]
    assert [message.written.prepared for message in empty] == [None] * TASKS
    sink.commit(empty)
    assert asyncio.run(decided_write(sink.options)) is None
    sink.commit([sink.task(1, 0), sink.task(1, 1), sink.task(1, 2, rows=0)])
    assert len(sink.read()) == 4


def test_another_query_begins_at_its_own_first_batch(sink: Sink) -> None:
    """With another checkpoint, batches are counted from 0 again."""
    sink.write(57)
    following = sink.restarted()
    write_id = WriteId(query="another", run=following.run, batch=0)
    given = pa.record_batch([pa.array([b"0"])], ["value"])
    message = write_task(iter([given]), following.options, write_id, "0.0", asyncio.run(decided_write(sink.options)))
    following.commit([message])
    assert sink.read() == sorted(["0", *rows(57)])


# ---- decisions ---------------------------------------------------------------------------------------------------

WRITE = WriteId(query="q", run="a" * 32, batch=3)


def test_a_decision_is_spread_over_partitions_and_read_back() -> None:
    prepared = {f"{number}.0": PreparedTransaction(4000 + number, 7) for number in range(900)}
    decision = Decision(number=5, write=WRITE, prepared=prepared)
    offsets = decision.offsets("t", range(4))
    assert len(offsets) == 3
    assert all(len(each.metadata) <= 4096 for each in offsets.values())
    older = Decision(number=4, write=WRITE, prepared=prepared).offsets("t", range(5))
    assert last_decision("p", older | offsets) == decision
    assert last_decision("p", {}) is None
    with pytest.raises(ConfigurationError, match="needs 3 partitions of 't', which has 1: write with fewer tasks"):
        decision.offsets("t", [0])


@pytest.mark.parametrize(
    ("age_s", "timeout_ms", "state", "sentence"),
    [
        (809, 900_000, "Ongoing", None),
        (
            811,
            900_000,
            "Ongoing",
            "is 811 s old by this machine's clock, and brokers abort it after 900 s: too late to commit its batch",
        ),
        (9_000, NO_TIMEOUT_MS, "Ongoing", None),
        (1, 900_000, "CompleteAbort", "was aborted before its batch was committed"),
    ],
)
def test_a_transaction_that_may_be_aborted_meanwhile_is_not_decided(
    age_s: int, timeout_ms: int, state: str, sentence: str | None
) -> None:
    found = TransactionDescription(
        transactional_id="p-1",
        producer_id=4000,
        producer_epoch=7,
        state=state,
        timeout_ms=timeout_ms,
        start_ms=1_000,
        coordinator_id=0,
        partitions=(),
    )
    with pytest.raises(LostTransactionError, match=sentence) if sentence else nullcontext():
        check_open({"p-1": found}, {"p-1": PreparedTransaction(4000, 7)}, 1_000 + age_s * 1_000)


def test_the_group_of_a_consumer_is_not_taken_for_a_sinks() -> None:
    offsets = {
        TopicPartition("t", 0): next(iter(Decision(number=1, write=WRITE, prepared={}).offsets("t", [0]).values()))
    }
    consumers = {TopicPartition("t", 0): next(iter(offsets.values()))._replace(metadata="")}
    with pytest.raises(ConfigurationError, match="no exactly-once sink has written: choose another"):
        last_decision("p", consumers)


def test_a_prefix_that_begins_like_another_one_has_other_transactional_ids() -> None:
    assert is_of_prefix("orders", WRITE.transactional_id("orders", "12.3"))
    assert not is_of_prefix("orders", WRITE.transactional_id("orders-eu", "12.3"))
    assert not is_of_prefix("orders", "orders-driver")


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"guarantee": "exactly_once"}, "needs transactionalIdPrefix: a name for this sink"),
        ({"guarantee": "exactly-once"}, "guarantee is at_least_once or exactly_once, not 'exactly-once'"),
        ({"transactionalIdPrefix": "p"}, "has an effect only with guarantee=exactly_once"),
    ],
)
def test_wrong_options_are_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigurationError, match=sentence):
        parse_write_options({"kafka.bootstrap.servers": "h:1", **given})


def test_only_the_writer_of_tasks_looks_the_last_decision_up(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_up: list[object] = []
    monkeypatch.setattr(source, "_decided_write", looked_up.append)
    given = {"kafka.bootstrap.servers": "h:1", "topic": "t", "guarantee": "exactly_once", "transactionalIdPrefix": "p"}
    schema = StructType([StructField("value", StringType())])
    source.OdradekDataSource(given).streamWriter(schema, overwrite=False)
    assert len(looked_up) == 1
    monkeypatch.setitem(sys.modules, source.COMMITS, sys)
    source.OdradekDataSource(given).streamWriter(schema, overwrite=False)
    assert len(looked_up) == 1


# ---- in Spark ---------------------------------------------------------------------------------------------------


def _written(sink: Sink) -> list[int]:
    return sorted(map(int, sink.read()))


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cluster", ["true"], indirect=True, ids=["two-phase"])
@pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas")
def test_a_stream_is_exact_after_failed_tasks_and_restarts(
    spark: Any, cluster: ServedBroker, sink: Sink, tmp_path: Path
) -> None:
    fails, source = tmp_path / "fails", tmp_path / "source"

    def texts(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_pylist()
            yield pa.record_batch([pa.array(map(str, numbers))], ["value"])
            if fails.exists() and any(number % 500 == 499 for number in numbers):
                fails.unlink()
                raise ValueError("the task dies after it has sent rows")

    def run() -> None:
        frame = spark.readStream.schema("number LONG").json(str(source)).mapInArrow(texts, "value STRING")
        options = {
            "kafka.bootstrap.servers": sink.bootstrap,
            "topic": sink.name,
            "checkpointLocation": str(tmp_path / "state"),
        }
        writer = frame.writeStream.format("odradek").options(**options)
        writer = writer.options(guarantee="exactly_once", transactionalIdPrefix=sink.name)
        writer.trigger(availableNow=True).start().awaitTermination()

    def add(start: int) -> None:
        spark.range(start, start + 1000, numPartitions=2).toDF("number").write.mode("append").json(str(source))

    add(0)
    run()
    assert _written(sink) == list(range(1000))
    add(1000)
    fails.touch()
    with pytest.raises(Exception, match="the task dies"):  # a local session does not repeat tasks
        run()
    assert not fails.exists()
    assert _written(sink) == list(range(1000))
    run()
    assert _written(sink) == list(range(2000))
    # The query's own record of its last batch is lost: it runs that batch again.
    last = max((tmp_path / "state" / "commits").glob("[0-9]*"), key=lambda each: int(each.name))
    last.unlink()
    (last.parent / f".{last.name}.crc").unlink(missing_ok=True)
    run()
    assert _written(sink) == list(range(2000))
    assert sink.open_transactions() == []


@pytest.mark.timeout(600)
@pytest.mark.parametrize("cluster", ["true"], indirect=True, ids=["two-phase"])
def test_a_batch_job_writes_all_rows_or_none(spark: Any, sink: Sink) -> None:
    def write(rows: str) -> None:
        frame = spark.range(0, 1000, numPartitions=3).selectExpr(f"{rows} AS value")
        frame.write.format("odradek").mode("append").options(
            **{"kafka.bootstrap.servers": sink.bootstrap, "topic": sink.name, "transactionalIdPrefix": sink.name},
            guarantee="exactly_once",
        ).save()

    with pytest.raises(Exception, match="the last row"):
        write("IF(id = 999, raise_error('the last row'), CAST(id AS STRING))")
    assert sink.read() == []
    write("CAST(id AS STRING)")
    assert _written(sink) == list(range(1000))
    assert sink.open_transactions() == []
