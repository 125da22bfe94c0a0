"""M6. The coordinator of a group dies, and the next leader of its partition continues.

The five phases of SPEC 6 are in `tests/broker/groups/machine/classic/transcripts`, request by request, and clients of
others continue after a failover in `conformance/interop/test_groups_outlive_coordinators.py`. Here members keep their
generation and their commits over three brokers.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from odradek.broker.groups.machine.group_coordinator_machine import GroupCoordinatorMachine
from odradek.metadata import paths
from odradek.metadata.new_topic import NewTopic
from odradek.model import ErrorCode, TopicPartition
from odradek.model.java_hash import coordinator_partition
from odradek.model.names import OFFSETS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.protocol.consumer_protocol import (
    Assignment,
    Subscription,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World, until
from odradek.stores import MemoryStore
from tests.world.scenes import in_world

PARTITIONS = 6
CONFIG = {
    "num.partitions": str(PARTITIONS),
    "default.replication.factor": "3",
    "offsets.topic.num.partitions": "3",
    "offsets.topic.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "200",
    "min.insync.replicas": "2",
}
GROUP = "g"
SESSION_S = 10


def machine_of(world: World) -> tuple[int, GroupCoordinatorMachine] | None:
    """Return the broker that coordinates the group and has loaded it, and its machine."""
    for number, broker in world.running.items():
        machine = broker.groups.machine(GROUP)
        if machine is not None:
            return number, machine
    return None


async def coordinator(world: World) -> int:
    """The broker that coordinates the group, once there is one."""
    await until(lambda: machine_of(world) is not None)
    found = machine_of(world)
    assert found is not None
    return found[0]


async def controller_of(world: World) -> Any:
    await until(lambda: any(broker.metadata_loop.is_controller for broker in world.running.values()))
    return next(broker for broker in world.running.values() if broker.metadata_loop.is_controller)


class HostOfMember:
    """A host of a member whose requests the test sends."""

    def __init__(self, world: World, name: str) -> None:
        self.name = name
        self._world = world
        self._client: WireClient

    async def meet(self) -> None:
        """Connect to the group's coordinator."""
        self._client = await self._world.client(self.name, broker=await coordinator(self._world))

    def drop(self) -> None:
        """Give the connection up."""
        self._client.transport.abort()

    async def committed(self) -> int:
        topics = [{"name": "t", "partition_indexes": [0]}]
        answer = await self._client.ask(ApiKey.OFFSET_FETCH, {"group_id": GROUP, "topics": topics}, 5)
        assert answer.error_code == ErrorCode.none
        return int(answer.topics[0].partitions[0].committed_offset)


class ManualMember(HostOfMember):
    """A member of the classic protocol, whose requests the test sends."""

    def __init__(self, world: World, name: str) -> None:
        super().__init__(world, name)
        self.member_id = ""
        self.generation = -1
        self.owned: tuple[int, ...] = ()
        self.leads = False

    def join(self) -> "asyncio.Future[Any]":
        metadata = encode_subscription(Subscription(topics=("t",)))
        message = {
            "group_id": GROUP,
            "session_timeout": SESSION_S * 1000,
            "rebalance_timeout": 60_000,
            "member_id": self.member_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": metadata}],
        }
        return self._client.request(ApiKey.JOIN_GROUP, message, 3)

    def sync(self, assignments: dict[str, bytes] | None = None) -> "asyncio.Future[Any]":
        given = [{"member_id": each, "assignment": data} for each, data in (assignments or {}).items()]
        return self._client.request(ApiKey.SYNC_GROUP, {**self._who, "assignments": given}, 3)

    async def beat(self) -> ErrorCode:
        return ErrorCode((await self._client.ask(ApiKey.HEARTBEAT, self._who, 3)).error_code)

    async def commit(self, offset: int) -> ErrorCode:
        partitions = [{"partition_index": 0, "committed_offset": offset, "committed_metadata": None}]
        topics = [{"name": "t", "partitions": partitions}]
        who = {**self._who, "generation_id_or_member_epoch": self.generation}
        answer = await self._client.ask(ApiKey.OFFSET_COMMIT, {**who, "topics": topics}, 7)
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def joined(self, answer: Any) -> None:
        assert answer.error_code == ErrorCode.none
        assert answer.generation_id >= self.generation
        self.member_id, self.generation = answer.member_id, answer.generation_id
        self.leads = answer.leader == answer.member_id

    def synced(self, answer: Any) -> None:
        assert answer.error_code == ErrorCode.none
        self.owned = tuple(place.partition for place in decode_assignment(answer.assignment).partitions)

    @property
    def _who(self) -> dict[str, Any]:
        return {"group_id": GROUP, "generation_id": self.generation, "member_id": self.member_id}


def split_evenly(member_ids: Sequence[str]) -> dict[str, bytes]:
    """Every partition to one of the members."""
    return {
        member_id: encode_assignment(
            Assignment(partitions=tuple(TopicPartition("t", n) for n in range(place, PARTITIONS, len(member_ids))))
        )
        for place, member_id in enumerate(sorted(member_ids))
    }


async def join_all(actors: Sequence[ManualMember]) -> None:
    """Have all members join, and rejoin on request, until each partition has one owner in one generation."""
    settled = asyncio.Event()
    living = [asyncio.ensure_future(send_heartbeats(actor, settled)) for actor in actors]

    def is_settled() -> bool:
        owned = sorted(number for actor in actors for number in actor.owned)
        return owned == list(range(PARTITIONS)) and len({actor.generation for actor in actors}) == 1

    await until(lambda: is_settled() or any(each.done() for each in living))
    settled.set()
    await asyncio.gather(*living)
    assert is_settled()


async def send_heartbeats(actor: ManualMember, settled: asyncio.Event) -> None:
    """Send heartbeats and rejoin, as any client does."""
    while True:
        answer = await actor.join()
        actor.joined(answer)
        everybody = [each.member_id for each in answer.members]
        synced = await actor.sync(split_evenly(everybody) if actor.leads else None)
        if synced.error_code == ErrorCode.rebalance_in_progress:
            continue
        actor.synced(synced)
        while await actor.beat() is ErrorCode.none:
            if settled.is_set():
                return
            await asyncio.sleep(0.05)


async def create_topics(world: World) -> None:
    """Create the topic and, by a commit, that of the group's records."""
    controller = await controller_of(world)
    await controller.create_topics([NewTopic(name="t")])
    async with world.consumer("first", group_id=GROUP) as consumer:
        consumer.assign([TopicPartition("t", 0)])
        await consumer.commit({TopicPartition("t", 0): 1})  # the first FindCoordinator creates its topic


async def stable_group(world: World, *names: str) -> list[ManualMember]:
    """The topic, and members of generation 1; the first one leads it."""
    await create_topics(world)
    actors = [ManualMember(world, name) for name in names]
    for actor in actors:
        await actor.meet()
    await join_all(actors)
    assert actors[0].generation == 1
    return sorted(actors, key=lambda actor: not actor.leads)


async def fail_over(world: World, *actors: HostOfMember) -> None:
    """Kill the coordinator, and wait until all members have found the next one."""
    await world.kill(await coordinator(world))
    for actor in actors:
        await actor.meet()


@in_world(CONFIG, brokers=3)
async def test_a_stable_group_keeps_its_generation_after_a_failover(world: World) -> None:
    """And no commit that was acknowledged is lost."""
    one, two = await stable_group(world, "one", "two")
    assert await one.commit(41) is ErrorCode.none
    for _ in range(2):
        number = await coordinator(world)
        await fail_over(world, one, two)
        assert [await one.beat(), await two.beat()] == [ErrorCode.none] * 2
        assert await one.committed() == 41
        synced = await one.sync()
        one.synced(synced)
        await world.start(number)
        await until(lambda: in_sync(world))
    assert await one.commit(42) is ErrorCode.none
    assert one.generation == 1


def in_sync(world: World) -> bool:
    """Whether every replica of the group's partition is in sync again."""
    place = TopicPartition(OFFSETS_TOPIC, coordinator_partition(GROUP, 3))
    images = [broker.image.partition(place) for broker in world.running.values()]
    return all(image is not None and len(image.isr) == 3 for image in images)


@in_world(CONFIG, brokers=3)
async def test_a_group_is_coordinated_while_a_known_broker_is_away(world: World) -> None:
    """`__consumer_offsets` is created with a replica on the broker that is away."""
    await world.kill(2)
    await until(lambda: all(2 not in broker.image.brokers for broker in world.running.values()))
    client = await world.client("asking")
    answer = await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [GROUP]}, 4)
    assert [each.error_code for each in answer.coordinators] == [ErrorCode.none]


@in_world(CONFIG, brokers=3)
async def test_a_coordinator_is_not_available_before_enough_brokers_are_registered(world: World) -> None:
    """COORDINATOR_NOT_AVAILABLE until then, from any broker."""
    await world.kill(2)
    await MemoryStore(world.tree).delete(paths.broker_registration(2))
    await until(lambda: all(2 not in broker.image.brokers for broker in world.running.values()))
    for number in (0, 1):
        client = await world.client("asking", broker=number)
        answer = await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [GROUP]}, 4)
        assert [each.error_code for each in answer.coordinators] == [ErrorCode.coordinator_not_available]
    await world.start(2)
    answers = set()
    for number in (0, 1, 2):
        client = await world.client("asking", broker=number)
        while True:
            answer = await client.ask(ApiKey.FIND_COORDINATOR, {"key_type": 0, "coordinator_keys": [GROUP]}, 4)
            (found,) = answer.coordinators
            if found.error_code == ErrorCode.none:
                break
            await asyncio.sleep(0.1)
        answers.add((found.node_id, found.host))
    assert answers == {(await coordinator(world), world.hosts[await coordinator(world)])}
