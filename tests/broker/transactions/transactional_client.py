"""A transactional producer that sends one request at a time, for tests of brokers."""

import asyncio
from typing import Any

from odradek.model import ErrorCode, TopicPartition
from odradek.model.names import TRANSACTIONS_TOPIC
from odradek.protocol.api import ApiKey
from odradek.simulation.wire_client import WireClient
from odradek.simulation.world import World

_RETRIED = {
    ErrorCode.concurrent_transactions,
    ErrorCode.coordinator_not_available,
    ErrorCode.coordinator_load_in_progress,
    ErrorCode.not_coordinator,
    ErrorCode.not_leader_or_follower,
    ErrorCode.unknown_topic_or_partition,
}


class TransactionalClient:
    """A producer of one transactional id; it knows the coordinator, and connects to it for each request."""

    def __init__(self, world: World, transactional_id: str = "tx", host: str = "client") -> None:
        self.world, self.transactional_id, self.host = world, transactional_id, host
        self.producer_id, self.epoch = -1, -1
        self.sequences: dict[tuple[str, int], int] = {}

    @property
    def fields(self) -> dict[str, Any]:
        return {
            "transactional_id": self.transactional_id,
            "producer_id": self.producer_id,
            "producer_epoch": self.epoch,
        }

    async def ask(self, api: ApiKey, message: dict[str, Any], version: int | None = None) -> Any:
        """Send a request to the coordinator, once."""
        client = await self.connection(TopicPartition(TRANSACTIONS_TOPIC, 0))
        try:
            return await client.ask(api, message, version)
        finally:
            client.close()

    async def connection(self, partition: TopicPartition) -> WireClient:
        """Connect to a partition's leader; for the coordinator, find it first."""
        if partition.topic == TRANSACTIONS_TOPIC:
            await self.find()
        broker = next(iter(self.world.running.values()))
        image = broker.image.partition(partition)
        leader = -1 if image is None else image.leader
        return await self.world.client(self.host, broker=leader if leader in self.world.running else broker.broker_id)

    async def find(self) -> None:
        number = next(iter(self.world.running))
        client = await self.world.client(self.host, broker=number)
        message = {"key": self.transactional_id, "key_type": 1}
        async with asyncio.timeout(120):
            while (await client.ask(ApiKey.FIND_COORDINATOR, message, 1)).error_code:
                await asyncio.sleep(0.1)
        client.close()

    async def until_done(self, api: ApiKey, message: dict[str, Any], version: int | None = None) -> Any:
        """Send a request until it succeeds or fails for good."""
        async with asyncio.timeout(120):
            while True:
                try:
                    answer = await self.ask(api, message, version)
                except (OSError, ConnectionError):
                    await asyncio.sleep(0.1)
                    continue
                if answer.error_code not in _RETRIED:
                    return answer
                await asyncio.sleep(0.1)

    async def init(self, *, timeout_ms: int = 60_000, version: int = 5, **more: Any) -> Any:
        message = {"transactional_id": self.transactional_id, "transaction_timeout": timeout_ms, **more}
        answer = await self.until_done(ApiKey.INIT_PRODUCER_ID, message, version)
        if not answer.error_code:
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
            self.sequences.clear()
        return answer

    async def add(self, *partitions: tuple[str, int], version: int = 3) -> list[ErrorCode]:
        """Add partitions; return their errors in order of topic and number."""
        topics = [{"name": topic, "partitions": [number]} for topic, number in partitions]
        message = {f"v3_and_below_{name}": value for name, value in {**self.fields, "topics": topics}.items()}
        async with asyncio.timeout(120):
            while True:
                answer = await self.ask(ApiKey.ADD_PARTITIONS_TO_TXN, message, version)
                results = [
                    (topic.name, each.partition_index, ErrorCode(each.partition_error_code))
                    for topic in answer.results_by_topic_v3_and_below
                    for each in topic.results_by_partition
                ]
                if not {error for _, _, error in results} & (_RETRIED - {ErrorCode.unknown_topic_or_partition}):
                    return [error for _, _, error in sorted(results)]
                await asyncio.sleep(0.1)

    async def produce(self, topic: str, number: int, *values: bytes) -> ErrorCode:
        sequence = self.sequences.get((topic, number), 0)
        batch = self.world.batch(
            *values,
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=sequence,
            is_transactional=True,
        )
        client = await self.connection(TopicPartition(topic, number))
        answer = await client.produce(
            topic, batch, partition=number, version=11, transactional_id=self.transactional_id
        )
        client.close()
        if not answer.error_code:
            self.sequences[topic, number] = sequence + len(values)
        return ErrorCode(answer.error_code)

    async def write(self, *places: tuple[str, int]) -> None:
        """Add partitions, and produce a record to each."""
        assert set(await self.add(*places)) == {ErrorCode.none}
        for topic, number in places:
            assert await self.produce(topic, number, b"value") is ErrorCode.none

    async def end(self, *, is_commit: bool = True, version: int = 5) -> ErrorCode:
        answer = await self.until_done(ApiKey.END_TXN, {**self.fields, "committed": is_commit}, version)
        if not answer.error_code and version >= 5:
            if answer.producer_id != self.producer_id or answer.producer_epoch != self.epoch:
                self.sequences.clear()
            self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch
        return ErrorCode(answer.error_code)

    async def describe(self) -> Any:
        answer = await self.ask(ApiKey.DESCRIBE_TRANSACTIONS, {"transactional_ids": [self.transactional_id]})
        return answer.transaction_states[0]

    async def until_state(self, state: str) -> None:
        """Wait until the coordinator has this state of the id."""
        async with asyncio.timeout(300):
            while (await self.describe()).transaction_state != state:
                await asyncio.sleep(0.1)


def stable(world: World, *places: tuple[str, int]) -> bool:
    """Return whether no transaction is open in these partitions, by their leaders."""
    for topic, number in places:
        led = [broker.partitions.leader_or_none(topic, number) for broker in world.running.values()]
        (partition,) = [each for each in led if each is not None]
        if partition.log.producers.oldest_transaction_timestamp is not None:
            return False
    return True
