"""M1, M6, M7, M9, M12: producers and a group of either protocol, on three brokers, while all of this happens by a seed.

Leaders and the coordinator die and restart, a leader moves, a partition is added, a topic is deleted and created again,
a member is slow, another pauses for longer than `max.poll.interval.ms`, or is cut off for longer than its session and
returns, calls are cancelled in the middle, members come and go, and the producers' buffer is full most of the time. In
the end the history checker finds nothing lost, doubled, reordered or skipped, and the group has read all that
was acknowledged of the topic that stays. (A member may commit offsets of the deleted topic for the new one of its
name, as in Kafka, so that the group may leave out a part of that one.)

`ODRADEK_SEEDS=500 pytest tests/simulation/test_group_clients_in_virtual_time.py` tries so many.
"""

import asyncio
from collections.abc import Callable, Coroutine, Iterable
from functools import partial
from typing import Any, Final

import pytest

from odradek.clients import Consumer, Producer
from odradek.model import KafkaError, TopicPartition, UnavailableError
from odradek.simulation.histories import History, Send, verdict
from odradek.simulation.promises import BROKERS, CLIENTS, PATIENCE_S
from odradek.simulation.setup import CONFIG
from odradek.simulation.world import World, until
from tests.world.sampling import seeds

pytestmark = pytest.mark.long

KEPT, AGAIN = "kept", "again"
"""A topic that stays, and one that is deleted and created again."""
GROUP: Final = "g"
_BUFFER_BYTES: Final = 4_000
_EPISODES: Final = 5
_POLL_INTERVAL_MS: Final = 20_000
_SESSION_MS: Final = 10_000


class Scene:
    """The clients and the deeds of one seed."""

    def __init__(self, world: World, protocol: str) -> None:
        self.world = world
        self.protocol = protocol
        self.chance = world.simulation.entropy("deeds")
        self.history = History()
        self.done: list[str] = []
        self.creation = 0
        """Which creation of `AGAIN` producers send to; -1 while there is none."""
        self.read: set[bytes] = set()
        self._places: dict[bytes, TopicPartition] = {}
        """Where each value was sent to."""
        self._members: list[tuple[Consumer, asyncio.Task[None]]] = []
        self._sending: list[asyncio.Task[None]] = []
        self._producers: list[Producer] = []
        self._waiting: set[asyncio.Future[Any]] = set()
        self._started = 0
        self.pauses_s: dict[str, float] = {}
        """How long members wait after their next poll, by host."""

    async def play(self) -> None:
        """Create the topics, start the clients, do the deeds, and check."""
        world = self.world
        self.admin = await world.admin(**CLIENTS).start()
        for topic in (KEPT, AGAIN):
            await self.until_done(partial(self.create, topic))
        for number in range(2):
            producer = world.producer(
                f"writer-{number}", buffer_memory=_BUFFER_BYTES, delivery_timeout_ms=3_000_000, max_block_ms=3_000_000,
                linger_ms=number * 20, **CLIENTS,
            )  # fmt: skip
            self._producers.append(await producer.start())
            self._sending.append(asyncio.create_task(self._send(f"writer-{number}", producer)))
        for _ in range(2):
            await self.join()
        for _ in range(_EPISODES):
            deed = self.chance.choice(DEEDS)
            self.note(deed.__name__)
            await deed(self)
            await asyncio.sleep(self.chance.choice((0.1, 1.0, 8.0)) * self.chance.random())
        await self._finish()

    async def _finish(self) -> None:
        for number in set(range(BROKERS)) - self.world.running.keys():
            await self.world.start(number)
        await until(lambda: self.history.acknowledged() > 100, within_s=PATIENCE_S)
        for task in self._sending:
            task.cancel()
        await asyncio.wait(self._sending)
        await until(lambda: not self._waiting, within_s=PATIENCE_S)
        acknowledged = {
            send.value
            for send in self.history.sends
            if send.acknowledged_at is not None and send.partition.topic == KEPT
        }
        await until(lambda: acknowledged <= self.read, within_s=PATIENCE_S)
        for consumer, task in self._members:
            task.cancel()
            await asyncio.wait([task])
            await consumer.close()
        for producer in self._producers:
            await producer.close()
        for topic, name in ((KEPT, KEPT), (AGAIN, self.again)):
            found = await self.world.read_records(topic, len(await self.partitions(topic)))
            for number, records in found.items():
                self.history.audit(TopicPartition(name, number), [(each.offset, each.value or b"") for each in records])
        await self.admin.close()
        self._forget_former_creations()
        assert verdict(self.history) == ""

    def _forget_former_creations(self) -> None:
        """Drop what was sent to and read from a topic that was deleted: its log is gone."""
        names = {KEPT, self.again}
        self.history.sends = [each for each in self.history.sends if each.partition.topic in names]
        for key in [key for key in self.history.polls if key[1].topic not in names]:
            del self.history.polls[key]

    @property
    def again(self) -> str:
        """The name of `AGAIN` in the history, another one for each creation."""
        return f"{AGAIN}-{self.creation}"

    def note(self, what: str) -> None:
        """Put it into the story."""
        self.done.append(f"{self.world.now_s:.2f} {what}")

    async def until_done(self, work: Callable[[], Coroutine[Any, Any, object]]) -> None:
        """Repeat what fails while brokers are away."""
        async with asyncio.timeout(PATIENCE_S):
            while True:
                try:
                    await work()
                except (KafkaError, UnavailableError):
                    await asyncio.sleep(0.5)
                else:
                    return

    async def create(self, topic: str) -> None:
        """Create a topic, unless it exists."""
        if not await self.exists(topic):
            await self.admin.create_topic(topic, partitions=2, replication_factor=BROKERS)

    async def delete(self, topic: str) -> None:
        """Delete a topic, unless it is gone."""
        if await self.exists(topic):
            await self.admin.delete_topics([topic])

    async def exists(self, topic: str) -> bool:
        return topic in {each.name for each in await self.admin.list_topics()}

    async def partitions(self, topic: str) -> list[int]:
        """Return the numbers of a topic's partitions."""
        return sorted((await self.admin.describe_topics([topic]))[topic].partitions)

    # ---- clients ----------------------------------------------------------------------------------------------------

    async def _send(self, host: str, producer: Producer) -> None:
        number = 0
        while True:
            topic = (KEPT, AGAIN)[number % 2]
            if topic == KEPT or self.creation >= 0:
                place = TopicPartition(topic if topic == KEPT else self.again, number // 2 % 2)
                value = b"%s-%d %s" % (host.encode(), number, b"." * 200)
                self._places[value] = place
                send = self.history.send(host, place, value, now=self.world.now_s)
                delivery = await producer.send(topic, value, partition=place.partition)
                self._waiting.add(delivery)
                delivery.add_done_callback(partial(self._delivered, send))
            number += 1
            await asyncio.sleep(self.chance.choice((0.0, 0.02, 0.1)))

    def _delivered(self, send: Send, done: "asyncio.Future[Any]") -> None:
        self._waiting.discard(done)
        if not done.cancelled() and done.exception() is None:
            send.acknowledge(done.result().offset if done.result().offset >= 0 else None, now=self.world.now_s)

    async def join(self, *, pause_s: float = 0.0) -> None:
        """Start a member, which waits so long after each poll."""
        host = f"reader-{self._started}"
        self._started += 1
        settings: dict[str, Any] = {"group_protocol": self.protocol, "auto_commit_interval_ms": 500, **CLIENTS}
        settings["allow_auto_create_topics"] = False
        settings["max_poll_interval_ms"] = _POLL_INTERVAL_MS
        if self.protocol == "classic":
            settings |= {"partition_assignment_strategy": "cooperative-sticky", "session_timeout_ms": _SESSION_MS}
        consumer = self.world.consumer(host, group_id=GROUP, **settings)
        await self.until_done(consumer.start)
        self._members.append((consumer, asyncio.create_task(self._poll(host, consumer, pause_s), name=host)))

    async def _poll(self, host: str, consumer: Consumer, pause_s: float) -> None:
        reading: dict[TopicPartition, str] = {}
        after: dict[TopicPartition, int] = {}
        readings = 0

        def forget(partitions: Iterable[TopicPartition]) -> None:
            for place in partitions:
                reading.pop(place, None)

        consumer.subscribe((KEPT, AGAIN), on_partitions_revoked=forget)
        while True:
            for record in await consumer.poll(1_000, 50):
                place = TopicPartition(record.topic, record.partition)
                if place not in reading or record.offset < after[place]:
                    readings += 1  # it was assigned again and goes on from the last commit, or its log is another one
                    reading[place] = f"{host}/{readings}"
                after[place] = record.offset + 1
                value = record.value or b""
                self.read.add(value)
                self.history.poll(reading[place], self._places[value], record.offset, value)
            await asyncio.sleep(self.pauses_s.pop(host, pause_s))

    def some_host(self) -> str:
        """Return the host of a running member."""
        return self.chance.choice(self._members)[1].get_name()

    async def leave(self, number: int) -> None:
        """Cancel a member's poll in the middle, and close it."""
        consumer, task = self._members.pop(number)
        task.cancel()
        await asyncio.wait([task])
        await consumer.close()


# ---- deeds ----------------------------------------------------------------------------------------------------------


def leader_of(scene: Scene, topic: str, number: int = 0) -> int | None:
    """Return the running broker that leads a partition."""
    running = scene.world.running.items()
    return next((each for each, broker in running if broker.partitions.leader_or_none(topic, number) is not None), None)


async def restart(scene: Scene, number: int | None) -> None:
    """Kill a broker, and start it a while later."""
    if number is not None:
        await scene.world.kill(number)
        await asyncio.sleep(scene.chance.choice((0.0, 1.0, 15.0)) * scene.chance.random())
        await scene.world.start(number)
        await until(lambda: all_in_sync(scene), within_s=PATIENCE_S)


def all_in_sync(scene: Scene) -> bool:
    led = [partition for broker in scene.world.running.values() for partition in broker.partitions]
    return all(len(partition.isr) == BROKERS for partition in led)


async def kill_leader(scene: Scene) -> None:
    await restart(scene, leader_of(scene, KEPT))


async def kill_coordinator(scene: Scene) -> None:
    await restart(scene, leader_of(scene, "__consumer_offsets"))


async def stop_broker(scene: Scene) -> None:
    number = scene.chance.choice(sorted(scene.world.running))
    await scene.world.stop(number)
    await scene.world.start(number)
    await until(lambda: all_in_sync(scene), within_s=PATIENCE_S)


async def add_partition(scene: Scene) -> None:
    count = len(await scene.partitions(KEPT))
    await scene.until_done(lambda: scene.admin.create_partitions(KEPT, count + 1))


async def create_again(scene: Scene) -> None:
    """Delete a topic when all that was sent to it is acknowledged, and create it again."""
    before, scene.creation = scene.creation, -1
    await until(lambda: not scene._waiting, within_s=PATIENCE_S)
    await scene.until_done(partial(scene.delete, AGAIN))
    await asyncio.sleep(scene.chance.choice((0.5, 5.0)))
    await scene.until_done(partial(scene.create, AGAIN))
    scene.creation = before + 1


async def slow_member(scene: Scene) -> None:
    await scene.join(pause_s=2.0)


async def pausing_member(scene: Scene) -> None:
    """Let a member's application work for longer than `max.poll.interval.ms`, and go on as if nothing had been."""
    scene.pauses_s[scene.some_host()] = 1.5 * _POLL_INTERVAL_MS / 1000
    await asyncio.sleep(2 * _POLL_INTERVAL_MS / 1000)


async def cut_off_member(scene: Scene) -> None:
    """Let nothing pass between a member and the brokers for longer than its session; it polls on meanwhile."""
    scene.world.simulation.network.partition([scene.some_host()], scene.world.hosts)
    await asyncio.sleep(1.5 * _SESSION_MS / 1000)
    scene.world.simulation.network.heal()


async def member_comes(scene: Scene) -> None:
    await scene.join()


async def member_goes(scene: Scene) -> None:
    if len(scene._members) > 1:
        await scene.leave(scene.chance.randrange(len(scene._members)))


async def cancel_sends(scene: Scene) -> None:
    """Cancel a writer's `send`, most likely while it waits for memory, and begin again."""
    host = f"writer-{scene.chance.randrange(2)}"
    number = int(host[-1])
    scene._sending[number].cancel()
    await asyncio.wait([scene._sending[number]])
    scene._sending[number] = asyncio.create_task(scene._send(f"{host}-{len(scene.done)}", scene._producers[number]))


DEEDS: Final = (
    kill_leader, kill_coordinator, stop_broker, add_partition, create_again, slow_member, pausing_member,
    cut_off_member, member_comes, member_goes, cancel_sends,
)  # fmt: skip


def play(seed: int, protocol: str) -> None:
    """Play one seed. Errors carry the story."""
    scenes: list[Scene] = []

    async def scenario(world: World) -> None:
        scenes.append(Scene(world, protocol))
        await scenes[0].play()

    config = CONFIG | {
        "group.initial.rebalance.delay.ms": "0",
        "auto.create.topics.enable": "false",
        "group.consumer.min.session.timeout.ms": str(_SESSION_MS),
        "group.consumer.session.timeout.ms": str(_SESSION_MS),
    }
    try:
        World(seed, config, brokers=BROKERS, noticed_at_once=seed % 2 == 0).play(scenario)
    except BaseException as error:
        for scene in scenes:
            error.add_note("the deeds: " + "; ".join(scene.done))
        raise


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("number", seeds(2))
def test_a_group_reads_all_that_was_acknowledged_whatever_happens(number: int, protocol: str) -> None:
    play(number, protocol)
