"""Transactional producers, processors and consumers, and the check that transactions are isolated and atomic.

Writers write to topic `in`. Processors consume it, write one record to `out` or `in` for each, and commit the offsets
with the same transaction; both processors have the same transactional id, and fence each other. Any call may be
cancelled. After the faults, every transaction ends, every producer commits once more, and the processors consume all.
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

from odradek.clients import Consumer, ConsumerRecord, Producer, ProducerFencedError, TransactionAbortedError
from odradek.clients.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from odradek.model import ErrorCode, KafkaError, OdradekError, TopicPartition
from odradek.protocol.api import ApiKey
from odradek.simulation.promises import CLIENTS, PATIENCE_S, READERS, BrokenPromiseError
from odradek.simulation.setup import Setup
from odradek.simulation.transaction_histories import Outcome, RecordedTransaction, TransactionHistory, findings
from odradek.simulation.workloads import mixed_commits
from odradek.simulation.workloads.old_epochs import maybe_use_up_epochs
from odradek.simulation.workloads.workload import Workload, create_topic
from odradek.simulation.world import World, until

INPUT: Final = "in"
OUT: Final = "out"
PARTITIONS: Final = 2
GROUP: Final = "processors"
AUDIENCE: Final = "audience"
INPUTS: Final = [TopicPartition(INPUT, number) for number in range(PARTITIONS)]
OUTPUTS: Final = [TopicPartition(OUT, number) for number in range(PARTITIONS)]
_TIMEOUT_MS: Final = 8_000
_ENDING_S: Final = 60.0
"""Virtual seconds after which a transaction that is still open counts as stuck."""


class ProcessCrash(Exception):
    """The process of an actor has crashed."""


class Actor:
    """A producer on its own host: it repeats transactions, and starts anew when it is fenced or has failed."""

    def __init__(self, world: World, history: TransactionHistory, host: str, transactional_id: str = "") -> None:
        self.host = host
        self.is_calm = False
        """Whether it does nothing unusual any more, and returns after a committed transaction."""
        self.aborts = False
        """Whether it aborts its transactions."""
        self.oversleeps = False
        """Whether its transactions time out between two records."""
        self.aborted = 0
        """The number of transactions that it has aborted."""
        self.may_end = asyncio.Event()
        self.may_end.set()
        self.is_waiting_to_end = False
        """Whether its transaction has all of its records, in several partitions, and waits for `may_end`."""
        self.errors: list[str] = []
        self.fenced_early: list[str] = []
        """Findings, unless clocks have jumped: no other producer had the id, and no transaction was due to time out."""
        self.closing: list[asyncio.Task[None]] = []
        self._world, self._history = world, history
        self.transactional_id = transactional_id or host
        self._chance = world.simulation.entropy(host)
        self._linger_ms = world.simulation.entropy(f"linger of {host}").choice((0, 30))
        self._sent = 0
        self._began_s = float("-inf")
        """When its last transaction began."""
        self._work: asyncio.Future[bool] | None = None
        self._has_crashed = False
        self._consumer: Consumer | None = None

    def crash(self) -> None:
        """Cancel the transaction, and continue with another producer."""
        if self._work is not None and not self._work.done():
            self._has_crashed = True
            self._work.cancel()

    async def live(self) -> None:
        """Run one producer after the other, until the actor is calm and has committed."""
        while not await self._one_life():  # noqa: ASYNC110 - no polling: each life runs transactions
            await asyncio.sleep(self._chance.choice((0.1, 3.0)))

    async def _one_life(self) -> bool:
        """Run one producer; return whether the actor is done."""
        producer = self._world.producer(
            self.host, transactional_id=self.transactional_id, transaction_timeout_ms=_TIMEOUT_MS, max_block_ms=60_000,
            delivery_timeout_ms=30_000, linger_ms=self._linger_ms, **CLIENTS,
        )  # fmt: skip
        try:
            await producer.start()
            while True:
                is_committed = await self._at_risk(producer)
                if is_committed and self.is_calm:
                    return True
                await asyncio.sleep(self._chance.choice((0.0, 0.3, 4.0)))
                if not self.is_calm and self._chance.random() < 0.05:
                    return False
        except (OdradekError, TimeoutError, ProcessCrash) as error:
            self.errors.append(f"{self._world.now_s:.2f} {error}")
            is_young = self._world.now_s < self._began_s + _TIMEOUT_MS / 2000
            if is_young and isinstance(error, ProducerFencedError) and self.transactional_id == self.host:
                self.fenced_early.append(f"{self.host} is fenced in a transaction of {self._began_s:.2f} s: {error}")
            return False
        finally:
            # The old producer stays open for a while, and may still send its pending records.
            delay_s = 0.0 if self.is_calm else self._chance.choice((0.0, 0.5, 10.0))
            self.closing.append(asyncio.create_task(_close(producer, delay_s), name=f"closing {self.host}"))

    async def _at_risk(self, producer: Producer) -> bool:
        """Run a transaction that may be cancelled at any await; return whether it was committed."""
        transaction = self._history.begin(self.host, self.transactional_id)
        self._work = work = asyncio.ensure_future(self._transact(producer, transaction))
        is_cancelled = not self.is_calm and self._chance.random() < 0.15
        if is_cancelled:
            await asyncio.wait([work], timeout=self._chance.choice((0.005, 0.05, 1.0)) * self._chance.random())
            work.cancel()
        try:
            return await work
        except asyncio.CancelledError:
            if not is_cancelled and not self._has_crashed:
                raise
        if self._has_crashed:
            self._has_crashed = False
            raise ProcessCrash
        return await self._continue(producer, transaction)

    async def _continue(self, producer: Producer, transaction: RecordedTransaction) -> bool:
        """End a cancelled transaction by the same producer, as an application that catches the cancellation may do."""
        try:
            await repeated(producer.abort_transaction)
        except KafkaError as error:
            if error.code != ErrorCode.invalid_txn_state or isinstance(error, ProducerFencedError):
                raise
            return await self._commit(producer, transaction) if transaction.outcome is Outcome.UNKNOWN else False
        if transaction.outcome is Outcome.UNKNOWN:
            transaction.outcome = Outcome.ABORTED
        return False

    async def _transact(self, producer: Producer, transaction: RecordedTransaction) -> bool:
        await producer.begin_transaction()
        self._began_s = self._world.now_s
        for _ in range(self._chance.randrange(1, 5)):
            await self._send(producer, transaction, self._chance.choice(INPUTS))
            await asyncio.sleep(self._chance.choice((0.0, 0.0, 0.1)))
        return await self._end(producer, transaction)

    async def _send(self, producer: Producer, transaction: RecordedTransaction, place: TopicPartition) -> None:
        if self.oversleeps and transaction.writes:
            await self._oversleep()
        value = b"%s-%d" % (self.host.encode(), self._sent)
        self._sent += 1
        transaction.write(place, value)
        delivery = await producer.send(place.topic, value, partition=place.partition)
        delivery.add_done_callback(partial(_note, transaction, value))

    async def _end(self, producer: Producer, transaction: RecordedTransaction) -> bool:
        if not self.may_end.is_set():
            await producer.flush()
            self.is_waiting_to_end = len(set(transaction.writes.values())) > 1
            try:
                await self.may_end.wait()
            finally:
                self.is_waiting_to_end = False
        chance = self._chance.random()
        if not self.is_calm and chance < 0.05:
            await self._oversleep()
        if self.aborts or (not self.is_calm and chance > 0.8):
            await repeated(producer.abort_transaction)
            self.aborted += 1
            return False
        return await self._commit(producer, transaction)

    async def _oversleep(self) -> None:
        await asyncio.sleep(_TIMEOUT_MS / 1000 + 3)

    async def _commit(self, producer: Producer, transaction: RecordedTransaction) -> bool:
        transaction.ending(now=min(self._world.now_s, transaction.ended_at))
        try:
            await repeated(producer.commit_transaction)
        except TransactionAbortedError:
            transaction.outcome = Outcome.ABORTED
            await repeated(producer.abort_transaction)
            return False
        transaction.outcome = Outcome.COMMITTED
        return True


class Processor(Actor):
    """Consumes `in`, and writes a record to `out` for each record, with the offsets in the same transaction."""

    async def live(self) -> None:
        """Process until no record is left."""
        async with self._world.consumer(
            self.host, group_id=GROUP, isolation_level="read_committed", enable_auto_commit=False, **READERS
        ) as self._consumer:
            await super().live()

    async def _transact(self, producer: Producer, transaction: RecordedTransaction) -> bool:
        consumer = self._consumer
        assert consumer is not None
        consumer.assign(INPUTS)
        for place, committed in (await consumer.committed(*INPUTS)).items():
            offset = 0 if committed is None else committed.offset
            self._history.saw_offset(GROUP, place, offset, now=self._world.now_s)
            consumer.seek(place, committed or offset)
        await producer.begin_transaction()
        records = await consumer.poll(3_000, 10)
        if not records:
            await repeated(producer.abort_transaction)
            return all(consumer.is_at_end(place) for place in INPUTS)
        offsets, ends = {}, {}
        for record in records:
            place = TopicPartition(record.topic, record.partition)
            transaction.read(place, record.offset, record.value or b"", now=self._world.now_s)
            offsets[place] = record.offset + 1
            # With the epoch, a consumer does not look for the offset at a former leader that is cut off (KIP-320).
            ends[place] = OffsetAndMetadata(record.offset + 1, "", record.leader_epoch)
            # Some records are consumed again, so that transactions could read their own records, or each other's.
            await self._send(producer, transaction, self._chance.choice((*OUTPUTS, *OUTPUTS, *INPUTS[:1])))
        transaction.send_offsets(GROUP, offsets)
        await repeated(partial(producer.send_offsets, ends, ConsumerGroupMetadata(group_id=GROUP)))
        await self._end(producer, transaction)
        return False  # it is done when it finds no more records


class Reader:
    """A consumer of all partitions, which records what it polls."""

    def __init__(self, world: World, history: TransactionHistory, host: str, isolation_level: Any) -> None:
        self.read: set[bytes] = set()
        self._world, self._history, self.host = world, history, host
        self._is_committed = isolation_level == "read_committed"
        self._settings = {"isolation_level": isolation_level, **READERS}
        self._most = world.simulation.entropy(f"polls of {host}").choice((500, 1))

    async def live(self) -> None:
        async with self._world.consumer(self.host, **self._settings) as consumer:
            consumer.assign([*INPUTS, *OUTPUTS])
            while True:
                for record in await _polled(consumer, self._most):
                    place, value = TopicPartition(record.topic, record.partition), record.value or b""
                    self.read.add(value)
                    if self._is_committed:
                        self._history.poll(self.host, place, record.offset, value, now=self._world.now_s)
                if self._most == 1:
                    await asyncio.sleep(0.05)  # records wait while responses come


class MortalReader(Reader):
    """A reader that commits its positions automatically, and whose process ends before it has processed a record.

    `read` has what it has processed. Each next process begins at the committed offsets.
    """

    async def live(self) -> None:
        """Run one process after the other, until cancelled."""
        chance = self._world.simulation.entropy(self.host)
        while True:
            settings = {"group_id": AUDIENCE, "auto_commit_interval_ms": 50, **self._settings}
            consumer = self._world.consumer(self.host, **settings)
            try:
                await consumer.start()
                consumer.assign([*INPUTS, *OUTPUTS])
                for polls in reversed(range(chance.choice((5, 40)))):
                    records = await _polled(consumer, chance.choice((1, 1, 500)))
                    await asyncio.sleep(chance.choice((0.0, 0.1)))
                    self.read |= {record.value or b"" for record in records if polls}
            except OdradekError:
                await asyncio.sleep(0.5)
            finally:
                self._world.simulation.kill(self.host)
                await consumer._cluster.close()  # a process that dies does not commit
                await consumer.close()


async def _polled(consumer: Consumer, most: int) -> list[ConsumerRecord]:
    """Return the next records. Raise `BrokenPromiseError` if one is before the position, which is what is committed."""
    positions = {place: await consumer.position(place) for place in [*INPUTS, *OUTPUTS]}
    records = await consumer.poll(1_000, most)
    for record in records:
        place = TopicPartition(record.topic, record.partition)
        if record.offset < positions[place]:
            raise BrokenPromiseError(f"a reader of {place} at position {positions[place]} got offset {record.offset}")
    return records


def _note(transaction: RecordedTransaction, value: bytes, delivery: "asyncio.Future[Any]") -> None:
    if not delivery.cancelled() and delivery.exception() is None and delivery.result().offset >= 0:
        transaction.acknowledge(value, delivery.result().offset)


async def _close(producer: Producer, delay_s: float) -> None:
    await asyncio.sleep(delay_s)
    with suppress(OdradekError):
        await producer.close()


async def repeated(call: Callable[[], Any]) -> None:
    """Repeat a call while it fails with a retriable error, about 6 s at most."""
    for _ in range(30):
        try:
            await call()
        except OdradekError as error:
            if not error.retriable:
                raise
            await asyncio.sleep(0.2)
        else:
            return
    await call()


async def finalize(world: World, level: int) -> None:
    client = await world.client("admin", broker=min(world.running))
    update = {"feature": "transaction.version", "max_version_level": level, "upgrade_type": 2, "allow_downgrade": True}
    answer = await client.ask(ApiKey.UPDATE_FEATURES, {"feature_updates": [update], "timeout_ms": 10_000}, 1)
    assert answer.error_code == ErrorCode.none, answer
    client.close()
    await until(lambda: all(b.image.features.transaction_version == level for b in world.running.values()))


class Transactions(Workload):
    """Writers, processors and readers; the seed draws how many."""

    config: ClassVar[Mapping[str, str]] = {
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "transaction.remove.expired.transaction.cleanup.interval.ms": "2000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    }
    clients: ClassVar[Sequence[str]] = ("transactor-0", "processor-0", "committed-reader")
    topics: ClassVar[Sequence[str]] = (INPUT, OUT)

    def __init__(self, world: World, setup: Setup) -> None:
        super().__init__(world, setup)
        self.history = TransactionHistory()
        chance = world.simulation.entropy("transactions")
        self._writers = [Actor(world, self.history, f"transactor-{number}") for number in range(chance.choice((1, 2)))]
        self._processors = [Processor(world, self.history, f"processor-{number}", "chain") for number in range(2)]
        self._readers = [Reader(world, self.history, "committed-reader", "read_committed")]
        if chance.random() < 0.5:
            self._readers.append(Reader(world, self.history, "uncommitted-reader", "read_uncommitted"))
        if world.simulation.entropy("audience").random() < 0.5:
            self._readers.append(MortalReader(world, self.history, "mortal-reader", "read_committed"))
        self._tasks: dict[Actor, asyncio.Task[None]] = {}
        self._reading: list[asyncio.Task[None]] = []

    @property
    def actors(self) -> list["Actor"]:
        return [*self._writers, *self._processors]

    async def start(self) -> None:
        await finalize(self.world, self.setup.transaction_version)
        for topic in self.topics:
            await create_topic(self.world, topic, PARTITIONS)
        await maybe_use_up_epochs(self.world, dict.fromkeys(each.transactional_id for each in self.actors))
        self._tasks = {each: self.world.spawn(each.host, each.live()) for each in self.actors}
        self._reading = [self.world.spawn(each.host, each.live()) for each in self._readers]
        if self.world.simulation.entropy("mixed commits").random() < 0.5:
            self._reading.append(self.world.spawn(mixed_commits.HOST, mixed_commits.mix_commits(self.world, INPUTS)))

        def committed() -> int:
            return sum(each.outcome is Outcome.COMMITTED for each in self.history.transactions)

        await until(lambda: committed() > 2, within_s=60, each_s=0.1)

    async def finish(self) -> list[str]:
        """Let every producer commit once more, the processors consume all, and check the history."""
        await stable(self.world)
        for some in (self._writers, self._processors):
            await self._calm_down(some)
        for actor in self.actors:
            async with asyncio.timeout(PATIENCE_S):
                for closing in actor.closing:
                    await closing
        await stable(self.world)
        await audit(self.world, self.history)
        committed = {value for log in self.history.logs.values() for _, value in log}
        try:
            await until(lambda: all(committed <= each.read for each in self._readers), within_s=PATIENCE_S, each_s=0.1)
        except TimeoutError:
            unread = [sorted(committed - each.read)[:5] for each in self._readers]
            raise BrokenPromiseError(f"readers do not read committed records, such as {unread}") from None
        for task in self._reading:
            task.cancel()
        await asyncio.wait(self._reading)
        early = [] if self.clocks_have_jumped else [each for actor in self.actors for each in actor.fenced_early]
        return early + [str(each) for each in findings(self.history)]

    async def _calm_down(self, actors: Sequence["Actor"]) -> None:
        for actor in actors:
            actor.is_calm = True
        done, late = await asyncio.wait([self._tasks[each] for each in actors], timeout=PATIENCE_S)
        for task in done:
            task.result()
        if late:
            stuck = {each.host: each.errors[-3:] for each in actors if self._tasks[each] in late}
            raise BrokenPromiseError(f"producers do not commit: {stuck}")


async def stable(world: World) -> None:
    """Wait until every transaction that is open now has ended in each partition."""
    ends = {each.topic_partition: each.log.log_end_offset for each in world.led}

    def unstable() -> list[str]:
        return [str(key) for each in world.led if each.last_stable_offset < ends.get(key := each.topic_partition, 0)]

    try:
        await until(lambda: not unstable(), within_s=_ENDING_S, each_s=0.1)
    except TimeoutError:
        raise BrokenPromiseError(f"transactions stay open in {unstable()}") from None


async def audit(world: World, history: TransactionHistory) -> None:
    """Record the committed logs and the group's offsets."""
    places = [*INPUTS, *OUTPUTS]
    settings: Any = {"isolation_level": "read_committed", "group_id": GROUP, "enable_auto_commit": False}
    async with world.consumer("auditor", **settings) as consumer, asyncio.timeout(PATIENCE_S):
        for place, committed in (await consumer.committed(*INPUTS)).items():
            history.audit_offset(GROUP, place, 0 if committed is None else committed.offset)
        consumer.assign(places)
        logs: dict[TopicPartition, list[tuple[int, bytes]]] = {place: [] for place in places}
        for place in places:
            consumer.seek(place, 0)
        ends = await consumer.end_offsets(places)
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            for record in await consumer.poll(1_000):
                logs[TopicPartition(record.topic, record.partition)].append((record.offset, record.value or b""))
    for place, log in logs.items():
        history.audit(place, log)
