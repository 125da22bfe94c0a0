"""Transactions of the producer over the simulated network: the requests in order, retries and recovery."""

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

from odradek.clients import PreparedTransaction, Producer, ProducerFencedError, TransactionAbortedError
from odradek.clients.group_offsets import ConsumerGroupMetadata
from odradek.model import ConfigurationError, ErrorCode, KafkaError, UnavailableError
from odradek.protocol.api import ApiKey
from odradek.testing import Simulation

MEMBER = ConsumerGroupMetadata(3, "member", None, "g")
NAMES = {
    ApiKey.INIT_PRODUCER_ID: "init",
    ApiKey.ADD_PARTITIONS_TO_TXN: "add",
    ApiKey.ADD_OFFSETS_TO_TXN: "add offsets",
    ApiKey.TXN_OFFSET_COMMIT: "offsets",
    ApiKey.END_TXN: "end",
    ApiKey.PRODUCE: "produce",
}


class Coordinator:
    """The coordinator's side of a scripted broker: epochs, errors to answer first, and what was asked."""

    def __init__(self, broker: Any, log: Any, version: int) -> None:
        self.broker = broker
        self.version = version
        self.epoch = -1
        self.ongoing = (-1, -1)
        self.errors: dict[str, list[Any]] = defaultdict(list)
        """The first answers of each API: error codes, or `Close`."""
        self.asked: list[str] = []
        self._log = log
        broker.topics["t"] = {0: broker.node_id, 1: broker.node_id}
        features = [{"name": "transaction.version", "min_version_level": version, "max_version_level": version}]
        broker.answers[ApiKey.API_VERSIONS] = lambda request: {
            **broker.api_versions(request),
            "finalized_features": features,
        }
        for api in NAMES:
            broker.answers[api] = self._answer

    def _answer(self, request: Any) -> Any:
        name, message = NAMES[request.api], request.message
        self.asked.append(f"{name} v{request.version}{self._details(name, message)}")
        errors = self.errors[name]
        error = errors.pop(0) if errors else ErrorCode.none
        if not isinstance(error, ErrorCode):
            return error
        if name == "produce":
            if error != ErrorCode.none:
                self._log._answers.insert(0, error)
            return self._log(request)
        answer: dict[str, Any] = {"error_code": error, "producer_id": -1, "producer_epoch": -1}
        if error == ErrorCode.none and (name == "init" or (name == "end" and request.version >= 5)):
            self.epoch += 1
            answer |= {"producer_id": 7, "producer_epoch": self.epoch}
            answer |= dict(zip(("ongoing_txn_producer_id", "ongoing_txn_producer_epoch"), self.ongoing, strict=True))
        if name == "add":
            answer["results_by_topic_v3_and_below"] = [
                {
                    "name": topic.name,
                    "results_by_partition": [
                        {"partition_index": number, "partition_error_code": error} for number in topic.partitions
                    ],
                }
                for topic in message.v3_and_below_topics
            ]
        if name == "offsets":
            answer["topics"] = [
                {
                    "name": topic.name,
                    "partitions": [
                        {"partition_index": each.partition_index, "error_code": error} for each in topic.partitions
                    ],
                }
                for topic in message.topics
            ]
        return answer

    @staticmethod
    def _details(name: str, message: Any) -> str:
        if name == "init":
            flags = [key for key in ("enable2_pc", "keep_prepared_txn") if getattr(message, key)]
            return f" {message.producer_id}:{message.producer_epoch}" + "".join(f" {flag}" for flag in flags)
        if name == "add":
            return "".join(f" {topic.name}-{n}" for topic in message.v3_and_below_topics for n in topic.partitions)
        if name == "add offsets":
            return f" {message.group_id}"
        if name == "offsets":
            offsets = [f"{topic.name}-{each.partition_index}@{each.committed_offset}" for topic in message.topics for each in topic.partitions]  # fmt: skip  # noqa: E501
            return f" {message.group_id} {message.generation_id} {message.member_id} {' '.join(offsets)}"
        if name == "end":
            return f" {'commit' if message.committed else 'abort'} {message.producer_id}:{message.producer_epoch}"
        return f" {message.transactional_id}"


class Stage:
    """Plays a scene with a transactional producer and a coordinator."""

    def __init__(self, simulation: Simulation, broker: Any, new_log: Any) -> None:
        self.simulation = simulation
        self.broker = broker
        self.log = new_log()

    def play(self, scene: Callable[[Producer, Coordinator], Any], version: int = 2, **settings: Any) -> list[str]:
        """Return the requests, in order; without `init` if it is the first."""
        coordinator = Coordinator(self.broker, self.log, version)

        async def main() -> None:
            await self.broker.start()
            if prepare := settings.pop("prepare", None):
                prepare(coordinator)
            given = {"transactional_id": "x", "retry_backoff_ms": 10, "linger_ms": 0} | settings
            runtime = self.simulation.runtime("client")
            async with Producer(self.broker.address, runtime=runtime, **given) as producer:
                await scene(producer, coordinator)

        self.simulation.run(main())
        return coordinator.asked

    @property
    def batches(self) -> list[tuple[int, int, int, bool]]:
        """The partition, epoch, base sequence and transactional flag of each batch that the log has taken."""
        headers = [(each.partition, each.header) for each in self.log.taken]
        return [(n, each.producer_epoch, each.base_sequence, each.is_transactional) for n, each in headers]


@pytest.fixture
def stage(simulation: Simulation, broker: Any, new_log: Any) -> Iterator[Stage]:
    return Stage(simulation, broker, new_log)


async def two_transactions(producer: Producer, _: Coordinator) -> None:
    for value in (b"a", b"b"):
        async with producer.transaction():
            await producer.send("t", value, partition=0)
            await producer.flush()
            await producer.send("t", value, partition=1)
            await producer.send_offsets({("in", 0): 5}, MEMBER)


def test_with_version_1_the_client_adds_partitions_and_keeps_its_epoch(stage: Stage) -> None:
    once = [
        "add v3 t-0",
        "produce v11 x",
        "add offsets v4 g",
        "add v3 t-1",
        "offsets v4 g 3 member in-0@5",
        "produce v11 x",
        "end v4 commit 7:0",
    ]
    asked = stage.play(two_transactions, version=1)
    assert asked[0] == "init v6 -1:-1"
    assert sorted(asked[1:8]) == sorted(asked[8:]) == sorted(once)
    assert [asked[1], asked[2], asked[7]] == [once[0], once[1], once[6]]
    assert stage.batches == [(0, 0, 0, True), (1, 0, 0, True), (0, 0, 1, True), (1, 0, 1, True)]


def test_with_version_2_leaders_add_partitions_and_each_end_gives_a_new_epoch(stage: Stage) -> None:
    asked = stage.play(two_transactions, version=2)
    ends = [each for each in asked if each.startswith("end")]
    assert ends == ["end v5 commit 7:0", "end v5 commit 7:1"]
    assert {each.split(" ")[0] for each in asked} == {"init", "produce", "offsets", "end"}
    assert "offsets v5 g 3 member in-0@5" in asked
    assert stage.batches == [(0, 0, 0, True), (1, 0, 0, True), (0, 1, 0, True), (1, 1, 0, True)]


def test_an_empty_transaction_needs_no_coordinator(stage: Stage) -> None:
    async def scene(producer: Producer, _: Coordinator) -> None:
        async with producer.transaction():
            pass
        async with producer.transaction():
            await producer.send_offsets({}, MEMBER)
        await producer.begin_transaction()
        await producer.abort_transaction()

    assert stage.play(scene) == ["init v6 -1:-1"]


@pytest.mark.parametrize("version", [1, 2])
def test_an_error_in_the_block_aborts_and_unsent_records_are_dropped(stage: Stage, version: int) -> None:
    async def scene(producer: Producer, _: Coordinator) -> None:
        with pytest.raises(LookupError, match="mine"):
            async with producer.transaction():
                await producer.send("t", b"sent", partition=0)
                await producer.flush()
                unsent = await producer.send("t", b"unsent", partition=0)
                raise LookupError("mine")
        with pytest.raises(TransactionAbortedError, match="it was aborted by the application"):
            await unsent
        async with producer.transaction():
            await producer.send("t", b"next", partition=0)

    asked = stage.play(scene, version=version)
    ends = [each[len("end v5 ") :] for each in asked if each.startswith("end")]
    assert ends == ["abort 7:0", "commit 7:0" if version == 1 else "commit 7:1"]
    assert [each[:2] for each in stage.batches] == [(0, 0), (0, version - 1)]


@pytest.mark.parametrize("api", ["init", "add", "add offsets", "offsets", "end"])
def test_requests_to_coordinators_are_retried_and_the_coordinator_is_looked_up_again(stage: Stage, api: str) -> None:
    busy = [ErrorCode.concurrent_transactions, ErrorCode.coordinator_load_in_progress, ErrorCode.not_coordinator]

    async def scene(producer: Producer, coordinator: Coordinator) -> None:
        coordinator.errors[api] += busy
        found = len(stage.broker.asked(ApiKey.FIND_COORDINATOR))
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)
            await producer.send_offsets({("in", 0): 5}, MEMBER)
        looked_up = len(stage.broker.asked(ApiKey.FIND_COORDINATOR)) - found
        assert looked_up == (1 if api == "init" else 2), "the group's, and once more after NOT_COORDINATOR"

    def prepare(coordinator: Coordinator) -> None:
        coordinator.errors["init"] += busy if api == "init" else []

    asked = stage.play(scene, version=1, prepare=prepare)
    assert sum(each.startswith(f"{api} v") for each in asked) == 4
    assert len(stage.batches) == 1


def test_an_end_whose_response_is_lost_is_sent_again(stage: Stage, close: Any) -> None:
    async def scene(producer: Producer, coordinator: Coordinator) -> None:
        coordinator.errors["end"] += [close, close]
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)

    asked = stage.play(scene)
    assert asked[-3:] == ["end v5 commit 7:0"] * 3


def test_a_commit_that_is_not_confirmed_in_time_can_be_repeated(stage: Stage) -> None:
    async def scene(producer: Producer, coordinator: Coordinator) -> None:
        coordinator.errors["end"] += [ErrorCode.coordinator_load_in_progress] * 50
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        with pytest.raises(
            UnavailableError, match=r"the commit of 'x' is not confirmed: .*; call commit_transaction again"
        ):
            await producer.commit_transaction()
        for call in (producer.begin_transaction, producer.abort_transaction):
            with pytest.raises(KafkaError, match="is being committed"):
                await call()
        coordinator.errors["end"].clear()
        await producer.commit_transaction()
        await producer.begin_transaction()

    asked = stage.play(scene, max_block_ms=2_000)
    assert asked[-1] == "end v5 commit 7:0"
    assert len(stage.batches) == 1


@pytest.mark.parametrize("version", [1, 2])
def test_after_a_lost_batch_the_abort_gets_a_new_epoch(stage: Stage, version: int) -> None:
    """KIP-360: with version 1, by InitProducerId with the producer's id and epoch."""

    async def scene(producer: Producer, coordinator: Coordinator) -> None:
        coordinator.errors["produce"] += [ErrorCode.out_of_order_sequence_number]
        with pytest.raises(TransactionAbortedError, match=r"partition t-0: OUT_OF_ORDER.*send its records again"):
            async with producer.transaction():
                lost = await producer.send("t", b"lost", partition=0)
        with pytest.raises(KafkaError, match="OUT_OF_ORDER"):
            await lost
        async with producer.transaction():
            await producer.send("t", b"again", partition=0)

    asked = stage.play(scene, version=version)
    recovery = ["end v4 abort 7:0", "init v6 7:0"] if version == 1 else ["end v5 abort 7:0"]
    first = asked.index(recovery[0])
    assert asked[first : first + len(recovery)] == recovery
    assert stage.batches == [(0, 1, 0, True)]


def test_an_id_that_the_coordinator_has_forgotten_is_initialized_again(stage: Stage) -> None:
    async def scene(producer: Producer, coordinator: Coordinator) -> None:
        coordinator.errors["add"] += [ErrorCode.invalid_producer_id_mapping]
        coordinator.errors["end"] += [ErrorCode.invalid_producer_id_mapping]
        with pytest.raises(TransactionAbortedError, match="INVALID_PRODUCER_ID_MAPPING"):
            async with producer.transaction():
                await producer.send("t", b"v", partition=0)
        async with producer.transaction():
            await producer.send("t", b"v", partition=0)

    asked = stage.play(scene, version=1)
    assert asked[1:4] == ["add v3 t-0", "end v4 abort 7:0", "init v6 7:0"]
    assert stage.batches == [(0, 1, 0, True)]


def test_a_record_that_is_not_delivered_in_time_aborts_the_transaction(stage: Stage) -> None:
    async def scene(producer: Producer, coordinator: Coordinator) -> None:
        stage.broker.answers[ApiKey.PRODUCE] = lambda request: None
        await producer.begin_transaction()
        late = await producer.send("t", b"late", partition=0)
        with pytest.raises(KafkaError, match="not delivered within 3,000 ms"):
            await late
        with pytest.raises(TransactionAbortedError, match="not delivered within 3,000 ms"):
            await producer.send("t", b"more", partition=1)
        with pytest.raises(TransactionAbortedError, match="not delivered within 3,000 ms"):
            await producer.commit_transaction()
        await producer.abort_transaction()
        with pytest.raises(KafkaError, match="no transaction is open"):
            await producer.send("t", b"more", partition=1)

    assert stage.play(scene, delivery_timeout_ms=3_000, request_timeout_ms=2_000)[-1] == "end v5 abort 7:0"


def test_a_fenced_producer_says_so_in_each_call(stage: Stage) -> None:
    async def scene(producer: Producer, coordinator: Coordinator) -> None:
        coordinator.errors["end"] += [ErrorCode.producer_fenced]
        with pytest.raises(ProducerFencedError, match="another producer was started"):
            async with producer.transaction():
                await producer.send("t", b"v", partition=0)
        for call in (
            producer.begin_transaction,
            producer.commit_transaction,
            producer.abort_transaction,
            lambda: producer.send("t", b"v"),
            lambda: producer.send_arrow(pa.table({"value": [b"v"]}), "t"),
            lambda: producer.send_offsets({("in", 0): 1}, MEMBER),
        ):
            with pytest.raises(ProducerFencedError, match="another producer was started"):
                await call()  # type: ignore[operator]

    assert stage.play(scene)[-1].startswith("end")


def test_offsets_of_an_old_generation_abort_the_transaction(stage: Stage) -> None:
    async def scene(producer: Producer, coordinator: Coordinator) -> None:
        coordinator.errors["offsets"] += [ErrorCode.illegal_generation]
        with pytest.raises(TransactionAbortedError, match=r"group 'g', in-0: ILLEGAL_GENERATION"):
            async with producer.transaction():
                await producer.send_offsets({("in", 0): 1}, MEMBER)
        with pytest.raises(ConfigurationError, match="a consumer with a group_id"):
            await producer.send_offsets({("in", 0): 1}, ConsumerGroupMetadata())
        with pytest.raises(TypeError, match="expected ConsumerGroupMetadata, not 'g'"):
            await producer.send_offsets({("in", 0): 1}, "g")  # type: ignore[arg-type]

    assert stage.play(scene)[-1] == "end v5 abort 7:0"


def test_rows_are_part_of_the_transaction(stage: Stage) -> None:
    async def scene(producer: Producer, _: Coordinator) -> None:
        table = pa.table({"value": [b"a", b"b"]})
        with pytest.raises(KafkaError, match="no transaction is open"):
            await producer.send_arrow(table, "t", partition=0)
        async with producer.transaction():
            await producer.send_arrow(table, "t", partition=0)

    stage.play(scene)
    assert stage.batches == [(0, 0, 0, True)]


def test_closing_the_producer_aborts_its_open_transaction(stage: Stage) -> None:
    async def scene(producer: Producer, _: Coordinator) -> None:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        await producer.flush()

    assert stage.play(scene)[-1] == "end v5 abort 7:0"


def test_a_start_that_the_coordinator_refuses_says_why_and_may_be_repeated(stage: Stage) -> None:
    async def main() -> None:
        coordinator = Coordinator(stage.broker, stage.log, 2)
        await stage.broker.start()
        coordinator.errors["init"] += [
            ErrorCode.invalid_transaction_timeout,
            ErrorCode.transactional_id_authorization_failed,
        ]
        producer = Producer(stage.broker.address, runtime=stage.simulation.runtime("client"), transactional_id="x")
        for why in ("over the brokers' transaction.max.timeout.ms", "may not WRITE with this id"):
            with pytest.raises(KafkaError, match=why):
                await producer.start()
        async with producer, producer.transaction():
            await producer.send("t", b"v")

    stage.simulation.run(main())
    assert len(stage.batches) == 1


def test_a_producer_without_an_id_has_no_transactions(play: Any, new_log: Any) -> None:
    async def scene(producer: Producer) -> None:
        with pytest.raises(ConfigurationError, match="need a Producer with a transactional_id"):
            async with producer.transaction():
                pass
        with pytest.raises(ConfigurationError, match="transaction_two_phase_commit_enable=True"):
            await producer.prepare()

    play(new_log(), scene)


# ---- two phases -----------------------------------------------------------------------------------------------------

TWO_PHASE = {"transaction_two_phase_commit_enable": True}


def test_a_prepared_transaction_is_committed_if_its_name_was_stored(stage: Stage) -> None:
    async def scene(producer: Producer, _: Coordinator) -> None:
        assert await producer.complete(None) is False, "there is none"
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        with pytest.raises(KafkaError, match="not prepared: call prepare first"):
            await producer.complete("7:0")
        state = await producer.prepare()
        assert str(state) == "7:0"
        with pytest.raises(KafkaError, match="is prepared: complete, commit or abort it first"):
            await producer.send("t", b"more", partition=0)
        assert await producer.complete(str(state)) is True
        await producer.begin_transaction()
        await producer.send("t", b"w", partition=0)
        await producer.prepare()
        assert await producer.complete(state) is False, "the stored name is an older one"

    asked = stage.play(scene, **TWO_PHASE)
    assert asked[0] == "init v6 -1:-1 enable2_pc keep_prepared_txn"
    assert [each for each in asked if each.startswith("end")] == ["end v5 commit 7:0", "end v5 abort 7:1"]


@pytest.mark.parametrize(
    ("stored", "end"), [("7:5", "commit"), (PreparedTransaction(7, 5), "commit"), ("7:4", "abort"), (None, "abort")]
)
def test_a_transaction_that_a_crash_has_left_is_completed_by_the_stored_name(
    stage: Stage, stored: PreparedTransaction | str | None, end: str
) -> None:
    def prepare(coordinator: Coordinator) -> None:
        coordinator.epoch, coordinator.ongoing = 5, (7, 5)

    async def scene(producer: Producer, _: Coordinator) -> None:
        with pytest.raises(KafkaError, match="begin_transaction: the transaction is prepared"):
            await producer.begin_transaction()
        assert await producer.complete(stored) is (end == "commit")
        async with producer.transaction():
            pass

    asked = stage.play(scene, prepare=prepare, **TWO_PHASE)
    assert asked == ["init v6 -1:-1 enable2_pc keep_prepared_txn", f"end v5 {end} 7:6"]


def test_an_error_after_prepare_leaves_the_transaction_to_complete(stage: Stage) -> None:
    async def scene(producer: Producer, _: Coordinator) -> None:
        with pytest.raises(OSError, match="the database"):
            async with producer.transaction():
                await producer.send("t", b"v", partition=0)
                state = await producer.prepare()
                raise OSError("the database is gone: has it committed?")
        assert await producer.complete(state) is True

    assert stage.play(scene, **TWO_PHASE)[-1] == "end v5 commit 7:0"


def test_closing_a_producer_leaves_its_prepared_transaction(stage: Stage) -> None:
    async def scene(producer: Producer, _: Coordinator) -> None:
        await producer.begin_transaction()
        await producer.send("t", b"v", partition=0)
        await producer.prepare()

    assert stage.play(scene, **TWO_PHASE)[-1] == "produce v13 x"


def test_a_cluster_without_two_phase_commit_is_refused(stage: Stage) -> None:
    stage.broker.versions[ApiKey.INIT_PRODUCER_ID] = (0, 5)

    async def scene(producer: Producer, _: Coordinator) -> None:
        raise AssertionError("it has started")

    with pytest.raises(KafkaError, match="has no two-phase commit"):
        stage.play(scene, **TWO_PHASE)


def test_calls_of_several_tasks_wait_for_each_other(stage: Stage) -> None:
    async def scene(producer: Producer, coordinator: Coordinator) -> None:
        await producer.begin_transaction()
        coordinator.errors["offsets"] += [ErrorCode.coordinator_load_in_progress]
        sending = asyncio.create_task(producer.send_offsets({("in", 0): 5}, MEMBER))
        while not coordinator.asked[-1].startswith("offsets"):
            await asyncio.sleep(0.001)
        await producer.commit_transaction()
        await sending

    assert [each.split(" ")[0] for each in stage.play(scene)] == ["init", "offsets", "offsets", "end"]
