"""Plays one consume–process–produce transaction on three simulated brokers, and records what happens, step by step.

The brokers, the producer and the consumers are the real ones, in virtual time: the steps of a seed are the same every
time. A step is a request that arrives at a broker, a record that a consumer receives, or a change that is seen in a
broker: the state of the transaction, or the end and the last stable offset (LSO) of a partition.
"""

import asyncio
from contextlib import AsyncExitStack
from enum import StrEnum
from typing import Any, Final

from msgspec import Struct

from odradek.broker.lifecycle import Broker
from odradek.broker.transactions.machine.transaction_machine import TransactionMachine
from odradek.clients import Admin, Consumer, Producer
from odradek.metadata.feature_node import TRANSACTION_VERSION
from odradek.model import TopicPartition
from odradek.model.names import TRANSACTIONS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.simulation.virtual.message_tap import MessageTap, TappedRequest
from odradek.simulation.world import World, until

PRODUCER: Final = "producer"
SUCCESSOR: Final = "successor"
READERS: Final = ("read_committed", "read_uncommitted")
_ID: Final = "words-1"
_GROUP: Final = "words"
_SOURCE: Final = TopicPartition("lines", 0)
_COORDINATOR: Final = TopicPartition(TRANSACTIONS_TOPIC, 0)
PLACES: Final = (TopicPartition("words", 0), TopicPartition("words", 1))
"""The partitions that the transaction writes."""
_LOOK_S: Final = 0.0005
_CALM_S: Final = 1.0
_CONFIG: Final = {
    "transaction.state.log.num.partitions": "1",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
    "transaction.two.phase.commit.enable": "true",
}
_SHOWN: Final = {
    ApiKey.INIT_PRODUCER_ID: "InitProducerId",
    ApiKey.ADD_PARTITIONS_TO_TXN: "AddPartitionsToTxn",
    ApiKey.ADD_OFFSETS_TO_TXN: "AddOffsetsToTxn",
    ApiKey.PRODUCE: "Produce",
    ApiKey.TXN_OFFSET_COMMIT: "TxnOffsetCommit",
    ApiKey.END_TXN: "EndTxn",
    ApiKey.WRITE_TXN_MARKERS: "WriteTxnMarkers",
}


class Victim(StrEnum):
    """The process to kill: producer or leader before the transaction ends, or coordinator when it appends the end."""

    PRODUCER = "producer"
    LEADER = "leader"
    COORDINATOR = "coordinator"


class Plan(Struct, frozen=True, kw_only=True):
    """The transaction to play."""

    is_commit: bool = True
    version: int = 2
    two_phase: bool = False
    kill: Victim | None = None
    seed: int = 0


class Step(Struct, frozen=True, kw_only=True):
    """One step; `at_ms` is virtual time since the producer's start."""

    at_ms: float
    source: str
    target: str
    """Equal to `source` if nothing is sent."""
    event: str
    state: str
    """The state at the coordinator, also if its record is not committed yet."""
    offsets: dict[str, tuple[int, int]]
    """By partition: the last stable offset, up to which read_committed reads, and the high watermark."""


class Played(Struct, frozen=True, kw_only=True):
    """A transaction that was played, and the brokers' roles at its start."""

    plan: Plan
    roles: dict[str, str]
    steps: tuple[Step, ...]

    @property
    def title(self) -> str:
        plan = self.plan
        end = "that is committed" if plan.is_commit else "that is aborted"
        kind = "a prepared transaction" if plan.two_phase else "a transaction"
        killed = "" if plan.kill is None else f"; the {plan.kill} is killed"
        return f"{kind} {end}, transaction.version {plan.version}{killed}"


def play_transaction(plan: Plan) -> Played:
    """Play a transaction, and return its steps."""
    play = _Play(plan)
    play.world.play(play.scenario)
    return Played(plan=plan, roles=play.roles, steps=tuple(play.steps))


class _Play:
    """One transaction on one simulated cluster."""

    def __init__(self, plan: Plan) -> None:
        self.steps: list[Step] = []
        self.roles: dict[str, str] = {}
        self.world = World(
            plan.seed, _CONFIG, brokers=3, limit_s=600, before_start=MessageTap(_SHOWN, self._arrived).attach
        )
        self._plan = plan
        self._began_s: float | None = None
        self._is_lost = False
        """Whether the coordinator is killed, and no other one has loaded the transaction yet."""
        self._known: tuple[str, dict[str, tuple[int, int]]] = ("", {})

    async def scenario(self, world: World) -> None:
        """Prepare the topics, play the transaction with two readers, and end when nothing happens any more."""
        await self._set_version()
        async with Admin(world.servers, runtime=world.simulation.runtime("admin")) as admin:
            await admin.create_topic(_SOURCE.topic, partitions=1, replication_factor=3)
            await admin.create_topic(PLACES[0].topic, partitions=len(PLACES), replication_factor=3)
        async with world.producer("setup") as setup:
            await setup.send(_SOURCE.topic, b"a book", partition=0)
        async with world.producer("setup", transactional_id=_ID):
            pass  # creates the topic of the coordinator, which is no part of the picture
        async with AsyncExitStack() as stack:
            source = world.consumer(PRODUCER, _SOURCE.topic, group_id=_GROUP, enable_auto_commit=False)
            await stack.enter_async_context(source)
            records = await source.poll(60_000)
            readers = [await stack.enter_async_context(world.consumer(name, isolation_level=name)) for name in READERS]
            for reader in readers:
                reader.assign(PLACES)
            tasks = [asyncio.create_task(self._read(*each)) for each in zip(READERS, readers, strict=True)]
            await world.pass_time(_CALM_S)
            self._name_roles()
            self._began_s = world.now_s
            self._look()
            tasks.append(asyncio.create_task(self._watch()))
            await self._transact(source, records[0].value.split())
            await self._calm()
            self._began_s = None
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)
            world.simulation.network.heal()

    async def _set_version(self) -> None:
        level = self._plan.version
        if level != 2:
            await self.world.broker.metadata_loop.change_features(lambda old: {**old, TRANSACTION_VERSION: level})
        for broker in self.world.running.values():
            await until(lambda at=broker: at.image.features.transaction_version == level)  # type: ignore[misc]

    def _name_roles(self) -> None:
        roles: dict[str, list[str]] = {host: [] for host in self.world.hosts}
        image = self.world.broker.image
        for place in (_COORDINATOR, *PLACES, TopicPartition("__consumer_offsets", 0)):
            known = image.partition(place)
            assert known is not None
            is_coordinator = place.topic == TRANSACTIONS_TOPIC
            roles[self.world.hosts[known.leader]].append("coordinator" if is_coordinator else str(place))
        self.roles = {host: ", ".join(names) or "no leader" for host, names in roles.items()}

    # ---- the transaction --------------------------------------------------------------------------------------------

    def _producer(self, host: str) -> Producer:
        more = {"transaction_two_phase_commit_enable": True} if self._plan.two_phase else {}
        return self.world.producer(host, client_id=host, transactional_id=_ID, **more)

    async def _transact(self, source: Consumer, values: list[bytes]) -> None:
        plan = self._plan
        producer = self._producer(PRODUCER)
        await producer.start()
        self._note(PRODUCER, PRODUCER, "begin_transaction")
        await producer.begin_transaction()
        for place, value in zip(PLACES, values, strict=True):
            await producer.send(place.topic, value, partition=place.partition)
        await producer.flush()
        await producer.send_offsets({_SOURCE: 1}, source.group_metadata())
        prepared = await producer.prepare() if plan.two_phase else None
        if prepared is not None:
            result = f"a database stores {prepared}" if plan.is_commit else "the database fails"
            self._note(PRODUCER, PRODUCER, f"prepare; {result}")
        stored = prepared if plan.is_commit else None
        if plan.kill is Victim.LEADER:
            await self._kill(self._leader(PLACES[0]))
        if plan.kill is Victim.PRODUCER:
            self._note(PRODUCER, PRODUCER, "killed")
            self.world.simulation.network.partition([PRODUCER], [*self.world.hosts])
            async with self._producer(SUCCESSOR) as successor:
                if plan.two_phase:
                    await successor.complete(stored)
        elif plan.two_phase:
            await producer.complete(stored)
        elif plan.is_commit:
            await producer.commit_transaction()
        else:
            await producer.abort_transaction()
        if plan.kill is not Victim.PRODUCER:
            self._note(PRODUCER, PRODUCER, f"the {'commit' if plan.is_commit else 'abort'} is confirmed")
        closing = asyncio.create_task(producer.close())
        await self._calm()
        self.world.simulation.network.heal()
        self._began_s = None
        await closing

    def _leader(self, place: TopicPartition) -> int:
        known = next(iter(self.world.running.values())).image.partition(place)
        assert known is not None
        return known.leader

    async def _kill(self, number: int) -> None:
        host = self.world.hosts[number]
        self._note(host, host, "killed")
        self._is_lost = number == self._leader(_COORDINATOR)
        await self.world.kill(number)

    async def _calm(self) -> None:
        """Let time pass until no step has happened for a while."""
        count = -1
        while count != len(self.steps):
            count = len(self.steps)
            await self.world.pass_time(_CALM_S)

    # ---- what happens -----------------------------------------------------------------------------------------------

    def _arrived(self, request: TappedRequest) -> None:
        if self._began_s is not None:
            text = f"{_SHOWN[request.api]} v{request.version}{_details(request.broker, request.message)}"
            self._note(request.client_id, self.world.hosts[request.broker.config.broker_id], text)

    async def _watch(self) -> None:
        """Note changes in brokers; kill the coordinator when it has appended the transaction's end."""
        waits = self._plan.kill is Victim.COORDINATOR
        while True:
            await asyncio.sleep(_LOOK_S)
            self._look()
            if waits and self._known[0].startswith("Prepare"):
                waits = False
                await self._kill(self._leader(_COORDINATOR))

    def _look(self) -> None:
        (state, offsets), (old_state, old_offsets) = self._seen_now(), self._known
        self._known = state, offsets
        if self._began_s is None or not old_offsets:
            return
        if state != old_state and state:
            host = self.world.hosts[self._leader(_COORDINATOR)]
            self._add(host, host, f"{state} is {'loaded by the new coordinator' if self._is_lost else 'appended'}")
            self._is_lost = False
        for name, (stable, end) in offsets.items():
            old_stable, old_end = old_offsets[name]
            if (stable, end) != (old_stable, old_end):
                host = self.world.hosts[self._leader(next(each for each in PLACES if str(each) == name))]
                what = "record" if stable == old_stable else "marker" if end != old_end else "end"
                self._add(host, host, f"the {what} in {name} is committed")

    def _seen_now(self) -> tuple[str, dict[str, tuple[int, int]]]:
        """Return the state of the transaction and the offsets of partitions; the old ones while there is no leader."""
        state, offsets = self._known[0], dict(self._known[1])
        for broker in self.world.running.values():
            for place in PLACES:
                led = broker.partitions.leader_or_none(*place)
                if led is not None and led.is_end_known:
                    offsets[str(place)] = led.last_stable_offset, led.high_watermark
            context = broker.transactions.runtime.context(_ID)
            machine = None if context is None else context.machine
            if isinstance(machine, TransactionMachine) and _ID in machine.transactions:
                state = machine.transactions[_ID].state.text
        return state, offsets

    async def _read(self, name: str, reader: Consumer) -> None:
        while True:
            for record in await reader.poll(1000):
                value = (record.value or b"").decode()
                self._note(name, name, f"reads {record.topic}-{record.partition}@{record.offset} {value!r}")

    def _note(self, source: str, target: str, event: str) -> None:
        self._look()
        if self._began_s is not None:
            self._add(source, target, event)

    def _add(self, source: str, target: str, event: str) -> None:
        assert self._began_s is not None
        at_ms = round((self.world.now_s - self._began_s) * 1000, 1)
        state, offsets = self._known
        self.steps.append(
            Step(at_ms=at_ms, source=source, target=target, event=event, state=state, offsets=dict(offsets))
        )


def _details(broker: Broker, message: Any) -> str:
    """Return what a newcomer needs of a request: the partitions, or how the transaction ends."""
    if hasattr(message, "committed"):
        return " commit" if message.committed else " abort"
    topics = [*getattr(message, "v3_and_below_topics", ()), *getattr(message, "topic_data", ())]
    topics += [topic for each in getattr(message, "transactions", ()) for topic in each.topics]
    topics += [topic for each in getattr(message, "markers", ()) for topic in each.topics]
    names: list[str] = []
    for topic in topics:
        known = None if getattr(topic, "name", "") else broker.image.topic_by_id(topic.topic_id)
        name = topic.name if known is None else known.name
        numbers = getattr(topic, "partitions", None) or getattr(topic, "partition_indexes", None)
        numbers = numbers or [each.index for each in topic.partition_data]
        names += [f"{name}-{number}" for number in numbers]
    return " " + ", ".join(sorted(names)) if names else ""
