"""Faults drawn from a seed and played on three brokers while clients write and read, and the checks afterwards.

An episode is a few faults, some time, and their end. The next one may begin before the cluster has recovered. Faults
that break a precondition of the promises are not drawn: only one broker has a power cut, and only with all replicas in
sync.
"""

import asyncio
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

from agreement import agreed

from odradek.clients import Admin, Consumer, Producer
from odradek.clients.setting_types import ClientConfig
from odradek.metadata import paths
from odradek.metadata.nodes import PartitionStateNode
from odradek.metadata.store import NoNode
from odradek.model import ErrorCode, KafkaError, TopicPartition, UnavailableError
from odradek.protocol.batches.record_batch import CRC_START
from odradek.stores import MemoryStore
from odradek.testing import Survival
from odradek.testing.histories import History, verdict
from odradek.testing.world import World, until

TOPIC: Final = "t"
CREATED: Final = "created-"
"""How the names begin of topics that are created amid the faults."""
PARTITIONS: Final = 2
BROKERS: Final = 3
PATIENCE_S: Final = 300.0
"""Virtual seconds after which a cluster without faults, or a client of it, counts as stuck."""

CONFIG: Final = {
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "replica.lag.time.max.ms": "3000",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "1",
}
WAYS_TO_THE_TREE_S: Final = (0.0, 0.0, 0.005, 0.05)
"""How long they take, by the seed."""
CLIENTS: Final[ClientConfig] = {"request_timeout_ms": 4_000, "metadata_max_age_ms": 10_000}


class Schedule:
    """One seed's faults on one world."""

    faults: Sequence[str] = ()
    """Names of the faults that are drawn; all of them if there are none."""

    def __init__(self, world: World, *, flushes_by_group: bool = False) -> None:
        self.world = world
        self.done: list[str] = []
        self.has_flipped = False
        self.chance = world.simulation.entropy("faults")
        self._flushes_by_group = flushes_by_group
        self._undo: list[Callable[[], Any]] = []
        self._creations: list[asyncio.Task[None]] = []

    async def play(self, episodes: int) -> None:
        """Play so many, and leave a cluster without faults, which need not be whole yet."""
        chance = self.chance
        for number in range(episodes):
            for _ in range(chance.choice((1, 1, 2, 3))):
                await self._deed()
                await asyncio.sleep(chance.choice((0.0, 0.05, 1.0)) * chance.random())
            await asyncio.sleep(chance.choice((0.2, 2.0, 12.0)) * chance.random())
            await self.undo()
            if number + 1 < episodes and chance.random() < 0.6:
                await until(self.is_whole, within_s=PATIENCE_S)

    def kinds(self) -> "Mapping[str, Callable[[Schedule, int, int], Any]]":
        """Return the faults by name."""
        return FAULTS

    async def _deed(self) -> None:
        chance = self.chance
        name = chance.choice(self.faults or list(self.kinds()))
        one, other = chance.sample(range(BROKERS), 2)
        if name == "cut_power" and not self._power_may_go():
            name = "kill"
        if name in NEEDS_RUNNING and one not in self.world.running:
            return
        self.note(f"{name} {one}" + (f" {other}" if name in BETWEEN_TWO else ""))
        await self.kinds()[name](self, one, other)

    def _power_may_go(self) -> bool:
        """With group flush what is acknowledged is on the disks of all that are in sync: they may all lose power."""
        return self._flushes_by_group or self.is_quiet()

    def is_quiet(self) -> bool:
        """Whether every replica is in sync, and stays so as far as is known."""
        return not self._undo and self.is_whole() and not self._is_isr_changing()

    def _is_isr_changing(self) -> bool:
        """Whether a leader waits for another in-sync set: it may be written when the leader has lost its power."""
        return any(
            partition.replication.pending is not None
            for broker in self.world.running.values()
            for partition in broker.partitions
        )

    def note(self, what: str) -> None:
        """Put it into the story and into the trace."""
        self.done.append(f"{self.world.now_s:.2f} {what}")
        self.world.simulation.network.note(what)

    async def undo(self) -> None:
        """Let every fault end, the last one first."""
        self.world.simulation.network.heal()
        while self._undo:
            await self._undo.pop()()
        self.note("all healed")

    def later(self, undo: Callable[[], Any]) -> None:
        """Return the action that ends a fault."""
        self._undo.append(undo)

    def create(self) -> None:
        """Begin to create another topic, as an application does that does not know which brokers are away."""
        name = f"{CREATED}{len(self._creations)}"
        self._creations.append(asyncio.create_task(self._create(name), name=f"creating {name}"))

    async def _create(self, name: str) -> None:
        """Create a topic. It may fail while no broker is reachable, but not because some are down."""
        try:
            async with Admin(self.world.servers, runtime=self.world.simulation.runtime(name), **CLIENTS) as admin:
                await admin.create_topic(name, partitions=PARTITIONS, replication_factor=BROKERS)
        except UnavailableError:
            pass
        except KafkaError as error:
            if error.code == ErrorCode.invalid_replication_factor:
                raise

    async def created(self) -> None:
        """Return when all that were created have their replicas in sync, on whichever broker these were placed."""
        for creation in self._creations:
            await creation
        tool = MemoryStore(self.world.tree)
        for name in await tool.children(paths.TOPICS):
            if name.startswith(CREATED):
                await until(partial(self._is_topic_whole, name), within_s=PATIENCE_S)

    def _is_topic_whole(self, name: str) -> bool:
        return all(state is not None and len(state.isr) == BROKERS for state in self.states(name))

    def is_whole(self) -> bool:
        """Whether every broker runs and every replica is in sync, by the tree."""
        states = list(self.states())
        return len(self.world.running) == BROKERS and all(
            state is not None and len(state.isr) == BROKERS and state.leader in self.world.running for state in states
        )

    def states(self, topic: str = TOPIC) -> Iterator[PartitionStateNode | None]:
        """The states of a topic's partitions in the tree."""
        for number in range(PARTITIONS):
            path = paths.partition_state(TopicPartition(topic, number))
            record = self.world.tree.find(path)
            yield None if record is None else PartitionStateNode.decode(path, record.data)


# ---- deeds ----------------------------------------------------------------------------------------------------------


async def _restart(schedule: Schedule, one: int) -> None:
    async def start() -> None:
        await schedule.world.start(one)

    schedule.later(start)


async def kill(schedule: Schedule, one: int, other: int) -> None:
    """`kill -9`."""
    del other
    await schedule.world.kill(one)
    await _restart(schedule, one)


async def cut_power(schedule: Schedule, one: int, other: int) -> None:
    """The broker's machine loses what it did not sync."""
    del other
    await schedule.world.cut_power(Survival.ANY, one)
    await _restart(schedule, one)


async def stop(schedule: Schedule, one: int, other: int) -> None:
    """As an operator does."""
    del other
    await schedule.world.stop(one)
    await _restart(schedule, one)


async def disconnect(schedule: Schedule, one: int, other: int) -> None:
    """Disconnect two brokers in both directions."""
    hosts = schedule.world.hosts
    schedule.world.simulation.network.partition([hosts[one]], [hosts[other]])


async def disconnect_one_way(schedule: Schedule, one: int, other: int) -> None:
    """Lose all that one broker sends to another."""
    hosts = schedule.world.hosts
    schedule.world.simulation.network.block(hosts[one], hosts[other])


async def isolate(schedule: Schedule, one: int, other: int) -> None:
    """Disconnect a broker from all others, but not from clients and the tree."""
    del other
    hosts = schedule.world.hosts
    schedule.world.simulation.network.partition([hosts[one]], [host for host in hosts if host != hosts[one]])


async def reject(schedule: Schedule, one: int, other: int) -> None:
    """Reset a broker's connections, and refuse new ones to it, while it lives."""
    del other
    schedule.world.simulation.network.reject(schedule.world.hosts[one])


async def disconnect_client(schedule: Schedule, one: int, other: int) -> None:
    """Disconnect a client and a broker in both directions."""
    client = ("writer-0", "writer-1", "reader-0")[other]
    schedule.world.simulation.network.partition([schedule.world.hosts[one]], [client])


async def lose_responses_to_clients(schedule: Schedule, one: int, other: int) -> None:
    """Lose a broker's responses to a client, so that the outcome of its requests is unknown."""
    client = ("writer-0", "writer-1", "reader-0")[other]
    schedule.world.simulation.network.block(schedule.world.hosts[one], client)


async def disconnect_tree(schedule: Schedule, one: int, other: int) -> None:
    """A broker is out of the tree's reach, and not of anybody else's."""
    del other
    store = schedule.world.store(one)
    store.disconnect()

    async def reconnect() -> None:
        store.reconnect()

    schedule.later(reconnect)


async def blink(schedule: Schedule, one: int, other: int) -> None:
    """A broker loses its connection to the tree, and finds another."""
    del other
    store = schedule.world.store(one)
    if store.is_connected:
        store.disconnect()
        await asyncio.sleep(schedule.chance.random() * schedule.chance.choice((0.01, 0.3, 2.0)))
        store.reconnect()


async def expire(schedule: Schedule, one: int, other: int) -> None:
    """A broker's session expires."""
    del other
    schedule.world.tree.expire(schedule.world.store(one).session_id)


async def depose(schedule: Schedule, one: int, other: int) -> None:
    """Delete `/controller`, which causes an election."""
    del one, other
    with suppress(NoNode):
        await MemoryStore(schedule.world.tree).delete(paths.CONTROLLER)


async def unregister(schedule: Schedule, one: int, other: int) -> None:
    """Delete a broker's registration."""
    del other
    with suppress(NoNode):
        await MemoryStore(schedule.world.tree).delete(paths.broker(one))


async def flip_bit(schedule: Schedule, one: int, other: int) -> None:
    """A bit of what a broker leads flips on its disk; a reader finds out.

    Once in a schedule, with every replica in sync, and nothing else meanwhile: nothing is promised for the last copy.
    """
    del other
    world, chance = schedule.world, schedule.chance
    led = [each for each in world.running[one].partitions if each.topic_partition.topic == TOPIC]
    if not schedule.is_quiet() or schedule.has_flipped or not led:
        return
    world.simulation.network.heal()  # the broker that takes over must receive the controller's requests
    partition = chance.choice(led)
    log, disk = partition.log, world.simulation.disk(world.hosts[one])
    segment = chance.choice([each for each in log.segments if each.written_size])
    batch = chance.choice(list(segment.scan()))
    data = bytearray(disk.read_file(segment.log.path))
    data[batch[0] + chance.randrange(CRC_START, batch[1].size)] ^= 1 << chance.randrange(8)
    file = disk.open(segment.log.path)
    file.truncate(0)
    file.append([data])
    schedule.has_flipped = True
    schedule.note(f"a bit of {partition.topic_partition} at offset {batch[1].base_offset} has flipped")

    async def read_all() -> None:
        while log.damage is None:
            await world.read(TOPIC, PARTITIONS)

    async with asyncio.timeout(PATIENCE_S):
        await read_all()
    await until(lambda: world.running[one].logs.get(partition.topic_partition) is not log, within_s=PATIENCE_S)
    await until(schedule.is_whole, within_s=PATIENCE_S)


async def create(schedule: Schedule, one: int, other: int) -> None:
    """Create a topic with as many replicas as there are brokers, alive or not."""
    del one, other
    schedule.create()


FAULTS: Final[dict[str, Callable[[Schedule, int, int], Any]]] = {
    function.__name__: function
    for function in (
        kill, cut_power, stop, disconnect, disconnect_one_way, isolate, reject, disconnect_client,
        lose_responses_to_clients, disconnect_tree,
        blink, expire, depose, unregister, flip_bit, create,
    )
}  # fmt: skip
NEEDS_RUNNING: Final = frozenset({"kill", "cut_power", "stop", "disconnect_tree", "blink", "expire", "flip_bit"})
BETWEEN_TWO: Final = frozenset({"disconnect", "disconnect_one_way", "disconnect_client", "lose_responses_to_clients"})


# ---- clients --------------------------------------------------------------------------------------------------------


class RecordingProducer:
    """A producer that sends until it is stopped, and records the outcomes."""

    def __init__(self, world: World, history: History, host: str, **settings: Any) -> None:
        self._world = world
        self._history = history
        self._host = host
        self._producer: Producer = world.producer(host, delivery_timeout_ms=3_000_000, **CLIENTS, **settings)
        self._chance = world.simulation.entropy(host)
        self._sending: asyncio.Task[None] | None = None
        self.waiting: set[asyncio.Future[Any]] = set()
        self.errors: list[str] = []

    async def start(self) -> None:
        """Begin."""
        await self._producer.start()
        self._sending = asyncio.create_task(self._send(), name=self._host)

    async def stop(self) -> None:
        """Send no more, wait for the answers, and close."""
        assert self._sending is not None
        self._sending.cancel()
        await asyncio.wait([self._sending])
        if not self._sending.cancelled():
            self._sending.result()
        await until(lambda: not self.waiting, within_s=PATIENCE_S)
        await self._producer.close()

    async def _send(self) -> None:
        number = 0
        while True:
            place = TopicPartition(TOPIC, number % PARTITIONS)
            if len(self.waiting) < 100:
                send = self._history.send(
                    self._host, place, b"%s-%d" % (self._host.encode(), number), now=self._world.now_s
                )
                delivery = await self._producer.send(TOPIC, send.value, partition=place.partition)
                self.waiting.add(delivery)
                delivery.add_done_callback(partial(self._note, send))
                number += 1
            await asyncio.sleep(self._chance.choice((0.0, 0.05, 0.3)))

    def _note(self, send: Any, done: "asyncio.Future[Any]") -> None:
        self.waiting.discard(done)
        if not done.cancelled() and done.exception() is None:
            offset = done.result().offset
            send.acknowledge(offset if offset >= 0 else None, now=self._world.now_s)
        elif not done.cancelled():
            self.errors.append(f"{send.value!r}: {done.exception()}")


class RecordingConsumer:
    """A consumer that reads all partitions from their beginning."""

    def __init__(self, world: World, history: History, host: str) -> None:
        self._history = history
        self._host = host
        self._consumer: Consumer = world.consumer(host, auto_offset_reset="none", **CLIENTS)
        self._polling: asyncio.Task[None] | None = None
        self.next_offset: dict[TopicPartition, int] = {}

    async def start(self) -> None:
        """Begin."""
        await self._consumer.start()
        places = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
        self._consumer.assign(places)
        for place in places:
            self._consumer.seek(place, 0)
        self._polling = asyncio.create_task(self._poll(), name=self._host)

    async def stop(self) -> None:
        """Read no more."""
        assert self._polling is not None
        self._polling.cancel()
        await asyncio.wait([self._polling])
        if not self._polling.cancelled():
            self._polling.result()
        await self._consumer.close()

    def has_read(self, place: TopicPartition, end: int) -> bool:
        """Whether it is as far as this."""
        return self.next_offset.get(place, 0) >= end

    async def _poll(self) -> None:
        while True:
            for record in await self._consumer.poll(1_000):
                place = TopicPartition(record.topic, record.partition)
                self._history.poll(self._host, place, record.offset, record.value or b"")
                self.next_offset[place] = record.offset + 1


async def play_with_clients(world: World, schedule: Schedule, episodes: int) -> History:
    """Play a schedule under clients that write and read all the while; the history, with the logs in the end."""
    history = History()
    await create_topic(world)
    producers = [
        RecordingProducer(world, history, "writer-0"),
        RecordingProducer(world, history, "writer-1", linger_ms=20),
    ]
    consumers = [RecordingConsumer(world, history, "reader-0")]
    clients: list[RecordingProducer | RecordingConsumer] = [*producers, *consumers]
    for client in clients:
        await client.start()
    await until(lambda: history.acknowledged() > 20, within_s=PATIENCE_S)
    await schedule.play(episodes)
    await agreed(world, within_s=PATIENCE_S)
    await schedule.created()
    for producer in producers:
        await producer.stop()
        assert producer.errors == [], "every record is delivered in the end"
    found = await world.read_records(TOPIC, PARTITIONS)
    for number, records in found.items():
        place = TopicPartition(TOPIC, number)
        await until(partial(consumers[0].has_read, place, len(records)))
        history.audit(place, [(record.offset, record.value or b"") for record in records])
    for consumer in consumers:
        await consumer.stop()
    return history


async def create_topic(world: World) -> None:
    """Create the topic, as soon as there are enough brokers."""
    async with Admin(world.servers, runtime=world.simulation.runtime("admin")) as admin:
        for _ in range(100):
            try:
                await admin.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=BROKERS)
            except (KafkaError, UnavailableError):
                await asyncio.sleep(0.1)
            else:
                return


def play_faults(
    seed: int, *, episodes: int = 4, flushes_by_group: bool = False, new_world: Callable[..., World] = World
) -> str:
    """Play the world, schedule and checks of one seed and return the trace's digest. Errors carry the story."""
    schedules: list[Schedule] = []

    async def scenario(world: World) -> None:
        schedule = Schedule(world, flushes_by_group=flushes_by_group)
        schedules.append(schedule)
        history = await play_with_clients(world, schedule, episodes)
        assert history.acknowledged() == len(history.sends)
        assert verdict(history) == ""

    flush = {"log.flush.mode": "group"} if flushes_by_group else {}
    tree_s = WAYS_TO_THE_TREE_S[seed % len(WAYS_TO_THE_TREE_S)]
    world = new_world(seed, CONFIG | flush, brokers=BROKERS, noticed_at_once=seed % 2 == 0, tree_s=tree_s)
    try:
        return world.play(scenario)
    except BaseException as error:
        for schedule in schedules:
            error.add_note("the faults: " + "; ".join(schedule.done))
        raise
